"""The Lagrangian bound of one cell: one quadratic certificate per β."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warpcert.originals.chords import affine, signs
from warpcert.originals.lagrangian.cell import Cell
from warpcert.originals.lagrangian.metric import Metric
from warpcert.originals.lagrangian.strips import Factor
from warpcert.originals.lagrangian.view import View

__all__ = ["Estimate", "UnevenError", "estimate", "lagrangian_bound"]

SLACK = 1e-10  # of the sums below, relative to the sums of the absolute values


class UnevenError(ValueError):
    """float64 does not suffice for the multipliers of a cell."""


@dataclass(frozen=True)
class Estimate:
    """x̂_t = x̂₀ + Σ t_a x̂_a, a guess of the original, and what the certificate needs of it; nothing depends on β.

    Affine in t, index a = 0 … d first: x [1+d,C,N], off = x̂_t − m, miss = ν_t [1+d,C,N] with |ν_t − A_t e| ≤ doubt for
    e = x − x̂_t. factor: H₀ = LLᵀ. tau: Σd₁s² + Σd₂doubt²; reach [C,N] ≥ |e|.
    """

    x: Tensor
    off: Tensor
    miss: Tensor
    doubt: Tensor
    factor: Factor
    tau: float
    reach: Tensor


def estimate(c: Cell, metric: Metric) -> Estimate:
    """x̂₀ = H₀^{-1}(D₁m + A₀ᵀD₂x_c) minimises Σd₁(x−m)² + Σd₂(x_c−A₀x)², and x̂_a follows the minimiser along t_a.

    ν_t = x_c − A_t x̂_t has parts of second order, Σ t_a t_b A_a x̂_b: they are added to the doubt.
    """
    factor = metric.center(c).factor()
    if factor is None:
        raise UnevenError("the multipliers of a cell are too uneven for float64")
    d1, d2 = metric.d1, metric.d2
    first = _solved(factor, d1 * c.middle + c.adjoint(d2 * c.data)[0])
    moved = c.apply(first)  # [1+d, C, N]: A_a x̂₀
    astray = c.adjoint(d2 * (moved[0] - c.data))
    rest = [-_solved(factor, c.adjoint(d2 * m)[0] + a) for m, a in zip(moved[1:], astray[1:], strict=True)]
    x = torch.stack((first, *rest))
    follow = c.apply(x[1:])  # [1+d, d, C, N]
    miss = torch.cat(((c.data - moved[0])[None], -(moved[1:] + follow[0])))
    second = follow[1:].abs().sum((0, 1))
    doubt = c.doubt + second * (1 + SLACK)
    off = torch.cat(((first - c.middle)[None], x[1:]))
    tau = float((d1 * c.half.square()).sum() + (d2 * doubt.square()).sum()) * (1 + SLACK)
    reach = torch.maximum((c.upper - first).abs(), (c.lower - first).abs()) + x[1:].abs().sum(0)
    return Estimate(x, off, miss, doubt, factor, tau, reach)


def lagrangian_bound(c: Cell, metric: Metric, e: Estimate, view: View, u: Tensor, proved: Tensor) -> Tensor:
    """[b]: sup ‖P T_β x' − P T_{β+γ} x‖₂ over γ in the cell and x consistent with x'; -inf: there is no such x.

    u = P T_β x' [b,C,v]; proved = λ [b] with ‖C_t e‖² ≤ λ eᵀH_t e (`proved_lambda`).

    *Quadratic part.* With e = x − x̂_t, u_t = u − C_t x̂_t, a_t = x̂_t − m, every consistent x has Σd₁(e+a_t)² +
    Σd₂(ν_t − A_t e)² ≤ τ, that is eᵀH_t e ≤ τ − LS_t − 2g_tᵀe with LS_t = Σd₁a_t² + Σd₂ν_t², g_t = D₁a_t − A_tᵀD₂ν_t.
    So ‖u_t − C_t e‖² ≤ ‖u_t‖² + λ(τ − LS_t) + 2c_tᵀe with c_t = −C_tᵀu_t − λg_t.
    *Linear part.* For any y_t: c_tᵀe = (c_t − A_tᵀy_t)ᵀe + y_tᵀA_t e ≤ Σ_j max over the box of r_j(x_j − x̂_j) + y_tᵀν_t
    + doubtᵀ|y_t|, r_t = c_t − A_tᵀy_t. Here y₀ = D₂A₀H₀^{-1}c₀, y_a = D₂A₀H₀^{-1}(c_a − A_aᵀy₀).
    *In t.* Everything is affine but for products. Second-order parts of c_t and r_t, q, cost at most 2|q|ᵀ`reach`,
    that of u_t its norm. max(r l, r u) and |y| are convex: at most the multilinear chord of their values at the
    corners. What remains is α + Σ_a b_a t_a + Σ_ab κ_ab t_a t_b; mixed terms cost at most their absolute values, and
    along each axis the maximum over [−1,1] is exact.
    *Rounding.* x̂, y and H₀^{-1} may be anything. Sums of N products err by less than 1e-12 times the sums of their
    absolute values, of which SLACK takes a hundred times as much; errors in ν_t are below what NEAR adds to the doubt.
    """
    dim, axes = c.dim, range(1, c.dim + 1)
    lam = proved.clamp_max(1e30)[:, None, None]
    channels = u.shape[1]
    seen = view.apply(e.x.flatten(0, 1)).reshape(len(u), 1 + dim, 1 + dim, channels, -1)  # C_a x̂_b at [b, a, b, C, v]
    miss = [u - seen[:, 0, 0]] + [-(seen[:, a, 0] + seen[:, 0, a]) for a in axes]
    bent = sum((seen[:, a, b].flatten(1).norm(dim=1) for a in axes for b in axes), u.new_zeros(len(u)))
    back = [view.adjoint(m) for m in miss]  # C_aᵀ u_b at back[b][:, a]
    pull = [c.adjoint(metric.d2 * m) for m in e.miss]  # A_aᵀD₂ν_b at pull[b][a]
    c0 = -back[0][:, 0] + lam * (pull[0][0] - metric.d1 * e.off[0])
    ca = [-back[0][:, a] - back[a][:, 0] + lam * (pull[0][a] + pull[a][0] - metric.d1 * e.off[a]) for a in axes]
    y = [metric.d2 * c.apply(_solved(e.factor, c0))[0]]
    turned = [c.adjoint(y[0])]  # A_aᵀy_b at turned[b][a]
    rest = [ca[a - 1] - turned[0][a] for a in axes]
    y += [metric.d2 * c.apply(_solved(e.factor, each))[0] for each in rest]
    turned += [c.adjoint(each) for each in y[1:]]
    r = [c0 - turned[0][0]] + [each - turned[a][0] for a, each in zip(axes, rest, strict=True)]
    bend = u.new_zeros(())
    for a in axes:
        for b in axes:
            bend = bend + (-back[b][:, a] + lam * pull[b][a] - turned[b][a]).abs()
    table = torch.stack(miss, 1), torch.stack(y, 1), torch.stack(r, 1)  # [b, 1+d, C, ·]
    form = _form(table[0], table[0]) + 2 * (_form(table[1], e.miss[None]) - _form(table[2], e.x[None]))
    least = _form((metric.d1 * e.off)[None], e.off[None]) + _form((metric.d2 * e.miss)[None], e.miss[None])
    form = form - lam * least
    pattern = torch.cat((torch.ones(2**dim, 1, dtype=u.dtype, device=u.device), signs(dim, u.device)), 1)
    ends = torch.stack([_convex(table[1], table[2], w, c, e) for w in pattern], 1)  # [b, 2^d]
    chord = affine(ends, dim)
    top = form[:, 0, 0] + chord[:, 0] + lam[:, 0, 0] * e.tau + 2 * (bend * e.reach).sum((1, 2))
    size = metric.d1 * e.off.abs().sum(0) + metric.d2 * e.miss.abs().sum(0)
    top = top + SLACK * (
        lam[:, 0, 0] * (2 * e.tau + 4 * size.sum())
        + 4 * (table[1].abs().sum((1, 2, 3)) + table[2].abs().sum((1, 2, 3)))
        + (table[0].abs().sum(1).flatten(1).norm(dim=1) + 16 * u[0].numel() ** 0.5).square() * 1e-3
    )
    if dim == 2:
        top = top + (form[:, 1, 2] + form[:, 2, 1]).abs() + (ends * pattern[:, 1] * pattern[:, 2]).mean(1).abs()
    for a in axes:
        slope, curve = form[:, 0, a] + form[:, a, 0] + chord[:, a], form[:, a, a]
        inside = (curve < 0) & (slope.abs() < -2 * curve)
        peak = -slope.square() / (4 * torch.where(inside, curve, -1.0))
        top = top + torch.where(inside, peak, slope.abs() + curve)
    size = top.clamp_min(0).sqrt() + bent + view.rest.flatten(1).norm(dim=1)
    size = torch.where(proved.isfinite(), size * (1 + SLACK), torch.inf)
    return torch.where((top < 0) & proved.isfinite(), -torch.inf, size)


def _solved(factor: Factor, z: Tensor) -> Tensor:
    """H₀^{-1} z for z [..., N]."""
    return factor.solve(z.flatten(0, -2).mT).mT.reshape(z.shape)


def _form(f: Tensor, g: Tensor) -> Tensor:
    """⟨f_a, g_b⟩ [b, 1+d, 1+d] of [b or 1, 1+d, C, ·]."""
    return f.flatten(2) @ g.flatten(2).mT


def _convex(y: Tensor, r: Tensor, weight: Tensor, c: Cell, e: Estimate) -> Tensor:
    """2(Σ max(r l, r u) + doubtᵀ|y|) [b] at the corner with these signs."""
    y_c, r_c = (torch.einsum("a,xacn->xcn", weight, v) for v in (y, r))
    box = torch.maximum(r_c * c.lower, r_c * c.upper).sum((1, 2))
    return 2 * (box + (e.doubt * y_c.abs()).sum((1, 2)))
