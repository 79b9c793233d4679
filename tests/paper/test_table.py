"""The tables of README and docs say what the certificates in the tree say."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

import warpcert as wc
from benchmarks import table
from warpcert.app.cli import build_parser, main
from warpcert.classifier import About
from warpcert.learn import data
from warpcert.networks.config import ModelConfig
from warpcert.networks.weights import build, fused
from warpcert.runs.store import PACKED, Store, pack, read_config, read_records, verify

ROOT = Path(__file__).parents[2]


def sure(z: torch.Tensor) -> torch.Tensor:
    return torch.tensor([0.0, 9.0]) + 0.01 * z.flatten(1)[:, :2]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder: four pictures, always answered 1, of which three are right."""
    folder = tmp_path / "run"
    net, threat = wc.Smoothed(sure, noise=0.5), wc.Threat.rotation(degrees=10, quantized=False)
    config = {"indices": [0, 4], "device": "cpu", "threat": threat.to_dict(), "method": "cover"}
    with Store(folder, config) as store:
        for index in (2, 0, 1, 3):
            x = torch.rand(1, 6, 6, generator=torch.Generator().manual_seed(index))
            store.append(index, int(index != 3), net.certify(x, threat, n=200, seed=index))
    return folder


def test_packed_runs_are_read_and_checked(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results" / "row"
    pack(run, out)
    assert verify(out) == [] == verify(run)
    assert sorted(r["index"] for r in read_records(run)) == [r["index"] for r in read_records(out)]
    assert main(["check", str(out)]) == 0 and "4 certificates" in capsys.readouterr().out
    before = (out / PACKED).read_bytes()
    pack(run, out)
    assert (out / PACKED).read_bytes() == before  # nothing but the certificates decides the bytes
    with pytest.raises(ValueError, match="finished run"):
        Store(out, {})
    (out / PACKED).write_bytes(before[:-20])
    with pytest.raises(ValueError, match="cannot be unpacked"):
        verify(out)


PAGE = f"before\n{table.MARKERS[0]}\nold\n{table.MARKERS[1]}\nafter\n"
ROW = """[sources]
A = "Somebody"
[[row]]
name = "row"
headline = "H"
task = "T"
method = "cover"
model = "m"
at = [5, 10]
published = { 10 = "A .5" }
plot = "p"
measured = 2026-11-16
command = "certify --model m --count 4"
"""


def test_a_table_from_certificates(run: Path, tmp_path: Path) -> None:
    for folder in ("results", "docs", "warpcert/assets", "recipes/m"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    pages = [tmp_path / "README.md", tmp_path / "docs" / "benchmarks.md"]
    for page in pages:
        page.write_text(PAGE)
    (tmp_path / "results" / "rows.toml").write_text(ROW)
    network = fused(build(ModelConfig((1, 6, 6), 2, width=4, blocks=(1,))))
    about = About("m", ("a", "b"), wc.Threat.rotation(10), notes={"dataset": "dots.npz"})
    wc.Smoothed(network, noise=0.5, about=about).save(tmp_path / "recipes" / "m" / "model.safetensors")
    pack(run, tmp_path / "results" / "row")
    with pytest.raises(ValueError, match="out of date"):
        table.short_table(tmp_path)
    table.regenerate(tmp_path)
    short, full = (page.read_text() for page in pages)
    share = ".750 (.194–.994)"  # by Clopper and Pearson, rounded outwards
    assert f"| H: `cover` | ±10° | **{share}** | with confidence | A .5 |" in short and "Somebody" not in short
    assert f"| T: `cover` | ±5°: **{share}**<br>±10°: **{share}** | with confidence | ±10°: A .5 | 4 |" in full
    assert "| 2026-11-16 | `certify --model m --count 4` |" in full and "A: Somebody." in full
    assert all(p.startswith("before\n") and p.endswith("after\n") and "old" not in p for p in (short, full))
    plot = tmp_path / "docs" / "img" / "accuracy-p.svg"
    drawn = plot.read_bytes()
    assert b"<svg" in drawn and b"certified accuracy" in drawn and "docs/img/accuracy-p.svg" in short
    (listed,) = json.loads((tmp_path / "warpcert" / "assets" / "models.json").read_text())
    assert listed["task"] == "dots, rotation within ±10°"
    assert listed["figures"] == {"cover, ±5°, with confidence": share, "cover, ±10°, with confidence": share}
    table.regenerate(tmp_path)
    assert plot.read_bytes() == drawn, "the same certificates, the same bytes"
    path = tmp_path / "results" / "row" / PACKED
    pack_again = [json.loads(json.dumps(r)) for r in read_records(run)]
    pack_again[0]["certificate"]["label"] = 0
    shutil.rmtree(run)
    with pytest.raises(ValueError, match="digest"):
        run.mkdir()
        (run / "certificates.jsonl").write_text("".join(json.dumps(r) + "\n" for r in pack_again))
        (run / "config.json").write_text((path.parent / "config.json").read_text())
        pack(run, path.parent)
        table.regenerate(tmp_path)


def test_shuffled_is_one_fixed_order(tmp_path: Path) -> None:
    """The order that mnist500 was drawn by: the first of the shuffled test set are not the first of the file."""
    plain = data.load("mnist500")
    moved, order = plain.shuffled(), np.random.default_rng(0).permutation(500)
    assert torch.equal(moved.image(0), plain.image(int(order[0]))) and moved.labels[1] == plain.labels[order[1]]
    for flags, expected in ((["--shuffled"], "shuffled"), ([], None)):
        out = tmp_path / f"run{len(flags)}"
        assert main(["certify", "--count", "1", "--gamma", "1", "--out", str(out), *flags]) == 0
        assert read_config(out).get("order") == expected


def test_the_pages_show_the_results_of_the_tree() -> None:
    for page, text in (("README.md", table.short_table(ROOT)), ("docs/benchmarks.md", table.full_table(ROOT))):
        written = (ROOT / page).read_text(encoding="utf-8")
        assert table.replaced(written, text) == written, "run python -m benchmarks.table"


def test_shares_and_their_intervals() -> None:
    assert table.share(412, 500) == ".824 (.787–.857)"
    assert table.share(0, 10) == ".000 (.000–.309)" and table.share(10, 10) == "1.000 (.691–1.000)"


def test_summaries_follow_from_the_records() -> None:
    """Counted once more, from what each record says of its reach."""
    for m in table.read_measured(ROOT):
        records = list(read_records(ROOT / "results" / m.row["name"]))
        whole = sum(
            r["certificate"]["label"] == r["true_label"]
            and r["certificate"]["derived"]["reach"] == r["certificate"]["threat"]["box"]
            for r in records
        )
        assert len(records) == m.count and m.summary["curve"][-1] == whole, m.row["name"]


def test_the_commands_of_the_rows_parse() -> None:
    rows = tomllib.loads((ROOT / "results" / "rows.toml").read_text(encoding="utf-8"))["row"]
    assert len(rows) > 10 and len({row["name"] for row in rows}) == len(rows)
    assert sum("headline" in row for row in rows) == 5
    for row in rows:
        args = build_parser().parse_args(row["command"].split())
        assert args.model == row["model"] and (ROOT / "recipes" / row["model"] / "recipe.toml").is_file()
