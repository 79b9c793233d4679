"""What a classifier may do to a picture before its noise, so that it does not see brightness, or contrast either."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from warpcert.transforms import Tone, Transform

__all__ = ["FRONTS", "Front"]

DEVIATION = 0.25  # of what "standard" hands on: that of an ordinary picture
FRONTS = {
    "none": "",
    "centred": "a front that takes the mean away",
    "standard": "a front that takes the mean away and sets the deviation",
}
UNIT = 2.0**-24  # of float32


@final
@dataclass(frozen=True)
class Front:
    """none, centred: z − m, or standard: ¼(z − m)/s, with m and s the mean and the deviation of all values of z; 0
    where s = 0. Computed in float64 from what is handed over, and rounded to the dtype of z.

    Let C z = z − m, the orthogonal projection along the constants. In real arithmetic C(z + b) = C z, and for c > 0
    C(c z + b)/‖C(c z + b)‖ = C z/‖C z‖: neither sees a shift of all values, and "standard" does not see a factor.
    """

    name: str = "none"

    def __post_init__(self) -> None:
        if self.name not in FRONTS:
            raise ValueError(f"front {self.name!r} is not known; choose one of {', '.join(FRONTS)}")

    def __call__(self, z: Tensor) -> Tensor:
        """z [C,H,W] or [B,C,H,W]."""
        if self.name == "none":
            return z
        wide = z.double()
        away = wide - wide.mean((-3, -2, -1), keepdim=True)
        if self.name == "standard":
            size = away.square().mean((-3, -2, -1), keepdim=True).sqrt()
            away = torch.where(size > 0, DEVIATION * away / size.clamp_min(1e-300), 0.0)
        return away.to(z.dtype)

    def blind(self, part: Transform) -> bool:
        """Whether it does not see this part, if it comes last and nothing is clipped or rounded."""
        return isinstance(part, Tone) and (self.name == "standard" or (self.name == "centred" and part.pivot is None))

    def spread(self, E: Tensor, z: Tensor) -> Tensor:
        """≥ ‖front(w) − front(z_j)‖₂ [J] for every w with ‖w − z_j‖₂ ≤ E_j, z [J,C,H,W], with the rounding of what is
        handed on.

        ‖C w − C z‖ ≤ ‖w − z‖, as C is a projection. Let e = E_j and r = ‖C z_j‖. For u = C w and v = C z in a Euclidean
        space, ‖u/‖u‖ − v/‖v‖‖ ≤ 2‖u − v‖/(‖u‖ + ‖v‖) (Dunkl and Williams), and ‖u‖ ≥ r − e: with R = ¼√n that is at
        most R·2e/(2r − e) if e < r. No two outputs are farther apart than 2R.
        """
        if self.name == "none":
            return E
        count = z[0].numel()
        if self.name == "centred":
            size = z.double().abs().flatten(1).amax(1) * math.sqrt(count) + E
            return (E + 8 * UNIT * size) * (1 + 1e-9)
        away = z.double() - z.double().mean((1, 2, 3), keepdim=True)
        r, R = away.flatten(1).norm(dim=1) * (1 - 1e-9), DEVIATION * math.sqrt(count)
        near = torch.where(r > E, 2 * E / (2 * r - E).clamp_min(1e-300), 2.0).clamp_max(2.0)
        return (R * near + 8 * UNIT * R) * (1 + 1e-9)
