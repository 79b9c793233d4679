"""Covers: no attack leaves its window's ball, the windows tile Γ, and every term of the bound is needed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from warpcert.learn.data import load
from warpcert.threat import Threat
from warpcert.transforms import Box, Preprocess, Rotation, Translation
from warpcert.windows import pieces as cover_pieces
from warpcert.windows.cover import Windows, cover_windows, rounded_up

PLAIN = Preprocess()
BLUR = Preprocess("circle", 0.5, 1.0, 5)
THREATS = {
    "rotation": ("rotation", 8),
    "quarter": ("rotation", -2, 93),
    "scaling": ("scaling", -10, 15),
    "translation": ("translation", 0.3, 1.2),
    "brightness": ("brightness", 0.1),
    "contrast": ("contrast", 0.18),
}


def picture(name: str) -> Tensor:
    g = torch.Generator().manual_seed(3)
    if name == "noise":
        return (torch.rand(3, 9, 12, generator=g) * 255).round() / 255
    if name == "float":  # not an 8-bit picture
        return torch.rand(1, 8, 7, generator=g)
    if name == "checkerboard":
        return ((torch.arange(10)[:, None] + torch.arange(10)) % 2).float()[None]
    if name == "pixel":
        return torch.zeros(1, 11, 11).index_put_((torch.tensor(0), torch.tensor(3), torch.tensor(8)), torch.tensor(1.0))
    if name == "constant":
        return torch.full((1, 7, 7), 100 / 255)
    if name == "half":  # every rounding is a tie
        return torch.full((1, 6, 6), 100.5 / 255)
    return load("mnist500").images[7].float() / 255


PICTURES = ["noise", "float", "checkerboard", "pixel", "constant", "half", "mnist"]


def excess(x: Tensor, threat: Threat, preprocess: Preprocess, windows: Windows, seed: int = 0) -> tuple[float, float]:
    """The largest ‖P x' − P z_j‖ − E_j and ‖·‖/E_j over random and end parameters of some windows, by attackers in
    float32 and float64, with P in either.
    """
    g = torch.Generator().manual_seed(seed)
    dim = windows.lower.shape[1]
    chosen = torch.randperm(len(windows), generator=g)[:12]
    worst, ratio = -math.inf, 0.0
    images = windows.images(x, threat, chosen)
    assert images.dtype == torch.float32
    for j, z in zip(chosen, images, strict=True):
        share = torch.rand(60, dim, generator=g, dtype=torch.float64)
        share[:30] = share[:30].round()  # corners
        share[10:20, 0] = torch.linspace(0, 1, 10, dtype=torch.float64)
        gamma = windows.lower[j] + (windows.upper[j] - windows.lower[j]) * share
        for dtype in (torch.float32, torch.float64):
            attacked = threat.attacked(x.to(dtype), gamma)
            for seen in (attacked.float(), attacked.double()):
                norm = (preprocess(seen).double() - preprocess(z.to(seen)).double()).flatten(1).norm(dim=1).max()
                worst, ratio = max(worst, float(norm - windows.E[j])), max(ratio, float(norm / windows.E[j]))
    return worst, ratio


def sound(loudness: float, seed: int = 5, length: int = 500) -> Tensor:
    """16-bit samples; of loud ones many lie at an end of the range."""
    x = torch.randn(1, length, generator=torch.Generator().manual_seed(seed)) * loudness
    return Threat.of("volume", 1).transform.quantize(x)


@pytest.mark.parametrize("quantized", [True, False], ids=["16-bit", "real"])
@pytest.mark.parametrize("loudness", [1e-4, 0.02, 0.4, 3.0])
def test_no_change_of_volume_leaves_its_ball(loudness: float, quantized: bool) -> None:
    """Clipping included: at full scale a sound stops moving."""
    x, threat = sound(loudness), Threat.of("volume", 4, quantized=quantized)
    for rounded in (True, False) if quantized else (True,):
        windows = cover_windows(x, threat, PLAIN, target=0.02 * loudness * x.numel() ** 0.5, rounded=rounded)
        assert windows.lower[0] == threat.box.lower[0] and windows.upper[-1] == threat.box.upper[0]
        assert torch.equal(windows.lower[1:], windows.upper[:-1])
        for seed in range(3):
            assert excess(x, threat, PLAIN, windows, seed)[0] <= 0


def test_clipping_costs_no_windows() -> None:
    """What is clipped in all of a window does not move there: a clipped sound needs fewer windows than an unclipped."""
    x, (free, cut) = sound(3.0), (Threat.of("volume", 4, quantized=q) for q in (False, True))
    windows = [len(cover_windows(x, t, PLAIN, target=0.2)) for t in (free, cut)]
    assert windows[1] < 0.6 * windows[0]


def test_the_bound_of_a_sound_is_tight() -> None:
    x, threat = sound(0.4), Threat.of("volume", 4)
    windows = cover_windows(x, threat, PLAIN, target=0.1)
    assert 0.95 < excess(x, threat, PLAIN, windows)[1] <= 1


@pytest.mark.parametrize("quantized", [True, False], ids=["8-bit", "real"])
@pytest.mark.parametrize("name", THREATS)
@pytest.mark.parametrize("image", PICTURES)
def test_no_attack_leaves_its_ball(image: str, name: str, quantized: bool) -> None:
    x = picture(image)
    threat = Threat.of(*THREATS[name], quantized=quantized)
    for preprocess in (PLAIN, BLUR):
        for rounded in (True, False) if quantized else (True,):
            for target in (0.05, 1.0):
                windows = cover_windows(x, threat, preprocess, target=target, rounded=rounded, max_windows=150)
                assert excess(x, threat, preprocess, windows)[0] <= 0


@pytest.mark.parametrize("interpolation", ["bicubic", "bicubic-0.5"])
@pytest.mark.parametrize("name", ["rotation", "scaling", "translation"])
def test_bicubic_attackers(name: str, interpolation: str) -> None:
    for image in ("noise", "checkerboard"):
        x = picture(image)
        for quantized in (True, False):  # q clamps the overshoot
            threat = Threat.of(*THREATS[name], interpolation=interpolation, quantized=quantized)
            for preprocess in (PLAIN, BLUR):
                windows = cover_windows(x, threat, preprocess, target=0.3, max_windows=150)
                assert excess(x, threat, preprocess, windows)[0] <= 0


@pytest.mark.parametrize("name", THREATS)
def test_windows_tile_gamma(name: str) -> None:
    x = picture("noise")
    threat = Threat.of(*THREATS[name])
    windows = cover_windows(x, threat, PLAIN, target=0.2, max_windows=3000)
    assert bool((windows.lower <= windows.center).all()) and bool((windows.center <= windows.upper).all())
    lower, upper = torch.tensor([threat.box.lower, threat.box.upper], dtype=torch.float64)
    assert torch.equal(windows.lower.amin(0), lower) and torch.equal(windows.upper.amax(0), upper)
    if threat.transform.dim == 1:
        assert torch.equal(windows.lower[1:], windows.upper[:-1])
    area = (windows.upper - windows.lower).prod(1).sum()
    torch.testing.assert_close(area, (upper - lower).prod(), rtol=1e-12, atol=0)
    gamma = threat.box.uniform(500, torch.Generator().manual_seed(1))
    inside = (windows.lower <= gamma[:, None]) & (gamma[:, None] <= windows.upper)
    assert bool(inside.all(-1).any(1).all())


@pytest.mark.parametrize("pixels", [1.3, 2.7, 0.1])  # (1 + 1.3)/2 − (1.3 − 1)/2 is less than 1 in floating point
def test_shifts_by_any_number_of_pixels_are_cut_at_integers(pixels: float) -> None:
    threat = Threat.translation(pixels)
    windows = cover_windows(picture("noise"), threat, PLAIN, target=1.0, max_windows=3000)
    assert bool((windows.lower.floor() + 1 >= windows.upper).all())
    assert tuple(windows.upper.amax(0).tolist()) == threat.box.upper


def test_target_and_count_are_met() -> None:
    x = picture("mnist")
    threat = Threat.of("rotation", 10)
    fine = cover_windows(x, threat, PLAIN, target=0.05)
    coarse = cover_windows(x, threat, PLAIN, target=0.1)
    assert float(fine.E.max()) <= 0.05 and float(fine.E.mean()) > 0.042  # neither missed nor far exceeded
    assert float(coarse.E.max()) <= 0.1
    assert len(coarse) < 0.6 * len(fine)
    few = cover_windows(x, threat, PLAIN, target=0.05, max_windows=len(fine) // 2)
    assert len(few) == len(fine) // 2 and float(few.E.max()) > 0.05
    assert excess(x, threat, PLAIN, few)[0] <= 0


def test_bound_is_tight() -> None:
    x = picture("mnist")
    for preprocess, least in ((PLAIN, 0.95), (BLUR, 0.9)):
        for quantized in (True, False):
            threat = Threat.of("rotation", 10, quantized=quantized)
            windows = cover_windows(x, threat, preprocess, target=0.1)
            assert excess(x, threat, preprocess, windows)[1] > least


def test_middle_of_levels_beats_the_rounded_image() -> None:
    """√N/2 against √(N/2), and ‖P(q − id)‖ is gone."""
    x = picture("mnist")
    threat = Threat.of("rotation", 2)
    windows = cover_windows(x, threat, PLAIN, target=0.03)
    ends = [threat.attacked(x.double(), end) for end in (windows.lower, windows.upper)]
    half = (ends[0] - ends[1]).flatten(1).norm(dim=1) / 2  # no centre whatever is nearer to both ends
    assert float((windows.E / half).median()) < 1.2
    rounded = threat.attacked(x.double(), windows.center)
    other = torch.stack([(end - rounded).flatten(1).norm(dim=1) for end in ends]).amax(0)
    assert float((other / windows.E).median()) > 1.15


def test_a_single_parameter_is_covered() -> None:
    x = picture("noise")
    for transform, zero in ((Rotation(), (0.0,)), (Translation(), (0.0, 0.0))):
        threat = Threat(transform, Box(zero, zero))
        windows = cover_windows(x, threat, PLAIN, target=0.1)
        assert len(windows) == 1 and 0 < float(windows.E) < 1e-3
        torch.testing.assert_close(windows.images(x, threat)[0], x, rtol=0, atol=1e-6)
    threat = Threat(Translation(), Box((-1.0, 0.0), (1.0, 0.0)))  # one axis only
    windows = cover_windows(x, threat, PLAIN, target=0.5)
    assert len(windows) > 2 and excess(x, threat, PLAIN, windows)[0] <= 0


def test_what_cannot_be_reached_is_said() -> None:
    x = picture("noise")
    threat = Threat.of("rotation", 5)
    windows = cover_windows(x, threat, PLAIN, target=1e-3, rounded=False)  # below ‖q − id‖
    assert len(windows) < 20000 and float(windows.E.min()) > 1e-3
    assert excess(x, threat, PLAIN, windows)[0] <= 0


BUMP = torch.tensor([0.2, 0.8, 0.8, 0.2, 0.2]).expand(1, 5, 5)  # bicubic overshoots half a pixel left of the centre
MUTATIONS = {
    # every pixel kinks at γ = 0, which is no node: the distance from the mean of the ends is largest there
    "chord": (picture("checkerboard"), Threat(Rotation(), Box((-0.03,), (0.037,))), True, 10.0),
    "bicubic": (BUMP, Threat(Translation(), Box((0.0, 0.0), (0.8, 0.0)), "bicubic"), True, 10.0),
    "float32": (picture("half"), Threat(Rotation(), Box((0.0,), (1e-4,))), True, 10.0),
    # above the tie in exact arithmetic, on it in float32
    "sound": (torch.full((1, 20), 1000.5 / 32768).double() * (1 + 1e-8), Threat.of("volume", 0, 1e-7), True, 10.0),
    "rounding": (picture("noise"), Threat.of("rotation", 3), False, 0.1),
    "range": (picture("noise"), Threat.of("contrast", 0.18), True, 0.1),
    "corners": (picture("noise"), Threat.of("translation", 1, quantized=False), True, 1.0),
    "radius": (picture("noise"), Threat.of("rotation", 5), True, 0.1),
}


NEEDED = {
    "chord": "_remainder",
    "bicubic": "_remainder",
    "float32": "_doubt",
    "sound": "_doubt",
    "rounding": "_distance",
    "range": "_pieces",
    "corners": "_pieces",
    "radius": "_farthest",
}


@pytest.mark.parametrize("term", MUTATIONS)
def test_every_term_is_needed(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any one of its terms the bound is broken by the attacks above: the tests can tell."""
    x, threat, rounded, target = MUTATIONS[term]
    preprocess = {"radius": BLUR, "bicubic": Preprocess("rectangle", 2)}.get(term, PLAIN)

    def attack() -> float:
        windows = cover_windows(x, threat, preprocess, target=target, rounded=rounded, max_windows=60)
        return max(excess(x, threat, preprocess, windows, seed)[0] for seed in range(4))

    assert attack() <= 0
    original = {name: getattr(cover_pieces, name) for name in NEEDED.values()}
    mutant = {
        "chord": lambda *a: torch.zeros_like(original["_remainder"](*a)),
        "bicubic": lambda *a: torch.zeros_like(original["_remainder"](*a)),
        "float32": lambda *a: torch.zeros_like(original["_doubt"](*a)),
        "sound": lambda *a: torch.zeros_like(original["_doubt"](*a)),
        "rounding": lambda s, *a: original["_distance"](replace(s, threat=replace(threat, quantized=False)), *a),
        "range": lambda s, a, b: original["_pieces"](s, (a + b) / 2, (a + b) / 2),
        "corners": lambda *a: (original["_pieces"](*a)[0][:, :, :1], original["_pieces"](*a)[1]),
        "radius": lambda p, c, r: original["_farthest"](p, c, 0 * r),
    }
    monkeypatch.setattr(cover_pieces, NEEDED[term], mutant[term])
    assert attack() > 0


def test_images_do_not_depend_on_the_slice() -> None:
    x = picture("noise")
    threat = Threat.of("rotation", 3)
    windows = cover_windows(x, threat, PLAIN, target=0.5)
    every = windows.images(x, threat)
    assert torch.equal(every[2:4], windows.images(x, threat, slice(2, 4)))
    levels = every.double() * 510
    torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-3)  # halves of levels


def test_levels_agree_between_precisions() -> None:
    """k/255 in float64, rounded to float32, is what float32 divides to: z_j and x' are on one grid."""
    k = torch.arange(256)
    assert torch.equal((k.double() / 255).float(), k.float() / 255)


def test_unusable_input_is_refused() -> None:
    x = picture("noise")
    threat = Threat.of("rotation", 5)
    with pytest.raises(ValueError, match="values in"):
        cover_windows(2 * x, threat, PLAIN, target=0.1)
    with pytest.raises(ValueError, match="target"):
        cover_windows(x, threat, PLAIN, target=0.0)
    with pytest.raises(ValueError, match="at least"):
        cover_windows(x, threat, PLAIN, target=0.1, max_windows=1)
    with pytest.raises(ValueError, match=r"\[C,L\]"):
        cover_windows(x, Threat.of("volume", 3), PLAIN, target=0.1)
    with pytest.raises(ValueError, match="vignette"):
        cover_windows(sound(0.1), Threat.of("volume", 3), BLUR, target=0.1)
    with pytest.raises(ValueError, match="nearest"):
        cover_windows(x, Threat.of("rotation", 5, interpolation="nearest"), PLAIN, target=0.1)
    with pytest.raises(ValueError, match="wide"):
        cover_pieces.distances(cover_pieces.Scene(x.double(), threat, PLAIN, True), -torch.ones(1, 1), torch.ones(1, 1))


def test_errors_arerounded_up() -> None:
    """Three digits, and never below."""
    given = torch.tensor([0.0, 1e-9, 0.123400001, 0.1234, 1.005, 99.91, 12345.6], dtype=torch.float64)
    found = rounded_up(given)
    assert bool((found >= given).all()) and bool((found <= 1.01 * given + 1e-12).all())
    assert found[3] == 0.124 and found[4] == 1.01
