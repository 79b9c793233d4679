"""Rough use: one sentence in the units of the surface, and nothing done by halves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import warpcert as wc
from warpcert import methods
from warpcert.app.cli.case import threat_of
from warpcert.app.cli.main import build_parser, main
from warpcert.errors.calibration import Calibration
from warpcert.learn import data

CALIBRATION = Path(__file__).parents[2] / "results" / "mnist-rotation-dist-d" / "calibration.json"


def test_the_range_is_that_of_the_calibration() -> None:
    net, told = wc.load("mnist-rotation-exact"), Calibration.read(CALIBRATION)
    words = ["certify", "--method", "dist-d", "--calibration", str(CALIBRATION)]
    parse = build_parser("certify").parse_args
    assert net.threat != told.threat == threat_of(parse(words), net)
    assert threat_of(parse([*words, "--gamma", "5"]), net).box == wc.Threat.rotation(degrees=5).box
    assert threat_of(parse(["certify"]), net) == net.threat


def test_ends_in_the_wrong_order_are_said_in_degrees() -> None:
    with pytest.raises(ValueError, match=r"both ends, in degrees; got \(2, -3\)"):
        wc.Threat.rotation(degrees=(2, -3))


def test_a_folder_may_have_more_than_256_classes(tmp_path: Path) -> None:
    for i in range(300):
        (tmp_path / f"{i:03}").mkdir()
        Image.fromarray(np.full((4, 4), i % 251, dtype=np.uint8)).save(tmp_path / f"{i:03}" / "x.png")
    found = data.load(tmp_path)
    assert found.labels.tolist() == list(range(300)) and len(found.classes) == 300


def test_whoever_reads_only_the_first_line_breaks_nothing() -> None:
    command = f"{sys.executable} -m warpcert models | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == "" and done.stdout.count("\n") == 2


def test_one_picture_that_is_interrupted_tells_what_was_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    net, path = wc.load("mnist-rotation-exact"), tmp_path / "digit.png"
    Image.fromarray(np.zeros((28, 28), dtype=np.uint8)).save(path)
    proved = net.certify(torch.zeros(1, 28, 28), wc.Threat.rotation(degrees=1))

    def stopped(*_: object, **__: object) -> None:
        raise methods.Interrupted(proved)

    monkeypatch.setattr(methods, "certify_with", stopped)
    words = ["certify", str(path), str(path), "--model", "mnist-rotation-exact", "--gamma", "1"]
    assert main(words) == 130 and capsys.readouterr().out == f"{path}: {proved}\n"
    assert main([*words, "--fail-under", "0.5"]) == 2 and "true labels" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [torch.full((1, 28, 28), 200.0), torch.full((1, 28, 28), float("nan"))])
def test_what_is_no_picture_gets_no_answer(wrong: torch.Tensor) -> None:
    """Whoever forgot to divide by 255 would be told a class."""
    for net in (wc.load("mnist-rotation-exact"), wc.load("mnist-rotation-lipschitz"), wc.load("mnist-rotation")):
        for given in (wrong, wrong[None]):
            with pytest.raises(ValueError, match=r"divide 8-bit images by 255|NaN or infinite"):
                net.predict(given)
