"""Coinciding crossings: the package's own attack, in floating point, produces no picture that was not enumerated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, final

import pytest
import torch
from test_crossings import everything, rows
from torch import Tensor

from warpcert import certificates, methods
from warpcert.certificates import Exhausted
from warpcert.classifier import Levels, Plain
from warpcert.classifier.before.rounding import level
from warpcert.exhaustive import enumeration
from warpcert.exhaustive.enumeration import Plan, images, plan
from warpcert.exhaustive.events import isolation
from warpcert.exhaustive.events import programs as following
from warpcert.exhaustive.events.crossings import Crossings, find_crossings
from warpcert.exhaustive.events.programs import Program, Tied, programs, switches
from warpcert.exhaustive.verify import Terms, verify
from warpcert.threat import Threat
from warpcert.transforms import Box, Tone


@final
class Fading(Tone):
    """Contrast about the middle: dark values sink while bright ones rise."""

    name = noun = "fading"
    unit: ClassVar[str] = ""
    unit_name: ClassVar[str] = ""
    composition: ClassVar[str] = "parameters add"
    pivot: ClassVar[float | None] = 0.5


THREATS = {
    "brightness": Threat.of("brightness", 0.011),
    "darker": Threat.of("brightness", -0.3, 0),
    "contrast": Threat.of("contrast", -0.2, 0.2),
    "fading": Threat(Fading(), Box((-0.3,), (0.2,))),
}


VALUES = {  # many of which meet their thresholds together
    "brightness": (3, 10, 17, 64, 100, 129, 200, 251),
    "darker": (3, 10, 17, 64, 100, 129, 200, 251),
    "contrast": (12, 36, 60, 84, 108, 132, 156, 204),
    "fading": (131, 124, 138, 117, 145, 110, 152, 103),
}


MOVED = {"scaling": Threat.of("scaling", -12, 15), "shear": Threat.of("shear", 12)}


def mirrored(kind: str, floats: bool = False) -> Tensor:
    """Pictures of which many pixels meet their thresholds together when they are scaled or sheared."""
    g = torch.Generator().manual_seed(4)
    x = torch.randint(0, 256, (6, 6), generator=g)
    if kind == "flat":
        x = torch.full_like(x, 201)
    elif kind == "dyadic":
        x = 2 ** (3 + x % 5)
    elif kind == "symmetric":
        for turned in (x.flip(0), x.flip(1), x.T):
            x = torch.maximum(x, turned)
        x = torch.maximum(torch.maximum(x, x.flip(0)), x.flip(1))
    x = x.to(torch.uint8).repeat(3, 1, 1)
    return x.float() / 255 if floats else x


def busy(key: str, floats: bool = False) -> Tensor:
    g = torch.Generator().manual_seed(3)
    x = torch.tensor(VALUES[key])[torch.randint(0, 8, (3, 6, 6), generator=g)].to(torch.uint8)
    return x.float() / 255 if floats else x


class Known:
    """The pictures of one half of a plan, by hash, with the least onset of each."""

    def __init__(self, made: Plan) -> None:
        g = torch.Generator().manual_seed(1)
        self.key = torch.randint(-(2**62), 2**62, (made.crossings.start.numel(),), generator=g)
        parts = [(self.hash(image), where[:, 2]) for image, where in images(made, 4096)]
        every, onset = (torch.cat(each) for each in zip(*parts, strict=True))
        self.every, number = every.unique(return_inverse=True)
        self.onset = torch.full(self.every.shape, torch.inf, dtype=torch.float64)
        self.onset.scatter_reduce_(0, number, onset, "amin")

    def hash(self, image: Tensor) -> Tensor:
        return (image.flatten(1).long() * self.key).sum(1)

    def missing(self, image: Tensor, gamma: Tensor) -> Tensor:
        wanted = self.hash(image)
        at = torch.searchsorted(self.every, wanted).clamp_(max=len(self.every) - 1)
        return (self.every[at] != wanted) | (self.onset[at] > gamma)


def beside(gamma: Tensor, count: int) -> Tensor:
    """The `count` representable numbers on each side of every γ, in its type."""
    bits = torch.int64 if gamma.dtype == torch.float64 else torch.int32
    away = torch.arange(-count, count + 1, dtype=bits)
    sign = torch.where(gamma.view(bits) < 0, -1, 1).to(bits)
    return (gamma.view(bits)[:, None] + (sign[:, None] * away).to(bits)).view(gamma.dtype)


def attacks(c: Crossings, made: Plan, threat: Threat, dtype: torch.dtype, count: int) -> Iterator[Tensor]:
    """Around each tie: all γ next to those at which a pixel switches, next to the tie itself, at random on the
    intervals of its events, and at all distances.
    """
    g = torch.Generator().manual_seed(2)
    low, high = threat.box.lower[0], threat.box.upper[0]
    if not made.bundles:
        return
    bundled = made.bundled[made.step].nonzero()[:, 0]
    lower, upper, step = (t[bundled] for t in (made.crossings.lower, made.crossings.upper, made.step))
    turns = [turned_at(program, made.crossings, bundled) for program in made.crossings.programs]
    ties = made.bundled.nonzero()[:, 0]
    for tie in ties[torch.linspace(0, len(ties) - 1, min(len(ties), 6)).long()].tolist():
        own = step == tie
        gamma = torch.cat([moment[own[event]] for event, moment in turns]).unique()
        middle = (lower[own].max() + upper[own].min()) / 2
        turn = torch.cat((gamma[gamma.isfinite()], middle[None], *_around(middle, g))).to(dtype)
        turn = turn[torch.randperm(len(turn), generator=g)[:2000]]
        near = beside(turn, max(8, count // (3 * len(turn)))).flatten()
        a, b = float(lower[own].min()), float(upper[own].max())
        at_random = a + (b - a) * torch.rand(count // 3, generator=g, dtype=torch.float64)
        far = 10 ** (-17 + 8 * torch.rand(count // 3, generator=g, dtype=torch.float64))
        far = middle + far * (2 * torch.randint(0, 2, far.shape, generator=g) - 1)
        gamma = torch.cat((near, at_random.to(dtype), far.to(dtype)))
        yield gamma[(gamma.double() >= low) & (gamma.double() <= high)]


def turned_at(program: Program, c: Crossings, event: Tensor) -> tuple[Tensor, Tensor]:
    """Which of the events turn, and at which γ, roughly."""
    found = program.turns(c.tied(event))
    assert found is not None
    s = found[1]
    transform: Any = program.transform  # type: ignore[attr-defined]
    if isinstance(transform, Tone):
        gamma = s if transform.pivot is None else s.log()
    else:
        rate = transform.generator[0][0]
        gamma = s.log() / rate if rate else s
    return found[0], -gamma if c.turned else gamma


def _around(middle: Tensor, g: torch.Generator) -> list[Tensor]:
    """Where e^γ, computed, takes its next values."""
    return [middle + k * 2.0**-53 * torch.arange(-40, 41, dtype=torch.float64) for k in (0.5, 1.0)]


def missed(x: Tensor, threat: Threat, step: int, dtype: torch.dtype, count: int, c: Crossings | None = None) -> int:
    """How many attacks of `Threat.attacked`, in floating point, were not enumerated, or with too late an onset."""
    every = find_crossings(x, threat, threat.off_by, step)
    starts = [x.to(dtype)] if x.is_floating_point() else []
    starts += [(255 * x.double()).round().to(dtype) / 255 if starts else x.to(dtype) / 255]
    wrong = tried = 0
    for side in (1, -1):
        true, half = (_half(one, side) for one in (every, c or every))
        made = plan(half)
        assert made.unresolved == 0
        known = Known(made)
        for gamma in attacks(true, plan(true), _turned(threat, side), dtype, count):
            for start in starts:
                for some in gamma.split(20_000):
                    handed = level(threat.attacked(start, side * some[:, None]), step)
                    wrong += int(known.missing(handed, some.double()).sum())
                tried += len(gamma)
    assert tried or not plan(every).bundles
    return wrong


def _half(c: Crossings, side: int) -> Crossings:
    return (c if side > 0 else c.mirrored()).from_zero()


def _turned(threat: Threat, side: int) -> Threat:
    return replace(threat, box=Box((0.0,), (max(0.0, side * threat.box.upper[0], side * threat.box.lower[0]),)))


@pytest.mark.parametrize("key", list(THREATS))
@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("step", [1, 8])
def test_every_attack_in_float64_is_enumerated(key: str, floats: bool, step: int) -> None:
    x, threat = busy(key, floats), THREATS[key]
    c = find_crossings(x, threat, threat.off_by, step)
    assert len(c.programs) == 1 + floats and plan(c).bundles and plan(c).followed
    assert missed(x, threat, step, torch.float64, 100_000 if step == 1 else 10_000, c) == 0


@pytest.mark.parametrize(
    ("key", "kind", "floats", "step"),
    [
        ("scaling", "random", True, 8),
        ("scaling", "flat", False, 1),
        ("scaling", "symmetric", True, 8),
        ("scaling", "symmetric", False, 1),
        ("scaling", "dyadic", False, 1),
    ],
)
def test_every_attack_by_a_flow_in_float64_is_enumerated(key: str, kind: str, floats: bool, step: int) -> None:
    x, threat = mirrored(kind, floats), MOVED[key]
    c = find_crossings(x, threat, threat.off_by, step)
    halves = [plan(_half(c, side)) for side in (1, -1)]
    assert len(c.programs) == 1 + floats and all(half.followed for half in halves if half.bundles)
    assert any(half.bundles for half in halves) or kind == "random"
    assert missed(x, threat, step, torch.float64, 1000) == 0


def test_a_plan_is_followed_as_long_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that exact arithmetic keeps and the programs do not: more pictures, but an attacker who exists."""
    x, threat = mirrored("symmetric", True), MOVED["scaling"]
    half = _half(find_crossings(x, threat, threat.off_by, 8), 1)
    limit = next(n for n in (2, 4, 8, 16, 32) if not plan(replace(half, programs=()), n).unresolved)
    with monkeypatch.context() as m:
        m.setattr(enumeration, "_ROOM", 0)
        left = plan(half, limit)
    patient = plan(half, limit)
    assert left.bundles and not left.followed and not left.unresolved
    assert patient.followed and patient.total > left.total and patient.bundles == left.bundles


def test_exact_arithmetic_misses_attacks_by_a_flow() -> None:
    """The same attacks all are among the pictures of the program."""
    x, threat = mirrored("symmetric"), MOVED["scaling"]
    exactly = replace(find_crossings(x, threat), programs=())
    assert missed(x, threat, 1, torch.float64, 1000, exactly) > 0


@pytest.mark.parametrize("key", list(MOVED))
def test_turns_of_a_flow_are_those_of_all_numbers_around(key: str) -> None:
    """Tried one by one, far beyond most windows: before the first turn, between, and after the last."""
    x, threat = mirrored("symmetric", True), MOVED[key]
    c = find_crossings(x, threat)
    tied = c.tied((c.lower.abs() > 0.06).nonzero()[::4, 0])
    rising = tied.rises == (threat.transform.direction > 0)  # type: ignore[attr-defined]
    for program in c.programs:
        found = program.turns(tied)
        assert found is not None
        times = torch.bincount(found[0], minlength=len(tied.pixel))
        assert bool((times % 2 == 1).all()) and int(times.max()) > 1
        for i in (*times.argsort(descending=True)[:12].tolist(), *range(0, len(times), 1 + len(times) // 12)):
            turns = found[1][found[0] == i]
            s = beside(turns[:1], 4000)[0]
            happened = program.passed(tied.pixel[i].expand(len(s)), s, tied.least[i]) == rising[i]
            assert torch.equal(happened, torch.searchsorted(turns, s, right=True) % 2 > 0)


@pytest.mark.parametrize("key", list(THREATS))
def test_within_a_larger_tolerance_float32_is_enumerated_too(key: str) -> None:
    x, threat = busy(key, True), replace(THREATS[key], tolerance=1e-6)
    assert threat.floats == ("float64", "float32") and THREATS[key].floats == ("float64",)
    for dtype in (torch.float32, torch.float64):
        assert missed(x, threat, 1, dtype, 20_000) == 0
    assert replace(threat, tolerance=1e-17).floats == replace(threat, quantized=False).floats == ()
    assert not find_crossings(x, threat, 1e-17).programs
    assert not plan(find_crossings(x, threat, 1e-17)).followed, "less exact than it is claimed to be"


def test_the_second_tie_of_brightness() -> None:
    """γ = 1.5/255: no picture of exact arithmetic has the pixels there that float64 gives."""
    x, threat = torch.arange(256, dtype=torch.uint8).view(1, 16, 16), Threat.of("brightness", 0.01)
    c = find_crossings(x, threat)
    handed = level(threat.attacked(x.double() / 255, torch.tensor([[1.5 / 255]], dtype=torch.float64)), 1)
    before = plan(replace(c, programs=()))
    assert before.bundles and not before.followed
    wanted = rows(handed.flatten(1).numpy())
    assert not wanted <= rows(everything(before)[0]) and wanted <= rows(everything(plan(c))[0])


@pytest.mark.parametrize("key", ["brightness", "darker"])
def test_a_tie_alone_is_asked_about_without_what_is_before_and_after_it(key: str) -> None:
    """Those two are images of the spine, and of the others none is."""
    made = plan(find_crossings(busy(key), THREATS[key]))
    pictures, _ = everything(made)
    spine, members = len(made.lower) + 1, torch.bincount(made.clique, minlength=len(made.base))
    ties = made.bundled[made.base] & (members == torch.bincount(made.step)[made.base])
    states = torch.zeros_like(made.rows).scatter_reduce(0, made.clique, made.states, "amax")
    assert ties.any() and torch.equal(made.rows[ties], states[ties] - 2)
    assert len(pictures) == spine + int(made.rows.sum()) == made.total
    assert not rows(pictures[:spine]) & rows(pictures[spine:])


@final
class Merged(Program):
    """Takes two neighbouring moments of a program for one, at one of the ties."""

    def __init__(self, program: Program, number: int) -> None:
        self.program, self.number, self.direction = program, number, program.direction
        self.start, self.transform = program.start, program.transform  # type: ignore[attr-defined]

    def rises(self, pixel: Tensor, rises: Tensor) -> Tensor:
        return self.program.rises(pixel, rises)

    def value(self, pixel: Tensor, s: Tensor) -> Tensor:
        return self.program.value(pixel, s)

    def turns(self, tied: Tied) -> tuple[Tensor, Tensor] | None:
        found = self.program.turns(tied)
        assert found is not None
        moments = found[1].unique()
        apart = (moments.diff() < 1e-14).nonzero()[:, 0]
        if not len(apart):
            return found
        pair = moments[apart[self.number % len(apart)] :][:2]
        return found[0], torch.where(found[1] == pair[0], pair[1], found[1])


@pytest.mark.parametrize("key", ["brightness", "darker"])
def test_a_moment_that_is_left_out_is_noticed(key: str) -> None:
    threat = replace(THREATS[key], box=Box((-0.007,), (0.0,)) if key == "darker" else Box((0.0,), (0.007,)))
    x = busy(key)
    c = find_crossings(x, threat)
    assert missed(x, threat, 1, torch.float64, 3000, c) == 0
    every, fewer = rows(everything(plan(c))[0]), 0
    for number in range(12):
        other = replace(c, programs=tuple(Merged(program, number) for program in c.programs))
        if rows(everything(plan(other))[0]) != every:  # no tie of exact arithmetic looks the same
            assert missed(x, threat, 1, torch.float64, 3000, other) > 0
            fewer += 1
    assert fewer


def test_thresholds_looked_for_in_half_of_the_range_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, threat = busy("brightness"), THREATS["brightness"]

    def half(program: Program, pixel: Tensor, least: Tensor, ends: tuple[float, float]) -> Tensor:
        return switches(program, pixel, least, (ends[0] / 2, ends[1] / 2))

    monkeypatch.setattr(following, "switches", half)
    assert missed(x, threat, 1, torch.float64, 3000) > 0


@pytest.mark.parametrize("off", [-1, 1])
def test_a_threshold_at_another_level_is_noticed(off: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, threat = busy("brightness"), THREATS["brightness"]

    def other(program: Program, pixel: Tensor, least: Tensor, ends: tuple[float, float]) -> Tensor:
        return switches(program, pixel, torch.where(pixel % 2 == 0, least, least + off), ends)

    monkeypatch.setattr(following, "switches", other)
    assert missed(x, threat, 1, torch.float64, 3000) > 0


@pytest.mark.parametrize("key", list(THREATS))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_thresholds_are_the_first_numbers_that_pass_them(key: str, dtype: torch.dtype) -> None:
    """Against the attack itself, with the neighbours of each threshold and others far away."""
    threat, x = replace(THREATS[key], tolerance=1e-6), busy(key)
    c = find_crossings(x, threat, 1e-6)
    for program in (p for p in programs(threat, x, x.double(), 1e-6) if p.start.dtype == dtype):
        rises = program.rises(c.pixel, c.after > c.before)
        assert torch.equal(rises, c.after > c.before)
        t = switches(program, c.pixel, c.high, c.gamma)
        s = t.to(dtype)
        assert bool(t.isfinite().any()) and torch.equal(s.double(), t)
        for number in (s, torch.nextafter(s, s + 1), 1.1 * s.abs(), s + 1e-3):
            passed = program.passed(c.pixel, number, c.high) == rises
            assert bool((passed == (number >= s))[t.isfinite()].all())
        below = torch.nextafter(s, s - 1)
        assert not bool((program.passed(c.pixel, below, c.high) == rises)[t.isfinite()].any())


@final
class Numbered(Program):
    """Pixels turn in their order."""

    direction = 1

    def rises(self, pixel: Tensor, rises: Tensor) -> Tensor:
        return rises

    def value(self, pixel: Tensor, s: Tensor) -> Tensor:
        raise AssertionError

    def turns(self, tied: Tied) -> tuple[Tensor, Tensor] | None:
        return torch.arange(len(tied.pixel)), tied.pixel.double()


def test_neighbours_that_meet_another_event_of_their_pixel_are_not_followed() -> None:
    """Two bundles whose intervals overlap, one pixel in both: which of its levels holds cannot be told."""
    level, key = torch.tensor([10, 10, 11, 11]), torch.tensor([[2, -1, 0, 0, 0, 0]] * 2 + [[3, -1, 0, 0, 0, 0]] * 2)

    def made(lower: list[float], upper: list[float]) -> Plan:
        ends = torch.tensor(lower).double(), torch.tensor(upper).double()
        start, pixel = torch.tensor([[[10, 10, 11]]], dtype=torch.uint8), torch.tensor([0, 1, 0, 2])
        columns = (pixel, *ends, level, level + 1, level, level + 1, key)
        found = Crossings(start, (-1.0, 100.0), 0.0, *columns, (Numbered(),)).take(ends[1].argsort())
        return plan(found, limit=3)

    apart, together = made([0, 0.5, 10, 10.5], [1, 1.5, 11, 11.5]), made([0, 0.5, 2, 1.8], [1, 3.0, 4, 3.5])
    assert apart.bundles == together.bundles == 2 and apart.followed and not together.followed


class Even(torch.nn.Module):
    """Class 1 where the first two pixels of the first row are not 64 levels apart."""

    def forward(self, z: Tensor) -> Tensor:
        value = (255 * z[:, 0, 0, :2]).round()
        odd = (value[:, 0] - value[:, 1] != 64).float()
        return torch.stack((1 - odd, odd), 1)


@pytest.mark.parametrize("step", [1, 8])
def test_certificates_name_the_program_and_hold_for_it(step: int) -> None:
    """100 and 36 reach their thresholds at the same γ: not in float64."""
    x, threat = torch.tensor([100, 36], dtype=torch.uint8).repeat(1, 6, 3), Threat.of("brightness", 0.1)
    f: Any = Levels(Even().eval(), 8) if step == 8 else Plain(Even().eval())
    made = methods.certify(f, x.float() / 255, threat, method="exact")
    assert isinstance(made, Exhausted) and made.found is not None and certificates.read(made.to_dict()) == made
    assert made.found.scope == "program" and made.reach is not None and made.reach != threat.box
    said = "computes x + γ in float64, clamps, multiplies by 255 and rounds half to even"
    assert said in str(made) and "exactly" not in str(made)
    ties = torch.arange(-25, 26, dtype=torch.float64)[:, None] + 0.5
    gamma = beside((ties / 255).flatten(), 300).reshape(-1, 1)
    gamma = torch.cat((gamma, made.reach.uniform(10_000, torch.Generator().manual_seed(1))))
    for start in (x.double() / 255, (x.float() / 255).double()):
        wrong = f(threat.attacked(start, gamma).float()).argmax(1) != made.label
        assert not any(made.reach.contains((g,)) for g in gamma[wrong, 0].tolist())
    fewer = methods.certify(f, x.float() / 255, threat, method="exact", eight_bit=True)
    assert isinstance(fewer, Exhausted) and fewer.found is not None and certificates.read(fewer.to_dict()) == fewer
    assert fewer.found.scope == "program" and "in float64 from the 8-bit picture, clamps" in str(fewer)
    wrong = f(threat.attacked(x.double() / 255, gamma).float()).argmax(1) != fewer.label
    assert fewer.reach is not None and not any(fewer.reach.contains((g,)) for g in gamma[wrong, 0].tolist())
    with pytest.raises(ValueError, match="not an 8-bit one"):
        methods.certify(f, 0.99 * x.float() / 255, threat, method="exact", eight_bit=True)
    still = verify(f, x, Threat.of("rotation", 1), terms=Terms(step=step))
    assert still.scope != "program"


class Steeper:
    """A path of V = 10γ that takes itself for four times as steep: Newton's widths are too small then."""

    top = 255

    def on(self, piece: Tensor, pixel: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        return 10 * gamma, torch.full_like(gamma, 40.0)


@pytest.mark.parametrize("rising", [1.0, -1.0])
def test_ends_of_events_are_proved_by_values_and_not_by_slopes(rising: float) -> None:
    """Outside of an event the value is beyond the threshold by the whole margin."""
    one, margin, path = torch.zeros(1, dtype=torch.int64), 1e-3, Steeper()
    if rising < 0:
        path.on = lambda piece, pixel, gamma: (100 - 10 * gamma, torch.full_like(gamma, -40.0))  # type: ignore[method-assign]
    interval = one, torch.tensor([1.0], dtype=torch.float64), torch.tensor([3.0], dtype=torch.float64)
    found: Any = isolation._cross(path, one, torch.tensor([rising]).double(), interval, margin)  # type: ignore[arg-type]
    _, lower, upper, level, *_ = found
    assert len(level) == 20
    beyond = [rising * (path.on(one, one, end)[0] - level - 0.5) for end in (lower, upper)]
    assert bool((beyond[0] <= -margin).all()) and bool((beyond[1] >= margin).all())


def test_certificates_of_scaling_name_the_program() -> None:
    f = Levels(Even().eval(), 8)
    made = methods.certify(f, mirrored("symmetric", True), Threat.of("scaling", 10), method="exact")
    assert isinstance(made, Exhausted) and made.found is not None and certificates.read(made.to_dict()) == made
    assert made.found.scope == "program"
    assert "who computes e^(−γ)·p in float64, interpolates in the order of Threat.attacked, clamps" in str(made)
