"""What attempts to break a bound share: rows of a report, pictures of many kinds, and a climb from the worst pairs."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from warpcert.learn import data
from warpcert.transforms import Box

__all__ = ["MOST", "WORK", "Errors", "Hunt", "Job", "Row", "Task", "cases", "special"]

WORK = 2**22  # pixels evaluated at once, and about as many for each case and precision
MOST = 20_000  # pairs per case
KINDS = 13  # of pictures
CLIMBERS, CHILDREN, ROUNDS = 48, 12, 10  # of the climb from the worst pairs


@dataclass(frozen=True)
class Task:
    """One chunk of a row: `cases` pictures from number `first` on, at most `pairs` parameters drawn for each, all that
    is random from `seed`. After `seconds` no further case is begun.
    """

    seed: int
    first: int = 0
    cases: int = KINDS
    pairs: int = MOST
    seconds: float = math.inf
    device: str = "cpu"


@dataclass
class Row:
    """What one chunk counts. `closest` is the largest true error over its bound."""

    name: str
    cases: int = 0
    tried: int = 0
    violations: int = 0
    closest: float = 0.0
    example: str = ""
    start: float = field(default_factory=time.perf_counter)

    def count(self, true: Tensor, bound: Tensor, what: str) -> None:
        bad = ~(true <= bound)  # NaN counts as a violation
        self.tried += true.numel()
        self.closest = max(self.closest, float((true / bound).nan_to_num(0.0).max()) if true.numel() else 0.0)
        if bool(bad.any()):
            self.violations += int(bad.sum())
            at = int((true - bound).nan_to_num(math.inf).argmax())
            self.example = self.example or f"{what}: {float(true[at]):.9g} > {float(bound[at]):.9g}"

    def check(self, right: Tensor, what: str) -> None:
        """As `count`, for statements that are true or false."""
        self.tried += right.numel()
        if not bool(right.all()):
            self.violations += int((~right).sum())
            self.example = self.example or what

    def done(self, task: Task) -> bool:
        """Whether that was the last case."""
        self.cases += 1
        return self.cases >= task.cases or time.perf_counter() - self.start > task.seconds


def smooth(shape: tuple[int, int, int], g: torch.Generator) -> Tensor:
    """Colour noise of a few pixels' scale, full contrast."""
    coarse = torch.rand(1, shape[0], 2 + shape[1] // 4, 2 + shape[2] // 4, generator=g, dtype=torch.float64)
    x = interpolate(coarse, shape[1:], mode="bicubic", align_corners=False)[0]
    x = x - x.min()
    return x / x.max().clamp_min(1e-9)


def cases(g: torch.Generator, task: Task) -> Iterator[tuple[int, tuple[str, Tensor]]]:
    """Numbered pictures from `task.first` on."""
    start = task.first // KINDS
    numbered = enumerate(pictures(g, start), start * KINDS)
    return itertools.dropwhile(lambda case: case[0] < task.first, numbered)


def pictures(g: torch.Generator, start: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Kinds and sizes in turn, for ever, float64 in [0,1], each exactly a float32 picture, every other round 8-bit."""
    digits = data.load("mnist500").images
    for turn in itertools.count(start):

        def noise(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=g, dtype=torch.float64)

        i, j = torch.arange(9)[:, None], torch.arange(8)[None]
        pixel = torch.zeros(1, 7, 7, dtype=torch.float64)
        pixel[0, turn % 7, (3 * turn + 3) % 7] = 1.0
        level = int(torch.randint(256, (), generator=g)) / 255
        digit = digits[int(torch.randint(len(digits), (), generator=g))].double() / 255
        for name, x in (
            ("binary noise", (noise(1, 8, 8) > 0.5).double()),
            ("white noise", noise(2, 7, 9)),
            ("checkerboard", ((i + j + turn) % 2).double()[None]),
            ("smooth colour noise", smooth((3, 12, 12), g)),
            ("single pixel", pixel),
            ("digit", digit),
            ("constant", torch.full((1, 6, 6), level, dtype=torch.float64)),
            ("8-bit noise", (noise(1, 5, 11) * 255).round() / 255),
            ("one column", noise(1, 9, 1)),
            ("one pixel", noise(1, 1, 1)),
            ("stripes", ((i + turn) % 2).double().expand(9, 6)[None].clone()),
            ("small digit", avg_pool2d(digit[None], 2)[0]),
            ("smooth noise", smooth((1, 16, 13), g)),
        ):
            yield name, (x if turn % 2 else (x * 255).round() / 255).float().double()


def special(box: Box, beta: Tensor, g: torch.Generator) -> Tensor:
    """γ where pixels kink together or Γ ends, and close by: [B, n, d] for beta [B, d]."""
    lower, upper = (torch.tensor(e, dtype=torch.float64) for e in (box.lower, box.upper))
    turns = torch.arange(-4, 5, dtype=torch.float64)[:, None].expand(-1, box.dim)
    unit = math.pi / 2 if box.dim == 1 else 1.0
    fixed = torch.cat((lower[None], upper[None], (lower + upper)[None] / 2, turns * unit)).expand(len(beta), -1, -1)
    gamma = torch.cat((fixed, turns[None] * unit - beta[:, None]), 1)
    near = 10 ** (-9 * torch.rand(gamma.shape, generator=g, dtype=torch.float64))
    near = gamma + near * torch.randn(gamma.shape, generator=g, dtype=torch.float64)
    return torch.cat((gamma, near), 1).clamp(lower, upper)


Errors = Callable[[Tensor, Tensor], Tensor]  # (number of the bound [n], γ [n, d]) → true errors [n]


@dataclass
class Hunt:
    """Pairs (number of the bound, γ) whose true error exceeds the bound [bounds], γ within low … high [bounds, d]."""

    row: Row
    what: str
    bound: Tensor
    low: Tensor
    high: Tensor
    pixels: int
    generator: torch.Generator

    def attack(self, tests: Sequence[tuple[str, Errors]], at: Tensor, gamma: Tensor) -> None:
        """Counts the pairs in every arithmetic, then climbs from the worst."""
        for name, errors in tests:
            true = self._chunks(errors, at, gamma)
            self.row.count(true, self.bound[at], f"{self.what}, {name}")
            ratio, rank = (true / self.bound[at]).topk(min(CLIMBERS, len(at)))
            self._climb(name, errors, at[rank], gamma[rank], ratio)

    def _climb(self, name: str, errors: Errors, who: Tensor, gamma: Tensor, best: Tensor) -> None:
        low, high = self.low[who], self.high[who]
        scale = (high - low) * 0.03
        for _ in range(ROUNDS):
            shape = (len(who), CHILDREN, gamma.shape[1])
            step = torch.randn(shape, generator=self.generator, dtype=torch.float64).to(gamma.device)
            tried = (gamma[:, None] + step * scale[:, None]).clamp(low[:, None], high[:, None])
            number = who.repeat_interleave(CHILDREN)
            true = self._chunks(errors, number, tried.flatten(0, 1))
            self.row.count(true, self.bound[number], f"{self.what}, {name}, climbing")
            ratio, child = (true / self.bound[number]).reshape(len(who), CHILDREN).max(1)
            better = ratio > best
            chosen = tried[torch.arange(len(who), device=child.device), child]
            gamma = torch.where(better[:, None], chosen, gamma)
            best = torch.maximum(ratio, best)
            scale = torch.where(better[:, None], scale, scale * 0.3)

    def _chunks(self, errors: Errors, at: Tensor, gamma: Tensor) -> Tensor:
        size = max(1, WORK // self.pixels)
        return torch.cat([errors(*part) for part in zip(at.split(size), gamma.split(size), strict=True)])


Job = Callable[[Row, Task], None]
