"""Branch and bound over (β, cell of γ) for linear flows."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from warpcert.errors.curve.direction import FINE, Directed, Ends, Seen, directional, norm_bound, refined, towards
from warpcert.errors.curve.goal import Found, Goal
from warpcert.errors.curve.gram import excess
from warpcert.errors.curve.model import Model, absolute_norm, operator_norm
from warpcert.errors.curve.rounding import Handed, handed
from warpcert.transforms import grid

__all__ = ["search"]

FLOAT_SLACK = 1e-9  # relative and absolute, of the float64 sums of these files
PIECES = 16  # sub-cells of a cell, on which rounding is enclosed
CHILDREN = 4  # cells that a cell is split into
MOTION = 0.15  # pixels that the fastest pixel moves in a cell of the first level
DEPTH = 6  # rounds of splitting: a float32 attacker's doubt about the last digit cannot be split away, so go no further
PROBES = 9  # nodes per segment and β at which the true error is evaluated first


@dataclass(frozen=True)
class Tasks:
    """Cells [low, high] of γ for β number `which`, with the bound known so far. All [t]."""

    which: Tensor
    low: Tensor
    high: Tensor
    bound: Tensor

    def pick(self, at: Tensor | slice) -> Tasks:
        return Tasks(self.which[at], self.low[at], self.high[at], self.bound[at])

    @staticmethod
    def join(parts: list[Tasks]) -> Tasks:
        return Tasks(*(torch.cat([getattr(p, f) for p in parts]) for f in ("which", "low", "high", "bound")))

    def chunks(self, size: int) -> Iterator[Tasks]:
        for at in range(0, self.which.numel(), size):
            yield self.pick(slice(at, at + size))


def first_cells(m: Model) -> list[tuple[float, float, int]]:
    """Γ as segments (low, high, number of cells): cut where all pixels kink together (γ = 0 and the multiples of the
    flow's symmetry), MOTION px per cell; of large pictures, MOTION px of those that P returns, by what P reads.
    """
    low, high = m.threat.box.lower[0], m.threat.box.upper[0]
    far, motion = (m.y.square() + m.x_.square()).sqrt(), MOTION
    if m.pixels > grid.SMALL:
        far, motion = far[m.kept], MOTION * (1 if m.half_y is None else 2)
    radius = float(far.max())
    first, last = low + min(0.0, float(m.beta.min())), high + max(0.0, float(m.beta.max()))
    speed = radius * m.flow.speed * m.flow.stretch(first, last)
    cuts, again = [0.0], m.flow.symmetry
    if math.isfinite(again):
        cuts = [k * again for k in range(math.floor(low / again), math.ceil(high / again) + 1)]
    ends = sorted({low, high, *(c for c in cuts if low < c < high)})
    if len(ends) == 1:
        return [(low, high, 1)]
    return [(a, b, max(1, math.ceil((b - a) * speed / motion))) for a, b in itertools.pairwise(ends)]


def search(m: Model, goal: Goal) -> Found:
    """upper [B] ≥ sup_γ‖ε‖ ≥ lower [B]: every cell of every β is settled, or keeps the bound that it had at the
    deadline.

    Before any cell is bounded, the largest possible difference of two images is a bound of everything (P does not
    enlarge it).
    """
    trivial = m.trivial
    state = _State(m, goal, torch.zeros_like(m.beta), torch.zeros_like(m.beta), absolute_norm(m))
    segments = first_cells(m)
    state.probe(segments)
    queue, begun, every_cell = [], 0, sum(cells for _, _, cells in segments)
    full = torch.ones_like(m.beta)
    every = torch.arange(m.beta.numel(), device=m.beta.device)
    for low, high, cells in segments:
        width = (high - low) / cells
        state.prepare(width, cells)
        block = m.room(4 * PIECES * m.channels * m.pixels)
        for at in range(0, cells, block):
            stop = min(at + block, cells)
            tasks = Tasks(every, (low + at * width) * full, (low + stop * width) * full, trivial * full)
            state.span = begun / every_cell, (begun + stop - at) / every_cell
            queue.append(state.split(tasks, stop - at))
            begun += stop - at
    for level in range(1, DEPTH + 1):
        tasks = state.open(queue)
        thin = tasks.high - tasks.low < 1e-9
        state.settle(tasks.pick(thin))
        tasks = tasks.pick(~thin)
        if not tasks.which.numel() or time.perf_counter() > goal.deadline:
            queue = [tasks]
            break
        kind_of = ((tasks.high - tasks.low) / 1e-9).round()  # one kind of width per segment, up to rounding
        kinds = torch.unique(kind_of)
        state.seen = None
        queue = []
        for i, kind in enumerate(kinds):
            state.span = level + i / len(kinds), level + (i + 1) / len(kinds)
            queue.append(state.split(tasks.pick(kind_of == kind), CHILDREN))
    left = state.open(queue)
    state.settle(left)
    converged = bool((state.upper <= state.settled).all())
    return Found(state.upper * (1 + FLOAT_SLACK) + FLOAT_SLACK, state.lower, state.nodes, converged, state.steps)


@dataclass
class _State:
    """The search in progress. norm [B] ≥ ‖P T_β‖₂."""

    m: Model
    goal: Goal
    upper: Tensor
    lower: Tensor
    norm: Tensor
    nodes: int = 0
    steps: float = 0.0
    seen: Seen | None = None  # the table of the first level
    over: Tensor | None = None  # of `passed`, where rounding is a large part of the error of a large picture
    span: tuple[float, float] = (0.0, 1.0)  # of the levels, that the next `split` works through

    @property
    def settled(self) -> Tensor:
        """[B]: a cell is settled when its bound is not above. Grows while the search goes on."""
        if self.goal.target is None:
            return (self.goal.tightness * self.lower.max().clamp_min(self.goal.floor)).expand_as(self.lower)
        enough = (self.goal.tightness * self.lower).clamp_min(self.goal.target)
        return torch.where(self.lower > self.goal.target, math.inf, enough)

    def settle(self, tasks: Tasks) -> None:
        self.upper.scatter_reduce_(0, tasks.which, tasks.bound, "amax")

    def open(self, queue: list[Tasks]) -> Tasks:
        """The cells that are not settled yet; the others enter `upper`."""
        tasks = Tasks.join(queue)
        done = tasks.bound <= self.settled[tasks.which]
        self.settle(tasks.pick(done))
        return tasks.pick(~done)

    def probe(self, segments: list[tuple[float, float, int]]) -> None:
        """A first `lower`; and a sharper `norm` where rounding is a large part of the error."""
        m = self.m
        gamma = torch.cat([torch.linspace(a, b, PROBES, dtype=m.x.dtype, device=m.x.device) for a, b, _ in segments])
        clean = m.attack(gamma)
        image = m.quantize(clean)
        every = torch.arange(m.beta.numel(), device=m.x.device)
        for part in torch.split(every, self.m.room(gamma.numel() * m.channels * m.pixels * 4)):
            seen = m.blur(m.defend(m.beta[part, None] + gamma))
            pulled = m.blur(m.pull(part, image.flatten(0, 1)[None], torch.zeros_like(part))).reshape(seen.shape)
            self.lower[part] = (pulled - seen).flatten(2).norm(dim=-1).amax(1)
            self.nodes += part.numel() * gamma.numel()
        noise = float(((image - clean) * m.used).flatten(1).norm(dim=-1).max())
        if noise > 0.1 * max(float(self.lower.max()), self.goal.floor, self.goal.target or 0.0):
            self.norm = torch.minimum(self.norm, operator_norm(m))
            if m.pixels > grid.SMALL:
                now = time.perf_counter()
                self.over = excess(m, now + (self.goal.deadline - now) / 2)

    def prepare(self, width: float, cells: int) -> None:
        """The table of P T_θ x for cells of this width, if it is shorter than the nodes that it replaces."""
        m = self.m
        low, high = float(m.beta.min()) + m.threat.box.lower[0], float(m.beta.max()) + m.threat.box.upper[0]
        if self.seen is not None and abs(self.seen.width - width) > 1e-10 * width:
            self.seen = None
        entries = FINE * (high - low) / max(width, 1e-30)
        size = entries * m.channels * (m.returned.numel() + 2 * m.kept.numel() / FINE)
        fits = size < (2**33 if m.x.is_cuda else 2**27)
        if self.seen is None and width > 0 and fits and entries < cells * m.beta.numel():
            self.seen = Seen.table(m, width, low - width, high + width)

    def split(self, tasks: Tasks, children: int) -> Tasks:
        """The children of the tasks' cells (all of one width) and their bounds; after the deadline the tasks."""
        m = self.m
        tasks = tasks.pick(torch.argsort(tasks.low, stable=True))
        low, counts = torch.unique_consecutive(tasks.low, return_counts=True)
        high = tasks.high[counts.cumsum(0) - counts]
        out: list[Tasks] = []
        at = 0
        size = self.m.room(4 * children * PIECES * m.channels * m.pixels)
        for count, *cell in zip(*(torch.split(v, size) for v in (counts, low, high)), strict=True):
            part = tasks.pick(slice(at, at + int(count.sum())))
            at += int(count.sum())
            if time.perf_counter() > self.goal.deadline:
                out.append(part)
                self.steps = math.inf
                continue
            share = torch.arange(children + 1, dtype=low.dtype, device=low.device) / children
            edges = torch.lerp(cell[0][:, None], cell[1][:, None], share)  # [G, k+1]
            table = handed(m, edges[:, :-1].flatten(), edges[:, 1:].flatten(), PIECES, self.goal.extent, self.over)
            self.steps = max(self.steps, table.steps)
            clean = m.attack(edges).flatten(1, 2)
            number = torch.repeat_interleave(torch.arange(count.numel(), device=low.device), count)
            step = self.m.room((children + 1) * m.channels * m.pixels * 6)
            for some, row in zip(part.chunks(step), torch.split(number, step), strict=True):
                late = time.perf_counter() > self.goal.deadline
                self._tell(sum(t.which.numel() for t in out) / (tasks.which.numel() * children))
                out.append(some if late else self._bound(some, row, edges, table, clean))
        return Tasks.join(out)

    def _tell(self, share: float) -> None:
        """So much of the span is done. A level is taken for three quarters of what is left."""
        first, last = (1 - 0.25**end if end >= 1 else 0.75 * end for end in self.span)
        self.goal.tell(first + (last - first) * min(1.0, share))

    def _bound(self, tasks: Tasks, group: Tensor, edges: Tensor, table: Handed, clean: Tensor) -> Tasks:
        """Bounds of the children `edges[group]` of the tasks: by norms, then by directions for those left open."""
        m = self.m
        children = edges.shape[1] - 1
        width = float(edges.diff(dim=1).max())
        theta = m.beta[tasks.which, None] + edges[group]
        source = self.seen or Seen(m, width)
        seen = source.at(theta)  # [t, k+1, C, v]
        u = m.blur(m.pull(tasks.which, clean, group)).reshape(seen.shape) - seen
        size = u.flatten(2).norm(dim=-1)
        self.nodes += size.numel()
        self._raise_lower(tasks.which, edges[group], size)
        row, rest, rest_norm = source.remainder(theta[:, :-1])
        cell = group[:, None] * children + torch.arange(children, device=group.device)
        noise = table.noise(self.norm, tasks.which[:, None].expand_as(cell), cell).amax(-1)
        bound = norm_bound(size, noise, rest_norm[row])
        unsettled = bound > self.settled[tasks.which, None]
        some = unsettled.any(1).nonzero()[:, 0]
        if some.numel():
            unit, p, g = towards(m, tasks.which[some], u[some])
            back = torch.zeros_like(group).index_copy_(0, some, torch.arange(some.numel(), device=some.device))
        pairs = torch.nonzero(unsettled)
        for task, child in (
            q.unbind(1) for q in torch.split(pairs, self.m.room(12 * m.channels * m.pixels)) if q.numel()
        ):
            at, near = row[task, child], back[task]
            ends = Ends(
                tasks.which[task], group[task] * children + child, u[task, child], u[task, child + 1],
                unit[near, child], p[near, child], g[near, child],
                seen[task, child], seen[task, child + 1], rest[at], rest_norm[at],
            )  # fmt: skip
            bound[task, child] = torch.minimum(bound[task, child], self._sharp(ends, table))
        grid = edges[group]
        which = tasks.which[:, None].expand_as(bound)
        return Tasks(which.flatten(), grid[:, :-1].flatten(), grid[:, 1:].flatten(), bound.flatten())

    def _sharp(self, ends: Ends, table: Handed) -> Tensor:
        """`directional`, then `refined` for the pairs that only the rounding term keeps open."""
        m = self.m
        bound, directed = directional(m, ends, table, self.norm)
        enough = self.settled[ends.which]
        hard = torch.nonzero((bound > enough) & (directed.easy <= enough))[:, 0]
        for some in torch.split(hard, self.m.room(4 * PIECES * m.channels * m.pixels)) if hard.numel() else ():
            few = Ends(*(getattr(ends, f)[some] for f in Ends.__dataclass_fields__))
            left = Directed(directed.along[some], directed.easy[some])
            bound[some] = torch.minimum(bound[some], refined(m, few, table, self.norm, left))
        return bound

    def _raise_lower(self, which: Tensor, gamma: Tensor, size: Tensor) -> None:
        """Evaluates the true error, rounding included, at the most promising node of every task."""
        m = self.m
        every = torch.arange(which.numel(), device=which.device)
        best = gamma[every, size.argmax(1)]
        image = m.quantize(m.attack(best))
        seen = m.blur(m.defend(m.beta[which] + best))
        value = (m.blur(m.pull(which, image, every)) - seen).flatten(1).norm(dim=-1)
        self.lower.scatter_reduce_(0, which, value, "amax")
        self.nodes += which.numel()
