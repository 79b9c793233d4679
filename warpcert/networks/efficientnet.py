"""EfficientNet-Lite 0 to 2 (Tan and Le, 2019; the "lite" form has no squeezing and clips at 6): nets of photographs."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu6

from warpcert.networks.config import ModelConfig

__all__ = ["EfficientNetLite", "Unit"]

SCALES = {"efficientnet-lite0": (1.0, 1.0), "efficientnet-lite1": (1.0, 1.1), "efficientnet-lite2": (1.1, 1.2)}
STEM, LAST = 32, 1280  # channels, whatever the width
STAGES = (  # blocks, kernel, stride, how much wider it is inside, channels; the first and last stage are never deepened
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)  # fmt: skip
EPSILON, MOMENTUM = 1e-3, 0.01  # of normalisations, as these networks were trained


@final
class Unit(nn.Module):
    """A convolution, its normalisation (or the one convolution that does the work of both) and, unless it is linear, a
    clip to 0 … 6. Where it halves the resolution, an odd row of zeros goes to the bottom and right, as in TensorFlow.
    """

    def __init__(self, conv: nn.Conv2d, is_fused: bool, is_linear: bool = False) -> None:
        super().__init__()
        self.conv, self.is_linear = conv, is_linear
        self.norm = nn.Identity() if is_fused else nn.BatchNorm2d(conv.out_channels, EPSILON, MOMENTUM)

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.conv.kernel_size[0], self.conv.stride[0]
        if stride > 1:
            height, width = (max((math.ceil(n / stride) - 1) * stride + kernel - n, 0) for n in x.shape[-2:])
            x = pad(x, (width // 2, width - width // 2, height // 2, height - height // 2))
        x = self.norm(self.conv(x))
        return x if self.is_linear else relu6(x)


def _unit(inside: int, outside: int, is_fused: bool, kernel: int = 1, stride: int = 1) -> Unit:
    edge = kernel // 2 if stride == 1 else 0
    return Unit(nn.Conv2d(inside, outside, kernel, stride, edge, bias=is_fused), is_fused)


@final
class Bottleneck(nn.Module):
    """Wider by 1×1, one k×k filter per channel, narrower by 1×1 without a clip; and the shortcut where shapes agree."""

    def __init__(self, channels: tuple[int, int], kernel: int, stride: int, factor: int, is_fused: bool) -> None:
        super().__init__()
        inside, outside = channels
        wide, edge = inside * factor, kernel // 2 if stride == 1 else 0
        self.expand = _unit(inside, wide, is_fused) if factor > 1 else nn.Identity()
        each = nn.Conv2d(wide, wide, kernel, stride, edge, groups=wide, bias=is_fused)
        self.depthwise = Unit(each, is_fused)
        self.project = Unit(nn.Conv2d(wide, outside, 1, bias=is_fused), is_fused, is_linear=True)
        self.short = inside == outside and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return y + x if self.short else y


@final
class EfficientNetLite(nn.Module):
    """[B,3,H,W] → [B,classes], float32 where classes are groups.

    With `config.groups`, the head has one logit for each member, and the score of a group is the logarithm of the sum
    of its members' exponentials, in float32. It moves by no more than the member that moves most (it is 1-Lipschitz in
    the largest change), so whatever rounding does to the logits it does to the scores at most, and a slack that allows
    for the one allows for the other. Classes outside all groups have no logit: they cannot matter.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: ModelConfig, is_fused: bool = False) -> None:
        super().__init__()
        self.config, self.is_fused = config, is_fused
        self.register_buffer("mean", torch.tensor(config.mean).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(config.std).reshape(-1, 1, 1))
        width, depth = SCALES[config.family]
        self.stem = _unit(config.shape[0], STEM, is_fused, 3, 2)
        body, inside = list[nn.Module](), STEM
        for place, (blocks, kernel, stride, factor, channels) in enumerate(STAGES):
            outside = _scaled(channels, width)
            for index in range(blocks if place in (0, len(STAGES) - 1) else math.ceil(blocks * depth)):
                body.append(Bottleneck((inside, outside), kernel, 1 if index else stride, factor, is_fused))
                inside = outside
        self.body = nn.Sequential(*body)
        self.last = _unit(inside, LAST, is_fused)
        self.head = nn.Linear(LAST, sum(config.groups) or config.classes)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1:] != self.config.shape:
            raise ValueError(f"this model takes batches of {list(self.config.shape)}; got {list(x.shape[1:])}")
        x = self.last(self.body(self.stem((x - self.mean) / self.std)))
        logits: Tensor = self.head(x.mean((2, 3)))
        if not self.config.groups:
            return logits
        ends = list(accumulate(self.config.groups, initial=0))
        groups = [logits[:, first:last].float() for first, last in pairwise(ends)]
        return torch.stack([group.logsumexp(1) for group in groups], 1)


def _scaled(channels: int, width: float) -> int:
    """channels · width, to a multiple of 8, at most a tenth below."""
    rounded = max(8, int(channels * width + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels * width else rounded + 8
