"""The Lagrangian inverse, the tight one: how far the defender's view of x' can be from any original's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.originals.lagrangian.bound import UnevenError, estimate, lagrangian_bound
from warpcert.originals.lagrangian.cell import Cell, cells
from warpcert.originals.lagrangian.lens import lens
from warpcert.originals.lagrangian.metric import tuned
from warpcert.originals.lagrangian.spectral import Lambda
from warpcert.originals.lagrangian.view import boxed, view, viewed
from warpcert.originals.protocol import InverseBound, Originals
from warpcert.originals.search import search_originals
from warpcert.threat import Threat

__all__ = ["Lagrangian"]

MOTION = (0.015, 0.06)  # px, with one and two parameters
RUN = 6  # neighbouring cells that share their multipliers
LOSS = 0.002  # of the bound, that a λ found in less time may cost
GAIN = 0.98  # a round of tuning that does not bring the largest bound below this share of it is the last


@final
@dataclass(frozen=True)
class Lagrangian(InverseBound):
    """Rotation and translation, bilinear attacker, any defender's interpolation that does not jump.

    motion           px that a cell of γ moves the farthest pixel; if not given 0.015 (0.045° for 28×28, rotated), and
                     with two parameters, where cells are many, 0.06
    refinements      of the boxes by the interval inverse
    steps            of the tuning of the multipliers, once per cell, on
    representatives  some of the β's
    rounds           of tuning anew for the β's with the largest bounds, some at a time
    memory           bytes that the factorisations may take
    """

    motion: float | None = None
    refinements: int = 5
    steps: int = 10
    representatives: int = 8
    rounds: int = 24
    memory: int = 2**32
    name: ClassVar[str] = "lagrangian"

    def survivors(self, x_attacked: Tensor, threat: Threat) -> Originals:
        motion = MOTION[threat.box.dim - 1] if self.motion is None else self.motion
        return search_originals(x_attacked, threat, motion, self.refinements)

    def errors(
        self,
        originals: Originals,
        defence: Defence,
        beta: Tensor,
        *,
        enough: float = 0.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        """As promised. Work goes where it decides: every entry starts at the bound of the boxes alone (`boxed`), and is
        sharpened only while it is above `enough` and larger than all that were sharpened before, so that the largest
        of all is sharp.
        """
        x, beta, seen, slack = viewed(originals, defence, beta)
        batch = cells(originals)
        every = [batch.pick(k) for k in range(len(originals.low))]
        result = beta.new_zeros(len(beta), len(every))
        for k, c in enumerate(every):
            result[:, k] = boxed(c, x.shape, defence, beta, seen)
        floor, done = enough - slack if enough else -torch.inf, 0
        groups = _groups(every)
        for group in sorted(groups, key=lambda g: -float(result[:, g].max())):
            left = (result[:, group].amax(1) > floor).nonzero()[:, 0]
            if left.numel():
                sharp = self._sharp([every[k] for k in group], x.shape, defence, beta[left], seen[left])
                impossible = (sharp == -torch.inf).any(0)  # one proof that no x fits is enough
                for i, k in enumerate(group):
                    result[left, k] = torch.minimum(result[left, k], sharp[:, i])
                    if bool(impossible[i]):
                        result[:, k] = -torch.inf
                floor = max(floor, float(result[left][:, group].max()))
            done += len(group)
            if progress is not None:
                progress(done, len(every))
        for _ in range(self.rounds if every else 0):
            before = float(result.max())
            if before + slack <= enough:
                break
            at, k = divmod(int(result.argmax()), len(every))
            group = next(g for g in groups if k in g)
            some = _around(result.amax(1), beta, at, self.representatives)
            sharp = self._sharp([every[j] for j in group], x.shape, defence, beta[some], seen[some])
            for i, j in enumerate(group):
                result[some, j] = torch.minimum(result[some, j], sharp[:, i])
            if not float(result[at, k]) < GAIN * before:  # here the common multipliers were as good, or it is done
                break
        return result + slack

    def _sharp(self, group: list[Cell], shape: torch.Size, defence: Defence, beta: Tensor, seen: Tensor) -> Tensor:
        """The Lagrangian bounds [b,g] of neighbouring cells, with common multipliers; ∞ where float64 does not suffice
        for them, so that the boxes alone bound the error there.
        """
        try:
            return self._by_multipliers(group, shape, defence, beta, seen)
        except UnevenError:
            return beta.new_full((len(beta), len(group)), torch.inf)

    def _by_multipliers(
        self, group: list[Cell], shape: torch.Size, defence: Defence, beta: Tensor, seen: Tensor
    ) -> Tensor:
        order = beta[:, 0].argsort()
        some = torch.linspace(0, len(beta) - 1, min(self.representatives, len(beta))).round().long()
        picked = beta[order[some.to(order.device)]]
        metric = tuned(group, view(group[len(group) // 2], shape, defence, picked), self.steps)
        known = [estimate(c, metric) for c in group]
        eye = lens(defence, shape[1], shape[2], beta.device)
        known_lambda = Lambda.of(group, metric, eye)
        few = known_lambda.proved(beta[:3])[:, 0]
        first = view(group[0], shape, defence, beta[:3])
        low, high = (lagrangian_bound(group[0], metric, known[0], first, seen[:3], f * few).max() for f in (1.0, 1.1))
        steep = float((high / low).log()) / math.log(1.1)  # how much λ matters
        loss = LOSS / max(steep, LOSS) if low > 0 else 1.0
        proved = known_lambda.proved(beta, min(loss, 1.0))
        out = []
        size = max(1, self.memory // (group[0].pixels * 8 * 1024))
        for part, u, bound in zip(*(torch.split(t, size) for t in (beta, seen, proved)), strict=True):
            each = zip(group, known, bound.unbind(1), strict=True)
            columns = [lagrangian_bound(c, metric, e, view(c, shape, defence, part), u, v) for c, e, v in each]
            out.append(torch.stack(columns, 1))
        return torch.cat(out)


def _around(worst: Tensor, beta: Tensor, at: int, count: int) -> Tensor:
    """Numbers of β_at and those next to it among the β's with the largest bounds: λ depends on β + γ."""
    top = worst.topk(min(8 * count, len(worst))).indices
    away = (beta[top] - beta[at]).square().sum(1)
    return top[away.argsort(stable=True)[:count]]


def _groups(every: list[Cell]) -> list[list[int]]:
    """Numbers of cells in groups of neighbours, at most RUN, on one side of every grid line: where γ is no turn or a
    shift by whole pixels, every pixel kinks, and boxes differ much between the sides.
    """
    groups: list[list[int]] = []
    for k, c in enumerate(every):
        for group in groups:
            if len(group) < RUN and any(_joined(every[j], c) for j in group):
                group.append(k)
                break
        else:
            groups.append([k])
    return groups


def _joined(a: Cell, b: Cell) -> bool:
    """Whether two cells share a face (with one parameter, an end) that is not on a grid line."""
    touch = (a.high == b.low) | (b.high == a.low)
    line = torch.where(a.high == b.low, a.high, a.low)
    same = (a.low == b.low) & (a.high == b.high)
    face = touch & (line != line.round())
    return bool((face | same).all()) and int(face.sum()) == 1
