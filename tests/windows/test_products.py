"""Covers of products: no attack leaves its window's ball, and every term is needed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import warpcert as wc
from warpcert import methods, transforms
from warpcert.learn.data import load
from warpcert.threat import Threat
from warpcert.transforms import Blur, Preprocess
from warpcert.windows import chain, pieces
from warpcert.windows.cover import Windows, bounds, cover_windows, halved, unknown

PLAIN, BLUR = Preprocess(), Preprocess("circle", 0.5, 1.0, 5)
THREATS: dict[str, dict[str, Any]] = {
    "turned and brightened": {"rotation": 4, "brightness": 0.05},
    "scaled and brightened": {"scaling": (-5, 8), "brightness": (0.0, 0.1)},
    "turned, more contrast, brightened": {"rotation": 2, "contrast": 0.09, "brightness": 0.03},
    "shifted and brightened": {"translation": 0.6, "brightness": 0.05},
    "contrast, then brightness": {"contrast": 0.18, "brightness": 0.1},
    "brightness, then contrast": {"brightness": 0.1, "contrast": 0.18},
    "blurred": {"blur": 0.6},
    "blurred and brightened": {"blur": 0.2, "brightness": 0.02},
    "power, then brightness": {"power": 0.2, "brightness": 0.1},
    "turned and sheared": {"rotation": 3, "shear": 3},
    "scaled, turned, sheared, more contrast": {"scaling": (-2, 3), "rotation": 2, "shear": 2, "contrast": 0.02},
    "blurred, turned, shifted, and some ℓ2": {"blur": 0.05, "rotation": 1, "translation": 0.1, "l2": 0.1},
    "turned, and some ℓ2": {"rotation": 4, "l2": 0.1},
    "turned, brightened, and some ℓ2": {"rotation": 3, "brightness": 0.05, "l2": 0.1},
}


def picture(name: str) -> Tensor:
    g = torch.Generator().manual_seed(3)
    if name == "noise":
        return (torch.rand(3, 9, 8, generator=g) * 255).round() / 255
    if name == "checkerboard":
        return ((torch.arange(10)[:, None] + torch.arange(10)) % 2).float()[None]
    if name == "half":  # every rounding is a tie
        return torch.full((1, 6, 6), 100.5 / 255)
    return load("mnist500").images[7].float() / 255


def excess(x: Tensor, threat: Threat, preprocess: Preprocess, windows: Windows) -> float:
    """The largest ‖P x' − P z_j‖ − E_j over corners and random parameters of some windows, with the worst ℓ2 part, by
    attackers in float32 and float64.
    """
    g = torch.Generator().manual_seed(0)
    dim, worst = windows.lower.shape[1], -math.inf
    chosen = torch.randperm(len(windows), generator=g)[:10]
    for j, z in zip(chosen, windows.images(x, threat, chosen), strict=True):
        share = torch.rand(48, dim, generator=g, dtype=torch.float64)
        share[:24] = share[:24].round()
        gamma = windows.lower[j] + (windows.upper[j] - windows.lower[j]) * share
        for dtype in (torch.float32, torch.float64):
            away = preprocess(threat.attacked(x.to(dtype), gamma).double()) - preprocess(z.double())
            if threat.l2:
                push = preprocess(away)  # P is symmetric: the steepest way up
                away = away + preprocess(
                    threat.l2 * push / push.flatten(1).norm(dim=1).clamp_min(1e-12)[:, None, None, None]
                )
            worst = max(worst, float((away.flatten(1).norm(dim=1) - windows.E[j]).max()))
    return worst


@pytest.mark.parametrize("quantized", [True, False], ids=["8-bit", "real"])
@pytest.mark.parametrize("name", THREATS)
def test_no_attack_leaves_its_ball(name: str, quantized: bool) -> None:
    threat = Threat.made_of(THREATS[name], quantized=quantized)
    for image in ("noise", "checkerboard", "half"):
        x = picture(image)
        for preprocess, rounded in ((PLAIN, True), (BLUR, False)):
            windows = cover_windows(x, threat, preprocess, target=0.6, rounded=rounded, max_windows=1500)
            assert excess(x, threat, preprocess, windows) <= 0
            _tile(threat, windows)
            some = halved(windows, torch.arange(min(4, len(windows))), x, threat, preprocess)
            assert excess(x, threat, preprocess, some) <= 0


def _tile(threat: Threat, windows: Windows) -> None:
    """Random parameters of Γ lie in some window each, and the volumes add up."""
    lower, upper = (torch.tensor(end, dtype=torch.float64) for end in (threat.box.lower, threat.box.upper))
    torch.testing.assert_close((windows.upper - windows.lower).prod(1).sum(), (upper - lower).prod())
    for gamma in threat.box.uniform(50, torch.Generator().manual_seed(1)):
        assert bool(((windows.lower <= gamma) & (gamma <= windows.upper)).all(1).any())


def test_bounds_are_not_loose() -> None:
    x = picture("mnist")
    threat = Threat.rotation(2).then(brightness=0.02)
    windows = cover_windows(x, threat, PLAIN, target=0.3, max_windows=4000)
    assert float(windows.E.median()) <= 0.45 and len(windows) <= 4000
    ratio = excess(x, threat, PLAIN, replace(windows, E=0.6 * windows.E))
    assert ratio > 0  # two thirds of E are reached


def outside(x: Tensor, threat: Threat) -> float:
    """By how much T_γ x leaves the combinations of the corners of the first piece of a window, beyond its radius."""
    scene = pieces.Scene(x.double(), threat, PLAIN, False)
    low, high = (torch.tensor([end], dtype=torch.float64) for end in (threat.box.lower, threat.box.upper))
    corner, radius = pieces._pieces(scene, low, high)
    start, end = pieces._nodes(scene, low, high)[0, :2]
    gamma = start + (end - start) * torch.rand(400, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    tone = scene.tones[0][0]
    turned = ((gamma - start) / (end - start))[:, 0]
    toned = ((tone.amount(gamma) - tone.amount(start)) / (tone.amount(end) - tone.amount(start)))[:, 1]
    weights = torch.stack([a * b for a in (1 - turned, turned) for b in (1 - toned, toned)], 1)
    combined = torch.einsum("nk,kchw->nchw", weights, corner[0, 0])
    moved = threat.transform(x.double(), gamma, threat.interpolation)
    return float(((moved - combined).abs() - radius[0, 0]).max())


def test_pieces_hold_and_need_remainder_and_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    x = picture("checkerboard")
    strong = Threat.rotation((0.0, 3), quantized=False).then(contrast=(0.0, 0.9))
    faint = Threat.rotation((0.0, 3), quantized=False).then(brightness=(0.0, 0.01))
    assert outside(x, strong) <= 0 and outside(x, faint) <= 0
    with monkeypatch.context() as patch:
        patch.setattr(pieces.Tone, "gain", lambda self, beta: torch.full_like(beta[:, 0], 0.1))
        assert outside(x, strong) > 0
    whole = pieces._remainder
    monkeypatch.setattr(pieces, "_remainder", lambda scene, nodes: 0 * whole(scene, nodes))
    assert outside(x, faint) > 0


def test_a_ball_needs_its_corners_and_the_added_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    x = picture("checkerboard")

    def window(threat: Threat) -> Windows:
        low, high = (torch.tensor([end], dtype=torch.float64) for end in (threat.box.lower, threat.box.upper))
        with torch.no_grad():
            bound = pieces.distances(pieces.Scene(x.double(), threat, PLAIN, False), low, high)
        return Windows(low, high, bound, False, 1, 0.0)

    pushed = Threat.rotation(0.05, quantized=False).then(brightness=0.001, l2=0.5)
    assert excess(x, pushed, PLAIN, window(pushed)) <= 0
    assert excess(x, pushed, PLAIN, window(replace(pushed, l2=0.0))) > 0
    toned = Threat.rotation(0.01, quantized=False).then(contrast=(0.0, 0.5))
    assert excess(x, toned, PLAIN, window(toned)) <= 0
    whole = pieces._pieces
    monkeypatch.setattr(pieces, "_pieces", lambda *a: (whole(*a)[0][:, :, :1], whole(*a)[1]))
    assert excess(x, toned, PLAIN, window(toned)) > 0


def test_a_blur_needs_its_remainder_and_stays_tight(monkeypatch: pytest.MonkeyPatch) -> None:
    x, threat = picture("checkerboard"), Threat.blur(1, quantized=False)
    windows = cover_windows(x, threat, PLAIN, target=0.4)
    assert excess(x, threat, PLAIN, windows) <= 0 < excess(x, threat, PLAIN, replace(windows, E=0.7 * windows.E))
    whole = Blur.bends
    for share in (1.0, 0.0):  # of the remainder
        monkeypatch.setattr(Blur, "bends", lambda *a, share=share: tuple(share * v for v in whole(*a)))
        scene = pieces.Scene(x.double(), threat, PLAIN, False)
        low, high = (torch.tensor([[a]], dtype=torch.float64) for a in (0.0, 1.0))
        corner, radius = pieces._pieces(scene, low, high)
        start, end = pieces._nodes(scene, low, high)[0, :2]
        at = torch.linspace(0, 1, 50, dtype=torch.float64)[:, None]
        combined = torch.einsum("nk,kchw->nchw", torch.cat((1 - at, at), 1), corner[0, 0])
        beyond = (threat.transform(x.double(), start + at * (end - start)) - combined).abs() - radius[0, 0]
        assert (float(beyond.max()) <= 0) == bool(share)


CHAIN = Threat.scaling((-4.0, 0.0), quantized=False).then(rotation=(0.0, 0.1))


def test_a_chain_needs_what_its_first_part_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here nearly all is moved by the first part."""
    x = picture("checkerboard")
    low, high = (torch.tensor([end], dtype=torch.float64) for end in (CHAIN.box.lower, CHAIN.box.upper))

    def window() -> Windows:
        bound = chain.measured(pieces.Scene(x.double(), CHAIN, PLAIN, False), low, high)
        return Windows(low, high, bound, False, 1, 0.0)

    assert excess(x, CHAIN, PLAIN, window()) <= 0
    with monkeypatch.context() as patch:
        patch.setattr(chain, "enlarging", lambda threat: 0.0)
        assert excess(x, CHAIN, PLAIN, window()) > 0


@pytest.mark.parametrize("name", ["rotation", "scaling", "shear", "translation"])
def test_norms_of_what_moves_pixels(name: str) -> None:
    """No matrix is larger, and those of scalings and turns come close: a column sum is reached, not only bounded."""
    part = transforms.get(name)
    for size in (2, 10, 30):
        box = part.box(size if name != "translation" else size / 20)
        bound = part.enlarges(box)
        gammas = torch.cat((box.uniform(12, torch.Generator().manual_seed(0)), box.grid(3)))
        matrices = [part.matrix(tuple(g), 9, 9).to_dense() for g in gammas.tolist()]
        assert max(float(torch.linalg.matrix_norm(m, 2)) for m in matrices) <= bound
        sums = max(float(m.sum(0).max()) for m in matrices)
        assert sums <= bound**2 * (1 + 1e-9) and (name == "translation" or bound**2 <= 1.02 * sums)


def test_windows_of_a_chain_again_are_those_that_were_covered() -> None:
    """Their middles are not rounded; and no norm of a bicubic flow is known."""
    x, threat = torch.rand(1, 8, 8), Threat.made_of({"rotation": 2, "scaling": 3})
    low, high = (torch.tensor([e], dtype=torch.float64) for e in (threat.box.lower, threat.box.upper))
    again = bounds(low, high, x, threat, PLAIN, rounded=True)
    assert not again.rounded and torch.equal(again.E, bounds(low, high, x, threat, PLAIN, rounded=False).E)
    with pytest.raises(ValueError, match="bilinearly"):
        bounds(low, high, x, replace(threat, interpolation="bicubic"), PLAIN, rounded=False)


def test_chains_of_other_orders_and_kernels_are_refused() -> None:
    toned = Threat.brightness(0.1).then(rotation=1)
    assert "brightness and contrast at the end" in unknown(toned)
    assert "not power after rotation" in unknown(Threat.rotation(1).then(power=0.1))
    cubic = Threat.rotation(1, interpolation="bicubic").then(shear=1)
    with pytest.raises(ValueError, match="bilinear attackers, not bicubic"):
        cover_windows(picture("checkerboard"), cubic, PLAIN, target=0.5)


def test_without_an_l2_part_nothing_is_added() -> None:
    threat = Threat.rotation(2)
    bare, more = (cover_windows(picture("mnist"), t, PLAIN, target=0.5) for t in (threat, threat.then(l2=0.05)))
    assert float(bare.E.max()) <= 0.5 and len(more) > len(bare)


@pytest.mark.parametrize("parts", [{"rotation": 1}, {"rotation": 1, "brightness": 0.1}])
def test_reduced_pictures_are_refused_at_once(parts: dict[str, Any]) -> None:
    threat, halved_ = Threat.made_of(parts), Preprocess(halved=True)
    f = wc.Smoothed(lambda z: z.flatten(1)[:, :2], noise=0.1, preprocess=halved_)
    with pytest.raises(ValueError, match="reduce pictures to half"):
        cover_windows(picture("checkerboard"), threat, halved_, target=0.5)
    assert "reduce pictures to half" in methods.refusal(methods.chosen(f, "cover"), f, threat)


def test_a_large_added_norm_is_as_large_in_float32() -> None:
    """Of a picture far from [0,1], float32 rounds by more than of one inside."""
    x, threat = picture("checkerboard"), Threat.rotation(0.0, quantized=False).then(l2=1e4)
    windows = cover_windows(x, threat, BLUR, target=1.0)
    assert float(windows.E[0]) > 1e4 and pieces.distances(
        pieces.Scene(x.double(), threat, BLUR, True), windows.lower, windows.upper
    )[0] > 1e4 * (1 + 1e-6)


def test_more_cells_than_windows_are_refused_before_they_are_made() -> None:
    with pytest.raises(ValueError, match="at least 40000000000 windows"):
        cover_windows(picture("checkerboard"), Threat.translation(1e5), PLAIN, target=0.5)
