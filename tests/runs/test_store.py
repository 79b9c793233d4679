"""Results survive: torn lines, other arguments, concurrent runs, edited records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from certificate_samples import voted

from warpcert.runs.engine import here
from warpcert.runs.job import Task, seed_for
from warpcert.runs.runner import run
from warpcert.runs.settings import differences
from warpcert.runs.store import Store, read_records, verify

CONFIG = {"method": "dist-x", "settings": {"n": 10}}


def fill(folder: Path, count: int) -> None:
    with Store(folder, CONFIG) as store:
        for index in range(count):
            store.append(index, 7, replace(voted(), seed=index))


def test_append_and_read_back(tmp_path: Path) -> None:
    fill(tmp_path / "a" / "b", 3)
    assert [r["index"] for r in read_records(tmp_path / "a" / "b")] == [0, 1, 2]
    assert verify(tmp_path / "a" / "b") == []


@pytest.mark.parametrize("cut", [1, 5, 300])
def test_a_torn_last_line_costs_only_its_own_image(tmp_path: Path, cut: int) -> None:
    fill(tmp_path, 3)
    path = tmp_path / "certificates.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    with Store(tmp_path, CONFIG) as store:
        assert store.done == {0, 1}
        store.append(2, 7, voted())
    assert verify(tmp_path) == []
    assert len(list(read_records(tmp_path))) == 3


def test_other_arguments_are_refused_and_lose_nothing(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    with pytest.raises(ValueError, match="n is 10 there and 20 now"):
        Store(tmp_path, CONFIG | {"settings": {"n": 20}})
    assert len(list(read_records(tmp_path))) == 2


def test_a_run_that_wrote_nothing_leaves_the_folder_free(tmp_path: Path) -> None:
    fill(tmp_path, 0)
    with Store(tmp_path, CONFIG | {"settings": {"n": 20}}) as store:
        store.append(0, 7, voted())
    assert verify(tmp_path) == []


def test_check_sees_missing_images_and_another_configuration(tmp_path: Path) -> None:
    with Store(tmp_path, CONFIG | {"indices": [0, 3]}) as store:
        store.append(0, 7, voted())
        store.append(2, 7, voted())
    (problem,) = verify(tmp_path)
    assert "first picture 1" in problem
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"method": "cover"}))
    assert any("method" in p for p in verify(tmp_path))


def test_a_run_can_grow_but_not_start_elsewhere(tmp_path: Path) -> None:
    for stop in (2, 4, 3):
        with Store(tmp_path, CONFIG | {"indices": [0, stop]}) as store:
            for index in set(range(stop)) - store.done:
                store.append(index, 7, voted())
    assert verify(tmp_path) == [] and len(list(read_records(tmp_path))) == 4
    with Store(tmp_path, CONFIG | {"indices": [0, 9]}):
        pass
    assert "5 pictures of the run are missing" in verify(tmp_path)[0]
    with pytest.raises(ValueError, match="the first picture is 0 there and 1 now"):
        Store(tmp_path, CONFIG | {"indices": [1, 9]})


def test_differences_are_said_in_surface_units() -> None:
    c = voted()
    model = {"name": "net", "fingerprint": "a" * 64}
    there = {"threat": c.threat.to_dict(), "settings": {"n": 10}, "classifier": model}
    t = c.threat.transform
    now = {
        "threat": replace(c.threat, box=t.box(7)).to_dict(),
        "settings": {"n": 20},
        "classifier": {"name": "net", "fingerprint": "b" * 64},
    }
    gamma, n, model = differences(there, now)
    assert gamma.startswith("the range is ±") and gamma.endswith("and ±7° now")
    assert n == "n is 10 there and 20 now" and model.startswith("the classifier is net aaaaaaaaaaaa…")
    assert differences(there, dict(there) | {"model": "found elsewhere"}) == []
    close = there | {"threat": replace(c.threat, box=c.threat.box.scaled(1 + 1e-9)).to_dict()}
    assert differences(there, close) == ["the threat differs in digits that are not shown"]


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path, CONFIG), pytest.raises(ValueError, match="in use"):
        Store(tmp_path, CONFIG)
    Store(tmp_path, CONFIG).__exit__(None, None, None)


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "certificates.jsonl").write_text("something\n")
    with pytest.raises(ValueError, match="without"):
        Store(tmp_path, CONFIG)
    with pytest.raises(ValueError, match="not a run folder"):
        verify(tmp_path / "nowhere")


def test_no_image_twice(tmp_path: Path) -> None:
    with Store(tmp_path, CONFIG) as store:
        store.append(0, 7, voted())
        with pytest.raises(ValueError, match="already"):
            store.append(0, 7, voted())


@pytest.mark.parametrize("field", ["index", "true_label"])
def test_check_sees_edits_outside_the_certificate_too(tmp_path: Path, field: str) -> None:
    fill(tmp_path, 2)
    path = tmp_path / "certificates.jsonl"
    lines = path.read_text().splitlines()
    record: dict[str, Any] = json.loads(lines[1])
    record[field] += 5
    path.write_text("\n".join([lines[0], json.dumps(record)]) + "\n")
    (problem,) = verify(tmp_path)
    assert "line 2" in problem and "digest" in problem


def test_check_sees_doubles(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    path = tmp_path / "certificates.jsonl"
    path.write_text(path.read_text() * 2)
    assert any("twice" in p for p in verify(tmp_path))


def test_seeds_depend_on_image_and_run_only(tmp_path: Path) -> None:
    assert len({seed_for(s, i) for s in range(10) for i in range(100)}) == 1000
    seen: dict[int, int] = {}

    def certify(task: Task) -> Any:
        seen[task.index] = task.seed
        return voted(), {}

    with Store(tmp_path, CONFIG) as store:
        store.append(1, 7, voted())
        tasks = (Task(i, torch.zeros(1).numpy(), 7, seed_for(9, i)) for i in range(4))
        list(run(store, tasks, here(certify)))
    assert seen == {i: seed_for(9, i) for i in (0, 2, 3)}
