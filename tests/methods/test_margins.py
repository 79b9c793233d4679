"""Covers by margins: what they certify no attack breaks, and a false constant or error bound is found out."""

from __future__ import annotations

import json
import math

import pytest
import torch

import warpcert as wc
from warpcert import certificates
from warpcert.certificates import ByMargins, Covered, Margins
from warpcert.certificates.sealed import seal
from warpcert.methods import margins as module
from warpcert.methods.margins import MarginCover
from warpcert.networks.config import ModelConfig
from warpcert.networks.lipschitz import LipschitzNet, deployed, verified
from warpcert.networks.weights import build

CONFIG = ModelConfig((1, 12, 12), 3, width=8, blocks=(1, 1), stem_stride=2, head="flatten", family="lipschitz")


def picture(seed: int = 0) -> torch.Tensor:
    x = torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(seed))
    return (torch.nn.functional.avg_pool2d(x[None], 3, 1, 1)[0] * 255).round() / 255


def network(seed: int = 0) -> LipschitzNet:
    start = build(CONFIG, seed)
    assert isinstance(start, LipschitzNet)
    with torch.no_grad():
        start.head.weight.add_(
            0.3 * torch.randn(start.head.weight.shape, generator=torch.Generator().manual_seed(seed))
        )
    return verified(deployed(start)).requires_grad_(False)


def constant(model: LipschitzNet, L: float) -> wc.Plain:
    """As if nothing were proved of the network: L is taken on trust."""
    return wc.Plain(lambda z: model(z), lipschitz=L)


@pytest.mark.parametrize(
    ("transform", "gamma", "quantized"),
    [("rotation", 30, False), ("rotation", 30, True), ("scaling", 20, False), ("brightness", 0.3, False),
     ("translation", 1, False)],
)  # fmt: skip
def test_no_attack_breaks_a_certificate(transform: str, gamma: float, quantized: bool) -> None:
    model, reaches = wc.Plain(network()), 0.0
    for seed in range(3):
        x, threat = picture(seed), wc.Threat.of(transform, gamma, quantized=quantized)
        c = model.certify(x, threat, max_windows=3000)
        assert isinstance(c, ByMargins) and c.kind == "proved" and c.confidence == 1
        again = certificates.read(json.loads(json.dumps(c.to_dict())))
        assert again == c and isinstance(again, ByMargins) and bool((again.accepted == c.accepted).all())
        if c.reach is None:
            continue
        reaches += c.reach.upper[0] / threat.box.upper[0]
        gammas = c.reach.uniform(3000, torch.Generator().manual_seed(seed))
        assert bool((model(threat.attacked(x, gammas)).argmax(1) == c.label).all())
    assert reaches > (0.05 if transform == "translation" else 0.3)  # not idle
    assert "-Lipschitz" in str(c) or c.abstains


def test_windows_follow_the_margin() -> None:
    """A constant ten times larger needs more windows, and may certify less; never more."""
    model, x, threat = network(), picture(), wc.Threat.of("rotation", 10, quantized=False)
    one, ten = (constant(model, L).certify(x, threat) for L in (1.0, 10.0))
    assert isinstance(one, ByMargins) and isinstance(ten, ByMargins)
    assert one.reach is not None and len(one.windows) > 1
    assert ten.reach is None or (len(ten.windows) > len(one.windows) and ten.reach.upper[0] <= one.reach.upper[0])


def test_false_constants_are_found_out() -> None:
    """With a constant far below the true one, some certificate is broken by sampling: the test above can fail."""
    broken = 0
    for seed in range(6):
        model = network(seed)
        x, threat = picture(seed), wc.Threat.of("rotation", 180, quantized=False)
        c = constant(model, 1e-5).certify(x, threat)
        if c.reach:
            gammas = c.reach.uniform(2000, torch.Generator().manual_seed(seed))
            broken += bool((model(threat.attacked(x, gammas)).argmax(1) != c.label).any())
    assert broken


def test_edited_records_are_refused() -> None:
    c = wc.Plain(network()).certify(picture(), wc.Threat.rotation(10, quantized=False))
    record = {k: v for k, v in c.to_dict().items() if k != "digest"}
    worse = json.loads(json.dumps(record))
    worse["margins"]["lipschitz"] = 100.0
    with pytest.raises(ValueError, match="Lipschitz constant"):
        certificates.read(seal(worse))
    with pytest.raises(ValueError, match="has no margins"):
        certificates.read(seal(record | {"statement": "covered"}))
    with pytest.raises(ValueError, match="has no alpha"):
        certificates.read(seal(record | {"alpha": 0.01}))
    with pytest.raises(ValueError, match="differ in length"):
        certificates.read(seal(record | {"windows": record["windows"] | {"margin": [1.0]}}))


def test_the_slack_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, threat = network(), picture(), wc.Threat.rotation(5, quantized=False)

    def made(slack: float) -> ByMargins:
        return MarginCover(wc.Plain(model, slack=slack), x, threat, Margins(1.0, slack), True).certify(500)

    small, large = made(1e-6), made(0.01)
    first, second = min(w.margin for w in small.windows), min(w.margin for w in large.windows)
    assert first - second > 0.009 or large.abstains
    monkeypatch.setattr(module, "ROUNDS", 0)
    assert len(made(1e-6).windows) <= len(small.windows)


def test_noise_or_a_constant_is_needed() -> None:
    threat = wc.Threat.rotation(5)
    with pytest.raises(ValueError, match="Lipschitz constant"):
        wc.Plain(lambda z: z.flatten(1)[:, :3]).certify(picture(), threat, method="cover")
    with pytest.raises(ValueError, match="must be positive"):
        wc.Plain(network(), lipschitz=0.0)
    smoothed = wc.Smoothed(network(), 0.5).certify(picture(), threat, n=200, seed=0)
    assert isinstance(smoothed, Covered) and certificates.read(smoothed.to_dict()) == smoothed


def test_the_needed_margin_is_attained() -> None:
    """The identity on two logits is 1-Lipschitz, and a step of length E against it costs √2·E of margin: no less is
    needed, and hardly more."""
    E = 0.3
    step = torch.tensor([-1.0, 1.0], dtype=torch.float64) * E / math.sqrt(2)
    lost = float(step[1] - step[0])
    assert lost <= Margins(1.0, 0.0).needed(E) <= 1.0001 * lost
    assert Margins(2.0, 0.0).needed(E) >= 2 * lost


def test_leads_are_rounded_down() -> None:
    threat = wc.Threat.rotation(5, quantized=False)
    cover = MarginCover(wc.Plain(network()), picture(), threat, Margins(1.0, 0.0), True)
    logits = torch.randn(5000, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64) ** 3
    lead = logits[:, 1] - logits[:, [0, 2]].amax(1)
    told = cover._leads(logits, 1)
    assert bool((told <= lead).all()) and bool((lead - told <= 0.0101 * lead.abs() + 1e-6).all())
