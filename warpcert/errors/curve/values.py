"""The error of tones, which change values: only clipping and rounding keep them from composing."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.curve.goal import Found, Goal
from warpcert.errors.float32 import sample_error, value_error
from warpcert.threat import Threat
from warpcert.transforms import Tone
from warpcert.transforms.kernels import kernel

__all__ = ["residue", "unheard", "value_search"]

FIRST = 1024  # cells of γ
CHILDREN = 8
DEPTH = 5


def residue(
    t: Tone, x: Tensor, cells: tuple[Tensor, Tensor], quantized: bool, doubt: Tensor, limited: bool = False
) -> tuple[Tensor, Tensor]:
    """q(a) − a ∈ centre ± radius for a = T_γ x up to doubt, γ in the cells (low, high) [m]; each [m, *x.shape]. Behind
    a limiter q(c) − c, c the legal value next to a.

    a is monotone in γ, so it lies between its values at the ends, as c does; q is monotone, so q(a) = q(c) lies between
    q of those; and where a is legal, as c always is, q(a) − a is at most half a step from 0.
    """
    ends = torch.stack([t.value(g.reshape(-1, *(1,) * x.dim()), x) for g in cells])
    below, above = ends.amin(0), ends.amax(0)
    if limited:
        below, above = below.clamp(t.low, t.high), above.clamp(t.low, t.high)
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
    ε = s_β·P(q(a) − a), a = T_γ x: one search over γ serves every β. Behind a limiter ‖ε‖ ≤ s_β‖q(c) − c‖ + `unheard`,
    c the legal value next to a.
    """
    t = threat.transform
    assert isinstance(t, Tone)
    if defence.preprocess.halved:
        raise ValueError("changes of values need no picture of twice the size: use a preprocess that is not halved")
    if x.dim() == 2 and not defence.preprocess.linear.is_identity:
        raise ValueError("sound has no vignette and no blur; use a preprocess that does nothing, or a limiter")
    limit = defence.preprocess.limit
    defence = replace(defence, preprocess=defence.preprocess.linear)
    values, weight = _distinct(x) if x.dim() == 2 else (x, x.new_ones(()))
    if x.dim() == 2:
        doubt = 1e-12 + sample_error(t, values, goal.extent)
    else:
        doubt = 1e-12 + value_error(t, kernel("bilinear"), x.shape[-2], x.shape[-1], goal.extent).amax()
    doubt = doubt.to(x.device)
    nodes = torch.linspace(threat.box.lower[0], threat.box.upper[0], FIRST + 1, dtype=x.dtype, device=x.device)
    low, high = nodes[:-1], nodes[1:]
    settled, best, worst, cells = 0.0, 0.0, low[:1], 0
    bound = torch.full_like(low, torch.inf)
    for level in range(DEPTH):
        goal.tell(1 - 0.25**level)
        room = max(1, 2**22 // values.numel())
        parts = []
        for a, b in zip(torch.split(low, room), torch.split(high, room), strict=True):
            away = residue(t, values, (a, b), threat.quantized, doubt, limit is not None)
            parts.append(_spread(defence, *(weight * each for each in away)))
            found = _norm(defence, weight * _left(t, values, a, threat.quantized, limit is not None))
            if float(found.max()) > best:
                best, worst = float(found.max()), a[found.argmax()][None]
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
    if limit is None or not threat.quantized:
        return Found(scale * (upper * (1 + 1e-9) + 1e-9), scale * best, cells, converged)
    loud = sum(int((t.value(g, x) != t.value(g, x).clamp(t.low, t.high)).sum()) for g in (nodes[0], nodes[-1]))
    most = scale * (upper * (1 + 1e-9) + 1e-9) + unheard(t, limit, scale, loud)
    return Found(most, _seen(t, x, worst, beta, limit), cells, converged)


def unheard(t: Tone, limit: float, scale: Tensor, loud: int | Tensor) -> Tensor:
    """What clipping adds at most to ‖L(s q(a)) − L(s a)‖ beyond s‖q(c) − c‖, for factors s = `scale` and a that is
    beyond the legal range in at most `loud` samples; c is the legal value next to a, L limits to ±`limit`.

    q(a) = q(c), and L increases no difference, so L(s q(a)) and L(s c) differ by at most s|q(c) − c|. L(s c) and L(s a)
    are equal where c = a. Elsewhere c is an end of the range and a lies beyond it: L(s a) is between L(s c) and the
    limit on the same side, and |s c| is at least s times the smaller end. Nothing is added if that reaches the limit.
    """
    end = min(abs(t.low), abs(t.high))
    added: Tensor = (limit - scale * end * (1 - 1e-12)).clamp_min(0) * torch.as_tensor(loud, device=scale.device).sqrt()
    return added


def _distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """The values of a sound [1,K], each once, and the roots of how many samples have them: an ℓ2 norm over all samples
    is the weighted one over these. Of 16 000 samples of speech a fifth or so are left.
    """
    values, count = x.unique(return_counts=True)  # type: ignore[no-untyped-call]
    return values[None], count.to(x).sqrt()


def _seen(t: Tone, x: Tensor, gamma: Tensor, beta: Tensor, limit: float) -> Tensor:
    """‖L(s q(a)) − L(s a)‖ for every β at one γ: an error that was found."""
    a = t.value(gamma, x)
    found = []
    for b in torch.split(beta, max(1, 2**22 // x.numel())):
        once, twice = (t.value(b[:, :1, None], z).clamp(-limit, limit) for z in (a, t.quantize(a)))
        found.append((twice - once).flatten(1).norm(dim=1))
    return torch.cat(found)


def _left(t: Tone, x: Tensor, gamma: Tensor, quantized: bool, limited: bool = False) -> Tensor:
    """q(a) − a for a = T_γ x and γ [m]; or for the legal value next to a."""
    moved: Tensor = t.value(gamma.reshape(-1, *(1,) * x.dim()), x)
    moved = moved.clamp(t.low, t.high) if limited else moved
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
