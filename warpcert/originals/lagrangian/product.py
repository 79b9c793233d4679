"""Shifts behind a rectangular vignette: F T_θ is a Kronecker product, and F T_θ G (F T_θ)ᵀ is made axis by axis."""

from __future__ import annotations

import torch
from torch import Tensor

from warpcert.originals.lagrangian.lens import Lens, norm

__all__ = ["product_squares"]


def product_squares(eye: Lens, nodes: Tensor, above: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """‖KGKᵀ‖₂ or more, and ‖|K|√diag G‖² or more [c,n], of K = F T_θ at the nodes θ [n,d] and G = above [c,N,N].

    T_θ = R ⊗ C and row k of F is a_k ⊗ b_k with few different a and b (`Lens.parts`). With A = aR and B = bC, each made
    once per row or column of the grid of nodes, rows of K are rows of A ⊗ B: (A ⊗ B)G(A ⊗ B)ᵀ is contracted along the
    rows of the picture first, for all nodes that share them, and then along its columns, where only the pairs of F are
    kept. An entry is a sum of the same products of K's and G's entries as in one product of matrices, in another order.
    """
    parts = eye.parts
    assert parts is not None
    first, second, pair = parts[0], parts[1], parts[2][:rank]
    first, second = first[: int(pair[:, 0].max()) + 1], second[: int(pair[:, 1].max()) + 1]
    which, sides = [], []
    for axis, own in ((0, first), (1, second)):
        parameter = nodes[:, 1 - axis]  # to the right, and down
        values, number = torch.unique(parameter, return_inverse=True)
        theta = nodes.new_zeros(len(values), 2)
        theta[:, 1 - axis] = values
        sides.append(own @ eye.line(theta, axis))
        which.append(number)
    a, b = sides  # [y,·,H], [x,·,W]
    height, width = a.shape[2], b.shape[2]
    squares, size = [], []
    for g in above:
        wide = g.diagonal().sqrt().reshape(height, width)
        sums = torch.einsum("yah,hw->yaw", a.abs(), wide)[which[0]] @ b.abs()[which[1]].mT
        size.append(sums[:, pair[:, 0], pair[:, 1]].square().sum(1))
        half = (a.flatten(0, 1) @ g.reshape(height, -1)).reshape(*a.shape[:2], width, height, width)
        rows = torch.einsum("yawkl,ybk->yawbl", half, a)
        squares.append(_along(rows, b, pair, which))
    return torch.stack(squares), torch.stack(size)


def _along(rows: Tensor, b: Tensor, pair: Tensor, which: list[Tensor]) -> Tensor:
    """[n]: norms of the matrices made of rows [y,a,w,b,l] and b [x,·,W] at the pairs."""
    out = rows.new_empty(len(which[0]))
    for y, each in enumerate(rows):
        own = (which[0] == y).nonzero()[:, 0]
        beside, line = b[which[1][own]], each.movedim(1, 0)  # [m,s,W], [w,a,b,l]
        left = (beside.flatten(0, 1) @ line.flatten(1)).reshape(*beside.shape[:2], *line.shape[1:])  # [m,s,a,b,l]
        left = left[:, pair[:, 1], pair[:, 0]]  # [m,k,b,l]
        both = left.flatten(1, 2) @ beside.mT  # [m,k·b,t]
        out[own] = norm(both.reshape(*left.shape[:3], -1)[:, :, pair[:, 0], pair[:, 1]])
    return out
