"""What a model sees in training: pictures moved, preprocessed and made noisy, a batch at a time on the device."""

from __future__ import annotations

import hashlib
from typing import final

import torch
from torch import Tensor

from warpcert import transforms
from warpcert.classifier.before.front import Front
from warpcert.classifier.before.rounding import coarsened
from warpcert.classifier.before.sees import behind
from warpcert.learn.recipe import Recipe

__all__ = ["Views", "delayed", "generator", "masked"]


def generator(device: torch.device, *key: int | str) -> torch.Generator:
    """A generator whose state is a function of `key`: a resumed run draws the same numbers as a whole one."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:7], "big"))


def delayed(x: Tensor, by: Tensor) -> Tensor:
    """Sounds [B,C,L], each later by its own whole number of samples; silence takes the place."""
    source = torch.arange(x.shape[-1], device=x.device) - by[:, None]  # [B,L]
    inside = (source >= 0) & (source < x.shape[-1])
    index = source.clamp(0, x.shape[-1] - 1)[:, None].expand_as(x)
    return x.gather(-1, index) * inside[:, None]


def masked(x: Tensor, samples: int, draw: torch.Generator) -> Tensor:
    """Sounds [B,C,L] without up to `samples` of their time, and without as large a share of their frequencies."""
    count, length = len(x), x.shape[-1]
    start, width, first, band = torch.rand(4, count, 1, generator=draw, device=x.device).unbind()
    place = torch.arange(length, device=x.device)
    silent = (place >= start * (length - width * samples)) & (
        place < start * (length - width * samples) + width * samples
    )
    spectrum = torch.fft.rfft(x * ~silent[:, None])
    pitch, share = torch.linspace(0, 1, spectrum.shape[-1], device=x.device), band * samples / length
    kept = (pitch < first * (1 - share)) | (pitch >= first * (1 - share) + share)
    heard: Tensor = torch.fft.irfft(spectrum * kept[:, None], length)
    return heard


def _uncut(x: Tensor, side: int, where: Tensor) -> Tensor:
    """A mask [B,1,H,W] that is False in a square around the place `where` [B,2], as shares of height and width."""
    near = [
        (torch.arange(n, device=x.device) + 0.5 - where[:, axis, None] * n).abs() < side / 2
        for axis, n in enumerate(x.shape[-2:])
    ]
    return ~(near[0][:, :, None] & near[1][:, None, :])[:, None]


@final
class Views:
    """Draws P T_b x by a recipe's law. Its constants live on the device, so no call waits for the device."""

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        defence, box = recipe.defence(), recipe.box()
        self.recipe, self.transform, self.defence, self.box = recipe, defence.transform, defence, box
        self.before = Front(recipe.before)
        self.sigma = torch.tensor(defence.sigma_param, device=device) * recipe.spread
        self.lower = torch.tensor(box.lower, device=device)
        self.width = torch.tensor(box.upper, device=device) - self.lower
        self.noise, self.preprocess = defence.sigma_noise, defence.preprocess
        self.smoothed = any(defence.sigma_param)
        self.front = behind(recipe.sees, recipe.levels or 1) if recipe.sees else None

    @torch.no_grad()
    def __call__(self, x: Tensor, draw: torch.Generator) -> Tensor:
        """P T_b x without pixel noise, behind what the recipe says, for a batch x of floats."""
        recipe, count, dim, device = self.recipe, len(x), self.transform.dim, x.device
        if recipe.flip:
            coin = torch.rand(count, generator=draw, device=device) < 0.5
            x = torch.where(coin.reshape(-1, *(1,) * (x.dim() - 1)), x.flip(-1), x)
        if recipe.shift:
            by = torch.randint(-recipe.shift, recipe.shift + 1, (count, 2), generator=draw, device=device)
            x = transforms.get("translation")(x, by, "nearest") if x.dim() == 4 else delayed(x, by[:, 0])
        if recipe.cutout and x.dim() == 3:
            x = torch.cat((masked(x[: count // 2], recipe.cutout, draw), x[count // 2 :]))
        elif recipe.cutout:
            x = x * _uncut(x, recipe.cutout, torch.rand(count, 2, generator=draw, device=device))
        beta = torch.randn(count, dim, generator=draw, device=device) * self.sigma
        gamma = torch.rand(count, dim, generator=draw, device=device) * self.width + self.lower
        gamma = self.transform.legal(gamma, self.box)
        k = round(recipe.attacked * count)
        if k:
            attacked = self.transform(x[:k], gamma[:k], recipe.attacker)
            x = torch.cat((self.transform.quantize(attacked) if recipe.rounded else attacked, x[k:]))
        if k < count or self.smoothed:  # else β = 0: the defender does not transform at all
            sides = (self.defence, x[:k], beta[:k]), (self.defence.known, x[k:], beta[k:] + gamma[k:])
            x = torch.cat([self.transform(z, b, d.interpolation) for d, z, b in sides if len(z)])
        view = self.preprocess(self.before(x))
        if self.front:
            return self.front.picture(self.front.levels(view), tuple(view.shape[1:]))
        return coarsened(view, recipe.levels) if recipe.levels else view

    def delta(self, like: Tensor, draw: torch.Generator) -> Tensor:
        """Pixel noise of the shape of `like`."""
        if not self.noise:
            return torch.zeros_like(like)
        return torch.randn(like.shape, generator=draw, device=like.device) * self.noise
