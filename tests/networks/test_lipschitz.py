"""Lipschitz networks: no search finds a larger constant than the one proved, and broken proofs are found out."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch.nn.functional import conv2d

import warpcert as wc
from warpcert.learn.data import Dataset
from warpcert.learn.losses import margin_loss
from warpcert.learn.proxy import plain_proxy
from warpcert.learn.recipe import Recipe
from warpcert.learn.train import train
from warpcert.networks import lipschitz
from warpcert.networks.config import ModelConfig
from warpcert.networks.lipschitz import LipschitzNet, Mix, Residual, autocorrelation, deployed, row_sums_above, verified
from warpcert.networks.weights import build, fused, restored, stored

CONFIGS = [
    ModelConfig((1, 7, 9), 3, width=8, blocks=(2, 1), stem_stride=2, head="flatten", family="lipschitz"),
    ModelConfig((3, 8, 8), 4, width=6, blocks=(1, 1, 1), stem_stride=1, family="lipschitz", mean=(0.2,), std=(0.3,)),
]


def wild(config: ModelConfig, seed: int = 0) -> LipschitzNet:
    """A network with large weights, far from orthogonal ones."""
    model = build(config, seed)
    assert isinstance(model, LipschitzNet)
    g = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.data += torch.randn(p.shape, generator=g) * (0.5 if p.dim() > 1 else 0.2)
    return model


def largest_slope(model: LipschitzNet, tries: int = 4, steps: int = 15) -> float:
    """By search: the largest singular value of the Jacobian met on walks along its direction."""
    g, best = torch.Generator().manual_seed(1), 0.0
    for _ in range(tries):
        x = torch.rand(1, *model.config.shape, generator=g) * 3 - 1
        for _ in range(steps):
            jacobian = torch.autograd.functional.jacobian(model, x)[0].flatten(1)
            _, s, v = torch.linalg.svd(jacobian.double(), full_matrices=False)
            best = max(best, float(s[0]))
            x = x + 0.3 * torch.randn(1, generator=g) * v[0].reshape(x.shape).float()
    return best


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(3))
def test_no_search_exceeds_the_bound(config: ModelConfig, seed: int) -> None:
    model = restored(config, stored(wild(config, seed)))
    assert isinstance(model, LipschitzNet) and 0 < model.lipschitz <= 1
    slope = largest_slope(model)
    assert 0.02 < slope <= model.lipschitz + 1e-5


def test_the_last_digits_of_the_constant_are_no_fact() -> None:
    """They depend on the machine's linear algebra; what is certified with is never below what is proved."""
    model = verified(deployed(wild(CONFIGS[0])))
    made = wc.Plain(model)
    assert made.lipschitz is not None and made.lipschitz >= model.lipschitz
    model.lipschitz = math.nextafter(math.nextafter(model.lipschitz, 0), 0)
    again = wc.Plain(model)
    assert again.facts == made.facts and again.fingerprint == made.fingerprint


def test_pairs_stay_within_their_distance() -> None:
    model = verified(deployed(wild(CONFIGS[0])))
    g = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 1, 7, 9, generator=g)
    for scale in (1e-2, 0.3, 3.0):
        y = x + scale * torch.randn(x.shape, generator=g)
        with torch.no_grad():
            moved = (model(x) - model(y)).norm(dim=1)
        assert bool((moved <= model.lipschitz * (x - y).flatten(1).norm(dim=1) + 1e-5).all())


def test_isometric_layers_are_met_closely() -> None:
    """The bound is not idle: near an orthogonal start a search comes close to it."""
    config = ModelConfig((1, 4, 4), 2, width=4, blocks=(1,), stem_stride=2, head="flatten", family="lipschitz")
    start = build(config)
    assert isinstance(start, LipschitzNet)
    model = verified(deployed(start))
    assert largest_slope(model) > 0.5 * model.lipschitz


def test_row_sums_match_the_operator() -> None:
    """The Gram matrix of the zero-padded convolution, written out, is below diag(T); the shifts match conv2d's."""
    g = torch.Generator().manual_seed(3)
    kernel, log_q = torch.randn(5, 4, 3, 3, generator=g), torch.randn(5, generator=g) * 0.3
    top = row_sums_above(kernel, log_q)
    absolute = autocorrelation(kernel.double()).abs().sum((2, 3))
    weighted = (absolute * (log_q[None] - log_q[:, None]).double().exp()).sum(1)
    assert torch.allclose(top, weighted, rtol=1e-6) and bool((top >= weighted).all())
    eye = torch.eye(4 * 36, dtype=torch.float64).reshape(-1, 4, 6, 6)
    matrix = conv2d(eye, kernel.double(), padding=1).flatten(1).T  # [5·36, 4·36]
    diagonal = top.repeat_interleave(36)
    assert float(torch.linalg.eigvalsh(torch.diag(diagonal) - matrix @ matrix.T)[0]) >= 0


@pytest.mark.parametrize("mutation", ["gain", "head", "mix", "kernel"])
def test_tampered_weights_are_paid_for(mutation: str) -> None:
    """Weights that break the construction raise the proved product, and with it the divisor: the search stays below.
    Without that divisor it would not.
    """
    start = build(CONFIGS[0])
    assert isinstance(start, LipschitzNet)
    model = deployed(start)
    residual = next(m for m in model.modules() if isinstance(m, Residual))
    mixes = [m for m in model.modules() if isinstance(m, Mix)]
    with torch.no_grad():
        if mutation == "gain":
            residual.gain.mul_(6)
        elif mutation == "kernel":
            residual.kernel.mul_(3)
        else:
            (mixes[-1] if mutation == "head" else mixes[0]).weight.mul_(40)
    model = verified(model)
    assert model.lipschitz == 1 and model.divisor > 3 and largest_slope(model) <= 1
    model.divisor = 1.0
    assert largest_slope(model) > 1


def test_unprovable_weights_are_refused() -> None:
    for value in (-1.0, math.nan, math.inf):
        model = deployed(wild(CONFIGS[0]))
        next(m for m in model.modules() if isinstance(m, Residual)).gain[0] = value
        with pytest.raises(ValueError, match="no Lipschitz constant"):
            verified(model)
    model = deployed(wild(CONFIGS[0]))
    next(m for m in model.modules() if isinstance(m, Residual)).kernel.data[0, 0, 0, 0] = math.nan
    with pytest.raises(ValueError, match="no Lipschitz constant"):
        verified(model)
    with pytest.raises(ValueError, match="width"):
        build(ModelConfig((3, 8, 8), 4, width=8, stem_stride=2, family="lipschitz"))
    with pytest.raises(ValueError, match="family"):
        ModelConfig((1, 100), 4, family="lipschitz")


@pytest.mark.parametrize("config", CONFIGS)
def test_deployed_is_the_trained_function(config: ModelConfig) -> None:
    """Up to half precision and one common factor of all logits (the head is divided by its norm)."""
    model = build(config)
    x = torch.rand(8, *config.shape, generator=torch.Generator().manual_seed(2))
    plain, other = model(x).detach(), fused(model)(x).detach()
    factor = float((plain * other).sum() / plain.square().sum())
    assert factor >= 0.99 and torch.allclose(other, factor * plain, atol=5e-3)
    loaded = restored(config, stored(model))
    assert torch.equal(restored(config, stored(loaded))(x), loaded(x)), "what is stored is stored unchanged"


def test_broken_theory_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With T too small by half (or norms ignored) the search exceeds the constant that is claimed."""
    model = wild(CONFIGS[1], 5)
    honest = lipschitz.row_sums_above
    assert largest_slope(verified(deployed(model))) <= 1
    monkeypatch.setattr(lipschitz, "row_sums_above", lambda k, q: honest(k, q) / 30)
    assert largest_slope(verified(deployed(model))) > 1


def bars(count: int = 240) -> Dataset:
    """A bright bar above or below the middle."""
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (count,), generator=g)
    images = torch.randint(0, 60, (count, 1, 8, 8), generator=g)
    images[torch.arange(count), 0, 1 + 5 * labels] += 150
    return Dataset("bars", images.byte(), labels, ("above", "below"))


def test_training_yields_certificates(tmp_path: Path) -> None:
    """It learns, in half precision it is verified, the proxy sees its margins, and covers by margins follow."""
    recipe = Recipe.from_dict(
        {"name": "tiny", "dataset": "bars", "family": "lipschitz", "width": 4, "blocks": [1, 1], "head": "flatten",
         "sigma": 0, "noise": 0.0, "gamma": 10, "attacked": 1.0, "rounded": False, "steps": 40, "batch": 32,
         "optimizer": "adamw", "lr": 0.02, "weight_decay": 0.0, "temperature": 0.1, "offset": 0.3, "ema": 0.8,
         "validation": 40}
    )  # fmt: skip
    result = train(recipe, bars(), "cpu", tmp_path)
    assert result["last"]["accuracy"] > 0.95
    made = wc.load(str(tmp_path / "model.safetensors"))
    assert isinstance(made.network, LipschitzNet) and 0 < made.network.lipschitz <= made.lipschitz <= 1
    threat = wc.Threat.rotation(10, quantized=False)
    assert made.threat == threat and made.method == "cover"
    seen = plain_proxy(made, threat, bars(40), torch.device("cpu"), 9)["share of Γ, margin"]
    assert seen["1.0"]["0.5"] <= seen["1.0"]["0.0"] <= seen[str(1 / 3)]["0.0"] <= 1 and seen["1.0"]["0.0"] > 0.9
    data = bars(4)
    certificates = [made.certify(data.image(i)) for i in range(4)]
    assert all(c.kind is wc.Kind.PROVED for c in certificates)
    assert sum(c.label == int(data.labels[i]) and c.covers(threat.box) for i, c in enumerate(certificates)) >= 3


def test_loss_with_an_offset() -> None:
    recipe = Recipe.from_dict({"name": "r", "dataset": "d", "temperature": 0.5, "offset": 0.2})
    logits, labels = torch.tensor([[1.0, 0.4], [0.0, 0.3]]), torch.tensor([0, 1])
    expected = 0.5 * torch.log1p(torch.exp(-(torch.tensor([0.6, 0.3]) - 0.2) / 0.5)).mean()
    assert float(margin_loss(logits, labels, recipe)) == pytest.approx(float(expected), rel=1e-6)
