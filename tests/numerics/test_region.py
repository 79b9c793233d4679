"""Unions of regions: whether a box lies inside one."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from warpcert.numerics.region import Region, covered, reach
from warpcert.transforms import Box

SQUARE = Box((-2.0, -1.0), (2.0, 3.0))


def tiling(box: Box, count: int, seed: int) -> list[Box]:
    """The box cut `count` times, each time one cell, anywhere, across either side."""
    draw, cells = random.Random(seed), [box]
    for _ in range(count):
        cell, axis = cells.pop(draw.randrange(len(cells))), draw.randrange(2)
        cut = cell.lower[axis] + (cell.upper[axis] - cell.lower[axis]) * draw.uniform(0.1, 0.9)
        cells.append(Box(cell.lower, tuple(cut if a == axis else v for a, v in enumerate(cell.upper))))
        cells.append(Box(tuple(cut if a == axis else v for a, v in enumerate(cell.lower)), cell.upper))
    return cells


def regions(cells: list[Box]) -> list[Region]:
    return [Region.cell(c) for c in cells]


def strips(count: int) -> list[Box]:
    """A grid with one narrow row after the other, of which none lines up with its neighbours."""
    ends = [[-2.0, *(-2.0 + 4 * (i + j / count) / count for i in range(count)), 2.0] for j in range(count)]
    rows = [(-1.0 + 4 * j / count, -1.0 + 4 * (j + 1) / count) for j in range(count)]
    return [Box((a, low), (b, high)) for (low, high), row in zip(rows, ends, strict=True) for a, b in pairwise(row)]


@pytest.mark.parametrize("seed", range(20))
def test_a_tiling_covers_and_misses_nothing(seed: int) -> None:
    cells = tiling(SQUARE, 300, seed)
    assert covered(SQUARE, regions(cells)) and reach(SQUARE, regions(cells)) == SQUARE
    draw = random.Random(seed)
    for _ in range(10):
        gone = draw.randrange(len(cells))
        rest = regions(cells[:gone] + cells[gone + 1 :])
        assert not covered(SQUARE, rest) and not covered(cells[gone], rest)
        low, high = cells[gone].lower, cells[gone].upper
        inner = Box(*(tuple(a + (b - a) * t for a, b in zip(low, high, strict=True)) for t in (0.4, 0.6)))
        assert not covered(inner, rest) and covered(inner, regions(cells))
        kept = reach(SQUARE, rest)
        if kept is not None:
            assert covered(kept, rest) and not covered(SQUARE.scaled(kept.upper[0] / 2 + 1e-6), rest)


def test_many_rows_that_do_not_line_up_are_covered() -> None:
    cells = strips(60)
    assert covered(SQUARE, regions(cells))
    assert not covered(SQUARE, regions(cells[:1900] + cells[1901:]))


def test_a_gap_of_one_ulp_is_seen() -> None:
    low, high = Box((-2.0, -1.0), (0.5, 3.0)), Box((0.5 + 2**-53, -1.0), (2.0, 3.0))
    assert not covered(SQUARE, regions([low, high]))
    assert covered(SQUARE, regions([low, Box((0.5, -1.0), (2.0, 3.0))]))


def test_sides_without_length() -> None:
    line, point = Box((-2.0, 0.0), (2.0, 0.0)), Box((0.0, 0.0), (0.0, 0.0))
    halves = [Box((-2.0, 0.0), (0.5, 0.0)), Box((0.5, -1.0), (2.0, 3.0))]
    assert covered(line, regions(halves)) and covered(point, regions(halves))
    assert not covered(line, regions(halves[:1])) and not covered(SQUARE, regions(halves))
    assert not covered(line, regions([Box((-2.0, 0.1), (2.0, 3.0))])) and not covered(point, [])


def test_cells_that_only_touch_the_box_do_not_cover_it() -> None:
    assert not covered(SQUARE, regions([Box((2.0, -1.0), (3.0, 3.0)), Box((-3.0, 3.0), (3.0, 4.0))]))
