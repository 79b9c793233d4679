"""Models by name: what the manifest says is what is loaded, and what is missing or altered is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import warpcert as wc
from warpcert.app.cli import main
from warpcert.classifier import About
from warpcert.learn import zoo
from warpcert.networks.config import ModelConfig
from warpcert.networks.weights import build, fused

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the model "small", which the manifest lists."""
    path = tmp_path / "small" / "model.safetensors"
    about = About("small", ("a", "b"), wc.Threat.scaling(20, quantized=False), settings={"centres": "plain"})
    network = fused(build(ModelConfig((1, 8, 8), 2, width=4, blocks=(1,))))
    wc.Smoothed(network, noise=0.1, about=about).save(path)
    listing = zoo.Listing(**zoo.listing_of(path, "small", "a test", "Apache-2.0", {"cover": ".9"}))
    monkeypatch.setattr(zoo, "manifest", lambda: {"small": listing})
    monkeypatch.setenv(zoo.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def test_the_embedded_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # no source tree around
    net = wc.load(zoo.EMBEDDED)
    assert net.name == zoo.EMBEDDED and net.kind == "levels" and net.step == 32 and net.method == "exact"
    assert net.threat == wc.Threat.rotation(50, quantized=False)
    assert net(torch.zeros(1, 1, 28, 28)).shape == (1, len(net.classes)) == (1, 10)
    assert net.predict(torch.zeros(1, 28, 28)) in range(10) and len(net.predict(torch.zeros(3, 1, 28, 28))) == 3


def test_what_comes_with_the_package_stays_small() -> None:
    assert sum(p.stat().st_size for p in (ROOT / "warpcert" / "assets").iterdir()) <= 2e6


def test_a_model_from_the_shelf(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = wc.load("small")
    assert loaded.threat == wc.Threat.scaling(20, quantized=False) and zoo.manifest()["small"].figures == {
        "cover": ".9"
    }
    assert loaded.classes == ("a", "b") and loaded.noise == 0.1 and loaded.settings == {"centres": "plain"}
    by_path = wc.load(str(shelf / "small" / "model.safetensors"))
    assert by_path.about == loaded.about and by_path.fingerprint == loaded.fingerprint
    monkeypatch.delenv(zoo.FOLDER_VARIABLE)
    shelf.rename(shelf.parent / "recipes")
    monkeypatch.chdir(shelf.parent)
    assert wc.load("small").fingerprint == loaded.fingerprint


def test_absent_altered_unknown(shelf: Path) -> None:
    path = shelf / "small" / "model.safetensors"
    with pytest.raises(ValueError, match="no model 'large'"):
        wc.load("large")
    with pytest.raises(ValueError, match="no file"):
        wc.load("large.safetensors")
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(ValueError, match="SHA-256 differs"):
        wc.load("small")
    path.unlink()
    with pytest.raises(ValueError, match=f"set {zoo.FOLDER_VARIABLE}"):
        wc.load("small")


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert main(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert "mnist-rotation" in {m["name"] for m in listed} and all(m["sha256"] in shown for m in listed)


def test_the_list_says_by_how_much_logits_differ(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = {"slack": 1e-4, "largest": 2.04e-6, "images": 1_000_000}
    listing = zoo.Listing("one", "a test", "Apache-2.0", 9, "0" * 64, {}, measured)
    monkeypatch.setattr(zoo, "manifest", lambda: {"one": listing})
    assert main(["models"]) == 0
    assert "logits differ by at most 2.0e-06 (slack: 0.0001) of 1,000,000 pictures" in capsys.readouterr().out


def test_the_manifest_is_that_of_the_tree() -> None:
    """Every weights file of the source tree is listed with its digest, and nothing else is; sizes stay small."""
    weights = {p.parent.name: p for p in ROOT.glob("recipes/*/model.safetensors")}
    weights |= {p.stem: p for p in ROOT.glob("warpcert/assets/*.safetensors")}
    assert set(weights) == set(zoo.manifest())
    for name, path in weights.items():
        m = zoo.manifest()[name]
        assert zoo.listing_of(path, name, m.task, m.licence, m.figures)["sha256"] == m.sha256
    assert all(m.bytes <= 25e6 for m in zoo.manifest().values())
    assert sum(m.bytes for m in zoo.manifest().values()) <= 140e6
