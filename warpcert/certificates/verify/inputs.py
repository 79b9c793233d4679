"""Enumerated inputs: what was asked about, by how much the label led, and for whom that is a proof."""

from __future__ import annotations

import math

from warpcert.certificates.exhausted import Exhausted
from warpcert.certificates.verify.common import refuse
from warpcert.classifier.before.front import Front
from warpcert.classifier.before.stem import Stem
from warpcert.transforms import Flow, Transform

__all__ = ["exhausted"]

SCOPES = ("tolerance", "program", "exact")
FINEST = 0.1 / 255  # a tenth of a level: no enumeration takes larger tolerances


def exhausted(c: Exhausted) -> bool:
    """Whether every input was asked about, and answered with a sufficient lead."""
    t, done, gamma = c.threat.transform, c.found, c.threat.box
    alone = c.threat.after_shifts is None  # nothing but shifts
    rest = t.parts[1:] if t.parts[0].disc else t.parts  # after a finite set of shifts
    refuse(c.front != "none" and c.threat.quantized and bool(rest), "behind a front attackers who round are not listed")
    rest = rest if c.threat.quantized else _seen(rest, c.front)
    unknown = len(rest) > 1 or any(part.dim != 1 for part in rest) or t.item_dims != 3 or c.threat.l2
    refuse(bool(unknown), f"no enumeration knows {t.name}")
    refuse(t.interpolates and c.threat.interpolation != "bilinear", "no enumeration knows that attacker")
    bare = not c.threat.quantized and c.step == 1
    refuse(bare and not alone, "against attackers who do not round, levels are needed")
    refuse(alone and bool(c.threat.off_by), "shifts copy pixels: there is no tolerance")
    off = Front(c.front).before(c.threat, c.threat.off_by)
    refuse(not 0 <= off < FINEST, "a tolerance lies below a tenth of a level, before tones that are not seen too")
    flows = not t.parts[0].disc and all(isinstance(part, Flow) for part in rest)
    refuse(isinstance(c.sees, Stem) and not alone and not flows, "behind a stem nothing but flows is enumerated")
    refuse(bool(c.error.E), "an enumeration has no error")
    if c.counterexample is not None:
        refuse(not t.holds(c.counterexample, gamma), "the counterexample lies outside Γ")
    if "answers differently at" in c.reason:
        where = t.at(c.counterexample) if c.counterexample else "nowhere"
        refuse(not c.reason.endswith(f" {where}"), "the reason names another counterexample")
    if done is None:
        return False
    refuse(done.images < 1 or done.crossings < 0, "at least one image was asked about")
    refuse(not 0 < done.held <= 1, "an enumeration holds on t·Γ with 0 < t ≤ 1")
    refuse(not (0 <= done.slack < math.inf and done.slack < done.margin < math.inf), "the label leads by too little")
    refuse(done.scope not in SCOPES, f"scope {done.scope!r} is not one of {', '.join(SCOPES)}")
    refuse(done.scope == "program" and not c.threat.floats, "no program of that attacker is known, or not that exactly")
    refuse(done.scope == "exact" and not c.threat.quantized, "attackers who do not round hand over floats")
    told = done.tolerance is not None or bool(c.classifier.formerly)
    refuse(not told or done.tolerance not in (None, c.threat.off_by), "the tolerance is not that of the threat")
    refuse(done.held == 1 and c.passes != done.images, "the images of all of Γ are those that were asked about")
    refuse(c.passes < done.images, "there were more images than passes")
    refuse((done.held == 1) != (not c.reason), "a range that ends before Γ has a reason, and no other has")
    _refuse_lead(c, done.margin, done.slack)
    if c.counterexample is None:
        return True
    held = gamma.scaled(done.held)
    refuse(t.holds(c.counterexample, held), "the counterexample lies inside the certified range")
    return True


def _seen(parts: tuple[Transform, ...], front: str) -> tuple[Transform, ...]:
    """The parts without those at the end that the front does not see."""
    while parts and Front(front).blind(parts[-1]):
        parts = parts[:-1]
    return parts


def _refuse_lead(c: Exhausted, margin: float, slack: float) -> None:
    """The picture itself is one of the images: its lead is not below the least one."""
    if c.scores is None:
        return
    first, second = sorted(c.scores, reverse=True)[:2]
    lead = (first - second) / max([1.0, *map(abs, c.scores)])
    refuse(lead < margin - slack, "the picture itself leads by less than the least lead")
