"""What passes the defender's eye: low-rank factors, spreads, norms and inverses bound from above, and not by much."""

from __future__ import annotations

import pytest
import torch

from warpcert.classifier.defence import Defence
from warpcert.originals.chords import corner_taps
from warpcert.originals.lagrangian import spectral as inverse_lambda
from warpcert.originals.lagrangian.cell import Cell, cells
from warpcert.originals.lagrangian.lens import Lens, lens, norm
from warpcert.originals.lagrangian.metric import Metric, tuned
from warpcert.originals.lagrangian.spectral import inverse_above, proved_lambda
from warpcert.originals.lagrangian.view import view
from warpcert.originals.protocol import Originals
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

CPU = torch.device("cpu")


def eye_of(name: str, kernel: str = "bicubic", sigma: float = 1.0, size: int = 9) -> tuple[Defence, Lens]:
    vignette = "circle" if name == "rotation" else "rectangle"
    d = Defence.surface(name, 0.5, noise=0.1, interpolation=kernel, preprocess=Preprocess(vignette, 1, sigma, 5))
    return d, lens(d, size, size, CPU)


def matrices(eye: Lens, theta: torch.Tensor) -> torch.Tensor:
    """T_θ [n,v,N], rows inside the vignette."""
    index, weight = corner_taps(eye.transform, theta, eye.height, eye.width, eye.kernel)
    out = weight.new_zeros(*index.shape[:2], eye.height * eye.width).scatter_add_(2, index, weight)
    return out[:, eye.mask]


def test_norms_are_above_and_near() -> None:
    g = torch.Generator().manual_seed(0)
    m = torch.randn(5, 20, 20, dtype=torch.float64, generator=g)
    for scale in (1e-9, 1.0, 1e9):
        truth = torch.linalg.matrix_norm(scale * m, 2)
        assert bool((norm(scale * m) >= truth).all()) and bool((norm(scale * m) <= 1.05 * truth).all())
    one = torch.diag(torch.tensor([3.0, 0.1, 0.1], dtype=torch.float64))
    assert 3 <= float(norm(one)) <= 3 + 1e-6
    assert float(norm(torch.zeros(2, 2, dtype=torch.float64))) < 1e-100


def test_the_factor_and_its_tail_bound_the_blur() -> None:
    for sigma in (0.0, 1.0, 3.0):
        _, eye = eye_of("rotation", sigma=sigma)
        for rank in (5, 20, len(eye.blur)):
            excess = eye.blur @ eye.blur - eye.factor[:rank].mT @ eye.factor[:rank]
            largest = float(torch.linalg.eigvalsh(excess)[-1])
            assert largest <= eye.tail(rank) <= 1.3 * abs(largest) + 2e-12
            if rank < len(eye.dims):
                assert abs(float(eye.dims[rank]) - largest) < 1e-9


@pytest.mark.parametrize("name", ["rotation", "translation"])
@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
def test_spreads_bound_sums_of_matrices(name: str, kernel: str) -> None:
    """R = T_θ − ½(T_θ₋ + T_θ₊) and T_θ itself, with the vectors that make ‖Re‖² / Σ Δe² largest."""
    _, eye = eye_of(name, kernel)
    g = torch.Generator().manual_seed(1)
    theta = 2 * torch.rand(6, eye.transform.dim, dtype=torch.float64, generator=g) - 1
    step = 0.02
    for coefficient, terms in (((1.0,), (0.0,)), ((1.0, -0.5, -0.5), (0.0, -step, step))):
        points = torch.stack([theta + t for t in terms], 1)
        c = torch.tensor(coefficient, dtype=torch.float64).expand(6, -1)
        spread = eye.spread(points, c)
        r = sum(k * matrices(eye, theta + t) for k, t in zip(coefficient, terms, strict=True))
        assert isinstance(r, torch.Tensor)
        assert bool((spread[(r.abs().sum((0, 1)) > 0)] > 0).all())
        scaled = r / spread.clamp_min(1e-300).sqrt()
        largest = torch.linalg.matrix_norm(scaled, 2).square()
        assert 0.02 < float(largest.max()) <= 1
        direct = (r.abs() * r.abs().sum(2, keepdim=True)).sum(1).amax(0)
        if name == "rotation":
            assert torch.allclose(spread, direct, rtol=1e-6, atol=1e-11)
        else:  # one number for all pixels, as sharp as the largest
            assert bool((spread >= direct).all())
            assert abs(float(spread.max()) - float(direct.max())) < 1e-6 * float(direct.max()) + 1e-11


def test_inverses_are_above() -> None:
    g = torch.Generator().manual_seed(2)
    a = torch.randn(30, 30, dtype=torch.float64, generator=g)
    h = a @ a.mT + 1e-4 * torch.eye(30, dtype=torch.float64)
    scale = torch.logspace(-3, 3, 30, dtype=torch.float64)
    h = scale[:, None] * h * scale
    above = inverse_above(h)
    assert above is not None
    exact = torch.linalg.inv(scale[:, None] ** -1 * h / scale)
    difference = scale[:, None] * above * scale - exact
    assert float(torch.linalg.eigvalsh(difference)[0]) >= -1e-9 * float(exact.norm())
    assert float(difference.norm()) <= 1e-6 * float(exact.norm())
    low = torch.linalg.eigvalsh(a @ a.mT)[0]
    assert inverse_above(a @ a.mT - (low + 1e-6) * torch.eye(30, dtype=torch.float64)) is None
    assert inverse_above(-h) is None


def test_weights_of_pixels_are_bounded_in_the_metric() -> None:
    """σ ≥ ‖Δ^½ G Δ^½‖₂, with equality for a diagonal G; pixels without weight do not matter."""
    g = torch.Generator().manual_seed(6)
    a = torch.randn(3, 12, 12, dtype=torch.float64, generator=g)
    above, weight = a @ a.mT, torch.rand(12, dtype=torch.float64, generator=g)
    weight[3] = 0.0
    half = weight.sqrt()
    truth = torch.linalg.eigvalsh(half[:, None] * above * half)[:, -1]
    found = inverse_lambda._weighed(above, weight)
    assert bool((truth <= found).all()) and bool((found <= 3 * truth).all())
    plain = torch.diag(torch.arange(1.0, 13.0, dtype=torch.float64))[None]
    largest = float((weight * torch.arange(1.0, 13.0, dtype=torch.float64)).max())
    assert largest <= float(inverse_lambda._weighed(plain, weight)) <= 1.001 * largest


def a_cell(name: str, threat: Threat) -> Cell:
    """A cell next to γ = 0.1 of a noisy picture, with boxes [0,1]."""
    x = torch.rand(1, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    low = torch.full((1, threat.box.dim), 0.1, dtype=torch.float64)
    boxes = torch.zeros_like(x)[None], torch.ones_like(x)[None]
    originals = Originals(threat.attacked(x, low)[0], threat, low, low + 0.003, *boxes, 1, 0.0)
    return cells(originals).pick(0)


def true_lambda(c: Cell, metric: Metric, d: Defence, beta: torch.Tensor) -> torch.Tensor:
    """The largest λ_max(C_t H_t⁻¹ C_tᵀ) [b] at some t."""
    a, seen = c.dense(), view(c, torch.Size((1, 9, 9)), d, beta).dense()
    largest = beta.new_zeros(len(beta))
    for sign in (0.0, 1.0, -1.0):
        t = torch.full((c.dim,), sign, dtype=torch.float64)
        at = a[0] + torch.einsum("a,anm->nm", t, a[1:])
        s = seen[:, 0] + torch.einsum("a,bavn->bvn", t, seen[:, 1:])
        h = torch.diag(metric.d1) + at.mT @ (metric.d2[:, None] * at)
        largest = torch.maximum(largest, torch.linalg.eigvalsh(s @ torch.linalg.solve(h, s.mT))[:, -1])
    return largest


@pytest.mark.parametrize("name", ["rotation", "translation"])
@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
@pytest.mark.parametrize("dense", [81, 0])
def test_lambda_by_nodes_holds(name: str, kernel: str, dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many β between few nodes: λ is above the truth for each, and not far if the nodes are near, in strips too."""
    monkeypatch.setattr(inverse_lambda, "DENSE", dense)
    d, eye = eye_of(name, kernel)
    c = a_cell(name, Threat.of(name, 20 if name == "rotation" else 1))
    beta = 0.02 * torch.rand(60, c.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    metric = tuned([c], view(c, torch.Size((1, 9, 9)), d, beta[:8]), 3)
    truth = true_lambda(c, metric, d, beta)
    for stride in (0.005, 0.05, 0.4):
        monkeypatch.setattr(inverse_lambda, "_stride", lambda *_: stride)  # noqa: B023
        assert len(inverse_lambda._grid((beta + c.low)[None], stride)[0]) < 60
        for loss in (0.01, 0.3):
            proved = proved_lambda([c], metric, eye, beta, loss)[:, 0]
            assert bool((truth <= proved).all()) and bool(proved.isfinite().all())
            if stride < 0.01 and loss < 0.1:
                assert bool((proved <= 1.2 * truth).all())


def test_lambda_needs_what_lies_between_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without blur T_θ is the identity for a shift by one pixel, and dims details at the nodes around it."""
    d = Defence.surface("translation", 0.5, noise=0.1, interpolation="bilinear")
    c = a_cell("translation", Threat.of("translation", 1))
    beta = 0.9 - 1e-4 * torch.rand(60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    one = torch.ones(81, dtype=torch.float64)
    metric = Metric(one, 1e-9 * one)
    monkeypatch.setattr(inverse_lambda, "_stride", lambda *_: 2 / 3)
    truth, eye = true_lambda(c, metric, d, beta), lens(d, 9, 9, CPU)
    assert bool((truth <= proved_lambda([c], metric, eye, beta)[:, 0]).all())
    monkeypatch.setattr(inverse_lambda, "_weighed", lambda above, _: above.new_full((len(above),), 1e-15))
    assert bool((proved_lambda([c], metric, eye, beta)[:, 0] < truth).all())
