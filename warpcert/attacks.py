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

from warpcert.classifier.voting import Logits, batch_size, logits_of, validate_image
from warpcert.threat import Threat

__all__ = ["ATTACKS", "Attack", "gradient", "grid", "worst_at", "worst_of_k"]

STEPS = 20  # of gradient ascent


@final
@dataclass(frozen=True)
class Attack:
    """x' = q(T_γ x) with the highest cross-entropy found, and what the classifier says to it."""

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
    best_loss, best, answer = -float("inf"), 0, label
    gamma = gamma.to(x.device)
    size = batch_size(x, None)
    for start in range(0, len(gamma), size):
        logits = logits_of(classifier, threat.attacked(x, gamma[start : start + size]))
        if not 0 <= label < logits.shape[1]:
            raise ValueError(f"label {label} is not one of the classifier's {logits.shape[1]} classes")
        target = torch.full((len(logits),), label, device=x.device)
        losses = cross_entropy(logits, target, reduction="none")
        i = int(losses.argmax())
        if float(losses[i]) > best_loss:
            best_loss, best, answer = float(losses[i]), start + i, int(logits[i].argmax())
    worst = gamma[best : best + 1]
    image = threat.attacked(x, worst)[0]
    return Attack(tuple(worst[0].tolist()), image, best_loss, answer, answer != label, len(gamma))


# By name, with one measure of effort: candidates, points per axis, or starts.
ATTACKS: dict[str, Callable[[Logits, Tensor, int, Threat, int, torch.Generator], Attack]] = {
    "worst-of-k": lambda f, x, label, threat, k, source: worst_of_k(f, x, label, threat, k=k, generator=source),
    "grid": lambda f, x, label, threat, k, source: grid(f, x, label, threat, per_axis=k),
    "gradient": lambda f, x, label, threat, k, source: gradient(f, x, label, threat, starts=k, generator=source),
}
