"""IndivSPT on the command line: the paper's evaluation, one's own picture, and the drawing of possible originals."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
from PIL import Image

from warpcert.app.cli import main
from warpcert.app.cli.ranges import estimate, ranges
from warpcert.learn import data
from warpcert.learn.pictures import read_picture, write_picture
from warpcert.originals.protocol import IntervalInverse
from warpcert.runs.store import read_records
from warpcert.threat import Threat

FAST = ["--model", "mnist-rotation", "--method", "indiv", "--gamma", "1", "--n", "400", "--betas", "30"]
FAST += ["--windows", "1", "--refinements", "2", "--inverse", "interval"]


def test_certify_attacks_and_certifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["certify", "--count", "2", "--k", "10", *FAST, "--out", str(tmp_path)]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "attacked pictures" in out and "of analysis" in out and "ruled out" in out
    assert main(["check", str(tmp_path)]) == 0
    records = list(read_records(tmp_path))
    assert [r["index"] for r in records] == [0, 1]
    for r in records:
        assert abs(r["attack"]["gamma"][0]) <= 1 and r["answer"] in range(-1, 10)
        seconds = r["analysis_seconds"] + r["smoothing_seconds"]
        assert seconds == pytest.approx(r["certificate"]["seconds"]) and r["analysis_seconds"] > 0
        windows, gamma = r["certificate"]["windows"], math.radians(r["attack"]["gamma"][0])
        held = any(lo <= gamma <= hi for lo, hi in zip(windows["lower"][0], windows["upper"][0], strict=True))
        assert held  # the γ that was used is never excluded
    capsys.readouterr()
    before = (tmp_path / "certificates.jsonl").read_bytes()
    assert main([*command, "--json"]) == 0  # nothing left to do
    summary = json.loads(capsys.readouterr().out)
    assert summary["count"] == 2 and 0 <= summary["answered_correctly"] <= 1
    assert summary["median_E"] > 0 and 0 < summary["ruled_out"] < 1
    assert (tmp_path / "certificates.jsonl").read_bytes() == before
    assert main([*command, "--k", "11"]) == 2
    assert "with k = 10 there" in capsys.readouterr().err


def attacked(folder: Path, degrees: float) -> Path:
    threat = Threat.of("rotation", 10)
    x = threat.attacked(data.load("mnist500").image(2), torch.tensor([[math.radians(degrees)]]))[0]
    write_picture(x, folder / "attacked.png")
    torch.testing.assert_close(read_picture(folder / "attacked.png"), x)
    return folder / "attacked.png"


def test_predict_certifies_a_picture_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = attacked(tmp_path, 0.6)
    assert main(["predict", str(path), *FAST, "--betas", "120", "--alpha", "0.01"]) == 0
    out = capsys.readouterr().out
    assert "answers 4" in out and "unseen original, if a rotation within ±1°" in out


def test_invert_draws_every_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "invert.png"
    assert (
        main(["invert", "--index", "3", "--angle", "3", "--refinements", "2", "--gamma", "5", "--out", str(out)]) == 0
    )
    said = capsys.readouterr().out
    assert "holds the original" in said and "does not hold the original" in said  # one range near γ = 0, one near 3°
    with Image.open(out) as picture:
        assert picture.width > 1000 and picture.height > 300
    path = attacked(tmp_path, 0.4)
    assert main(["invert", str(path), "--gamma", "1", "--refinements", "1", "--out", str(out)]) == 0
    assert "survive" in capsys.readouterr().out
    white = tmp_path / "white.png"
    Image.new("RGB", (9, 12), "white").save(white)
    assert main(["invert", str(white), "--gamma", "2", "--out", str(out), "--original", str(white)]) == 0


def test_invert_says_when_nothing_leads_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pixel of light in a corner that any turn by 5° or more would have spread or lost."""
    x = torch.zeros(1, 9, 9)
    x[0, 0, 0] = x[0, 4, 4] = 1
    write_picture(x, tmp_path / "spots.png")
    box = ["--transform", "translation", "--gamma", "0.5"]
    assert main(["invert", str(tmp_path / "spots.png"), *box, "--out", str(tmp_path / "a.png")]) == 0
    assert "survive" in capsys.readouterr().out
    assert main(["invert", str(tmp_path / "no.png")]) == 2
    assert "no file" in capsys.readouterr().err
    assert main(["invert", "--index", "3", "--angle", "30"]) == 2
    assert "must lie within ±10°" in capsys.readouterr().err


def test_ranges_join_what_touches_and_the_estimate_is_close() -> None:
    x = data.load("mnist500").image(3)
    threat = Threat.of("rotation", 5)
    gamma = math.radians(3)
    x_attacked = threat.attacked(x, torch.tensor([[gamma]]))[0]
    found = IntervalInverse(refinements=3, finest=0.005).survivors(x_attacked, threat)
    rows = ranges(x_attacked, threat, found)
    ends = sorted((row.box.lower[0], row.box.upper[0]) for row in rows)
    assert all(b < c for (_, b), (c, _) in itertools.pairwise(ends))
    assert sum(b - a for a, b in ends) == pytest.approx(float((found.high - found.low).sum()))
    (true,) = (row for row in rows if row.box.lower[0] <= gamma <= row.box.upper[0])
    assert ((true.refined[0] <= x) & (x <= true.refined[1])).all()
    assert ((true.plain[0] <= true.refined[0]) & (true.refined[1] <= true.plain[1])).all()
    close = estimate(x_attacked, threat, (gamma,))
    assert close is not None
    assert float((close - x).norm()) < 0.3 * float((x_attacked - x).norm())
    assert estimate(torch.zeros(1, 65, 65), threat, (gamma,)) is None
