"""Levels behind a front: every picture that an attacker can reach is enumerated, whatever light he adds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_crossings import picture
from torch import Tensor

import warpcert as wc
from warpcert import certificates
from warpcert.certificates import Exhausted
from warpcert.classifier import Levels
from warpcert.classifier.before.front import FRONTS, Front
from warpcert.classifier.before.rounding import level
from warpcert.exhaustive.enumeration import images, plan
from warpcert.exhaustive.events import relative
from warpcert.exhaustive.events.crossings import Crossings, find_behind, levels
from warpcert.exhaustive.events.paths import path_of
from warpcert.exhaustive.events.relative import Relative, before_tones
from warpcert.learn.data import load
from warpcert.threat import Threat

TONES = {"grounded": {"brightness": 0.6}, "stretched": {"contrast": (-0.45, 0.44), "brightness": (-0.5, 0.7)}}
PARTS: dict[str, dict[str, Any]] = {
    "rotation": {"rotation": (-35, 50)},
    "scaling": {"scaling": (-40, 60)},
    "shear": {"shear": (-40, 30)},
    "blur": {"blur": 2},
    "power": {"power": (-0.4, 0.6)},
    "nothing": {},
}
PICTURES = ("noise", "float", "low contrast", "dot", "grey", "digit")


def shown(name: str) -> Tensor:
    if name == "digit":
        return load("mnist500").images[7][:, 4:24, 4:22]
    if name == "grey":  # channels that are alike, so that two pixels are the least at once
        return picture("noise", (1, 6, 7)).expand(3, -1, -1).contiguous()
    return picture(name, (1 if name == "dot" else 3, 6, 5))  # of a dot many pixels are alike


def threat_of(part: str, front: str, **arithmetic: Any) -> Threat:
    return Threat.made_of(PARTS[part] | TONES[front], quantized=False, **arithmetic)


def found_of(x: Tensor, threat: Threat, front: str, step: int) -> tuple[Crossings, set[bytes]]:
    rest, tolerance = before_tones(threat, front, threat.off_by)
    c = find_behind(x, rest, Front(front), tolerance, step)
    return c, known(c)


def known(c: Crossings) -> set[bytes]:
    made = plan(c, 1 << 15)
    assert made.unresolved == made.bundles == 0
    return {row.tobytes() for part, _ in images(made) for row in part.flatten(1).numpy()}


def tried(c: Crossings, threat: Threat, g: torch.Generator, count: int) -> Tensor:
    """Parameters of all parts: anywhere, at the ends, and close to what was enclosed."""
    gamma = threat.box.uniform(count, g)
    corners = threat.box.uniform(count, g)
    for axis, (low, high) in enumerate(zip(threat.box.lower, threat.box.upper, strict=True)):
        corners[:, axis] = torch.where(corners[:, axis] > (low + high) / 2, high, low)
    near = torch.cat((c.lower, c.upper, (c.lower + c.upper) / 2, c.lower - 1e-9, c.upper + 1e-9)).clamp(*c.gamma)
    if not near.numel() or c.gamma[0] == c.gamma[1]:
        return torch.cat((gamma, corners))
    at = threat.box.uniform(min(20_000, near.numel()), g)
    at[:, 0] = near[torch.randperm(near.numel(), generator=g)[: len(at)]]
    corners[:, 0] = gamma[:, 0]
    return torch.cat((gamma, corners, at))


def misses(every: set[bytes], handed: Tensor, front: str, step: int) -> int:
    seen = level(Front(front).exactly(handed), step).flatten(1)
    return sum(row.tobytes() not in every for row in seen.numpy())


@pytest.mark.parametrize("front", TONES)
@pytest.mark.parametrize("part", PARTS)
def test_every_attack_is_enumerated(part: str, front: str, generator: torch.Generator) -> None:
    """Computed in float64, handed over in float64 and float32, with the default tolerance."""
    threat = threat_of(part, front)
    for name in PICTURES:
        x, step = shown(name), 32 if name == "digit" or part == "blur" else 16
        if name == "low contrast" and front == "stretched":
            continue  # refused: see below
        c, every = found_of(x, threat, front, step)
        assert len(c) > 20 or part == "nothing" or name in ("dot", "low contrast"), name
        for some in tried(c, threat, generator, 1500).split(1024):
            handed = threat.attacked(levels(x)[0] / 255, some)
            assert misses(every, handed, front, step) == misses(every, handed.float(), front, step) == 0, name


@pytest.mark.parametrize("front", TONES)
@pytest.mark.parametrize("part", ["rotation", "scaling", "shear", "nothing"])
def test_attackers_in_float32_with_their_tolerance(part: str, front: str, generator: torch.Generator) -> None:
    """As docs/threats.md has it: 5·10⁻⁷·(H + W), as many times more as tones enlarge it, and what these round."""
    x, enlarged = shown("float").float(), 1.0 if front == "grounded" else 1.8
    threat = threat_of(part, front, tolerance=enlarged * 5e-7 * 11 + 1e-6)
    c, every = found_of(x, threat, front, 16)
    for some in tried(c, threat, generator, 3000).split(1024):
        handed = threat.attacked(x, some)
        assert handed.dtype == torch.float32 and misses(every, handed, front, 16) == 0


@pytest.mark.parametrize("front", TONES)
def test_anyone_within_the_tolerance(front: str, generator: torch.Generator) -> None:
    """Pixels off by all of it, each to the side that moves it up or down the most."""
    x, threat = shown("noise"), threat_of("rotation", front, tolerance=2e-5)
    c, every = found_of(x, threat, front, 16)
    for some in tried(c, threat, generator, 2000).split(1024):
        handed = threat.attacked(levels(x)[0] / 255, some)
        flat = handed.flatten(1)
        for push in (torch.rand(handed.shape, generator=generator) * 2 - 1, torch.ones_like(handed)):
            away = push.sign().flatten(1) * torch.ones_like(flat)
            away.scatter_(1, flat.argmin(1, keepdim=True), -1.0)
            away.scatter_(1, flat.argmax(1, keepdim=True), float(torch.randint(2, (), generator=generator)) * 2 - 1)
            for side in (1, -1):
                moved = handed + side * threat.off_by * away.view_as(handed)
                assert misses(every, moved, front, 16) == 0


def test_what_is_left_open_before_the_tones(generator: torch.Generator) -> None:
    """front(c w + b + η) = front(w + η/c): an error after the weakest contrast is the largest one before it."""
    threat = threat_of("rotation", "stretched", tolerance=2e-5)
    rest, tolerance = before_tones(threat, "stretched", threat.off_by)
    assert rest == Threat.rotation((-35, 50), quantized=False, tolerance=2e-5)
    w, tone = torch.rand(3, 6, 5, generator=generator, dtype=torch.float64), torch.rand(3, 6, 5, generator=generator)
    for c in (0.55, 1.0, 1 / 0.56):
        sent = c * w + 0.3 + 2e-5 * tone.sign()
        away = (Front("stretched").exactly(sent) - Front("stretched").exactly(w + 2e-5 / c * tone.sign())).abs().max()
        assert float(away) < 1e-14 and 2e-5 / c <= tolerance * (1 + 1e-9)
    assert before_tones(threat_of("nothing", "grounded"), "grounded", 1e-7)[0].box == Threat.brightness(0).box


@pytest.mark.parametrize("front", TONES)
def test_holders_are_within_the_gap(front: str, generator: torch.Generator) -> None:
    """The least and the largest value are those of the pixels that are named, up to the gap; and the range is one."""
    for name in PICTURES:
        for part in ("rotation", "blur", "power"):
            threat = Threat.made_of(PARTS[part], quantized=False)
            value, gamma = levels(shown(name))[0], (threat.box.lower[0], threat.box.upper[0])
            path = path_of(value, threat, 16, gamma)
            try:
                seen = Relative(path, Front(front), gamma, 1e-7)
            except relative.Faint:
                assert name in ("low contrast", "dot") and front == "stretched"
                continue
            at = torch.cat((threat.box.uniform(2000, generator)[:, 0], seen.edges))
            every = threat.transform(value / 255, at[:, None]).flatten(1)
            gap = 16 / 255 * seen.gap + 1e-12
            for held, extreme in ((seen.low, every.amin(1)), (seen.high, every.amax(1))):
                if held is not None:
                    own = every.gather(1, relative._holder(held, at)[:, None])[:, 0]
                    assert float((own - extreme).abs().max()) <= gap, (name, part)
            if seen.high is not None:
                assert float((every.amax(1) - every.amin(1)).min()) >= seen.range


def test_dropping_or_moving_one_crossing_is_noticed(generator: torch.Generator) -> None:
    x, threat = shown("noise"), threat_of("rotation", "stretched")
    c, _ = found_of(x, threat, "stretched", 32)
    handed = threat.attacked(levels(x)[0] / 255, tried(c, threat, generator, 20_000)).float()
    for event in torch.randperm(len(c), generator=generator)[:3].tolist():
        keep = torch.ones(len(c), dtype=torch.bool)
        keep[event] = False
        assert misses(known(c.take(keep.nonzero()[:, 0])), handed, "stretched", 32) > 0


BROKEN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the gap": lambda m: m.setattr(Relative, "off", lambda self, tolerance: self.path.off(tolerance)),
    "the holder of another moment": lambda m: m.setattr(
        relative, "_holder", lambda held, gamma: held.holder[:1].expand(len(gamma))
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_every_term_is_needed(what: str, monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    """Half of what the tolerance moves, or the pixel that is the least elsewhere, is not enough."""
    BROKEN[what](monkeypatch)
    with pytest.raises((AssertionError, RuntimeError)):
        test_anyone_within_the_tolerance("grounded", generator)


def test_by_hand() -> None:
    """Two pixels; behind the front one is 0, and the other what it is above it."""
    x = torch.tensor([[[40, 100]]], dtype=torch.uint8)
    c = find_behind(x, Threat.power(1, quantized=False), Front("grounded"), 1e-7, 16)
    curve = lambda v, g: 255 * (v / 255) ** math.exp(g)  # noqa: E731
    assert (c.pixel == 1).all()  # the other one is the least
    for event in range(len(c)):
        gamma, edge = float(c.lower[event] + c.upper[event]) / 2, 16 * float(c.low[event]) + 7.5
        assert abs(curve(100, gamma) - curve(40, gamma) - edge) < 1e-3
    d = find_behind(x, Threat.power(1, quantized=False), Front("stretched"), 1e-7, 16)
    assert len(d) == 0 and d.start.flatten().tolist() == [0, 16]  # least and largest


def digit() -> tuple[Tensor, Levels, Levels]:
    net = wc.load("mnist-rotation-exact").network
    return load("mnist500").image(5), Levels(net, 32), Levels(net, 32, front="grounded")


def test_certificates_and_their_counterexamples() -> None:
    x, plain, behind = digit()
    turned = Threat.rotation(50, quantized=False)
    one, two = (f.certify(x, t, method="exact") for f, t in ((plain, turned), (behind, turned.then(brightness=0.2))))
    assert one.reach is not None and two.reach is not None and two.counterexample is not None
    assert two.reach.upper[0] == pytest.approx(one.reach.upper[0], abs=1e-4)  # a digit on black: nothing is lost
    assert two.reach.upper[1] / 0.2 == pytest.approx(two.reach.upper[0] / math.radians(50))
    assert len(two.counterexample) == 2 and two.counterexample[1] == 0 and "× 0 of full scale" in two.reason
    handed = two.threat.attacked(x.double(), torch.tensor([two.counterexample], dtype=torch.float64))
    assert behind.predict(handed[0]) != two.label == behind.predict(x)
    assert certificates.read(two.to_dict()) == two
    assert "behind a front that takes the least value away, and levels of 32" in str(two)
    brighter = torch.tensor([[math.radians(30), 0.2], [math.radians(-20), -0.2]], dtype=torch.float64)
    assert set(behind.predict(two.threat.attacked(x, brighter))) == {two.label}


def test_tones_alone_cost_one_picture_and_shifts_one_each() -> None:
    x, _, behind = digit()
    light = Threat.brightness(0.5, quantized=False)
    found = behind.certify(x, light, method="exact").found
    assert found is not None and (found.held, found.images) == (1, 1)
    shifted = behind.certify(x, Threat.shifts(1, quantized=False).then(brightness=0.5), method="exact").found
    assert shifted is not None and (shifted.held, shifted.images) == (1, 5)
    turned = behind.certify(x, Threat.shifts(1, quantized=False).then(rotation=2, brightness=0.5), method="exact")
    assert turned.found is not None and turned.found.images > 50 and turned.reach is not None
    assert turned.reach.dim == 4


def test_forged_certificates_are_refused() -> None:
    x, _, behind = digit()
    made = behind.certify(x, Threat.rotation(2, quantized=False).then(brightness=0.2), method="exact")
    assert isinstance(made, Exhausted) and made.found is not None
    for threat, why in (
        (Threat.rotation(2, quantized=False).then(contrast=0.2), "no enumeration knows"),  # grounded sees contrast
        (Threat.rotation(2).then(brightness=0.2), "behind a front attackers who round"),
        (Threat.rotation(2), "behind a front attackers who round"),
    ):
        with pytest.raises(ValueError, match=why):
            certificates.verify(replace(made, threat=threat, found=replace(made.found, tolerance=threat.off_by)))
    faint = Threat.made_of({"rotation": 2, "contrast": (-0.99, 0.2)}, quantized=False, tolerance=3.5e-4)
    stretched = Levels(behind.network, 32, front="stretched")
    made = stretched.certify(x, Threat.rotation(0.01, quantized=False).then(contrast=0.2), method="exact")
    assert isinstance(made, Exhausted) and made.found is not None
    with pytest.raises(ValueError, match="tenth of a level"):
        certificates.verify(replace(made, threat=faint, found=replace(made.found, tolerance=3.5e-4)))
    with pytest.raises(ValueError, match="tenth of a level"):
        stretched.certify(x, faint, method="exact")


def test_pictures_without_contrast_are_not_stretched() -> None:
    net = wc.load("mnist-rotation-exact").network
    behind, blank = Levels(net, 32, front="stretched"), 0.5 + 0.02 * load("mnist500").image(0)
    made = behind.certify(blank, Threat.blur(1, quantized=False).then(brightness=0.1), method="exact")
    assert made.abstains and "too few to stretch" in made.reason
    assert (
        behind.foresee(
            blank,
            Threat.blur(1, quantized=False),
        ).passes
        >= 0
    )


def test_fronts_map_what_levels_show_of_them_to_the_same(generator: torch.Generator) -> None:
    for name in TONES:
        for step in (2, 8, 32, 64):
            x = torch.rand(20, 3, 5, 5, generator=generator) * 3 - 1
            f = Levels(lambda z: z.flatten(1), step, front=name)
            once = f(x).view_as(x)
            assert torch.equal(f(once).view_as(x), once)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda net: Levels(net, 8, front="centred"), "stands before noise"),
        (lambda net: Levels(net, 8, front="fancy"), "is not known"),
        (lambda net: Levels(net, 1, front="grounded"), "levels of 2 or more"),
        (lambda net: Levels(net, 8, sees=wc.Stem(2, 2), front="grounded"), "leave stem and mosaic out"),
        (lambda net: wc.Smoothed(net, 0.1, front="grounded"), "stands before levels"),
        (lambda net: Front("grounded").spread(torch.ones(1), torch.ones(1, 1, 2, 2)), "no bound in ℓ2"),
    ],
)
def test_mistakes(make: Callable[[Any], Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make(wc.load("mnist-rotation-exact").network)
    assert "grounded" in FRONTS


def test_refusals() -> None:
    x, plain, behind = digit()
    real = Threat.rotation(2, quantized=False)
    for f, threat, why in (
        (behind, Threat.rotation(2), "neither clip nor round"),
        (behind, real.then(contrast=0.2), "it sees rotation then contrast"),
        (plain, real.then(brightness=0.2), "without a front it sees all of rotation then brightness"),
        (behind, Threat.rotation(2).then(brightness=0.2), "methods that do: cover"),
        (behind, Threat.rotation(2, quantized=False, tolerance=1e-3).then(brightness=0.2), "a tenth of a level"),
    ):
        with pytest.raises(ValueError, match=why):
            f.certify(x, threat, method="exact")
