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
from certificate_samples import voted
from engine_jobs import Fragile, Refusing, seen

import warpcert as wc
from warpcert import methods
from warpcert.app.cli import main
from warpcert.learn import data
from warpcert.learn.collect import collected
from warpcert.learn.foreign import open_model
from warpcert.report.results import find
from warpcert.runs.engine import ATTEMPTS, Engine, here, processes
from warpcert.runs.job import AttackPlan, Held, Job, Named, Task
from warpcert.runs.run import Run, certify_all, tasks_of
from warpcert.runs.runner import run
from warpcert.runs.store import Store, read_records, verify

SHAPE = (1, 28, 28)
DIGITS = data.load("mnist500")


def job() -> Job:
    """dist-x on digits, as cheap as it gets."""
    model = open_model("mnist-rotation", SHAPE, torch.device("cpu"))
    source = Named("mnist-rotation", SHAPE, model.facts, model.classifier().fingerprint)
    method = methods.chosen(model.classifier(), "dist-x", n=600, betas=40, windows=3, bound="sampled")
    return Job(source, wc.Threat.rotation(degrees=20), method)


def certify(folder: Path, j: Job, engine: Engine, count: int = 5) -> dict[int, dict[str, Any]]:
    """Runs into a folder; what it holds by picture, without the times and the seals over them."""
    with Store(folder, {"indices": [0, count]}) as store:
        list(run(store, tasks_of(j, DIGITS, range(count), 3), engine))
    assert verify(folder) == []
    found = {}
    for record in read_records(folder):
        body = record["certificate"]
        del body["seconds"], body["digest"], body["error"]["seconds"]
        found[record["index"]] = body
    return found


def tasks(count: int) -> Iterator[Task]:
    return (Task(i, torch.zeros(1).numpy(), 0, i) for i in range(count))


def test_processes_give_the_same_certificates(tmp_path: Path) -> None:
    j = job()
    alone = certify(tmp_path / "here", j, here(j.open()))
    assert certify(tmp_path / "processes", j, processes(j.open, 2)) == alone
    assert sorted(alone) == list(range(5)) and any(c["label"] >= 0 for c in alone.values())


def test_an_answer_may_lead_to_another_task(tmp_path: Path) -> None:
    """Though nobody is busy when it comes."""
    fragile = Fragile(voted(), tmp_path / "log", weak=-1, deaths=0)
    to_do = [*tasks(4)]

    class Led(Iterator[Task]):
        left = 1

        def __next__(self) -> Task:
            if self.left == 0:
                raise StopIteration
            self.left -= 1
            return to_do.pop(0)

    led, found = Led(), []
    for index, _ in processes(fragile, 2)(led):
        found.append(index)
        led.left += bool(to_do)
    assert found == [0, 1, 2, 3]


def test_a_dead_process_costs_only_its_picture(tmp_path: Path) -> None:
    log = tmp_path / "log"
    answers = list(processes(Fragile(voted(), log, weak=2, deaths=1), 2)(tasks(6)))
    assert sorted(i for i, _ in answers) == list(range(6))
    assert all(c.seed == i for i, (c, _) in answers)
    assert sorted(seen(log)) == [0, 1, 2, 2, 3, 4, 5]


def test_a_picture_that_kills_every_process_ends_the_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ValueError, match=f"picture 0 ended its worker {ATTEMPTS} times"):
        list(processes(Fragile(voted(), log, weak=0, deaths=99), 1)(tasks(1)))
    assert seen(log) == [0] * ATTEMPTS


def test_errors_of_workers_come_home() -> None:
    with pytest.raises(ValueError, match=r"^there is no model$"):
        list(processes(Refusing(ValueError("there is no model")), 1)(tasks(1)))
    with pytest.raises(RuntimeError, match=r"(?s)picture 0.*a bug"):
        list(processes(Refusing(KeyError("a bug")), 1)(tasks(1)))


def test_a_worker_with_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="same model under the same name"):
        replace(job(), source=replace(job().source, fingerprint="0" * 64)).open()


def test_interrupted_with_workers_it_keeps_what_is_finished(tmp_path: Path) -> None:
    """Ctrl-C, as a terminal sends it: to the driver and all its workers."""
    few = ["--model", "mnist-rotation", "--n", "200", "--betas", "40", "--windows", "1", "--bound", "sampled", "--json"]
    few += ["--out", str(tmp_path)]
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


def linear() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).eval()


def test_attacked_pictures_are_certified_alike_by_every_engine(tmp_path: Path) -> None:
    smooth = wc.Smoothed(linear(), noise=0.3, over={"rotation": 30}, preprocess=wc.Preprocess("circle", 1, 1.5, 7))
    few = {"n": 200, "betas": 20, "windows": 1, "inverse": "interval", "refinements": 1}
    method = methods.chosen(smooth, "indiv", **few)
    j = Job(Held(smooth), wc.Threat.rotation(degrees=1), method, attack=AttackPlan(k=5))
    alone = certify(tmp_path / "here", j, here(j.open()), 2)
    assert certify(tmp_path / "processes", j, processes(j.open, 2), 2) == alone
    records = list(read_records(tmp_path / "processes"))
    assert all(abs(r["attack"]["gamma"][0]) <= 1 and r["answer"] in range(-1, 10) for r in records)
    with pytest.raises(ValueError, match="leave the attack out"):
        Job(Held(smooth), wc.Threat.rotation(degrees=1), methods.chosen(smooth, "base"), attack=AttackPlan())


def test_a_classifier_of_the_package_is_kept_with_its_certificates(tmp_path: Path) -> None:
    net, few = wc.load("mnist-rotation-exact"), DIGITS.part(0, 1)
    other = wc.Levels(net.network, step=64)
    made = certify_all(other, few, tmp_path, wc.Threat.rotation(degrees=1))
    found = made.classifier()
    assert found.fingerprint == other.fingerprint != net.fingerprint
    assert (found.threat, found.method) == (wc.Threat.rotation(degrees=1), "exact")
    assert find([tmp_path]).runs[0].reopens
    assert main(["predict", "--from", str(tmp_path), "--count", "1"]) == 0


def test_certify_all_from_python_goes_on_where_it_was(tmp_path: Path) -> None:
    few = DIGITS.part(0, 4)
    pairs = [(few.image(i), int(few.labels[i])) for i in range(4)]
    net, threat = wc.Levels(linear(), step=64), wc.Threat.rotation(degrees=2)
    made = certify_all(net, pairs, tmp_path / "a", threat)
    assert len(made) == 4 and made.accuracy(2) <= made.accuracy(0) and made.config["method"] == "exact"
    low, high = made.interval(2)
    assert low <= made.accuracy(2) <= high
    before = (tmp_path / "a" / "certificates.jsonl").read_bytes()
    loader = torch.utils.data.DataLoader(pairs, batch_size=3)  # type: ignore[arg-type]
    again = certify_all(net, loader, tmp_path / "a", threat, workers=2)
    assert (tmp_path / "a" / "certificates.jsonl").read_bytes() == before
    assert [c.label for c in again.certificates] == [c.label for c in Run(tmp_path / "a").certificates]
    with pytest.raises(ValueError, match="the data is"):
        certify_all(net, pairs[:3], tmp_path / "a", threat)
    with pytest.raises(ValueError, match="built in Python"):
        made.classifier()
    with pytest.raises(ValueError, match="divide 8-bit values"):
        certify_all(net, [(torch.full((1, 28, 28), 3.0), 0)], tmp_path / "b", threat)
    assert not find([tmp_path]).runs[0].reopens, "no command can deploy it"
    with pytest.raises(ValueError, match="float32 cannot represent"):
        certify_all(net, [(pairs[0][0].double() * (1 - 1e-12), 0)], tmp_path / "b", threat)
    page = made.report(tmp_path / "report.html")
    assert page.read_text(encoding="utf-8").startswith("<!")


def test_eight_bit_pictures_may_come_in_float64() -> None:
    k = torch.arange(256).reshape(1, 16, 16)
    for x in (k.double() / 255, k.double() * (1 / 255), k.float() / 255):
        kept = collected([(x, 0)])
        assert kept.images.dtype == torch.uint8 and torch.equal(kept.images[0], k.to(torch.uint8))
    x = k.double() / 256 + 2**-40
    with pytest.raises(ValueError, match="float32 cannot represent"):
        collected([(x, 0)])
    assert torch.equal(collected([(x.float() * 0.9, 0)]).image(0), x.float() * 0.9)
