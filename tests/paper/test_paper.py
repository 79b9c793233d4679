"""The paper's experiments: each runs in a tiny configuration, survives a kill, and leaves a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch.nn.functional import avg_pool2d

from warpcert import statistics as stats
from warpcert.app.cli import main
from warpcert.classifier.defence import Defence
from warpcert.learn import data
from warpcert.networks import resnet as models
from warpcert.paper import individual as experiments_individual
from warpcert.paper.desk import Desk, Missing, Model
from warpcert.paper.distribution import Dist
from warpcert.paper.efficiency import Bounding
from warpcert.paper.experiment import Experiment, Size, run
from warpcert.paper.experiments import EXPERIMENTS
from warpcert.paper.heuristic import HEURISTIC
from warpcert.paper.journal import Journal, read_journal
from warpcert.paper.published import PUBLISHED, REMARKS
from warpcert.paper.table import Cited, Table
from warpcert.paper.violations import VIOLATIONS
from warpcert.runs.store import verify
from warpcert.transforms import Preprocess

TINY = Size(1, n=300, betas=30, gammas=3, estimate=1, test=3, rho=0.3)
SIDE, LENGTH = 14, 1600


def _digits() -> data.Dataset:
    found = data.load("mnist500").part(0, 12)
    small = avg_pool2d(found.images.float(), 2).round().to(torch.uint8)
    return data.Dataset("tiny", small, found.labels, found.classes)


def _sounds() -> data.Dataset:
    draw = torch.Generator().manual_seed(0)
    loud = torch.randn(12, 1, LENGTH, generator=draw) * torch.linspace(100, 9000, 12)[:, None, None]
    words = tuple("abc")
    return data.Dataset("words", loud.clamp(-32768, 32767).to(torch.int16), torch.arange(12) % 3, words)


def _model(name: str) -> Model:
    """An untrained network: what it answers does not matter here."""
    if name == "speech-volume":
        config = models.ModelConfig((1, LENGTH), 3, width=4, blocks=(1,), front="mfcc")
        defence = Defence.surface("volume", 3, noise=0.006)
    else:
        config = models.ModelConfig((1, SIDE, SIDE), 10, width=4, blocks=(1,))
        defence = Defence.surface("rotation", 30, noise=0.15, preprocess=Preprocess("circle", 1, 1.0, 3))
    return Model(name, models.fused(models.build(config)), f"fingerprint of {name}", defence)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pictures and sounds in place of mnist500 and speech; other data and photographs are not there."""

    def dataset(self: Desk, name: str, split: str = "test") -> data.Dataset:
        if name not in ("mnist500", "speech"):
            raise Missing(f"the {name} data")
        return _digits() if name == "mnist500" else _sounds()

    monkeypatch.delenv(data.ROOT_VARIABLE, raising=False)
    monkeypatch.setattr(Desk, "dataset", dataset)
    monkeypatch.setattr(Desk, "model", lambda self, *names: _model(names[0]))
    monkeypatch.setattr("warpcert.paper.audio.LEVELS", (1, 4))
    monkeypatch.setattr(Bounding, "picture", lambda self, seed: _digits().image(seed).expand(3, -1, -1))


def shrunk(experiment: Experiment) -> Experiment:
    """The experiment with every quick row as small as it can be, and without rows that are like others."""
    alike = ("side-24", "side-32", "side-40", "side-128", "side-224", "mnist-1", "mnist-2", "mnist-5")
    rows = [
        replace(r, quick=TINY if r.quick.images or r.quick.test else r.quick)  # type: ignore[type-var]
        for r in experiment.rows
        if r.name not in alike
    ]
    limited = (replace(r, quick_limit=1.0) if isinstance(r, Bounding) else r for r in rows)
    return replace(experiment, rows=tuple(limited))


def desk(out: Path) -> Desk:
    return Desk(out, quick=True, device=torch.device("cpu"))


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_each_experiment_runs_and_leaves_a_table(name: str, tiny: None, tmp_path: Path) -> None:
    experiment = shrunk(EXPERIMENTS[name])
    steps = list(run(experiment, desk(tmp_path), f"warpcert paper {name}"))
    table = Table.read(tmp_path / name)
    assert table.quick and table.notes[0].startswith("QUICK") and table.seconds > 0
    assert table.columns == ("case", *experiment.columns)
    for row, cells, remark in zip(experiment.rows, table.rows, table.remarks, strict=True):
        assert cells[0] == row.case
        elsewhere = getattr(row, "data", "mnist500") not in ("mnist500", "speech")
        absent = elsewhere or row.name in ("side-64", "mnist-rotation-online")  # left to the full run
        assert absent == remark.startswith("needs ")
        assert absent == all(cell is None for cell in cells[1:])
        assert absent or any(case == row.case for case, _ in steps)
    for figure in table.figures:
        assert (tmp_path / name / figure.file).stat().st_size > 1000 and figure.caption
    for folder in table.runs:
        assert verify(tmp_path / name / folder) == []
    again = list(run(experiment, desk(tmp_path), f"warpcert paper {name}"))  # all there: nothing is measured anew
    assert len(again) == len(steps) and Table.read(tmp_path / name).seconds == table.seconds


def _with(images: int) -> Experiment:
    row = replace(HEURISTIC.rows[0], quick=replace(TINY, images=images))  # type: ignore[type-var]
    return replace(HEURISTIC, rows=(row,))


def test_a_killed_run_goes_on(tiny: None, tmp_path: Path) -> None:
    folder = tmp_path / "heuristic" / "mnist-rotation"
    begun: Iterator[object] = run(_with(4), desk(tmp_path), "")
    assert len(list(islice(begun, 2))) == 2
    del begun
    before = (folder / "records.jsonl").read_bytes()
    assert not (tmp_path / "heuristic" / "table.json").exists()
    (folder / "records.jsonl").write_bytes(before + b'{"key": 2, "va')  # the line that the kill tore
    list(run(_with(4), desk(tmp_path), ""))
    after = (folder / "records.jsonl").read_bytes()
    assert after.startswith(before) and [r["key"] for r in read_journal(folder)] == [0, 1, 2, 3]
    whole = tmp_path / "whole"
    list(run(_with(4), desk(whole), ""))
    own, other = (Table.read(p / "heuristic").rows[0] for p in (tmp_path, whole))
    assert own[:6] == other[:6]  # all but the seconds


def test_results_of_other_settings_are_refused(tiny: None, tmp_path: Path) -> None:
    list(run(_with(1), desk(tmp_path), ""))
    with pytest.raises(ValueError, match="another row"):
        list(run(_with(2), desk(tmp_path), ""))
    with pytest.raises(ValueError, match="holds a quick run"):
        list(run(_with(1), replace(desk(tmp_path), quick=False), ""))


def test_the_journal_notices_edits_and_a_second_writer(tmp_path: Path) -> None:
    with Journal(tmp_path, {"a": 1}) as journal:
        journal.append("x", {"E": 0.5}, 1.0)
        with pytest.raises(ValueError, match="in use"):
            Journal(tmp_path, {"a": 1})
    path = tmp_path / "records.jsonl"
    path.write_text(path.read_text().replace("0.5", "0.4"))
    with pytest.raises(ValueError, match="edited"):
        Journal(tmp_path, {"a": 1})


def test_where_composition_is_exact_nothing_violates(tmp_path: Path) -> None:
    """The bundled model on bundled digits: the theorem's radius holds where nothing is interpolated twice."""
    row = next(r for r in VIOLATIONS.rows if r.name == "mnist-rotation-composed")
    small = replace(row, models=("mnist-rotation",), quick=Size(2, n=200, gammas=4))  # type: ignore[type-var]
    list(run(replace(VIOLATIONS, rows=(small,)), desk(tmp_path), ""))
    table = Table.read(tmp_path / "violations")
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["γ tried"] == 8 and cells["γ that violate"] == 0


def test_published_numbers_belong_to_rows_and_columns() -> None:
    cases = {(e.name, r.name): e.columns for e in EXPERIMENTS.values() for r in e.rows}
    for key, cited in PUBLISHED.items():
        assert set(cited) <= set(cases[key]), key
        assert all(isinstance(c, Cited) and c.source for c in cited.values())
    assert set(REMARKS) <= set(cases)


def test_rows_have_names_of_their_own_and_frozen_configurations() -> None:
    for experiment in EXPERIMENTS.values():
        names = [row.name for row in experiment.rows]
        assert len(set(names)) == len(names)
        for row in experiment.rows:
            json.dumps(row.config(desk(Path())))
            with pytest.raises(AttributeError):
                row.name = "other"
            inverse = getattr(row, "inverse", "")
            assert not inverse or inverse in experiments_individual.INVERSES


def test_every_size_can_certify() -> None:
    """As many unanimous votes as a row takes show more than ½ + ρ in every window."""
    for row in (r for name in ("distribution-d", "distribution-x") for r in EXPERIMENTS[name].rows):
        assert isinstance(row, Dist)
        windows = row.windows ** (2 if row.transform == "translation" else 1)
        for size in (row.quick, row.full):
            rho = size.rho if row.method == "dist-d" else stats.upper_bound(0, size.betas, 0.004)
            assert size.n // windows >= stats.samples_needed(0.5 + rho, 0.004 / windows), row.name


def test_a_table_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    given = Table(
        "a", "A", "what", True, "c", 1.0, ("case", "E"), (("x", 1.0),), ((None, Cited(1, "paper")),), ("",), ()
    )
    given.write(tmp_path)
    assert Table.read(tmp_path) == given
    with pytest.raises(ValueError, match="2 cells"):
        replace(given, rows=(("x",),))
    path = tmp_path / "table.json"
    path.write_text(path.read_text().replace("warpcert-table-1", "other"))
    with pytest.raises(ValueError, match="not a table"):
        Table.read(tmp_path)


def test_the_command_lists_runs_and_explains(
    tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "heuristic", shrunk(HEURISTIC))
    assert main(["paper", "heuristic", "--quick", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert (
        "published" in shown and "remark" in shown and "QUICK" in shown and "warpcert paper heuristic --quick" in shown
    )
    assert main(["paper", "--out", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in EXPERIMENTS) and "quick, " in listed
    assert main(["paper", "nothing"]) == 2
    assert "heuristic" in capsys.readouterr().err


def test_models_and_data_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(data.ROOT_VARIABLE, raising=False)
    here = desk(tmp_path)
    assert here.model("no-such-model", "mnist-rotation").name == "mnist-rotation"
    with pytest.raises(Missing, match="warpcert train recipes/no-such-model"):
        here.model("no-such-model")
    with pytest.raises(Missing, match="--data-root"):
        here.dataset("cifar10")
    with pytest.raises(Missing, match="--speech"):
        here.dataset("speech")
