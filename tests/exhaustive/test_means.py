"""Classifiers behind a stem: every combination of levels of means that an attacker can reach is enumerated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_crossings import picture
from test_outwards import noise
from torch import Tensor, nn

import warpcert as wc
from warpcert import certificates
from warpcert.certificates import Exhausted
from warpcert.classifier import Levels
from warpcert.classifier.before.stem import Stem, Stemmed
from warpcert.classifier.storage import configured
from warpcert.exhaustive.enumeration import images, plan
from warpcert.exhaustive.events import rounded
from warpcert.exhaustive.events.crossings import Crossings, levels
from warpcert.exhaustive.events.isolation import nearest
from warpcert.exhaustive.events.means import Means
from warpcert.exhaustive.sight import find_means
from warpcert.threat import Threat

CASES = [(True, True), (True, False), (False, True), (False, False)]  # the attacker rounds; the stem does
THREATS = {"rotation": (-30, 22), "scaling": (-25, 30), "shear": (-30, 25)}


def known(c: Crossings) -> set[bytes]:
    made = plan(c, 1 << 15)
    assert made.unresolved == made.bundles == 0
    return {row.tobytes() for part, _ in images(made) for row in part.numpy()}


def misses(c: Crossings, x: Tensor, threat: Threat, front: Stemmed, gamma: Tensor) -> int:
    """How many γ have other levels than those enumerated, computed in float64 and handed over in float32."""
    every, missed = known(c), 0
    for part in gamma.split(4096):
        handed = threat.attacked(levels(x)[0] / 255, part[:, None]).float()
        missed += sum(row.tobytes() not in every for row in front.levels(handed).numpy())
    return missed


@pytest.mark.parametrize(("quantized", "rounds"), CASES)
@pytest.mark.parametrize("name", ["noise", "float", "binary", "constant", "dot"])
def test_every_attack_is_enumerated(name: str, quantized: bool, rounds: bool, generator: torch.Generator) -> None:
    shape, stem, step = ((1, 6, 8), Stem(2, 2), 8) if name == "dot" else ((3, 8, 4), Stem(2, 4, 8), 16)
    x, front = picture(name, shape), Stemmed(step, replace(stem, rounds=rounds))
    for key, ends in THREATS.items():
        threat = Threat.of(key, *ends, quantized=quantized)
        c = find_means(x, threat, threat.off_by, front)
        assert len(c) > 20 or name in ("constant", "dot")
        inside = c.lower + (c.upper - c.lower) * torch.linspace(0, 1, 5)[:, None]
        near = torch.cat((inside.flatten(), c.lower - 1e-9, c.upper + 1e-9))
        gamma = torch.cat((threat.box.uniform(3000, generator)[:, 0], near.clamp(*c.gamma)))
        assert misses(c, x, threat, front, gamma) == 0, key


@pytest.mark.parametrize(("quantized", "rounds"), CASES)
def test_settled_levels_are_right_and_events_narrow(quantized: bool, rounds: bool) -> None:
    """Between events the levels are what the attack gives: nothing is enumerated in their place."""
    x, threat = noise(3, (3, 8, 8)), Threat.rotation(15, quantized=quantized)
    front = Stemmed(16, Stem(2, 4, 16, rounds=rounds))
    c = find_means(x, threat, threat.off_by, front)
    state, ends = c.start.long().numpy(), [c.gamma[0], *c.upper.tolist()]
    begins = [*c.lower.flip(0).cummin(0).values.flip(0).tolist(), c.gamma[1]]
    looked, columns = 0, zip(c.pixel.tolist(), c.before.tolist(), c.after.tolist(), strict=True)
    for (end, begin), change in zip(zip(ends, begins, strict=True), [*columns, None], strict=True):
        if begin - end > 1e-7:
            at = torch.tensor([[(end + begin) / 2]], dtype=torch.float64)
            assert np.array_equal(front.levels(threat.attacked(levels(x)[0] / 255, at)).numpy()[0], state)
            looked += 1
        if change is not None:
            assert state[change[0]] == change[1]
            state[change[0]] = change[2]
    assert looked > 0.8 * len(c) > 30 and float((c.upper - c.lower).median()) < 1e-5


@pytest.mark.parametrize("rounds", [True, False])
def test_a_sloppy_attacker_is_enumerated(rounds: bool, generator: torch.Generator) -> None:
    x, threat, sloppy = noise(5, (3, 4, 8)), Threat.rotation(20, quantized=False), 1e-5
    front = Stemmed(32, Stem(2, 4, 16, rounds=rounds))
    c = find_means(x, threat, sloppy, front)
    every = known(c)
    inside = c.lower + (c.upper - c.lower) * torch.rand(len(c), generator=generator)
    for gamma in (inside.repeat(40), threat.box.uniform(10_000, generator)[:, 0]):
        shake = torch.randint(-1, 2, (len(gamma), *x.shape), generator=generator) * sloppy * (1 - 1e-9)
        seen = front.levels(threat.transform(levels(x)[0] / 255, gamma[:, None]) + shake)
        assert {row.tobytes() for row in seen.numpy()} <= every


@pytest.mark.parametrize(("quantized", "rounds"), CASES[1:])
def test_dropping_or_moving_one_crossing_is_noticed(quantized: bool, rounds: bool, generator: torch.Generator) -> None:
    x, threat = noise(6, (3, 8, 4)), Threat.rotation(25, quantized=quantized)
    front = Stemmed(16, Stem(1, 2, 16, rounds=rounds))
    c = find_means(x, threat, threat.off_by, front)
    gamma = threat.box.uniform(20_000, generator)[:, 0]
    assert misses(c, x, threat, front, gamma) == 0
    later = torch.cat((c.lower[1:], c.lower.new_tensor(c.gamma[1:])))
    moved = 0  # a mean of rounded pixels that comes back soon may well be moved
    for event in ((later - c.upper) > 4e-4).nonzero()[:5, 0].tolist():
        keep = torch.arange(len(c)) != event
        assert misses(c.take(keep.nonzero()[:, 0]), x, threat, front, gamma) > 0
        late = replace(c, lower=c.lower + 0.03 * ~keep, upper=c.upper + 0.03 * ~keep)  # past others
        moved += misses(late.take(late.upper.argsort()), x, threat, front, gamma)
    assert moved > 0


def test_the_reach_of_rounding_is_needed(monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    """With a hundredth of it, crossings of rounded means are overlooked."""
    x, threat, real = noise(3, (3, 8, 8)), Threat.rotation(20), rounded._runs
    front, gamma = Stemmed(16, Stem(4, 4, 16)), threat.box.uniform(15_000, generator)[:, 0]
    assert misses(find_means(x, threat, 1e-12, front), x, threat, front, gamma) == 0
    monkeypatch.setattr(rounded, "_runs", lambda means, ends, reach: real(means, ends, reach / 100))
    try:
        missed = misses(find_means(x, threat, 1e-12, front), x, threat, front, gamma)
    except RuntimeError as error:
        missed = "contradicts" in str(error)
    assert missed > 0


@pytest.mark.parametrize("plane", [0, 1, 2])
def test_slopes_of_means_are_derivatives_and_bounds_hold(plane: int, generator: torch.Generator) -> None:
    x, transform = picture("noise", (3, 8, 8)).double(), Threat.rotation(60).transform
    path = Means(x, transform, (-1.0, 1.0), Stem(2, 4, 8).planes(16, (3, 8, 8))[plane])
    item = torch.randint(len(path.taps), (3000,), generator=generator)
    middle = 2 * torch.rand(3000, generator=generator, dtype=torch.float64) - 1
    half = path.stride / 4 * torch.rand(3000, generator=generator, dtype=torch.float64) ** 2
    look = path.look(item, middle, half)
    for share in torch.linspace(-1, 1, 11, dtype=torch.float64).tolist():
        at = (middle + share * half).requires_grad_()
        value, slope = path.on(look.piece, item, at)
        (grad,) = torch.autograd.grad(value.sum(), at, create_graph=True)
        torch.testing.assert_close(grad, slope)
        (bend,) = torch.autograd.grad(slope.sum(), at)
        now = path.look(item, at.detach(), 0 * half)
        assert bool((bend.abs() <= look.bend + 1e-9)[look.smooth].all()) and 100 < int(look.smooth.sum()) < 3000
        assert bool((now.slope.abs() <= look.steep + 1e-9).all())
        assert bool(((now.value - look.value).abs() <= half * look.steep + 1e-9).all())
    turned = transform(x / 255, middle[:40, None])
    seen = Stemmed(16, Stem(2, 4, 8, rounds=False)).levels(turned)
    start = sum(p.cells(8, 8) for p in Stem(2, 4, 8).planes(16, (3, 8, 8))[:plane])
    exact = path.look(item[:40], middle[:40], 0 * half[:40]).value
    assert torch.equal(nearest(exact, path.top), seen[torch.arange(40), start + item[:40]].long())


def network(x: Tensor, seed: int) -> nn.Module:
    """Six classes of random directions around the picture: as γ grows, the answer changes somewhere."""
    torch.manual_seed(seed)
    linear = nn.Linear(x.numel(), 6)
    with torch.no_grad():
        linear.bias.copy_(torch.tensor([0.02, *[0.0] * 5]) - linear.weight @ x.flatten())
    return nn.Sequential(nn.Flatten(), linear).eval()


@pytest.mark.parametrize(("quantized", "rounds"), CASES)
def test_the_range_is_sound_and_ends_at_a_counterexample(quantized: bool, rounds: bool) -> None:
    x, threat = noise(2, (3, 8, 8)).float() / 255, Threat.rotation((-40, 30), quantized=quantized)
    stem = Stem(2, 4, 16, rounds=rounds)
    f = Levels(network(Stemmed(16, stem)(x[None])[0], 2), 16, sees=stem)
    made = f.certify(x, threat)
    assert isinstance(made, Exhausted) and made.found is not None and made.counterexample is not None
    assert 0.01 < made.found.held < 1 and made.label == f.predict(x) and made.sees == stem
    box = threat.box.scaled(made.found.held)
    for attacker in {threat, replace(threat, quantized=True)} if rounds else {threat}:
        for gamma in box.grid(20_000).split(4096):
            answers = f(attacker.attacked(x.double(), gamma).float()).argmax(1)
            assert bool((answers == made.label).all()), "a picture inside the range is answered otherwise"
    other = threat.attacked(x.double(), torch.tensor([made.counterexample], dtype=torch.float64))
    assert f.predict(other[0].float()) != made.label and not box.contains(made.counterexample)
    text = str(made)
    assert "2×2 means (colour 4×4)" in text and ("rounded to 8 bits" in text) == rounds
    assert certificates.read(made.to_dict()) == made


def test_a_stem_is_a_fact_only_where_there_is_one(tmp_path: Path) -> None:
    x = noise(2, (3, 8, 8)).float() / 255
    net = network(x, 1)
    plain, stemmed = Levels(net, 16), Levels(net, 16, sees=Stem())
    assert set(plain.facts) == {"kind", "step", "precision", "slack"} and plain.fingerprint != stemmed.fingerprint
    assert stemmed.fingerprint != Levels(net, 16, sees=Stem(rounds=False)).fingerprint
    again = configured(net, stemmed.facts)
    assert again.fingerprint == stemmed.fingerprint and again.sees == Stem()
    assert torch.equal(stemmed(x[None]), net(Stemmed(16, Stem())(x[None]))) and stemmed.predict(x) == again.predict(x)
    own = wc.load("mnist-rotation-exact")
    behind = configured(own.network, own.facts | {"sees": {"kind": "stem", "luma": 2, "chroma": 2}}, own.about)
    behind.save(tmp_path / "f.safetensors")
    loaded = wc.load(str(tmp_path / "f.safetensors"))
    assert loaded.fingerprint == behind.fingerprint and loaded.sees == Stem(2, 2) and own.sees is None
    digit = torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(1))
    assert torch.equal(loaded(digit[None]), behind(digit[None]))


@pytest.mark.parametrize(
    ("threat", "words"),
    [
        (Threat.brightness(0.1), "behind a stem"),
        (Threat.contrast(0.1, quantized=False), "behind a stem"),
        (Threat.translation(1), "behind a stem"),
        (Threat.of("rotation", 5, interpolation="bicubic"), "bilinear"),
    ],
)
def test_what_cannot_be_enumerated_is_refused(threat: Threat, words: str) -> None:
    x = noise(2, (3, 8, 8)).float() / 255
    with pytest.raises(ValueError, match=words):
        Levels(network(x, 1), 16, sees=Stem()).certify(x, threat, method="exact")
    with pytest.raises(ValueError, match="step of 2"):
        Levels(network(x, 1), 1, sees=Stem())


@pytest.mark.parametrize("threat", [Threat.brightness(0.1), Threat.shifts(1).then(rotation=2)])
def test_records_of_what_cannot_be_enumerated_are_refused(threat: Threat) -> None:
    x = noise(2, (3, 8, 8)).float() / 255
    made = Levels(network(x, 1), 16, sees=Stem()).certify(x, Threat.rotation(0.01), method="exact")
    assert isinstance(made, Exhausted) and made.found is not None
    with pytest.raises(ValueError, match="behind a stem"):
        certificates.verify(replace(made, threat=threat, found=replace(made.found, tolerance=threat.off_by)))
