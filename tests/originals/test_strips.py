"""Block-tridiagonal matrices against dense ones, and a test of definiteness that cannot be fooled."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from warpcert.originals.lagrangian.strips import Strips


def banded(size: int, band: int, seed: int, floor: float = 0.1) -> Tensor:
    """A random symmetric matrix with |i − j| ≤ band, its smallest eigenvalue `floor`."""
    m = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    m = (m + m.mT).tril(band).triu(-band)
    return m + (floor - float(torch.linalg.eigvalsh(m)[0])) * torch.eye(size, dtype=torch.float64)


def strips(m: Tensor, strip: int) -> Strips:
    row, column = m.nonzero().unbind(1)
    return Strips.of(row, column, m[row, column], len(m), strip)


@pytest.mark.parametrize(("size", "band", "strip"), [(1, 0, 1), (30, 4, 4), (37, 5, 8), (60, 59, 60), (64, 12, 16)])
def test_strips_are_their_dense_matrix(size: int, band: int, strip: int) -> None:
    for seed in range(5):
        m = banded(size, band, seed)
        s = strips(m, strip)
        z = torch.randn(size, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(s.dense(), m)
        assert torch.allclose(s.times(z), m @ z, atol=1e-12)
        assert torch.allclose(s.sums(), m.sum(1), atol=1e-12)
        assert torch.equal((s * 2 - s.abs()).plus(z[:, 0]).dense(), 2 * m - m.abs() + torch.diag(z[:, 0]))
        factor = s.factor()
        assert factor is not None
        assert torch.allclose(factor.solve(z), torch.linalg.solve(m, z), rtol=1e-9, atol=1e-9)
        assert s.definite()


def test_batches() -> None:
    parts = [strips(banded(30, 4, seed), 5) for seed in range(3)]
    batch = Strips(torch.stack([p.diagonal for p in parts]), torch.stack([p.below for p in parts]), 30)
    z = torch.randn(3, 30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    factor = batch.factor()
    assert factor is not None and batch.definite()
    for i, part in enumerate(parts):
        assert torch.equal(batch.dense()[i], part.dense())
        assert torch.allclose(batch.times(z)[i], part.times(z[i]))
        assert torch.allclose(factor.solve(z)[i], torch.linalg.solve(part.dense(), z[i]), atol=1e-9)
    batch.diagonal[1, 0, 0, 0] = -1
    assert not batch.definite()


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_slightly_indefinite_matrices_are_refused(scale: float) -> None:
    """Smallest eigenvalue ±10⁻⁹ of the norm, also where rows are scaled very differently."""
    for seed in range(20):
        plain = banded(60, 6, seed)
        size = float(torch.linalg.matrix_norm(plain, 2))
        wide = 10 ** torch.linspace(-3, 3, 60, dtype=torch.float64)
        for sign, answer in ((1, True), (-1, False)):
            m = scale * (plain + (sign * 1e-9 * size - 0.1) * torch.eye(60, dtype=torch.float64))
            assert strips(m, 8).definite() is answer
            assert strips(wide[:, None] * m * wide, 8).definite() is answer


def test_a_wrong_factorisation_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indefinite by one coupling only; with Cholesky's method replaced by one that drops it, the residual tells."""
    m = torch.eye(12, dtype=torch.float64)
    m[7, 3] = m[3, 7] = 1.5 / 1.6  # with the row below: 1 − ¾ − ¾ < 0
    m[7, 10] = m[10, 7] = 1.5 / 1.6
    s = strips(m, 4)
    assert float(torch.linalg.eigvalsh(m)[0]) < 0 and not s.definite()
    honest = Strips.factor
    monkeypatch.setattr(Strips, "factor", lambda self: honest(Strips(self.diagonal, 0 * self.below, self.size)))
    assert s.factor() is not None and not s.definite()
    assert strips(torch.eye(12, dtype=torch.float64), 4).definite()


def test_entries_out_of_reach_are_refused() -> None:
    with pytest.raises(ValueError, match="apart"):
        strips(banded(30, 9, 0), 8)
    assert not Strips(torch.full((2, 3, 3), torch.nan).double(), torch.zeros(1, 3, 3).double(), 6).definite()
