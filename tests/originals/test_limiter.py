"""Behind a limiter nobody hears what was clipped: the bounds hold, are nearly attained, and certify loud sounds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from warpcert import certificates, methods
from warpcert.certificates import Certificate
from warpcert.certificates.verify import verify
from warpcert.classifier import Plain, Smoothed
from warpcert.classifier.defence import Defence
from warpcert.classifier.storage import load
from warpcert.errors.base import interpolation_error
from warpcert.errors.curve import values
from warpcert.errors.proved import Curve
from warpcert.originals import sound as originals
from warpcert.originals.sound import VolumeInverse, clipped
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

LIMIT, THREAT = 0.25, Threat.of("volume", 4)
DEFENCE = Defence.surface("volume", 3, noise=0.006, preprocess=Preprocess(limit=LIMIT))
LOW = torch.tensor([[math.log(LIMIT) + d] for d in (0.01, 0.0, -1e-3, -0.05, -0.7)], dtype=torch.float64)


def sound(loudness: float, seed: int, length: int = 600) -> Tensor:
    """16-bit samples; loud ones reach both ends of the range."""
    x = torch.randn(1, length, generator=torch.Generator().manual_seed(seed)) * loudness
    return DEFENCE.transform.quantize(x)


def cases() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Sounds, β (some so low that the limiter is not reached) and γ."""
    found = []
    for seed, loudness in enumerate((1e-4, 0.02, 0.5, 3.0) * 3):
        draw = torch.Generator().manual_seed(seed)
        beta = torch.cat((DEFENCE.draw_beta(10, draw), LOW))
        found.append((sound(loudness, seed), beta, torch.cat((THREAT.box.uniform(8, draw), THREAT.box.grid(2)))))
    return found


def test_a_limiter_is_for_sounds_and_is_one_number_in_all_precisions() -> None:
    p = Preprocess(limit=0.3)
    assert Preprocess(**p.to_dict()) == p and p.limit == torch.tensor(0.3).item() != 0.3
    assert "limit" not in Preprocess().to_dict() and p.linear == Preprocess() and not p.is_identity
    x = torch.tensor([[-0.9, -0.1, 0.2, 0.4]], dtype=torch.float64)
    assert torch.equal(p(x).float(), p(x.float())) and float(p(x).abs().max()) == p.limit
    assert torch.equal(p.difference(x, -x), p(x) - p(-x))
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="limit"):
            Preprocess(limit=wrong)
    with pytest.raises(ValueError, match="no vignette"):
        Preprocess("circle", limit=0.5)
    with pytest.raises(ValueError, match="for sounds"):
        Defence.surface("rotation", 30, noise=0.1, preprocess=p)


def test_no_attack_beats_the_bound_of_a_known_sound() -> None:
    for x, beta, gamma in cases():
        found = Curve(1.2)(x, DEFENCE, THREAT, beta)
        assert bool((found.lower <= found.values).all())
        for z in (x, x.double()):
            for each in gamma[:, None]:
                views = DEFENCE.view(THREAT.attacked(z, each)[0], beta) - DEFENCE.view(z, beta + each)
                assert bool((views.double().flatten(1).norm(dim=1) <= found.values).all())


def test_no_original_exceeds_the_bound_of_an_attacked_sound() -> None:
    inverse = VolumeInverse()
    for x, beta, gamma in cases():
        for each in gamma[:, None]:
            attacked = THREAT.attacked(x, each)[0]
            found = inverse.survivors(attacked, THREAT)
            holds = (found.low <= each).all(1) & (each <= found.high).all(1)
            assert bool((holds & ((found.lower <= x) & (x <= found.upper)).flatten(1).all(1)).any())
            true = (DEFENCE.view(attacked, beta) - DEFENCE.view(x, beta + each)).double().flatten(1).norm(dim=1)
            assert bool((true[:, None] <= inverse.errors(found, DEFENCE, beta)[:, holds]).all())


def test_what_is_unheard_adds_nothing_and_what_is_heard_is_attained() -> None:
    """A square wave at full scale: as quiet as rounding above the limit, and just as loud as is said below it."""
    t = THREAT.transform
    x = torch.full((1, 600), t.high, dtype=torch.float64)
    up = torch.tensor([THREAT.box.upper], dtype=torch.float64)
    beta = torch.cat((torch.tensor([[0.0], [-1.0]], dtype=torch.float64), LOW))
    attacked = THREAT.attacked(x, up)[0]
    assert bool(clipped(attacked, THREAT).all())
    true = interpolation_error(x, DEFENCE, THREAT, beta, up.expand(len(beta), -1))
    heard = beta.exp()[:, 0] * t.high < LIMIT
    assert heard.tolist() == [False, False, False, True, True, True, True]
    known = Curve(1.2)(x, DEFENCE, THREAT, beta).values
    unseen = VolumeInverse().errors(VolumeInverse().survivors(attacked, THREAT), DEFENCE, beta).amax(1)
    rounding = beta.exp()[:, 0] * 0.5 * t.step * 600**0.5
    assert float(true[~heard].max()) == 0.0
    for bound in (known, unseen):
        assert bool((bound[~heard] < 1.2 * rounding[~heard] + 6e-4).all())  # with what float32 adds to loud samples
        assert bool((true[-2:-1] >= 0.97 * bound[-2:-1]).all())  # below the limit, not yet by (e^γ − 1)
    without = Curve(1.2)(x, Defence.surface("volume", 3, noise=0.006), THREAT, beta).values
    assert float(without[0]) > 5000 * float(known[0] + unseen[0])


def test_what_is_heard_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, low β break both bounds."""
    for module in (values, originals):
        monkeypatch.setattr(module, "unheard", lambda t, limit, scale, loud: 0 * scale)
    with pytest.raises(AssertionError):
        test_no_attack_beats_the_bound_of_a_known_sound()
    with pytest.raises(AssertionError):
        test_no_original_exceeds_the_bound_of_an_attacked_sound()


def _loud(z: Tensor) -> Tensor:
    """A classifier of loudness."""
    loud = z.flatten(1).square().mean(1).sqrt()
    return torch.stack((loud - 0.1, 0.1 - loud), 1)


def certified(limit: float | None, method: str, threat: Threat) -> tuple[Certificate, Smoothed]:
    """Of a sound of which many samples are clipped."""
    net = Smoothed(_loud, 0.006, {"volume": 2}, preprocess=Preprocess(limit=limit))
    x, more = sound(0.6, 3), {"inverse": VolumeInverse()} if method == "indiv" else {}
    chosen = methods.chosen(net, method, n=1000, windows=1, betas=100, **more)
    given = threat.attacked(x, torch.tensor([threat.box.upper], dtype=torch.float64))[0] if method == "indiv" else x
    assert int(clipped(threat.attacked(x, threat.box.grid(2)), threat).sum()) > 50
    return methods.certify_with(chosen, net, given, threat, seed=0), net


@pytest.mark.parametrize("method", ["dist-x", "indiv"])
def test_loud_sounds_are_certified_behind_a_limiter_alone(method: str) -> None:
    threat = Threat.of("volume", 2)
    made, net = certified(LIMIT, method, threat)
    assert made.label == 0 and made.covers(threat.box)
    again = certificates.read(made.to_dict())
    verify(again)
    assert again.covers(threat.box) and dict(made.settings())["before the network"] == "limiter: ±0.25 of full scale"
    assert made.classifier is not None and made.classifier.facts == net.facts
    for other in (Preprocess(limit=0.5), Preprocess()):
        with pytest.raises(ValueError, match="preprocessing"):
            verify(replace(again, defence=replace(made.defence, preprocess=other)))
    assert certified(None, method, threat)[0].abstains


def test_a_cover_and_the_plain_classifier_pass_the_limiter() -> None:
    threat, p = Threat.of("volume", 1), Preprocess(limit=LIMIT)
    net = Smoothed(_loud, 0.05, preprocess=p)
    made = methods.certify_with(methods.chosen(net, "cover", n=2000, target=1.0), net, sound(0.6, 3), threat, seed=0)
    assert made.label == 0 and made.covers(threat.box)
    z = sound(0.6, 4)[None]
    assert torch.equal(Plain(_loud, preprocess=p)(z), _loud(z.clamp(-LIMIT, LIMIT)))


def test_a_limiter_is_stored_with_the_classifier(tmp_path: Path) -> None:
    from warpcert.networks.config import ModelConfig
    from warpcert.networks.weights import build, fused

    network = fused(build(ModelConfig((1, 1600), 3, width=4, blocks=(1, 1), front="mfcc"), seed=3))
    net = Smoothed(network, 0.006, {"volume": 3}, preprocess=Preprocess(limit=0.3))
    net.save(tmp_path / "m.safetensors")
    found = load(tmp_path / "m.safetensors")
    assert found.preprocess == net.preprocess and found.facts == net.facts and found.fingerprint == net.fingerprint
    assert Smoothed(network, 0.006, {"volume": 3}).fingerprint != net.fingerprint
