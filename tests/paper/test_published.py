"""What the tables call published is what the paper says: compared with published.toml, typed in apart from the code."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

from warpcert.paper.experiments import EXPERIMENTS
from warpcert.paper.published import PUBLISHED
from warpcert.paper.reasons import REASONS, below
from warpcert.paper.row import Unmeasured
from warpcert.report.table import Table, difference

TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
COLUMNS = {(e.name, r.name): e.columns for e in EXPERIMENTS.values() for r in e.rows}


def test_every_number_is_the_papers_and_none_is_missing() -> None:
    typed = {
        (name, row): {c: v for c, v in zip(table["columns"], values, strict=True) if v != ""}
        for name, table in TABLES.items()
        for row, values in table["rows"].items()
    }
    assert {key: dict(printed.numbers) for key, printed in PUBLISHED.items()} == typed
    assert sum(map(len, typed.values())) > 300


def test_every_setting_is_the_papers() -> None:
    typed = {(name, row): s for name, table in TABLES.items() for row, s in table.get("settings", {}).items()}
    assert {key: dict(printed.settings) for key, printed in PUBLISHED.items() if printed.settings} == typed


def test_published_numbers_stand_beside_ours() -> None:
    """Each has a row and a column of its own, its place in the paper, and a reason why ours is another."""
    for key, printed in PUBLISHED.items():
        assert set(printed.numbers) <= set(COLUMNS[key]), key
        assert printed.where and REASONS[key].endswith("."), key
        cited = printed.cited(next(iter(printed.numbers)))
        assert cited is not None and cited.source.startswith("paper, ") and printed.cited("no such column") is None
    assert set(REASONS) <= set(COLUMNS)


def test_only_what_is_quoted_from_others_is_left_unmeasured() -> None:
    left = {(e.name, r.name) for e in EXPERIMENTS.values() for r in e.rows if isinstance(r, Unmeasured)}
    assert left == {("verified", "imagenet-quoted")}


@pytest.mark.parametrize(
    ("ours", "published", "expected"),
    [
        (0.9, 0.85, 0.05),
        ("1.4 #", 1.2, 0.2),
        (None, 0.5, None),
        ("3 of 6", 0.5, None),
        (100, 1000, None),
        (3, "≈ 40", None),
    ],
)
def test_the_difference_is_ours_less_theirs(ours: Any, published: Any, expected: float | None) -> None:
    found = difference(ours, published)
    assert found == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(("sigma", "total", "factor"), [(2.0, "0.508", "1.97"), (1.0, "0.409", "2.45")])
def test_the_factors_in_the_reasons_are_those_of_the_papers_filter(sigma: float, total: str, factor: str) -> None:
    """exp(−r²/σ) on 5×5 pixels, divided by four times the sum over one quadrant, axes included: what is left of 1."""
    line = [math.exp(-(k**2) / sigma) for k in range(-2, 3)]
    left = sum(line) ** 2 / (4 * sum(line[2:]) ** 2)
    assert f"{left:.3f}" == total and f"{1 / left:.2f}" == factor
    told = [reason for reason in REASONS.values() if total in reason]
    assert told and any(f"factor of {factor}" in reason for reason in told)


def test_what_chance_explains_is_told_apart() -> None:
    """Of 10 images .8 can be .9, but not 1; of 1000 it cannot be .9. What is above, or no share, is not told."""
    published = {"±0°": 0.9, "±10°": 0.5, "E": 0.5, "images": 1000}
    assert below({"images": 10, "±0°": 0.8, "±10°": 0.8, "E": 0.1}, published) == (
        "±0°: the 95 % interval of 10 holds the paper's."
    )
    assert below({"images": 1000, "±0°": 0.8, "±10°": 0.4}, published) == "Below, and not by chance: ±0°, ±10°."
    assert below({"images": 1000, "±0°": 0.9, "±10°": None}, published) == "" == below({}, published)


def test_what_chance_does_not_explain_is_explained_in_the_docs() -> None:
    """In the tables that are kept: no more rows than docs/paper.md names, each with an explanation there."""
    root = Path(__file__).parents[2]
    found = set()
    for path in sorted((root / "results" / "paper").glob("*/table.json")):
        table = Table.read(path.parent)
        rows = zip(EXPERIMENTS[table.name].rows, table.remarks, strict=True)
        found |= {(table.name, row.name) for row, remark in rows if "not by chance" in remark}
    assert found == {
        ("distribution-x", "imagenet-rotation"),
        ("individual", "mnist-translation"),
        ("accuracy", "cifar10-d"),
        ("accuracy", "cifar10-x"),
    }
