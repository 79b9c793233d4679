"""What P T_β lets through of a known picture: the bound of all β at once contains the truth, and needs its parts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.base import interpolation_error
from warpcert.errors.curve.bound import Curve
from warpcert.errors.curve.gram import excess, passed
from warpcert.errors.curve.model import Model, model
from warpcert.errors.curve.rounding import handed
from warpcert.errors.float32 import inference_slack
from warpcert.threat import Threat
from warpcert.transforms import Preprocess, grid

torch.set_num_threads(1)
CASES = [
    ("rotation", "bicubic-0.5", (31, 33), Preprocess("circle", 1, 1.0, 3)),  # several columns are probed at once
    ("rotation", "bilinear", (24, 21), Preprocess("none", 0, 1.5, 7)),
    ("scaling", "bicubic", (25, 20), Preprocess("rectangle", 2, 0.8, 3)),
    ("shear", "bilinear", (16, 23), Preprocess("circle", 0)),
]


def made(name: str, interpolation: str, size: tuple[int, int], p: Preprocess, quantized: bool = True) -> Model:
    defence = Defence.surface(name, 20, noise=0.1, interpolation=interpolation, preprocess=p)
    threat = Threat.of(name, 20, quantized=quantized)
    x = torch.rand(2, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    return model(x, defence, threat, defence.draw_beta(3, torch.Generator().manual_seed(1)))


def dense(m: Model) -> tuple[Tensor, Tensor]:
    """K = P T_β for every β [B, v, n], and P² [n, n]."""
    t = torch.zeros(*m.index.shape[:2], m.pixels, dtype=torch.float64).scatter_add_(2, m.index, m.weight)
    whole = m.defence.preprocess.matrix(*m.size)
    return whole[m.kept][:, m.kept] @ t, whole @ whole


def known(m: Model) -> Tensor:
    found = excess(m)
    assert found is not None
    return found


@pytest.mark.parametrize("case", CASES)
def test_excess_is_the_sum_over_each_column(case: tuple[str, str, tuple[int, int], Preprocess]) -> None:
    m = made(*case)
    k, still = dense(m)
    sums = (k.transpose(1, 2) @ k - still).abs().sum(1)
    assert bool((sums <= known(m)).all())
    assert torch.allclose(sums, known(m), atol=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_no_picture_passes_more(case: tuple[str, str, tuple[int, int], Preprocess]) -> None:
    m = made(*case)
    (k, still), over = dense(m), known(m)
    for b in range(3):
        both = k[b].T @ k[b]
        worst = torch.linalg.eigh(both - still - over[b].diag()).eigenvectors[:, -1]  # where the bound is tightest
        loud = torch.linalg.eigh(both).eigenvectors[:, -1]
        size = torch.rand(m.pixels, dtype=torch.float64) * (torch.rand(m.pixels) < 0.3)
        for r in (worst, loud, torch.randn(m.pixels, dtype=torch.float64)):
            assert float((k[b] @ r).norm()) <= float(passed(m, r[None], over)[b])
        signs = torch.randn(m.pixels, dtype=torch.float64).sign()
        for _ in range(30):  # ascent: the signs that make K(± size) longest
            assert float((k[b] @ (signs * size)).norm()) <= float(passed(m, size[None], over)[b])
            signs = (both @ (signs * size)).sign()


def test_the_excess_is_needed() -> None:
    m = made(*CASES[1])
    assert excess(m, 0.0) is None  # too late
    (k, still), over = dense(m), known(m)
    r = torch.linalg.eigh(k[0].T @ k[0] - still).eigenvectors[:, -1]
    size = float((k[0] @ r).norm())
    assert size <= float(passed(m, r[None], over)[0])
    assert size > float(passed(m, r[None], 0.1 * over)[0])


@pytest.mark.parametrize("quantized", [True, False])
def test_what_is_handed_over_passes_no_more(quantized: bool) -> None:
    m = made(*CASES[0], quantized=quantized)
    low = torch.tensor([-0.2, 0.0, 0.13], dtype=torch.float64)
    high, k = low + 0.004, dense(m)[0]
    table = handed(m, low, high, 4, 3.0, known(m))
    assert table.seen_off is not None and table.seen_spread is not None
    for c in range(3):
        ends = m.attack(torch.stack((low[c], high[c])))
        for s in range(4):
            share = (s + torch.linspace(0, 1, 33, dtype=torch.float64)) / 4
            given = m.quantize(m.attack(torch.lerp(low[c], high[c], share)))
            away = given - torch.lerp(ends[:1], ends[1:], share[:, None, None])
            size = torch.einsum("bvn,gcn->gbcv", k, away).flatten(2).norm(dim=2)  # [33, B]
            assert bool((size <= table.seen_off[c, s] + 1e-12).all())
            most = torch.einsum("bvn,cn->bcv", k, table.radius[c, s]).flatten(1).norm(dim=1)
            assert bool((most <= table.seen_spread[c, s] + 1e-12).all())
    which = torch.tensor([0, 1, 2])
    norm = torch.full((3,), 2.0, dtype=torch.float64)
    assert bool((table.noise(norm, which, which) <= 2 * table.off).all())


@pytest.mark.parametrize("quantized", [True, False])
def test_large_pictures_are_bounded_more_closely(monkeypatch: pytest.MonkeyPatch, quantized: bool) -> None:
    """As for large pictures, at a size that can be attacked densely: bounds that took thousands of nodes take a few."""
    x = torch.rand(1, 20, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    defence = Defence.surface(
        "rotation", 30, noise=0.1, interpolation="bicubic-0.5", preprocess=Preprocess("circle", 1, 2.0, 9)
    )
    threat = Threat.of("rotation", 0.3, quantized=quantized)
    beta = defence.draw_beta(2, torch.Generator().manual_seed(3))
    monkeypatch.setattr(grid, "SMALL", 0)
    sharp = Curve(1.2)(x, defence, threat, beta)
    assert sharp.converged and sharp.cells < 300
    gamma = threat.box.grid(2001)
    for b in range(2):
        found = interpolation_error(x.expand(2001, -1, -1, -1), defence, threat, beta[b].expand(2001, 1), gamma)
        assert float(found.max()) <= float(sharp.values[b])


@pytest.mark.parametrize("name", ["rotation", "scaling", "shear"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "bicubic-0.5", "mitchell"])
def test_the_arithmetic_of_large_pictures(name: str, interpolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source points in float64, values in float32: within the slack, which is far smaller without grid_sample."""
    defence = Defence.surface(name, 2, noise=0.1, interpolation=interpolation, preprocess=Preprocess("circle", 1, 1.5))
    x = torch.rand(3, 70, 66, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).round()
    theta = (torch.rand(60, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(6)) * 2 - 1) * 0.5
    error = (defence.view(x, theta) - defence.view(x.float(), theta)).flatten(1).norm(dim=1).max()
    slack = inference_slack(defence, 70, 66, 3, 0.5)
    assert float(error) <= slack
    monkeypatch.setattr(grid, "SMALL", 70 * 66)
    before = inference_slack(defence, 70, 66, 3, 0.5)
    assert slack < before / (8 if interpolation in ("bicubic-0.5", "mitchell") else 1)
