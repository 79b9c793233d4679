"""The mosaic in front of a network: what it reads of a picture, and the picture that it makes of that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import warpcert as wc
from warpcert.classifier import Levels
from warpcert.classifier.before.mosaic import Mosaic, Mosaicked
from warpcert.classifier.before.rounding import coarsened
from warpcert.classifier.storage import configured

COLOUR = [Mosaic(), Mosaic("bayer", circle=False), Mosaic("all"), Mosaic("all", circle=False)]


def by_hand(known: Tensor, z: Tensor, c: int, y: int, x: int) -> float:
    """The mean of what is read of a colour around a pixel."""
    total = weight = 0.0
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            if 0 <= y + dy < z.shape[1] and 0 <= x + dx < z.shape[2] and known[c, y + dy, x + dx]:
                w = (2 - abs(dy)) * (2 - abs(dx))
                total, weight = total + w * float(z[c, y + dy, x + dx]), weight + w
    return total / max(1.0, weight)


@pytest.mark.parametrize("mosaic", COLOUR)
@pytest.mark.parametrize("step", [1, 16, 64])
def test_what_was_read_is_shown_and_the_rest_made_of_it(mosaic: Mosaic, step: int, generator: torch.Generator) -> None:
    z = torch.rand(2, 3, 9, 8, generator=generator)
    front, known = Mosaicked(step, mosaic), mosaic.read((3, 9, 8))
    shown, levels = front(z), coarsened(z, step)
    assert torch.equal(shown[:, known], levels[:, known])
    assert torch.equal(front(shown), shown) and torch.equal(front.levels(shown), front.levels(z))
    assert front.levels(z).shape == (2, int(known.sum())) and shown.dtype == torch.float32
    for c in range(3):
        for y in range(9):
            for x in range(8):
                if not known[c, y, x]:
                    made = by_hand(known, levels[0].double(), c, y, x) if bool(known[:, y, x].any()) else 0.0
                    assert abs(float(shown[0, c, y, x]) - made) < 1e-7


@pytest.mark.parametrize("mosaic", COLOUR)
def test_nothing_else_is_read(mosaic: Mosaic, generator: torch.Generator) -> None:
    z, other = (torch.rand(1, 3, 10, 12, generator=generator) for _ in range(2))
    front, known = Mosaicked(8, mosaic), mosaic.read((3, 10, 12))
    assert torch.equal(front(torch.where(known, z, other)), front(z))
    for place in known.flatten().nonzero()[:, 0].tolist():
        dark = z.clone().flatten()
        dark[place] = 1 - (z.flatten()[place] > 0.5).float()
        assert not torch.equal(front(dark.view_as(z)), front(z))


def test_the_pattern_of_a_camera_inside_a_circle() -> None:
    whole = Mosaic(circle=False).read((3, 6, 7))
    assert bool((whole.sum(0) == 1).all()) and whole.sum((1, 2)).tolist() == [12, 21, 9]
    assert whole[0, 0, 0] and whole[1, 0, 1] and whole[1, 1, 0] and whole[2, 1, 1]
    round_ = Mosaic().read((3, 20, 20)).any(0)
    y, x = torch.meshgrid(torch.arange(20) - 9.5, torch.arange(20) - 9.5, indexing="ij")
    assert torch.equal(round_, y.square() + x.square() <= 100)
    assert torch.equal(Mosaic("bayer").read((1, 8, 8)), Mosaic("all").read((1, 8, 8)))
    assert not bool(Mosaicked(32)(torch.ones(1, 3, 20, 20))[:, :, ~round_].any())


def test_a_mosaic_is_a_fact_that_is_saved_and_told(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).eval()
    kinds = [Levels(net, 16), Levels(net, 16, sees=Mosaic()), Levels(net, 16, sees=Mosaic("all"))]
    kinds += [Levels(net, 16, sees=Mosaic(circle=False)), Levels(net, 16, sees=wc.Stem())]
    assert len({f.fingerprint for f in kinds}) == 5
    assert kinds[1].facts["sees"] == {"kind": "mosaic", "colours": "bayer", "circle": True}
    again = configured(net, kinds[1].facts)
    z = torch.rand(4, 3, 8, 8)
    assert again.fingerprint == kinds[1].fingerprint and again.sees == Mosaic()
    assert torch.equal(again(z), net(Mosaicked(16, Mosaic())(z)))
    own = wc.load("mnist-rotation-exact")
    behind = configured(own.network, own.facts | {"sees": {"kind": "mosaic"}}, own.about)
    behind.save(tmp_path / "f.safetensors")
    loaded = wc.load(str(tmp_path / "f.safetensors"))
    assert loaded.fingerprint == behind.fingerprint != own.fingerprint and loaded.sees == wc.Mosaic()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mosaic("rgb"), "bayer or all"),
        (lambda: Mosaicked(3), "power of two"),
        (lambda: Mosaicked()(torch.zeros(1, 2, 8, 8)), "grey or colour"),
        (lambda: configured(nn.Identity(), {"kind": "levels", "sees": {"kind": "tiles"}}), "stem or mosaic"),
        (lambda: configured(nn.Identity(), {"kind": "levels", "sees": {"kind": "mosaic", "luma": 2}}), "not the facts"),
    ],
)
def test_what_is_no_mosaic_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
