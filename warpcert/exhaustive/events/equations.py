"""Where a pixel meets a threshold, as an equation in integers: pixels whose equations are proportional meet theirs at
exactly the same γ.

Guarantee. A row of integers c and a list of functions φ of γ, the same for all pixels, so that c·φ(γ) = 0 where the
pixel meets its threshold. If two rows are proportional, each vanishes where the other does. A row of zeros says
nothing.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from warpcert.transforms.families.flow import Matrix

__all__ = ["FlowEquation", "ToneEquation"]

_Pair = tuple[Tensor, Tensor]


@final
class FlowEquation:
    """For a flow e^{γA} with A = hI + B in integers and B² = δI, by Cayley and Hamilton.

    With E = e^{hγ}, C the cosine of √−δ·γ (or its hyperbolic one, or 1) and S the sine divided by √−δ (or γ), a point z
    moves to E(Cz + SBz), and a bilinear polynomial of it is a combination of

        1, EC, ES, E²C², E²CS, E²S².

    Some combinations are told in more than one way: if h = 0, E = 1 and C² = 1 + δS²; if B = 0 or δ = 0, C = 1. They
    are told in one, so that equal functions have proportional rows. What is left may be a quadratic in one quantity t
    that is monotone in γ: e^{hγ}, or γ itself. If its roots are rational, the one at hand has a linear equation of its
    own, which it shares with other quadratics.
    """

    def __init__(self, generator: Matrix) -> None:
        (a, b), (c, d) = generator
        self.known = all(float(v).is_integer() and abs(v) <= 16 for v in (a, b, c, d)) and (a + d) % 2 == 0
        self.h, lean = int((a + d) // 2), int((a - d) // 2)
        self.b = (lean, int(b)), (int(c), -lean)
        self.delta = lean * lean + int(b) * int(c)
        self.still = not any(any(row) for row in self.b)

    def rows(self, polynomial: tuple[Tensor, Tensor, Tensor, Tensor], z: _Pair, falls: Tensor) -> Tensor:
        """[E,6] for k₀ + k_y z_y + k_x z_x + k_yx z_y z_x, given as (k₀, k_y, k_x, k_yx), of moving points that start
        at z; `falls` is the sign of minus its derivative at the root.
        """
        one, k_y, k_x, k = polynomial
        if not self.known:
            return one.new_zeros(len(one), 6)
        y, x = z
        v, w = (row[0] * y + row[1] * x for row in self.b)  # Bz
        columns = [one, k_y * y + k_x * x, k_y * v + k_x * w, k * y * x, k * (y * w + x * v), k * v * w]
        if self.h == 0:  # C² = 1 + δS²
            columns[0], columns[3], columns[5] = columns[0] + columns[3], 0 * one, columns[5] + self.delta * columns[3]
            if self.delta == 0:  # C = 1 and S = γ
                columns[0], columns[2] = columns[0] + columns[1], columns[2] + columns[4]
                columns[1] = columns[4] = 0 * one
                self._simplify(columns, (0, 2, 5), falls)
        elif self.still:
            self._simplify(columns, (0, 1, 3), falls if self.h > 0 else -falls)
        return torch.stack(columns, 1)

    @staticmethod
    def _simplify(columns: list[Tensor], places: tuple[int, int, int], falls: Tensor) -> None:
        """Of c + lt + qt² with a rational root at which its derivative 2qt + l has the sign of −falls instead:
        l + falls·√(l² − 4qc) + 2qt.
        """
        c, linear, square = (columns[i] for i in places)
        inner = linear * linear - 4 * square * c
        root = inner.clamp_min(0).double().sqrt().round().long()
        rational = (square != 0) & (root * root == inner)
        columns[places[0]] = torch.where(rational, linear + falls * root, c)
        columns[places[1]] = torch.where(rational, 2 * square, linear)
        columns[places[2]] = square * ~rational


@final
class ToneEquation:
    """For x + 255γ, in 1 and γ, and for c + e^γ(x − c), in 1 and e^γ, if twice the pivot is a whole level."""

    def __init__(self, pivot: float | None) -> None:
        self.adds = pivot is None
        twice = 0.0 if pivot is None else 510 * pivot
        self.known, self.twice = twice.is_integer(), int(twice)

    def rows(self, one: Tensor, x: Tensor) -> Tensor:
        """[E,6] for one + 2V = 0, the value V having started at x."""
        zero = torch.zeros_like(x)
        if not self.known:
            return x.new_zeros(len(x), 6)
        columns = (2 * x + one, zero + 510) if self.adds else (one + self.twice, 2 * x - self.twice)
        return torch.stack((*columns, zero, zero, zero, zero), 1)
