"""Windows behind a front: distances as the front leaves them, and no windows at all along parts that it does not see.

Guarantee. As for `Windows`, with ‖front(x') − front(z_j)‖₂ ≤ E_j in place of ‖P x' − P z_j‖₂; P is the identity.

Argument. Let the last parts be tones that the front is blind to, of an attacker who neither clips nor rounds, and w =
T⁰_γ x the picture before them. In real arithmetic they lead to c w + b, one c > 0 and one b for all pixels. Let what is
handed over be x' = c w' + b + η + ρ, with w' what was computed for w, ‖ρ‖ ≤ e the ℓ2 part and η what rounding did in
those tones: a tone makes an error `gain` times as large and adds its own. Then front(x') = front(w' + (η + ρ)/c), and

    ‖w' + (η + ρ)/c − z_j‖ ≤ E⁰_j + (‖η‖ + e)/c_min,

with E⁰_j ≥ ‖w' − z_j‖ for the window of the other parts. `Front.spread` says how far the front lets them be apart.
Without such parts this is what `spread` says of E⁰_j itself.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from warpcert.classifier.before.front import Front
from warpcert.errors.float32 import UNIT
from warpcert.threat import Threat
from warpcert.transforms import Box, Preprocess, SpatialTransform, Tone, kernels
from warpcert.windows.cover import Windows, bounds, cover_windows, rounded_up

__all__ = ["bounds_behind", "cover_behind", "pictures_behind"]


def _handed_over(threat: Threat, rest: Threat | None, unseen: list[tuple[Tone, Box]], count: int) -> float:
    """(‖η‖ + e)/c_min for pictures of `count` values."""
    most, error, least = 1.0, 0.0, 1.0
    if rest is not None:
        parts = rest.transform.shared(rest.box)
        if any(isinstance(part, SpatialTransform) for part, _ in parts):
            most += kernels.kernel(threat.interpolation).overshoot
        for part, box in parts:
            most = max(1.0, most * part.top(_extent(box))) if isinstance(part, Tone) else most
    for tone, box in unseen:
        ends = torch.tensor([box.lower, box.upper], dtype=torch.float64)
        low, high = tone.gain(ends).tolist()
        rounding = float(tone.rounding(ends.new_tensor([-most, most]), _extent(box)).max())
        most = max(1.0, most * tone.top(_extent(box)))
        error, least = high * error + 1.01 * (rounding + 4 * most) * UNIT, least * low
    return (math.sqrt(count) * error + threat.l2 * (1 + 4 * UNIT)) / least


def _extent(box: Box) -> float:
    return max(map(abs, (*box.lower, *box.upper)))


def cover_behind(x: Tensor, threat: Threat, front: Front, *, target: float, rounded: bool, max_windows: int) -> Windows:
    """Windows of Γ whose E, behind the front, is about the target."""
    rest, unseen = front.sees(threat)
    more = _handed_over(threat, rest, unseen, x.numel())
    if rest is None:
        none = x.new_zeros(1, 0, dtype=torch.float64)
        found = Windows(none, none, none.new_zeros(1), rounded, 1, 0.0)
    else:
        aim = target - more if front.name != "standard" else _aim(x, front, target) - more
        found = cover_windows(x, rest, Preprocess(), target=max(aim, 1e-3), rounded=rounded, max_windows=max_windows)
    wide = [found.E.new_tensor([getattr(b, end)[0] for _, b in unseen]) for end in ("lower", "upper")]
    lower, upper = (
        torch.cat((own, all_of_it[None].expand(len(found), -1)), 1)
        for own, all_of_it in zip((found.lower, found.upper), wide, strict=True)
    )
    return _behind(replace(found, lower=lower, upper=upper), more, x, threat, front)


def bounds_behind(lower: Tensor, upper: Tensor, x: Tensor, threat: Threat, front: Front, rounded: bool) -> Windows:
    """These windows [J,d], whole along what the front does not see, with E_j behind the front."""
    rest, unseen = front.sees(threat)
    own = lower.shape[1] - len(unseen)
    if rest is None:
        found = Windows(lower, upper, lower.new_zeros(len(lower)), rounded, len(lower), 0.0)
    else:
        found = bounds(lower[:, :own], upper[:, :own], x, rest, Preprocess(), rounded)
    found = replace(found, lower=lower, upper=upper)
    return _behind(found, _handed_over(threat, rest, unseen, x.numel()), x, threat, front)


def _behind(made: Windows, more: float, x: Tensor, threat: Threat, front: Front) -> Windows:
    """With `more` added to E before the front, and E as the front leaves it."""
    E = list[Tensor]()
    for some in (slice(i, i + 256) for i in range(0, len(made), 256)):
        E.append(front.spread(made.E[some] + more, pictures_behind(made, x, threat, front, some)))
    return replace(made, E=rounded_up(torch.cat(E)))


def _aim(x: Tensor, front: Front, target: float) -> float:
    """About the distance of pictures that the front turns into the target: found by halving, for x itself."""
    low, high = 0.0, float(target) + float((x.double() - x.double().mean()).norm())
    for _ in range(40):
        middle = (low + high) / 2
        far = float(front.spread(x.new_tensor([middle], dtype=torch.float64), x[None])) > target
        low, high = (low, middle) if far else (middle, high)
    return low


def pictures_behind(windows: Windows, x: Tensor, threat: Threat, front: Front, at: slice | Tensor) -> Tensor:
    """z_j of such windows, before the front, float32."""
    rest, unseen = front.sees(threat)
    if rest is None:
        return x.float().expand(len(windows.E[at]), *x.shape)
    if not unseen:
        return windows.images(x, rest, at)
    own = replace(windows, lower=windows.lower[:, : -len(unseen)], upper=windows.upper[:, : -len(unseen)])
    return own.images(x, rest, at)
