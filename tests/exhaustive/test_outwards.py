"""The walk outwards: what it holds survives a dense search, and right behind its end something fails."""

from __future__ import annotations

import itertools
import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_crossings import OWN
from torch import Tensor

from warpcert import certificates, methods
from warpcert.certificates import Exhausted
from warpcert.classifier import Levels, Plain
from warpcert.exhaustive import sight
from warpcert.exhaustive import verify as walk
from warpcert.exhaustive.enumeration import Chunks, Plan, images, plan
from warpcert.exhaustive.events.crossings import find_crossings, levels
from warpcert.exhaustive.judge import Judge
from warpcert.exhaustive.verify import Terms, Verdict, verify
from warpcert.runs.summary import Row, accuracy_curve, summarise
from warpcert.threat import Threat
from warpcert.transforms import Box

THREATS = {
    "rotation": ("rotation", -50, 35),
    "scaling": ("scaling", -40, 60),
    "brightness": ("brightness", 0.3),
    "contrast": ("contrast", -0.5, 0.44),
}


def threat_of(key: str) -> Threat:
    return Threat(OWN[key], Box((-0.9,), (0.8,))) if key in OWN else Threat.of(*THREATS[key])


def unprobed(judge: Judge, count: int) -> Tensor:
    """In place of `Judge.probe`."""
    return torch.zeros(count - 1, dtype=torch.float64)


def noise(seed: int, shape: tuple[int, int, int] = (1, 5, 5)) -> Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def handed_over(x: Tensor, threat: Threat, gamma: Tensor, shake: Tensor | float = 0.0) -> Tensor:
    moved = threat.transform(levels(x)[0] / 255, gamma[:, None]) + shake
    return (threat.transform.quantize(moved) * 255).round().to(torch.uint8)


class Affine:
    """Eight classes of random directions around the picture: as γ grows, the answer changes somewhere."""

    def __init__(self, x: Tensor, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        self.x = x.flatten().float() / 255
        self.weight = torch.randn(8, x.numel(), generator=g)
        self.bias = torch.tensor([0.3, *[0.0] * 7])

    def __call__(self, z: Tensor) -> Tensor:
        return (z.flatten(1) - self.x) @ self.weight.T + self.bias


class Spotter:
    """Class 0, except for some images: class 1."""

    def __init__(self, *targets: Tensor) -> None:
        self.targets = torch.stack(targets).flatten(1).float() / 255

    def __call__(self, z: Tensor) -> Tensor:
        hit = (z.flatten(1)[:, None] == self.targets).all(2).any(1).float()
        return torch.stack((1 - hit, hit), 1)


def errors(f: Any, x: Tensor, threat: Threat, held: float, label: int = 0, count: int = 20_000) -> int:
    """How many γ ∈ held·Γ of a dense search, with its ends, are not answered with the label."""
    box = threat.box.scaled(held)
    ends = torch.tensor([*box.lower, *box.upper], dtype=torch.float64)
    near = (1 - 10.0 ** -torch.arange(3, 12, dtype=torch.float64))[:, None]
    gamma = torch.cat((box.grid(count)[:, 0], ends, (near * ends).flatten()))
    return sum(int((f(handed_over(x, threat, g).float() / 255).argmax(1) != label).sum()) for g in gamma.split(4096))


def check(verdict: Verdict, f: Any, x: Tensor, threat: Threat) -> None:
    """Sound by search, a real counterexample, and an end that cannot be moved by more than an event and 1e-9."""
    assert verdict.held is not None and 0 < verdict.held < 1
    assert errors(f, x, threat, verdict.held) == 0
    assert verdict.gamma is not None and verdict.image is not None
    found = handed_over(x, threat, torch.tensor([verdict.gamma], dtype=torch.float64))[0]
    assert torch.equal(found, verdict.image) and int(f(found[None].float() / 255).argmax()) != 0
    assert not threat.box.scaled(verdict.held).contains((verdict.gamma,)) and threat.box.contains((verdict.gamma,))
    behind = torch.tensor([*threat.box.lower, *threat.box.upper], dtype=torch.float64) * verdict.held
    behind += 1e-9 * behind.sign()
    found = handed_over(x, threat, behind)
    if verdict.scope == "program":  # in the middle of a tie, a picture may be handed over at a single γ
        found = torch.cat((found, *(within(x, threat, end, verdict.held) for end in (-1, 1))))
    assert bool((f(found.float() / 255).argmax(1) != 0).any())


def within(x: Tensor, threat: Threat, side: int, held: float) -> Tensor:
    """The enumerated images right behind the end on one side of γ = 0."""
    far = abs((threat.box.lower if side < 0 else threat.box.upper)[0])
    ends = (0.0, far) if side > 0 else (-far, 0.0)
    c = find_crossings(x, replace(threat, box=Box(ends[:1], ends[1:])))
    image, where = (torch.cat(e) for e in zip(*images(plan(c if side > 0 else c.mirrored())), strict=True))
    return image[((where[:, 2] / far - held).abs() < 1e-9).nonzero()[:, 0]]


@pytest.mark.parametrize("key", [*THREATS, "skew", "spiral"])
@pytest.mark.parametrize("seed", range(4))
def test_the_range_is_sound_and_cannot_be_wider(key: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, threat = noise(seed), threat_of(key)
    f = Affine(x, seed)
    verdict = verify(f, x, threat, terms=Terms(batch=100))
    check(verdict, f, x, threat)
    assert (verdict.scope == "program") == (key == "brightness") and verdict.smallest_margin > 1e-4
    assert verdict.images <= verdict.evaluated and verdict.label == 0
    monkeypatch.setattr(Judge, "probe", unprobed)
    again = verify(f, x, threat, terms=Terms(batch=100))
    assert again.held == pytest.approx(verdict.held, abs=1e-10) and again.gamma is not None


def spines(x: Tensor, threat: Threat, side: int) -> tuple[Tensor, Tensor]:
    """The images between events on one side of γ = 0, and between which |γ| they occur."""
    ends = (0.0, threat.box.upper[0]) if side > 0 else (threat.box.lower[0], 0.0)
    half = find_crossings(x, replace(threat, box=Box(ends[:1], ends[1:])))
    image, where = (torch.cat(each) for each in zip(*images(plan(half)), strict=True))
    sure = where[:, 0] < where[:, 1]
    return image[sure], where[sure, :2].abs()


@pytest.mark.parametrize("key", ["rotation", "scaling", "brightness", "shear"])
def test_one_wrong_image_ends_the_range_at_its_own_event(key: str, generator: torch.Generator) -> None:
    x, threat = noise(7), threat_of(key)
    ends = {1: threat.box.upper[0], -1: -threat.box.lower[0]}
    every = {side: spines(x, threat, side) for side in ends}
    for turn in range(6):
        pick = {s: int(torch.randint(3, len(every[s][0]) - 3, (1,), generator=generator)) for s in ends}
        sides = (1,) if turn == 0 else (-1,) if turn == 1 else (1, -1)
        f = Spotter(*(every[s][0][pick[s]] for s in sides))
        verdicts = [verify(f, x, threat, label=0, terms=Terms(batch=batch)) for batch in (9, 256, 1 << 14)]
        assert len({v.held for v in verdicts}) == 1
        starts = {s: float(every[s][1][pick[s]].min()) / ends[s] for s in sides}
        nearest = min(starts, key=lambda s: starts[s])
        held = verdicts[0].held
        assert held is not None and starts[nearest] - 1e-9 < held < starts[nearest]
        assert verdicts[0].gamma is not None and math.copysign(1, verdicts[0].gamma) == nearest
        check(verdicts[1], f, x, threat)
        assert verdicts[0].evaluated <= verdicts[2].evaluated


@pytest.mark.parametrize("key", ["rotation", "scaling", "brightness", "spiral"])
def test_a_range_one_event_too_wide_is_noticed(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, threat = noise(3), threat_of(key)
    f = Affine(x, 3)
    honest = verify(f, x, threat).held
    assert honest is not None and errors(f, x, threat, honest, count=100) == 0

    def late(*given: Any) -> Plan:
        made = plan(*given)
        ends = made.onset.new_tensor(made.crossings.gamma[1:])
        return replace(made, onset=torch.cat((made.onset[:1], made.onset[2:], ends)))

    monkeypatch.setattr(walk, "plan", late)
    wide = verify(f, x, threat).held
    assert wide is not None and wide > honest and errors(f, x, threat, wide, count=100) > 0


def test_overlapping_events_end_the_range_where_the_first_of_them_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sloppy attacker can hand over the combination anywhere where its events overlap."""
    monkeypatch.setattr(Judge, "probe", unprobed)  # else events are enclosed anew
    x, threat, sloppy = noise(5), Threat.of("rotation", 0, 20), 1e-5
    found = find_crossings(x, threat, sloppy)
    made = plan(found)
    image, where = (torch.cat(each) for each in zip(*images(made), strict=True))
    alone = images(plan(replace(found, equation=0 * found.equation), 1))  # without cliques
    spine = {row.numpy().tobytes() for part, _ in alone for row in part}
    last, events = threat.box.upper[0], made.crossings
    rows = [
        r
        for r in (where[:, 0] > where[:, 1] + 2e-6).nonzero()[:, 0].tolist()
        if image[r].numpy().tobytes() not in spine
    ]
    assert len(rows) > 100
    for row in rows[:: len(rows) // 10]:
        verdict = verify(Spotter(image[row]), x, threat, label=0, terms=Terms(tolerance=sloppy))
        again = (image == image[row]).flatten(1).all(1)  # other cliques may have it too
        end, common, onset = where[again][0].tolist()
        assert verdict.held is not None and onset - 1e-9 < verdict.held * last < onset
        inside = (events.lower <= end) & (events.upper >= end)
        assert float(events.lower[inside].min()) == onset and float(events.lower[inside].max()) == common <= end
        at = torch.tensor([(common + end) / 2], dtype=torch.float64)
        exact_image = threat.transform(x.double() / 255, at[:, None])
        shake = (image[row].double() / 255 - exact_image).clamp(-sloppy, sloppy)
        assert torch.equal(handed_over(x, threat, at, shake)[0], image[row])


def test_what_failed_is_not_counted() -> None:
    """However its onset is rounded as a multiple of Γ, the image that ends the range is none of those in it."""
    x, threat = noise(3), Threat.of("rotation", 0, 20)
    image, _ = spines(x, threat, 1)
    for i in range(5, 45):
        verdict = verify(Spotter(image[i]), x, threat, label=0, terms=Terms(batch=1))
        assert 0 < verdict.images < verdict.evaluated and (verdict.held or 1.0) < 1


def test_a_thin_lead_ends_the_range_without_a_counterexample() -> None:
    x, threat = noise(2), Threat.of("rotation", 20)
    image, where = spines(x, threat, -1)

    def f(z: Tensor) -> Tensor:
        return torch.stack((torch.ones(len(z)), 1 - 1e-6 * Spotter(image[40])(z)[:, 1] - 0.5), 1)

    def thin(z: Tensor) -> Tensor:
        return torch.stack((torch.ones(len(z)), Spotter(image[40])(z)[:, 1] * (1 - 1e-6)), 1)

    assert verify(f, x, threat).verified
    verdict = verify(thin, x, threat)
    start = float(where[40].min()) / threat.box.upper[0]
    assert verdict.held is not None and start - 1e-9 < verdict.held < start
    assert verdict.gamma is None and "lead is too small" in verdict.reason and verdict.smallest_margin == 1


def test_crowded_crossings_end_the_range() -> None:
    """On threshold all at once at γ₀: nothing is proved from there on, everything before."""
    x, threat = torch.full((1, 4, 4), 100.25 / 255, dtype=torch.float64), Threat.of("brightness", -0.005, 0.006)
    verdict = verify(lambda z: torch.tensor([1.0, 0.0]).expand(len(z), 2), x, threat)
    assert verdict.unresolved == 3 and "overlap" in verdict.reason and verdict.gamma is None
    at = {side: gap / 255 / end for side, gap, end in (("right", 0.25, 0.006), ("left", 0.75, 0.005))}
    assert verdict.held is not None and verdict.held == pytest.approx(min(at.values()), abs=1e-9)


@pytest.mark.parametrize("key", [*THREATS, *OWN])
def test_mirrored_events_make_the_same_images(key: str) -> None:
    x, threat = noise(4, (2, 4, 5)), threat_of(key)
    there = find_crossings(x, threat)
    back = there.mirrored()
    assert back.gamma == (-there.gamma[1], -there.gamma[0]) and torch.equal(back.mirrored().start, there.start)
    sets = [{row.numpy().tobytes() for part in images(plan(c)) for row in part[0]} for c in (there, back)]
    assert sets[0] == sets[1]


def test_what_is_possible_has_begun(generator: torch.Generator) -> None:
    """On each half, whatever a sloppy attacker hands over at γ is enumerated with an onset of at most |γ|.

    The second picture lies on thresholds: its events hold γ = 0.
    """
    sloppy, threat = 1e-5, Threat.of("rotation", -6, 9)
    for x in (noise(5), (noise(5, (1, 3, 3)).double() // 2 + 0.5) / 255):
        whole = find_crossings(x, threat, sloppy)
        for side, half in ((1, whole.from_zero()), (-1, whole.mirrored().from_zero())):
            made, begun = plan(half, limit=1 << 14), {}
            assert made.unresolved == made.bundles == 0 and half.gamma[0] == 0
            for image, where in images(made, 64):
                for row, onset in zip(image.numpy(), where[:, 2].tolist(), strict=True):
                    begun[row.tobytes()] = min(onset, begun.get(row.tobytes(), math.inf))
            inside = half.lower + (half.upper - half.lower) * torch.rand(len(half), generator=generator)
            late = torch.rand(4000, generator=generator, dtype=torch.float64) * half.gamma[1]
            gamma = torch.cat((torch.zeros(50), late, half.lower, half.upper, inside))
            shake = torch.randint(-1, 2, (len(gamma), *x.shape), generator=generator) * sloppy * (1 - 1e-9)
            for row, g in zip(handed_over(x, threat, side * gamma, shake).numpy(), gamma.tolist(), strict=True):
                assert begun[row.tobytes()] <= g


@pytest.mark.parametrize("limit", [2, 1024])
def test_onsets_do_not_decrease_and_lie_below_what_occurs(limit: int) -> None:
    x, threat = noise(6).expand(3, 5, 5).contiguous(), Threat.of("rotation", 0, 25)
    made = plan(find_crossings(x, threat), limit)
    assert bool((made.onset.diff() >= 0).all()) and made.onset[0] == 0
    chunks = Chunks(made, 50)
    for i, onset in enumerate(chunks.onset):
        for _, where in chunks.images(i):
            assert bool((where[:, 2] >= onset).all()) and bool((where[:, 2] <= where[:, :2].amin(1)).all())
    assert made.below(math.inf) == made.total and made.below(0.0) == 0


@pytest.mark.parametrize("ends", [(-20, 0), (0, 20), (-5, 20), (-20, 5)])
def test_one_sided_and_lopsided_ranges(ends: tuple[float, float]) -> None:
    x, threat = noise(8), Threat.of("rotation", *ends)
    f = Affine(x, 8)
    whole = verify(f, x, Threat.of("rotation", 20))
    part = verify(f, x, threat)
    assert whole.held is not None and part.held is not None and errors(f, x, threat, part.held) == 0
    assert (part.held == 1) == (part.gamma is None)
    if part.gamma is not None:
        check(part, f, x, threat)


def test_nothing_is_held_where_the_picture_itself_fails() -> None:
    x, threat = noise(9), Threat.of("rotation", 5)
    for label in (1, 2):
        verdict = verify(Affine(x, 9), x, threat, label=label)
        assert verdict.held is None and not verdict.verified and abs(verdict.gamma or 0.0) < 1e-12
    certificate = methods.certify(Plain(lambda z: torch.zeros(len(z), 2)), x.float() / 255, threat)
    assert certificate.abstains and certificate.reach is None and "lead is too small" in str(certificate)


def test_certificates_of_a_part_of_the_range() -> None:
    x, threat = noise(0), Threat.of("rotation", 50)
    f = Affine(x, 0)
    c = methods.certify(Plain(f), x.float() / 255, threat)
    assert isinstance(c, Exhausted) and c.found is not None and c.reach is not None and c.counterexample is not None
    assert c.label == 0 and c.reach.upper[0] == pytest.approx(c.found.held * threat.box.upper[0], rel=1e-11)
    assert "the classifier answers differently at" in str(c)
    assert str(c).startswith("Proved: the plain classifier answers 0 under every rotation within")
    assert certificates.read(c.to_dict()) == c and errors(f, x, threat, c.found.held, count=3000) == 0
    for held in (1.5, 1.0):
        with pytest.raises(ValueError):
            certificates.read(replace(c, found=replace(c.found, held=held)).to_dict())
    sure = methods.certify(Plain(lambda z: f(z) + torch.tensor([99.0, *[0] * 7])), x.float() / 255, threat)
    assert sure.reach == threat.box and sure.reason == "" and "every input" in str(sure)
    rows = [Row(0, 0, c), Row(1, 0, sure), Row(2, 1, sure)]
    shares = {level.range: level.accuracy for level in summarise(rows).rows}
    assert shares["±0°"] == pytest.approx(2 / 3) and shares["±50°"] == pytest.approx(1 / 3)
    assert accuracy_curve(rows)[1][0] == pytest.approx(2 / 3)


@pytest.mark.parametrize("key", ["rotation", "brightness", "skew"])
def test_slices_that_fit_into_memory_prove_the_same(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut into dozens of slices, through events and bundles, the walk ends where it ended, and nothing is left out."""
    x, threat = noise(5, (1, 4, 4)), threat_of(key)
    f = Affine(x, 5)
    whole, cut, made = verify(f, x, threat), list[list[tuple[float, float]]](), walk._slices

    def noted(*given: Any) -> list[tuple[float, float]]:
        cut.append(made(*given))
        return cut[-1]

    assert verify(Constant(), x, threat).verified
    monkeypatch.setattr(sight, "MEMORY", 1 << 16)
    monkeypatch.setattr(walk, "_slices", noted)
    parts = verify(f, x, threat)
    assert parts.held == pytest.approx(whole.held, abs=1e-11) and parts.label == whole.label
    monkeypatch.setattr(Judge, "probe", bare(Judge.probe))
    alone = verify(f, x, threat)
    assert alone.held == pytest.approx(whole.held, abs=1e-11) and errors(f, x, threat, alone.held or 0.0) == 0
    seen = Constant()
    assert verify(seen, x, threat).verified
    for slices in cut:
        assert len(slices) > 3 and slices[0][0] == 0
        assert all(a[1] == b[0] for a, b in itertools.pairwise(slices))
    assert cut[-1][-1][1] == 1.0 and len(cut[-1]) > 30
    assert missed(seen, x, threat, 1.0) == 0


def bare(probe: Any) -> Any:
    """The probe without what it found."""

    def without(judge: Judge, count: int) -> Tensor:
        changed: Tensor = probe(judge, count)
        judge.limit, judge.gamma, judge.image, judge.reason = math.inf, None, None, ""
        return changed

    return without


class Constant:
    """Class 0; remembers what it was asked about."""

    def __init__(self) -> None:
        self.seen = set[bytes]()

    def __call__(self, z: Tensor) -> Tensor:
        self.seen |= {row.tobytes() for row in (255 * z).round().to(torch.uint8).flatten(1).numpy()}
        return torch.tensor([1.0, 0.0]).expand(len(z), 2)


def missed(f: Constant, x: Tensor, threat: Threat, held: float, count: int = 20_000) -> int:
    """How many γ ∈ held·Γ lead to an image that f was not asked about."""
    gamma = threat.box.scaled(held).grid(count)[:, 0]
    return sum(row.tobytes() not in f.seen for row in handed_over(x, threat, gamma).flatten(1).numpy())


@pytest.mark.parametrize("key", ["rotation", "brightness", "shear"])
def test_a_time_limit_keeps_what_is_proved(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, threat = noise(2), threat_of(key)
    held, probe = list[float](), Judge.probe
    monkeypatch.setattr(Judge, "probe", lambda judge, count: (probe(judge, count), f.seen.clear())[0])
    monkeypatch.setattr(walk, "limited", lambda until: nullcontext())  # it looks at the clock at every operation
    for seconds in (8, 20, 40):
        clock = itertools.count()
        monkeypatch.setattr(walk.time, "perf_counter", lambda clock=clock: float(next(clock)))
        f = Constant()
        verdict = verify(f, x, threat, terms=Terms(batch=64, time_limit=seconds))
        assert verdict.held is not None and verdict.held < 1 and not verdict.verified
        assert f"time limit of {seconds} s" in verdict.reason and verdict.gamma is None
        assert missed(f, x, threat, verdict.held) == 0 < missed(f, x, threat, min(1.0, verdict.held + 0.2))
        held.append(verdict.held)
    assert held == sorted(held) and held[0] < held[-1]
    nothing = methods.certify(Plain(Constant()), x.float() / 255, threat, time_limit=0.5)
    assert nothing.abstains and "time limit" in str(nothing) and certificates.read(nothing.to_dict()) == nothing
    with pytest.raises(ValueError, match="time limit"):
        methods.certify(Plain(Constant()), x.float() / 255, threat, time_limit=0)


def test_progress_tells_the_share_that_is_proved() -> None:
    x, threat, told = noise(1), Threat.of("rotation", 50), list[tuple[int, int, str]]()
    verdict = verify(Affine(x, 1), x, threat, terms=Terms(batch=16), progress=lambda *now: told.append(now))
    assert 0 < (verdict.held or 0) < 1 and told[0][:2] == (0, 1000) and told[-1][:2] == (1000, 1000)
    assert told == sorted(told, key=lambda now: now[0]) and len({now[0] for now in told}) > 5
    assert all(now[2].endswith("pictures/s") for now in told)


def never(z: Tensor) -> Tensor:
    raise AssertionError("asked before it was refused")


@pytest.mark.parametrize(
    ("threat", "words"),
    [
        (Threat.of("translation", 1), "one parameter.*translation"),
        (Threat.of("rotation", 5, interpolation="bicubic"), "bilinear"),
        (Threat.of("rotation", 5, quantized=False), "do not round"),
    ],
)
def test_refused_before_any_work(threat: Threat, words: str) -> None:
    x = torch.zeros(3, 224, 224)
    for ask in (lambda: methods.certify(Plain(never), x, threat), lambda: verify(never, x, threat)):
        with pytest.raises(ValueError, match=words):
            ask()


def test_float64_pictures_are_not_certified_as_others() -> None:
    """64.49999999974 levels rounds to 64, its float32 neighbour to 65: the plain answer itself is another one."""
    x = torch.full((1, 4, 4), 64.49999999974 / 255, dtype=torch.float64)
    f, threat = Spotter(torch.full((1, 4, 4), 64, dtype=torch.uint8)), Threat.of("rotation", 1)
    for classifier in (Plain(f), Levels(f, 2)):
        with pytest.raises(ValueError, match="float32"):
            methods.certify(classifier, x, threat)
    other = methods.certify(Plain(f), x.float(), threat)
    assert other.label == 0 or other.abstains
    assert verify(f, x, threat).label == 1 and verify(f, x.float(), threat).label == 0


def test_a_flow_of_ones_own_is_certified_at_once() -> None:
    x, threat = noise(6, (1, 8, 8)).float() / 255, Threat(OWN["hyperbola"], Box((-0.05,), (0.1,)))
    for classifier in (Plain(Affine(noise(6, (1, 8, 8)), 6)), Levels(Affine(noise(6, (1, 8, 8)), 6), 8)):
        c = methods.certify(classifier, x, threat, method="exact")
        assert isinstance(c, Exhausted) and c.found is not None and "under every hyperbola within" in str(c)
        box = threat.box.scaled(c.found.held)
        handed = threat.attacked(x.double(), box.grid(20_000)).float()
        assert bool((classifier(handed).argmax(1) == c.label).all())
