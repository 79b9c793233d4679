"""The adversary's page: each attack looks for a γ ∈ Γ that makes the classifier err, and hands over the image a real
attacker could send.

An attack proves nothing by failing. `classifier` is whatever is attacked, from images to logits: the plain network,
or network after P.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from warpcert.classifier.votes.voting import Logits, batch_size, logits_of, validate_image
from warpcert.threat import Threat

__all__ = ["ATTACKS", "Attack", "gradient", "grid", "worst_at", "worst_of_k"]

STEPS = 20  # of gradient ascent
PUSHED = 4  # candidates that an ℓ2 part is sought for …
PUSHES = 8  # … by so many steps each


@final
@dataclass(frozen=True)
class Attack:
    """x' = q(T_γ x) with the highest cross-entropy found, an ℓ2 part added if the threat has one, and what the
    classifier says to it.
    """

    gamma: tuple[float, ...]
    x_attacked: Tensor
    loss: float
    label: int
    succeeded: bool
    tried: int


def worst_of_k(
    classifier: Logits, x: Tensor, label: int, threat: Threat, *, k: int = 100, generator: torch.Generator
) -> Attack:
    """The worst of k uniform γ (the paper's attack)."""
    if k < 1:
        raise ValueError(f"worst-of-k needs k ≥ 1; got {k}")
    return worst_at(classifier, x, label, threat, threat.legal(threat.box.uniform(k, generator)))


def grid(classifier: Logits, x: Tensor, label: int, threat: Threat, *, per_axis: int = 101) -> Attack:
    """The worst of a regular grid, ends of Γ included."""
    if per_axis < 2:
        raise ValueError(f"a grid needs at least 2 points per axis; got {per_axis}")
    return worst_at(classifier, x, label, threat, threat.legal(threat.box.grid(per_axis)))


def gradient(
    classifier: Logits,
    x: Tensor,
    label: int,
    threat: Threat,
    *,
    starts: int = 10,
    generator: torch.Generator,
) -> Attack:
    """Signed gradient ascent on γ through T_γ from several uniform starts, step size shrinking from a tenth of Γ; every
    iterate is a candidate.

    The gradient is that of the unrounded image (rounding has none); candidates are judged on what is handed over.
    """
    if starts < 1:
        raise ValueError(f"gradient ascent needs starts ≥ 1; got {starts}")
    validate_image(x, threat.transform)
    lower, upper = (
        torch.tensor(end, dtype=torch.float64, device=x.device) for end in (threat.box.lower, threat.box.upper)
    )
    gamma = threat.box.uniform(starts, generator).to(x.device)
    visited = [gamma]
    target = torch.full((starts,), label, device=x.device)
    for step in range(STEPS):
        gamma = gamma.detach().requires_grad_()
        with torch.enable_grad():
            moved = threat.transform(x, threat.legal(gamma), threat.interpolation)
            loss = cross_entropy(logits_of(classifier, moved), target, reduction="sum")
            if not loss.requires_grad:
                raise ValueError(f"a {threat.transform.noun} has no gradient: attack it by worst-of-k or grid")
            (ascent,) = torch.autograd.grad(loss, gamma)
        size = (upper - lower) / 10 * (1 - step / STEPS)
        gamma = (gamma.detach() + size * ascent.sign()).clamp(lower, upper)
        visited.append(gamma)
    return worst_at(classifier, x, label, threat, threat.legal(torch.cat(visited)))


@torch.no_grad()
def worst_at(classifier: Logits, x: Tensor, label: int, threat: Threat, gamma: Tensor) -> Attack:
    """The worst of the parameters gamma [k,d]."""
    validate_image(x, threat.transform)
    gamma = gamma.to(x.device)
    size = batch_size(x, None)
    losses, answers = list[Tensor](), list[Tensor]()
    for start in range(0, len(gamma), size):
        loss, answer = _judged(classifier, threat.attacked(x, gamma[start : start + size]), label)
        losses.append(loss)
        answers.append(answer)
    loss, answer = torch.cat(losses), torch.cat(answers)
    best = int(loss.argmax())
    found = threat.attacked(x, gamma[best : best + 1])[0], float(loss[best]), int(answer[best])
    if threat.l2:
        for i in loss.topk(min(PUSHED, len(loss))).indices.tolist():
            images = _pushed(classifier, threat.attacked(x, gamma[i : i + 1])[0], label, threat.l2)
            more, said = _judged(classifier, images, label)
            if float(more.max()) > found[1]:
                best, j = i, int(more.argmax())
                found = images[j], float(more[j]), int(said[j])
    image, value, label_found = found
    return Attack(tuple(gamma[best].tolist()), image, value, label_found, label_found != label, len(gamma))


def _judged(classifier: Logits, images: Tensor, label: int) -> tuple[Tensor, Tensor]:
    """Cross-entropies and answers [B]."""
    logits = logits_of(classifier, images)
    if not 0 <= label < logits.shape[1]:
        raise ValueError(f"label {label} is not one of the classifier's {logits.shape[1]} classes")
    target = torch.full((len(logits),), label, device=images.device)
    return cross_entropy(logits, target, reduction="none"), logits.argmax(1)


def _pushed(classifier: Logits, image: Tensor, label: int, most: float) -> Tensor:
    """Pictures [PUSHES,C,H,W] within `most` of the image in ℓ2: steps of gradient ascent, projected onto the ball; of a
    classifier without a gradient, random ones on its sphere.
    """
    most *= 1 - 1e-6  # float32 must not lead beyond
    directions = torch.randn(PUSHES, *image.shape, generator=torch.Generator().manual_seed(0)).to(image)
    push, found = torch.zeros_like(image), list[Tensor]()
    for step in range(PUSHES):
        with torch.enable_grad():
            at = (image + push).requires_grad_()
            loss = cross_entropy(logits_of(classifier, at[None]), torch.tensor([label], device=image.device))
            ascent = torch.autograd.grad(loss, at)[0] if loss.requires_grad else directions[step]
        push = push + most * ascent / ascent.norm().clamp_min(1e-30)
        push = push * (most / push.norm().clamp_min(1e-30)).clamp_max(1)
        found.append(image + push)
    return torch.stack(found)


# By name, with one measure of effort: candidates, points per axis, or starts.
ATTACKS: dict[str, Callable[[Logits, Tensor, int, Threat, int, torch.Generator], Attack]] = {
    "worst-of-k": lambda f, x, label, threat, k, source: worst_of_k(f, x, label, threat, k=k, generator=source),
    "grid": lambda f, x, label, threat, k, source: grid(f, x, label, threat, per_axis=k),
    "gradient": lambda f, x, label, threat, k, source: gradient(f, x, label, threat, starts=k, generator=source),
}
