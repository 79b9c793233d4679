"""Which originals can have led to an attacked sound: a change of volume is undone sample by sample."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.curve.values import unheard
from warpcert.errors.float32 import sample_error
from warpcert.originals.protocol import InverseBound, Originals
from warpcert.threat import Threat
from warpcert.transforms import Tone

__all__ = ["VolumeInverse", "clipped"]


def clipped(x_attacked: Tensor, threat: Threat) -> Tensor:
    """Samples at an end of the 16-bit range: what was louder was cut to them, so how loud it was is lost."""
    t = threat.transform
    return (x_attacked <= t.low) | (x_attacked >= t.high)


@final
@dataclass(frozen=True)
class VolumeInverse(InverseBound):
    """x = e^{−γ} x' up to rounding where x' is not clipped; where it is, only the legal range bounds x.

    An attacked sample is x' = q(v), v = e^γ x up to the attacker's float32 error. Not clipped: |x' − e^γ x| ≤ h, half a
    step and that error. Clipped at the upper end: e^γ x ≥ x' − h, and e^γ x ≤ e^γ·high as x itself is legal; likewise
    below. Hence T_β x' − T_{β+γ} x = e^β (x' − e^γ x) is at most e^β·max(h, (e^γ − 1)·|end|) in a clipped sample: one
    of them is worth more than all rounding together. Behind a limiter, which cuts such samples and their originals to
    the same value unless e^β is small, it is at most e^β·h and what `unheard` says.
    """

    cells: int = 16
    name: ClassVar[str] = "volume inverse"

    def survivors(self, x_attacked: Tensor, threat: Threat) -> Originals:
        start = time.perf_counter()
        t = _louder(threat)
        x = x_attacked.double()
        nodes = torch.linspace(threat.box.lower[0], threat.box.upper[0], self.cells + 1, dtype=x.dtype, device=x.device)
        low, high = nodes[:-1], nodes[1:]
        h, cut = self._half(x, threat), clipped(x, threat)
        least = torch.where(cut & (x < 0), -math.inf, x - h)
        most = torch.where(cut & (x > 0), math.inf, x + h)
        back = torch.stack((torch.exp(-low), torch.exp(-high)))[:, :, None, None]  # [2, k, 1, 1]
        lower = (back * least).amin(0).clamp_min(t.low) - 1e-12
        upper = (back * most).amax(0).clamp_max(t.high) + 1e-12
        possible = (lower <= upper).flatten(1).all(1)
        left = low[possible, None], high[possible, None], lower[possible], upper[possible]
        return Originals(x_attacked, threat, *left, self.cells, time.perf_counter() - start)

    def errors(
        self,
        originals: Originals,
        defence: Defence,
        beta: Tensor,
        *,
        enough: float = 0.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        """As promised: e^β times the ℓ2 norm of the largest |x' − e^γ x| per sample, and the float32 slack. Behind a
        limiter |x' − c| ≤ h for c, the legal value next to e^γ x, in every sample, clipped or not.
        """
        if defence.transform != originals.threat.transform or not defence.preprocess.linear.is_identity:
            raise ValueError("the inverse of a volume change needs a defender of sound: no vignette, no blur")
        x, threat = originals.x_attacked.double(), originals.threat
        louder_by, beta = _louder(threat), beta.to(x)[:, 0]
        h, cut = self._half(x, threat), clipped(x, threat)
        limit, scale = defence.preprocess.limit, beta.exp()[:, None]
        louder = torch.expm1(originals.high[:, 0]).clamp_min(0)[:, None, None] * x.abs()  # [k, C, L]
        worst = torch.where(cut & (limit is None), torch.maximum(louder, h), h).flatten(1).norm(dim=1)  # [k]
        top = float(originals.high.abs().amax()) if len(originals.high) else 0.0
        extent = float(beta.abs().max()) + max(top, float(originals.low.abs().amax()) if len(originals.low) else 0.0)
        original = torch.maximum(originals.lower.abs(), originals.upper.abs()).flatten(1)
        slack = sample_error(louder_by, original, extent).norm(dim=1) + sample_error(louder_by, x, extent).norm()
        bound: Tensor = scale * worst * (1 + 1e-9) + slack + 1e-9
        return bound if limit is None else bound + unheard(louder_by, limit, scale, cut.sum())

    def _half(self, x: Tensor, threat: Threat) -> Tensor:
        """h: what rounding and the attacker's float32 error can change, sample by sample."""
        gain = max(map(abs, (threat.box.lower[0], threat.box.upper[0])))
        # sample_error speaks of e^γ x in terms of x; here e^γ x itself is known to be within a step of x'.
        doubt = sample_error(threat.transform, x.abs() + threat.transform.step, gain) + 1e-12
        return doubt + (threat.transform.step / 2 if threat.quantized else 0.0)


def _louder(threat: Threat) -> Tone:
    t = threat.transform
    if not isinstance(t, Tone) or t.pivot != 0 or t.item_dims != 2:
        raise ValueError(f"the inverse of sounds is for volume changes; got {t.name}")
    return t
