"""Entry points for the tests of models from elsewhere: `foreign_models:net` and so on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Small, with every layer that behaves differently in training."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.norm, self.drop = nn.Flatten(), nn.BatchNorm1d(784), nn.Dropout(0.5)
        self.head = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.norm(self.flat(x))))  # type: ignore[no-any-return]


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net()


def random_net() -> nn.Module:
    return Net()


def function() -> Callable[[Tensor], Tensor]:
    return lambda x: x.flatten(1)[:, :10]


def nan() -> Callable[[Tensor], Tensor]:
    return lambda x: x.flatten(1)[:, :10] * torch.nan


def number() -> int:
    return 3
