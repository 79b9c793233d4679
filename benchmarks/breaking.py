"""What attempts to break a bound share: rows of a report, pictures of many kinds, and a climb from the worst pairs."""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from warpcert.learn import data
from warpcert.transforms import Box

__all__ = ["MOST", "WORK", "Errors", "Hunt", "Job", "Row", "parser_of", "pictures", "run", "special"]

WORK = 2**22  # pixels evaluated at once, and about as many for each case and precision
MOST = 20_000  # pairs per case
TURNS = 52  # cases per row at least, if time permits: four rounds of the pictures
CLIMBERS, CHILDREN, ROUNDS = 48, 12, 10  # of the climb from the worst pairs


@dataclass
class Row:
    """What one line of the report counts. `closest` is the largest true error over its bound."""

    name: str
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

    def done(self, turn: int, options: argparse.Namespace) -> bool:
        late = time.perf_counter() - self.start > options.seconds
        return late or (self.tried >= options.pairs and turn + 1 >= TURNS)

    def report(self) -> None:
        seconds = time.perf_counter() - self.start
        print(f"{self.name:<58}{self.tried:>10}{self.violations:>12}{self.closest:>11.5f}{seconds:>8.0f} s", flush=True)
        if self.example:
            print(f"    VIOLATED {self.example}", flush=True)


def smooth(shape: tuple[int, int, int], g: torch.Generator) -> Tensor:
    """Colour noise of a few pixels' scale, full contrast."""
    coarse = torch.rand(1, shape[0], 2 + shape[1] // 4, 2 + shape[2] // 4, generator=g, dtype=torch.float64)
    x = interpolate(coarse, shape[1:], mode="bicubic", align_corners=False)[0]
    x = x - x.min()
    return x / x.max().clamp_min(1e-9)


def pictures(g: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    """Kinds and sizes in turn, for ever, float64 in [0,1], each exactly a float32 picture, every other round 8-bit."""
    digits = data.load("mnist500").images
    for turn in itertools.count():

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


Job = Callable[[Row, argparse.Namespace], None]


def run(named: Iterable[tuple[str, Job]], options: argparse.Namespace) -> int:
    """Does the rows that were asked for; the exit code."""
    print(f"{'':<58}{'tried':>10}{'violations':>12}{'closest':>11}{'time':>10}")
    broken = 0
    for name, job in named:
        if options.only in name:
            row = Row(name)
            job(row, options)
            row.report()
            broken += row.violations
    print("no violation" if not broken else f"{broken} violations")
    return 1 if broken else 0


def parser_of(words: str | None, pairs: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=words.splitlines()[0] if words else None)
    parser.add_argument("--pairs", type=int, default=pairs, help="parameters tried per row")
    parser.add_argument("--seconds", type=float, default=180, help="at most about so long per row")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    return parser
