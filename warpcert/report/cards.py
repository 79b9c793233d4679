"""One image of a run as the report shows it: pictures, dial, sentence, and the figures behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from markupsafe import Markup
from torch import Tensor

from warpcert.certificates import Certificate
from warpcert.certificates.words import thing
from warpcert.originals.protocol import IntervalInverse
from warpcert.report import svg
from warpcert.report.results import RunFolder
from warpcert.runs.summary import Row, held
from warpcert.threat import Threat

__all__ = ["STATUS", "Card", "Shown", "card", "cell", "duration", "grouped", "image", "possible"]

ROOM = 2**12  # values of a picture whose possible originals are worth the time
STATUS = {
    "whole": "certified on all of Γ",
    "part": "certified on a part of Γ",
    "none": "no certificate",
    "wrong": "certified, but the label is wrong",
    "broken": "counterexample found",
}


@final
@dataclass(frozen=True)
class Shown:
    """A picture of a card, and what it is."""

    caption: str
    drawing: Markup


@final
@dataclass(frozen=True)
class Card:
    """One image of a run, as the gallery shows it."""

    row: Row
    status: str
    title: str  # what was answered, in the names of the classes
    truth: str
    reach: str
    shown: list[Shown]
    facts: list[tuple[str, str]]
    windows: list[list[str]]
    note: str
    search: str


def cell(value: Any) -> str:
    """A number for people, a text as it is, a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "∞" if value > 0 else str(value)
    return str(value)


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def grouped(number: float) -> str:
    """A whole number, its thousands apart."""
    return f"{number:,.0f}".replace(",", "\u202f")


def card(run: RunFolder, row: Row, *, deep: bool) -> Card:
    """Everything about one image; the possible originals only if deep."""
    c = row.certificate
    if c.abstains or c.reach is None:
        status, title = ("broken", "not kept") if c.counterexample else ("none", "abstains")
    else:
        t = held(row)
        status, title = "wrong" if t is None else "whole" if t == 1 else "part", _class(run, c.label)
    reach = c.span or "–"
    return Card(
        row,
        status,
        title,
        _class(run, row.label),
        reach,
        _shown(run, row, deep),
        _facts(run, row),
        *_windows(c),
        f"{row.index} {_class(run, row.label)} {title}".lower(),
    )


def _class(run: RunFolder, label: int) -> str:
    names = run.pictures.classes if run.pictures else ()
    return names[label] if 0 <= label < len(names) else str(label)


def _numbered(run: RunFolder, label: int) -> str:
    """The class by name and, where that differs, by number: certificates speak of numbers."""
    name = _class(run, label)
    return name if name == str(label) else f"{label}, {name}"


def image(run: RunFolder, index: int) -> Tensor | None:
    place = run.pictures.place(index) if run.pictures else None
    return run.pictures.tensor(run.pictures.x, place) if run.pictures and place is not None else None


def _shown(run: RunFolder, row: Row, deep: bool) -> list[Shown]:
    """The original in its dial, an attacked picture, and (if deep) what an inverse says of the originals that can have
    led to it.
    """
    c, kept = row.certificate, run.pictures
    place = kept.place(row.index) if kept else None
    if kept is None or place is None:
        return [Shown("certified range", svg.dial(c, None))]
    x = kept.tensor(kept.x, place)
    attacked, caption = None, f"attacked {thing(c.threat.transform)}"
    if kept.attacked is not None:
        attacked = kept.tensor(kept.attacked, place)
    elif not c.unseen or row.index in run.attacks:
        farthest = c.reach.upper if c.reach else c.threat.box.upper
        gamma = run.attacks.get(row.index) or c.counterexample or farthest
        attacked = c.threat.attacked(x, torch.tensor([gamma], dtype=torch.float64))[0]
        caption = c.threat.transform.noun + " by " + " × ".join(c.threat.transform.to_text(g) for g in gamma)
    if x.dim() != 3:
        shown = [Shown("certified range", svg.dial(c, None)), Shown("sound", svg.waveform(x))]
        return shown if attacked is None else [*shown, Shown(caption, svg.waveform(attacked))]
    shown = [Shown("original", svg.dial(c, svg.picture(x)))]
    if attacked is not None:
        shown.append(Shown(caption, _img(attacked, caption)))
        ends = possible(attacked, c.threat) if deep else None
        words = ("every possible original is at least this", "and at most this")
        shown += [Shown(w, _img(end, w)) for end, w in zip(ends or (), words, strict=False)]
    return shown


def possible(x_attacked: Tensor, threat: Threat) -> tuple[Tensor, Tensor] | None:
    """low ≤ x ≤ high for every x with x' = q(T_γ x), γ ∈ Γ; None if there is none, or if the interval inverse does not
    know this threat or would take long.

    The join over the cells of γ that are not excluded: γ lies in one of them, and x in its intervals.
    """
    bilinear = threat.transform.interpolates and threat.interpolation == "bilinear"
    if not bilinear or x_attacked.numel() > ROOM or threat.box.lower == threat.box.upper:
        return None
    found = IntervalInverse(refinements=3, most=64).survivors(x_attacked, threat)
    return (found.lower.amin(0), found.upper.amax(0)) if len(found.low) else None


def _img(x: Tensor, alt: str) -> Markup:
    return Markup('<img src="{}" alt="{}">').format(svg.picture(x), alt)


def _facts(run: RunFolder, row: Row) -> list[tuple[str, str]]:
    c = row.certificate
    found = [("true label", _numbered(run, row.label)), ("kind", str(c.kind))]
    found[:0] = [] if c.abstains else [("answer", _numbered(run, c.label))]
    found += [(name, grouped(v) if isinstance(v, int) else cell(v)) for name, v in c.facts()]
    found += [("seed", str(c.seed))] if c.seed is not None else []
    return [*found, ("passes", grouped(c.passes)), ("time", duration(c.seconds)), ("version", c.version)]


def _windows(c: Certificate) -> tuple[list[list[str]], str]:
    """A table of the windows (the first row is its head), and a sentence where they are too many for one."""
    table, note = c.table()
    return [[cell(value) for value in row] for row in table], note
