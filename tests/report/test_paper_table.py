"""A table is written whole, read back as it was, and refused if it does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from warpcert.report.table import Cited, Table


def test_a_table_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    given = Table(
        "a", "A", "what", True, "c", 1.0, ("case", "E"), (("x", 1.0),), ((None, Cited(1, "paper")),), ("",), ()
    )
    given.write(tmp_path)
    assert Table.read(tmp_path) == given
    with pytest.raises(ValueError, match="2 cells"):
        replace(given, rows=(("x",),))
    path = tmp_path / "table.json"
    path.write_text(path.read_text().replace("warpcert-table-1", "other"))
    with pytest.raises(ValueError, match="not a table"):
        Table.read(tmp_path)
