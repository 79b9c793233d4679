"""Small residual networks on P-images, and the weight files of all families.

A network is trained with batch normalisation and deployed without: `fused` folds each normalisation into its
convolution. The deployed form, with parameters rounded to half precision, is what `save` writes and `load_weights`
returns; certify and deploy only that one.
"""

from __future__ import annotations

import hashlib
import json
import math
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import relu
from torch.nn.utils.fusion import fuse_conv_bn_weights

from warpcert.networks import lipschitz
from warpcert.networks.config import ModelConfig
from warpcert.networks.files import read_tensors, write_tensors
from warpcert.networks.lipschitz import LipschitzNet
from warpcert.networks.sound import Mfcc

__all__ = [
    "FORMAT",
    "Half",
    "ModelConfig",
    "Network",
    "ResNet",
    "build",
    "channels_last",
    "fingerprint",
    "fused",
    "load_weights",
    "save",
]

FORMAT = "warpcert-model-1"
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
    """A convolution ("same" padding) and its batch normalisation, or the one convolution that does the work of both."""

    def __init__(self, dims: int, inside: int, outside: int, kernel: int, stride: int, is_fused: bool) -> None:
        super().__init__()
        conv, norm = (nn.Conv2d, nn.BatchNorm2d) if dims == 2 else (nn.Conv1d, nn.BatchNorm1d)
        self.conv = conv(inside, outside, kernel, stride, kernel // 2, bias=is_fused)
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


Network = ResNet | LipschitzNet
N = TypeVar("N", bound=ResNet | LipschitzNet)


@final
class Half(nn.Module):
    """The same weights computed in half precision: another function than in float32, several times faster on a GPU.

    A certificate for it is about it: deploy the one that was certified.
    """

    def __init__(self, model: Network) -> None:
        super().__init__()
        if not isinstance(model, ResNet):
            raise ValueError("a lipschitz model's constant is proved for float32: do not compute it in half precision")
        self.model = channels_last(deepcopy(model).half())
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.half()).float()  # type: ignore[no-any-return]


def build(config: ModelConfig, seed: int = 0) -> Network:
    """A network to train, its weights a function of (config, seed); torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = (LipschitzNet if config.family == "lipschitz" else ResNet)(config)
    for module in model.modules():
        if isinstance(module, Block):  # each block starts as its shortcut
            nn.init.zeros_(module.second.norm.weight)  # type: ignore[arg-type]
    return model


def channels_last(model: N) -> N:
    """`model` with its weights laid out for speed (the same values); batches may come in any layout. In place."""
    if len(model.config.shape) == 3:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def fused(model: Network) -> Network:
    """The deployed form (CPU, float32, eval mode): normalisations folded into convolutions, and the mirror image, if
    the config says so, looked at too; else the same function.
    """
    if isinstance(model, LipschitzNet):
        return lipschitz.deployed(model)
    source = deepcopy(model).cpu().float()
    if source.is_fused:
        return source.eval()
    result = ResNet(source.config, is_fused=True)
    result.head.load_state_dict(source.head.state_dict())
    targets = dict(result.named_modules())
    for name, module in source.named_modules():
        if isinstance(module, ConvNorm):
            norm: Any = module.norm
            weight, bias = fuse_conv_bn_weights(
                module.conv.weight, None, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
            )
            targets[name].conv.load_state_dict({"weight": weight, "bias": bias})
    return result.eval()


def save(model: Network, path: Path, extra: dict[str, Any] | None = None) -> None:
    """Writes the deployed form of `model`, parameters in half precision, with its config and `extra` (JSON)."""
    deployed = fused(model)
    tensors = {name: t.half() if t.is_floating_point() else t for name, t in deployed.named_parameters()}
    tensors |= dict(deployed.named_buffers())
    if not all(bool(t.isfinite().all()) for t in tensors.values()):
        raise ValueError(
            "the model has weights that are not finite in half precision; it was not saved (did training diverge?)"
        )
    metadata = {"format": FORMAT, "config": json.dumps(deployed.config.to_dict()), "extra": json.dumps(extra or {})}
    write_tensors({name: t.detach().contiguous() for name, t in tensors.items()}, path, metadata)


def load_weights(path: Path | str) -> tuple[Network, ModelConfig, dict[str, Any]]:
    """The deployed model (eval mode, float32, CPU), its config, and what was saved with it.

    A Lipschitz network is verified: its `lipschitz` is proved from the numbers in the file.
    """
    path = Path(path)
    tensors, metadata = read_tensors(path, FORMAT)
    try:
        config, extra = ModelConfig.from_dict(json.loads(metadata["config"])), json.loads(metadata["extra"])
        model = (LipschitzNet if config.family == "lipschitz" else ResNet)(config, is_fused=True)
        model.load_state_dict({name: t.float() for name, t in tensors.items()})
        if isinstance(model, LipschitzNet):
            lipschitz.verified(model)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} does not hold the model that its header describes: {error}") from None
    return channels_last(model.eval().requires_grad_(False)), config, extra


def fingerprint(model: nn.Module) -> str:
    """sha256 over names, shapes and float32 bytes of the state, in order of names; the same on every device."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()
