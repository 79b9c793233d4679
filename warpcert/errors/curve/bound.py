"""The curve bound: a proved upper bound of max_{γ∈Γ} ‖ε(β,γ,x)‖₂ for every β of a batch, x known."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import torch
from torch import Tensor

from warpcert.certificates import Kind
from warpcert.classifier.defence import Defence
from warpcert.errors.base import SupBound, Suprema
from warpcert.errors.curve.cells import search
from warpcert.errors.curve.goal import Found, Goal
from warpcert.errors.curve.model import Model, model
from warpcert.errors.curve.plane import plane_search
from warpcert.errors.curve.values import value_search
from warpcert.errors.float32 import (
    inference_slack,
    sample_error,
    steepness_by_steps,
    steepness_of,
    value_error,
)
from warpcert.threat import Threat
from warpcert.transforms import Flow, Shift, SpatialTransform, Tone
from warpcert.transforms.kernels import kernel

__all__ = ["Curve", "inference_slack"]


@final
@dataclass(frozen=True)
class Curve(SupBound):
    """For each β: sup_{γ∈Γ} ‖P(T_β q(T_γ x) − T_{β+γ} x)‖₂ ≤ value, x [C,H,W] in [0,1], T_{β+γ} by the defence's
    reference.

    The bound covers the exact pipelines and their float32 evaluations (`inference_slack` of both). Work goes where it
    decides: without a target, the maximum over the batch, so that a β whose bound is below the largest error found
    (times `tightness`) is left as it is; with one, whether each β exceeds it. What `time_limit` seconds have reached is
    a bound too. "Converged" leaves float slack aside.
    """

    tightness: float = 1.05
    time_limit: float | None = None
    progress: Callable[[int, int], None] | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "curve"
    kind: ClassVar[Kind] = Kind.PROVED

    def __post_init__(self) -> None:
        if not self.tightness > 1:
            raise ValueError(f"tightness must exceed 1; got {self.tightness}")

    def __call__(
        self, x: Tensor, defence: Defence, threat: Threat, beta: Tensor, target: float | None = None
    ) -> Suprema:
        start = time.perf_counter()
        _check(x, defence, threat, beta)
        x, beta = x.double(), beta.to(x.device, torch.float64)
        extent = float(beta.abs().max()) + max(map(abs, (*threat.box.lower, *threat.box.upper)))
        deadline = math.inf if self.time_limit is None else start + self.time_limit
        goal = Goal(target, self.tightness, deadline, extent, progress=self.progress)
        slack = _worst_slack(x, defence, threat, extent)
        match threat.transform:
            case Flow():
                below = None if target is None else target * (1 - 1e-8) - 1e-8 - slack
                found, slack = _in_groups(x, defence, threat, beta, replace(goal, target=below), slack)
            case Shift():
                found = plane_search(x, defence, threat, beta, goal)
            case Tone():
                found = value_search(x, defence, threat, beta, goal)
            case _:
                raise threat.transform.unknown("the curve bound has no proof")
        slack += _unclipped(x, defence, threat, extent, slack)
        seconds = time.perf_counter() - start
        return Suprema((found.upper + slack).cpu(), found.lower.cpu(), found.cells, seconds, found.converged)


def _check(x: Tensor, defence: Defence, threat: Threat, beta: Tensor) -> None:
    t = threat.transform
    if t != defence.transform:
        raise ValueError(f"attacker ({t.name}) and classifier ({defence.transform.name}) must share a transformation")
    if beta.dim() != 2 or beta.shape[1] != t.dim or not beta.shape[0] or not bool(beta.isfinite().all()):
        raise ValueError(f"beta must be [B, {t.dim}], finite, with B ≥ 1; got {list(beta.shape)}")
    if x.dim() != t.item_dims or not (bool(x.min() >= t.low) and bool(x.max() <= 1)):
        raise ValueError(f"x must be one image [C,H,W] in [0,1] (or sound [C,L] in [−1,1]); got {list(x.shape)}")
    if x.dim() == 3 and not bool(defence.preprocess.reads(x.shape[1], x.shape[2]).any()):
        raise ValueError(
            f"the vignette hides all of a picture of {x.shape[1]}×{x.shape[2]} pixels; choose a smaller margin"
        )


def _worst_slack(x: Tensor, defence: Defence, threat: Threat, extent: float) -> float:
    """What float32 adds at most to both pipelines of the defender, for any picture that is handed over."""
    if x.dim() == 2:  # a sound: its P is the identity; what is handed over is within a step of T_γ x
        handed_over = x.abs() + threat.transform.step
        return float(sum(sample_error(threat.transform, z, extent).norm() for z in (x, handed_over)))
    return sum(inference_slack(d, x.shape[1], x.shape[2], x.shape[0], extent) for d in (defence, defence.known))


def _unclipped(x: Tensor, defence: Defence, threat: Threat, extent: float, slack: float) -> float:
    """What float32 adds more if the attacker does not round.

    Rounding encloses the attacker's arithmetic. Without it, errors |e| ≤ value_error of the attacker pass T_β, which
    makes at most (1 + 2·overshoot)·max|e| of them per pixel (a tone: e^{|β|}·max|e|). The attacker's image may also
    leave [0,1] by its overshoot, which enlarges the defender's own errors as much.
    """
    if threat.quantized:
        return 0.0
    attacker, defender = kernel(threat.interpolation), kernel(defence.interpolation)
    spatial = isinstance(threat.transform, SpatialTransform)
    gain = 1 + 2 * defender.overshoot if spatial else math.exp(extent)
    worst = float(value_error(threat.transform, attacker, x.shape[-2], x.shape[-1], extent).amax())
    return gain * worst * math.sqrt(x.numel()) + (2 * attacker.overshoot * slack if spatial else 0.0)


def _in_groups(
    x: Tensor, defence: Defence, threat: Threat, beta: Tensor, goal: Goal, slack: float
) -> tuple[Found, float]:
    """`search` for groups of β whose taps fit in memory; what one group found lets the next settle earlier. With what
    float32 adds to the pictures met, at most `slack`.
    """
    taps = (2 * kernel(defence.interpolation).reach) ** 2 * x.shape[1] * x.shape[2]
    parts: list[Found] = []
    for part in torch.split(beta, max(1, (2**29 if x.is_cuda else 2**26) // taps)):
        m = model(x, defence, threat, part)
        parts.append(search(m, goal))
        goal = replace(goal, floor=max(goal.floor, float(parts[-1].lower.max())))
    steps = max(p.steps for p in parts)
    found = Found(
        torch.cat([p.upper for p in parts]),
        torch.cat([p.lower for p in parts]),
        sum(p.cells for p in parts),
        all(p.converged for p in parts),
    )
    return found, min(slack, _slack(m, goal.extent, steps))


def _slack(m: Model, extent: float, steps: float) -> float:
    """What float32 adds at most: at certification to P T_{β+γ} x, at inference to P T_β of what is handed over."""
    if not math.isfinite(steps):
        return math.inf
    own = steepness_of(m.reference_tables, m.transform, extent)
    handed_over = steps * steepness_by_steps(m.defender, m.transform, extent)
    first = inference_slack(m.defence.known, *m.size, m.channels, extent, own)
    return first + inference_slack(m.defence, *m.size, m.channels, extent, handed_over)
