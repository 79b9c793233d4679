"""Coarse classifiers: the few levels that they see are enumerated for attackers who round and who do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_crossings import EXACT, THREATS, everything, exact_levels, picture, rows
from test_outwards import Affine, noise
from torch import Tensor

import warpcert as wc
from warpcert.bounds.crossings import Crossings, find_crossings, levels
from warpcert.bounds.enumeration import plan
from warpcert.bounds.exact import verify
from warpcert.coarse import Coarse, highest, shown
from warpcert.learn.foreign import EMBEDDED, open_model
from warpcert.learn.models import Half
from warpcert.threat import Defence, Threat
from warpcert.transforms import Preprocess

STEPS = [2, 8, 64]


def real(surface: tuple[str, *tuple[float, ...]]) -> Threat:
    return Threat.surface(surface[0], *surface[1:], quantized=False)


def seen(x: Tensor, threat: Threat, gamma: Tensor, step: int, shake: Tensor | float = 0.0) -> np.ndarray:
    """The levels of T_γ x, unrounded, as a coarse classifier takes them."""
    moved = threat.transform(levels(x)[0] / 255, gamma[:, None]) + shake
    return Coarse(torch.nn.Identity(), step).level(moved).flatten(1).numpy()


@pytest.mark.parametrize("step", [1, *STEPS])
def test_levels(step: int, generator: torch.Generator) -> None:
    f = Coarse(torch.nn.Identity(), step)
    thresholds = (torch.arange(-1, 256, dtype=torch.float64) + 0.5) / 255
    z = torch.cat((thresholds - 1e-12, thresholds + 1e-12, torch.rand(5000, generator=generator, dtype=torch.float64)))
    rounded = (255 * z.clamp(0, 1)).round() / 255
    assert torch.equal(f.level(z), f.level(rounded)), "whoever rounds first is the same"
    assert torch.equal(f(f(z)), f(z)) and torch.equal(f.level(f(z.float())), f.level(z.float()))
    value = torch.arange(256) / 255
    assert (
        len(f.level(value).unique()) == highest(step) + 1 and float((f(value) - value).abs().max()) <= step / 510 + 1e-6
    )
    assert f(value)[0] == 0 and f(value)[255] == 1
    assert torch.equal(shown(f.level(value), step).float() / 255, f(value))


def misses(crossings: Crossings, x: Tensor, threat: Threat, gamma: Tensor, step: int) -> int:
    known = rows(everything(plan(crossings))[0])
    return sum(row.tobytes() not in known for row in seen(x, threat, gamma, step))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", ["noise", "float", "binary", "dot"])
def test_every_unrounded_attack_is_enumerated(name: str, step: int, generator: torch.Generator) -> None:
    for key, surface in THREATS.items():
        x, threat = picture(name, (1, 5, 5) if step < 8 else (2, 5, 6)), real(surface)
        crossings = find_crossings(x, threat, step=step)
        made = plan(crossings)
        gamma = [threat.box.uniform(4000, generator)[:, 0]]
        if not made.bundles:  # where float64 may round either way
            gamma += [crossings.lower, crossings.upper, (crossings.lower + crossings.upper) / 2]
        assert misses(crossings, x, threat, torch.cat(gamma), step) == 0, key
        assert made.unresolved == 0 and int(crossings.start.max()) <= highest(step)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("key", list(EXACT))
def test_exact_arithmetic_is_enumerated_ties_by_rule(key: str, step: int) -> None:
    """Rational parameters hit the thresholds of 8-bit rounding exactly, those of the coarse levels among them."""
    surface, parameters = EXACT[key]
    ties = 0
    for name in ("noise", "constant"):
        x = picture(name, (1, 4, 4))
        made = plan(find_crossings(x, real(surface), step=step))
        known = rows(everything(made)[0])
        for t in parameters[::3]:
            rounded = exact_levels(x, key, t)
            edge = [tie and (v + step // 2) % step == 0 for v, tie in rounded]
            ties += any(edge)
            for rule in ("up", "down", "even"):
                image = [v - (tie and (rule == "down" or (rule == "even" and v % 2 == 1))) for v, tie in rounded]
                level = (np.array(image) + step // 2) // step
                assert level.astype(np.uint8).tobytes() in known, (name, t, rule)
    assert ties > 0 or key in ("rotation", "scaling") or (key == "contrast" and step > 2)


@pytest.mark.parametrize("step", STEPS)
def test_a_sloppy_attacker_is_enumerated(step: int, generator: torch.Generator) -> None:
    x, threat, sloppy = picture("noise", (1, 6, 6)), real(("rotation", 50)), 1e-5
    crossings = find_crossings(x, threat, tolerance=sloppy, step=step)
    made = plan(crossings, limit=1 << 14)
    assert made.bundles == made.unresolved == 0
    known = rows(everything(made)[0])
    near = crossings.lower + (crossings.upper - crossings.lower) * torch.rand(len(crossings), generator=generator)
    for gamma in (near, threat.box.uniform(20_000, generator)[:, 0]):
        shake = torch.randint(-1, 2, (len(gamma), *x.shape), generator=generator) * sloppy * (1 - 1e-9)
        assert rows(seen(x, threat, gamma, step, shake)) <= known


def test_dropping_one_crossing_is_noticed_and_there_are_fewer(generator: torch.Generator) -> None:
    x, threat = picture("noise", (1, 6, 6)), real(("rotation", 40))
    crossings = find_crossings(x, threat, step=8)
    gamma = threat.box.uniform(30_000, generator)[:, 0]
    assert misses(crossings, x, threat, gamma, 8) == 0
    for event in torch.randperm(len(crossings), generator=generator)[:8].tolist():
        keep = torch.arange(len(crossings)) != event
        assert misses(crossings.take(keep.nonzero()[:, 0]), x, threat, gamma, 8) > 0
    fine = find_crossings(x, replace(threat, quantized=True))
    assert 6 < len(fine) / len(crossings) < 10


@pytest.mark.parametrize("key", ["rotation", "scaling", "contrast"])
@pytest.mark.parametrize("seed", range(3))
def test_the_range_is_sound_for_real_valued_attackers(key: str, seed: int) -> None:
    x, threat = noise(seed), real(THREATS[key])
    f = Coarse(Affine(x, seed), 8)
    label = int(f(x[None].float() / 255).argmax())
    verdict = verify(f, x, threat, tolerance=1e-7, step=8)
    assert verdict.label == label and verdict.held is not None and 0 < verdict.held < 1
    assert verdict.gamma is not None and verdict.image is not None
    box = threat.box.scaled(verdict.held)
    for rounds in (False, True):
        attacker = replace(threat, quantized=rounds)
        for gamma in box.grid(40_000).split(4096):
            answers = f(attacker.attacked(levels(x)[0] / 255, gamma).float()).argmax(1)
            assert bool((answers == label).all()), "a picture inside the range is answered otherwise"
        other = attacker.attacked(levels(x)[0] / 255, torch.tensor([[verdict.gamma]], dtype=torch.float64))
        assert int(f(other.float()).argmax()) != label and torch.equal(shown(f.level(other[0]), 8), verdict.image)
    assert not box.contains((verdict.gamma,))
    ends = torch.tensor([*threat.box.lower, *threat.box.upper], dtype=torch.float64) * verdict.held
    behind = (ends + 1e-4 * ends.sign())[:, None]
    assert bool((f(threat.attacked(levels(x)[0] / 255, behind).float()).argmax(1) != label).any()), "could be wider"


def test_the_method_takes_the_step_from_the_classifier() -> None:
    x, threat = noise(1).float() / 255, Threat.surface("rotation", 20, quantized=False)
    plain = Affine(noise(1), 1)
    f, defence = Coarse(plain, 8), Defence.surface("rotation", 0, noise=0)
    certificate = wc.exact(f, x, defence, threat)
    assert certificate.label == int(f(x[None]).argmax()) and "unrounded" in str(certificate)
    assert "proved" in str(certificate) and certificate.exhausted is not None
    finer = wc.exact(f, x, defence, replace(threat, quantized=True))
    assert finer.exhausted is not None and certificate.exhausted.crossings == finer.exhausted.crossings
    with pytest.raises(ValueError, match="put the classifier behind Coarse"):
        wc.exact(plain, x, defence, threat)
    with pytest.raises(ValueError, match="goes without vignette and blur"):
        wc.exact(f, x, replace(defence, preprocess=Preprocess("none", 0.0, 1.0, 3)), threat)
    with pytest.raises(ValueError, match="power of two"):
        Coarse(plain, 12)


def test_opened_behind_coarse_levels_and_in_half_precision() -> None:
    plain = open_model(EMBEDDED, (1, 28, 28), torch.device("cpu"))
    coarse = open_model(EMBEDDED, (1, 28, 28), torch.device("cpu"), half=True, coarse=16)
    assert coarse.fingerprint == plain.fingerprint + "-half-coarse16"
    assert isinstance(coarse.classifier, Coarse) and isinstance(coarse.classifier.classifier, Half)
    assert not any(m.training for m in coarse.classifier.modules())
    assert Coarse(torch.nn.Linear(2, 2)).training, "what is in training mode stays so, and is refused later"
