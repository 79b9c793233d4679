"""The curve bound: a proved upper bound of max_{γ∈Γ} ‖ε(β,γ,x)‖₂ for every β of a batch, x known."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.curve.cells import Search, search
from warpcert.errors.curve.model import Model, model
from warpcert.errors.curve.plane import plane_search
from warpcert.errors.curve.values import value_search
from warpcert.errors.float32 import (
    inference_slack,
    loudness_error,
    steepness_by_steps,
    steepness_of,
    value_error,
)
from warpcert.threat import Threat
from warpcert.transforms import Rotation, Scaling, SpatialTransform, Translation, Volume
from warpcert.transforms.kernels import kernel

__all__ = ["CurveResult", "curve_bound", "inference_slack"]


@final
@dataclass(frozen=True)
class CurveResult:
    """max_{γ∈Γ} ‖ε(β,γ,x)‖₂ ≤ upper [B] (proved), ≥ lower [B] (evaluated, float64).

    cells      evaluations of the error at a node of some (β, cell)
    converged  whether max(upper) met the target or the tightness, float slack aside, before the time limit
    """

    upper: Tensor
    lower: Tensor
    cells: int
    seconds: float
    converged: bool


def curve_bound(
    x: Tensor,
    defence: Defence,
    threat: Threat,
    beta: Tensor,
    *,
    target: float | None = None,
    tightness: float = 1.03,
    time_limit: float | None = None,
    device: torch.device | str | None = None,
) -> CurveResult:
    """For each β [B,d]: sup_{γ∈Γ} ‖P(T_β q(T_γ x) − T_{β+γ} x)‖₂ ≤ upper, x [C,H,W] in [0,1], T_{β+γ} by the
    defence's reference.

    The bound covers the exact pipelines and their float32 evaluations (`inference_slack` of both). Work goes
    where it decides: without a target, the maximum over the batch, so that a β whose bound is below the largest error
    found (times `tightness`) is left as it is; with one, whether each β exceeds it.
    """
    start = time.perf_counter()
    if threat.transform != defence.transform:
        raise ValueError(
            f"attacker ({threat.transform.name}) and defender ({defence.transform.name}) must share a transformation"
        )
    if beta.dim() != 2 or beta.shape[1] != threat.transform.dim or not beta.shape[0] or not bool(beta.isfinite().all()):
        raise ValueError(f"beta must be [B, {threat.transform.dim}], finite, with B ≥ 1; got {list(beta.shape)}")
    legal = x.dim() == threat.transform.item_dims and bool(x.min() >= threat.transform.low) and bool(x.max() <= 1)
    if not legal:
        raise ValueError(f"x must be one image [C,H,W] in [0,1] (or sound [C,L] in [−1,1]); got {list(x.shape)}")
    if not tightness > 1:
        raise ValueError(f"tightness must exceed 1; got {tightness}")
    if x.dim() == 3 and not bool(defence.preprocess.mask(x.shape[1], x.shape[2]).any()):
        raise ValueError(
            f"the vignette leaves no pixel of an image of {x.shape[1]}×{x.shape[2]}; choose a smaller margin"
        )
    place = torch.device(device) if device is not None else x.device
    x, beta = x.to(place, torch.float64), beta.to(place, torch.float64)
    extent = float(beta.abs().max()) + max(map(abs, (*threat.box.lower, *threat.box.upper)))
    deadline = math.inf if time_limit is None else start + time_limit
    size = (x.shape[-2], x.shape[-1], x.shape[0] if x.dim() == 3 else 1)
    slack = sum(inference_slack(side, *size, extent) for side in (defence, defence.known))
    if isinstance(threat.transform, Volume):  # its P is the identity; what is handed over is within a step of T_γ x
        handed_over = x.abs() + threat.transform.step
        slack = float(loudness_error(x, extent).norm() + loudness_error(handed_over, extent).norm())
    if isinstance(threat.transform, (Rotation, Scaling)):
        below = None if target is None else target * (1 - 1e-8) - 1e-8 - slack
        goal = Search(below, tightness, deadline, extent)
        upper, lower, cells, converged, slack = _in_groups(x, defence, threat, beta, goal, slack)
    else:
        find = plane_search if isinstance(threat.transform, Translation) else value_search
        upper, lower, cells, converged = find(x, defence, threat, beta, tightness, deadline, extent)
    slack += _unclipped(x, defence, threat, extent, slack)
    return CurveResult(upper + slack, lower, cells, time.perf_counter() - start, converged)


def _unclipped(x: Tensor, defence: Defence, threat: Threat, extent: float, slack: float) -> float:
    """What float32 adds more if the attacker does not round.

    Rounding encloses the attacker's arithmetic; without it, his errors |e| ≤ value_error pass T_β, which makes at most
    (1 + 2·overshoot)·max|e| of them per pixel (a pointwise T_β: e^{|β|}·max|e|). His image may also leave [0,1] by his
    overshoot, which enlarges the defender's own errors as much.
    """
    if threat.quantized:
        return 0.0
    attacker, defender = kernel(threat.interpolation), kernel(defence.interpolation)
    spatial = isinstance(threat.transform, SpatialTransform)
    gain = 1 + 2 * defender.overshoot if spatial else math.exp(extent)
    worst = float(value_error(threat.transform, attacker, x.shape[-2], x.shape[-1], extent).amax())
    return gain * worst * math.sqrt(x.numel()) + (2 * attacker.overshoot * slack if spatial else 0.0)


def _in_groups(
    x: Tensor, defence: Defence, threat: Threat, beta: Tensor, goal: Search, slack: float
) -> tuple[Tensor, Tensor, int, bool, float]:
    """`search` for groups of β whose taps fit in memory; what one group found lets the next settle earlier."""
    taps = (2 * kernel(defence.interpolation).reach) ** 2 * x.shape[1] * x.shape[2]
    upper, lower, cells, converged, steps = [], [], 0, True, 0.0
    for part in torch.split(beta, max(1, 2**26 // taps)):
        m = model(x, defence, threat, part)
        found = search(m, goal)
        goal = replace(goal, floor=max(goal.floor, float(found.lower.max())))
        upper.append(found.upper)
        lower.append(found.lower)
        cells, converged, steps = cells + found.cells, converged and found.converged, max(steps, found.steps)
    return torch.cat(upper), torch.cat(lower), cells, converged, min(slack, _slack(m, goal.extent, steps))


def _slack(m: Model, extent: float, steps: float) -> float:
    """What float32 adds at most: at certification to P T_{β+γ} x, at inference to P T_β of what is handed over."""
    if not math.isfinite(steps):
        return math.inf
    own = steepness_of(m.reference_tables, m.transform, extent)
    handed_over = steps * steepness_by_steps(m.defender, m.transform, extent)
    first = inference_slack(m.defence.known, *m.size, m.channels, extent, own)
    return first + inference_slack(m.defence, *m.size, m.channels, extent, handed_over)
