"""What holds of every certificate: classifier, threat and method go together, and the label is the one found."""

from __future__ import annotations

import math
from typing import Any

from warpcert.certificates.base import Certificate
from warpcert.certificates.evidence import ErrorBound, Kind
from warpcert.certificates.exhausted import Exhausted
from warpcert.certificates.margins import ByMargins
from warpcert.classifier.before.front import BEFORE_LEVELS

__all__ = ["answers", "near", "rank", "refuse", "spends", "together"]

METHODS = {
    "joint": ("dist-x", "dist-d"),
    "nested": ("dist-x", "dist-d"),
    "base": ("base",),
    "attacked": ("dist-d-online",),
    "indiv": ("indiv",),
    "indiv-nested": ("indiv",),
    "covered": ("cover",),
    "margins": ("cover",),
    "exhausted": ("exact",),
}
ANALYSES = {
    "dist-x": ("curve", "interval", "sampled"),
    "dist-d": ("calibrated curve", "calibrated interval", "calibrated sampled"),
    "dist-d-online": ("calibrated curve", "calibrated interval", "calibrated sampled"),
    "indiv": ("lagrangian", "functional", "interval", "volume inverse"),
    "base": ("none",),
    "cover": ("cover",),
    "exact": ("crossings",),
}
NAME, REASON = 200, 500  # characters
GUESSES = ("none", "sampled", "calibrated sampled")  # analyses that prove nothing


def refuse(wrong: bool, why: str) -> None:
    if wrong:
        raise ValueError(why)


def near(a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def together(c: Certificate) -> None:
    """Classifier, method, analysis and threat."""
    form = getattr(c, "form", c.statement)
    _how(c, form)
    _words(c)
    _whom(c)
    _error(c.error, c.method)


def _words(c: Certificate) -> None:
    """What is free stands in sentences that are not: it is short, and nothing in it moves a cursor or starts a line."""
    who = c.classifier
    told = {"name": (who.name, NAME), "former fingerprint": (who.formerly, NAME), "reason": (c.reason, REASON)}
    for name, (text, most) in told.items():
        refuse(len(text) > most or not text.isprintable(), f"the {name} is no short line of text")


def _whom(c: Certificate) -> None:
    """Classifier, defence and threat go together."""
    t = c.threat.transform
    _facts(c, c.classifier.facts or {})
    defence = getattr(c, "defence", None)
    if defence is not None:
        refuse(
            defence.transform != t,
            f"the threat is {t.name}, the classifier smooths over something else",
        )
        refuse(not t.interpolates and defence.interpolation not in ("bicubic", "bilinear"), "nothing is interpolated")
    refuse(bool(c.threat.l2) and c.method != "cover", f"{c.method} knows no ℓ2 part")
    refuse(len(t.parts) > 1 and c.method not in ("cover", "exact"), f"{c.method} knows no products")
    if not isinstance(c, Exhausted):
        refuse(c.threat.tolerance is not None, f"{c.method} bounds the attacker's arithmetic itself: no tolerance")


def _facts(c: Certificate, facts: dict[str, Any]) -> None:
    """The statement's parameters are those of the classifier."""
    kind = {Exhausted: ("plain", "levels"), ByMargins: ("plain",)}.get(type(c), ("smoothed",))
    refuse(facts.get("kind") not in kind, f"a {facts.get('kind')} classifier has no certificate of this kind")
    defence, t = getattr(c, "defence", None), c.threat.transform
    p = defence.preprocess if defence else c.preprocess  # type: ignore[attr-defined]
    told = facts.get("preprocess", {"vignette": "none", "margin": 0.0, "blur_sigma": 0.0, "blur_size": 1})
    ours = {name: getattr(p, name) for name in ("vignette", "margin", "blur_sigma", "blur_size")}
    ours |= ({"halved": True} if p.halved else {}) | ({} if p.limit is None else {"limit": p.limit})
    refuse(ours != told, "the preprocessing is not that of the classifier")
    if defence is not None:
        over = {t.name: tuple(t.internal(s) for s in facts["over"].get(t.name, ()))}
        sigma = over[t.name] or (0.0,) * t.dim
        refuse(set(facts["over"]) - {t.name} != set(), "the classifier smooths over another transformation")
        same = len(sigma) == t.dim and all(map(near, sigma, defence.sigma_param))
        refuse(not same or facts["noise"] != defence.sigma_noise, "the noise is not that of the classifier")
        refuse(facts.get("front", "none") != defence.front, "the front is not that of the classifier")
        turns = any(sigma)
        refuse(turns and facts["interpolation"] != defence.interpolation, "the interpolation is not the classifier's")
        nested = getattr(c, "form", "") in ("nested", "indiv-nested")
        refuse(getattr(c, "form", "") != "base" and nested != facts["nested"], "nested or joint: the facts differ")
    if isinstance(c, Exhausted):
        front = facts.get("front", "none")
        refuse(front not in BEFORE_LEVELS, f"no front before levels is called {front!r}")
        refuse(front != "none" and (c.step == 1 or "sees" in facts), "a front stands before levels of all pixels")
        refuse(facts.get("step", 1) != c.step, "the step between levels is not that of the classifier")
        refuse(c.found is not None and c.found.slack != facts["slack"], "the slack is not that of the classifier")
    if isinstance(c, ByMargins):
        L, told_L = c.margins.lipschitz, facts["lipschitz"]
        old = c.classifier.formerly and told_L is not None and told_L * (1 - 1e-5) <= L <= told_L
        refuse(told_L != L and not old, "the Lipschitz constant is not that of the classifier")
        refuse(c.margins.slack != facts["slack"], "the slack is not that of the classifier")


def _how(c: Certificate, form: str) -> None:
    refuse(c.method not in METHODS[form], f"{c.method!r} makes no certificates of the form {form}")
    refuse((getattr(c, "share", None) is not None) != c.method.startswith("dist-d"), "a share belongs to dist-d")
    numbers = (c.seconds, c.error.seconds, c.error.cells, c.passes)
    refuse(not all(0 <= v < math.inf for v in numbers), "times and counts are finite and not negative")


def _error(e: ErrorBound, method: str) -> None:
    """How E came about; `_error_alpha` looks at ρ."""
    refuse(e.bound not in ANALYSES[method], f"{method} knows no error analysis {e.bound!r}")
    refuse((e.kind is Kind.HEURISTIC) != (e.bound in GUESSES), f"an error that is {e.bound} is not {e.kind}")
    refuse(not (0 <= e.exceeded <= e.betas and 0 <= e.alpha < 1), "more β's exceeded E than were drawn")
    drawn = method in ("dist-x", "indiv")
    refuse(not drawn and bool(e.betas or e.exceeded or e.alpha), f"{method} draws no β's of its own")
    refuse(bool(e.betas) != bool(e.alpha), "ρ comes from β's that were drawn, and is paid for")
    refuse((e.stated_rho is None) == method.startswith("dist-d"), "a calibration states ρ, and nothing else does")


def answers(c: Certificate, certified: bool) -> None:
    """The label, among the classes, is the one that the scores name, and withheld if nothing is certified."""
    refuse(c.classes < 2 or not -1 <= c.label < c.classes, f"label {c.label} and {c.classes} classes do not fit")
    refuse(certified == c.abstains, "a label is given if and only if something is certified")
    if c.scores is None:
        refuse(not c.classifier.formerly, "the scores that name the label are missing")
        return
    refuse(len(c.scores) != c.classes or not all(map(math.isfinite, c.scores)), "there is one score for every class")
    refuse(not c.abstains and c.scores[c.label] < max(c.scores), f"the scores do not name {c.label}")


def rank(c: Certificate) -> Kind:
    """The kind that the statement and its error bound allow."""
    form = getattr(c, "form", c.statement)
    if c.error.kind is Kind.HEURISTIC or form == "base":
        return Kind.HEURISTIC
    return Kind.PROVED if form in ("margins", "exhausted") else Kind.WITH_CONFIDENCE


def spends(alpha: float, ledger: tuple[tuple[str, float], ...], used: list[float]) -> None:
    """All of α is spent, and on these bounds."""
    amounts = [amount for _, amount in ledger]
    refuse(not (0 < alpha < 1 and all(a > 0 for a in amounts)), "α and what is spent of it lie between 0 and 1")
    refuse(not near(math.fsum(amounts), alpha), "the ledger does not add up to α")
    total = math.fsum(used)
    refuse(not near(total, alpha), f"the bounds use α = {total:g}, but the ledger shows {alpha:g}")
