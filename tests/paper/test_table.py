"""The README's table says what the certificates in the tree say."""

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
from warpcert.app.cli.options import describe, open_case
from warpcert.learn import data
from warpcert.runs.store import PACKED, Store, pack, read_records, verify

ROOT = Path(__file__).parents[2]


def sure(z: torch.Tensor) -> torch.Tensor:
    return torch.tensor([0.0, 9.0]) + 0.01 * z.flatten(1)[:, :2]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder: four pictures, always answered 1, of which three are right."""
    folder = tmp_path / "run"
    defence = wc.Defence.surface("rotation", 0, noise=0.5)
    threats = [wc.Threat.of("rotation", 10, quantized=False)] * 4
    config = {"indices": [0, 4], "device": "cpu", "threat": threats[0].to_dict(), "method": "cover"}
    with Store(folder, config) as store:
        for index in (2, 0, 1, 3):
            x = torch.rand(1, 6, 6, generator=torch.Generator().manual_seed(index))
            c = wc.cover(sure, x, defence, threats[index], wc.Sampling(n=200, seed=index))
            store.append(index, int(index != 3), c)
    return folder


def test_packed_runs_are_read_and_checked(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results" / "row"
    pack(run, out)
    assert verify(out) == [] == verify(run)
    assert sorted(r["index"] for r in read_records(run)) == [r["index"] for r in read_records(out)]
    assert main(["check", str(out)]) == 0 and "4 certificates checked" in capsys.readouterr().out
    before = (out / PACKED).read_bytes()
    pack(run, out)
    assert (out / PACKED).read_bytes() == before  # nothing but the certificates decides the bytes
    with pytest.raises(ValueError, match="finished run"):
        Store(out, {})
    (out / PACKED).write_bytes(before[:-20])
    with pytest.raises(ValueError, match="cannot be unpacked"):
        verify(out)


def test_a_table_from_certificates(run: Path, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir(exist_ok=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "warpcert" / "assets").mkdir(parents=True)
    (tmp_path / "README.md").write_text(f"before\n{table.MARKERS[0]}\nold\n{table.MARKERS[1]}\nafter\n")
    (tmp_path / "results" / "rows.toml").write_text(
        '[sources]\nA = "Somebody"\n[[row]]\nname = "row"\ntask = "T"\nmethod = "cover"\nmodel = "m"\nat = [5, 10]\n'
        'published = "A .5"\nplot = "p"\ncommand = "certify --count 4"\n'
    )
    pack(run, tmp_path / "results" / "row")
    with pytest.raises(ValueError, match="out of date"):
        table.table(tmp_path)
    table.regenerate(tmp_path)
    readme = (tmp_path / "README.md").read_text()
    assert "| T: `cover` | ±5° / ±10° | with confidence | **.750 / .750** | A .5 |" in readme
    assert readme.startswith("before\n") and readme.endswith("after\n") and "old" not in readme
    assert (tmp_path / "docs" / "accuracy-p.png").stat().st_size > 1000
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


def test_shuffled_is_one_fixed_order() -> None:
    """The order that mnist500 was drawn by: the first of the shuffled test set are not the first of the file."""
    args = build_parser().parse_args(["certify", "--shuffled", "--count", "3"])
    case = open_case(args)
    plain = data.load("mnist500")
    order = np.random.default_rng(0).permutation(500)
    assert torch.equal(case.image(0), plain.image(int(order[0]))) and case.labels[1] == int(plain.labels[order[1]])
    assert describe(case, wc.Sampling())["order"] == "shuffled"
    args.shuffled = False
    assert "order" not in describe(open_case(args), wc.Sampling())


def test_the_readme_shows_the_results_of_the_tree() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert table.replaced(readme, table.table(ROOT)) == readme, "run python -m benchmarks.table"


def test_summaries_follow_from_the_records() -> None:
    """Counted once more, from what each record says of its reach."""
    for row, summary in table.read_summaries(ROOT):
        records = list(read_records(ROOT / "results" / row["name"]))
        whole = sum(
            r["certificate"]["label"] == r["true_label"]
            and r["certificate"]["derived"]["reach"] == r["certificate"]["threat"]["box"]
            for r in records
        )
        assert len(records) == summary["count"] and summary["curve"][-1] == whole / len(records), row["name"]


def test_the_commands_of_the_rows_parse() -> None:
    rows = tomllib.loads((ROOT / "results" / "rows.toml").read_text(encoding="utf-8"))["row"]
    assert len(rows) > 10 and len({row["name"] for row in rows}) == len(rows)
    for row in rows:
        args = build_parser().parse_args(row["command"].split())
        assert args.model == row["model"] and (ROOT / "recipes" / row["model"] / "recipe.toml").is_file()
