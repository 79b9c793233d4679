"""What a model sees in training: pictures moved, preprocessed and made noisy, a batch at a time on the device."""

from __future__ import annotations

import hashlib
from typing import final

import torch
from torch import Tensor

from warpcert import transforms
from warpcert.learn.recipe import Recipe

__all__ = ["Views", "generator"]


def generator(device: torch.device, *key: int | str) -> torch.Generator:
    """A generator whose state is a function of `key`: a step draws the same numbers whether or not the run was interrupted before it."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:7], "big"))


@final
class Views:
    """Draws P T_b x by a recipe's law. Its constants live on the device, so no call waits for the device."""

    def __init__(self, recipe: Recipe, shape: tuple[int, ...], device: torch.device) -> None:
        defence, box = recipe.defence(), recipe.box()
        self.recipe, self.transform, self.interpolation = recipe, defence.transform, defence.interpolation
        like = {"dtype": torch.float32, "device": device}
        self.sigma = torch.tensor(defence.sigma_param, **like) * recipe.spread  # type: ignore[arg-type]
        self.lower, self.upper = torch.tensor(box.lower, **like), torch.tensor(box.upper, **like)  # type: ignore[arg-type]
        self.noise, self.p = defence.sigma_noise, defence.preprocess
        if not self.p.is_identity:
            self.mask = self.p.mask(*shape[1:]).to(**like)  # type: ignore[call-overload]
            bands = [self.p.band(side) if self.p.blur_sigma > 0 else torch.eye(side) for side in shape[1:]]
            self.rows, self.columns = bands[0].to(**like), bands[1].T.contiguous().to(**like)  # type: ignore[call-overload]

    @torch.no_grad()
    def __call__(self, x: Tensor, draw: torch.Generator) -> Tensor:
        """P T_b x without pixel noise, for a batch x of floats."""
        count, like = len(x), {"generator": draw, "device": x.device}
        if self.recipe.flip:
            coin = torch.rand(count, **like) < 0.5  # type: ignore[call-overload]
            x = torch.where(coin.reshape(-1, *(1,) * (x.dim() - 1)), x.flip(-1), x)
        if self.recipe.shift:
            reach = self.recipe.shift
            by = torch.randint(-reach, reach + 1, (count, 2), **like).float()  # type: ignore[call-overload]
            x = transforms.get("translation")(x, by, "nearest")
        beta = torch.randn(count, len(self.sigma), **like) * self.sigma  # type: ignore[call-overload]
        gamma = self.lower + torch.rand(beta.shape, **like) * (self.upper - self.lower)  # type: ignore[call-overload]
        k = round(self.recipe.attacked * count)
        attacked = self.transform.quantize(self.transform(x[:k], gamma[:k], self.recipe.attacker))
        moved = torch.cat((attacked, x[k:]))
        return self.preprocess(self.transform(moved, torch.cat((beta[:k], beta[k:] + gamma[k:])), self.interpolation))

    def preprocess(self, x: Tensor) -> Tensor:
        """P x, as `Preprocess` defines it."""
        if self.p.is_identity:
            return x
        return self.rows @ (x * self.mask) @ self.columns * self.mask

    def delta(self, like: Tensor, draw: torch.Generator) -> Tensor:
        """Pixel noise of the shape of `like`."""
        return torch.randn(like.shape, generator=draw, device=like.device) * self.noise
