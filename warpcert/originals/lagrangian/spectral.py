"""λ of the Lagrangian inverse: how much of a metric on originals the defender can see."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor

from warpcert.originals.chords import corners, signs
from warpcert.originals.lagrangian.cell import Cell
from warpcert.originals.lagrangian.lens import Lens, norm
from warpcert.originals.lagrangian.local import Local
from warpcert.originals.lagrangian.metric import Metric, shared_corners
from warpcert.originals.lagrangian.product import product_squares
from warpcert.originals.lagrangian.strips import UNIT

__all__ = ["Lambda", "inverse_above", "proved_lambda"]

DENSE = 1100  # pixels of a channel beyond which strips are used
SIZE = 2**24  # entries of F T_θ at once
NODES = 160  # with two parameters more are not worth their time: the stride grows instead
GUESS = 64  # directions that a guess of λ looks at
SAMPLE = 32  # β that the stride is chosen by


def proved_lambda(group: list[Cell], metric: Metric, eye: Lens, beta: Tensor, loss: float = 0.02) -> Tensor:
    """`Lambda` for one set of β."""
    return Lambda.of(group, metric, eye).proved(beta, loss)


@final
@dataclass(frozen=True, eq=False)
class Lambda:
    """What is proved of the corners of g neighbouring cells, once for all β; proof: None if an H̃ is not shown to be
    positive definite.
    """

    group: list[Cell]
    eye: Lens
    places: list[list[tuple[int, int]]]
    proof: Proof | None

    @classmethod
    def of(cls, group: list[Cell], metric: Metric, eye: Lens) -> Lambda:
        places = shared_corners(group)
        return cls(group, eye, places, _proof(group, metric, eye, places))

    def proved(self, beta: Tensor, loss: float = 0.02) -> Tensor:
        """λ [b,g] with ‖C_t e‖² ≤ λ eᵀH_t e for every e and t, in each of the g cells; inf where none was proved.

        It is proved at the corners: λH̃_c ⪰ C_cᵀC_c. Then with H_t ⪰ Σ w_c H̃_c (`lowered`), H̃_c ≻ 0 and the convexity of
        the square, ‖C_t e‖² ≤ Σ w_c ‖C_c e‖² ≤ λ Σ w_c eᵀH̃_c e ≤ λ eᵀH_t e. Neighbours share corners, and the proof.

        *At a corner.* G ⪰ H̃^{-1} (`inverse_above`) is made once for all β. If T_c = Σ_i w_i T_i + R with nodes θ_i,
        w_i ≥ 0 and Σ w_i = 1, then ‖C_c e‖ ≤ Σ w_i ‖P T_i e‖ + ‖R e‖ (‖P‖₂ ≤ 1: no negative entries, row and column
        sums at most 1). As ‖P T_i e‖² ≤ ‖F T_i e‖² + tail ‖T_i e‖² (`Lens`) and the squares of R e and T_i e are at
        most Σ Δ_j e_j² (`spread`), in units of √(eᵀH̃e)

            √λ = Σ w_i √(‖F T_i G (F T_i)ᵀ‖₂ + tail·σ) + √σ_R ,      σ ≥ ‖Δ^½ G Δ^½‖₂ .

        In large pictures no matrix of all pixels is made: a node's √λ_i with λ_iH̃ ⪰ T_iᵀPPT_i, and σ with σH̃ ⪰ Δ, are
        guessed and then proved by Cholesky's method in strips (`Local`).

        The nodes are a grid in θ with multilinear weights, so that R is of second order in its stride; they serve all β
        and all corners. If there are fewer β than nodes, every θ is its own node. Rank and stride are chosen such that
        λ is about 1 + `loss` times as large as it might be, or, with two parameters, at most NODES are needed.
        """
        group, eye, places, proof = self.group, self.eye, self.places, self.proof
        if proof is None:
            return torch.full((len(beta), len(group)), torch.inf, dtype=torch.float64, device=beta.device)
        ends = torch.stack([corners(beta + group[at[0][0]].low, beta + group[at[0][0]].high) for at in places])
        theta = torch.stack(
            [e[:, at[0][1]] for e, at in zip(ends, places, strict=True)]
        )  # [c,b,d], of ends [c,b,2^d,d]
        precision, most = proof.fitting(theta, loss)
        nodes, which, weight = _grid(theta, _stride(eye, theta, proof, most))
        if len(nodes) < len(beta):
            at_nodes = proof.roots(nodes, precision).gather(1, which.flatten(1)).reshape(which.shape)
            root, terms = (at_nodes * weight).sum(2), nodes[which]
        else:
            root = torch.stack([proof.pick(c).roots(t, precision)[0] for c, t in enumerate(theta)])
            terms, weight = theta[:, :, None], torch.ones_like(theta[..., :1])
        if theta.shape[2] > 1 or terms.shape[2] > 1:
            member = _members(theta.shape[2]).to(theta)[[at[0][1] for at in places]]  # [c,2^d]
            coefficient = torch.cat((member[:, None].expand(*ends.shape[:3]), -weight), 2)
            rest = eye.spread(torch.cat((ends, terms), 2).flatten(0, 1), coefficient.flatten(0, 1))
            root = root + proof.weighed(rest).sqrt()[:, None]
        square = root.square() * (1 + 1e-9)
        own = [[c for c, at in enumerate(places) if any(k == cell for cell, _ in at)] for k in range(len(group))]
        return torch.stack([square[chosen].amax(0) for chosen in own], 1)


class Proof(Protocol):
    """What is proved with the H̃ of some corners: with dense matrices here, with strips in `local`."""

    def pick(self, c: int) -> Proof:
        """With this corner alone."""

    def fitting(self, theta: Tensor, loss: float) -> tuple[float, float]:
        """How precise `roots` must be, and what √σ_R may be, for θ [c,b,d]. Quality only."""

    def roots(self, nodes: Tensor, precision: float) -> Tensor:
        """[c,n]: r ≥ ‖P T_θ e‖ / √(eᵀH̃e) for all e, at the nodes θ [n,d]."""

    def weighed(self, diagonal: Tensor) -> Tensor:
        """σ [c] with Σ diagonal_j e_j² ≤ σ eᵀH̃e for all e."""


@dataclass(frozen=True, eq=False)
class Dense:
    """By G ⪰ H̃^{-1} [c,N,N]; the precision is the rank of F."""

    eye: Lens
    above: Tensor

    def pick(self, c: int) -> Dense:
        return Dense(self.eye, self.above[c : c + 1])

    def fitting(self, theta: Tensor, loss: float) -> tuple[float, float]:
        return _rank(self.eye, theta, self.above, loss)

    def roots(self, nodes: Tensor, precision: float) -> Tensor:
        return _root(self.eye, nodes, self.above, int(precision))

    def weighed(self, diagonal: Tensor) -> Tensor:
        return _weighed(self.above, diagonal)


def _proof(group: list[Cell], metric: Metric, eye: Lens, places: list[list[tuple[int, int]]]) -> Proof | None:
    """None if an H̃ is not shown to be positive definite."""
    if group[0].pixels > DENSE:
        return Local.of(group, metric, eye, places)
    inverses = [inverse_above(h.dense()) for h in metric.each_lowered(group, places)]
    shown = [g for g in inverses if g is not None]
    return Dense(eye, torch.stack(shown)) if len(shown) == len(inverses) else None


def inverse_above(h: Tensor) -> Tensor | None:
    """G [N,N] with G ⪰ h^{-1} if h [N,N] is shown to be positive definite, otherwise None.

    With h = SXS, S = √diag h, and Y ≈ X^{-1}: XY = I + E gives X^{-1} ⪯ Y + ‖E‖‖X^{-1}‖·I and ‖X^{-1}‖ ≤ ‖Y‖/(1 − ‖E‖).
    No eigenvalue of X is nearer to 0 than (1 − ‖E‖)/‖Y‖, and as Cholesky's method went through, none is below
    −8(N+2)u·tr X: if that is nearer to 0, all are positive. Norms are Frobenius norms; the rounding of X and XY is
    below 8Nu‖X‖‖Y‖.
    """
    size = len(h)
    if not bool((h.diagonal() > 0).all()):
        return None
    scale = h.diagonal().rsqrt()
    x = scale[:, None] * h * scale
    factor, info = torch.linalg.cholesky_ex(x)
    if int(info):
        return None
    y = torch.cholesky_inverse(factor)
    large = float(y.norm())
    off = x @ y
    off.diagonal().sub_(1)
    error = float(off.norm()) + 8 * size * UNIT * float(x.norm()) * large
    if not error < 0.5 or not (1 - error) / large > 16 * (size + 2) * size * UNIT:
        return None
    y.diagonal().add_(error * large / (1 - error))
    above: Tensor = scale[:, None] * y * scale
    return above


def _rank(eye: Lens, theta: Tensor, above: Tensor, loss: float) -> tuple[int, float]:
    """A rank whose tail adds half of `loss` to λ, and what √σ_R may be to add the other half; by a guess of λ from some
    directions at one θ. Quality only.
    """
    some = theta[:, theta.shape[1] // 2]
    k = eye.passed(some, min(GUESS, len(eye.factor)))
    guess = torch.linalg.matrix_norm(k @ above @ k.mT)  # ≥ ‖·‖₂, of a matrix whose largest eigenvalues are few
    sigma = _weighed(above, eye.spread(some[:, None], torch.ones_like(some[:, :1])))
    needed = float((guess / sigma).min()) * loss / 2
    rank = int((eye.dims > needed).sum())
    rank = min(len(eye.factor), 32 * (rank // 32 + 1))
    return rank, float(guess.min().sqrt()) * loss / 4


def _stride(eye: Lens, theta: Tensor, proof: Proof, most: float) -> float:
    """A stride of the grid with √σ_R ≈ most: it is found for one stride, and grows with its square. Quality only."""
    some = theta[0, :SAMPLE]
    nodes, which, weight = _grid(some[None] + eye.stride / 2, eye.stride)
    terms = torch.cat(((some + eye.stride / 2)[:, None], nodes[which][0]), 1)
    rest = eye.spread(terms, torch.cat((torch.ones_like(some[:, :1]), -weight[0]), 1))
    root = float(proof.pick(0).weighed(rest).sqrt())
    stride = eye.stride * min(8.0, max(0.05, math.sqrt(most / max(root, 1e-300))))
    while theta.shape[2] > 1 and min(len(_grid(theta, stride)[0]), theta.shape[1]) > NODES:
        stride *= 1.25
    return stride


def _grid(theta: Tensor, stride: float) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes [n,d] around all θ [c,b,d], the numbers of those around each [c,b,2^d], and their multilinear weights."""
    dim = theta.shape[2]
    place = theta / stride
    low = place.floor()
    up = (signs(dim, theta.device) + 1) / 2  # [2^d, d]
    share = (place - low)[:, :, None]
    weight = torch.where(up > 0, share, 1 - share).prod(3)
    points = (low[:, :, None] + up).flatten(0, 2)
    least = points.amin(0)
    size = (points.amax(0) - least + 1).flip(0).cumprod(0).flip(0)
    number = ((points - least)[:, :-1] * size[1:]).sum(1) + (points - least)[:, -1]  # which is faster than of rows
    order, which = torch.unique(number, return_inverse=True)
    first = torch.empty_like(order, dtype=torch.long).scatter_(0, which, torch.arange(len(which), device=which.device))
    nodes: Tensor = points[first] * stride
    return nodes, which.reshape(weight.shape), weight


def _members(dim: int) -> Tensor:
    """[2^d, 2^d]: the affine family at the corners (`family`) in terms of the corners' matrices."""
    sign = torch.cat((torch.ones(2**dim, 1, dtype=torch.float64), signs(dim, torch.device("cpu"))), 1)
    members: Tensor = sign @ sign.mT / 2**dim
    return members


def _root(eye: Lens, nodes: Tensor, above: Tensor, rank: int) -> Tensor:
    """[c,n]: r ≥ ‖P T_θ e‖ / √(eᵀHe) for all e, at the nodes θ [n,d], where above = G ⪰ H^{-1} [c,N,N].

    *Rounding.* K = F T_θ errs by less than 16e-14 per entry (F ≤ 1, column sums of |T_θ| below 16), so ‖K H^{-½}‖ by
    less than that times √r Σ_j √G_jj over the pixels that T_θ reads; KGKᵀ by 4Nu times the square of |K|√diag G.
    """
    spread = eye.spread(nodes[:, None], torch.ones_like(nodes[:, :1]))
    rest = eye.tail(rank) * _weighed(above, spread)
    read = spread > 0
    slack = 16e-14 * rank**0.5 * above.diagonal(dim1=1, dim2=2)[:, read].sqrt().sum(1)
    if eye.parts is not None:
        squares, size = product_squares(eye, nodes, above, rank)
    else:
        squares, size = _squares(eye, nodes, above[:, read][:, :, read], rank, read)
    roots: Tensor = (squares + 4 * len(read) * UNIT * size + rest[:, None]).sqrt() + slack[:, None]
    return roots


def _squares(eye: Lens, nodes: Tensor, above: Tensor, rank: int, read: Tensor) -> tuple[Tensor, Tensor]:
    """‖KGKᵀ‖₂ or more, and ‖|K|√diag G‖² [c,n], K = F T_θ at the nodes."""
    wide = above.diagonal(dim1=1, dim2=2).sqrt()  # [c,·]: |G_ij| ≤ √(G_ii G_jj)
    squares, size = [], []
    for some in torch.split(nodes, max(1, SIZE // max(1, rank * wide.shape[1]))):
        k = eye.passed(some, rank)[:, :, read]
        size.append((k.abs() @ wide.mT).square().sum(1).mT)
        squares.append(torch.stack([norm((k.flatten(0, 1) @ g).reshape(k.shape) @ k.mT) for g in above]))
    return torch.cat(squares, 1), torch.cat(size, 1)


def _weighed(above: Tensor, diagonal: Tensor) -> Tensor:
    """σ [c] with Σ diagonal_j e_j² ≤ σ eᵀHe for all e: the Perron root of |Δ^½ G Δ^½|, bounded by Collatz–Wielandt:
    max (Bx)_j / x_j for any x > 0.
    """
    seen = diagonal > 0
    if not bool(seen.any()):  # all of the picture is shifted out of sight
        return above.new_zeros(len(above))
    half = diagonal[seen].sqrt()
    matrix = half[:, None] * above[:, seen][:, :, seen].abs() * half
    x = matrix.new_ones(len(matrix), len(half), 1)
    for _ in range(8):
        new: Tensor = matrix @ x
        ratio = (new / x).amax((1, 2))
        x = new / new.amax(1, keepdim=True) + 1e-6
    return ratio * (1 + 1e-9)
