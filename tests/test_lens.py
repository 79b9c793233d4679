"""What passes the defender's eye: low-rank factors, spreads, norms and inverses bound from above, and not by much."""

from __future__ import annotations

import math

import pytest
import torch

from warpcert.bounds import inverse_lambda
from warpcert.bounds.chords import corner_taps
from warpcert.bounds.inverse_cell import cells, view
from warpcert.bounds.inverse_lambda import inverse_above, proved_lambda
from warpcert.bounds.inverse_metric import tuned
from warpcert.bounds.lens import Lens, lens, norm
from warpcert.bounds.originals import Originals
from warpcert.threat import Defence, Threat
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
        excess = eye.blur @ eye.blur - eye.factor.mT @ eye.factor
        largest = float(torch.linalg.eigvalsh(excess)[-1])
        assert largest <= eye.tail <= 1.05 * abs(largest) + 2e-12
        assert len(eye.factor) < len(eye.blur) or sigma < 3


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
        assert torch.allclose(spread, direct, rtol=1e-6, atol=1e-11)


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


@pytest.mark.parametrize("name", ["rotation", "translation"])
@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
def test_lambda_by_nodes_holds(name: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many β between few nodes: λ_max(C_t H_t⁻¹ C_tᵀ) ≤ λ for each, and it is little more than with θ's own nodes."""
    d, eye = eye_of(name, kernel)
    g = torch.Generator().manual_seed(3)
    threat = Threat.surface(name, 20 if name == "rotation" else 1)
    x = torch.rand(1, 9, 9, dtype=torch.float64, generator=g)
    low = torch.full((1, threat.box.dim), 0.1, dtype=torch.float64)
    originals = Originals(low, low + 0.003, torch.zeros_like(x)[None], torch.ones_like(x)[None], 1, 0.0)
    c = cells(threat.attacked(x, low)[0], originals, threat).pick(0)
    beta = 0.02 * torch.rand(60, threat.box.dim, dtype=torch.float64, generator=g)
    v = view(c, x.shape, d, beta)
    metric = tuned([c], v, 3)
    proved = proved_lambda([c], metric, [eye], beta)[:, 0]
    nodes = inverse_lambda._grid((beta + low)[None], eye.stride)[0]
    assert len(nodes) < 60 and bool(proved.isfinite().all())
    a, seen = c.dense(), v.dense()
    largest = torch.zeros_like(proved)
    for t in (torch.zeros(c.dim), torch.ones(c.dim), -torch.ones(c.dim)):
        t = t.double()
        at = a[0] + torch.einsum("a,anm->nm", t, a[1:])
        s = seen[:, 0] + torch.einsum("a,bavn->bvn", t, seen[:, 1:])
        h = torch.diag(metric.d1) + at.mT @ (metric.d2[:, None] * at)
        value = torch.linalg.eigvalsh(s @ torch.linalg.solve(h, s.mT))[:, -1]
        largest = torch.maximum(largest, value)
    assert bool((largest <= proved).all())
    monkeypatch.setattr(inverse_lambda, "_weighed", lambda above, diagonal: above.new_zeros(len(above)))
    bare = proved_lambda([c], metric, [eye], beta)[:, 0]  # without what lies between the nodes
    assert bool((bare < proved).all()) and bool((bare / largest - 1 < 0.2).all())
    assert math.isfinite(float(bare.max()))


def test_a_finer_lens_is_taken_where_the_tail_costs_much() -> None:
    d, fine = eye_of("rotation", "bicubic")
    coarse = lens(d, fine.height, fine.width, CPU, 0.3)
    g = torch.Generator().manual_seed(4)
    threat, x = Threat.surface("rotation", 20), torch.rand(1, 9, 9, dtype=torch.float64, generator=g)
    low = torch.full((1, 1), 0.1, dtype=torch.float64)
    originals = Originals(low, low + 0.003, torch.zeros_like(x)[None], torch.ones_like(x)[None], 1, 0.0)
    c = cells(threat.attacked(x, low)[0], originals, threat).pick(0)
    beta = 0.02 * torch.rand(5, 1, dtype=torch.float64, generator=g)
    metric = tuned([c], view(c, x.shape, d, beta), 3)
    loose, sharp, both = (proved_lambda([c], metric, e, beta) for e in ([coarse], [fine], [coarse, fine]))
    assert bool((sharp < 0.9 * loose).all()) and torch.equal(both, sharp)
