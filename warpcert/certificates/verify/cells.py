"""Cells of Γ: which are accepted, from their counts or margins, and whether they cover what is claimed."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr, xlogy

from warpcert.certificates.cells import Cells
from warpcert.certificates.covered import Covered
from warpcert.certificates.margins import ByMargins
from warpcert.certificates.verify.common import near, refuse, spends
from warpcert.transforms import Average, Box, Flow, Gradation, Shift, Tone, kernels

__all__ = ["covered", "layers", "margins"]

TINY = 1e-9
RATIOS = np.array([0.0, 1 / 16, 1 / 4, 1 / 2, 3 / 4, 7 / 8])[:, None]  # of (1 − p₁)/(1 − p₀), mixed by the test


def covered(c: Covered) -> bool:
    """Whether the tests of the windows accept the range."""
    w, sigma = c.cells, c.defence.sigma_noise
    refuse(any(c.defence.sigma_param) or not sigma > 0, "a cover is for pixel noise alone")
    refuse(c.defence.reference is not None, "a reference turns known originals; a certificate by a cover has none")
    if c.abstains and not len(w):  # its time was up
        return False
    refuse(bool((w.k < 0).any() or (w.k > w.n).any() or w.margin.any()), "votes: expected 0 ≤ k ≤ n")
    spends(c.alpha, c.ledger, [amount for _, amount in c.ledger])
    refuse(len(w) == 0 or bool((w.alpha != w.alpha[0]).any()), "the windows of a cover share α equally")
    share = c.alpha / float(w.alpha[0]) if w.alpha[0] > 0 else math.nan
    planned = round(share) if math.isfinite(share) else 0
    refuse(not near(planned, share) or planned < len(w), f"α = {c.alpha:g} does not pay for {len(w)} windows")
    votes = c.passes - int(w.n.sum()) if c.scores is None else sum(c.scores)
    refuse(votes < 1 or c.passes != votes + int(w.n.sum()), "the passes do not add up")
    p0 = np.minimum(np.maximum(0.5, ndtr(w.E / sigma)), 1 - 1e-12)
    gain = w.k * np.log((1 - (1 - p0) * RATIOS) / p0) + xlogy(w.n - w.k, RATIOS)
    evidence = logsumexp(gain, axis=0) - math.log(len(RATIOS))
    sure = (evidence >= -math.log(w.alpha[0]) - 1e-6) & (w.n > 0)
    return _tiled(c, sure)


def margins(c: ByMargins) -> bool:
    """Whether the margins are enough for the range."""
    w, m = c.cells, c.margins
    refuse(not (0 < m.lipschitz < math.inf and 0 <= m.slack < math.inf), "a positive Lipschitz constant is needed")
    if c.abstains and not len(w):  # its time was up
        return False
    refuse(bool(w.k.any() or w.n.any() or w.alpha.any()) or len(w) == 0, "a cover by margins draws nothing")
    refuse(not np.isfinite(w.margin).all(), "margins are finite")
    refuse(c.passes < 1 + len(w), "there were more windows than passes")
    needed = math.sqrt(2) * m.lipschitz * w.E
    # Cutting a window in two costs two passes and leaves two windows: of the windows that were tried, half are left,
    # unless some were dropped beyond one that failed.
    whole = bool((w.margin > needed).all())
    refuse(whole and c.passes > 2 * len(w), "windows are missing: there were more passes")
    _check_slope(c)
    return _tiled(c, w.margin >= needed * (1 - TINY))


def _check_slope(c: ByMargins) -> None:
    """On a line the images of neighbours are within E_i + E_j of each other, so that margins change no faster than
    √2·L times that; they were rounded down to three digits.
    """
    w = c.cells
    if w.lower.shape[1] > 1 or (np.diff(w.lower[:, 0]) < 0).any():
        return
    way = np.concatenate(([0.0], np.cumsum(w.E[:-1] + w.E[1:])))
    low, high = int(w.margin.argmin()), int(w.margin.argmax())
    largest = max([1.0, *map(abs, c.scores or ())])
    rounding = 0.011 * (abs(w.margin[low]) + abs(w.margin[high])) + 3 * c.margins.slack * largest
    most = math.sqrt(2) * c.margins.lipschitz * abs(way[high] - way[low])
    refuse(
        bool(w.margin[high] - w.margin[low] > most + rounding), "the margins change faster than that constant allows"
    )


def _tiled(c: Cells, sure: NDArray[np.bool_]) -> bool:
    """The cells lie in Γ and do not overlap, E is not below theirs, and those that are sure hold the claimed range."""
    w, gamma = c.cells, c.threat.box
    _refuse_unknown(c)
    scaled = isinstance(c, Covered) and c.defence.front == "standard"  # divides by a deviation that is not told
    added = 0.0 if scaled else c.threat.l2
    refuse(not (added <= w.E).all() or not w.E.max() <= c.error.E, "E is not below that of a window")
    lower, upper = np.array(gamma.lower), np.array(gamma.upper)
    refuse(bool((w.lower < lower).any() or (w.upper > upper).any()), "every window is a cell of Γ")
    refuse(bool((layers(gamma, w.lower, w.upper) > 1).any()), "windows overlap")
    if c.abstains:
        return False
    claimed = c.reach or gamma.scaled(0.0)
    meets = sure & (w.lower <= claimed.upper).all(1) & (w.upper >= claimed.lower).all(1)
    return bool(meets.any()) and bool((layers(claimed, w.lower[meets], w.upper[meets]) >= 1).all())


def _refuse_unknown(c: Cells) -> None:
    """Bounds are known for a flow, a shift, a tone, a gradation or an average, then flows and shifts, then tones; and
    for no interpolation that jumps, of several parts that move pixels for none but the bilinear one.
    """
    t = c.threat.transform
    tones = [isinstance(part, Tone) for part in t.parts]
    known = isinstance(t.parts[0], Flow | Shift | Tone | Gradation | Average) and tones == sorted(tones)
    known &= all(isinstance(part, Flow | Shift | Tone) for part in t.parts[1:])
    chain = len(t.parts) - sum(tones) > 1
    refuse(not known or (chain and c.threat.interpolation != "bilinear"), f"no cover knows {t.name}")
    jumps = t.interpolates and kernels.kernel(c.threat.interpolation).gradient is None
    halved = (c.defence.preprocess if isinstance(c, Covered) else c.preprocess).halved  # type: ignore[attr-defined]
    refuse(halved, "no cover knows pictures that are reduced to half their size")
    refuse(jumps, f"no cover knows an attacker who interpolates by {c.threat.interpolation}")


def layers(box: Box, lower: NDArray[np.float64], upper: NDArray[np.float64]) -> NDArray[np.int32]:
    """How many cells lie over each piece of the grid into which their ends cut the box; a side without length is a
    point, and is left out.
    """
    first, last = np.array(box.lower), np.array(box.upper)
    wide = np.flatnonzero(first < last)
    ends = np.stack((lower, upper), 1).clip(first, last)[..., wide]
    ends = ends[(ends[:, 0] < ends[:, 1]).all(1)]  # what has a volume inside
    if not len(wide):
        return np.full(1, len(lower), dtype=np.int32)
    cuts = [np.unique(np.concatenate((ends[..., i].ravel(), [first[a], last[a]]))) for i, a in enumerate(wide)]
    at = np.stack([np.searchsorted(cut, ends[..., i]) for i, cut in enumerate(cuts)], -1)
    count = np.zeros([len(cut) for cut in cuts], dtype=np.int32)
    for corner in product((0, 1), repeat=len(wide)):
        np.add.at(count, tuple(at[:, end, i] for i, end in enumerate(corner)), (-1) ** sum(corner))
    for axis in range(len(wide)):
        count = np.cumsum(count, axis, dtype=np.int32).take(range(len(cuts[axis]) - 1), axis)
    return count
