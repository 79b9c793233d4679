"""Crossings: whatever image exact arithmetic, float64 or a sloppy attacker produces, the enumeration has it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import ClassVar, final

import numpy as np
import pytest
import torch
from torch import Tensor

from warpcert.exhaustive import enumeration
from warpcert.exhaustive.enumeration import Plan, images, plan
from warpcert.exhaustive.events.crossings import Crossings, find_crossings, levels
from warpcert.exhaustive.events.paths import Moved
from warpcert.exhaustive.verify import Terms, verify
from warpcert.learn.data import load
from warpcert.threat import Threat
from warpcert.transforms import Box, Flow, Rotation, Scaling, Shear
from warpcert.transforms.families.flow import Matrix

THREATS = {
    "rotation": ("rotation", 50),
    "half turn": ("rotation", -20, 185),
    "scaling": ("scaling", -55, 80),
    "brightness": ("brightness", 0.15),
    "contrast": ("contrast", -0.4, 0.41),
}


class Own:
    """Of flows that no room of the package has heard of."""

    unit: ClassVar[str] = ""
    unit_name: ClassVar[str] = ""
    composition: ClassVar[str] = "parameters add"
    natural_vignette: ClassVar[str] = "circle"


@final
class Spiral(Own, Flow):
    """Grows and turns: eigenvalues 1 ± 2i."""

    name = noun = "spiral"
    generator: ClassVar[Matrix] = ((1, 4), (-1, 1))


@final
class Hyperbola(Own, Flow):
    """Wider and lower at once."""

    name = noun = "hyperbola"
    generator: ClassVar[Matrix] = ((1, 0), (0, -1))


@final
class Skew(Own, Flow):
    """No integers, hence no equations."""

    name = noun = "skew"
    generator: ClassVar[Matrix] = ((0.3, -0.7), (0.2, 0.6))


OWN: dict[str, Flow] = {t.name: t for t in (Shear(), Spiral(), Hyperbola(), Skew())}
FLOWS: list[Flow] = [Rotation(), Scaling(), *OWN.values()]


def threat_of(key: str) -> Threat:
    if key in OWN:
        low, high = (-0.4, 0.5) if key == "spiral" else (-0.7, 0.6)
        return Threat(OWN[key], Box((low,), (high,)))
    return Threat.of(THREATS[key][0], *THREATS[key][1:])


def picture(name: str, shape: tuple[int, int, int]) -> Tensor:
    g = torch.Generator().manual_seed(sum(shape))
    if name == "float":
        return torch.rand(shape, generator=g, dtype=torch.float64)
    if name == "noise":
        return torch.randint(0, 256, shape, generator=g, dtype=torch.uint8)
    if name == "binary":
        return 255 * torch.randint(0, 2, shape, generator=g, dtype=torch.uint8)
    if name == "low contrast":
        return torch.randint(100, 104, shape, generator=g, dtype=torch.uint8)
    if name == "checkerboard":
        board = (torch.arange(shape[1])[:, None] + torch.arange(shape[2])) % 2
        return (255 * board).to(torch.uint8).expand(shape).contiguous()
    image = torch.full(shape, 77 if name == "constant" else 0, dtype=torch.uint8)
    if name == "dot":
        image[:, shape[1] // 2, shape[2] // 2] = 201
    return image


def everything(made: Plan, batch: int = 512) -> tuple[np.ndarray, np.ndarray]:
    parts = list(images(made, batch))
    return torch.cat([p[0].flatten(1) for p in parts]).numpy(), torch.cat([p[1] for p in parts]).numpy()


def rows(a: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in a}


def handed_over(x: Tensor, threat: Threat, gamma: Tensor, shake: Tensor | float = 0.0) -> np.ndarray:
    moved = threat.transform((levels(x)[0] / 255), gamma[:, None]) + shake
    return (threat.transform.quantize(moved) * 255).round().to(torch.uint8).flatten(1).numpy()


def misses(crossings: Crossings, x: Tensor, threat: Threat, gamma: Tensor) -> int:
    """How many γ give another image than that of the gap around γ or, where γ lies in an event, one not enumerated."""
    every, where = everything(plan(crossings))
    attacked = handed_over(x, threat, gamma)
    gaps = np.flatnonzero(where[:, 0] < where[:, 1])
    gap = gaps[np.clip(np.searchsorted(where[gaps, 0], gamma.numpy()) - 1, 0, None)]
    inside = (where[gap, 0] < gamma.numpy()) & (gamma.numpy() < where[gap, 1])
    wrong = int((attacked[inside] != every[gap[inside]]).any(1).sum())
    assert inside.mean() > 0.99 or len(gamma) < 1000
    known = rows(every)
    return wrong + sum(row.tobytes() not in known for row in attacked[~inside])


@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 5, 5), (3, 4, 6), (2, 5, 4), (1, 7, 7), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("name", ["noise", "float", "binary", "low contrast", "constant", "dot"])
def test_every_attack_is_enumerated(name: str, shape: tuple[int, int, int], generator: torch.Generator) -> None:
    x = picture(name, shape)
    for key in (*THREATS, *OWN):
        threat = threat_of(key)
        crossings = find_crossings(x, threat)
        gamma = threat.box.uniform(4000, generator)[:, 0]
        assert misses(crossings, x, threat, gamma) == 0, key
        made = plan(crossings)
        if not made.bundles and len(crossings):  # where float64 may round either way
            ends = torch.cat((crossings.lower, crossings.upper, (crossings.lower + crossings.upper) / 2))
            some = ends[torch.randperm(len(ends), generator=generator)[:2000]]
            assert rows(handed_over(x, threat, some)) <= rows(everything(made)[0]), key


def test_every_attack_on_a_digit_is_enumerated(generator: torch.Generator) -> None:
    x = load("mnist500").images[7].double() / 255
    threat = Threat.of("rotation", 12)
    crossings = find_crossings(x, threat)
    gamma = torch.cat((threat.box.uniform(30_000, generator)[:, 0], torch.tensor([0.0, *threat.box.lower])))
    assert misses(crossings, x, threat, gamma) == 0
    assert plan(crossings).unresolved == 0
    edges = crossings.upper[:: len(crossings) // 500]
    assert misses(crossings, x, threat, torch.cat((edges + 1e-9, edges - 1e-9))) == 0


def test_an_attack_that_starts_from_rounded_floats_is_enumerated_too() -> None:
    """k/255 in float32 is off by up to 3·10⁻⁸: float64 attacks on those numbers must be among the images."""
    x = load("mnist500").image(7)[:, 4:24, 4:24].contiguous()
    threat = Threat.of("rotation", 6)
    crossings = find_crossings(x, threat)
    order = (crossings.lower[1:] - crossings.upper[:-1]).argsort()[:240]  # the closest neighbours
    ends = (crossings.lower[order + 1], crossings.upper[order])
    gamma = torch.cat((*ends, (ends[0] + ends[1]) / 2, (2 * ends[0] + ends[1]) / 3))
    assert misses(crossings, x.double(), threat, gamma) == 0
    exact = find_crossings((255 * x).round().to(torch.uint8), threat)
    assert float((crossings.upper - crossings.lower).median()) > 10 * float((exact.upper - exact.lower).median())


def exact_levels(x: Tensor, key: str, t: Fraction) -> list[tuple[int, bool]]:
    """255·T_γ x in rational arithmetic, per pixel: floor(V + ½), and whether V lies on a threshold.

    Rotation by 2·atan(t) (sine and cosine are rational), shrinking by t, contrast t, brightness t/255, shear by t,
    wider by t and lower by 1/t.
    """
    channels, height, width = x.shape
    out: list[Fraction] = []
    for c, i, j in product(range(channels), range(height), range(width)):
        own = Fraction(int(x[c, i, j]))
        if key in ("brightness", "contrast"):
            out.append(own + t if key == "brightness" else own * t)
            continue
        y, z = i - Fraction(height - 1, 2), j - Fraction(width - 1, 2)
        if key == "scaling":
            s_y, s_x = t * y, t * z
        elif key == "shear":
            s_y, s_x = y, z - t * y
        elif key == "hyperbola":
            s_y, s_x = t * y, z / t
        else:
            cos, sin = (1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)
            s_y, s_x = cos * y + sin * z, cos * z - sin * y
        s_y, s_x = s_y + Fraction(height - 1, 2), s_x + Fraction(width - 1, 2)
        value = Fraction(0)
        for a, b in product((math.floor(s_y), math.floor(s_y) + 1), (math.floor(s_x), math.floor(s_x) + 1)):
            if 0 <= a < height and 0 <= b < width:
                value += int(x[c, a, b]) * (1 - abs(s_y - a)) * (1 - abs(s_x - b))
        out.append(value)
    clamped = [min(max(v, Fraction(0)), Fraction(255)) for v in out]
    return [(math.floor(v + Fraction(1, 2)), (v + Fraction(1, 2)).denominator == 1) for v in clamped]


EXACT: dict[str, tuple[tuple[str, *tuple[float, ...]], list[Fraction]]] = {
    "rotation": (("rotation", 60), [Fraction(n, d) for d in (3, 5, 7, 16, 97) for n in range(-(d // 2), d // 2)]),
    "scaling": (("scaling", -50, 100), [Fraction(n, d) for d in (6, 7, 10, 16, 255) for n in range(d // 2 + 1, 2 * d)]),
    "brightness": (("brightness", 0.2), [Fraction(n, 6) for n in range(-300, 300)]),
    "contrast": (
        ("contrast", -0.4, 0.375),
        [Fraction(n, d) for d in (17, 154, 402) for n in range(2 * d // 3, 3 * d // 2)],
    ),
}


EXACT_OWN = {
    "shear": [Fraction(n, d) for d in (6, 7, 10, 16, 255) for n in range(-(2 * d) // 3, d // 2)],
    "hyperbola": [Fraction(n, d) for d in (6, 7, 10, 16, 255) for n in range(d // 2 + 1, 7 * d // 4)],
}


@pytest.mark.parametrize("key", [*EXACT, *EXACT_OWN])
@pytest.mark.parametrize("name", ["noise", "binary", "constant", "dot"])
def test_exact_arithmetic_is_enumerated_ties_by_rule(key: str, name: str) -> None:
    """Rational parameters hit thresholds exactly: rounding them up, down or to even is in the enumeration."""
    surface, parameters = EXACT[key] if key in EXACT else ((), EXACT_OWN[key])
    threat = Threat.of(*surface) if surface else threat_of(key)
    ties = 0
    for shape in ((1, 4, 4), (1, 3, 5)):
        x = picture(name, shape)
        made = plan(find_crossings(x, threat))
        assert made.unresolved == 0
        known = rows(everything(made)[0])
        for t in parameters[:: 3 if key in ("scaling", *EXACT_OWN) else 1]:
            rounded = exact_levels(x, key, t)
            ties += any(tie for _, tie in rounded)
            for rule in ("up", "down", "even"):
                image = [v - (tie and (rule == "down" or (rule == "even" and v % 2 == 1))) for v, tie in rounded]
                assert np.array(image, dtype=np.uint8).tobytes() in known, (shape, t, rule)
    assert ties > 0 or key == "rotation" or name == "dot"


@pytest.mark.parametrize("key", ["rotation", "scaling", "shear", "spiral"])
def test_a_sloppy_attacker_is_enumerated(key: str, generator: torch.Generator) -> None:
    x, sloppy = picture("noise", (1, 5, 5)), 1e-5
    threat = threat_of(key)
    crossings = find_crossings(x, threat, tolerance=sloppy)
    made = plan(crossings, limit=1 << 14)
    assert made.bundles == made.unresolved == 0 and made.base.numel() > 20
    known = rows(everything(made)[0])
    near = crossings.lower + (crossings.upper - crossings.lower) * torch.rand(len(crossings), generator=generator)
    for gamma in (near, threat.box.uniform(20_000, generator)[:, 0]):
        shake = torch.randint(-1, 2, (len(gamma), *x.shape), generator=generator) * sloppy * (1 - 1e-9)
        assert rows(handed_over(x, threat, gamma, shake)) <= known


@pytest.mark.parametrize("key", ["rotation", "shear", "spiral"])
def test_dropping_or_moving_one_crossing_is_noticed(key: str, generator: torch.Generator) -> None:
    x, threat = picture("noise", (1, 5, 4)), Threat.of("rotation", 40) if key == "rotation" else threat_of(key)
    crossings = find_crossings(x, threat)
    gamma = threat.box.uniform(20_000, generator)[:, 0]
    assert misses(crossings, x, threat, gamma) == 0
    for event in torch.randperm(len(crossings), generator=generator)[:8].tolist():
        keep = torch.arange(len(crossings)) != event
        assert misses(crossings.take(keep.nonzero()[:, 0]), x, threat, gamma) > 0
        shift = torch.zeros(len(crossings), dtype=torch.float64)
        shift[event] = 1e-2
        late = replace(crossings, lower=crossings.lower + shift, upper=crossings.upper + shift)
        assert misses(late.take(late.upper.argsort()), x, threat, gamma) > 0


def test_events_hold_their_root_tightly() -> None:
    x = picture("noise", (1, 7, 7))
    c = find_crossings(x, Threat.of("rotation", 50))
    assert (c.upper - c.lower).median() < 1e-11 and (c.high - c.low == 1).all() and (c.before != c.after).all()
    assert ((c.before - c.after).abs() == 1).all() and c.lower.min() > c.gamma[0] and c.upper.max() < c.gamma[1]
    for end, level in ((c.lower, c.before), (c.upper, c.after)):
        value = 255 * Rotation()(x.double() / 255, end[:, None]).flatten(1).gather(1, c.pixel[:, None])[:, 0]
        off = (value - level).abs() - 0.5
        assert off.max() < 0 and off.min() > -1e-8


@pytest.mark.parametrize("transform", FLOWS, ids=lambda t: t.name)
def test_slopes_are_derivatives_and_bounds_hold(transform: Flow, generator: torch.Generator) -> None:
    """On random intervals no wider than the stride: V' by autograd, |V'| ≤ steep, |V''| ≤ bend where it is smooth."""
    path = Moved(picture("noise", (1, 5, 6)).double(), transform, (-1.0, 1.0), 1)
    pixel = torch.randint(30, (4000,), generator=generator)
    middle = 2 * torch.rand(4000, generator=generator, dtype=torch.float64) - 1
    half = path.stride / 2 * torch.rand(4000, generator=generator, dtype=torch.float64) ** 2
    look = path.look(pixel, middle, half)
    gamma = middle.clone().requires_grad_()
    value, slope = path.on(look.piece, pixel, gamma)
    (grad,) = torch.autograd.grad(value.sum(), gamma, create_graph=True)
    torch.testing.assert_close(grad, slope)
    torch.testing.assert_close((value, slope), (look.value, look.slope))
    assert 500 < int(look.smooth.sum()) < 4000
    for share in torch.linspace(-1, 1, 21, dtype=torch.float64).tolist():
        at = (middle + share * half).requires_grad_()
        slope = path.on(look.piece, pixel, at)[1]
        (bend,) = torch.autograd.grad(slope.sum(), at)
        smooth = look.smooth
        now = path.look(pixel, at.detach(), 0 * half)
        assert bool((now.piece == look.piece)[smooth].all()), "it stays in its cell"
        assert bool((bend.abs() <= look.bend + 1e-9)[smooth].all())
        assert bool((now.slope.abs() <= look.steep + 1e-9).all())
        assert bool(((now.value - look.value).abs() <= half * look.steep + 1e-9).all())


def test_batches_agree_and_float_pictures_of_8_bits_are_8_bit() -> None:
    x, threat = picture("constant", (3, 4, 5)), Threat.of("scaling", 30)
    made = plan(find_crossings(x, threat))
    assert made.bundles and made.total == len(everything(made)[0])
    same = plan(find_crossings(x.float() / 255, threat))
    for batch in (7, 10_000):
        assert rows(everything(made, batch)[0]) == rows(everything(made)[0])
    assert rows(everything(same)[0]) >= rows(everything(made)[0])  # and ties from the floats


def test_grey_pictures_cover_all_combinations_or_bundle() -> None:
    x, threat = picture("noise", (1, 4, 5)).expand(3, 4, 5).contiguous(), Threat.of("rotation", 8)
    crossings = find_crossings(x, threat)
    apart, together = plan(crossings), plan(crossings, limit=4)
    assert apart.bundles == 0 and (apart.rows >= 4).all() and len(apart.base) <= len(crossings) // 3
    assert together.bundles == len(crossings) // 3 and together.unresolved == 0
    assert together.lower.numel() == len(crossings) // 3 and rows(everything(together)[0]) <= rows(everything(apart)[0])


@pytest.mark.parametrize("key", [*THREATS, *OWN])
@pytest.mark.parametrize("name", ["noise", "binary"])
@pytest.mark.parametrize("step", [1, 2, 16])
def test_equations_vanish_at_their_events(key: str, name: str, step: int) -> None:
    threat = threat_of(key)
    c = find_crossings(picture(name, (1, 5, 4)), threat, step=step)

    def functions(gamma: Tensor) -> Tensor:
        if key in ("brightness", "contrast"):
            t = gamma if key == "brightness" else gamma.exp()
            return torch.stack((t**0, t, *[0 * t] * 4), 1)
        E, C, S = {
            "scaling": ((-gamma).exp(), gamma**0, 0 * gamma),
            "shear": (gamma**0, gamma**0, gamma),
            "hyperbola": (gamma**0, gamma.cosh(), gamma.sinh()),
            "spiral": (gamma.exp(), (2 * gamma).cos(), (2 * gamma).sin() / 2),
        }.get(key, (gamma**0, gamma.cos(), gamma.sin()))
        return torch.stack((gamma**0, E * C, E * S, (E * C) ** 2, E * E * C * S, (E * S) ** 2), 1)

    known = (c.equation != 0).any(1)
    assert (known.double().mean() > 0.9) == (key != "skew")
    left, right = ((c.equation * functions(end)).sum(1)[known] for end in (c.lower, c.upper))
    assert (left * right <= 0).all()  # a root lies inside (at an end, if Γ ends there)


def synthetic(lower: list[float], upper: list[float], equation: list[int], after: list[int]) -> Crossings:
    """One pixel per event, from level 10 to 9 or 11."""
    n, level = len(lower), torch.tensor(after)
    return Crossings(
        start=torch.full((1, 1, n), 10, dtype=torch.uint8),
        gamma=(-1.0, 100.0),
        tolerance=0.0,
        pixel=torch.arange(n),
        lower=torch.tensor(lower).double(),
        upper=torch.tensor(upper).double(),
        before=torch.full((n,), 10),
        after=level,
        low=level.clamp(max=10),
        high=level.clamp(min=10),
        equation=torch.tensor(equation)[:, None] * torch.tensor([2, -1, 0, 0, 0, 0]) + torch.tensor([0, 0, 1, 0, 0, 0]),
    )


def test_only_coinciding_events_are_bundled() -> None:
    chain = plan(synthetic([0, 0.5, 2], [1, 2.5, 3], [1, 5, 1], [11, 11, 11]), limit=1)
    assert chain.bundles == 0 and chain.unresolved == 2  # equal equations, but no point in common
    twice = plan(synthetic([0, 0.5, 10, 10.5], [1, 1.5, 11, 11.5], [1, 1, 1, 1], [11, 11, 11, 11]), limit=3)
    assert twice.bundles == 2 and twice.unresolved == 0
    assert twice.lower.tolist() == [0.5, 10.5] and twice.upper.tolist() == [1, 11]
    different = plan(synthetic([0, 0.5], [1, 1.5], [1, 5], [11, 11]), limit=3)
    assert different.bundles == 0 and different.unresolved == 1
    mixed = everything(plan(synthetic([0, 0.5], [1, 1.5], [1, 1], [11, 9]), limit=1024))[0]
    assert rows(mixed) == {bytes(pair) for pair in product((10, 11), (9, 10))}
    mixed = everything(plan(synthetic([0, 0.5, 0.6], [1, 1.5, 1.6], [1, 1, 1], [11, 9, 11]), limit=7))[0]
    assert rows(mixed) == {bytes(v) for v in ((10, 10, 10), (11, 9, 11), (10, 9, 10), (11, 10, 11))}


def test_cliques_are_all_that_overlap_and_no_more() -> None:
    made = plan(synthetic([0, 1, 2, 4, 6], [3, 5, 9, 4.5, 7], [0] * 5, [11] * 5))
    found = [tuple(sorted(made.crossings.pixel[made.event[made.clique == k]].tolist())) for k in range(len(made.base))]
    assert sorted(found) == [(0, 1, 2), (1, 2, 3), (2, 4)]
    assert made.rows.tolist() == [6, 2, 0], "of 8, 8 and 4, less those of the spine and of the clique before"
    whole = everything(made)[0]
    assert len(whole) == len(rows(whole)) == made.total == 6 + 6 + 2
    touching = synthetic([0, 1], [1, 2], [0, 0], [11, 11])
    assert plan(touching).rows.tolist() == [1] and len(rows(everything(plan(touching))[0])) == 4
    graze = replace(touching, lower=torch.tensor([0.0, 5.0]).double(), upper=torch.tensor([1.0, 6.0]).double())
    graze = replace(graze, after=torch.tensor([10, 11]))  # touches level 11 and comes back
    assert bytes((11, 10)) in rows(everything(plan(graze))[0])


class Spotter:
    """Class 0, except for one image: class 1."""

    def __init__(self, image: Tensor) -> None:
        self.image, self.seen = image.float() / 255, 0

    def __call__(self, z: Tensor) -> Tensor:
        self.seen += len(z)
        hit = (z == self.image).flatten(1).all(1).float()
        return torch.stack((1 - hit, hit), 1)


@pytest.mark.parametrize("key", ["rotation", "scaling", "contrast", "shear", "skew"])
def test_one_wrong_image_is_found_and_real(key: str, generator: torch.Generator) -> None:
    x, threat = picture("noise", (1, 5, 6)), threat_of(key)
    every, where = everything(plan(find_crossings(x, threat)))
    gaps = np.flatnonzero(where[:, 0] < where[:, 1])
    pick = torch.randint(len(gaps), (6,), generator=generator).tolist()
    for row in (gaps[0], gaps[-1], *gaps[pick]):
        target = torch.from_numpy(every[row]).view(x.shape)
        verdict = verify(Spotter(target), x, threat, label=0, terms=Terms(batch=100))
        assert not verdict.verified and verdict.gamma is not None and verdict.image is not None
        assert torch.equal(verdict.image, target) and threat.box.contains((verdict.gamma,))
        gamma = torch.tensor([verdict.gamma], dtype=torch.float64)
        assert handed_over(x, threat, gamma).tobytes() == target.numpy().tobytes()
        assert "differently" in verdict.reason


def test_agreement_is_a_proof_and_counts_are_told() -> None:
    x, threat = picture("noise", (1, 5, 6)), Threat.of("rotation", 30)
    spotter = Spotter(torch.full(x.shape, 3))
    verdict = verify(spotter, x, threat, terms=Terms(batch=64))
    assert verdict.verified and verdict.label == 0 and verdict.gamma is None and verdict.scope == "tolerance"
    assert verdict.images == verdict.evaluated > verdict.crossings > 1000
    assert verdict.evaluated == plan(find_crossings(x, threat)).total + 1  # x itself is asked about from both sides
    assert verdict.smallest_margin == 1 and spotter.seen == verdict.evaluated + 255 + 1


def test_an_image_that_no_parameter_produces_leaves_it_open() -> None:
    x, threat = picture("noise", (1, 4, 4)).expand(3, 4, 4).contiguous(), Threat.of("rotation", 5)
    every, where = everything(plan(find_crossings(x, threat)))
    coloured = np.flatnonzero((where[:, 0] >= where[:, 1]) & (every[:, :16] != every[:, 16:32]).any(1))
    target = torch.from_numpy(every[coloured[len(coloured) // 2]]).view(x.shape)
    verdict = verify(Spotter(target), x, threat, label=0)
    assert not verdict.verified and verdict.gamma is None and verdict.reason.startswith("undecided")
    verdict = verify(Spotter(target), x, threat, label=0, terms=Terms(limit=4))  # in exact arithmetic grey stays grey
    assert verdict.verified and verdict.scope == "exact"


def test_a_thin_margin_or_nan_leaves_it_open() -> None:
    x, threat = picture("noise", (1, 4, 4)), Threat.of("rotation", 5)
    for logits in ([1.0, 1.0 - 1e-6], [math.nan, 0.0]):
        verdict = verify(lambda z, logits=logits: torch.tensor(logits).expand(len(z), 2), x, threat, label=0)
        assert not verdict.verified and verdict.gamma is None and "lead is too small" in verdict.reason


def test_too_many_combinations_are_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    board = picture("checkerboard", (1, 7, 7))
    spotter, threat = Spotter(torch.full(board.shape, 3)), Threat.of("scaling", -60, 80)
    patient = verify(spotter, board, threat)
    assert patient.verified and patient.scope == "program"
    monkeypatch.setattr(enumeration, "_ROOM", 0)
    verdict = verify(spotter, board, threat)
    assert not verdict.verified and verdict.gamma is None and verdict.unresolved > 0 and "overlap" in verdict.reason
    on_threshold = torch.full((1, 4, 4), 100.5 / 255, dtype=torch.float64)
    verdict = verify(Spotter(board[:, :4, :4]), on_threshold, Threat.of("contrast", 0, 1e-13), label=0)
    assert not verdict.verified and verdict.unresolved == 1


def test_gamma_may_be_a_point_or_one_sided() -> None:
    x = picture("noise", (1, 5, 5))
    spotter = Spotter(torch.full(x.shape, 3))
    point = verify(spotter, x, Threat(Rotation(), Box((0.0,), (0.0,))))
    assert point.verified and point.evaluated == 1 and point.crossings == 0
    whole = len(find_crossings(x, Threat.of("rotation", 20)))
    sides = [len(find_crossings(x, Threat.of("rotation", *ends))) for ends in ((-20, 0), (0, 20))]
    assert sum(sides) == whole


@pytest.mark.parametrize(
    ("x", "threat", "tolerance", "words"),
    [
        (torch.zeros(1, 4, 4), Threat.of("rotation", 5, quantized=False), 0.0, "do not round"),
        (torch.zeros(1, 4, 4), Threat.of("rotation", 5, interpolation="bicubic"), 0.0, "bilinear"),
        (torch.zeros(1, 4, 4), Threat.of("translation", 1), 0.0, "translation"),
        (torch.zeros(4, 4), Threat.of("rotation", 5), 0.0, "shape"),
        (torch.full((1, 4, 4), 1.5), Threat.of("rotation", 5), 0.0, "scale"),
        (torch.zeros(1, 4, 4), Threat.of("rotation", 5), 0.01, "tolerance"),
    ],
)
def test_errors_say_what_to_do(x: Tensor, threat: Threat, tolerance: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        find_crossings(x, threat, tolerance)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("key", list(THREATS))
def test_the_gpu_finds_the_same(key: str) -> None:
    x, threat = picture("noise", (3, 6, 5)), threat_of(key)
    here, there = find_crossings(x, threat), find_crossings(x.cuda(), threat)
    assert len(here) == len(there) and torch.equal(here.start, there.start.cpu())
    assert (here.upper - there.upper.cpu()).abs().max() < 1e-9
    made = plan(there)
    assert {r.tobytes() for p in images(made) for r in p[0].flatten(1).cpu().numpy()} == rows(everything(plan(here))[0])
    assert verify(Spotter(torch.full(x.shape, 3).cuda()), x.cuda(), threat, label=0).verified
