"""Windows in columns: as records keep them, and as arrays where they are cells, of which a cover has thousands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, final, overload

import numpy as np
from numpy.typing import NDArray

from warpcert.certificates.evidence import Window
from warpcert.transforms import Box

__all__ = ["CellWindows", "columns", "rows"]

PLAIN: dict[str, Any] = {f.name: f.default for f in fields(Window) if f.name not in ("center", "cell")}
COUNTS = ("k", "n")
NUMBERS = ("alpha", "E", "margin")


@final
class CellWindows(Sequence[Window]):
    """Windows that are cells: lower and upper [J,d], k, n, alpha, E, margin [J]; each is made when it is asked for."""

    def __init__(self, lower: NDArray[np.float64], upper: NDArray[np.float64], **told: NDArray[Any]) -> None:
        self.lower, self.upper = lower, upper
        count = len(lower)
        self.k, self.n = (told.get(name, np.zeros(count, dtype=np.int64)) for name in COUNTS)
        self.alpha, self.E, self.margin = (told.get(name, np.zeros(count)) for name in NUMBERS)
        if lower.shape != upper.shape or lower.ndim != 2 or any(len(c) != count for c in self.told().values()):
            raise ValueError("the columns of the windows differ in length")
        if not (np.isfinite(lower).all() and np.isfinite(upper).all() and (lower <= upper).all()):
            raise ValueError("a cell needs finite ends, the lower ones first")

    @classmethod
    def of(cls, windows: Sequence[Window], dim: int) -> CellWindows:
        """The same windows; a ValueError if they are not cells around their own centres."""
        if isinstance(windows, cls):
            return windows
        if any(w.cell is None or w.cell.center != w.center or w.runner_up is not None for w in windows):
            raise ValueError("the windows of a cover are cells, around their own centres")
        cells = [w.cell for w in windows if w.cell]
        ends = (np.array([getattr(c, end) for c in cells], dtype=np.float64) for end in ("lower", "upper"))
        told = {name: np.array([getattr(w, name) for w in windows]) for name in (*COUNTS, *NUMBERS)}
        return cls(*(e.reshape(-1, dim) for e in ends), **told)

    @classmethod
    def read(cls, stored: dict[str, Any]) -> CellWindows:
        """What `columns` wrote."""
        if unknown := stored.keys() - {"lower", "upper", *COUNTS, *NUMBERS}:
            raise ValueError(f"windows have no {', '.join(sorted(unknown))}")
        ends = [np.stack([_numbers(end, axis) for axis in stored[end]], 1) for end in ("lower", "upper")]
        count = len(ends[0])
        told = {name: stored[name] for name in (*COUNTS, *NUMBERS) if name in stored}
        lists = {name: v if isinstance(v, list) else [v] * count for name, v in told.items()}
        made: dict[str, NDArray[Any]] = {name: _column(name, v) for name, v in lists.items()}
        return cls(*ends, **made)

    def told(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in (*COUNTS, *NUMBERS)}

    def written(self) -> dict[str, Any]:
        """As JSON columns, axis by axis, without centres, with what all of them share written once."""
        found: dict[str, Any] = {"lower": self.lower.T.tolist(), "upper": self.upper.T.tolist()}
        for name, column in self.told().items():
            if (column != PLAIN[name]).any():
                found[name] = column[0].item() if (column == column[0]).all() else column.tolist()
        return found

    def totals(self) -> dict[str, Any]:
        """By which a change of any window is noticed."""
        sizes = (self.upper - self.lower).prod(1)
        sums = {name: math.fsum(column.tolist()) for name, column in (*self.told().items(), ("size", sizes))}
        return {"windows": len(self), **{name: value for name, value in sums.items() if value}}

    def __len__(self) -> int:
        return len(self.lower)

    @overload
    def __getitem__(self, i: int) -> Window: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[Window, ...]: ...
    def __getitem__(self, i: int | slice) -> Window | tuple[Window, ...]:
        if isinstance(i, slice):
            return tuple(self[j] for j in range(*i.indices(len(self))))
        cell = Box(tuple(self.lower[i].tolist()), tuple(self.upper[i].tolist()))
        told = {name: column[i].item() for name, column in self.told().items()}
        return Window(cell.center, cell=cell, **told)

    def __iter__(self) -> Iterator[Window]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CellWindows) or len(other) != len(self):
            return NotImplemented if not isinstance(other, CellWindows) else False
        mine, theirs = ((w.lower, w.upper, *w.told().values()) for w in (self, other))
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))

    __hash__ = None  # type: ignore[assignment]


def columns(windows: Sequence[Window]) -> dict[str, Any]:
    """Windows as JSON columns, without those in which nothing is set."""
    if isinstance(windows, CellWindows):
        return windows.written()
    if any(w.cell for w in windows):
        return CellWindows.of(windows, len(windows[0].center)).written()
    full = {name: [getattr(w, name) for w in windows] for name in PLAIN}
    told = {name: column for name, column in full.items() if any(v != PLAIN[name] for v in column)}
    return {"center": [w.center for w in windows]} | told


def rows(stored: dict[str, Any]) -> Sequence[Window]:
    """What `columns` was given; a ValueError for columns of unequal lengths."""
    if "lower" in stored:
        return CellWindows.read(stored)
    if unknown := stored.keys() - {"center", *PLAIN}:
        raise ValueError(f"windows have no {', '.join(sorted(unknown))}")
    made = zip(*stored.values(), strict=True)
    return tuple(Window(**dict(zip(stored, w, strict=True)) | {"center": tuple(w[0])}) for w in made)


def _column(name: str, values: list[Any]) -> NDArray[Any]:
    if name not in COUNTS:
        return _numbers(name, values)
    if set(map(type, values)) - {int}:
        raise ValueError(f"{name} of a window is a whole number")
    return np.array(values, dtype=np.int64)


def _numbers(name: str, values: list[Any]) -> NDArray[np.float64]:
    if set(map(type, values)) - {int, float}:
        raise ValueError(f"{name} of a window is a number")
    return np.array(values, dtype=np.float64)
