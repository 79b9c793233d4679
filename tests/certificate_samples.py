"""Certificates by hand, one or more of every kind, as the methods write them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import warpcert as wc
from warpcert.certificates import (
    NO_ERROR,
    ByMargins,
    Covered,
    Enumeration,
    ErrorBound,
    Exhausted,
    Individual,
    Kind,
    Margins,
    Share,
    Subject,
    Voted,
    Window,
)
from warpcert.classifier.defence import Defence
from warpcert.methods.run import window_centers
from warpcert.transforms import Box

FACTS: dict[str, dict[str, Any]] = {
    "smoothed": {
        "noise": 0.15,
        "over": {"rotation": [30.0]},
        "interpolation": "bicubic",
        "nested": False,
        "lipschitz": None,
        "precision": "float32",
        "slack": 1e-4,
    },
    "plain": {"lipschitz": 0.9, "precision": "float32", "slack": 1e-4},
    "levels": {"step": 8, "precision": "float32", "slack": 1e-4},
}
THREAT = wc.Threat.rotation(50)
ERROR = ErrorBound(0.2, 0.005, Kind.PROVED, "curve", betas=1000)


def subject(kind: str, **changes: Any) -> Subject:
    """A classifier that need not exist."""
    plain = {"vignette": "none", "margin": 0.0, "blur_sigma": 0.0, "blur_size": 1}
    facts = {"kind": kind, **FACTS[kind], **({} if kind == "levels" else {"preprocess": plain}), **changes}
    return Subject.of("sample", "feed" * 16, facts)


def defence(transform: str = "rotation", *sigma: float, noise: float = 0.15) -> Defence:
    return Defence.surface(transform, *(sigma or (30,)), noise=noise)


def voted(*windows: Window, **changes: Any) -> Voted:
    """Three windows at 9990 of 10 000 votes unless told otherwise."""
    threat = changes.get("threat", THREAT)
    if not windows:
        windows = tuple(Window(c, 9990, 10_000, 0.005 / 3) for c in window_centers(threat.box, 3))
    e = changes.get("error", ERROR)
    spent = [("error bound", e.alpha)] if e.alpha else []
    d = changes.get("defence", defence())
    form = changes.get("form", "joint")
    over = {d.transform.name: [d.transform.surface(s) for s in d.sigma_param]}
    facts = {"noise": d.sigma_noise, "over": over, "nested": form == "nested"}
    values: dict[str, Any] = {
        "method": "dist-x",
        "form": "joint",
        "label": 7,
        "threat": threat,
        "defence": d,
        "error": e,
        "windows": windows,
        "alpha": round(e.alpha + sum(w.alpha for w in windows), 12),
        "ledger": tuple(spent + [(f"votes at {w.center}", w.alpha) for w in windows]),
        "classes": 10,
        "scores": (1, 0, 2, 0, 3, 0, 0, 94, 0, 0),
        "passes": 100 + sum(w.n for w in windows),
        "seed": 3,
        "classifier": subject("smoothed", **facts),
    }
    return Voted(**values | changes)


def covered(transform: str = "rotation", bad: dict[int, dict[str, Any]] | None = None, **changes: Any) -> Covered:
    """Γ in cells, all of them accepted but for what `bad` changes; of a translation 4 × 4 of them."""
    threat = changes.get("threat", wc.Threat.of(transform, 2 if transform == "translation" else 50))
    axes = []
    for a, b in zip(threat.box.lower, threat.box.upper, strict=True):
        cuts = [a + (b - a) * i / 4 for i in range(5)]
        axes.append(list(pairwise(cuts)))
    cells = [Box((a,), (b,)) for a, b in axes[0]]
    if len(axes) == 2:
        cells = [Box((a, c), (b, d)) for a, b in axes[0] for c, d in axes[1]]
    alpha = 0.01 / len(cells)
    values = [{"k": 80, "n": 80, "E": 0.1} | (bad or {}).get(i, {}) for i in range(len(cells))]
    windows = [Window(c.center, alpha=alpha, cell=c, **v) for c, v in zip(cells, values, strict=True)]
    t = threat.transform
    told: dict[str, Any] = {
        "method": "cover",
        "label": 7,
        "threat": threat,
        "defence": Defence(t, (0.0,) * t.dim, 0.2),
        "error": ErrorBound(max(v["E"] for v in values), 0.0, Kind.PROVED, "cover", cells=99),
        "windows": windows,
        "alpha": 0.01,
        "ledger": ((f"{len(cells)} windows", 0.01),),
        "classes": 10,
        "scores": (1, 0, 2, 0, 3, 0, 0, 94, 0, 0),
        "passes": 100 + sum(w.n for w in windows),
        "seed": 3,
        "classifier": subject("smoothed", noise=0.2, over={}),
    }
    return Covered(**told | changes)


def by_margins(transform: str = "rotation", bad: dict[int, dict[str, Any]] | None = None, **changes: Any) -> ByMargins:
    pattern = covered(transform)
    values = [{"E": 0.1, "margin": 0.3 + 0.01 * i} | (bad or {}).get(i, {}) for i in range(len(pattern.windows))]
    windows = [Window(w.center, cell=w.cell, **v) for w, v in zip(pattern.windows, values, strict=True)]
    told: dict[str, Any] = {
        "method": "cover",
        "label": 7,
        "threat": pattern.threat,
        "preprocess": wc.Preprocess(),
        "margins": Margins(0.9, 1e-4),
        "error": ErrorBound(0.1, 0.0, Kind.PROVED, "cover", cells=99),
        "windows": windows,
        "classes": 10,
        "scores": tuple(0.4 if i == 7 else 0.01 * i for i in range(10)),
        "passes": 1 + len(windows),
        "classifier": subject("plain"),
    }
    return ByMargins(**told | changes)


def exhausted(**changes: Any) -> Exhausted:
    told: dict[str, Any] = {
        "method": "exact",
        "label": 7,
        "threat": THREAT,
        "preprocess": wc.Preprocess(),
        "step": 8,
        "found": Enumeration(1234, 1200, 0.1, 1e-4, "tolerance", tolerance=1e-12),
        "error": ErrorBound(0.0, 0.0, Kind.PROVED, "crossings", cells=1200),
        "classes": 10,
        "scores": tuple(4.0 if i == 7 else 0.1 * i for i in range(10)),
        "passes": 1234,
        "classifier": subject("levels"),
    }
    return Exhausted(**told | changes)


def part_exhausted(held: float = 0.5) -> Exhausted:
    """Proved on a part of Γ, with a counterexample beyond."""
    gamma = math.radians(50 * min(1.0, held + 0.1))
    return exhausted(
        found=Enumeration(1000, 1200, 0.1, 1e-4, "tolerance", held, tolerance=1e-12),
        counterexample=(gamma,),
        reason=f"the classifier answers differently at {THREAT.transform.to_text(gamma)}",
    )


def individual(nested: bool = False, **changes: Any) -> Individual:
    """Two windows are left of Γ, and vouch for themselves."""
    threat = wc.Threat.rotation(10)
    b = threat.box.upper[0]
    cells = [Box((-b,), (-0.98 * b,)), Box((-0.01 * b,), (0.01 * b,))]
    windows = tuple(Window(c.center, 4480, 4500, 0.0045, cell=c, E=E) for c, E in zip(cells, (0.1, 0.05), strict=True))
    told: dict[str, Any] = {
        "method": "indiv",
        "form": "indiv-nested" if nested else "indiv",
        "label": 7,
        "threat": threat,
        "defence": defence(),
        "error": ErrorBound(0.1, 0.0045, Kind.PROVED, "lagrangian", 500, 0, 80),
        "windows": windows,
        "alpha": 0.01,
        "ledger": (("votes at x'", 0.001), ("error bound", 0.0045), ("votes", 0.0045)),
        "alpha_inner": 0.001 if nested else 0.0,
        "centred": Window((0.0,), 990, 1000, 0.001),
        "excluded": 0.98,
        "classes": 10,
        "scores": (1, 0, 2, 0, 3, 0, 0, 94, 0, 0),
        "passes": 10_100,
        "seed": 3,
        "classifier": subject("smoothed", nested=nested),
    }
    return Individual(**told | changes)


def calibrated(form: str = "joint", **changes: Any) -> Voted:
    error = ErrorBound(0.05, 0.0, Kind.PROVED, "calibrated curve", stated_rho=0.01)
    windows = tuple(Window(c, 3300, 3333, 0.01 / 3) for c in window_centers(THREAT.box, 3))
    if form == "attacked":
        threat = wc.Threat.rotation(10)
        changes = {"method": "dist-d-online", "threat": threat} | changes
        windows = (Window((0.0,), 9990, 10_000, 0.01),)
    share = Share("c0de" * 16, 0.001, 0.001, 1000, 999, 700, 0)
    return voted(*windows, **{"form": form, "method": "dist-d", "error": error, "share": share} | changes)


def samples() -> dict[str, wc.Certificate]:
    two = [Window(c, 9000, 10_000, 0.005 / 3, 200 + i) for i, c in enumerate(window_centers(THREAT.box, 3))]
    shift = wc.Threat.translation(1)
    d = defence("translation", 1.5, noise=0.2)
    flat = tuple(Window(c, 9990, 10_000, 0.00125) for c in window_centers(shift.box, 2))
    return {
        "joint": voted(),
        "two-class": voted(*two),
        "reference": voted(defence=replace(defence(), reference="bilinear")),
        "translation": voted(*flat, threat=shift, defence=d, classifier=subject(
            "smoothed", over={"translation": [1.5, 1.5]}, noise=0.2)),
        "nested": voted(form="nested", alpha_inner=0.001),
        "base": voted(form="base", method="base", error=NO_ERROR),
        "sampled": voted(error=ErrorBound(0.2, 0.005, Kind.HEURISTIC, "sampled", betas=1000)),
        "calibrated": calibrated(),
        "attacked": calibrated("attacked"),
        "cover": covered(),
        "part of a cover": covered(bad={3: {"k": 40}}),
        "cover of shifts": covered("translation", defence=Defence.surface("translation", 0, noise=0.2)),
        "margins": by_margins(),
        "part by margins": by_margins(bad={0: {"margin": 0.1}}),
        "margins of shifts": by_margins("translation"),
        "exact": exhausted(),
        "part exact": part_exhausted(),
        "indiv": individual(),
        "indiv nested": individual(nested=True),
    }  # fmt: skip
