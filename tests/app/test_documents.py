"""The documents do not drift: their code runs, their commands parse, their links lead somewhere, cli.md is the CLI."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import warpcert as wc
from benchmarks import choosing, cli_reference
from warpcert import statistics as stats
from warpcert.app.cli import build_parser, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "DESIGN.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = [ROOT / "docs" / name for name in ("guide.md", "formats.md")]  # test_docs.py runs that of models.md
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


class MyModel(torch.nn.Module):
    """Tells whether the left half is brighter, and is sure of it."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        left, right = (half.flatten(1).sum(1) for half in z.chunk(2, dim=3))
        return torch.stack((left, right), 1)


def load_my_pictures() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    pixels = np.zeros((6, 10, 10), dtype=np.uint8)
    pixels[::2, 3:7, 2:4] = 200
    pixels[1::2, 3:7, 6:8] = 200
    return pixels, np.array([0, 1] * 3)


@pytest.mark.parametrize("page", CODE, ids=lambda p: p.name)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page, one after the other, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"MyModel": MyModel, "load_my_pictures": load_my_pictures}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        exec(compile(block, page.name, "exec"), names)
    if page.name == "guide.md":
        assert names["certificate"].kind is wc.Kind.PROVED and names["certificate"].label == 0
        assert main(["check", "runs/mine"]) == 0
        assert main(["report", "runs", "--out", "report.html"]) == 0
        assert "left" in Path("report.html").read_text(encoding="utf-8")


def commands(text: str) -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    lines = [line.split("#")[0].rstrip(" \\&\n") for block in blocks for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("warpcert ")]


def test_commands_parse() -> None:
    found = [c for page in PAGES for c in commands(page.read_text(encoding="utf-8"))]
    assert len(found) > 10
    for command in found:
        build_parser().parse_args(command)


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
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    rho = stats.exceedance_bound(500, 0.005)
    for ratio in (0.5, 1.0, 1.5, 2.0, 2.5):
        cells = " | ".join(f"{choosing.needed(ratio, 50 / 30 / count, rho):.4f}" for count in (1, 3, 5))
        assert f"| {ratio:g} | {cells} |" in text
    for p in (0.9, 0.95, 0.99, 0.995, 0.999):
        assert f"| {p} | {stats.samples_needed(p, 0.005)} | {3 * stats.samples_needed(p, 0.005 / 3)} |" in text


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_examples_are_small() -> None:
    assert {p.stem for p in EXAMPLES} >= {"own_module", "online", "new_transformation"}
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 60, path.name


def test_example_own_module() -> None:
    certificate = load("own_module").main()
    assert certificate.kind is wc.Kind.WITH_CONFIDENCE and certificate.label == 2 and certificate.reach is not None


def test_example_online() -> None:
    module = load("online")
    module.CALIBRATE = module.CALIBRATE.replace("--count 20", "--count 3")
    certificates = module.main()
    calibrated, alone = certificates[::2], certificates[1::2]
    assert [c.label for c in calibrated] == [2, 4]
    assert all(c.label in (wc.ABSTAIN, label) for c, label in zip(alone, (2, 4), strict=True))
    assert {c.form for c in calibrated} == {"attacked"} and {c.form for c in alone} == {"indiv"}
    assert all(c.kind is wc.Kind.WITH_CONFIDENCE for c in certificates)


def test_example_new_transformation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from warpcert import transforms

    monkeypatch.setattr(transforms, "TRANSFORMS", dict(transforms.TRANSFORMS))
    module = load("new_transformation")
    certificate = module.main()
    assert certificate.kind is wc.Kind.HEURISTIC and certificate.label == 2
    assert certificate.threat.transform.name == "shear" and "no proof yet" in capsys.readouterr().out
