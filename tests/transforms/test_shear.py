"""Shear: its direction and unit, and every method end to end on a network that is small enough to attack at length."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import warpcert as wc
from warpcert import certificates
from warpcert.threat import Threat
from warpcert.transforms import Box, Preprocess, Shear

THREAT = Threat.shear(percent=(-10, 5))
FRAME = Preprocess("rectangle", 1, 1, 5)


class Bright(torch.nn.Module):
    """Class 0 where the upper half is brighter than the lower."""

    def forward(self, z: Tensor) -> Tensor:
        half = z.shape[2] // 2
        lead = 30 * (z[:, :, :half].mean((1, 2, 3)) - z[:, :, half:].mean((1, 2, 3)))
        return torch.stack((lead, -lead), 1)


PICTURE = torch.cat((torch.full((1, 6, 12), 0.8), torch.full((1, 6, 12), 0.2)), 1)
SMOOTH = wc.Smoothed(Bright().eval(), noise=0.3, over={"shear": 30}, preprocess=FRAME)


def test_lower_rows_move_to_the_right() -> None:
    x = torch.zeros(1, 5, 9, dtype=torch.float64)
    x[0, :, 4] = 1
    moved = Shear()(x, torch.tensor([[Shear().internal(100)]], dtype=torch.float64))[0, 0]
    torch.testing.assert_close(moved, torch.eye(9, dtype=torch.float64)[2:7], atol=1e-12, rtol=0)


def test_per_cent_at_the_surface() -> None:
    assert Threat.of("shear", -10, 5) == THREAT and THREAT.box == Box((-0.1,), (0.05,))
    assert THREAT.transform.span(THREAT.box) == "-10% … +5%" and Shear().to_text(0.1) == "10%"
    assert Threat.from_dict(THREAT.to_dict()) == THREAT


@pytest.mark.parametrize("quantized", [True, False])
@pytest.mark.parametrize("method", ["exact", "cover", "dist-x", "indiv", "base"])
def test_certified_end_to_end(method: str, quantized: bool) -> None:
    """In per cent, a record that reads back, and attacks within the range that keep the label."""
    threat = Threat.shear(percent=(-10, 5), quantized=quantized)
    settings = {"exact": {}, "cover": {"n": 2000, "seed": 1}}.get(method, {"n": 2000, "seed": 1, "windows": 1})
    if method in ("dist-x", "indiv"):
        settings |= {"betas": 60}
    if method == "indiv":
        settings |= {"inverse": "interval"}
    classifier = {"exact": wc.Levels(Bright().eval(), 8), "cover": wc.Smoothed(Bright().eval(), noise=0.3)}
    net = classifier.get(method, SMOOTH)
    made = net.certify(PICTURE, threat, method=method, **settings)
    kinds = {"exact": wc.Kind.PROVED, "base": wc.Kind.HEURISTIC}
    assert made.label == 0 and made.kind is kinds.get(method, wc.Kind.WITH_CONFIDENCE)
    assert made.unit == "per cent" and "shear" in str(made) and "%" in str(made)
    assert certificates.read(made.to_dict()) == made
    assert made.reach is not None and made.reach.upper[0] > 0
    if method != "indiv":  # whose range is about the unseen original
        assert made.reach == threat.box and made.range == pytest.approx((-10, 5))
    given = threat.attacked(PICTURE.double(), made.reach.grid(401)).float()
    assert set(Bright()(given).argmax(1).tolist()) == {0}


def test_attacks_find_what_is_not_certified() -> None:
    """A diagonal edge that shear turns: `exact` ends its range before the attacks, in float64, succeed."""
    x = torch.where(torch.arange(12)[:, None] > torch.arange(12), 0.9, 0.1)[None]

    def leaning(z: Tensor) -> Tensor:
        lead = z[:, 0, 2, 2:5].sum(1) - z[:, 0, 9, 2:5].sum(1) + 1.0
        return torch.stack((lead, -lead), 1)

    net, threat = wc.Levels(leaning, 8), Threat.shear(percent=90)
    label, made = int(net(x[None]).argmax()), net.certify(x, threat, method="exact")
    attack = wc.grid(net, x, label, threat, per_axis=201)
    assert attack.succeeded and made.reach is not None and 0 < made.reach.upper[0] < 0.9
    within = Threat(threat.transform, made.reach)
    g = torch.Generator().manual_seed(0)
    assert not wc.grid(net, x.double(), label, within, per_axis=501).succeeded
    assert not wc.worst_of_k(net, x.double(), label, within, k=500, generator=g).succeeded
