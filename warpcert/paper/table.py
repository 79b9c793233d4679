"""What goes into the cells of an experiment's table."""

from __future__ import annotations

from collections.abc import Sequence

from warpcert.report.table import TABLE, Cell, Cited, Figure, Table

__all__ = ["TABLE", "Cell", "Cited", "Figure", "Table", "quarters"]


def quarters(radii: Sequence[float]) -> str:
    """The 25, 50 and 75 per cent points; negative values, which stand for no radius, count as 0."""
    ordered = sorted(radii)
    points = (max(0.0, ordered[min(len(ordered) - 1, len(ordered) * k // 4)]) for k in (1, 2, 3))
    return ", ".join(f"{q:.3g}" for q in points)
