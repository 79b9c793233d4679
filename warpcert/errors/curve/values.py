"""The error of tones, which change values: only clipping and rounding keep them from composing."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.curve.goal import Found, Goal
from warpcert.errors.float32 import sample_error, value_error
from warpcert.threat import Threat
from warpcert.transforms import Tone
from warpcert.transforms.kernels import kernel

__all__ = ["residue", "value_search"]

FIRST = 1024  # cells of γ
CHILDREN = 8
DEPTH = 5


def residue(t: Tone, x: Tensor, cells: tuple[Tensor, Tensor], quantized: bool, doubt: Tensor) -> tuple[Tensor, Tensor]:
    """q(a) − a ∈ centre ± radius for a = T_γ x up to doubt, γ in the cells (low, high) [m]; each [m, *x.shape].

    a is monotone in γ, so it lies between its values at the ends; q is monotone, so q(a) lies between q of those; and
    where a is legal, q(a) − a is at most half a step from 0.
    """
    ends = torch.stack([t.value(g.reshape(-1, *(1,) * x.dim()), x) for g in cells])
    below, above = ends.amin(0), ends.amax(0)
    if not quantized:
        return torch.zeros_like(below), torch.zeros_like(below)
    first, last = t.quantize(below - doubt) - above, t.quantize(above + doubt) - below
    legal = (below >= t.low) & (above <= t.high)
    half = t.step / 2 + doubt
    first = torch.where(legal, first.clamp_min(-half), first)
    last = torch.where(legal, last.clamp_max(half), last)
    return (first + last) / 2, (last - first) / 2


def value_search(x: Tensor, defence: Defence, threat: Threat, beta: Tensor, goal: Goal) -> Found:
    """sup_γ‖ε‖ for β [B,1]. A target makes no difference.

    A tone is affine in the values, T_β z − T_β z' = s_β·(z − z'), and T_{β+γ} = T_β T_γ exactly. Hence
    ε = s_β·P(q(a) − a), a = T_γ x: one search over γ serves every β.
    """
    t = threat.transform
    assert isinstance(t, Tone)
    if defence.preprocess.halved:
        raise ValueError("changes of values need no picture of twice the size: use a preprocess that is not halved")
    if x.dim() == 2 and not defence.preprocess.is_identity:
        raise ValueError("sound has no vignette and no blur; use a preprocess that does nothing")
    if x.dim() == 2:
        doubt = 1e-12 + sample_error(t, x, goal.extent)
    else:
        doubt = 1e-12 + value_error(t, kernel("bilinear"), x.shape[-2], x.shape[-1], goal.extent).amax()
    nodes = torch.linspace(threat.box.lower[0], threat.box.upper[0], FIRST + 1, dtype=x.dtype, device=x.device)
    low, high = nodes[:-1], nodes[1:]
    settled, best, cells = 0.0, 0.0, 0
    bound = torch.full_like(low, torch.inf)
    for level in range(DEPTH):
        goal.tell(1 - 0.25**level)
        room = max(1, 2**22 // x.numel())
        parts = []
        for a, b in zip(torch.split(low, room), torch.split(high, room), strict=True):
            parts.append(_spread(defence, *residue(t, x, (a, b), threat.quantized, doubt)))
            best = max(best, float(_norm(defence, _left(t, x, a, threat.quantized)).max()))
        bound = torch.cat(parts)
        cells += low.numel()
        wide = bound > goal.tightness * best
        settled = max(settled, float(bound[~wide].max()) if bool((~wide).any()) else 0.0)
        low, high, bound = low[wide], high[wide], bound[wide]
        if not low.numel() or low.numel() > 2**14 or time.perf_counter() > goal.deadline:
            break
        share = torch.arange(CHILDREN + 1, dtype=x.dtype, device=x.device) / CHILDREN
        grid = low[:, None] + (high - low)[:, None] * share
        low, high, bound = grid[:, :-1].flatten(), grid[:, 1:].flatten(), bound.repeat_interleave(CHILDREN)
    upper, scale = max(settled, float(bound.max()) if bound.numel() else 0.0), t.gain(beta)
    converged = upper <= goal.tightness * best + 1e-12
    return Found(scale * (upper * (1 + 1e-9) + 1e-9), scale * best, cells, converged)


def _left(t: Tone, x: Tensor, gamma: Tensor, quantized: bool) -> Tensor:
    """q(T_γ x) − T_γ x for γ [m]."""
    moved: Tensor = t.value(gamma.reshape(-1, *(1,) * x.dim()), x)
    return t.quantize(moved) - moved if quantized else torch.zeros_like(moved)


def _spread(defence: Defence, centre: Tensor, radius: Tensor) -> Tensor:
    """‖P n‖ for every n in centre ± radius: ‖P c‖² + 2⟨P²c, n − c⟩ + ‖P(n − c)‖² ≤ ‖P c‖² + 2⟨|P²c|, r⟩ + ‖P r‖²; P is
    symmetric with nonnegative entries."""
    seen = defence.preprocess(centre)
    cross = (defence.preprocess(seen).abs() * radius).flatten(1).sum(-1)
    square = seen.flatten(1).square().sum(-1) + 2 * cross + _norm(defence, radius).square()
    return square.sqrt()


def _norm(defence: Defence, z: Tensor) -> Tensor:
    norm: Tensor = defence.preprocess(z).flatten(1).norm(dim=-1)
    return norm
