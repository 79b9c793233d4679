"""The README's example runs as it stands (on a small picture), and its commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

import warpcert as wc
from warpcert.app.cli import build_parser

README = Path(__file__).parents[2] / "README.md"


class MyNet(torch.nn.Module):
    """Sure of class 1, so that there is something to certify."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return torch.tensor([0.0, 9.0, 0.0]) + 0.01 * z.flatten(1)[:, :3]


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    names: dict[str, Any] = {"MyNet": MyNet, "load_image": lambda: torch.rand(1, 9, 9)}
    exec(compile(block.replace("10_000", "600"), "README", "exec"), names)
    certificate = names["certificate"]
    assert certificate.kind is wc.Kind.WITH_CONFIDENCE and certificate.reach is not None
    assert names["answer"].label == 1
    assert "kept under every rotation" in capsys.readouterr().out


def test_the_commands_parse() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    lines = [line.split("#")[0].rstrip(" \\&\n") for block in blocks for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("warpcert ")]
    rows = re.findall(r"`(certify [^`]*)`", README.read_text(encoding="utf-8"))
    commands += [shlex.split(row) for row in rows]
    assert len(commands) > 10
    for command in commands:
        build_parser().parse_args(command)
