"""The interpolation error of shifts: a polynomial in γ on rectangles, whose control vectors bound its norm."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.curve.goal import Found, Goal
from warpcert.errors.curve.model import Model, absolute_norm, model, operator_norm
from warpcert.errors.float32 import value_error
from warpcert.threat import Threat
from warpcert.transforms.kernels import Kernel

__all__ = ["axis_cuts", "control", "plane_search", "shift"]

PARTS = 2  # of each interval between two cuts, for a bicubic defender or attacker


def shift(k: Kernel, gamma: Tensor, side: int) -> Tensor:
    """The shift along one axis as matrices [..., side, side]: out[i] = Σ_j k(i − γ − j) x[j]."""
    place = torch.arange(side, dtype=gamma.dtype, device=gamma.device)
    return k.value(place[:, None] - place - gamma[..., None, None])


def axis_cuts(low: float, high: float, beta: Tensor) -> Tensor:
    """Where a source point can cross a grid line along one axis: integers and integers − β in [low, high] [B, cuts],
    sorted, ends included, repeated where a β has fewer."""
    whole = torch.arange(math.ceil(low), math.floor(high) + 1, dtype=beta.dtype, device=beta.device)
    count = math.ceil(high - low) + 2
    first = (beta + low).ceil()[:, None] + torch.arange(count, dtype=beta.dtype, device=beta.device)
    own = (first - beta[:, None]).clamp(low, high)
    ends = torch.tensor([low, high], dtype=beta.dtype, device=beta.device).expand(beta.shape[0], 2)
    return torch.cat((ends, whole.expand(beta.shape[0], -1), own), 1).sort(1).values


def control(degree: int) -> Tensor:
    """The matrix [degree+1, degree+1] from values at 0, 1/degree, …, 1 to Bernstein coefficients."""
    t = torch.linspace(0, 1, degree + 1, dtype=torch.float64)
    b = torch.arange(degree + 1)
    choose = torch.tensor([float(math.comb(degree, int(i))) for i in b], dtype=torch.float64)
    out: Tensor = torch.linalg.inv(choose * t[:, None] ** b * (1 - t[:, None]) ** (degree - b))
    return out


def plane_search(x: Tensor, defence: Defence, threat: Threat, beta: Tensor, goal: Goal) -> Found:
    """sup_γ‖ε‖ for β [B,2]. A target makes no difference.

    Between cuts no source point crosses a grid line, so T_γ x and T_{β+γ} x, and with them u = P(T_β T_γ x − T_{β+γ}
    x), are polynomials in each component of γ, of degree 1 (bilinear) or 3 (bicubic): u lies in the convex hull of
    its Bernstein control vectors, and the longest bounds ‖u‖. Degree 1: these are the corners, and the bound is
    exact. Rounding: see `_longest`.
    """
    m = model(x, defence, threat, beta)
    degree = 1 if m.attacker.reach == m.defender.reach == m.reference.reach == 1 else 3
    to_control = control(degree).to(x)
    box = _box(m, goal.extent)
    rounding = _rounding(m, box)
    upper = torch.full_like(beta[:, 0], m.trivial)
    lower = torch.zeros_like(upper)
    nodes = 0
    axes = [axis_cuts(threat.box.lower[i], threat.box.upper[i], beta[:, i]) for i in (0, 1)]
    parts = 1 if degree == 1 else PARTS
    share = torch.arange(parts * degree, dtype=x.dtype, device=x.device) / (parts * degree)
    for b in range(beta.shape[0]):
        if time.perf_counter() > goal.deadline:
            break
        goal.tell(b / beta.shape[0])
        right, down = (_nodes(torch.unique(cut[b]), share) for cut in axes)
        u = _errors(m, beta[b], right, down, False)  # [Ny, Nx, C·v]
        nodes += right.numel() * down.numel()
        vectors = _hull(_hull(u, to_control, 0), to_control, 1).flatten(0, 1)
        upper[b] = _longest(m, b, vectors, box, rounding[b]) * (1 + 1e-9) + 1e-9
        lower[b] = _errors(m, beta[b], right[::degree], down[::degree], threat.quantized).norm(dim=-1).max()
    return Found(upper, lower, nodes, bool(upper.max() <= goal.tightness * lower.max()))


def _nodes(cuts: Tensor, share: Tensor) -> Tensor:
    """The nodes of the intervals between the cuts: their starts plus `share` of their widths, and the last end."""
    return torch.cat(((cuts[:-1, None] + cuts.diff()[:, None] * share).flatten(), cuts[-1:]))


def _hull(u: Tensor, to_control: Tensor, dim: int) -> Tensor:
    """Control vectors along one axis of nodes, each piece's own: [..., pieces·degree + 1, ...] → [...,
    pieces·(degree+1), ...].
    """
    size = to_control.shape[0]
    pieces = u.unfold(dim, size, size - 1) if u.shape[dim] >= size else u.unsqueeze(-1)
    if pieces.shape[-1] != size:  # a single point
        return u
    return (pieces @ to_control.T).movedim(-1, dim + 1).flatten(dim, dim + 1)


def _errors(m: Model, beta: Tensor, right: Tensor, down: Tensor, rounded: bool) -> Tensor:
    """P(T_β (q) T_γ x − T_{β+γ} x) on the grid of γ = (right, down) → [Ny, Nx, C·v]. A shift acts on each axis
    apart.
    """
    height, width = m.x.shape[1:]

    def moved(k: Kernel, shift_y: Tensor, shift_x: Tensor) -> Tensor:
        rows = torch.einsum("yij,cjw->yciw", shift(k, shift_y, height), m.x)
        return torch.einsum("yciw,xlw->yxcil", rows, shift(k, shift_x, width))

    given = moved(m.attacker, down, right)
    if rounded:
        given = m.transform.quantize(given)
    back = shift(m.defender, beta[1], height) @ given @ shift(m.defender, beta[0], width).T
    error = (back - moved(m.reference, down + beta[1], right + beta[0])).flatten(3)[..., m.kept]
    return m.blur(error).flatten(2)


def _longest(m: Model, b: int, vectors: Tensor, box: Tensor, rounding: Tensor) -> Tensor:
    """sup ‖u + K n‖ over u in the convex hull of the vectors [V, C·v] and |n| ≤ box, K = P T_β, given ‖K n‖ ≤ rounding.

    The norm is convex in u: a vector c decides, and ‖c + K n‖² ≤ ‖c‖² + 2⟨|Kᵀc|, box⟩ + rounding². From the longest c
    on, until even ‖c‖ + rounding is not longer than what was found.
    """
    size: Tensor = vectors.norm(dim=-1)
    order = size.argsort(descending=True)
    best = size.max()
    for at in torch.split(order, 128):
        if bool(size[at[0]] + rounding <= best) or not bool((box != 0).any()):
            break
        p = m.adjoint(vectors[at].reshape(1, at.numel() * m.channels, -1))
        g = m.push(torch.tensor([b], device=p.device), p).reshape(at.numel(), m.channels, -1)
        cross = (g.abs() * box).flatten(1).sum(-1)
        best = torch.maximum(best, (size[at].square() + 2 * cross + rounding.square()).sqrt().max())
    return best


def _box(m: Model, extent: float) -> Tensor:
    """|q(T_γ x) − T_γ x| ≤ box [C, n] for all γ: half a step, and a bicubic attacker's overshoot, which q clips away,
    at every pixel that something other than 0 can reach; 0 if the attacker does not round.
    """
    reach = [
        math.ceil(max(-a, b)) + m.attacker.reach for a, b in zip(m.threat.box.lower, m.threat.box.upper, strict=True)
    ]
    size = (2 * reach[1] + 1, 2 * reach[0] + 1)
    live = torch.nn.functional.max_pool2d((m.x != 0).to(m.x)[None], size, 1, (reach[1], reach[0]))[0]
    doubt = float(value_error(m.transform, m.attacker, *m.size, extent).amax()) + 1e-12
    each = (m.transform.step / 2 + m.attacker.overshoot + doubt) if m.threat.quantized else 0.0
    return (live * each).flatten(1)


def _rounding(m: Model, box: Tensor) -> Tensor:
    """[B]: ‖P T_β n‖ ≤ min(‖P|T_β| box‖, ‖P T_β‖·‖box‖) for |n| ≤ box."""
    norm = torch.minimum(absolute_norm(m), operator_norm(m))
    out = []
    for b in range(m.beta.numel()):
        seen = (box[:, m.index[b]] * m.weight[b].abs()).sum(-1)
        out.append(torch.minimum(m.blur(seen).norm(), norm[b] * (box * m.used).norm()))
    return torch.stack(out)
