"""The README keeps its word: its code prints what it says, its commands exist, its pictures are those of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks import animation
from warpcert.app.cli import build_parser

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 100


def test_the_example_prints_what_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    (code,), (printed,) = blocks("python"), blocks("text")
    names: dict[str, Any] = {}
    exec(compile(code, "README", "exec"), names)
    assert capsys.readouterr().out.split() == printed.split()
    assert names["net"].predict(names["x"]) == names["certificate"].label


def test_the_commands_parse() -> None:
    lines = [line.split("#")[0].rstrip(" \\&\n") for block in blocks("sh") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("warpcert ")]
    assert len(commands) >= 4
    for command in commands:
        build_parser().parse_args(command)


def test_the_results_are_a_few_rows_and_a_plot() -> None:
    section = README.split("<!-- table -->")[1].split("<!-- end of table -->")[0]
    assert 3 <= sum(line.startswith("| ") for line in section.splitlines()) - 2 <= 6
    assert re.search(r"!\[.*\]\(docs/img/.*\.svg\)", section)


def test_the_animation_is_small_and_turns() -> None:
    path = ROOT / "docs" / "img" / "dial.gif"
    with Image.open(path) as picture:
        assert picture.n_frames == len(animation.angles()) > 20  # type: ignore[attr-defined]
    assert path.stat().st_size <= 400_000


def test_the_animation_shows_a_true_certificate() -> None:
    certificate, shown, frames = animation.frames()
    low, high = certificate.range  # type: ignore[misc]
    assert isinstance(low, float) and isinstance(high, float)
    inside = [answer for angle, answer in shown if low <= angle <= high]
    assert len(frames) == len(shown) and set(inside) == {certificate.label}
    assert len(inside) < len(shown) and {answer for _, answer in shown} - {certificate.label}
    with Image.open(animation.PAGE) as kept:
        pairs = zip(kept.convert("RGB").tobytes(), frames[0].tobytes(), strict=True)
    assert sum(abs(a - b) for a, b in pairs) < 4 * len(frames[0].tobytes())  # the palette of a GIF is small
