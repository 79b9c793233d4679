"""Facts that certificates state, in words and surface units."""

from __future__ import annotations

import math

from warpcert.classifier.before.front import FRONTS
from warpcert.classifier.defence import Defence
from warpcert.numerics.box import Box
from warpcert.threat import Threat
from warpcert.transforms import Flow, Preprocess, Tone, Transform

__all__ = [
    "Entries",
    "Fact",
    "Range",
    "attacker",
    "noise",
    "preparation",
    "program",
    "smoothed",
    "spent",
    "surface_range",
    "thing",
]

Entries = tuple[tuple[str, float], ...]  # of a ledger: purpose and amount

Fact = tuple[str, str | int | float]  # its name and its value
Pair = tuple[float, float]
Range = Pair | tuple[Pair, ...]  # of one part: one pair for each of its parameters


def thing(transform: Transform) -> str:
    """What it transforms."""
    return "picture" if transform.item_dims == 3 else "sound"


def attacker(threat: Threat) -> str:
    """The attacker's arithmetic: "8-bit, bilinear"."""
    t = threat.transform
    bits = math.ceil(math.log2((t.high - t.low) / t.step + 1) - 1e-9)
    values = f"{bits}-bit" if threat.quantized else "real-valued"
    return f"{values}, {threat.interpolation}" if t.interpolates else values


def program(threat: Threat, origin: str = "") -> str:
    """What an attacker does who computes in floating point, as the package's own does."""
    t = threat.transform.parts[-1]
    if not isinstance(t, Flow | Tone) or not (types := threat.floats):
        raise ValueError(f"no program of {t.name} stays within a tolerance of {threat.off_by:g}")
    what = f"{t.formula} in {' or '.join(types)}{origin}"
    if t.interpolates:
        what += ", interpolates in the order of Threat.attacked"
    return f"computes {what}, clamps, multiplies by 255 and rounds half to even"


def smoothed(defence: Defence, *, nested: bool = False) -> str:
    """What is deployed, without an article."""
    over = f"over {defence.transform.noun}"
    if not any(defence.sigma_param):
        front = FRONTS[defence.front]
        how = "smoothed by noise" + (f" behind {front}" if front else "")
        return f"classifier {how}" if defence.sigma_noise else "plain classifier"
    if not defence.sigma_noise:
        return f"classifier smoothed {over}"
    return f"classifier smoothed by noise, then {over}" if nested else f"classifier smoothed {over} and noise"


def noise(defence: Defence) -> str:
    """The noise of a smoothed classifier: "σ_γ = 30°, bicubic, σ_δ = 0.15"."""
    t = defence.transform
    found = []
    if any(defence.sigma_param):
        found = [f"σ_γ = {' × '.join(map(t.to_text, defence.sigma_param))}"]
        found += [defence.interpolation] if t.interpolates else []
        found += [f"originals by {defence.reference}"] if defence.reference else []
    found += [f"σ_δ = {defence.sigma_noise:g}"] if defence.sigma_noise else []
    return ", ".join(found) or "none"


def preparation(p: Preprocess) -> str:
    """What is done to a picture or sound before the network sees it."""
    found = ["reduced to half its size"] if p.halved else []
    found += [f"vignette: {p.vignette}"] if p.vignette != "none" else []
    found += [f"blur σ {p.blur_sigma:g}, {p.blur_size} × {p.blur_size}"] if p.blur_sigma else []
    found += [f"limiter: ±{p.limit:g} of full scale"] if p.limit is not None else []
    return ", ".join(found) or "nothing"


def surface_range(transform: Transform, box: Box) -> Range | dict[str, Range]:
    """A box in surface units, one pair per parameter: 50.0 where 50 was meant, never more than the box. Of a product,
    part by part.
    """
    if len(transform.parts) == 1:
        return _range(transform, box)
    return {part.name: _range(part, own) for part, own in transform.shared(box)}


def _range(transform: Transform, box: Box) -> Range:
    axes = tuple(
        (_inside(transform, lo, lo, math.inf), _inside(transform, hi, -math.inf, hi))
        for lo, hi in zip(box.lower, box.upper, strict=True)
    )
    return axes[0] if len(axes) == 1 else axes


def _inside(transform: Transform, end: float, low: float, high: float) -> float:
    """The end in surface units with at most nine decimals, moved towards 0 where rounding would leave low … high."""
    value = transform.surface(end)
    near = round(value, 9)
    if not low <= transform.internal(near) <= high:
        near = math.trunc(value * (1 - 1e-12) * 1e6) / 1e6
    return near + 0.0  # no −0


def spent(ledger: Entries) -> str:
    """The entries of the ledger, those of votes added up."""
    votes = [amount for purpose, amount in ledger if _is_vote(purpose)]
    rest = [f"{purpose}: {amount:g}" for purpose, amount in ledger if not _is_vote(purpose)]
    return ", ".join([*rest, *([f"votes: {math.fsum(votes):.3g}"] if votes else [])]) or "–"


def _is_vote(purpose: str) -> bool:
    return purpose.startswith(("votes", "window"))
