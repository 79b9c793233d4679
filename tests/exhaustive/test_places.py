"""Classifiers that see a mosaic: every combination of levels that an attacker can reach is enumerated."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_crossings import picture
from test_means import network
from test_outwards import noise
from torch import Tensor

from warpcert import certificates, methods
from warpcert.certificates import Exhausted
from warpcert.certificates.verify import verify as arithmetic
from warpcert.classifier import Levels
from warpcert.classifier.before.mosaic import Mosaic, Mosaicked
from warpcert.exhaustive.enumeration import images, plan
from warpcert.exhaustive.events.crossings import Crossings, levels
from warpcert.exhaustive.sight import Terms, sight_of
from warpcert.threat import Threat

THREATS = {"rotation": (-30, 22), "scaling": (-25, 30), "shear": (-30, 25), "blur": (0, 2), "power": (-0.2, 0.3)}
KINDS = [Mosaic(), Mosaic("all"), Mosaic("bayer", circle=False)]


def crossings(x: Tensor, threat: Threat, mosaic: Mosaic, step: int, tolerance: float | None = None) -> Crossings:
    off = threat.off_by if tolerance is None else tolerance
    sight = sight_of(x, threat, Terms(tolerance=off, step=step, sees=mosaic))
    return sight.crossings((threat.box.lower[0], threat.box.upper[0]))


def known(c: Crossings) -> set[bytes]:
    made = plan(c, 1 << 15)
    assert made.unresolved == made.bundles == 0
    return {row.tobytes() for part, _ in images(made) for row in part.numpy()}


def misses(c: Crossings, x: Tensor, threat: Threat, front: Mosaicked, gamma: Tensor) -> int:
    """How many γ have other levels than those enumerated, whether the attacker rounds or not."""
    every, missed = known(c), 0
    for part in gamma.split(4096):
        for attacker in (threat, replace(threat, quantized=not threat.quantized and front.step > 1)):
            handed = attacker.attacked(levels(x)[0] / 255, part[:, None]).float()
            missed += sum(row.tobytes() not in every for row in front.levels(handed).numpy())
    return missed


@pytest.mark.parametrize("mosaic", KINDS)
@pytest.mark.parametrize("key", list(THREATS))
def test_every_attack_is_enumerated(key: str, mosaic: Mosaic, generator: torch.Generator) -> None:
    names = ("noise", "float", "binary") if key == "rotation" else ("noise", "float")
    for name in names:  # others have pixels of equal value that meet thresholds together: too many without rounding
        x, threat = picture(name, (3, 8, 7)), Threat.of(key, *THREATS[key], quantized=False)
        c = crossings(x, threat, mosaic, 16)
        assert len(c) > 10
        inside = c.lower + (c.upper - c.lower) * torch.linspace(0, 1, 5)[:, None]
        near = torch.cat((inside.flatten(), c.lower - 1e-9, c.upper + 1e-9))
        gamma = torch.cat((threat.box.uniform(2000, generator)[:, 0], near.clamp(*c.gamma)))
        assert misses(c, x, threat, Mosaicked(16, mosaic), gamma) == 0, name


def test_its_crossings_are_those_of_the_pixels_that_are_read() -> None:
    x, threat = noise(4, (3, 8, 8)), Threat.rotation(20, quantized=False)
    every = sight_of(x, threat, Terms(tolerance=threat.off_by, step=16)).crossings(
        (threat.box.lower[0], threat.box.upper[0])
    )
    read = Mosaic().read((3, 8, 8)).flatten()
    c = crossings(x, threat, Mosaic(), 16)
    among = read[every.pixel]
    place = read.long().cumsum(0) - 1
    assert torch.equal(c.pixel, place[every.pixel[among]]) and 3 * len(c) < len(every)
    for name in ("lower", "upper", "before", "after", "low", "high"):
        assert torch.equal(getattr(c, name), getattr(every, name)[among]), name
    assert torch.equal(c.start, every.start.flatten()[read])


def test_a_sloppy_attacker_is_enumerated(generator: torch.Generator) -> None:
    x, threat, sloppy = noise(5, (3, 6, 6)), Threat.rotation(20, quantized=False), 1e-5
    front, c = Mosaicked(32), crossings(x, threat, Mosaic(), 32, sloppy)
    every = known(c)
    inside = c.lower + (c.upper - c.lower) * torch.rand(len(c), generator=generator)
    for gamma in (inside.repeat(40), threat.box.uniform(10_000, generator)[:, 0]):
        shake = torch.randint(-1, 2, (len(gamma), *x.shape), generator=generator) * sloppy * (1 - 1e-9)
        seen = front.levels(threat.transform(levels(x)[0] / 255, gamma[:, None]) + shake)
        assert {row.tobytes() for row in seen.numpy()} <= every


def test_dropping_moving_or_not_reading_a_pixel_is_noticed(generator: torch.Generator) -> None:
    x, threat, front = noise(6, (3, 8, 8)), Threat.rotation(25, quantized=False), Mosaicked(16)
    c, gamma = crossings(x, threat, Mosaic(), 16), threat.box.uniform(20_000, generator)[:, 0]
    assert misses(c, x, threat, front, gamma) == 0
    later = torch.cat((c.lower[1:], c.lower.new_tensor(c.gamma[1:])))
    for event in ((later - c.upper) > 4e-4).nonzero()[:5, 0].tolist():
        keep = torch.arange(len(c)) != event
        assert misses(c.take(keep.nonzero()[:, 0]), x, threat, front, gamma) > 0
        late = replace(c, lower=c.lower + 0.03 * ~keep, upper=c.upper + 0.03 * ~keep)
        assert misses(late.take(late.upper.argsort()), x, threat, front, gamma) > 0
    shifted = replace(c, pixel=(c.pixel + 1) % c.start.numel())
    assert misses(shifted, x, threat, front, gamma) > 0


@pytest.mark.parametrize("quantized", [True, False])
def test_the_range_is_sound_against_both_attackers(quantized: bool) -> None:
    x, threat = noise(2, (3, 8, 8)).float() / 255, Threat.rotation((-40, 30), quantized=quantized)
    f = Levels(network(Mosaicked(16)(x[None])[0], 2), 16, sees=Mosaic())
    made = f.certify(x, threat)
    assert isinstance(made, Exhausted) and made.found is not None and made.counterexample is not None
    assert 0.01 < made.found.held < 1 and made.label == f.predict(x) and made.sees == Mosaic()
    box = threat.box.scaled(made.found.held)
    for attacker in (replace(threat, quantized=False), replace(threat, quantized=True)):
        for gamma in box.grid(20_000).split(4096):
            answers = f(attacker.attacked(x.double(), gamma).float()).argmax(1)
            assert bool((answers == made.label).all()), "a picture inside the range is answered otherwise"
    other = threat.attacked(x.double(), torch.tensor([made.counterexample], dtype=torch.float64))
    assert f.predict(other[0].float()) != made.label and not box.contains(made.counterexample)
    assert "levels of 16 of one colour per pixel inside a circle" in str(made)
    again = certificates.read(made.to_dict())
    assert again == made
    arithmetic(again)
    facts = dict(made.classifier.facts or {}) | {"sees": {"kind": "tiles"}}
    with pytest.raises(ValueError, match=r"fingerprint|no classifier sees"):
        arithmetic(replace(made, classifier=replace(made.classifier, facts=facts)))


def test_eight_bit_ties_are_bundled_and_shifts_come_first() -> None:
    """At step 1 with brightness pixels of one value cross together; shifts before a turn are tried one by one."""
    x = noise(3, (3, 6, 6)).float() / 255
    f = Levels(network(Mosaicked(1)(x[None])[0], 2), 1, sees=Mosaic())
    made = f.certify(x, Threat.brightness(0.05))
    assert isinstance(made, Exhausted) and made.found is not None and "one colour per pixel" in str(made)
    with pytest.raises(ValueError, match="levels only"):
        f.certify(x, Threat.rotation(1, quantized=False))
    behind = Levels(network(Mosaicked(16)(x[None])[0], 2), 16, sees=Mosaic())
    after = Threat.shifts(1, quantized=False).then(rotation=2)
    moved = behind.certify(x, after)
    assert isinstance(moved, Exhausted) and methods.refusal(methods.chosen(behind), behind, after) == ""
    for k in ((0, 0), (1, 0), (0, -1)):
        if moved.found is not None and moved.found.held == 1:
            for gamma in (-2.0, 0.3, 2.0):
                handed = after.attacked(x.double(), torch.tensor([[*k, gamma / 57.29577951308232]]))
                assert behind.predict(handed[0].float()) == moved.label
