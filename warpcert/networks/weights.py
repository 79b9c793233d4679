"""From a network to the numbers that are stored, and back.

A network is trained with batch normalisation and deployed without: `fused` folds each normalisation into its
convolution. The deployed form, with parameters rounded to half precision, is what is stored and restored; certify and
deploy only that one.
"""

from __future__ import annotations

import hashlib
from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from warpcert.networks import lipschitz
from warpcert.networks.config import LITES, ModelConfig
from warpcert.networks.convnet import ConvNet
from warpcert.networks.efficientnet import EfficientNetLite, Unit
from warpcert.networks.lipschitz import LipschitzNet
from warpcert.networks.resnet import Block, ConvNorm, ResNet

__all__ = ["BUILT", "Network", "build", "channels_last", "fingerprint", "fused", "restored", "stored"]

Network = ResNet | ConvNet | LipschitzNet | EfficientNetLite
N = TypeVar("N", bound=ResNet | ConvNet | LipschitzNet | EfficientNetLite)
BUILT: dict[str, type[ResNet] | type[ConvNet] | type[LipschitzNet] | type[EfficientNetLite]]
BUILT = {"resnet": ResNet, "convnet": ConvNet, "lipschitz": LipschitzNet, **dict.fromkeys(LITES, EfficientNetLite)}


def build(config: ModelConfig, seed: int = 0) -> Network:
    """A network to train, its weights a function of (config, seed); torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BUILT[config.family](config)
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
    result = type(source)(source.config, is_fused=True)
    result.head.load_state_dict(source.head.state_dict())
    if isinstance(source, ConvNet) and isinstance(result, ConvNet):
        result.hidden.load_state_dict(source.hidden.state_dict())
    targets = dict(result.named_modules())
    for name, module in source.named_modules():
        if isinstance(module, ConvNorm | Unit):
            norm: Any = module.norm
            weight, bias = fuse_conv_bn_weights(
                module.conv.weight, None, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
            )
            targets[name].conv.load_state_dict({"weight": weight, "bias": bias})
    return result.eval()


def stored(model: Network) -> dict[str, Tensor]:
    """The tensors of the deployed form, parameters in half precision; a ValueError if they are not finite."""
    deployed = fused(model)
    tensors = {name: t.half() if t.is_floating_point() else t for name, t in deployed.named_parameters()}
    tensors |= dict(deployed.named_buffers())
    if not all(bool(t.isfinite().all()) for t in tensors.values()):
        raise ValueError(
            "the model has weights that are not finite in half precision; it was not saved (did training diverge?)"
        )
    return {name: t.detach().contiguous() for name, t in tensors.items()}


def restored(config: ModelConfig, tensors: dict[str, Tensor]) -> Network:
    """The deployed network (eval mode, float32, CPU). The Lipschitz constant of a Lipschitz network is proved from the
    numbers that are given.
    """
    model = BUILT[config.family](config, is_fused=True)
    model.load_state_dict({name: t.float() for name, t in tensors.items()})
    if isinstance(model, LipschitzNet):
        lipschitz.verified(model)
    return channels_last(model.eval().requires_grad_(False))


def fingerprint(model: nn.Module) -> str:
    """sha256 over names, shapes and float32 bytes of the state, in order of names; the same on every device."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()
