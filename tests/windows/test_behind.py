"""Covers behind a front: no attack leaves its window's ball, and what the front does not see costs nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from serving import network
from torch import Tensor

import warpcert as wc
from warpcert import certificates, methods
from warpcert.certificates import Covered
from warpcert.classifier.before.front import Front
from warpcert.learn.data import load
from warpcert.threat import Threat
from warpcert.transforms import Preprocess
from warpcert.windows import behind
from warpcert.windows.behind import cover_behind, pictures_behind
from warpcert.windows.cover import Windows

CENTRED, STANDARD = Front("centred"), Front("standard")
THREATS: dict[str, dict[str, Any]] = {
    "brightness": {"brightness": 0.4},
    "brightness, then contrast": {"brightness": 0.5, "contrast": (-0.5, 0.44)},
    "contrast, then brightness": {"contrast": (-0.5, 0.44), "brightness": 0.5},
    "turned, brightened": {"rotation": 6, "brightness": 0.2},
    "scaled, more contrast, brightened": {"scaling": 5, "contrast": 0.18, "brightness": 0.3},
    "turned, brightened, and some ℓ2": {"rotation": 3, "brightness": 0.2, "contrast": 0.24, "l2": 0.05},
    "brightness and some ℓ2": {"brightness": 0.4, "l2": 0.1},
}


def picture(name: str) -> Tensor:
    g = torch.Generator().manual_seed(3)
    if name == "noise":
        return (torch.rand(3, 9, 8, generator=g) * 255).round() / 255
    if name == "faint":  # hardly any deviation
        return 0.5 + 0.002 * torch.rand(1, 6, 7, generator=g)
    if name == "constant":
        return torch.full((1, 6, 6), 0.3)
    return load("mnist500").images[7].float() / 255


def excess(x: Tensor, threat: Threat, front: Front, windows: Windows) -> float:
    """The largest ‖front(x') − front(z_j)‖ − E_j, with ℓ2 parts in many directions, by attackers in float32 and
    float64, who hand over float32 or float64.
    """
    g = torch.Generator().manual_seed(0)
    dim, worst = windows.lower.shape[1], -math.inf
    for j in torch.randperm(len(windows), generator=g)[:6].tolist():
        z = front(pictures_behind(windows, x, threat, front, slice(j, j + 1)))[0].double()
        share = torch.rand(40, dim, generator=g, dtype=torch.float64)
        share[:20] = share[:20].round()
        gamma = windows.lower[j] + (windows.upper[j] - windows.lower[j]) * share
        for dtype in (torch.float32, torch.float64):
            handed = threat.attacked(x.to(dtype), gamma)
            pushes = [torch.zeros_like(handed)]
            if threat.l2:
                away = handed.double() - handed.double().mean((1, 2, 3), keepdim=True) - z
                for push in (away, -away, torch.randn(handed.shape, generator=g, dtype=torch.float64)):
                    size = push.flatten(1).norm(dim=1)[:, None, None, None].clamp_min(1e-12)
                    pushes.append((threat.l2 * push / size).to(dtype))
            for push in pushes:
                for given in ((handed + push).float(), (handed + push).double()):
                    shown = front(given).double()
                    worst = max(worst, float((shown - z).flatten(1).norm(dim=1).max() - windows.E[j]))
    return worst


@pytest.mark.parametrize("front", [CENTRED, STANDARD], ids=lambda f: f.name)
@pytest.mark.parametrize("name", THREATS)
@pytest.mark.parametrize("quantized", [False, True], ids=["real", "8-bit"])
def test_no_attack_leaves_its_ball(name: str, front: Front, quantized: bool) -> None:
    threat = Threat.made_of(THREATS[name], quantized=quantized)
    for image in ("noise", "faint", "constant", "mnist"):
        x = picture(image)
        if image == "mnist" and len(threat.transform.parts) > 2:
            continue
        windows = cover_behind(x, threat, front, target=1.0, rounded=True, max_windows=300)
        assert excess(x, threat, front, windows) <= 0
        lower, upper = (torch.tensor(end, dtype=torch.float64) for end in (threat.box.lower, threat.box.upper))
        torch.testing.assert_close((windows.upper - windows.lower).prod(1).sum(), (upper - lower).prod())


def test_the_front() -> None:
    x = picture("noise").double()
    for front, c, b in ((CENTRED, 1.0, 0.7), (STANDARD, 1.0, 0.7), (STANDARD, 0.3, -2.0), (STANDARD, 5.0, 0.1)):
        torch.testing.assert_close(front(c * x + b), front(x), atol=1e-13, rtol=1e-12)
    shown = STANDARD(x)
    assert abs(float(shown.mean())) < 1e-12 and float(shown.square().mean().sqrt()) == pytest.approx(0.25)
    assert torch.equal(STANDARD(torch.full((1, 4, 4), 0.25)), torch.zeros(1, 4, 4)) and Front()(x) is x
    torch.testing.assert_close(STANDARD(torch.stack((x, 2 * x)))[1], shown)
    with pytest.raises(ValueError, match="front 'grey' is not known"):
        Front("grey")


def test_what_is_seen() -> None:
    real = Threat.rotation(5, quantized=False).then(contrast=0.1, brightness=0.1, l2=0.1)
    rest, unseen = CENTRED.sees(real)
    assert rest == Threat.rotation(5, quantized=False).then(contrast=0.1) and len(unseen) == 1
    rest, unseen = STANDARD.sees(real)
    assert rest == Threat.rotation(5, quantized=False) and len(unseen) == 2
    rest, unseen = STANDARD.sees(Threat.rotation(5).then(brightness=0.1))  # clipped and rounded: all is seen
    assert rest == Threat.rotation(5).then(brightness=0.1) and not unseen
    assert CENTRED.sees(Threat.brightness(0.3, quantized=False))[0] is None
    assert CENTRED.sees(Threat.contrast(0.24, quantized=False))[0] is not None


def test_spread_holds_and_is_needed() -> None:
    """Random pictures at distance E: what the front makes of them, and a bound of half the size is passed."""
    g = torch.Generator().manual_seed(1)
    for scale in (1.0, 0.1, 0.01):
        z = scale * torch.rand(200, 1, 3, 4, generator=g, dtype=torch.float64)
        for E in (1e-6, 1e-3, 0.05, 0.3, 2.0):
            push = torch.randn(z.shape, generator=g, dtype=torch.float64)
            push = E * push / push.flatten(1).norm(dim=1)[:, None, None, None]
            for front in (CENTRED, STANDARD):
                far = (front(z + push) - front(z)).flatten(1).norm(dim=1)
                bound = front.spread(torch.full((200,), E, dtype=torch.float64), z)
                assert bool((far <= bound).all())
                assert E < 1e-5 or bool((far > 0.5 * bound).any())


@pytest.mark.parametrize("dropped", ["rounding", "l2 over the least factor"])
def test_every_term_is_needed(dropped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture with hardly any deviation under a large shift, and an ℓ2 part after contrast was taken away."""
    if dropped == "rounding":
        x, threat = picture("faint"), Threat.brightness((0.0, 300.0), quantized=False)
        monkeypatch.setattr(behind, "UNIT", 0.0)
    else:
        x, threat = picture("noise"), Threat.contrast((-0.9, 0), quantized=False).then(l2=0.05)
        whole = behind._handed_over
        monkeypatch.setattr(behind, "_handed_over", lambda t, *rest: 0.3 * whole(t, *rest))
    windows = cover_behind(x, threat, STANDARD, target=1.0, rounded=True, max_windows=300)
    assert excess(x, threat, STANDARD, windows) > 0


class Corner(torch.nn.Module):
    """Whether the upper left is brighter than the rest: not changed by brightness, nor, in sign, by contrast."""

    def forward(self, z: Tensor) -> Tensor:
        s = z[:, 0, :3, :3].mean((1, 2)) - z[:, 0, 3:].mean((1, 2))
        return torch.stack((-s, s), 1)


def test_certificates_and_answers(tmp_path: Any) -> None:
    x = torch.zeros(1, 8, 8)
    x[0, :3, :3] = 1
    f = wc.Smoothed(Corner().eval(), noise=0.2, front="standard")
    threat = Threat.rotation(5, quantized=False).then(brightness=0.5, contrast=(-0.6, 0.44))
    made = f.certify(x, threat, n=2000, seed=0)
    assert isinstance(made, Covered) and made.reach == threat.box and made.label == 1
    assert certificates.read(made.to_dict()) == made and made.defence.front == "standard"
    assert "behind a front that takes the mean away and sets the deviation answers 1 under every rotation" in str(made)
    alone = f.certify(x, Threat.rotation(5, quantized=False), n=2000, seed=0)
    assert isinstance(alone, Covered) and len(alone.windows) == len(made.windows)  # they cost nothing
    gamma = threat.box.uniform(20, torch.Generator().manual_seed(0))
    handed = threat.attacked(x, gamma)
    assert float(handed.max()) > 1 > 0 > float(handed.min()) and f.predict(handed) == [1] * 20
    assert f.vote(handed[0], early=True).label == 1
    plain = wc.Smoothed(Corner().eval(), noise=0.2)
    assert plain.fingerprint != f.fingerprint and "front" not in plain.facts
    assert "front" not in plain.defence(threat.transform).to_dict()
    body = made.to_dict()
    body["defence"]["front"] = "centred"
    with pytest.raises(ValueError, match="the front is not that of the classifier"):
        certificates.read({k: v for k, v in body.items() if k != "digest"}, digest=False)
    assert f.foresee(x, threat, n=2000).passes > 0 and methods.suitable(f, threat) == ["cover"]
    for wrong in ({"preprocess": Preprocess("circle")}, {"over": {"rotation": 10}}):
        with pytest.raises(ValueError, match="a front stands before pixel noise alone"):
            wc.Smoothed(Corner().eval(), noise=0.2, front="centred", **wrong)


def test_an_added_norm_may_shrink_behind_a_front() -> None:
    """Dividing by a large deviation leaves less of it: such a record passes its check."""
    x = torch.zeros(1, 8, 8)
    x[0, :4] = 1
    f = wc.Smoothed(Corner().eval(), noise=0.2, front="standard")
    made = f.certify(x, Threat.brightness(0.3, quantized=False).then(l2=0.1), n=2000, seed=0)
    assert made.reach and made.error.E < 0.1 and certificates.read(made.to_dict()) == made


def test_a_front_is_stored_with_its_classifier(tmp_path: Any) -> None:
    f = wc.Smoothed(network(), noise=0.2, front="centred")
    f.save(tmp_path / "f.safetensors")
    again = wc.load(str(tmp_path / "f.safetensors"))
    assert again.front == "centred" and again.fingerprint == f.fingerprint and again.facts == f.facts
    with pytest.raises(ValueError, match="is not known"):
        wc.Smoothed(network(), noise=0.2, front="grey")
