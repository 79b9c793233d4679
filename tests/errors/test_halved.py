"""Pictures that are transformed at twice the size at which the network sees them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

import warpcert as wc
from warpcert.certificates import read
from warpcert.classifier import storage
from warpcert.classifier.defence import Defence
from warpcert.errors.base import interpolation_error
from warpcert.errors.boxes import Boxes
from warpcert.errors.curve.bound import Curve
from warpcert.errors.curve.gram import excess
from warpcert.errors.curve.model import Model, model
from warpcert.errors.float32 import inference_slack
from warpcert.networks.config import ModelConfig
from warpcert.networks.weights import build, fused
from warpcert.threat import Threat
from warpcert.transforms import Preprocess, grid

torch.set_num_threads(1)
P = Preprocess("circle", 1, 1.0, 5, halved=True)


def made(p: Preprocess = P, interpolation: str = "bicubic-0.5", size: tuple[int, int] = (24, 20)) -> Model:
    defence = Defence.surface("rotation", 20, noise=0.1, interpolation=interpolation, preprocess=p)
    x = torch.rand(2, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return model(x, defence, Threat.of("rotation", 5), defence.draw_beta(3, torch.Generator().manual_seed(2)))


@pytest.mark.parametrize("p", [P, Preprocess(halved=True), Preprocess("rectangle", 2, 1.5, 7, halved=True)])
def test_reduction_then_blur(p: Preprocess) -> None:
    x = torch.rand(3, 24, 20, dtype=torch.float64)
    small = interpolate(x[None], (12, 10), mode="bilinear", antialias=True)[0]
    plain = Preprocess(p.vignette, p.margin, p.blur_sigma, p.blur_size)
    first = Preprocess(halved=True)(x)
    # at the frame, image libraries give more weight to what is left
    torch.testing.assert_close(first[..., 1:-1, 1:-1], small[..., 1:-1, 1:-1], atol=1e-6, rtol=0)
    torch.testing.assert_close(p(x), plain(first), atol=1e-14, rtol=0)
    torch.testing.assert_close((p.matrix(24, 20) @ x.flatten(1).T).T.reshape(p(x).shape), p(x), atol=1e-13, rtol=0)
    assert torch.equal(p.reads(24, 20).flatten(), (p.matrix(24, 20) != 0).any(0))
    assert torch.equal(p.returns(24, 20).flatten(), (p.matrix(24, 20) != 0).any(1))


def test_the_model_is_the_definition() -> None:
    m = made()
    z = torch.rand(3, 2, 480, dtype=torch.float64)
    which = torch.tensor([2, 0, 1])
    seen = m.blur(m.pull(which, z, torch.arange(3)))
    wanted = m.defence.view(z.reshape(3, 2, 24, 20), m.beta[which, None]).flatten(2)[..., m.returned]
    torch.testing.assert_close(seen, wanted, atol=1e-13, rtol=0)
    w, v = torch.rand(4, m.returned.numel()).double(), torch.rand(4, m.kept.numel()).double()
    torch.testing.assert_close((m.blur(v) * w).sum(), (v * m.adjoint(w)).sum(), atol=1e-10, rtol=0)


def test_excess_is_the_sum_over_each_column() -> None:
    m = made(Preprocess("circle", 0, 0.7, 3, halved=True), "bilinear", (44, 46))
    t = torch.zeros(*m.index.shape[:2], m.pixels, dtype=torch.float64).scatter_add_(2, m.index, m.weight)
    whole = m.defence.preprocess.matrix(*m.size)
    k = whole[m.returned][:, m.kept] @ t
    sums = (k.transpose(1, 2) @ k - whole.T @ whole).abs().sum(1)
    found = excess(m)
    assert found is not None
    assert bool((sums <= found).all()) and torch.allclose(sums, found, atol=1e-8)


def pictures(kind: str) -> Tensor:
    x = torch.rand(1, 24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return x if kind == "noise" else (x > 0.5).double()


@pytest.mark.parametrize(
    ("kind", "quantized", "large"),
    [("noise", True, True), ("board", True, True), ("noise", False, True), ("board", False, False)],
)
def test_no_attack_beats_the_bound(kind: str, quantized: bool, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(grid, "SMALL", 0)
    kernels = {"interpolation": "bicubic-0.5", "reference": "mitchell"}
    defence = Defence.surface("rotation", 30, noise=0.1, preprocess=P, **kernels)
    threat, x = Threat.of("rotation", 1, quantized=quantized), pictures(kind)
    beta = defence.draw_beta(2, torch.Generator().manual_seed(4))
    result = Curve(1.1, None if large else 1)(x, defence, threat, beta)
    gamma = torch.cat((threat.box.grid(1501), torch.zeros(1, 1, dtype=torch.float64)))
    for b in range(2):
        many = x.expand(len(gamma), -1, -1, -1)
        found = interpolation_error(many, defence, threat, beta[b].expand(len(gamma), 1), gamma)
        assert float(found.max()) <= float(result.values[b])
    assert result.converged or not large


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic-0.5"])
def test_float32_stays_within_the_slack(interpolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    defence = Defence.surface("rotation", 2, noise=0.1, interpolation=interpolation, preprocess=P)
    x = torch.rand(3, 24, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).round()
    theta = torch.rand(100, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(6)) * 4 - 2
    for small in (grid.SMALL, 0):
        monkeypatch.setattr(grid, "SMALL", small)
        error = (defence.view(x, theta) - defence.view(x.float(), theta)).flatten(1).norm(dim=1).max()
        assert float(error) <= inference_slack(defence, 24, 20, 3, 2.0)


def test_who_does_not_know_it_says_so() -> None:
    m = made(interpolation="bilinear")
    with pytest.raises(ValueError, match="half their size"):
        Boxes()(m.x, m.defence, m.threat, m.beta[:, None])
    with pytest.raises(ValueError, match="not halved"):
        brightness = Defence.surface("brightness", 0.1, noise=0.1, preprocess=P)
        Curve()(m.x, brightness, Threat.of("brightness", 0.1), m.beta[:, None])
    with pytest.raises(ValueError, match="even number"):
        P(torch.rand(1, 5, 6))


def test_a_classifier_keeps_it_and_others_keep_their_fingerprint(tmp_path: Path) -> None:
    network = fused(build(ModelConfig((1, 12, 12), 3, width=4, blocks=(0, 1)), 0))
    net = wc.Smoothed(network, 0.1, {"rotation": 10.0}, preprocess=P)
    plain = wc.Smoothed(network, 0.1, {"rotation": 10.0}, preprocess=Preprocess("circle", 1, 1.0, 5))
    assert "halved" not in plain.facts["preprocess"] and net.fingerprint != plain.fingerprint
    net.save(tmp_path / "net.safetensors")
    again = storage.load(tmp_path / "net.safetensors")
    assert again.fingerprint == net.fingerprint and again.preprocess == P
    x = torch.rand(1, 24, 24)
    certificate = net.certify(x, wc.Threat.rotation(2), method="dist-x", n=200, betas=60, alpha=0.3, time_limit=1)
    assert read(certificate.to_dict()) == certificate
    assert certificate.defence.preprocess == P  # type: ignore[attr-defined]
