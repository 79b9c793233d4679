"""Going on from a trained network: its normalisations keep their statistics, its old self teaches, pictures are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import grid_sample

from warpcert.classifier import storage
from warpcert.learn.photos.pretrained import grouped, pretrained
from warpcert.learn.photos.restricted import GROUPS
from warpcert.learn.recipe import Recipe
from warpcert.networks.config import ModelConfig
from warpcert.networks.efficientnet import EfficientNetLite, Unit
from warpcert.networks.weights import Network, build, channels_last, fused

__all__ = ["Folded", "blended", "centred", "cropped", "started", "taught"]


def started(recipe: Recipe, config: ModelConfig) -> Network:
    """The network that training begins with: new, pretrained on ImageNet, or that of a classifier's file."""
    if recipe.start == "random":
        return build(config, recipe.seed)
    network = _known(recipe.start, config)
    if network.config != config:
        unlike = [k for k, v in config.to_dict().items() if network.config.to_dict().get(k) != v]
        raise ValueError(f"{recipe.start} and the recipe differ in {', '.join(unlike) or 'groups'}")
    return network.requires_grad_(True)


def taught(recipe: Recipe, config: ModelConfig, device: torch.device) -> Network | None:
    """Who teaches, deployed and on the device; None without distillation."""
    if not recipe.distil:
        return None
    return channels_last(fused(_known(recipe.teacher, config)).to(device)).requires_grad_(False)


def _known(name: str, config: ModelConfig) -> EfficientNetLite:
    """By the name of its family, or of a file; with the config's groups where it has a logit for each class."""
    if name.endswith(".safetensors"):
        network: Any = storage.read(Path(name))[0]
        if not isinstance(network, EfficientNetLite):
            raise ValueError(f"{name} does not hold an efficientnet-lite")
    else:
        network = pretrained(name, config.shape[-1])
    if config.groups and not network.config.groups:
        network = grouped(network, GROUPS)
    return network  # type: ignore[no-any-return]


@final
class Folded(nn.Module):
    """An EfficientNet-Lite as a function of its parameters, its normalisations with the statistics they have: each is
    folded into its convolution anew in every pass, so a pass costs what a pass of the deployed form costs.

    `train` and `eval` make no difference. The model's own parameters take the gradients.
    """

    def __init__(self, model: EfficientNetLite) -> None:
        super().__init__()
        self.model = model
        with torch.device("meta"):
            self._form = (EfficientNetLite(model.config, is_fused=True),)  # a tuple: no parameters of ours

    def state(self) -> dict[str, Tensor]:
        """Of the deployed form."""
        state = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        if self.model.is_fused:
            return state
        for name, module in self.model.named_modules():
            if isinstance(module, Unit):
                norm: Any = module.norm
                scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
                state[f"{name}.conv.weight"] = module.conv.weight * scale[:, None, None, None]
                state[f"{name}.conv.bias"] = norm.bias - norm.running_mean * scale
        return {name: tensor for name, tensor in state.items() if ".norm." not in name}

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = functional_call(self._form[0], self.state(), (x,))
        return logits


def centred(images: Tensor, side: int) -> Tensor:
    """The middle of pictures [N,C,H,W]: [N,C,side,side]."""
    top, left = ((n - side) // 2 for n in images.shape[-2:])
    if min(top, left) < 0:
        raise ValueError(f"pictures of {images.shape[-1]}×{images.shape[-2]} hold no square of {side} pixels")
    return images[..., top : top + side, left : left + side]


def cropped(x: Tensor, side: int, smallest: float, draw: torch.Generator) -> Tensor:
    """Random squares of pictures [B,C,H,W] in [0,1] as 8-bit pictures [B,C,side,side].

    Half of them are cut out as they are. The others cover a share from `smallest` to 1 of the largest square, uniform
    in area, and are resized (bicubic).
    """
    count, (height, width) = len(x), x.shape[-2:]
    full = min(height, width)
    share = smallest + (1 - smallest) * torch.rand(count, generator=draw, device=x.device)
    whole = torch.rand(count, generator=draw, device=x.device) < 0.5
    size = torch.where(whole, side, full * share.sqrt())
    room = torch.stack((width - size, height - size), 1)
    corner = torch.rand(count, 2, generator=draw, device=x.device) * room
    corner = torch.where(whole[:, None], corner.round(), corner)
    step = (torch.arange(side, device=x.device) + 0.5) * (1 / side)
    at = corner[:, :, None] + size[:, None, None] * step  # [B,2,side], in pixels from the edge
    across, down = at[:, 0] * (2 / width) - 1, at[:, 1] * (2 / height) - 1
    grid = torch.stack((across[:, None, :].expand(-1, side, -1), down[:, :, None].expand(-1, -1, side)), 3)
    seen = grid_sample(x, grid, mode="bicubic", padding_mode="border", align_corners=False)
    return seen.clamp_(0, 1).mul_(255).round_().div_(255)


def blended(x: Tensor, part: float, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """About `part` of the pictures [B,C,H,W] blended with others of the batch, as 8-bit pictures; the share [B] of each
    that is left, and which other it was blended with [B].
    """
    count, device = len(x), x.device
    share = torch.rand(count, generator=draw, device=device)
    share = torch.where(torch.rand(count, generator=draw, device=device) < part, share, 1.0)
    other = torch.randperm(count, generator=draw, device=device)
    both = torch.lerp(x[other], x, share[:, None, None, None])
    return both.mul_(255).round_().div_(255), share, other
