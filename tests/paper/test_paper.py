"""The paper's experiments: each runs in a tiny configuration, survives a kill, and leaves a table."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch.nn.functional import avg_pool2d

from benchmarks import paper as benchmark
from warpcert import statistics as stats
from warpcert.app.cli import main
from warpcert.classifier import About, Classifier, Levels, Plain, Smoothed
from warpcert.classifier.storage import configured
from warpcert.errors.calibration import Calibration
from warpcert.learn import data
from warpcert.networks.config import ModelConfig
from warpcert.networks.weights import build, fused
from warpcert.originals.named import INVERSES
from warpcert.paper.desk import Desk, Missing
from warpcert.paper.experiment import Experiment, run
from warpcert.paper.experiments import EXPERIMENTS
from warpcert.paper.experiments.audio import VolumeCover
from warpcert.paper.experiments.bicubic import SampledError
from warpcert.paper.experiments.covers import Covers, lipschitz_sampling
from warpcert.paper.experiments.distribution import Dist
from warpcert.paper.experiments.efficiency import Bounding
from warpcert.paper.experiments.heuristic import HEURISTIC
from warpcert.paper.experiments.verified import Verified
from warpcert.paper.experiments.violations import VIOLATIONS
from warpcert.paper.journal import Journal, read_journal
from warpcert.paper.row import NONE, Beside, Measured, Row, Size, Unmeasured, Versus
from warpcert.report.table import Table
from warpcert.runs.store import verify
from warpcert.threat import Threat
from warpcert.transforms import Preprocess
from warpcert.windows.cover import cover_windows

# Published numbers without ours beside them, for a reason that the table tells.
LACKING = {
    ("verified", "mnist-quoted", "verified, refined"),  # nothing is relaxed
    ("audio", "dist-d", "±4 dB"),  # Γ ends at 3 dB
}
TINY = Size(1, n=300, betas=30, gammas=3, attacks=2, estimate=1, test=3, rho=0.3)
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


def _classifier(name: str) -> Classifier:
    """An untrained network: what it answers does not matter here."""
    about = About(name)
    if name == "speech-volume":
        hearing = ModelConfig((1, LENGTH), 3, width=4, blocks=(1,), front="mfcc")
        return Smoothed(fused(build(hearing)), 0.006, {"volume": 2}, preprocess=Preprocess(limit=0.25), about=about)
    network = fused(build(ModelConfig((1, SIDE, SIDE), 10, width=4, blocks=(1,))))
    if name.endswith("-exact"):
        return Levels(network, step=32, about=about)
    if name.endswith("-lipschitz"):
        return Plain(network, lipschitz=0.1, about=about)  # not its constant: quick, and nobody looks
    if name.endswith("-plain"):
        return Plain(network, about=about)
    seen = Preprocess(vignette="circle", margin=1, blur_sigma=1.0, blur_size=3)
    return Smoothed(network, 0.15, {"rotation": 30}, preprocess=seen, about=about)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pictures and sounds in place of mnist500 and speech; other data and photographs are not there."""

    def dataset(self: Desk, name: str, split: str = "test") -> data.Dataset:
        if name not in ("mnist500", "speech"):
            raise Missing(f"the {name} data")
        return _digits() if name == "mnist500" else _sounds()

    monkeypatch.delenv(data.ROOT_VARIABLE, raising=False)
    monkeypatch.setattr(Desk, "dataset", dataset)
    monkeypatch.setattr(Desk, "classifier", lambda self, *names: _classifier(names[0]))
    monkeypatch.setattr("warpcert.paper.experiments.audio.LEVELS", (1, 4))
    monkeypatch.setattr(Bounding, "picture", lambda self, seed: _digits().image(seed).expand(3, -1, -1))


def _smaller(row: Row) -> Row:
    """The row with a quick run as small as it can be."""
    if isinstance(row, VolumeCover):
        return replace(row, quick=replace(TINY, n=2000))
    if isinstance(row, Beside):
        return replace(row, of=_smaller(row.of))
    if isinstance(row, Versus):
        return replace(row, of=_smaller(row.of), than=_smaller(row.than))
    if isinstance(row, Covers):
        row = replace(row, gamma=2)
    if isinstance(row, Bounding):
        row = replace(row, quick_limit=1.0)
    if isinstance(row, Verified):
        row = replace(row, gamma=row.gamma / 20)
    if isinstance(row, Measured) and (row.quick.images or row.quick.test):
        return replace(row, quick=TINY)  # type: ignore[call-arg]
    return row


def shrunk(experiment: Experiment) -> Experiment:
    """The experiment with small rows, and without those that are like others."""
    alike = ("side-24", "side-32", "side-40", "side-128", "side-224", "mnist-1", "mnist-2", "mnist-5")
    return replace(experiment, rows=tuple(_smaller(row) for row in experiment.rows if row.name not in alike))


def _absent(row: Row) -> bool:
    """Whether a quick run on digits and sounds alone leaves the row out."""
    if isinstance(row, Beside | Versus):
        return _absent(row.of)
    if isinstance(row, Unmeasured | SampledError) or (isinstance(row, Measured) and row.quick == NONE):
        return True
    return getattr(row, "data", "mnist500") not in ("mnist500", "speech")


def desk(out: Path) -> Desk:
    return Desk(out, quick=True, device=torch.device("cpu"))


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_each_experiment_runs_and_leaves_a_table(name: str, tiny: None, tmp_path: Path) -> None:
    experiment = shrunk(EXPERIMENTS[name])
    steps = list(run(experiment, desk(tmp_path), f"warpcert paper {name}"))
    table = Table.read(tmp_path / name)
    assert table.quick and table.notes[0].startswith("QUICK") and table.seconds >= 0
    assert table.columns == ("case", *experiment.columns)
    for row, cells, remark in zip(experiment.rows, table.rows, table.remarks, strict=True):
        assert cells[0] == row.case
        absent = _absent(row)
        assert absent == remark.startswith("needs ")
        assert absent == all(cell is None for cell in cells[1:])
        assert absent or any(case == row.case for case, _ in steps)
    lacking = {
        (name, row.name, column)
        for row, cells, cited in zip(experiment.rows, table.rows, table.published, strict=True)
        for column, cell, known in zip(table.columns, cells, cited, strict=True)
        if known is not None and cell is None and not _absent(row)
    }
    assert lacking == {key for key in LACKING if key[0] == name}, "a published number has ours beside it"
    for figure in table.figures:
        assert (tmp_path / name / figure.file).stat().st_size > 1000 and figure.caption
    for folder in table.runs:
        assert verify(tmp_path / name / folder) == []
    again = list(run(experiment, desk(tmp_path), f"warpcert paper {name}"))  # all there: nothing is measured anew
    assert len(again) == len(steps) and Table.read(tmp_path / name).seconds == table.seconds


def test_cells_beside_other_published_numbers_are_the_same(tiny: None, tmp_path: Path) -> None:
    experiment = shrunk(EXPERIMENTS["verified"])
    list(run(experiment, desk(tmp_path), ""))
    table = Table.read(tmp_path / "verified")
    rows = {
        row.name: (cells, cited) for row, cells, cited in zip(experiment.rows, table.rows, table.published, strict=True)
    }
    own, beside = rows["mnist"], rows["mnist-quoted"]
    assert own[0][1:] == beside[0][1:] and own[1] != beside[1]
    assert not (tmp_path / "verified" / "mnist-quoted").exists()


def test_a_reference_turns_known_originals_only(tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A classifier's own reference goes into calibrations for known pictures, never into those about unseen ones."""
    about = About("digits", settings={"reference": "mitchell"}, method="dist-x")
    plain = _classifier("digits")
    net = configured(plain.network, plain.facts, about)
    monkeypatch.setattr(Desk, "classifier", lambda self, *names: net)
    found = {}
    for name, row in (("distribution-d", "mnist-rotation"), ("individual", "mnist-rotation-online-10")):
        experiment = shrunk(EXPERIMENTS[name])
        one = tuple(replace(r, quick=TINY) for r in experiment.rows if r.name == row)  # type: ignore[call-arg]
        list(run(replace(experiment, rows=one), desk(tmp_path), ""))
        found[name] = Calibration.read(tmp_path / name / row / "calibration.json").defence.reference
    assert found == {"distribution-d": "mitchell", "individual": None}


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
    assert own[:-1] == other[:-1]  # all but the seconds


def test_results_of_other_settings_are_refused(tiny: None, tmp_path: Path) -> None:
    list(run(_with(1), desk(tmp_path), ""))
    with pytest.raises(ValueError, match="a different size"):
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


def test_g_is_asked_about_the_original_and_about_what_the_attacker_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is the upper half brighter than the lower one? Spots above the middle are pushed across it. A spot on the middle
    is a draw, for which f says "up" and about which g cannot be sure.
    """

    def halves(z: torch.Tensor) -> torch.Tensor:
        return torch.stack([z[:, :, :7].mean((1, 2, 3)), z[:, :, 7:].mean((1, 2, 3))], 1)

    pictures = torch.zeros(5, 1, 14, 14, dtype=torch.uint8)
    pictures[:4, :, 4:6, 4:10] = 255
    pictures[4, :, 6:8, 4:10] = 255
    known = data.Dataset("halves", pictures, torch.zeros(5, dtype=torch.int64), ("up", "down"))
    monkeypatch.setattr(Desk, "dataset", lambda self, name, split="test": known)
    monkeypatch.setattr(Desk, "classifier", lambda self, *names: Plain(halves, about=About("halves")))
    row = next(r for r in HEURISTIC.rows if r.name == "mnist-translation")
    small = replace(row, quick=Size(5, n=600, gammas=60, attacks=2))  # type: ignore[type-var]
    list(run(replace(HEURISTIC, rows=(small,)), desk(tmp_path), ""))
    table = Table.read(tmp_path / "heuristic")
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["attacks on each"] == 2
    assert cells["accuracy of b"] == 1 and cells["b, attacked"] == 0
    assert cells["g, original"] in (0.8, 1) and cells["g or abstains, original"] == 0.8
    assert cells["g, attacked"] == 0 == cells["g or abstains, attacked"]


def test_sampling_between_windows_is_sound_and_needs_more_of_them() -> None:
    """No picture inside a window is farther from its middle than the target; ours needs fewer windows."""
    x, threat, target = data.load("mnist500").image(0), replace(Threat.of("rotation", 3), quantized=False), 0.1
    few, _ = lipschitz_sampling(x, threat, target, 64)
    many, made = lipschitz_sampling(x, threat, target, 16)
    assert len(cover_windows(x, threat, Preprocess(), target=target)) < few < many and made == 17 * many
    first, last = threat.box.lower[0], threat.box.upper[0]
    width = (last - first) / few
    middle = first + width * (torch.arange(few, dtype=torch.float64)[:, None] + 0.5)
    own = threat.attacked(x.double(), middle)
    far = [
        (threat.attacked(x.double(), middle + s * width) - own).flatten(1).norm(dim=1).max()
        for s in torch.linspace(-0.5, 0.5, 41, dtype=torch.float64)
    ]
    assert 0.7 * target < float(max(far)) <= target


def test_quotients_are_those_of_two_rows(tiny: None, tmp_path: Path) -> None:
    experiment = shrunk(EXPERIMENTS["efficiency"])
    two = tuple(row for row in experiment.rows if row.name in ("exact", "exact-8"))
    list(run(replace(experiment, rows=two), desk(tmp_path), ""))
    table = Table.read(tmp_path / "efficiency")
    exact, coarse = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    passes = [int(str(row["work"]).split()[0]) for row in (exact, coarse)]
    assert exact["× work"] is None and coarse["× work"] == pytest.approx(passes[1] / passes[0], rel=1e-3)


def test_what_is_kept_is_whole_and_checked(tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed, small, and every edit is noticed: of a certificate, of a measurement, of a cell."""
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    for name, rows in (("distribution-x", ("mnist-rotation",)), ("individual", ("mnist-rotation-online-10",))):
        chosen = (replace(r, full=TINY) for r in EXPERIMENTS[name].rows if r.name in rows)  # type: ignore[call-arg]
        monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], rows=tuple(chosen)))
        list(run(EXPERIMENTS[name], replace(desk(runs), quick=False), f"warpcert paper {name}"))
    assert benchmark.main(["keep", str(runs), str(kept)]) == 0
    assert list(benchmark.check(kept)) == []
    assert not list(kept.rglob("*.jsonl")) and len(list(kept.rglob("*.jsonl.gz"))) == 5
    table = Table.read(kept / "distribution-x")
    assert table.device == "CPU" and len(table.date) == 10

    path = kept / "distribution-x" / "table.json"
    place = table.columns.index("±0°")
    cells = (*table.rows[0][:place], 0.5, *table.rows[0][place + 1 :])
    replace(table, rows=(cells,)).write(path.parent)
    (problem,) = benchmark.check(kept)
    assert "±0° is 0.5 in the table" in problem
    table.write(path.parent)

    records = next(kept.rglob("base/records.jsonl.gz"))
    records.write_bytes(gzip.compress(gzip.decompress(records.read_bytes()).replace(b'"value": ', b'"value": 1')))
    assert any("not a record" in problem for problem in benchmark.check(kept))
    assert benchmark.main(["check", str(kept)]) == 1

    replace(table, quick=True).write(runs / "distribution-x")
    assert benchmark.main(["keep", str(runs), str(tmp_path / "again")]) == 2


def test_rows_have_names_of_their_own_and_frozen_configurations() -> None:
    for experiment in EXPERIMENTS.values():
        names = [row.name for row in experiment.rows]
        assert len(set(names)) == len(names)
        for row in experiment.rows:
            if isinstance(row, Measured):
                json.dumps(row.config(replace(desk(Path()), quick=False)))
            with pytest.raises(AttributeError):
                row.name = "other"
            inverse = getattr(row, "inverse", "")
            assert not inverse or inverse in INVERSES


def test_every_size_can_certify() -> None:
    """As many unanimous votes as a row takes show more than ½ + ρ in every window."""
    for row in (r for name in ("distribution-d", "distribution-x") for r in EXPERIMENTS[name].rows):
        if isinstance(row, Beside):
            continue
        assert isinstance(row, Dist)
        windows = row.windows ** (2 if row.transform == "translation" else 1)
        for size in (s for s in (row.quick, row.full) if s != NONE):
            rho = size.rho if row.method == "dist-d" else stats.upper_bound(0, size.betas, 0.004)
            assert size.n // windows >= stats.samples_needed(0.5 + rho, 0.004 / windows), row.name


def test_the_command_lists_runs_and_explains(
    tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "heuristic", shrunk(HEURISTIC))
    assert main(["paper", "heuristic", "--quick", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("published", "difference", "remark", "QUICK", "Paper, BaseSPT"))
    assert "warpcert paper heuristic --quick" in shown
    assert main(["paper", "--out", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in EXPERIMENTS) and "quick, " in listed
    assert main(["paper", "nothing"]) == 2
    assert "heuristic" in capsys.readouterr().err


def test_models_and_data_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(data.ROOT_VARIABLE, raising=False)
    here = desk(tmp_path)
    assert here.classifier("no-such-model", "mnist-rotation").name == "mnist-rotation"
    with pytest.raises(Missing, match="warpcert train recipes/no-such-model"):
        here.classifier("no-such-model")
    with pytest.raises(Missing, match="name the folder"):
        here.dataset("cifar10")
    with pytest.raises(Missing, match="path of its file"):
        here.dataset("speech")
    with pytest.raises(Missing, match="the rimagenet data"):
        here.file("rimagenet")
