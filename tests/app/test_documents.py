"""The documents do not drift: their code runs, their commands parse, their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

import warpcert as wc
from benchmarks import choosing, cli_reference, zoo
from warpcert import statistics as stats
from warpcert import transforms
from warpcert.app.cli import build_parser, main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "DESIGN.md", *sorted(DOCS.glob("*.md"))]
CODE = ("quickstart.md", "threats.md", "transformations.md", "formats.md", "zoo.md")  # test_docs.py: models.md


class MyModel(torch.nn.Module):
    """Tells whether the left half is brighter, and is sure of it."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        left, right = (half.flatten(1).sum(1) for half in z.chunk(2, dim=3))
        return torch.stack((left, right), 1)


def run(page: str) -> dict[str, Any]:
    """All blocks of a page, one after the other, and the names that they leave."""
    names: dict[str, Any] = {"MyModel": MyModel}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S):
        exec(compile(block, page, "exec"), names)
    return names


@pytest.mark.parametrize("page", CODE)
def test_code_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an empty folder
    monkeypatch.setattr(transforms, "TRANSFORMS", transforms.TRANSFORMS.copy())  # what is registered here is gone after
    names = run(page)
    if page == "quickstart.md":
        assert names["run"].accuracy(5) in (0, 1 / 3, 2 / 3, 1) and Path("report.html").is_file()
        assert main(["check", "runs/mine"]) == 0
        assert main(["report", "runs", "--out", "all.html"]) == 0
        assert run("formats.md")["read"]("runs/mine").to_dict() == names["run"].certificates[0].to_dict()
    if page == "transformations.md":
        assert names["certificate"].kind is wc.Kind.PROVED and names["certificate"].range == (-0.1, 0.1)
    if page == "threats.md":
        assert not names["attack"].succeeded


def commands(text: str) -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    lines = [line.split("#")[0].rstrip(" \\&\n") for block in blocks for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("warpcert ")]


def test_commands_parse() -> None:
    found = [c for page in PAGES for c in commands(page.read_text(encoding="utf-8"))]
    assert len(found) > 10
    for command in found:
        build_parser().parse_args(command)


@pytest.mark.parametrize("page", ["choosing.md", "benchmarks.md"])
def test_the_commands_of_figures_parse(page: str) -> None:
    """Those in tables and sentences, without "warpcert" before them."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"`((?:certify|bound|paper|predict) [^`]*)`", text)
    assert len(found) > 5
    for command in found:
        if "…" not in command:
            build_parser().parse_args(shlex.split(command) + (["--out", "c.json"] if command[:5] == "bound" else []))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
    headings = {
        re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)
    }
    for anchor in re.findall(r"\]\(#([^)]+)\)", text):
        assert anchor in headings, f"{page.name} has no heading #{anchor}"


def test_the_cli_reference_is_up_to_date() -> None:
    written = cli_reference.PAGE.read_text(encoding="utf-8")
    assert written == cli_reference.render(), "run `python -m benchmarks.cli_reference`"


def test_the_zoo_is_up_to_date() -> None:
    page = zoo.PAGE.read_text(encoding="utf-8")
    assert page == zoo.render(page), "run `python -m benchmarks.zoo`"
    assert "mnist-rotation-exact" in zoo.table()


def test_the_cli_reference_says_what_help_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    sections = re.split(r"^## ", cli_reference.PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    written = {section.splitlines()[0]: section for section in sections}
    for parser, _ in cli_reference.parsers(build_parser()):
        section = written[parser.prog].replace("\\|", "|")
        for line in parser.format_help().splitlines():
            option = re.match(r"  (-\S.*?|\w+)(?:  +(.*))?$", line)
            if option and option[1] != "-h, --help":
                assert option[2] is None or option[2] in section, f"{parser.prog}: {line}"
                assert option[1].split()[0].rstrip(",").lower() in section.lower(), f"{parser.prog}: {line}"


def test_the_tables_of_choosing_are_the_arithmetic() -> None:
    text = (DOCS / "choosing.md").read_text(encoding="utf-8")
    rho = stats.exceedance_bound(500, 0.005)
    for ratio in (0.5, 1.0, 1.5, 2.0, 2.5):
        cells = " | ".join(f"{choosing.needed(ratio, 50 / 30 / count, rho):.4f}" for count in (1, 3, 5))
        assert f"| {ratio:g} | {cells} |" in text
    for p in (0.9, 0.95, 0.99, 0.995, 0.999):
        assert f"| {p} | {stats.samples_needed(p, 0.005)} | {3 * stats.samples_needed(p, 0.005 / 3)} |" in text


def test_the_methods_are_those_of_the_registry() -> None:
    from warpcert.methods import METHODS

    for page in ("guarantees.md", "choosing.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        assert all(f"`{name}`" in text for name in METHODS), page
