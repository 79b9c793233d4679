"""models.md and engines.md do what they say: their Python runs, their commands parse, and the cheap ones run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import warpcert as wc
from warpcert.app.cli import build_parser, main

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)


def commands(page: str) -> list[list[str]]:
    lines = [line.split("#")[0] for block in blocks(page, "sh") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("warpcert ")]


@pytest.mark.parametrize("page", ["models.md", "engines.md"])
def test_the_commands_parse(page: str) -> None:
    assert len(commands(page)) >= 2
    for command in commands(page):
        build_parser().parse_args(command)


def test_an_exported_network_is_certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("models.md", "python")[0], "models.md", "exec"), {})
    assert main(commands("models.md")[0]) == 0
    run = wc.Run(tmp_path / "runs/exact")
    assert len(run.certificates) == 2
    assert run.config["classifier"]["facts"]["step"] == 8


@pytest.mark.filterwarnings("ignore:::art")
def test_the_art_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("art", reason="the adapter is an extra: pip install 'warpcert[art]'")
    names: dict[str, object] = {}
    exec(compile(blocks("models.md", "python")[1].replace("1000", "300"), "models.md", "exec"), names)
    assert len(names["label"]) == 1  # type: ignore[arg-type]
    assert capsys.readouterr().out.startswith(("Abstains", "Label"))
