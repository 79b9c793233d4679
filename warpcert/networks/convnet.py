"""The paper's network for MNIST: unpadded convolutions, two reductions, one hidden layer."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, max_pool2d, relu

from warpcert.networks.config import ModelConfig
from warpcert.networks.resnet import ConvNorm

__all__ = ["ConvNet"]

HIDDEN, DROPPED = 100, 0.4


@final
class ConvNet(nn.Module):
    """[B,C,H,W] → logits [B,classes]: two 5×5 convolutions to w channels, the largest of 2×2, two 3×3 ones to 2w, the
    largest of 2×2, a 3×3 and a 1×1 one to 4w, a hidden layer of 100. None is padded; each has batch normalisation and a
    rectifier. In training a share of what every stage passes on is dropped, at random by torch's global generator.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: ModelConfig, is_fused: bool = False) -> None:
        super().__init__()
        self.config, self.is_fused, width = config, is_fused, config.width
        inside = ((s - 8) // 2 - 4 for s in config.shape[1:])
        last = [(side // 2) - 2 for side in inside]
        if min(last) < 1:
            raise ValueError(f"a convnet needs pictures of at least 28×28 pixels; got {config.shape[1:]}")
        self.register_buffer("mean", torch.tensor(config.mean).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(config.std).reshape(-1, 1, 1))
        sizes = (config.shape[0], width, width, 2 * width, 2 * width, 4 * width, 4 * width)
        kernels = (5, 5, 3, 3, 3, 1)
        self.body = nn.ModuleList(
            ConvNorm(2, a, b, k, 0, is_fused) for a, b, k in zip(sizes, sizes[1:], kernels, strict=False)
        )
        self.hidden = nn.Linear(4 * width * math.prod(last), HIDDEN)
        self.head = nn.Linear(HIDDEN, config.classes)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1:] != self.config.shape:
            raise ValueError(f"this model takes batches of {list(self.config.shape)}; got {list(x.shape[1:])}")
        x = (x - self.mean) / self.std
        for place, layer in enumerate(self.body):
            x = relu(layer(x))
            if place % 2:
                x = dropout(max_pool2d(x, 2) if place < 5 else x, DROPPED, self.training)
        x = dropout(relu(self.hidden(x.flatten(1))), DROPPED, self.training)
        logits: Tensor = self.head(x)
        return logits
