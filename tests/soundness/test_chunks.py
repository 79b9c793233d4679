"""`make soundness`: chunks are neither lost nor repeated, and a bound that is too small is found out."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks.soundness import __main__ as command
from benchmarks.soundness import bounds, chunks
from benchmarks.soundness.breaking import Job, Row, Task, cases
from warpcert.errors.curve.bound import Curve

EACH, CODE = Task(0, cases=2, pairs=50), "code"


class Counting:
    """Rows that remember what they were asked, and can be interrupted."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.asked: list[tuple[str, Task]] = []
        self.stop_at = stop_at

    def rows(self) -> list[tuple[str, Job]]:
        return [(f"row {i}, x", partial(self.job, f"row {i}, x")) for i in range(3)]

    def job(self, name: str, row: Row, task: Task) -> None:
        if len(self.asked) == self.stop_at:
            self.stop_at = None
            raise KeyboardInterrupt
        self.asked.append((name, task))
        g = torch.Generator().manual_seed(task.seed)
        row.count(torch.rand(10, generator=g), torch.ones(10), "never")


def test_an_interrupted_run_is_the_whole_run(tmp_path: Path) -> None:
    """Interrupted in a chunk, cut off in the middle of a line, stopped for time: nothing is lost or done twice."""
    whole, limits = Counting(), chunks.Limits(trials=90)
    list(chunks.go(whole.rows(), tmp_path / "whole", EACH, limits, CODE))
    assert len(whole.asked) == 9 == len({task.seed for _, task in whole.asked})
    assert all(13 * (i // 3) <= task.first < 13 * (i // 3 + 1) for i, (_, task) in enumerate(whole.asked))

    parts, path = Counting(stop_at=4), tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        list(chunks.go(parts.rows(), path, EACH, limits, CODE))
    assert len(chunks.read(path, CODE)[0]) == 4
    path.write_bytes(path.read_bytes()[:-20])
    assert len(chunks.read(path, CODE)[0]) == 3
    list(chunks.go(parts.rows(), path, EACH, chunks.Limits(seconds=-1), CODE))
    assert len(parts.asked) == 4
    for chunk in chunks.go(parts.rows(), path, EACH, limits, CODE):
        assert chunk in chunks.read(path, CODE)[0]  # before it is told
    assert parts.asked[3:5] == [whole.asked[3]] * 2  # what was cut off, again
    assert parts.asked[:3] + parts.asked[4:] == whole.asked

    same = [replace(c, seconds=0) for c in chunks.read(path, CODE)[0]]
    assert same == [replace(c, seconds=0) for c in chunks.read(tmp_path / "whole", CODE)[0]]
    assert chunks.table(same).count("| 30 | 0 |") == 3 and "| **90** | **0** |" in chunks.table(same)
    assert list(chunks.go(parts.rows(), path, EACH, limits, CODE)) == []


def test_other_code_does_not_count(tmp_path: Path) -> None:
    path, limits = tmp_path / "out", chunks.Limits(trials=1)
    list(chunks.go(Counting().rows(), path, EACH, limits, "before"))
    assert len(list(chunks.go(Counting().rows(), path, EACH, limits, "after"))) == 3
    assert chunks.read(path, "after")[1] == 3 and len(chunks.read(path, "before")[0]) == 3


def test_the_code_is_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "warpcert" / "errors").mkdir(parents=True)
    found = {chunks.code_of(tmp_path)}
    for text in ("a = 1\n", "a = 2\n"):
        (tmp_path / "warpcert" / "errors" / "x.py").write_text(text)
        found.add(chunks.code_of(tmp_path))
    assert len(found) == 3


def test_cases_go_on_where_the_last_chunk_ended() -> None:
    def names(first: int, count: int) -> list[tuple[int, str]]:
        numbered = cases(torch.Generator().manual_seed(0), Task(0, first))
        return [(turn, name) for _, (turn, (name, _)) in zip(range(count), numbered, strict=False)]

    assert names(0, 30)[17:] == names(17, 13) and names(17, 1)[0][0] == 17


class Halved:
    """A bound of errors that is broken: half of what was proved."""

    def __init__(self, *settings: float) -> None:
        self.bound = Curve(*settings)

    def __call__(self, *given: object) -> object:
        found = self.bound(*given)  # type: ignore[arg-type]
        return replace(found, values=found.values / 2, lower=found.lower / 2)


@pytest.mark.parametrize("broken", [False, True])
def test_a_broken_bound_is_reported(
    broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real row of the real command, with the bound as it is and halved."""
    monkeypatch.setattr(bounds, "LIMITS", (0.5,))
    if broken:
        monkeypatch.setattr(bounds, "Curve", Halved)
    monkeypatch.setattr(command, "rows", lambda: list(bounds.rows()))
    only = ["--only", "curve: rotation, bilinear → bilinear, 8-bit", "--device", "cpu"]
    size = ["--trials", "1", "--pairs", "200", "--seconds", "1", "--out", str(tmp_path / "out")]
    assert command.main(only + size) == int(broken)
    shown = capsys.readouterr().out
    (line,) = (tmp_path / "out").read_text().splitlines()
    found = json.loads(line)
    assert found["trials"] > 500 and (found["violations"] > 0) == broken == ("VIOLATED" in shown)
    assert (found["closest"] > 1) == broken and "| curve: rotation |" in shown and not found["error"]


def test_an_attempt_that_fails_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(row: Row, task: Task) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(command, "rows", lambda: [("one", fails)])
    assert command.main(["--out", str(tmp_path / "out"), "--trials", "0"]) == 1
    assert "FAILED one, chunk 0: RuntimeError: out of memory" in capsys.readouterr().out


def test_names_are_unique() -> None:
    names = [name for name, _ in command.rows()]
    assert len(set(names)) == len(names) > 150
    wanted = ("curve: ", "cover: ", "exact: ", "inverse: ", "certificates: indiv", "certificates: network")
    assert all(any(name.startswith(kind) for name in names) for kind in wanted)
