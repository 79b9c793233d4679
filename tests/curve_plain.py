"""The curve bound in its plainest form: no directions, no splitting. Looser and slower; kept to check the other
against.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.curve.cells import first_cells
from warpcert.errors.curve.model import Model, model
from warpcert.errors.curve.path import chord_remainder
from warpcert.errors.curve.rounding import SLACK, rounding_box
from warpcert.errors.float32 import inference_slack, value_error
from warpcert.threat import Threat

__all__ = ["absolute_pull", "plain_bound"]


def absolute_pull(m: Model, which: Tensor, images: Tensor) -> Tensor:
    """|T_β| r at the kept pixels, with absolute weights (bicubic ones are negative in places): r [F, n] → [t, F, v]."""
    return (images.T[m.index[which]] * m.weight[which].abs().unsqueeze(-1)).sum(2).transpose(1, 2)


def plain_bound(x: Tensor, defence: Defence, threat: Threat, beta: Tensor, per_cell: int = 4) -> Tensor:
    """sup_{γ∈Γ}‖ε(β,γ,x)‖₂ ≤ the value returned [B], for linear flows; `per_cell` cells for each of the curve
    bound's first ones.

    With a = T_γ x, d = T_{β+γ} x and chords over a cell: ε = chord of u + P T_β(a − chord a) + P T_β(q(a) − a) − P(d
    − chord d), hence ‖ε‖ ≤ max(‖u_0‖, ‖u_1‖) + ‖P(|T_β|(r_a + |q−id|) + r_d)‖.
    """
    x, beta = x.double(), beta.double()
    m = model(x, defence, threat, beta)
    extent = float(beta.abs().max()) + max(map(abs, (*threat.box.lower, *threat.box.upper)))
    y, x_ = m.y[m.kept], m.x_[m.kept]
    every = torch.arange(beta.shape[0], device=x.device)
    worst = torch.zeros_like(m.beta)
    doubt = float(value_error(m.transform, m.attacker, *m.size, extent).amax()) + SLACK
    for start, stop, cells in first_cells(m):
        nodes = torch.linspace(start, stop, cells * per_cell + 1, dtype=x.dtype, device=x.device)
        for low, high in itertools.pairwise(nodes):
            pair = torch.stack((low, high))
            clean = m.attack(pair)  # [2, C, n]
            rest = chord_remainder(m.attacker_tables, m.flow, low[None], high[None], m.y, m.x_)[0]
            if threat.quantized:
                rest = rest + rounding_box(m, clean.amin(0) - rest, clean.amax(0) + rest)
                rest = torch.where(rest > 0, rest + doubt, 0.0)
            theta = m.beta[:, None] + pair
            seen = m.defend(theta)
            moved = m.pull(every, clean.flatten(0, 1)[None], torch.zeros_like(every)).reshape(seen.shape)
            size = m.blur(moved - seen).flatten(2).norm(dim=-1).amax(1)
            blind = chord_remainder(m.reference_tables, m.flow, theta[:, 0], theta[:, 1], y, x_)
            slack = m.blur(absolute_pull(m, every, rest) + blind).flatten(1).norm(dim=-1)
            worst = torch.maximum(worst, size + slack)
    return worst + 1e-9 + sum(inference_slack(d, *m.size, m.channels, extent) for d in (defence, defence.known))
