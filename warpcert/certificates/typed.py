"""Whether the fields of a certificate have the types that they are declared with: JSON holds anything."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

from warpcert.certificates.columns import CellWindows
from warpcert.transforms import Transform

__all__ = ["well_typed"]

SCALARS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}


def well_typed(value: Any, where: str = "") -> None:
    """Refuses scalars of another type, in a dataclass and in all that it holds, and numbers that are none."""
    if isinstance(value, Transform | CellWindows):
        return
    if isinstance(value, tuple):
        for each in value:
            well_typed(each, where)
    elif is_dataclass(value):
        for f in fields(value):
            _check(getattr(value, f.name), str(f.type), f"{where}.{f.name}".lstrip("."))
    elif value is None or (isinstance(value, float) and math.isnan(value)):
        raise ValueError(f"{where} holds {value}")


def _check(value: Any, declared: str, where: str) -> None:
    names = declared.split(" | ")
    if value is None and "None" in names:
        return
    wanted = tuple(t for name in names for t in SCALARS.get(name, ()))
    if wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted)):
        raise ValueError(f"{where} is {value!r}: expected {declared}")
    if declared.startswith("tuple[float") and not all(type(v) in (int, float) for v in value):
        raise ValueError(f"{where} is {value!r}: expected numbers")
    if not isinstance(value, dict):
        well_typed(value, where)
