"""BaseSPT's table: its command runs and its shares hang together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import warpcert as wc
from benchmarks import heuristic
from warpcert.learn.models import ModelConfig, build, save


def test_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--count", "4", "--k", "5", "--n", "20", "--votes", "20", "--draws", "2", "--gamma", "30"]
    assert heuristic.main([*quick, "--out", str(tmp_path / "rows.jsonl")]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row == json.loads((tmp_path / "rows.jsonl").read_text()) and row["count"] == 4
    assert 0.5 <= row["b"] <= 1 and row["g_attacked"] <= row["g"] <= 1 and row["b_attacked"] <= 1
    assert heuristic.main(["--data", "nothing"]) == 2 and "not known" in capsys.readouterr().err


def test_attacks_find_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture that is right where it is, and empty once it is shifted far enough: b and g fall for it."""
    x = np.zeros((3, 9, 9), dtype=np.uint8)
    x[:, 4, 4] = 255
    model = build(ModelConfig((1, 9, 9), 2, width=4, blocks=(1,)))
    save(model, tmp_path / "m.safetensors", {"defence": wc.Defence.surface("translation", 2, noise=0.1).to_dict()})
    loaded, _, _ = heuristic.load_weights(tmp_path / "m.safetensors")
    logits = loaded(torch.stack((torch.from_numpy(x[:1]).float() / 255, torch.zeros(1, 9, 9))))
    shift = (logits[0] + logits[1]) / 2  # of the head: the two pictures get different answers
    loaded.head.bias.data -= shift
    save(loaded, tmp_path / "m.safetensors", {"defence": wc.Defence.surface("translation", 2, noise=0.1).to_dict()})
    np.savez(tmp_path / "d.npz", x_test=x, y_test=np.full(3, int((logits[0] - shift).argmax())))
    arguments = ["--data", str(tmp_path / "d.npz"), "--model", str(tmp_path / "m.safetensors"), "--count", "3"]
    arguments += ["--transform", "translation", "--gamma", "8", "--sigma", "0.1", "--k", "60", "--n", "30"]
    assert heuristic.main([*arguments, "--votes", "20", "--draws", "2"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["b"] == row["g"] == 1 and row["b_attacked"] == row["g_attacked"] == 0
