"""What goes before and after training on photographs: packing pictures, measuring rows within a time."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import gather, row
from warpcert.learn import data

Image = pytest.importorskip("PIL.Image")


def test_pictures_are_packed_up_to_a_size_and_labelled_by_the_teacher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    for i in range(6):
        pixels = torch.randint(0, 256, (280, 300, 3), generator=generator, dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(tmp_path / f"{i}.png")
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    teacher = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    monkeypatch.setattr(gather, "pretrained", lambda family: teacher)
    monkeypatch.setattr(gather, "fused", lambda network: network)
    out = tmp_path / "pack.zip"
    monkeypatch.setattr(sys, "argv", ["gather", str(out), str(tmp_path), "--megabytes", "0.2"])
    gather.main()
    packed = data.load(out, "train")
    assert 1 <= len(packed) < 6 and packed.shape == (3, 256, 256) and out.stat().st_size < 210_000
    expected = teacher(packed.images[..., 16:240, 16:240].float()).argmax(1)
    assert float((expected == packed.labels).float().mean()) > 0.5
    monkeypatch.setattr(sys, "argv", ["gather", str(tmp_path / "again.zip"), str(out)])
    gather.main()
    assert sorted(data.load(tmp_path / "again.zip", "train").labels.tolist()) == sorted(packed.labels.tolist())


def test_rows_are_measured_in_turn_within_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    words = row.command({"name": "a", "command": "certify --model m"}, 60, ["--count", "3"])
    assert words[3:] == [
        *("certify", "--model", "m", "--out", str(Path("runs") / "a"), "--time-limit", "60", "--count", "3")
    ]
    began = time.monotonic()
    assert row.measured([sys.executable, "-c", "pass"], 60)
    assert not row.measured([sys.executable, "-c", "import time; time.sleep(300)"], 1.0)
    assert time.monotonic() - began < 60
    done: list[Any] = []
    monkeypatch.setattr(row, "measured", lambda words, seconds: done.append(words) or len(done) < 2)
    with pytest.raises(SystemExit):
        row.main(["no-such-row"])
    assert row.main(["mnist-rotation-exact", "mnist-rotation-cover"]) == 1 and len(done) == 2
    assert row.main(["mnist-rotation-exact"]) == 1
