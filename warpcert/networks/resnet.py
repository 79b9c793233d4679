"""Small residual networks of pictures or sounds."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from warpcert.networks.config import ModelConfig
from warpcert.networks.sound import Mfcc

__all__ = ["Block", "ConvNorm", "ResNet", "Standard"]

FLOOR = 0.05  # what stands in for the deviation of items that hardly have one


@final
class Standard(nn.Module):
    """Each item of a batch, of any shape, less its mean and divided by its standard deviation + FLOOR.

    x + γ becomes what x becomes, up to rounding. The numbers are computed in float32 at least, whatever comes in; what
    goes out has the dtype of what came in.
    """

    floor: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("floor", torch.tensor(FLOOR))  # part of the state: another function, another fingerprint

    def forward(self, x: Tensor) -> Tensor:
        z = x.to(torch.promote_types(x.dtype, torch.float32))
        std, mean = torch.std_mean(z, tuple(range(1, x.dim())), correction=0, keepdim=True)
        return ((z - mean) / (std + self.floor)).to(x.dtype)


@final
class ConvNorm(nn.Module):
    """A convolution and its batch normalisation, or the one convolution that does the work of both. Padding is "same",
    for a stride of 0 there is none and the stride is 1.
    """

    def __init__(self, dims: int, inside: int, outside: int, kernel: int, stride: int, is_fused: bool) -> None:
        super().__init__()
        padding, stride = kernel // 2 if stride else 0, stride or 1
        conv, norm = (nn.Conv2d, nn.BatchNorm2d) if dims == 2 else (nn.Conv1d, nn.BatchNorm1d)
        self.conv = conv(inside, outside, kernel, stride, padding, bias=is_fused)
        self.norm = nn.Identity() if is_fused else norm(outside)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))  # type: ignore[no-any-return]


@final
class Block(nn.Module):
    """relu(shortcut + norm conv relu norm conv x)."""

    def __init__(self, dims: int, inside: int, outside: int, stride: int, is_fused: bool) -> None:
        super().__init__()
        self.first = ConvNorm(dims, inside, outside, 3, stride, is_fused)
        self.second = ConvNorm(dims, outside, outside, 3, 1, is_fused)
        same = inside == outside and stride == 1
        self.short = nn.Identity() if same else ConvNorm(dims, inside, outside, 1, stride, is_fused)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.second(relu(self.first(x))).add_(self.short(x)))


@final
class ResNet(nn.Module):
    """[B,C,H,W] (or [B,C,L]) → logits [B,classes]."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: ModelConfig, is_fused: bool = False) -> None:
        super().__init__()
        self.front: nn.Module = Standard() if config.front == "standard" else nn.Identity()
        if config.front == "mfcc":
            self.front = Mfcc(config.shape)
        seen = self.front.shape if isinstance(self.front, Mfcc) else config.shape
        dims = len(seen) - 1
        self.config, self.is_fused, self.flatten = config, is_fused, config.head == "flatten"
        self.register_buffer("mean", torch.tensor(config.mean).reshape(-1, *(1,) * dims))
        self.register_buffer("std", torch.tensor(config.std).reshape(-1, *(1,) * dims))
        channels = config.width
        self.stem = ConvNorm(dims, seen[0], channels, config.stem_kernel, config.stem_stride, is_fused)
        places = [-(-side // config.stem_stride) for side in seen[1:]]
        stages: list[nn.Module] = []
        for stage, count in enumerate(config.blocks):
            for index in range(count):
                halve = stage > 0 and index == 0
                wide = channels * 2 if halve else channels
                stages.append(Block(dims, channels, wide, 2 if halve else 1, is_fused))
                places = [-(-side // 2) for side in places] if halve else places
                channels = wide
        self.body = nn.Sequential(*stages)
        self.head = nn.Linear(channels * (math.prod(places) if self.flatten else 1), config.classes)
        if config.mirror:
            self.register_buffer("mirror", torch.ones(1))  # part of the state: another function, another fingerprint

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1:] != self.config.shape:
            raise ValueError(f"this model takes batches of {list(self.config.shape)}; got {list(x.shape[1:])}")
        if self.config.mirror and self.is_fused:
            return (self._logits(x) + self._logits(x.flip(-1))) / 2
        return self._logits(x)

    def _logits(self, x: Tensor) -> Tensor:
        x = self.body(relu(self.stem((self.front(x) - self.mean) / self.std)))
        return self.head(x.flatten(1) if self.flatten else x.mean(tuple(range(2, x.dim()))))  # type: ignore[no-any-return]
