"""Attacks find what is there to find, stay inside Γ, and hand over 8-bit images."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import warpcert as wc

THREAT = wc.Threat.of("rotation", 40)


def tilt(z: Tensor) -> Tensor:
    """Falls smoothly as the bar turns counter-clockwise; class 1 while the bar is nearly upright."""
    n = z.shape[-1]
    y, x = torch.meshgrid(*2 * [torch.arange(n, dtype=z.dtype) - (n - 1) / 2], indexing="ij")
    moment = (z[:, 0] * x * y).sum((1, 2))
    return torch.stack((moment - 60, 60 - moment), 1)


def bar() -> Tensor:
    x = torch.zeros(1, 15, 15)
    x[:, 2:13, 6:9] = 1
    return x


ATTACKS: dict[str, Callable[[torch.Generator], wc.Attack]] = {
    "worst-of-k": lambda g: wc.worst_of_k(tilt, bar(), 1, THREAT, k=200, generator=g),
    "grid": lambda g: wc.grid(tilt, bar(), 1, THREAT, per_axis=81),
    "gradient": lambda g: wc.gradient(tilt, bar(), 1, THREAT, starts=4, generator=g),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_find_the_far_end(name: str, generator: torch.Generator) -> None:
    found = ATTACKS[name](generator)
    worst = max(float(-torch.log_softmax(tilt(THREAT.attacked(bar(), g[None])), 1)[0, 1]) for g in THREAT.box.grid(161))
    assert found.succeeded and found.label == 0
    assert found.loss > 0.9 * worst
    assert THREAT.box.contains(found.gamma)
    levels = found.x_attacked * 255
    torch.testing.assert_close(levels, levels.round(), atol=1e-4, rtol=0)
    torch.testing.assert_close(
        found.x_attacked, THREAT.attacked(bar(), torch.tensor([found.gamma], dtype=torch.float64))[0], atol=0, rtol=0
    )


def test_gradient_climbs_from_where_it_starts(generator: torch.Generator) -> None:
    one = wc.gradient(tilt, bar(), 1, THREAT, starts=1, generator=generator)
    start = wc.worst_of_k(tilt, bar(), 1, THREAT, k=1, generator=torch.Generator().manual_seed(0))
    assert one.loss > start.loss


def test_a_harmless_threat_fails(generator: torch.Generator) -> None:
    tiny = wc.Threat.of("rotation", 0.5)
    assert not wc.worst_of_k(tilt, bar(), 1, tiny, generator=generator).succeeded


def test_bad_arguments_are_refused(generator: torch.Generator) -> None:
    with pytest.raises(ValueError, match="k ≥ 1"):
        wc.worst_of_k(tilt, bar(), 1, THREAT, k=0, generator=generator)
    with pytest.raises(ValueError, match="label"):
        wc.grid(tilt, bar(), 7, THREAT, per_axis=3)
    with pytest.raises(ValueError, match="points"):
        wc.grid(tilt, bar(), 1, THREAT, per_axis=1)
    with pytest.raises(ValueError, match="NaN"):
        wc.grid(tilt, bar() * math.nan, 1, THREAT)


def test_an_l2_part_is_used_and_kept_to(generator: torch.Generator) -> None:
    x, label = bar(), 1

    def soft(z: Tensor) -> Tensor:
        return tilt(z) / 50

    bare = wc.Threat.rotation(5)
    pushed = bare.then(l2=1.5)
    plain = wc.grid(soft, x, label, bare, per_axis=11)
    for found in (
        wc.grid(soft, x, label, pushed, per_axis=11),
        wc.worst_of_k(soft, x, label, pushed, k=20, generator=generator),
        wc.gradient(soft, x, label, pushed, starts=3, generator=generator),
    ):
        before = bare.attacked(x, torch.tensor([found.gamma], dtype=torch.float64))[0]
        assert 1.4 < float((found.x_attacked - before).double().norm()) <= 1.5
        assert found.loss > plain.loss and found.label == int(soft(found.x_attacked[None]).argmax())
    blunt = wc.grid(lambda z: soft(z).detach(), x, label, pushed, per_axis=11)  # no gradient
    assert float((blunt.x_attacked - bare.attacked(x, torch.tensor([blunt.gamma]).double())[0]).norm()) <= 1.5
