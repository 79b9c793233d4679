"""One picture of a run as the report shows it: drawings, dial, sentence, and the figures behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from markupsafe import Markup
from torch import Tensor

from warpcert.certificates import Certificate
from warpcert.certificates.words import thing
from warpcert.classifier.votes.voting import ABSTAIN
from warpcert.originals.protocol import IntervalInverse
from warpcert.report import svg
from warpcert.report.results import RunFolder
from warpcert.report.words import cell, duration, explained, grouped
from warpcert.runs.summary import Row, held
from warpcert.threat import Threat
from warpcert.transforms import SpatialTransform

__all__ = ["STATUS", "Card", "Shown", "card", "image", "possible"]

ROOM = 2**12  # values of a picture whose possible originals are worth the time
STATUS = {
    "whole": "certified on the whole range",
    "part": "certified on a part of it",
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
    """One picture of a run, as the gallery shows it."""

    row: Row
    status: str
    title: str  # what was answered, in the names of the classes
    truth: str
    reach: str
    shown: list[Shown]
    facts: list[tuple[str, str]]
    windows: list[list[str]]
    note: str
    meanings: list[str]  # of the symbols in them
    search: str


def card(run: RunFolder, row: Row, *, deep: bool) -> Card:
    """Everything about one picture; the possible originals only if deep."""
    c = row.certificate
    if c.abstains or c.reach is None:
        status, title = ("broken", "not kept") if c.counterexample else ("none", "abstains")
    else:
        t = held(row)
        status, title = "wrong" if t is None else "whole" if t == 1 else "part", _class(run, c.label)
    facts, (windows, note) = _facts(run, row), _windows(c)
    return Card(
        row=row,
        status=status,
        title=title,
        truth=_class(run, row.label),
        reach=c.span or "–",
        shown=_shown(run, row, deep),
        facts=facts,
        windows=windows,
        note=note,
        meanings=explained(*(text for fact in facts for text in fact), *(windows[0] if windows else [])),
        search=f"{row.index} {_class(run, row.label)} {title}".lower(),
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
    attacked, caption = _attacked(row, x, None if kept.attacked is None else kept.tensor(kept.attacked, place))
    if x.dim() != 3:
        shown = [Shown("certified range", svg.dial(c, None)), Shown("sound", svg.waveform(x))]
        return shown if attacked is None else [*shown, Shown(caption, svg.waveform(attacked))]
    shown = [
        Shown("original, which the certifier did not see" if c.unseen else "original", svg.dial(c, svg.picture(x)))
    ]
    if attacked is not None:
        shown.append(Shown(caption, _img(attacked, caption)))
        ends = possible(attacked, c.threat) if deep else None
        words = ("lower bound on every possible original", "upper bound")
        shown += [Shown(w, _img(end, w)) for end, w in zip(ends or (), words, strict=False)]
    return shown


def _attacked(row: Row, x: Tensor, kept: Tensor | None) -> tuple[Tensor | None, str]:
    """An attacked picture and what it is: the one that was certified, or what the attacker can make of the original at
    a counterexample or at the farthest certified γ. None if the one that was certified is not known.
    """
    c, t = row.certificate, row.certificate.threat.transform
    if row.attack is None and (kept is not None or c.unseen):
        return kept, f"attacked {thing(t)}"
    farthest = c.reach.upper if c.reach else c.threat.box.upper
    gamma = row.attack.gamma if row.attack else c.counterexample or farthest
    if row.attack is None:
        gamma = tuple(c.threat.legal(torch.tensor([gamma], dtype=torch.float64))[0].tolist())
    moved = c.threat.attacked(x, torch.tensor([gamma], dtype=torch.float64))[0] if kept is None else kept
    return moved, f"{t.noun} by {t.at(gamma)}"


def possible(x_attacked: Tensor, threat: Threat) -> tuple[Tensor, Tensor] | None:
    """low ≤ x ≤ high for every x with x' = q(T_γ x), γ ∈ Γ; None if there is none, or if the interval inverse does not
    know this threat or would take long.

    The join over the cells of γ that are not excluded: γ lies in one of them, and x in its intervals.
    """
    moves = isinstance(threat.transform, SpatialTransform) and threat.interpolation == "bilinear" and not threat.l2
    if not moves or x_attacked.numel() > ROOM or threat.box.lower == threat.box.upper:
        return None
    found = IntervalInverse(refinements=3, most=64).survivors(x_attacked, threat)
    return (found.lower.amin(0), found.upper.amax(0)) if len(found.low) else None


def _img(x: Tensor, alt: str) -> Markup:
    return Markup('<img src="{}" alt="{}">').format(svg.picture(x), alt)


def _facts(run: RunFolder, row: Row) -> list[tuple[str, str]]:
    c, attack = row.certificate, row.attack
    found = [("true label", _numbered(run, row.label)), ("kind", str(c.kind))]
    found[:0] = [] if c.abstains else [("answer", _numbered(run, c.label))]
    if attack is not None:
        found.append(("network alone, under attack", _numbered(run, attack.label)))
        if attack.answer is not None:
            said = "abstains" if attack.answer == ABSTAIN else _numbered(run, attack.answer)
            found.append(("as deployed, under attack", said))
    found += [(name, grouped(v) if isinstance(v, int) else cell(v)) for name, v in c.facts()]
    found += [("seed", str(c.seed))] if c.seed is not None else []
    return [*found, ("passes", grouped(c.passes)), ("time", duration(c.seconds)), ("version", c.version)]


def _windows(c: Certificate) -> tuple[list[list[str]], str]:
    """A table of the windows (the first row is its head), and a sentence where they are too many for one."""
    table, note = c.table()
    return [[cell(value) for value in row] for row in table], note
