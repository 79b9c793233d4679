"""Symmetric matrices that couple near pixels only, as block-tridiagonal matrices: one block per strip of pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

__all__ = ["Factor", "Strips"]

UNIT = 2.0**-53


@dataclass(frozen=True, eq=False)
class Strips:
    """A symmetric matrix [..., N, N] whose entries with |i − j| > s are 0, pixels counted along the rows of a picture.

    diagonal [..., m, s, s]: the symmetric blocks of m strips of s pixels; below [..., m−1, s, s]: block (i+1, i). The
    last strip is filled up with zeros to m·s ≥ size = N. With s a few rows of the picture, a factorisation costs
    about N·s² instead of N³.
    """

    diagonal: Tensor
    below: Tensor
    size: int

    @classmethod
    def of(cls, row: Tensor, column: Tensor, value: Tensor, size: int, strip: int) -> Strips:
        """The matrix with these entries (those at the same place are added up): both triangles may be given, the
        lower one counts.
        """
        low = (row >= column) & (value != 0)
        row, column, value = row[low], column[low], value[low]
        strip = max(1, min(strip, size))
        if row.numel() and int((row - column).max()) > strip:
            raise ValueError(f"strips of {strip} pixels hold no entries that are {int((row - column).max())} apart")
        count = -(-size // strip)
        at, other = row // strip, column // strip
        place = (at * strip + row % strip) * strip + column % strip
        blocks = value.new_zeros(2, count * strip * strip)
        for number, here in enumerate((at == other, at != other)):
            blocks[number].index_add_(0, place[here], value[here])
        diagonal, below = blocks.reshape(2, count, strip, strip)
        return cls(diagonal.tril() + diagonal.tril(-1).mT, below[1:], size)

    @property
    def strip(self) -> int:
        return self.diagonal.shape[-1]

    def __add__(self, other: Strips) -> Strips:
        return replace(self, diagonal=self.diagonal + other.diagonal, below=self.below + other.below)

    def __mul__(self, scale: float) -> Strips:
        return replace(self, diagonal=self.diagonal * scale, below=self.below * scale)

    def __sub__(self, other: Strips) -> Strips:
        return self + other * -1

    def abs(self) -> Strips:
        return replace(self, diagonal=self.diagonal.abs(), below=self.below.abs())

    def plus(self, diagonal: Tensor) -> Strips:
        """With this [..., N] added to the diagonal."""
        out = self.diagonal.clone()
        out.diagonal(dim1=-2, dim2=-1).add_(self._cut(diagonal))
        return replace(self, diagonal=out)

    def sums(self) -> Tensor:
        """The sums of the rows [..., N]."""
        total = self.diagonal.sum(-1)
        total[..., 1:, :] += self.below.sum(-1)
        total[..., :-1, :] += self.below.sum(-2)
        return total.flatten(-2)[..., : self.size]

    def dense(self) -> Tensor:
        """[..., N, N]."""
        count, s = self.diagonal.shape[-3:-1]
        out = self.diagonal.new_zeros(*self.diagonal.shape[:-3], count, s, count, s)
        for i in range(count):
            out[..., i, :, i, :] = self.diagonal[..., i, :, :]
            if i:
                out[..., i, :, i - 1, :] = self.below[..., i - 1, :, :]
                out[..., i - 1, :, i, :] = self.below[..., i - 1, :, :].mT
        return out.flatten(-4, -3).flatten(-2)[..., : self.size, : self.size]

    def times(self, z: Tensor) -> Tensor:
        """The product with z [..., N, q]."""
        parts = self._cut(z.mT).movedim(-3, -1)  # [..., m, s, q]
        out = self.diagonal @ parts
        out[..., 1:, :, :] += self.below @ parts[..., :-1, :, :]
        out[..., :-1, :, :] += self.below.mT @ parts[..., 1:, :, :]
        return out.flatten(-3, -2)[..., : self.size, :]

    def factor(self) -> Factor | None:
        """L with this = LLᵀ up to rounding; None: Cholesky's method failed (somewhere in the batch)."""
        filled = self._filled()
        count, upper, lower = filled.shape[-3], [], []
        rest = filled[..., 0, :, :]
        for i in range(count):
            block, info = torch.linalg.cholesky_ex(rest)
            if bool(info.any()):
                return None
            upper.append(block)
            if i + 1 < count:
                lower.append(torch.linalg.solve_triangular(block.mT, self.below[..., i, :, :], upper=True, left=False))
                rest = filled[..., i + 1, :, :] - lower[-1] @ lower[-1].mT
        return Factor(tuple(upper), tuple(lower), self.size)

    def definite(self) -> bool:
        """True only if this matrix, as the numbers at hand, is positive semidefinite (the whole batch). Nothing is
        assumed of the factorisation but that the rounding of products is what it must be.

        With S = (diag)^−½ and X = SAS, entries of X at most 1 in size (otherwise A is indefinite), let L be what
        Cholesky's method makes of X − εI, and R = X − εI − LLᵀ its residual. For any numbers L, LLᵀ ⪰ 0, so
        X ⪰ εI + R ⪰ (ε − ‖R‖)I, and ‖R‖₂ ≤ max row sum of |R|. L has blocks in one strip and the one before: an entry
        of LLᵀ is a sum of at most 2s products, with Σ|L_ik L_jk| ≤ ℓ², ℓ the longest row of L. In whatever order they
        are added, the computed residual errs by at most (2s+2)u(1 + ℓ²) per entry, and X by 4u. A row has at most 3s
        entries. So it is enough that the row sums of the computed |R| are below ε − 3s(2s+8)u(1 + ℓ²), all with a
        margin of one per cent, which takes second-order terms and the rounding of the row sums (below 4su of them). ε
        is four times that for ℓ = 1.

        As X is scaled, ε is to be compared with the smallest eigenvalue of X: 10⁻¹¹ for s = 58, 2·10⁻⁹ for s = 768.
        A block-wise backward error bound (Higham, ch. 10) would give the same order without R, but is not valid where
        triangular systems are solved with inverted blocks, as some libraries do.
        """
        size = self.strip
        diagonal = self.diagonal.diagonal(dim1=-2, dim2=-1)  # [..., m, s]
        own = self._cut(torch.ones(self.size, dtype=diagonal.dtype, device=diagonal.device)) > 0
        if not bool(((diagonal > 0) | ~own).all() and diagonal.isfinite().all()):
            return False
        scale = torch.where(own, diagonal, 1.0).rsqrt()
        scaled = replace(
            self,
            diagonal=scale[..., :, None] * self.diagonal * scale[..., None, :],
            below=scale[..., 1:, :, None] * self.below * scale[..., :-1, None, :],
        )
        largest = torch.cat((scaled.diagonal.flatten(), scaled.below.flatten())).abs().max()
        if not float(largest) <= 1 + 1e-9:
            return False
        rounding = 1.01 * 3 * size * (2 * size + 8) * UNIT
        epsilon = 8 * rounding  # four times what ℓ = 1 needs
        lowered = scaled.plus(torch.full((self.size,), -epsilon, dtype=diagonal.dtype, device=diagonal.device))
        factor = lowered.factor()
        if factor is None:
            return False
        sums, longest = factor.residual(lowered)
        return 1.01 * sums + rounding * (1 + longest) * 1.01 < epsilon

    def _cut(self, z: Tensor) -> Tensor:
        """[..., N] → [..., m, s], filled up with zeros."""
        filled = torch.nn.functional.pad(z, (0, self.strip * self.diagonal.shape[-3] - self.size))
        return filled.reshape(*z.shape[:-1], -1, self.strip)

    def _filled(self) -> Tensor:
        """The diagonal blocks, with ones in the diagonal where the last strip is filled up."""
        beyond = self.strip * self.diagonal.shape[-3] - self.size
        if not beyond:
            return self.diagonal
        out = self.diagonal.clone()
        out[..., -1, :, :].diagonal(dim1=-2, dim2=-1)[..., self.strip - beyond :] = 1
        return out


@dataclass(frozen=True, eq=False)
class Factor:
    """L, lower triangular with blocks in the strip of the row and the one before: diagonal m × [..., s, s], below."""

    diagonal: tuple[Tensor, ...]
    below: tuple[Tensor, ...]
    size: int

    def solve(self, z: Tensor) -> Tensor:
        """(LLᵀ)^{-1} z for z [..., N, q]."""
        count, s = len(self.diagonal), self.diagonal[0].shape[-1]
        parts = list(torch.split(torch.nn.functional.pad(z, (0, 0, 0, count * s - self.size)), s, -2))
        for i, block in enumerate(self.diagonal):
            known = parts[i] - self.below[i - 1] @ parts[i - 1] if i else parts[i]
            parts[i] = torch.linalg.solve_triangular(block, known, upper=False)
        for i in reversed(range(count)):
            known = parts[i] - self.below[i].mT @ parts[i + 1] if i + 1 < count else parts[i]
            parts[i] = torch.linalg.solve_triangular(self.diagonal[i].mT, known, upper=True)
        return torch.cat(parts, -2)[..., : self.size, :]

    def residual(self, of: Strips) -> tuple[float, float]:
        """The largest row sum of |of − LLᵀ|, and the largest squared length of a row of L."""
        filled, longest = of._filled(), 0.0
        sums: list[Tensor] = []
        for i, block in enumerate(self.diagonal):
            block = block.tril()
            product, length = block @ block.mT, block.square().sum(-1)
            if i:
                left = self.below[i - 1]
                product, length = product + left @ left.mT, length + left.square().sum(-1)
                across = (of.below[..., i - 1, :, :] - left @ self.diagonal[i - 1].tril().mT).abs()
                sums[-1] = sums[-1] + across.sum(-2)
            own = (filled[..., i, :, :] - product).abs().sum(-1)
            sums.append(own + across.sum(-1) if i else own)
            longest = max(longest, float(length.max()))
        return float(torch.stack(sums).max()), longest
