"""Shifts, row by row and column by column: the same matrices, norms and spreads as by the pixels that are read."""

from __future__ import annotations

import pytest
import torch
from test_lagrangian import a_cell, defence, one_cell, true_error

from warpcert.classifier.defence import Defence
from warpcert.originals.chords import corner_taps, corners
from warpcert.originals.lagrangian.cell import cells
from warpcert.originals.lagrangian.inverse import Lagrangian
from warpcert.originals.lagrangian.lens import lens
from warpcert.originals.lagrangian.product import product_squares
from warpcert.originals.lagrangian.spectral import _grid, _squares
from warpcert.originals.lagrangian.view import Gathered, Shifted, view
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

CPU = torch.device("cpu")


def shifts(vignette: str, kernel: str = "bicubic") -> Defence:
    return Defence.surface(
        "translation", 0.5, noise=0.1, interpolation=kernel, preprocess=Preprocess(vignette, 1, 1.0, 5)
    )


@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
@pytest.mark.parametrize("vignette", ["rectangle", "circle", "none"])
def test_rows_and_columns_are_what_is_read(vignette: str, kernel: str) -> None:
    """On pictures that are not square, with shifts that differ by axis and reach beyond the frame."""
    x, _, _, originals = a_cell(2, "translation", 0.07, 8)
    d, c = shifts(vignette, kernel), cells(originals).pick(0)
    beta = torch.cat((d.draw_beta(4, torch.Generator().manual_seed(1)), torch.tensor([[0.0, 0.0], [7.3, -6.1]])))
    made = view(c, x.shape, d, beta)
    assert isinstance(made, Shifted)
    eye = made.eye
    taps = corner_taps(eye.transform, corners(c.low + beta, c.high + beta), 8, 8, eye.kernel)
    index, weight = (t[:, :, eye.mask] for t in taps)
    other = Gathered(eye=eye, rest=made.rest, mixed=made.mixed, index=index, weight=weight, dim=2)
    g = torch.Generator().manual_seed(3)
    image = torch.rand(3, 64, generator=g, dtype=torch.float64)
    seen = torch.randn(6, 3, made.seen, generator=g, dtype=torch.float64)
    for name, z in (("apply", image), ("spread", image), ("adjoint", seen)):
        torch.testing.assert_close(getattr(made, name)(z), getattr(other, name)(z), rtol=0, atol=1e-13)
    for name, z in (("ahead", image.T.expand(6, -1, -1)), ("behind", seen.mT)):
        torch.testing.assert_close(getattr(made, name)(z), getattr(other, name)(z), rtol=0, atol=1e-13)
    torch.testing.assert_close(made.dense(), other.dense(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", [(9, 9), (7, 10)])
@pytest.mark.parametrize("rank", [3, 17, 49])
def test_norms_axis_by_axis(shape: tuple[int, int], rank: int) -> None:
    """‖KGKᵀ‖ as by dense matrices, for nodes that share rows and columns and for some that do not."""
    eye = lens(shifts("rectangle"), *shape, CPU)
    assert eye.parts is not None
    g = torch.Generator().manual_seed(rank)
    size = shape[0] * shape[1]
    a = torch.randn(2, size, size, generator=g, dtype=torch.float64)
    above = a @ a.mT + 0.01 * torch.eye(size, dtype=torch.float64)
    rank = min(rank, len(eye.factor))
    theta = 3 * torch.rand(1, 5, 2, generator=g, dtype=torch.float64) - 1.5
    for nodes in (_grid(theta, 0.4)[0], theta[0]):
        squares, sums = product_squares(eye, nodes, above, rank)
        dense, other = _squares(eye, nodes, above, rank, torch.ones(size, dtype=torch.bool))
        torch.testing.assert_close(squares, dense, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(sums, other, rtol=1e-10, atol=1e-10)
        k = eye.passed(nodes, rank)
        for c in range(2):
            truth = torch.linalg.matrix_norm(k @ above[c] @ k.mT, 2)
            assert bool((truth <= squares[c]).all())


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 9, 1), (2, 3, 2)])
def test_pictures_that_are_shifted_out_of_sight(shape: tuple[int, int, int]) -> None:
    """Nothing of x is seen at β + γ: the error is all that is seen of x'."""
    threat, d = Threat.of("translation", 1), Defence.surface("translation", 1, noise=0.1, interpolation="bilinear")
    x, gamma = torch.full(shape, 0.6, dtype=torch.float64), torch.tensor([[0.3, 0.2]], dtype=torch.float64)
    x_attacked, originals = one_cell(x, threat, gamma, 0.01, 0.4)
    beta = torch.tensor([[40.0, -40.0], [0.1, 0.2]], dtype=torch.float64)
    for some in (beta[:1], beta):
        bound = Lagrangian(steps=2).errors(originals, d, some)[:, 0]
        assert bool((true_error(x, x_attacked, d, some, gamma) <= bound).all()) and float(bound[0]) < 1e-3


def test_circles_are_no_products() -> None:
    assert lens(shifts("circle"), 9, 9, CPU).parts is None
    assert lens(defence("rotation"), 9, 9, CPU).parts is None


def test_the_grid_holds_its_points() -> None:
    """Σ w_i θ_i = θ with the weights of the nodes, each node once."""
    theta = 3 * torch.rand(3, 40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1
    nodes, which, weight = _grid(theta, 0.3)
    assert len(torch.unique((nodes / 0.3).round(), dim=0)) == len(nodes)
    torch.testing.assert_close((weight[..., None] * nodes[which]).sum(2), theta, rtol=0, atol=1e-12)
    assert bool((weight >= 0).all()) and bool((nodes[which] - theta[:, :, None]).abs().max() <= 0.3 + 1e-12)
