"""What a classifier may do to a picture before its noise or its levels, so that it does not see brightness, or contrast
either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from warpcert.threat import Threat
from warpcert.transforms import Box, Tone, Transform, product

__all__ = ["BEFORE_LEVELS", "BEFORE_NOISE", "FRONTS", "Front"]

DEVIATION = 0.25  # of what "standard" hands on: that of an ordinary picture
FRONTS = {
    "none": "",
    "centred": "a front that takes the mean away",
    "standard": "a front that takes the mean away and sets the deviation",
    "grounded": "a front that takes the least value away",
    "stretched": "a front that takes the least value away and divides by the largest that is left",
}
BEFORE_NOISE, BEFORE_LEVELS = ("none", "centred", "standard"), ("none", "grounded", "stretched")
UNIT = 2.0**-24  # of float32
_ALL = (-3, -2, -1)


@final
@dataclass(frozen=True)
class Front:
    """none, or a function of all values of z, computed in float64 from what is handed over:

    centred    z − m, and
    standard   ¼(z − m)/s, with m and s the mean and the deviation; 0 where s = 0
    grounded   z − min z, and
    stretched  (z − min z)/(max z − min z); 0 where max z = min z

    Let C z = z − m, the orthogonal projection along the constants. In real arithmetic C(z + b) = C z, and for c > 0
    C(c z + b)/‖C(c z + b)‖ = C z/‖C z‖. Likewise min(c z + b) = c·min z + b, and so for the maximum. So no front sees a
    shift of all values, and "standard" and "stretched" do not see a factor either.
    """

    name: str = "none"

    def __post_init__(self) -> None:
        if self.name not in FRONTS:
            raise ValueError(f"front {self.name!r} is not known; choose one of {', '.join(FRONTS)}")

    def __call__(self, z: Tensor) -> Tensor:
        """z [C,H,W] or [B,C,H,W]; what comes out is rounded to its dtype."""
        return z if self.name == "none" else self.exactly(z).to(z.dtype)

    def exactly(self, z: Tensor) -> Tensor:
        """The same in float64, rounded three times at most where the front stands before levels."""
        wide = z.double()
        if self.name == "none":
            return wide
        grounded = self.name in BEFORE_LEVELS
        away = wide - (wide.amin(_ALL, keepdim=True) if grounded else wide.mean(_ALL, keepdim=True))
        if self.name == "standard":
            size = away.square().mean(_ALL, keepdim=True).sqrt()
            return torch.where(size > 0, DEVIATION * away / size.clamp_min(1e-300), 0.0)
        if self.name == "stretched":
            size = away.amax(_ALL, keepdim=True)
            return torch.where(size > 0, away / size.clamp_min(1e-300), 0.0)
        return away

    def blind(self, part: Transform) -> bool:
        """Whether it does not see this part, if it comes last and nothing is clipped or rounded."""
        if self.name == "none" or not isinstance(part, Tone):
            return False
        return part.pivot is None or self.name in ("standard", "stretched")

    def sees(self, threat: Threat) -> tuple[Threat | None, list[tuple[Tone, Box]]]:
        """What it sees of a threat, without its ℓ2 part (None: nothing), and the tones after it that it does not."""
        parts, unseen = threat.transform.shared(threat.box), list[tuple[Tone, Box]]()
        while parts and not threat.quantized and isinstance(parts[-1][0], Tone) and self.blind(parts[-1][0]):
            tone, box = parts.pop()
            assert isinstance(tone, Tone)
            unseen.insert(0, (tone, box))
        if not parts:
            return None, unseen
        box = Box(*(tuple(v for _, own in parts for v in getattr(own, end)) for end in ("lower", "upper")))
        return replace(threat, transform=product(*(part for part, _ in parts)), box=box, l2=0.0), unseen

    def before(self, threat: Threat, tolerance: float) -> float:
        """How far off a picture may be before the tones that it does not see, if after them by the tolerance."""
        for tone, box in self.sees(threat)[1]:
            tolerance /= float(tone.gain(torch.tensor([box.lower], dtype=torch.float64))) * (1 - 1e-12)
        return tolerance

    def spread(self, E: Tensor, z: Tensor) -> Tensor:
        """≥ ‖front(w) − front(z_j)‖₂ [J] for every w with ‖w − z_j‖₂ ≤ E_j, z [J,C,H,W], with the rounding of what is
        handed on.

        ‖C w − C z‖ ≤ ‖w − z‖, as C is a projection. Let e = E_j and r = ‖C z_j‖. For u = C w and v = C z in a Euclidean
        space, ‖u/‖u‖ − v/‖v‖‖ ≤ 2‖u − v‖/(‖u‖ + ‖v‖) (Dunkl and Williams), and ‖u‖ ≥ r − e: with R = ¼√n that is at
        most R·2e/(2r − e) if e < r. No two outputs are farther apart than 2R.
        """
        if self.name == "none":
            return E
        if self.name not in BEFORE_NOISE:
            raise ValueError(f"no bound in ℓ2 is known behind {FRONTS[self.name]}")
        count = z[0].numel()
        if self.name == "centred":
            size = z.double().abs().flatten(1).amax(1) * math.sqrt(count) + E
            return (E + 8 * UNIT * size) * (1 + 1e-9)
        away = z.double() - z.double().mean((1, 2, 3), keepdim=True)
        r, R = away.flatten(1).norm(dim=1) * (1 - 1e-9), DEVIATION * math.sqrt(count)
        near = torch.where(r > E, 2 * E / (2 * r - E).clamp_min(1e-300), 2.0).clamp_max(2.0)
        return (R * near + 8 * UNIT * R) * (1 + 1e-9)
