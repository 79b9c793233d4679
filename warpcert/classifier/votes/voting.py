"""Votes by joint sampling: one forward pass per sample, f(P T_β x + δ), for g(z) = argmax_c P(f(P T_β z + δ) = c)."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from warpcert import statistics as stats
from warpcert.classifier.defence import Defence
from warpcert.transforms import Transform

__all__ = [
    "ABSTAIN",
    "Draws",
    "Logits",
    "Prediction",
    "as_float32",
    "batch_size",
    "leads",
    "logits_of",
    "predict",
    "validate_classifier",
    "validate_image",
    "validate_values",
    "views",
    "votes",
]

ABSTAIN = -1  # the label of "no answer"; no class has it
Logits = Callable[[Tensor], Tensor]  # batch of P-images → logits [B,K]; always the same float32 function


@final
@dataclass(frozen=True)
class Prediction:
    """`label` is g(z) or ABSTAIN: with probability ≥ 1 − alpha over the sampling it is not a wrong answer about g."""

    label: int
    counts: tuple[int, ...]
    alpha: float


@final
@dataclass(frozen=True)
class Draws:
    """Where randomness comes from: β is drawn around `center` (0 unless told), `batch` samples per forward pass."""

    generator: torch.Generator
    center: tuple[float, ...] | None = None
    batch: int | None = None


def validate_image(x: Tensor, transform: Transform, free: bool = False) -> None:
    """Raises a ValueError unless x is one float item of the right rank with finite values, in the legal range unless
    they are `free`.
    """
    if not isinstance(x, Tensor):
        raise ValueError(f"x must be a torch tensor; got {type(x).__name__}")
    if x.dim() != transform.item_dims or not x.is_floating_point() or x.numel() == 0:
        rank = "[C,H,W]" if transform.item_dims == 3 else "[C,L]"
        raise ValueError(f"{transform.name} certifies one float tensor {rank}; got {list(x.shape)} of {x.dtype}")
    if x.dim() == 3 and x.shape[-1] in (1, 3) and x.shape[0] not in (1, 3):
        raise ValueError(f"{list(x.shape)} looks like rows, columns, channels; channels come first: x.permute(2, 0, 1)")
    validate_values(x, *((-math.inf, math.inf) if free else (transform.low, transform.high)))


def validate_values(x: Tensor, least: float, most: float, beyond: float = 0.0) -> None:
    """Raises a ValueError unless all values are finite and lie in [least, most], or beyond it by no more than that."""
    if not bool(torch.isfinite(x).all()):
        raise ValueError("the input holds NaN or infinite values; clean it first")
    low, high = (float(x.min()), float(x.max())) if x.numel() else (least, most)
    if low < least - beyond or high > most + beyond:
        raise ValueError(
            f"values must lie in [{least:g}, {most:g}]; got {low:g} … {high:g} (divide 8-bit images by 255)"
        )


def as_float32(x: Tensor) -> Tensor:
    """x in float32; a ValueError if that would be another picture."""
    same = x.float()
    if bool((same.to(x.dtype) != x).any()):
        raise ValueError(
            "x holds float64 values that float32 cannot represent, but classifiers compute in float32: the answer "
            "would be about a different picture. Pass x.float() to certify that one"
        )
    return same


def validate_classifier(classifier: Logits) -> None:
    """Raises a ValueError for a module in training mode: dropout and batch statistics make it another function each
    time.
    """
    if isinstance(classifier, torch.nn.Module) and any(m.training for m in classifier.modules()):
        raise ValueError("the classifier is in training mode: call its eval() first")


def fresh_generator(device: torch.device) -> torch.Generator:
    """A generator that nobody can predict."""
    return torch.Generator(device=device).manual_seed(secrets.randbits(63))


def batch_size(x: Tensor, batch: int | None) -> int:
    """Samples per forward pass: what was asked for, or a size that keeps memory small and the device busy."""
    if batch is not None:
        if batch < 1:
            raise ValueError(f"batch must be at least 1; got {batch}")
        return batch
    return max(1, min(4096, 2**25 // x.numel()) if x.is_cuda else min(512, 2**22 // x.numel()))


def logits_of(classifier: Logits, batch: Tensor) -> Tensor:
    """f on a batch; a ValueError unless it returns finite logits [B,K] with K ≥ 2."""
    logits = classifier(batch)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.shape[0] != batch.shape[0] or logits.shape[1] < 2:
        shape = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the classifier must return logits [{batch.shape[0]}, classes ≥ 2]; got {shape}")
    if not logits.is_floating_point():
        raise ValueError(f"the classifier must return logits as floating-point numbers; got {logits.dtype}")
    if not bool(torch.isfinite(logits).all()):
        raise ValueError("the classifier returned NaN or infinite logits")
    return logits


def leads(logits: Tensor, label: int, slack: float) -> Tensor:
    """How far `label` leads for sure [B], float64: its logit less the largest other one, less `slack` times the largest
    of all (at least 1), which allows for rounding differences between batch sizes.
    """
    z = logits.double()
    others = z.clone()
    others[:, label] = -math.inf
    return z[:, label] - others.amax(1) - slack * z.abs().amax(1).clamp_min(1)


def views(defence: Defence, x: Tensor, n: int, draws: Draws) -> Iterator[Tensor]:
    """P T_β x for n draws β ~ N(center, σ_γ²), without pixel noise, in chunks [b,C,...]: never n images at once."""
    size = batch_size(x, draws.batch)
    for start in range(0, n, size):
        yield defence.view(x, defence.draw_beta(min(size, n - start), draws.generator, draws.center))


def add_noise(images: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """images + δ, δ ~ N(0, sigma²)."""
    if sigma == 0:
        return images
    noise = torch.randn(images.shape, generator=generator, device=images.device, dtype=images.dtype)
    return images + noise.mul_(sigma)


@torch.no_grad()
def votes(classifier: Logits, defence: Defence, x: Tensor, n: int, draws: Draws) -> Tensor:
    """How often each class was answered in n samples with β ~ N(center, σ_γ²): int64 [K] on the CPU."""
    if n < 1:
        raise ValueError(f"the number of samples must be at least 1; got {n}")
    total: Tensor | None = None
    for chunk in views(defence, x, n, draws):
        logits = logits_of(classifier, add_noise(chunk, defence.sigma_noise, draws.generator))
        counts = torch.bincount(logits.argmax(1), minlength=logits.shape[1])
        total = counts if total is None else total + counts
    assert total is not None
    return total.cpu()


def predict(
    classifier: Logits,
    defence: Defence,
    z: Tensor,
    *,
    n: int = 1000,
    alpha: float = 0.001,
    draws: Draws | None = None,
) -> Prediction:
    """g(z), or ABSTAIN when the two top classes are too close for the two-sided binomial test at level alpha.

    The answer is wrong with probability ≤ alpha (Hung and Fithian 2019). The draws must be fresh or secret: who knows
    them can fit z to them.
    """
    stats.Ledger(alpha)  # refuses an α outside (0, 1)
    validate_image(z, defence.transform, free=defence.front != "none")
    validate_classifier(classifier)
    counts = votes(classifier, defence, as_float32(z), n, draws or Draws(fresh_generator(z.device)))
    label = int(counts.argmax()) if stats.top_two_significant(counts.tolist(), alpha) else ABSTAIN
    return Prediction(label, tuple(counts.tolist()), alpha)
