"""How the paper's experiments are run: on another device, within a time, side by side; and votes that stop early."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pretended import moved, pretended
from test_paper import _classifier, _smaller, desk, shrunk, tiny

from benchmarks import paper as benchmark
from warpcert.app.cli import main
from warpcert.classifier import Classifier, Smoothed
from warpcert.classifier.votes.voting import ABSTAIN
from warpcert.learn import zoo
from warpcert.paper.certifying import kept
from warpcert.paper.desk import Desk, Missing
from warpcert.paper.experiment import Experiment, run
from warpcert.paper.experiments import EXPERIMENTS
from warpcert.paper.experiments.violations import SURE, answers_at
from warpcert.paper.jobs import _begin, side_by_side
from warpcert.paper.journal import WHOLE, EnoughError, Step, limited, measured
from warpcert.paper.row import Size
from warpcert.report.table import Table
from warpcert.runs.store import verify
from warpcert.threat import Threat

__all__ = ["tiny"]


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_each_experiment_on_another_device(
    name: str, tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Desk, "classifier", lambda self, *names: moved(_classifier(names[0])))
    monkeypatch.setattr(Desk, "machine", "pretended")
    with pretended(monkeypatch, is_cuda=name not in ("verified", "efficiency")):
        there = Desk(tmp_path, quick=True, device=torch.device("cuda"))
        list(run(shrunk(EXPERIMENTS[name]), there, ""))
    assert Table.read(tmp_path / name).device == "pretended"


def test_a_limit_ends_each_kind_of_item_and_what_rests_on_a_calibration_waits_for_it(tmp_path: Path) -> None:
    def work(*kinds: str) -> Generator[Step, None, list[list[int]]]:
        found = []
        for place, what in enumerate(kinds):
            found.append((yield from measured(tmp_path / str(place), {}, range(4), lambda key: key, what)))
        return found

    def values(seconds: float, *kinds: str) -> list[list[int]]:
        running = limited(work(*kinds), seconds)
        while True:
            try:
                next(running)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]

    kinds, everything = ("certify", "certify", *WHOLE), list(range(4))
    assert values(0, "certify", "certify") == [[0], [0]]
    with pytest.raises(Missing, match="more time: 1 of 4"):
        values(0, *kinds)
    assert values(math.inf, *kinds) == [everything] * 4
    assert values(0, *kinds) == [everything] * 4, "what is there is told"


def test_enough_ends_nothing_else() -> None:
    def work() -> Generator[Step, None, int]:
        yield "measure", 1, 2
        raise AssertionError("an item was begun")

    with pytest.raises(EnoughError):
        list(limited(work(), 0))


def _rows(name: str, *chosen: str) -> Experiment:
    experiment = EXPERIMENTS[name]
    return replace(experiment, rows=tuple(_smaller(row) for row in experiment.rows if row.name in chosen))


def test_a_run_within_a_time_is_whole_and_goes_on(
    tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = _rows("distribution-x", "mnist-rotation")
    (row,) = experiment.rows
    more = replace(row, quick=replace(row.quick, images=3))  # type: ignore[attr-defined, type-var]
    for limit, images in ((0.0, 1), (math.inf, 3)):
        list(run(replace(experiment, rows=(more,)), replace(desk(tmp_path), limit=limit), ""))
        table = Table.read(tmp_path / "distribution-x")
        assert dict(zip(table.columns, table.rows[0], strict=True))["images"] == images
        assert verify(tmp_path / "distribution-x" / table.runs[0]) == []
        assert main(["check", str(tmp_path)]) == 0
        assert f"{images} certificates checked, 0 problems" in capsys.readouterr().out
    kept = tmp_path / "distribution-x" / table.runs[0] / "certificates.jsonl"
    kept.write_text("".join(line + "\n" for line in kept.read_text().splitlines()[:2]))
    assert main(["check", str(tmp_path)]) == 1
    assert "distribution-x/mnist-rotation/run: 1 pictures of the run are missing" in capsys.readouterr().err
    assert main(["check", str(tmp_path), "--against"]) == 2


def test_side_by_side_measures_what_one_after_the_other_does(tmp_path: Path) -> None:
    """Bundled digits, two processes: the tables' own run finds all there. Rows that compare times have to wait."""
    experiments = [_rows("ablation", "mnist-both", "mnist-none", "imagenet-both"), _rows("efficiency", "joint")]
    there = replace(desk(tmp_path), out=tmp_path / "many")
    cases = [case for case, *_ in side_by_side(experiments, there, 2)]
    assert sorted(cases) == sorted(row.case for row in experiments[0].rows)
    assert not (there.out / "efficiency").exists()
    before = {p: p.read_text() for p in there.out.rglob("records.jsonl")}
    assert len(before) == 2
    list(run(experiments[0], there, ""))
    assert before == {p: p.read_text() for p in there.out.rglob("records.jsonl")}
    list(run(experiments[0], replace(there, out=tmp_path / "one"), ""))
    assert Table.read(there.out / "ablation").rows == Table.read(tmp_path / "one" / "ablation").rows


def test_the_command_says_how_it_was_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "inverse", "--quick", "--limit", "0", "--jobs", "2", "--out", str(tmp_path)]) == 0
    table = Table.read(tmp_path / "inverse")
    assert table.command == f"warpcert paper inverse --quick --out {tmp_path} --limit 0 --jobs 2"
    assert table.rows[0][1] == 1 and "1" in capsys.readouterr().out


def _sided(z: torch.Tensor) -> torch.Tensor:
    """Is it the left half that is bright, or the right one? In the middle, neither."""
    left, right = z[..., :4].mean((1, 2, 3)), z[..., 4:].mean((1, 2, 3))
    return torch.stack([left, right, torch.full_like(left, -1)], 1)


def test_answers_that_stop_early_are_those_of_many_votes() -> None:
    """Spots on the left, on the right and between: a shift of ±1 px turns none of the first two, and every second of
    the third, about which nothing is said.
    """
    z = torch.zeros(3, 1, 8, 8)
    z[0, :, 4, 1] = z[1, :, 4, 6] = 1
    z[2, :, 4, 3:5] = 1
    g, draw = Smoothed(_sided, 0, {"translation": 0.3}), torch.Generator().manual_seed(0)
    here = torch.zeros(3, 2, dtype=torch.float64)
    assert answers_at(g, z, here, 400, draw) == [0, 1, ABSTAIN]
    moved_by = torch.tensor([[5.0, 0.0]], dtype=torch.float64)  # to the right, by the center of β alone
    assert answers_at(g, z[:1], moved_by, 400, draw) == [1]


def test_early_answers_about_a_coin_are_rare() -> None:
    """A network that answers at random: with all looks together, SURE of the pictures are believed."""
    draw = torch.Generator().manual_seed(1)
    coin = lambda z: torch.rand(len(z), 2, generator=draw)  # noqa: E731
    g, z = Smoothed(coin, 0, {"translation": 0.1}), torch.zeros(400, 1, 2, 2)
    answers = answers_at(g, z, torch.zeros(400, 2, dtype=torch.float64), 256, torch.Generator().manual_seed(0))
    assert sum(answer != ABSTAIN for answer in answers) <= 1 and 400 * SURE < 0.05


def test_a_run_may_go_on_on_another_device(tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = _rows("distribution-x", "mnist-rotation")
    (row,) = experiment.rows
    more = replace(experiment, rows=(replace(row, quick=replace(row.quick, images=2)),))  # type: ignore[attr-defined, type-var]
    for machine, limit in (("A", 0.0), ("B", math.inf)):
        monkeypatch.setattr(Desk, "machine", machine)
        list(run(more, replace(desk(tmp_path), limit=limit), ""))
    table = Table.read(tmp_path / "distribution-x")
    assert table.device == "A, B" and dict(zip(table.columns, table.rows[0], strict=True))["images"] == 2


def open_zoo(name: str) -> Classifier:
    return zoo.load(name)


def test_certificates_that_are_kept_are_told_in_full_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this network, on all of the row's range, with where they come from; and an edited cell is noticed."""
    there, net = replace(desk(tmp_path), quick=False), open_zoo("mnist-rotation")
    found = kept(there, "mnist-rotation-dist-x", net, Threat.rotation(30))
    assert found is not None and len(found.rows) == 500 and "--model mnist-rotation --count 500`, 2026" in found.said
    assert kept(desk(tmp_path), "mnist-rotation-dist-x", net, Threat.rotation(30)) is None, "quick"
    assert kept(there, "mnist-rotation-dist-x", net, Threat.rotation(51)) is None, "a wider range"
    assert kept(there, "mnist-rotation-dist-x", net, Threat.scaling(5)) is None, "another transformation"
    assert kept(there, "mnist-rotation-dist-x", open_zoo("mnist-plain"), Threat.rotation(30)) is None, "another network"
    assert (
        kept(there, "no-such-results", net, Threat.rotation(30)) is None
        and kept(there, "", net, Threat.rotation(1)) is None
    )

    rows = (r for r in EXPERIMENTS["distribution-x"].rows if r.name == "mnist-rotation")
    experiment = replace(EXPERIMENTS["distribution-x"], rows=tuple(replace(r, full=Size(2)) for r in rows))  # type: ignore[call-arg]
    monkeypatch.setitem(EXPERIMENTS, "distribution-x", experiment)
    list(run(experiment, there, ""))
    folder = tmp_path / "distribution-x"
    table = Table.read(folder)
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["images"] == 500 and cells["±50°"] == 0.942 and table.runs == ()
    assert list(benchmark.check(tmp_path)) == []
    place = table.columns.index("±50°")
    replace(table, rows=((*table.rows[0][:place], 0.95, *table.rows[0][place + 1 :]),)).write(folder)
    (problem,) = benchmark.check(tmp_path)
    assert "±50° is 0.95 in the table" in problem


def test_processes_compute_as_the_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    _begin(torch.get_num_threads(), "cpu")
    assert not torch.backends.cudnn.allow_tf32, "exact refuses to certify with it"


def test_the_kept_tables_are_checked_and_the_page_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    folder = benchmark.RESULTS / "paper"
    assert list(benchmark.check(folder)) == []
    assert main(["check", str(folder)]) == 0 and "0 problems" in capsys.readouterr().out
    assert benchmark.PAGE.read_text(encoding="utf-8") == benchmark.page(folder), "run `python -m benchmarks.paper page`"
