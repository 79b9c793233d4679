"""A compiled network is taken where it answers as the network does, and only there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from warpcert.classifier import Plain, swift


class OnGPU(Tensor):
    is_cuda = True


def batch(side: int) -> Tensor:
    pictures = torch.rand(4, 3, side, side, generator=torch.Generator().manual_seed(side))
    return pictures.as_subclass(OnGPU)


@pytest.fixture
def network() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()


def compiling(monkeypatch: pytest.MonkeyPatch, off: Callable[[Tensor], float]) -> list[torch.Size]:
    """Instead of a compiler: networks whose logits are off; which batches it was asked to compile for."""
    asked: list[torch.Size] = []

    def compiled(network: nn.Module, half: bool) -> Callable[[Tensor], Tensor]:
        def logits(pictures: Tensor) -> Tensor:
            asked.append(pictures.shape)
            result: Tensor = network(pictures) + off(pictures)
            return result

        return logits

    monkeypatch.setattr(swift, "_compiled", compiled)
    return asked


def test_what_was_compared_for_one_slack_or_size_is_compared_anew_for_another(
    network: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = compiling(monkeypatch, lambda pictures: 2e-5 if pictures.shape[2] == 112 else 1e-3)
    usual, strict = Plain(network), Plain(network, slack=1e-5)
    for _ in range(2):
        assert swift.swift(usual, batch(112)) != usual.logits
        assert swift.swift(usual, batch(128)) == usual.logits
        assert swift.swift(strict, batch(112)) == strict.logits
    assert asked == [batch(112).shape, batch(128).shape, batch(112).shape]


def test_weights_that_change_are_compared_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    last = nn.Linear(3, 2)
    f = Plain(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), last).eval())
    asked = compiling(monkeypatch, lambda pictures: 0.0)
    for _ in range(3):
        assert swift.swift(f, batch(112)) != f.logits and len(asked) == 1
    nn.init.constant_(last.weight, 2.0)
    assert swift.swift(f, batch(112)) != f.logits and len(asked) == 2


def test_what_does_not_compile_or_answers_nonsense_is_left(network: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    compiling(monkeypatch, lambda pictures: float("nan"))
    f = Plain(network)
    assert swift.swift(f, batch(112)) == f.logits

    def fails(pictures: Tensor) -> float:
        raise RuntimeError("no compiler")

    compiling(monkeypatch, fails)
    with pytest.warns(UserWarning, match="no compiler"):
        assert swift.swift(f, batch(128)) == f.logits
    assert swift.swift(f, batch(64)) == f.logits, "small pictures"


def test_on_a_cpu_the_channels_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    f, pictures = Plain(net), torch.rand(4, 3, 112, 112)
    made = swift.swift(f, pictures)
    assert made != f.logits and swift.swift(f, pictures[:3]) is made
    assert torch.allclose(made(pictures), f.logits(pictures), atol=1e-6) and net[0].weight.is_contiguous()
    nn.init.constant_(net[0].weight, 1.0)
    assert not torch.allclose(swift.swift(f, pictures)(pictures), made(pictures))
    monkeypatch.setattr(swift, "_laid_out", lambda network, half: lambda z: network(z) + 1e-3)
    assert swift.swift(f, pictures[:, :, :110]) == f.logits, "too far off"
