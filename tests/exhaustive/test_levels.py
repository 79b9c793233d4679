"""Classifiers behind levels: the few levels that they see are enumerated for attackers who round and who do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_crossings import EXACT, THREATS, everything, exact_levels, picture, rows
from test_outwards import Affine, noise
from torch import Tensor

from warpcert import certificates, methods
from warpcert.certificates import Exhausted
from warpcert.classifier import Levels, Plain
from warpcert.classifier.before.rounding import coarsened, highest, shown
from warpcert.classifier.before.rounding import level as level_of
from warpcert.exhaustive.enumeration import plan
from warpcert.exhaustive.events.crossings import Crossings, find_crossings, levels
from warpcert.exhaustive.verify import Terms, verify
from warpcert.learn.foreign import open_model
from warpcert.learn.zoo import EMBEDDED
from warpcert.threat import Threat

STEPS = [2, 8, 64]


def real(surface: tuple[str, *tuple[float, ...]]) -> Threat:
    return Threat.of(surface[0], *surface[1:], quantized=False)


def level(picture: Tensor, step: int) -> np.ndarray:
    return level_of(picture, step).flatten(1).numpy()


def seen(x: Tensor, threat: Threat, gamma: Tensor, step: int, shake: Tensor | float = 0.0) -> np.ndarray:
    """The levels of T_γ x, unrounded, as a classifier behind levels takes them."""
    return level(threat.transform(levels(x)[0] / 255, gamma[:, None]) + shake, step)


@pytest.mark.parametrize("step", [1, *STEPS])
def test_levels(step: int, generator: torch.Generator) -> None:
    def f(z: Tensor) -> Tensor:
        return coarsened(z, step)

    def k(z: Tensor) -> Tensor:
        return level_of(z, step)

    thresholds = (torch.arange(-1, 256, dtype=torch.float64) + 0.5) / 255
    z = torch.cat((thresholds - 1e-12, thresholds + 1e-12, torch.rand(5000, generator=generator, dtype=torch.float64)))
    rounded = (255 * z.clamp(0, 1)).round() / 255
    assert torch.equal(k(z), k(rounded)), "whoever rounds first is the same"
    assert torch.equal(f(f(z)), f(z)) and torch.equal(k(f(z.float())), k(z.float()))
    value = torch.arange(256) / 255
    assert len(k(value).unique()) == highest(step) + 1 and float((f(value) - value).abs().max()) <= step / 510 + 1e-6
    assert f(value)[0] == 0 and f(value)[255] == 1
    assert torch.equal(shown(k(value), step).float() / 255, f(value))


def test_rounding_asks_for_no_value() -> None:
    """Pictures without values are rounded too: so nothing waits for a device to tell them."""
    for dtype in (torch.float16, torch.float32, torch.float64):
        z = torch.empty(2, 1, 5, 5, dtype=dtype, device="meta")
        assert coarsened(z, 8).shape == z.shape and coarsened(z, 8).dtype == dtype


def misses(crossings: Crossings, x: Tensor, threat: Threat, gamma: Tensor, step: int) -> int:
    """How many γ have another picture than those enumerated, computed in float64 and handed over in float32."""
    made = plan(crossings)
    gamma = gamma[gamma < made.doubt]
    known = rows(everything(made)[0])
    handed = threat.attacked(levels(x)[0] / 255, gamma[:, None]).float()
    return sum(row.tobytes() not in known for row in level(handed, step))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", ["noise", "float", "binary", "dot"])
def test_every_attack_is_enumerated(name: str, step: int, generator: torch.Generator) -> None:
    for key, surface in THREATS.items():
        x, threat = picture(name, (1, 5, 5) if step < 8 else (2, 5, 6)), real(surface)
        crossings = find_crossings(x, threat, 1e-7, step)
        inside = crossings.lower + (crossings.upper - crossings.lower) * torch.linspace(0, 1, 9)[:, None]
        gamma = torch.cat((threat.box.uniform(4000, generator)[:, 0], inside.flatten()))
        assert misses(crossings, x, threat, gamma, step) == 0 and int(crossings.start.max()) <= highest(step), key
        assert plan(crossings).bundles == 0, "exact values are handed over as floats"
        rounding = replace(threat, quantized=True)
        crossings = find_crossings(x, rounding, step=step)
        assert plan(crossings).unresolved == 0, "coinciding crossings are bundled"
        assert misses(crossings, x, rounding, gamma[:4000], step) == 0, key


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("key", list(EXACT))
def test_exact_arithmetic_is_enumerated_ties_by_rule(key: str, step: int) -> None:
    """Rational parameters hit the thresholds of 8-bit rounding exactly, those of the coarse levels among them."""
    surface, parameters = EXACT[key]
    ties = 0
    for name in ("noise", "constant"):
        x = picture(name, (1, 4, 4))
        made = plan(find_crossings(x, Threat.of(*surface), step=step))
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
    crossings = find_crossings(x, threat, 1e-7, 8)
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
    f = Levels(Affine(x, seed), 8)
    label = int(f(x[None].float() / 255).argmax())
    verdict = verify(f, x, threat, terms=Terms(tolerance=1e-7, step=8))
    assert verdict.label == label and verdict.held is not None and 0 < verdict.held < 1
    assert verdict.gamma is not None and verdict.image is not None
    box = threat.box.scaled(verdict.held)
    for rounds in (False, True):
        attacker = replace(threat, quantized=rounds)
        for gamma in box.grid(40_000).split(4096):
            answers = f(attacker.attacked(levels(x)[0] / 255, gamma).float()).argmax(1)
            assert bool((answers == label).all()), "a picture inside the range is answered otherwise"
        other = attacker.attacked(levels(x)[0] / 255, torch.tensor([[verdict.gamma]], dtype=torch.float64))
        assert int(f(other.float()).argmax()) != label and torch.equal(shown(level_of(other[0], 8), 8), verdict.image)
    assert not box.contains((verdict.gamma,))
    ends = torch.tensor([*threat.box.lower, *threat.box.upper], dtype=torch.float64) * verdict.held
    behind = (ends + 1e-4 * ends.sign())[:, None]
    assert bool((f(threat.attacked(levels(x)[0] / 255, behind).float()).argmax(1) != label).any()), "could be wider"


def certified(f: Levels | Plain, x: Tensor, threat: Threat) -> Exhausted:
    made = methods.certify(f, x, threat, method="exact")
    assert isinstance(made, Exhausted) and made.found is not None and certificates.read(made.to_dict()) == made
    return made


def test_the_method_takes_the_step_from_the_classifier() -> None:
    x, threat = noise(1).float() / 255, Threat.of("rotation", 20, quantized=False)
    plain = Affine(noise(1), 1)
    f = Levels(plain, 8)
    certificate = certified(f, x, threat)
    assert certificate.label == int(f(x[None]).argmax()) == f.predict(x) and "real-valued" in str(certificate)
    assert certificate.kind == "proved" and "levels of 8" in str(certificate) and certificate.step == 8
    finer = certified(f, x, replace(threat, quantized=True))
    assert finer.found is not None and certificate.found is not None
    assert certificate.found.crossings == finer.found.crossings
    for g in (Plain(plain), Levels(plain, 1)):
        assert "levels" in methods.chosen(g).refuses(g, threat)
        with pytest.raises(ValueError, match=r"must see levels only: wc\.Levels"):
            methods.certify(g, x, threat, method="exact")
    with pytest.raises(ValueError, match="power of two"):
        Levels(plain, 12)


class Even(torch.nn.Module):
    """Class 1 where the first two pixels of the first row are not 64 levels apart."""

    def forward(self, z: Tensor) -> Tensor:
        value = (255 * z[:, 0, 0, :2]).round()
        odd = (value[:, 0] - value[:, 1] != 64).float()
        return torch.stack((1 - odd, odd), 1)


def test_crossings_that_coincide_do_not_in_float32() -> None:
    """Under brightness 100 and 36 reach their thresholds at the same γ: exactly, and not as float32 pictures."""
    x = torch.tensor([100, 36], dtype=torch.uint8).repeat(1, 6, 3)
    f, threat = Levels(Even().eval(), 8), real(("brightness", 0.1))
    reach = certified(f, x.float() / 255, threat).reach
    assert reach is not None
    root = torch.arange(-24.5, 26, 8, dtype=torch.float64)[:, None] / 255
    gamma = (root + torch.linspace(-4e-8, 4e-8, 401, dtype=torch.float64)).reshape(-1, 1)
    answers = f(threat.attacked(x.double() / 255, gamma).float()).argmax(1)
    wrong = gamma[answers == 1, 0]
    assert len(wrong) > 100 and not any(reach.contains((g,)) for g in wrong.tolist())
    rounded = certified(f, x.float() / 255, replace(threat, quantized=True))
    assert "who computes x + γ in float64" in str(rounded) and "exactly" not in str(rounded)


@pytest.mark.parametrize("surface", [("rotation", 8), ("scaling", 10)])
@pytest.mark.parametrize("step", [4, 32])
def test_an_attacker_in_float32_needs_a_tolerance_and_has_it(surface: tuple[str, float], step: int) -> None:
    """Opposite pixels of a picture like its own half turn cross one after the other, or not, in coarser arithmetic."""
    x, threat = 0.99 * picture("float", (1, 10, 10)), real(surface)
    x[:, 5:] = x[:, :5].flip(1, 2) + 3e-7
    x = x.float()
    crossings = find_crossings(x, threat, 1e-7, step)
    gamma = (crossings.lower + crossings.upper) / 2 + torch.linspace(-1e-6, 1e-6, 41)[:, None]
    gamma = gamma.flatten()[:, None].clamp(*threat.box.lower, *threat.box.upper)
    float64, float32 = (rows(level(threat.attacked(z, gamma).float(), step)) for z in (x.double(), x))
    known, wide = (rows(everything(plan(find_crossings(x, threat, t, step)))[0]) for t in (1e-7, 5e-7 * 20))
    assert float64 <= known and float32 <= wide and not float32 <= known


def test_the_record_tells_the_tolerance() -> None:
    x, f = noise(1).float() / 255, Levels(Affine(noise(1), 1), 8)
    for rounds, given, told in ((False, None, 1e-7), (False, 1e-5, 1e-5), (True, None, 1e-12)):
        certificate = certified(f, x, Threat.of("rotation", 5, quantized=rounds, tolerance=given))
        assert certificate.found is not None and certificate.found.tolerance == told
        assert f"accurate to {told:g} per pixel" in str(certificate)


def test_opened_behind_levels_and_in_half_precision() -> None:
    opened = open_model(EMBEDDED, (1, 28, 28), torch.device("cpu"))
    plain, x = opened.classifier({}), torch.rand(4, 1, 28, 28)
    kept = {"kind": "levels", "step": 16}
    fine, rough = (Levels(opened.network.eval(), 16, precision=p) for p in ("float32", "half"))
    assert rough.facts | {"precision": "float32", "slack": fine.slack} == fine.facts
    assert fine.facts.items() >= kept.items()
    assert len({plain.fingerprint, fine.fingerprint, rough.fingerprint}) == 3 and rough.slack > fine.slack
    assert rough.source == fine.source
    torch.testing.assert_close(fine(x), opened.network(coarsened(x, 16)))
    assert not torch.equal(rough(x), fine(x)) and not any(m.training for m in rough.modules())
    assert Levels(torch.nn.Linear(2, 2)).training, "what is in training mode stays so, and is refused later"
