"""The table that an experiment leaves behind: ours beside what is published, with a remark where they differ."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

__all__ = ["TABLE", "Cell", "Cited", "Figure", "Table", "difference", "signed"]

TABLE, FORMAT = "table.json", "warpcert-table-1"

Cell = float | int | str | None  # None: not measured


def difference(ours: Cell, published: Cell) -> float | None:
    """Ours less the published number, None if one of them is no number, or if a count is published: ours may be one of
    fewer pictures. Of a text like "1.35 #" the number counts.
    """
    a, b = _number(ours), None if isinstance(published, int) else _number(published)
    return None if a is None or b is None else a - b


def signed(ours: Cell, published: Cell) -> str:
    """The difference for people: +0.05, −0.3; "" if there is none."""
    found = difference(ours, published)
    return "" if found is None else f"{found:+.3g}".replace("-", "−")


def _number(cell: Cell) -> float | None:
    try:
        return None if cell is None else float(str(cell).removesuffix("#"))
    except ValueError:
        return None


@final
@dataclass(frozen=True)
class Cited:
    """A published number and where it stands."""

    value: float | str
    source: str


@final
@dataclass(frozen=True)
class Figure:
    """A picture file beside table.json."""

    file: str
    caption: str


@final
@dataclass(frozen=True)
class Table:
    """docs/formats.md says what each field means. rows and published have one cell per column, remarks one per row."""

    name: str
    title: str
    what: str
    quick: bool
    command: str
    seconds: float
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    published: tuple[tuple[Cited | None, ...], ...]
    remarks: tuple[str, ...]
    notes: tuple[str, ...]
    figures: tuple[Figure, ...] = ()
    runs: tuple[str, ...] = ()
    device: str = ""
    date: str = ""

    def __post_init__(self) -> None:
        if not len(self.rows) == len(self.published) == len(self.remarks):
            raise ValueError(f"the table {self.name} needs as many rows as published rows and remarks")
        if any(len(row) != len(self.columns) for row in (*self.rows, *self.published)):
            raise ValueError(f"the table {self.name} needs {len(self.columns)} cells in every row")

    def write(self, folder: Path) -> None:
        """table.json, whole or not at all."""
        part = folder / f"{TABLE}.part"
        part.write_text(json.dumps({"format": FORMAT} | asdict(self), indent=1, ensure_ascii=False) + "\n", "utf-8")
        os.replace(part, folder / TABLE)

    @classmethod
    def read(cls, folder: Path) -> Table:
        """The table in that folder; a ValueError says what is wrong with it."""
        path = folder / TABLE
        try:
            d: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if d.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            cited = tuple(tuple(Cited(**c) if c else None for c in row) for row in d["published"])
            lists = {k: tuple(d[k]) for k in ("columns", "remarks", "notes", "runs")}
            figures = tuple(Figure(**f) for f in d["figures"])
            return cls(**d | lists | {"rows": tuple(map(tuple, d["rows"])), "published": cited, "figures": figures})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path} is not a table: {error}") from None
