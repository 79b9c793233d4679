"""Covers by margins: what they certify no attack breaks, and a false constant or error bound is found out."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

import warpcert as wc
from warpcert import certificates
from warpcert.certificates import Margins
from warpcert.certificates.sealed import seal
from warpcert.methods import margins as module
from warpcert.methods.margins import MarginCover
from warpcert.networks.lipschitz import LipschitzNet, deployed, verified
from warpcert.networks.resnet import ModelConfig, build

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


def plain(transform: str = "rotation") -> wc.Defence:
    return wc.Defence.surface(transform, 0, noise=0.0)


@pytest.mark.parametrize(
    ("transform", "gamma", "quantized"),
    [("rotation", 30, False), ("rotation", 30, True), ("scaling", 20, False), ("brightness", 0.3, False),
     ("translation", 1, False)],
)  # fmt: skip
def test_no_attack_breaks_a_certificate(transform: str, gamma: float, quantized: bool) -> None:
    model, reaches = network(), 0.0
    for seed in range(3):
        x, threat = picture(seed), wc.Threat.of(transform, gamma, quantized=quantized)
        c = wc.cover(model, x, plain(transform), threat, model="m", max_windows=3000)
        assert c.kind == "proved" and c.form == "margin" and not c.alpha
        again = certificates.read(json.loads(json.dumps(c.to_dict())))
        assert again == c and again.accepted == c.accepted
        if c.reach is None:
            continue
        reaches += c.reach.upper[0] / threat.box.upper[0]
        gammas = c.reach.uniform(3000, torch.Generator().manual_seed(seed))
        assert bool((model(threat.attacked(x, gammas)).argmax(1) == c.label).all())
    assert reaches > (0.05 if transform == "translation" else 0.3)  # not idle
    assert "proved by margins" in str(c) or c.abstains


def test_windows_follow_the_margin() -> None:
    """A constant ten times larger needs more windows, and may certify less; never more."""
    model, x, threat = network(), picture(), wc.Threat.of("rotation", 10, quantized=False)
    one, ten = (wc.cover(model, x, plain(), threat, lipschitz=L) for L in (1.0, 10.0))
    assert one.reach is not None and len(one.windows) > 1
    assert ten.reach is None or (len(ten.windows) > len(one.windows) and ten.reach.upper[0] <= one.reach.upper[0])


def test_false_constants_are_found_out() -> None:
    """With a constant far below the true one, some certificate is broken by sampling: the test above can fail."""
    broken = 0
    for seed in range(6):
        model = network(seed)
        x, threat = picture(seed), wc.Threat.of("rotation", 180, quantized=False)
        c = wc.cover(model, x, plain(), threat, lipschitz=1e-5)
        if c.reach:
            gammas = c.reach.uniform(2000, torch.Generator().manual_seed(seed))
            broken += bool((model(threat.attacked(x, gammas)).argmax(1) != c.label).any())
    assert broken


def test_edited_records_are_refused() -> None:
    c = wc.cover(network(), picture(), plain(), wc.Threat.of("rotation", 10, quantized=False))
    record = {k: v for k, v in c.to_dict().items() if k != "digest"}
    worse = json.loads(json.dumps(record))
    worse["margins"]["lipschitz"] = 100.0
    with pytest.raises(ValueError, match="but the counts give"):
        certificates.read(seal(worse))
    for form, margins in (("cover", record["margins"]), ("margin", None)):
        with pytest.raises(ValueError, match="by margins"):
            certificates.read(seal(record | {"form": form, "margins": margins}))
    with pytest.raises(ValueError, match="spends no α"):
        certificates.read(seal(record | {"alpha": 0.01}))
    with pytest.raises(ValueError, match="zip"):
        certificates.read(seal(record | {"windows": record["windows"] | {"margin": [1.0]}}))


def test_the_slack_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, threat = network(), picture(), wc.Threat.of("rotation", 5, quantized=False)
    small, large = (
        MarginCover(model, x, plain(), threat, Margins(1.0, slack), True).certify(500, "") for slack in (0.0, 0.01)
    )
    first, second = min(w.margin for w in small.windows), min(w.margin for w in large.windows)
    assert first - second > 0.009 or large.abstains
    monkeypatch.setattr(module, "ROUNDS", 0)
    coarse = MarginCover(model, x, plain(), threat, Margins(1.0, 0.0), True).certify(500, "")
    assert len(coarse.windows) <= len(small.windows)


def test_noise_or_a_constant_is_needed() -> None:
    threat = wc.Threat.of("rotation", 5)
    with pytest.raises(ValueError, match="Lipschitz constant"):
        wc.cover(lambda z: z.flatten(1)[:, :3], picture(), plain(), threat)
    with pytest.raises(ValueError, match="positive Lipschitz"):
        wc.cover(network(), picture(), plain(), threat, lipschitz=0.0)
    smoothed = wc.cover(network(), picture(), replace(plain(), sigma_noise=0.5), threat, wc.Sampling(n=200, seed=0))
    assert smoothed.form == "cover"


def test_the_needed_margin_is_attained() -> None:
    """The identity on two logits is 1-Lipschitz, and a step of length E against it costs √2·E of margin: no less is
    needed, and hardly more."""
    E = 0.3
    step = torch.tensor([-1.0, 1.0], dtype=torch.float64) * E / math.sqrt(2)
    lost = float(step[1] - step[0])
    assert lost <= Margins(1.0, 0.0).needed(E) <= 1.0001 * lost
    assert Margins(2.0, 0.0).needed(E) >= 2 * lost


def test_leads_are_rounded_down() -> None:
    cover = MarginCover(
        network(), picture(), plain(), wc.Threat.of("rotation", 5, quantized=False), Margins(1.0, 0.0), True
    )
    logits = torch.randn(5000, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64) ** 3
    lead = logits[:, 1] - logits[:, [0, 2]].amax(1)
    told = cover._leads(logits, 1)
    assert bool((told <= lead).all()) and bool((lead - told <= 0.0101 * lead.abs() + 1e-6).all())
