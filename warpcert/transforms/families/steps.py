"""Steps: shifts by whole pixels. There are finitely many, and each copies pixels: nothing is computed."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, final

import torch
from torch import Tensor

from warpcert.numerics.box import Box
from warpcert.transforms.families.base import Transform

__all__ = ["Steps"]


class Steps(Transform):
    """γ = (right, down) in whole pixels; any other γ stands for the nearest whole one. The box of a range is ±r on both
    axes, and means the disc of Euclidean radius r in it: γ_x² + γ_y² ≤ r².

    A leaf says where pixels come from that lie outside the frame.
    """

    dim: ClassVar[int] = 2
    unit: ClassVar[str] = "px"
    unit_name: ClassVar[str] = "pixels"
    composition: ClassVar[str] = "shifts add, but for what the border brings in"
    natural_vignette: ClassVar[str] = "rectangle"
    disc: ClassVar[bool] = True

    @abstractmethod
    def inside(self, place: Tensor, side: int) -> Tensor:
        """For each place the index 0 … side − 1 of the pixel that is copied to it, or −1 for black."""

    @final
    def __call__(self, x: Tensor, gamma: Tensor, interpolation: str = "bilinear") -> Tensor:
        self._check(x, gamma)
        right, down = gamma.to(x.device).round().long().unbind(1)
        count, (channels, height, width) = len(gamma), x.shape[-3:]
        row = self.inside(torch.arange(height, device=x.device) - down[:, None], height)[:, None, :, None]
        column = self.inside(torch.arange(width, device=x.device) - right[:, None], width)[:, None, None, :]
        shape = (count, channels, height, width)
        moved = x.expand(shape).gather(2, row.clamp_min(0).expand(shape)).gather(3, column.clamp_min(0).expand(shape))
        return moved * ((row >= 0) & (column >= 0)).to(moved)

    @final
    def box(self, *surface: float) -> Box:
        """One radius in pixels, or the same one twice."""
        surface = surface[1:] if len(surface) == 2 and surface[0] == surface[1] else surface
        if len(surface) != 1 or not (math.isfinite(surface[0]) and surface[0] >= 0):
            raise ValueError(f"the range of a {self.noun} is one radius r ≥ 0, in pixels; got {surface}")
        return Box((-surface[0],) * 2, (surface[0],) * 2)

    @final
    def radius(self, box: Box) -> float:
        """r of such a box; a ValueError if it is another one."""
        r = box.upper[0]
        if box != Box((-r, -r), (r, r)):
            raise ValueError(f"the range of a {self.noun} is a radius, the same to all sides; got {self.place(box)}")
        return r

    @final
    def legal(self, gamma: Tensor, box: Box) -> Tensor:
        """The nearest whole numbers, if they lie in the disc. Otherwise drawn into it, then towards 0 to whole numbers:
        both keep what is inside inside.
        """
        r, whole = self.radius(box), gamma.round()
        drawn = (gamma / (gamma.norm(dim=1, keepdim=True) / max(r, 1e-300)).clamp_min(1)).trunc()
        legal: Tensor = torch.where(whole.norm(dim=1, keepdim=True) <= r, whole, drawn) + 0.0  # no −0
        return legal

    @final
    def points(self, box: Box) -> Tensor:
        """All whole γ of the disc [n,2], float64, the shortest first: 0 is the first. Lengths are compared as integers,
        γ_x² + γ_y² ≤ ⌊r²⌋, with a little more than r for what scaling a box has rounded.
        """
        r = self.radius(box)
        most = math.floor(r * r * (1 + 1e-9))
        side = torch.arange(-math.isqrt(most), math.isqrt(most) + 1)
        all_of_them = torch.cartesian_prod(side, side)
        square = all_of_them.square().sum(1)
        kept, square = all_of_them[square <= most], square[square <= most]
        return kept[square.argsort(stable=True)].double()
