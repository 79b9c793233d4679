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


class Odd(torch.nn.Module):
    """A network that does what networks should not."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        s = z.flatten(1).mean(1) - 0.2
        if self.way == "in place":
            z.mul_(0)
        logits = torch.stack((s, -s), 1)
        if self.way == "batch":
            logits = torch.where(torch.tensor(len(z) < 3), 0.01 * logits, logits)
        if self.way == "chance":
            logits = torch.where(torch.rand(len(z), 1) < 0.5, logits, 0.5 * logits)
        return logits.long() if self.way == "whole" else logits


def test_networks_that_work_in_place_change_no_picture() -> None:
    """Else a cover would speak of another picture than the one that was given."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(1, 9, 9, generator=generator) * 255).round() / 255
    before, threat = x.clone(), wc.Threat.rotation(degrees=3)
    for plain in (wc.Plain(Odd("in place")), wc.Plain(Odd("in place"), lipschitz=1.0)):
        plain = plain.eval()
        made = plain.certify(x, threat)
        same = type(plain)(Odd(""), lipschitz=plain.lipschitz).eval().certify(x, threat)
        assert torch.equal(x, before) and made.range == same.range and made.scores == same.scores
        assert plain.predict(x) == plain.predict(x[None])[0] == made.label and torch.equal(x, before)
        assert plain.foresee(x, threat).passes > 0


@pytest.mark.parametrize("way", ["batch", "chance"])
def test_networks_whose_answers_depend_on_more_than_the_picture_are_refused(way: str) -> None:
    torch.manual_seed(0)
    x = torch.full((1, 9, 9), 0.6)
    x[0, 4, 2:6] = 0.2
    with pytest.raises(ValueError, match="must not depend on chance"):
        for _ in range(20):  # by chance, both answers may be the same
            wc.Levels(Odd(way).eval(), step=16).certify(x, wc.Threat.rotation(degrees=9))


def test_logits_are_no_whole_numbers() -> None:
    for net in (wc.Levels(Odd("whole").eval(), step=16), wc.Smoothed(Odd("whole").eval(), noise=0.2)):
        with pytest.raises(ValueError, match=r"floating-point numbers; got torch\.int64"):
            net.certify(torch.full((1, 9, 9), 0.6), wc.Threat.rotation(degrees=1))
