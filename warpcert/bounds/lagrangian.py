"""The Lagrangian inverse, the tight one: how far the defender's view of x' can be from any original's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from warpcert.bounds.inverse_cell import Cell, boxed, cells, view, viewed
from warpcert.bounds.inverse_metric import proved_lambda, tuned
from warpcert.bounds.inverse_search import search_originals
from warpcert.bounds.lagrangian_bound import estimate, lagrangian_bound
from warpcert.bounds.originals import InverseBound, Originals
from warpcert.threat import Defence, Threat

__all__ = ["Lagrangian"]


@final
@dataclass(frozen=True)
class Lagrangian(InverseBound):
    """Rotation and translation, bilinear attacker, any defender's interpolation that does not jump.

    motion           px that a cell of γ moves the farthest pixel (0.03° for 28×28, rotated)
    refinements      of the boxes by the interval inverse
    steps            of the tuning of the multipliers, once per cell, on
    representatives  some of the β's
    memory           bytes that the factorisations may take
    """

    motion: float = 0.01
    refinements: int = 5
    steps: int = 10
    representatives: int = 8
    memory: int = 2**32
    name: ClassVar[str] = "lagrangian"

    def survivors(self, x_attacked: Tensor, threat: Threat) -> Originals:
        return search_originals(x_attacked, threat, self.motion, self.refinements)

    def errors(
        self,
        x_attacked: Tensor,
        originals: Originals,
        threat: Threat,
        defence: Defence,
        beta: Tensor,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        """As promised. Work goes where it decides: every entry starts at the bound of the boxes alone (`boxed`), and is
        sharpened only while it is larger than all that were sharpened before, so that the largest of all is sharp.
        """
        x, beta, seen, slack = viewed(x_attacked, threat, defence, beta)
        batch = cells(x, originals, threat)
        count = len(originals.low)
        parts = [boxed(batch.pick(k), x.shape, defence, beta, seen) for k in range(count)]
        result = torch.stack(parts, 1) if parts else beta.new_zeros(len(beta), 0)
        floor = -torch.inf
        for done, k in enumerate(result.median(0).values.argsort(descending=True).tolist() if count else []):
            left = (result[:, k] > floor).nonzero()[:, 0]
            if left.numel():
                sharp = self._sharp(batch.pick(k), x.shape, defence, beta[left], seen[left])
                result[left, k] = torch.minimum(result[left, k], sharp)
                if bool((sharp == -torch.inf).any()):  # one proof that no x fits is enough
                    result[:, k] = -torch.inf
                floor = max(floor, float(result[left, k].max()))
            if progress is not None:
                progress(done + 1, count)
        return result + slack

    def _sharp(self, c: Cell, shape: torch.Size, defence: Defence, beta: Tensor, seen: Tensor) -> Tensor:
        """The Lagrangian bound [b] of one cell."""
        order = beta[:, 0].argsort()
        some = torch.linspace(0, len(beta) - 1, min(self.representatives, len(beta))).round().long()
        metric = tuned(c, view(c, shape, defence, beta[order[some.to(order.device)]]), self.steps)
        known = estimate(c, metric)
        out = []
        size = max(1, self.memory // (c.pixels**2 * 8 * 6))
        for some_beta, u in zip(torch.split(beta, size), torch.split(seen, size), strict=True):
            v = view(c, shape, defence, some_beta)
            out.append(lagrangian_bound(c, metric, known, v, u, proved_lambda(c, metric, v)))
        return torch.cat(out)
