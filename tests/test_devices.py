"""No tensor is made on the CPU and mixed with those of another device: each method, on a device that only pretends."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pretended import marked, moved, pretended
from torch import Tensor, nn

import warpcert as wc
from warpcert import attacks
from warpcert.certificates import Certificate, read
from warpcert.classifier import Classifier
from warpcert.errors.calibration import calibrate
from warpcert.learn.recipe import Recipe
from warpcert.learn.views import Views, generator
from warpcert.threat import Threat

SIDE = 12
X = (torch.rand(1, SIDE, SIDE, generator=torch.Generator().manual_seed(0)) * 255).round() / 255
CIRCLE = wc.Preprocess("circle", 1, 1.0)
FEW: dict[str, Any] = {"n": 600, "windows": 1}


class Mean(nn.Module):
    """Class 1 if the mean exceeds a fifth."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(1))
        self.eval()

    def forward(self, z: Tensor) -> Tensor:
        s = (z.flatten(1).mean(1) - 0.2) * self.weight
        return torch.stack((-s, s), 1)


def smoothed(over: dict[str, Any] | None = None, noise: float = 0.25, **more: Any) -> Classifier:
    return moved(wc.Smoothed(Mean(), noise, over, **more))  # type: ignore[no-any-return]


def shown(made: Certificate) -> None:
    assert read(made.to_dict()) == made and made.passes > 0


RANGES = {"rotation": (4, 10), "brightness": (0.05, 0.1), "contrast": (0.05, 0.1)}


@pytest.mark.parametrize("key", RANGES)
def test_votes_over_parameters(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gamma, sigma = RANGES[key]
    threat = Threat.of(key, gamma)
    with pretended(monkeypatch):
        x, f = moved(X), smoothed({key: sigma}, preprocess=CIRCLE, interpolation="bilinear")
        for bound in ("curve", "sampled", "interval")[: 3 if key == "rotation" else 2]:
            shown(f.certify(x, threat, method="dist-x", betas=20, bound=bound, time_limit=2.0, **FEW))
        known = calibrate(f, [x] * 5, threat, rho=0.4, alpha=0.4, bound="sampled")
        shown(f.certify(x, threat, method="dist-d", calibration=known, **FEW))
        assert marked(f(x[None])) and f.predict(x) in (-1, 1)
        for inverse in ("lagrangian", "interval") if key == "rotation" else ():
            made = f.certify(x, Threat.rotation(1), method="indiv", betas=20, inverse=inverse, n=2000, windows=1)
            shown(made)
        logits = lambda z: f.logits(f.preprocess(z))  # noqa: E731
        for attack in attacks.ATTACKS.values():
            assert marked(attack(logits, x, 1, threat, 5, torch.Generator().manual_seed(0)).x_attacked)


def test_nested_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended(monkeypatch):
        f = smoothed({"rotation": 10.0}, preprocess=CIRCLE, nested=True)
        shown(f.certify(moved(X), Threat.rotation(3), n=60, n0=4, betas=40, windows=1))


@pytest.mark.parametrize("front", ["none", "centred", "standard"])
def test_covers(front: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended(monkeypatch):
        x, f = moved(X), smoothed(front=front)
        threat = Threat.rotation(1, quantized=False).then(brightness=0.3, l2=0.01)
        shown(f.certify(x, threat, n=2000, target=3.0))
        shown(f.certify(x, Threat.contrast(0.02), n=2000, target=3.0))
        if front == "none":
            monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
            lipschitz = moved(wc.Plain(Mean(), lipschitz=0.2))
            shown(lipschitz.certify(x, threat))
            shown(lipschitz.certify(x, Threat.translation(0.2)))


EXACT = [
    Threat.rotation(4), Threat.rotation(3, quantized=False), Threat.brightness(0.05), Threat.power(0.05),
    Threat.blur(0.3), Threat.shifts(2), Threat.shifts(1).then(scaling=3),
]  # fmt: skip


@pytest.mark.parametrize("threat", EXACT, ids=lambda t: t.transform.name)
def test_exact(threat: Threat, monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended(monkeypatch, is_cuda=False):
        x = moved(X)
        shown(moved(wc.Levels(Mean(), 8)).certify(x, threat))
        if threat.transform.name == "rotation":
            shown(moved(wc.Levels(Mean(), 32, sees=wc.Stem(2))).certify(x, threat))
        if threat.quantized:
            shown(moved(wc.Plain(Mean())).certify(x, threat))


def test_exact_behind_fronts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended(monkeypatch, is_cuda=False):
        for front, tones in ("grounded", {"brightness": 0.2}), ("stretched", {"contrast": 0.2}):
            threat = Threat.rotation(2, quantized=False).then(**tones)
            shown(moved(wc.Levels(Mean(), 32, front=front)).certify(moved(X), threat))


VIEWS = [
    {"transform": "reflected-shifts", "gamma": 3},
    {"transform": "blur", "gamma": 2, "levels": 4},
    {"transform": "scaling then brightness", "gamma": (10, 0.2), "before": "grounded", "levels": 8},
    {"transform": "rotation then contrast", "gamma": (10, 0.2), "before": "standard", "noise": 0.1},
]


@pytest.mark.parametrize("changes", VIEWS, ids=lambda c: c["transform"])
def test_training_views(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"sigma": 0, "noise": 0.0, "rounded": False, "attacked": 1.0, "flip": True, "shift": 1, "cutout": 2}
    recipe = Recipe.from_dict({"name": "views", "dataset": "mnist"} | plain | changes)
    with pretended(monkeypatch):
        device = moved(X).device
        views, draw = Views(recipe, device), generator(device, 0)
        seen = views(moved(X.expand(6, 1, SIDE, SIDE)), draw)
        assert marked(seen) and marked(seen + views.delta(seen, draw)) and seen.shape == (6, 1, SIDE, SIDE)


def test_it_pretends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU refuses is refused."""
    with pretended(monkeypatch):
        x = moved(X)
        assert x.device.type == "cuda" and x.is_cuda and not x.cpu().is_cuda and marked(x[0].mean() + 1)
        for wrong in (lambda: x + X, lambda: torch.cat((x, X)), lambda: X[x > 0], lambda: x @ torch.eye(SIDE)):
            with pytest.raises(RuntimeError, match="two devices"):
                wrong()
        with pytest.raises(TypeError, match=r"\.cpu\(\)"):
            x.numpy()
        with pytest.raises(RuntimeError, match="another device"):
            torch.randn(3, generator=torch.Generator(), device=x.device)
        assert marked(x + torch.tensor(1.0)) and marked(x * x.new_ones(())) and marked(x[:, torch.tensor([1, 2])])
