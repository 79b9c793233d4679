"""Engines: the same certificates from every one of them, and a lost worker or machine costs only what it was at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_jobs import Fragile, Refusing, seen
from test_certificate import certificate

import warpcert as wc
from warpcert.app.cli import main
from warpcert.learn import data
from warpcert.learn.foreign import EMBEDDED, open_model
from warpcert.runs.engine import ATTEMPTS, Engine, Task, here, processes
from warpcert.runs.job import Job
from warpcert.runs.runner import run
from warpcert.runs.store import Store, read_records, verify

SHAPE = (1, 28, 28)
DIGITS = data.load("mnist500")


def job() -> Job:
    """dist-x on digits, as cheap as it gets."""
    model = open_model(EMBEDDED, SHAPE, torch.device("cpu"))
    return Job(
        method="dist-x",
        model=EMBEDDED,
        fingerprint=model.fingerprint,
        shape=SHAPE,
        device="cpu",
        defence=wc.Defence.from_dict(model.extra["defence"]),
        threat=wc.Threat.of("rotation", 20),
        sampling=wc.Sampling(n=200),
        sup=wc.Sampled(),
        betas=40,
    )


def certify(folder: Path, engine: Engine, count: int = 5) -> dict[int, dict[str, Any]]:
    """Runs into a folder; what it holds by image, without the times and the seals over them."""
    with Store(folder, {"indices": [0, count]}) as store:
        list(run(store, DIGITS.image, DIGITS.labels.tolist(), range(count), engine, seed=3))
    assert verify(folder) == []
    found = {}
    for record in read_records(folder):
        body = record["certificate"]
        del body["seconds"], body["digest"], body["error"]["seconds"]
        found[record["index"]] = body
    return found


def tasks(count: int) -> Iterator[Task]:
    return (Task(i, torch.zeros(1).numpy(), i) for i in range(count))


def test_processes_give_the_same_certificates(tmp_path: Path) -> None:
    j = job()
    alone = certify(tmp_path / "here", here(j.open()))
    assert certify(tmp_path / "processes", processes(j.open, 2)) == alone
    assert sorted(alone) == list(range(5)) and any(c["label"] >= 0 for c in alone.values())


def test_a_dead_process_costs_only_its_image(tmp_path: Path) -> None:
    log = tmp_path / "log"
    answers = list(processes(Fragile(certificate(), log, weak=2, deaths=1), 2)(tasks(6)))
    assert sorted(i for i, _ in answers) == list(range(6))
    assert all(c.seed == i for i, c in answers)
    assert sorted(seen(log)) == [0, 1, 2, 2, 3, 4, 5]


def test_an_image_that_kills_every_process_ends_the_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ValueError, match=f"image 0 ended its worker {ATTEMPTS} times"):
        list(processes(Fragile(certificate(), log, weak=0, deaths=99), 1)(tasks(1)))
    assert seen(log) == [0] * ATTEMPTS


def test_errors_of_workers_come_home() -> None:
    with pytest.raises(ValueError, match=r"^there is no model$"):
        list(processes(Refusing(ValueError("there is no model")), 1)(tasks(1)))
    with pytest.raises(RuntimeError, match=r"(?s)image 0.*a bug"):
        list(processes(Refusing(KeyError("a bug")), 1)(tasks(1)))


def test_a_worker_with_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="same model under the same name"):
        replace(job(), fingerprint="0" * 64).open()


def test_interrupted_with_workers_it_keeps_what_is_finished(tmp_path: Path) -> None:
    """Ctrl-C, as a terminal sends it: to the driver and all its workers."""
    few = ["--n", "200", "--betas", "40", "--windows", "1", "--bound", "sampled", "--json", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "warpcert", "certify", *few, "--count", "200", "--workers", "2"]
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731  a shell's background jobs ignore it
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=env, start_new_session=True, preexec_fn=heard)
    path, deadline = tmp_path / "certificates.jsonl", time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= 2:
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 130
    before = [r["index"] for r in read_records(tmp_path)]
    assert 2 <= len(before) < 200
    with pytest.raises(ProcessLookupError):  # nobody of its group is left, soon
        for _ in range(100):
            os.killpg(process.pid, 0)
            time.sleep(0.1)
    assert main(["certify", *few, "--count", str(max(before) + 2)]) == 0  # shorter than asked for before: no refusal
    after = [r["index"] for r in read_records(tmp_path)]
    assert after[: len(before)] == before and len(set(after)) == len(after)
    assert set(range(max(before) + 2)) <= set(after)
    assert json.loads((tmp_path / "config.json").read_text())["indices"] == [0, 200]
