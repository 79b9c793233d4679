"""What training asks of a model beyond the right label: to hold near a picture and to agree with itself."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, nll_loss

from warpcert.learn.recipe import Recipe

__all__ = ["attack", "disagreement", "hardest", "likeness", "margin_loss", "mixed_loss", "repeat"]


def repeat(x: Tensor, draws: int) -> Tensor:
    """[B,...] → [draws·B,...]: the batch, `draws` times over."""
    return x.repeat(draws, *(1,) * (x.dim() - 1)) if draws > 1 else x


def margin_loss(logits: Tensor, labels: Tensor, recipe: Recipe) -> Tensor:
    """Cross entropy of (logits − offset at the right class) / temperature, times temperature."""
    t = recipe.temperature
    if recipe.offset:
        logits = logits.scatter_add(1, labels[:, None], logits.new_full((len(labels), 1), -recipe.offset))
    return cross_entropy(logits / t, labels, label_smoothing=recipe.label_smoothing) * t


def mixed_loss(logits: Tensor, labels: Tensor, others: Tensor, share: Tensor, smoothing: float) -> Tensor:
    """Cross entropy for blends of pictures: `share` [B] of the one with `labels`, the rest of the one with `others`."""
    first, second = (cross_entropy(logits, y, reduction="none", label_smoothing=smoothing) for y in (labels, others))
    return (share * first + (1 - share) * second).mean()


def likeness(logits: Tensor, wanted: Tensor) -> Tensor:
    """Cross entropy with what a teacher [B,K] says, for one or several draws of each item [draws·B,K]."""
    return cross_entropy(logits, wanted.float().softmax(1).repeat(len(logits) // len(wanted), 1))


@torch.no_grad()
def hardest(model: nn.Module, views: Tensor, labels: Tensor) -> Tensor:
    """views [k,B,...] → [B,...]: of each picture the view with the largest loss (Engstrom et al., 2019).

    The model is asked in eval mode, so that its statistics stay, and left in train mode.
    """
    model.eval()
    logits = model(views.flatten(0, 1)).float()
    model.train()
    loss = cross_entropy(logits, labels.repeat(len(views)), reduction="none").reshape(len(views), -1)
    return views[loss.argmax(0), torch.arange(len(labels), device=labels.device)]


def attack(model: nn.Module, x: Tensor, noise: Tensor, labels: Tensor, eps: float, steps: int) -> Tensor:
    """SmoothAdv: e [B,...] with ‖e‖₂ ≤ eps per picture, against the mean prediction over the draws of `noise`.

    noise [draws·B,...]. The model is attacked in eval mode, so that its statistics stay, and left in train mode.
    """
    model.eval()
    draws, dims = len(noise) // len(x), tuple(range(1, x.dim()))
    e = torch.zeros_like(x)
    for _ in range(steps):
        e.requires_grad_()
        logits = model(repeat(x + e, draws) + noise).float()
        mean = log_softmax(logits, 1).reshape(draws, len(x), -1).logsumexp(0) - math.log(draws)
        (g,) = torch.autograd.grad(nll_loss(mean, labels, reduction="sum"), e)
        size = eps if steps == 1 else 2 * eps / steps
        e = e.detach() + g * (size / g.square().sum(dims, keepdim=True).sqrt().clamp_min(1e-12))
        e = e * (eps / e.square().sum(dims, keepdim=True).sqrt().clamp_min(1e-12)).clamp_max(1)
    model.train()
    return e


def disagreement(logits: Tensor, draws: int) -> Tensor:
    """Mean Kullback–Leibler divergence of the draws' predictions from their mean."""
    single = log_softmax(logits, 1).reshape(draws, -1, logits.shape[1])
    mean = single.logsumexp(0) - math.log(draws)
    return (mean.exp() * (mean - single)).sum(2).mean()
