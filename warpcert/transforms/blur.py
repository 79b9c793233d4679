"""Gaussian blur."""

from __future__ import annotations

import math
from typing import ClassVar, final

import torch
from torch import Tensor

from warpcert.numerics.box import Box
from warpcert.transforms.families.average import Average

__all__ = ["Blur"]

REACH = 24  # pixels, four deviations of a variance of 36
LEAST = 1e-3  # below it the next pixel has a weight of e^{-500}: 0
MORE = 1 + 1e-9  # what rounding may do to a bound


@final
class Blur(Average):
    """Gaussian weights w_j ∝ e^{−j²/(2a)}, |j| ≤ min(side − 1, 24), that sum to 1; a ≥ 0 is the variance in px².

    Let q = e^{−1/(2a)} and s = j², so that w_j = q^s / Z is an exponential family in θ = ln q, θ' = 1/(2a²). With the
    mean μ and the variance v of s under w:

        w' = w (s − μ)/(2a²),   w'' = w ((s − μ)² − v)/(4a⁴) − w (s − μ)/a³,
        ‖w'‖₁ ≤ √m/(2a²),   ‖w''‖₁ ≤ m/(2a⁴) + √m/a³,   with m = E[s²] ≥ v.

    So what is needed is ≥ m/a^k on [low, high], for k = 4 and 6. m increases with q, hence with a, and with the reach.
    For a ≥ c = 1/(2k), m/a^k ≤ m(high)/max(low, c)^k. For a ≤ c: m ≤ Σ_{j≠0} j⁴ q^{j²} as Z ≥ 1, and each
    e^{−j²/(2a)}/a^k increases up to a = j²/(2k) ≥ c, so that the sum at min(high, c) bounds it. Both sums run to 24.
    """

    name: ClassVar[str] = "blur"
    unit: ClassVar[str] = "px²"
    unit_name: ClassVar[str] = "px² of variance"
    noun: ClassVar[str] = "Gaussian blur (reflected border, cut off at 24 px)"
    composition: ClassVar[str] = "variances add, but for what is cut off"
    natural_vignette: ClassVar[str] = "none"

    def box(self, *surface: float) -> Box:
        """One variance: from none to that."""
        if len(surface) == 2 and surface[0] == 0:
            surface = surface[1:]
        if len(surface) != 1 or not (math.isfinite(surface[0]) and surface[0] >= 0):
            raise ValueError(f"the range of a blur is one variance ≥ 0, in px²; got {surface}")
        return Box((0.0,), (float(surface[0]),))

    def reach(self, side: int) -> int:
        return min(side - 1, REACH)

    def check(self, gamma: Tensor, height: int, width: int) -> None:
        least, most = (float(v) for v in gamma.detach().aminmax()) if gamma.numel() else (0.0, 0.0)
        if least < 0:
            raise ValueError(f"a blur has a variance ≥ 0; got {least:g}")
        if 3 * math.sqrt(most) > min(height, width):
            raise ValueError(
                f"a blur of variance {most:g} px² is wider than a picture of {height} × {width}: three deviations have "
                "to fit"
            )

    def weights(self, gamma: Tensor, reach: int) -> tuple[Tensor, Tensor]:
        a = gamma.clamp_min(LEAST)[:, None]
        s = torch.arange(-reach, reach + 1, device=gamma.device).to(gamma).square()
        w = (-s / (2 * a)).exp()
        w = w / w.sum(1, keepdim=True)
        return w, w * (s - (w * s).sum(1, keepdim=True)) / (2 * a * a)

    def bends(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        four, six = self._moment(low, high, 4), self._moment(low, high, 6)
        return four.sqrt() / 2 * MORE, (four / 2 + six.sqrt()) * MORE

    @staticmethod
    def _moment(low: Tensor, high: Tensor, k: int) -> Tensor:
        """≥ m/a^k for all a in [low, high]."""
        c = 1 / (2 * k)
        j = torch.arange(1, REACH + 1, device=low.device).to(low)
        near = high.clamp(LEAST, c)
        below = 2 * (j.square().square() * (-j.square() / (2 * near[..., None])).exp()).sum(-1) / near**k
        far = high.clamp_min(c)
        q = (-j.square() / (2 * far[..., None])).exp()
        m = 2 * (j.square().square() * q).sum(-1) / (1 + 2 * q.sum(-1))
        above = m / low.clamp_min(c) ** k
        return torch.maximum(torch.where(low <= c, below, 0.0), torch.where(high >= c, above, 0.0)) + 1e-200
