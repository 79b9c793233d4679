"""Linear flows: transformations of one parameter that move every point along s(γ) = e^{γA} p, for one 2×2 matrix A.

Rotation is A = J, scaling A = −I, shear has a single entry; any other A will do. A flow declares A, its *generator*,
and all that proofs need follows from it. Let |·| be the Euclidean norm, S = (A + Aᵀ)/2 and a ≤ b its eigenvalues.

  composition   e^{βA} e^{γA} = e^{(β+γ)A}: parameters add.
  derivatives   s' = A s and s'' = A² s, linear in s: bounds of s over a box bound both (`velocity`, `acceleration`).
  growth        (|s|²)' = 2 sᵀS s lies between 2a|s|² and 2b|s|², so |s(γ)| ≤ e^{max(aγ, bγ)} |p| (Gronwall): this is
                `stretch`. Read backwards, distances shrink by no more than the same factor.
  ends          (|s|²)'' = 2 sᵀ(AᵀA + A²) s. Where the symmetric part of AᵀA + A² is positive semidefinite, |s|² is
                convex in γ and largest at an end of a cell. Otherwise every point of a cell of width w is within w/2 of
                an end, and `stretch` over w/2 bounds it (`farthest`).
  turning       each component of s' solves v'' = tr(A) v' − det(A) v. If A has real eigenvalues it vanishes at most
                once, or always; if not, its zeros are π/ω apart (`half_turn`).

The closed form. Write A = hI + ωB with h = tr(A)/2 and B² = −I, 0 or I (ω = √|h² − det A|, or 1 if that is 0). Then

    e^{γA} p = e^{hγ} ( C(ωγ) p + S(ωγ) B p ),    (C, S) = (cos, sin), (1, id) or (cosh, sinh),

since both sides solve s' = A s and agree at γ = 0. A diagonal A is evaluated entry by entry, e^{aγ} y and e^{dγ} x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from warpcert.numerics.box import Box
from warpcert.numerics.interval import Interval
from warpcert.transforms.families.base import SpatialTransform

__all__ = ["Flow", "Matrix"]

SLICES = 64  # of a range, on each of which norms are bounded
Matrix = tuple[tuple[float, float], tuple[float, float]]  # rows and columns in the order (y, x)


class Flow(SpatialTransform):
    """A transformation by a linear flow. A leaf states its `generator` A and its units; nothing else is needed.

    symmetry   the grid of pixels lies on itself again at multiples of this γ (a quarter turn), where all pixels meet
               grid lines together. Only a hint where to cut: bounds hold whatever it is
    """

    generator: ClassVar[Matrix]  # A: the value at p is the image's at e^{γA} p
    symmetry: ClassVar[float] = math.inf

    def __init_subclass__(cls) -> None:
        _parts(cls.generator)  # refuses what is not a generator

    @final
    def source(self, gamma: Sequence[Any], y: Any, x: Any) -> tuple[Any, Any]:
        parts, g = _parts(self.generator), gamma[0]
        if parts.scalar:
            return self.placed(self.amount(g), y, x)
        if parts.diagonal:
            return _times(parts.diagonal[0], g).exp() * y, _times(parts.diagonal[1], g).exp() * x
        (b_y, b_x), (cos, sin) = _product(parts.b, y, x), parts.waves(_times(parts.omega, g))
        s_y, s_x = cos * y + sin * b_y, cos * x + sin * b_x
        if parts.h:
            factor = _times(parts.h, g).exp()
            s_y, s_x = factor * s_y, factor * s_x
        return s_y, s_x

    @property
    @final
    def direction(self) -> int:
        """If one scalar s moves all points: 1 if it grows with γ, −1 if it falls; 0 if there is no such scalar."""
        rate = _parts(self.generator).scalar
        return (rate > 0) - (rate < 0)

    @final
    def amount(self, gamma: Any) -> Any:
        """s, if there is one: e^{aγ} where A has no other entries than a in its diagonal, or γ where A² = 0."""
        parts = _parts(self.generator)
        return _times(parts.scalar, gamma).exp() if parts.diagonal else gamma

    @final
    def placed(self, s: Any, y: Any, x: Any) -> tuple[Any, Any]:
        """The point (y, x) moved by this s."""
        parts = _parts(self.generator)
        if parts.diagonal:
            a, d = (s if rate else 1 + 0 * s for rate in parts.diagonal)
            return a * y, d * x
        b_y, b_x = _product(parts.b, y, x)
        return y + s * b_y, x + s * b_x

    @property
    @final
    def formula(self) -> str:
        """What `placed` computes."""
        parts = _parts(self.generator)
        rate = "" if parts.scalar == 1 else "−" if parts.scalar == -1 else f"{parts.scalar:g}"
        return f"e^({rate}γ)·p" if parts.diagonal else "p + γ·Ap"

    @final
    def follows(self, tolerance: float, extent: float, side: int = 1) -> tuple[str, ...]:
        """The floating-point types in which q(T_γ x), bilinear, stays within the tolerance for |γ| ≤ extent, from 8-bit
        pictures with sides up to this, if one scalar moves all points.

        In float64, u = 2⁻⁵³: a source point errs by `rounding`, and by (R + side)u more where half a side is added;
        values in [0,1] change by at most 1 per pixel, on two axes; weights and sums err by 12u (see `programs`), x and
        the product with 255 by u each; 1 % for products of errors.
        """
        if not self.direction:
            return ()
        radius = torch.tensor(0.71 * side, dtype=torch.float64)
        axis = float(self.rounding(radius, extent) + self.reach(radius, extent)) + side
        return ("float64",) if 1.01 * 2.0**-53 * (2 * axis + 14) <= tolerance else ()

    @final
    def velocity(self, y: Any, x: Any) -> tuple[Any, Any]:
        """s' = A s for s = (y, x), tensors or intervals."""
        return _product(self.generator, y, x)

    @final
    def acceleration(self, y: Any, x: Any) -> tuple[Any, Any]:
        """s'' = A² s for s = (y, x), tensors or intervals."""
        return _product(_parts(self.generator).square, y, x)

    @property
    @final
    def speed(self) -> float:
        """‖A‖₂: |s'| ≤ speed·|s|."""
        return _parts(self.generator).norm

    @property
    @final
    def curvature(self) -> tuple[float, float]:
        """The lengths of the rows of A²: |s_y''| and |s_x''| are at most that times |s|."""
        rows = _parts(self.generator).square
        return math.hypot(*rows[0]), math.hypot(*rows[1])

    @property
    @final
    def half_turn(self) -> float:
        """How far apart the zeros of a component of the velocity are, at least; ∞ if there is at most one."""
        parts = _parts(self.generator)
        return math.pi / parts.omega if parts.sign < 0 else math.inf

    @final
    def stretch(self, low: float, high: float) -> float:
        """≥ |e^{γA} p| / |p| for all γ in [low, high] and p."""
        a, b = _parts(self.generator).growth
        return math.exp(max(low * a, low * b, high * a, high * b))

    @final
    def farthest(self, ends: Tensor, width: Tensor) -> Tensor:
        """≥ |s| on a cell of this width, from the larger |s| of its ends."""
        parts = _parts(self.generator)
        if parts.ends_decide:
            return ends
        return ends * (width / 2 * max(map(abs, parts.growth))).exp()

    @final
    def around(self, y: Tensor, x: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
        """≥ |s_y| and |s_x| for all parameters within `half` of the one at which s = (y, x).

        A component that moves by itself (s_y' = a s_y) is multiplied by e^{|a|·half} at most; to another, at most
        half·|row of A|·sup|s| is added.
        """
        parts, out = _parts(self.generator), []
        for i, own in enumerate((y, x)):
            row = self.generator[i]
            if not row[1 - i]:
                out.append(own.abs() * (half * abs(row[i])).exp() if row[i] else own.abs())
                continue
            size = half * (y.hypot(x) * math.hypot(*row))
            grown = max(map(abs, parts.growth))
            out.append(own.abs() + (size * (half * grown).exp() if grown else size))
        return out[0], out[1]

    @final
    def enlarges(self, box: Box) -> float:
        """Weights of a pixel sum to 1 at most, so ‖T_γ‖₂ is at most the root of the largest sum of a column: of
        Σ_p hat(Mp − q) over all pixels p, with M = e^{γA} and hat the bilinear kernel of two dimensions.

        hat = h ⋆ h with h = 1 on the unit square about 0. Let G(v) = Σ_k h(v + Mk) over k ∈ Z², a function on the torus
        R²/MZ². Then F(t) = Σ_k hat(Mk − t) = ∫ G(v) G(v + t) dv over the torus, which by Cauchy and Schwarz is at most
        ∫ G² = F(0): no column sums to more than Σ_k hat(Mk). Points farther out than √2·`crowding` have no share in it.
        """
        most = math.ceil(1.5 * self.crowding(max(abs(box.lower[0]), abs(box.upper[0]))))
        cuts = torch.linspace(box.lower[0], box.upper[0], SLICES + 1, dtype=torch.float64)[:, None]
        side = torch.arange(-most, most + 1, dtype=torch.float64)
        y, x = (axis.flatten() for axis in torch.meshgrid(side, side, indexing="ij"))
        gamma = Interval(torch.minimum(cuts[:-1], cuts[1:]), torch.maximum(cuts[:-1], cuts[1:]))
        near = [torch.maximum(s.low, -s.high).clamp(0, 1) for s in self.source([gamma], y, x)]
        return math.sqrt(float(((1 - near[0]) * (1 - near[1])).sum(1).max())) * (1 + 1e-9)

    @final
    def reach(self, radius: Tensor, extent: float) -> Tensor:
        return radius * self.stretch(-extent, extent)

    @final
    def crowding(self, extent: float) -> float:
        return self.stretch(-extent, extent)

    @final
    def rounding(self, radius: Tensor, extent: float) -> Tensor:
        """In units of u, with r = |p|, R = `reach` and |γ| ≤ `extent` = e, for s computed as in `source`.

        Rounding γ moves s by ‖A‖R·eu. If ωγ has to be computed (ω ≠ 1), it errs by 2u relatively, 2‖ωB‖R·eu more, and
        hγ likewise, 2|h|R·eu. exp errs by 2 ulp ≤ 4u relatively and its product by u: 5Ru. cos and sin err by 2 ulp,
        2u (values ≤ 1), cosh and sinh by 3 ulp ≤ 6u relatively; their products with p and Bp err by u. Together that is
        (f + 1)u, f = 2, 6 or 0 (γ itself), times e^{|h|e}·m·(|p_i| + |(Bp)_i|), m the largest |C| or |S|; the last
        factor is at most k·r, k the longest of the vectors e_i ± (row i of B). The sum errs by Ru. Bp is exact if each
        row of B has at most one entry and that is ±1; otherwise entries, products and sum err by 3u·|row|·r.
        """
        parts, reach = _parts(self.generator), self.reach(radius, extent)
        relative = parts.norm * extent
        if parts.diagonal:
            whole = all(abs(rate) in (0, 1) for rate in parts.diagonal)
            return reach * (relative + 5 + (0.0 if whole else 2 * parts.norm * extent))
        if parts.omega != 1:
            relative += 2 * parts.omega * _norm(parts.b) * extent
        if parts.h:
            relative += 5 + (2 * abs(parts.h) * extent if abs(parts.h) != 1 else 0.0)
        most = {-1: 1.0, 0: max(1.0, extent), 1: math.cosh(parts.omega * extent)}[parts.sign]
        each = ({-1: 2, 0: 0, 1: 6}[parts.sign] + 1) * parts.k + (0 if parts.exact else 3 * parts.row)
        return reach * (relative + 1) + radius * (math.exp(abs(parts.h) * extent) * most * each)


@dataclass(frozen=True)
class _Parts:
    """A = hI + ωB, B² = sign·I, and numbers that follow from A."""

    h: float
    omega: float
    b: Matrix
    sign: int
    square: Matrix  # A²
    norm: float  # ‖A‖₂
    growth: tuple[float, float]  # the eigenvalues of (A + Aᵀ)/2
    ends_decide: bool  # AᵀA + A² is positive semidefinite
    diagonal: tuple[float, float] | None  # A's entries, if it has no others

    @property
    def exact(self) -> bool:
        return all(sum(v != 0 for v in row) <= 1 and all(abs(v) in (0, 1) for v in row) for row in self.b)

    @property
    def scalar(self) -> float:
        """The rate of the one scalar that moves all points, 1 for γ itself; 0 if there is none."""
        if self.diagonal is not None:
            rates = {rate for rate in self.diagonal if rate}
            return rates.pop() if len(rates) == 1 else 0.0
        return float(self.sign == 0 and not self.h and self.exact)

    @property
    def row(self) -> float:
        return max(math.hypot(*row) for row in self.b)

    @property
    def k(self) -> float:
        (yy, yx), (xy, xx) = self.b
        return max(math.hypot(1 + abs(yy), yx), math.hypot(xy, 1 + abs(xx)))

    def waves(self, phase: Any) -> tuple[Any, Any]:
        if self.sign < 0:
            return phase.cos(), phase.sin()
        return (phase.cosh(), phase.sinh()) if self.sign > 0 else (1.0, phase)


@lru_cache(maxsize=64)
def _parts(generator: Matrix) -> _Parts:
    (a, b), (c, d) = generator
    if not all(math.isfinite(v) for v in (a, b, c, d)):
        raise ValueError(f"a generator has finite entries; got {generator}")
    h, lean = (a + d) / 2, (a - d) / 2  # A − hI = ((lean, b), (c, −lean)) squares to delta·I
    delta = lean * lean + b * c
    if 0 < abs(delta) < 1e-4 * max(lean * lean, b * b, c * c):  # B would have entries above 100, and lose digits
        raise ValueError(f"the generator {generator} is too close to one with a double eigenvalue: write that one")
    omega = math.sqrt(abs(delta)) or 1.0
    turn = ((lean / omega, b / omega), (c / omega, -lean / omega))
    square = ((a * a + b * c, b * (a + d)), (c * (a + d), d * d + b * c))
    spread = math.hypot(lean, (b + c) / 2)
    # ((p, r), (r, q)) is the symmetric part of AᵀA + A²
    p, q = a * a + c * c + square[0][0], b * b + d * d + square[1][1]
    r = a * b + c * d + (square[0][1] + square[1][0]) / 2
    convex = p >= 0 and q >= 0 and p * q >= r * r
    sign = (delta > 0) - (delta < 0)
    growth, diagonal = (h - spread, h + spread), None if b or c else (a, d)
    return _Parts(h, omega, turn, sign, square, _norm(generator), growth, convex, diagonal)


def _norm(m: Matrix) -> float:
    """‖m‖₂ in closed form."""
    (a, b), (c, d) = m
    return (math.hypot(a + d, b - c) + math.hypot(a - d, b + c)) / 2


def _times(factor: float, value: Any) -> Any:
    """factor·value without a rounding where factor is ±1."""
    return value if factor == 1 else -value if factor == -1 else factor * value


def _product(m: Matrix, y: Any, x: Any) -> tuple[Any, Any]:
    """m (y, x), leaving out what is 0."""
    rows = []
    for to_y, to_x in m:
        terms = [_times(c, v) for c, v in ((to_y, y), (to_x, x)) if c]
        rows.append(terms[0] + terms[1] if len(terms) == 2 else terms[0] if terms else 0.0 * y)
    return rows[0], rows[1]
