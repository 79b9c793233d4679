"""The curve bound: a proved upper bound of max_{γ∈Γ} ‖ε(β,γ,x)‖₂ for every β of a batch, x known."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from warpcert.bounds.curve_cells import Search, search
from warpcert.bounds.curve_float import inference_slack
from warpcert.bounds.curve_model import model
from warpcert.threat import Defence, Threat
from warpcert.transforms import Rotation, Scaling

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
    """For each β [B,d]: sup_{γ∈Γ} ‖P(T_β q(T_γ x) − T_{β+γ} x)‖₂ ≤ upper, x [C,H,W] in [0,1].

    The bound covers the exact pipelines and their float32 evaluations (`inference_slack`, added twice). Work goes where it decides the
    maximum over the batch: a β whose bound is below the largest error found (times `tightness`), or below `target`, is left as it is.
    """
    start = time.perf_counter()
    if threat.transform != defence.transform:
        raise ValueError(
            f"attacker ({threat.transform.name}) and defender ({defence.transform.name}) must share a transformation"
        )
    if beta.dim() != 2 or beta.shape[1] != threat.transform.dim or not beta.shape[0]:
        raise ValueError(f"beta must be [B, {threat.transform.dim}] with B ≥ 1; got {list(beta.shape)}")
    if x.dim() != 3 or float(x.min()) < 0 or float(x.max()) > 1:
        raise ValueError(f"x must be [C,H,W] with values in [0,1]; got {list(x.shape)}")
    if not tightness > 1:
        raise ValueError(f"tightness must exceed 1; got {tightness}")
    place = torch.device(device) if device is not None else x.device
    x, beta = x.to(place, torch.float64), beta.to(place, torch.float64)
    extent = float(beta.abs().max()) + max(map(abs, (*threat.box.lower, *threat.box.upper)))
    deadline = math.inf if time_limit is None else start + time_limit
    if not isinstance(threat.transform, (Rotation, Scaling)):
        raise ValueError(f"the curve bound does not know {threat.transform.name} yet")
    goal = Search(target or 0.0, tightness, deadline, extent)
    found = search(model(x, defence, threat, beta), goal)
    slack = 2 * inference_slack(defence, x.shape[1], x.shape[2], x.shape[0], extent)
    seconds = time.perf_counter() - start
    return CurveResult(found.upper + slack, found.lower, found.cells, seconds, found.converged)
