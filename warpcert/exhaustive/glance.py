"""How large an enumeration will be, from thin slices of the range."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import final

from torch import Tensor

from warpcert.exhaustive.enumeration import plan
from warpcert.exhaustive.events.crossings import levels
from warpcert.exhaustive.events.paths import path_of
from warpcert.exhaustive.events.relative import Faint, before_tones
from warpcert.exhaustive.sight import Sight, Terms, sight_of
from warpcert.threat import Threat

__all__ = ["Glance", "glance"]

PLACES = (0.15, 0.4, 0.6, 0.85)  # of Γ, where it is looked at
NARROW, WIDE = 2.0**-13, 2.0**-6  # of Γ, each of the slices: from … to
ENOUGH = 0.3  # seconds that the slices may take before they are made no wider
FEW = 20  # crossings that are too few to extrapolate


@final
@dataclass(frozen=True)
class Glance:
    """Extrapolated to all of Γ: crossings, images and seconds without the classifier; and whether some crossings
    overlap in more combinations than are tried.
    """

    crossings: int
    images: int
    seconds: float
    memory: int  # bytes
    crowded: bool


def glance(x: Tensor, threat: Threat, terms: Terms) -> Glance:
    """Counts in slices that grow until they are slow. Time goes into every pixel of a slice and into every crossing:
    what each costs follows from the narrowest and the widest.
    """
    threat, off = before_tones(threat, terms.front, terms.tolerance)
    terms = replace(terms, tolerance=off)
    first, last = threat.box.lower[0], threat.box.upper[0]
    if first == last:
        return Glance(0, 1, 0.0, 0, False)
    share = NARROW
    sight = sight_of(x, threat, terms)
    try:
        narrow = found = _counted(sight, terms, share)
    except Faint:
        return Glance(0, 1, 0.0, 0, False)
    while (found[2] < ENOUGH or found[0] < FEW) and share < WIDE:
        share *= 4
        found = _counted(sight, terms, share)
    looked = len(PLACES) * share
    crossings, images = round(found[0] / looked), 1 + round(found[1] / looked)
    each = max(0.0, found[2] - narrow[2]) / max(1, found[0] - narrow[0])
    strides = (last - first) / path_of(levels(x)[0], threat, terms.step, (first, last)).stride
    seconds = crossings * each + narrow[2] * max(1.0, strides / len(PLACES))
    memory = min(sight.memory, round(crossings * sight.bytes))
    return Glance(crossings, images, seconds, memory, found[3])


def _counted(sight: Sight, terms: Terms, share: float) -> tuple[int, int, float, bool]:
    """Crossings, images, seconds and whether a set was too large, in slices of so much of Γ each."""
    first, last = sight.threat.box.lower[0], sight.threat.box.upper[0]
    start, crossings, images, crowded = time.perf_counter(), 0, 0, False
    for place in PLACES:
        low = first + place * (last - first)
        c = sight.crossings((low, low + share * (last - first)))
        made = plan(c, terms.combinations(sight.threat))
        crossings, images, crowded = crossings + len(c), images + made.total - 1, crowded or made.unresolved > 0
    return crossings, images, time.perf_counter() - start, crowded
