"""λ by strips: against dense matrices, above the truth, and not without the couplings."""

from __future__ import annotations

import pytest
import torch
from test_lagrangian import at, defence, picture

from warpcert.classifier.defence import Defence
from warpcert.originals.interval import interval_inverse
from warpcert.originals.lagrangian import local, spectral
from warpcert.originals.lagrangian.cell import Cell, cells
from warpcert.originals.lagrangian.inverse import Lagrangian
from warpcert.originals.lagrangian.lens import lens
from warpcert.originals.lagrangian.local import Local, dominates, seen_squared
from warpcert.originals.lagrangian.metric import Metric, shared_corners, tuned
from warpcert.originals.lagrangian.spectral import proved_lambda
from warpcert.originals.lagrangian.strips import Strips
from warpcert.originals.lagrangian.view import view
from warpcert.originals.protocol import Originals
from warpcert.threat import Threat

SIDE = 20


def a_case(name: str, side: int = SIDE, width: float = 0.002) -> tuple[Cell, Metric, Defence, torch.Tensor, Originals]:
    g = torch.Generator().manual_seed(1)
    threat = Threat.of(name, 10 if name == "rotation" else 1)
    d, x = defence(name), picture("smooth", (1, side, side), g)
    gamma = torch.full((1, threat.box.dim), 0.11, dtype=torch.float64)
    x_attacked = threat.attacked(x, gamma)[0]
    found = interval_inverse(x_attacked, threat, gamma - width / 3, gamma + width, refinements=2)
    originals = Originals(x_attacked, threat, gamma - width / 3, gamma + width, found.low, found.high, 1, 0.0)
    c = cells(originals).pick(0)
    beta = 0.3 * torch.rand(4, c.dim, dtype=torch.float64, generator=g)
    return c, tuned([c], view(c, x.shape, d, beta), 4), d, beta, originals


@pytest.mark.parametrize("name", ["rotation", "translation"])
def test_strips_of_a_real_cell_are_the_dense_matrices(name: str) -> None:
    c, metric, d, beta, _ = a_case(name)
    a = c.dense()
    z = torch.randn(3, c.pixels, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(c.apply(z), z @ a.mT, atol=1e-12) and torch.allclose(c.adjoint(z), z @ a, atol=1e-12)
    h = torch.diag(metric.d1) + a[0].mT @ (metric.d2[:, None] * a[0])
    center = metric.center(c)
    factor = center.factor()
    assert factor is not None and center.strip < c.pixels / 4
    assert torch.allclose(center.dense(), h, rtol=1e-12, atol=1e-12 * float(h.max()))
    assert torch.allclose(factor.solve(z.mT), torch.linalg.solve(h, z.mT), rtol=1e-9, atol=1e-9)
    narrow, wide = (metric.lowered([c], shared_corners([c])[0], strip) for strip in (0, 150))
    assert narrow.strip < wide.strip and torch.allclose(narrow.dense(), wide.dense(), rtol=1e-12, atol=1e-9)
    v = view(c, torch.Size((1, SIDE, SIDE)), d, beta)
    y = torch.randn(4, v.seen, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(v.behind(y), v.dense()[:, 0].mT @ y, atol=1e-12)
    assert torch.allclose(v.ahead(v.behind(y)), v.dense()[:, 0] @ v.dense()[:, 0].mT @ y, atol=1e-12)


@pytest.mark.parametrize("name", ["rotation", "translation"])
@pytest.mark.parametrize("side", [7, SIDE])
def test_what_is_seen_is_read_off_by_combs(name: str, side: int) -> None:
    d = defence(name)
    eye = lens(d, side, side, torch.device("cpu"))
    for value in (0.0, 0.1, 0.8, -2.0):
        theta = torch.full((1, 1 if name == "rotation" else 2), value, dtype=torch.float64)
        index, weight = local.corner_taps(eye.transform, theta, side, side, eye.kernel)
        t = weight.new_zeros(1, side * side, side * side).scatter_add_(2, index, weight)[0, eye.mask]
        truth, seen = t.mT @ eye.blur @ eye.blur @ t, seen_squared(eye, theta[0])
        assert torch.allclose(seen.dense(), truth, atol=1e-9)
        assert float(torch.linalg.eigvalsh(seen.dense() - truth)[0]) > 0


@pytest.mark.parametrize("name", ["rotation", "translation"])
def test_lambda_by_strips_is_above_the_truth_and_near_the_dense_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    c, metric, d, beta, _ = a_case(name)
    eye = lens(d, SIDE, SIDE, beta.device)
    dense = proved_lambda([c], metric, eye, beta)[:, 0]
    monkeypatch.setattr(spectral, "DENSE", 0)
    proved = proved_lambda([c], metric, eye, beta)[:, 0]
    seen, a = view(c, torch.Size((1, SIDE, SIDE)), d, beta).dense(), c.dense()
    largest = torch.zeros_like(proved)
    for t in torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None].expand(-1, c.dim):
        there = at(a, t)
        h = torch.diag(metric.d1) + there.mT @ (metric.d2[:, None] * there)
        for b in range(len(beta)):
            s = at(seen[b], t)
            value = torch.linalg.eigvalsh(s @ torch.linalg.solve(h, s.mT))[-1]
            largest[b] = torch.maximum(largest[b], value)
    assert bool((largest <= proved).all()) and bool((proved <= 1.03 * dense).all())
    assert bool((proved <= 1.2 * largest).all())


@pytest.mark.parametrize("plain", [False, True])
def test_a_lambda_below_the_truth_is_refused(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a corner, by eigenvalues: 10⁻⁶ less than the truth is refused and a little more proved. In a plain metric,
    where what is seen best is smooth, too little would be proved if the couplings of M between strips were left out.
    """
    c, metric, d, beta, _ = a_case("rotation", 32)
    if plain:
        metric = Metric(torch.ones_like(metric.d1), torch.full_like(metric.d2, 1e-9))
    eye = lens(d, 32, 32, beta.device)
    place = shared_corners([c])[0]
    proof = Local.of([c], metric, eye, [place])
    assert proof is not None
    theta = beta[0] + c.low
    seen = seen_squared(eye, theta)
    h = metric.lowered([c], place, seen.strip)
    low = torch.linalg.cholesky(h.dense())
    half = torch.linalg.solve_triangular(low, seen.dense(), upper=False)
    truth = float(torch.linalg.eigvalsh(torch.linalg.solve_triangular(low, half.mT, upper=False))[-1])
    assert not dominates(h, seen, truth * (1 - 1e-6)) and dominates(h, seen, truth * (1 + 1e-3))
    assert truth <= float(proof.roots(theta[None], 1e-3)) ** 2 <= 1.003 * truth
    if not plain:
        return
    monkeypatch.setattr(local, "seen_squared", lambda *a: Strips(seen.diagonal, 0 * seen.below, seen.size))
    assert float(proof.roots(theta[None], 1e-3)) ** 2 < truth


@pytest.mark.parametrize("name", ["rotation", "translation"])
def test_weights_are_dominated(name: str) -> None:
    c, metric, d, beta, _ = a_case(name, 9)
    proof = Local.of([c], metric, lens(d, 9, 9, beta.device), shared_corners([c]))
    assert proof is not None
    weight = torch.rand(81, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight[::3] = 0
    for h, sigma in zip(proof.lowered, proof.weighed(weight).tolist(), strict=True):
        root = weight.sqrt()
        truth = torch.linalg.eigvalsh(root[:, None] * torch.linalg.inv(h.dense()) * root)[-1]
        assert float(truth) <= sigma <= 1.05 * float(truth)


@pytest.mark.parametrize("name", ["rotation", "translation"])
def test_bounds_by_strips_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """U(β) of the cell that holds γ is above the truth, and near that of the dense code."""
    _, _, d, beta, originals = a_case(name)
    x = picture("smooth", (1, SIDE, SIDE), torch.Generator().manual_seed(1))
    dense = Lagrangian(steps=4).errors(originals, d, beta)[:, 0]
    monkeypatch.setattr(spectral, "DENSE", 0)
    bound = Lagrangian(steps=4).errors(originals, d, beta)[:, 0]
    gamma = torch.full((1, beta.shape[1]), 0.11, dtype=torch.float64)
    moved = d.view(originals.x_attacked.double(), beta) - d.view(x, beta + gamma)
    assert bool((moved.flatten(1).norm(dim=1) <= bound).all()) and bool((bound <= 1.02 * dense).all())
