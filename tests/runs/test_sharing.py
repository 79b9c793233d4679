"""One picture's range in parts: together they prove what one walk proves, and what came together survives a kill."""

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

import pytest
import torch
from torch import Tensor, nn

from warpcert import certificates, methods
from warpcert.certificates import Exhausted
from warpcert.classifier import Levels
from warpcert.classifier.before.mosaic import Mosaic, Mosaicked
from warpcert.exhaustive.parts import Part, joined
from warpcert.runs import sharing
from warpcert.runs.engine import Answer, Engine, here, on_ray, processes
from warpcert.runs.job import LITTLE, Certifier, Held, Job, Task
from warpcert.runs.runner import run
from warpcert.runs.sharing import Sharing, shared
from warpcert.runs.store import Store, read_records, verify
from warpcert.threat import Threat

THREAT = Threat.rotation((-40, 30), quantized=False)


def picture(seed: int) -> Tensor:
    noise = torch.randint(0, 256, (3, 8, 8), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    return noise.float() / 255


def classifier(x: Tensor, seed: int, bias: float = 0.02) -> Levels:
    """Six classes of random directions around the picture; with a large bias the first one always wins."""
    torch.manual_seed(seed)
    linear = nn.Linear(x.numel(), 6)
    with torch.no_grad():
        linear.bias.copy_(torch.tensor([bias, *[0.0] * 5]) - linear.weight @ Mosaicked(16)(x[None]).flatten())
    return Levels(nn.Sequential(nn.Flatten(), linear).eval(), 16, sees=Mosaic())


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "LARGE", 1)


def shuffling(certify: Certifier, at_once: int, seed: int) -> Engine:
    """So many parts are out at once, and come back in any order."""

    def engine(tasks: Iterator[Task]) -> Iterator[Answer]:
        g, out = torch.Generator().manual_seed(seed), list[Task]()
        while True:
            while len(out) < at_once and (task := next(tasks, None)) is not None:
                out.append(task)
            if not out:
                return
            task = out.pop(int(torch.randint(len(out), (), generator=g)))
            yield task.index, certify(task)

    return engine


def told(made: Exhausted) -> tuple[object, ...]:
    return made.label, made.found and (made.found.scope, made.found.tolerance), made.picture, made.classifier


@pytest.mark.parametrize("seed", range(6))
def test_parts_together_prove_what_one_walk_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "SECONDS", 0.3)
    x = picture(seed)
    f = classifier(x, seed, 50.0 if seed == 5 else 0.02)
    method = methods.chosen(f, batch=32)
    whole = methods.certify_with(method, f, x, THREAT)
    job = Job(Held(f), THREAT, method)
    kept: list[Exhausted] = []
    for engine in (here(job.open()), shuffling(job.open(), 4, seed)):
        over = Sharing(job, 2).over(engine, lambda _, made: kept.append(made))  # type: ignore[arg-type]
        ((index, (made, _)),) = over(iter([job.task(7, x, 0, 0)]))
        assert index == 7 and isinstance(made, Exhausted) and isinstance(whole, Exhausted)
        assert told(made) == told(whole) and made.found and whole.found
        assert abs(made.found.held - whole.found.held) < 1e-9 and made.found.held <= whole.found.held + 1e-12
        assert (made.counterexample is None) == (whole.counterexample is None) == (seed == 5)
        assert (made.reason == "") == (seed == 5)
        assert certificates.read(made.to_dict()) == made
    assert len(kept) > 4
    for part in kept:  # each is a certificate of its own
        assert certificates.read(part.to_dict()) == part and part.counterexample is None and part.found
        assert part.found.held <= whole.found.held + 1e-12


@pytest.mark.parametrize("name", ["processes", "ray"])
def test_processes_share_one_picture(name: str, tmp_path: Path) -> None:
    if name == "ray":
        pytest.importorskip("ray")
    x = picture(1)
    f = classifier(x, 1)
    job = Job(Held(f), THREAT, methods.chosen(f, batch=32))
    whole = methods.certify(f, x, THREAT, batch=32)
    engine = processes(job.open, 2) if name == "processes" else on_ray(job.open, 2, None)
    with Store(tmp_path, job.describe(f, data="noise", indices=range(2), seed=0)) as store:
        tasks = (job.task(i, x, 0, 0) for i in range(2))
        records = list(run(store, tasks, engine, shared(job, 2)))
    assert len(records) == 2 and verify(tmp_path) == []
    for record in records:
        made = certificates.read(record["certificate"])
        assert isinstance(made, Exhausted) and isinstance(whole, Exhausted) and made.found and whole.found
        assert abs(made.found.held - whole.found.held) < 1e-9


@pytest.mark.parametrize("at_once", [0, 1, 3])
def test_of_a_wrong_answer_no_more_than_a_little_is_proved(at_once: int, tmp_path: Path) -> None:
    x = picture(5)
    f = classifier(x, 5, 50.0)
    job = Job(Held(f), THREAT, methods.chosen(f, batch=32), right_only=True)
    right = f.predict(x)
    assert isinstance(right, int)
    tasks = [job.task(0, x, 1 - right, 0), job.task(1, x, right, 0)]
    with Store(tmp_path, job.describe(f, data="noise", indices=range(2), seed=0)) as store:
        engine = shuffling(job.open(), at_once, 0) if at_once else here(job.open())
        records = list(run(store, tasks, engine, Sharing(job, at_once) if at_once else None))
    wrong, whole = (certificates.read(r["certificate"]) for r in sorted(records, key=lambda r: r["index"]))
    assert isinstance(wrong, Exhausted) and isinstance(whole, Exhausted) and wrong.found and whole.found
    assert wrong.found.held == LITTLE and "answered wrongly" in wrong.reason and wrong.label == right
    assert whole.found.held == 1 and wrong.passes < whole.passes and verify(tmp_path) == []


@pytest.mark.parametrize("sharing", [True, False])
def test_ctrl_c_at_a_wrong_answer_is_an_interruption(sharing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = picture(5)
    f = classifier(x, 5, 50.0)
    job = Job(Held(f), THREAT, methods.chosen(f, batch=32), right_only=True)
    engine, wrong = here(job.open()), 1 - int(f.predict(x))  # type: ignore[arg-type]
    engine = Sharing(job, 1).over(engine, lambda *_: None) if sharing else engine

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("warpcert.exhaustive.verify._Walk.go", stop)
    with pytest.raises(methods.Interrupted) as stopped:
        list(engine(iter([job.task(0, x, wrong, 0)])))
    assert stopped.value.part is None and isinstance(stopped.value.certificate, Exhausted)


def test_a_gap_another_picture_or_other_terms_are_refused() -> None:
    x, y = picture(1), picture(2)
    f = classifier(x, 1, 50.0)
    method = methods.chosen(f, batch=32)
    near, mid, far = (methods.part(method, f, x, THREAT, share) for share in ((0, 0.1), (0.1, 0.2), (0.2, 0.3)))
    assert near.reached == 0.1 and far.reached == 0.3 and not near.ended
    both = joined(near.made, mid)
    whole = joined(both, far)
    assert whole.found and near.made.found and whole.found.held == 0.3
    parts = [p.made.found.images for p in (near, mid, far) if p.made.found]
    assert whole.found.images == sum(parts) and certificates.read(whole.to_dict()) == whole
    with pytest.raises(ValueError, match=r"nothing is proved from 0.1 to 0.2"):
        joined(near.made, far)
    with pytest.raises(ValueError, match="different pictures"):
        joined(near.made, methods.part(method, f, y, THREAT, (0.1, 0.2)))
    with pytest.raises(ValueError, match="different pictures"):
        joined(near.made, methods.part(method, f, x, Threat.rotation(30, quantized=False), (0.1, 0.2)))
    with pytest.raises(ValueError, match="different pictures"):
        joined(near.made, methods.part(replace(method, eight_bit=True), f, x, THREAT, (0.1, 0.2)))  # type: ignore[call-arg]
    other = classifier(x, 2, 50.0)
    with pytest.raises(ValueError, match="different pictures"):
        joined(near.made, methods.part(method, other, x, THREAT, (0.1, 0.2)))


@pytest.mark.parametrize("what", ["picture", "classifier", "threat"])
@pytest.mark.parametrize("limit", [1e-6, None])
def test_what_was_kept_of_something_else_is_never_an_answer(what: str, limit: float | None) -> None:
    """Neither joined nor, where the time is over before anything was joined to it, handed on as it is."""
    x, y = picture(1), picture(2)
    f = classifier(x, 1, 50.0)
    kept = methods.part(methods.chosen(f, batch=32), f, x, THREAT, (0, 0.1)).made
    other = classifier(x, 2, 50.0) if what == "classifier" else f
    threat = Threat.rotation(30, quantized=False) if what == "threat" else THREAT
    job = Job(Held(other), threat, methods.chosen(other, batch=32, time_limit=limit))
    task = replace(job.task(0, y if what == "picture" else x, 0, 0), known=kept)
    with pytest.raises(ValueError, match="nothing to go on from"):
        list(Sharing(job, 1).over(here(job.open()), lambda *_: None)(iter([task])))
    own = replace(job.task(0, x, 0, 0), known=replace(kept, found=replace(kept.found, tolerance=1e-9)))  # type: ignore[type-var]
    if what == "picture" and limit is None:  # of its own, but on other terms: it starts anew
        ((_, (made, _)),) = Sharing(job, 1).over(here(job.open()), lambda *_: None)(iter([own]))
        assert isinstance(made, Exhausted) and made.found and made.found.tolerance == threat.off_by


def test_a_part_behind_a_counterexample_is_never_part_of_a_certificate() -> None:
    """The answer changes and comes back: the parts beyond prove themselves, but nothing is put behind the gap."""
    x = picture(3)
    f = classifier(x, 3)
    method = methods.chosen(f, batch=32)
    parts = [methods.part(method, f, x, THREAT, (i / 16, (i + 1) / 16)) for i in range(16)]
    first = next(i for i, p in enumerate(parts) if p.ended)
    made = parts[0].made
    for part in parts[1 : first + 1]:
        made = joined(made, part)
    assert made.found and made.found.held < (first + 1) / 16 and made.counterexample is not None
    with pytest.raises(ValueError, match="nothing is proved from"):
        joined(made, parts[first + 1])


class Slow(nn.Module):
    """The first class, after a moment; notes how many pictures it was asked about."""

    def __init__(self, log: Path, seconds: float) -> None:
        super().__init__()
        self.log, self.seconds = log, seconds

    def forward(self, z: Tensor) -> Tensor:
        time.sleep(self.seconds)
        with self.log.open("a") as file:
            file.write(f"{len(z)}\n")
        return torch.tensor([1.0, 0.0]).expand(len(z), 2)


def certify_slowly(folder: Path, seconds: float) -> None:
    sharing.LARGE, sharing.SECONDS = 1, 1.0
    x = picture(1)
    f = Levels(Slow(folder / "log", seconds).eval(), 16, sees=Mosaic())
    job = Job(Held(f), THREAT, methods.chosen(f, batch=8))
    with Store(folder / "run", job.describe(f, data="noise", indices=range(1), seed=0)) as store:
        list(run(store, iter([job.task(0, x, 0, 0)]), here(job.open()), shared(job, 1)))


def asked(folder: Path) -> int:
    return sum(map(int, (folder / "log").read_text().split()))


def test_a_killed_picture_goes_on(tmp_path: Path) -> None:
    program = f"from test_sharing import *; certify_slowly(Path({str(tmp_path)!r}), 0.02)"
    places = os.pathsep.join([*map(str, Path(__file__).parents[:2]), *sys.path])
    child = subprocess.Popen([sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": places})
    kept, deadline, images = tmp_path / "run" / "unfinished-0.json", time.monotonic() + 120, 0
    while images < 300 and time.monotonic() < deadline and child.poll() is None:
        time.sleep(0.02)
        images = json.loads(kept.read_text())["found"]["images"] if kept.exists() else 0
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = asked(tmp_path)
    part = certificates.read(json.loads(kept.read_text()))
    assert isinstance(part, Exhausted) and part.found and 0 < part.found.held < 1
    certify_slowly(tmp_path, 0.0)
    (record,) = read_records(tmp_path / "run")
    made = certificates.read(record["certificate"])
    assert isinstance(made, Exhausted) and made.found and made.found.held == 1 and not kept.exists()
    again = asked(tmp_path) - before
    assert again < made.found.images - part.found.images + 150, "what was kept is asked about anew"
    whole = methods.certify(classifier(picture(1), 1, 50.0), picture(1), THREAT)
    assert isinstance(whole, Exhausted) and whole.found and made.found.crossings >= whole.found.crossings


def test_a_time_limit_keeps_what_came_together(tmp_path: Path) -> None:
    x = picture(1)
    f = Levels(Slow(tmp_path / "log", 0.1).eval(), 16, sees=Mosaic())
    method = methods.chosen(f, batch=8, time_limit=8.0)
    job = Job(Held(f), THREAT, method)
    began = time.perf_counter()
    for engine in (here(job.open()), shuffling(job.open(), 2, 1)):
        began = time.perf_counter()
        ((_, (made, _)),) = Sharing(job, 2).over(engine, lambda *_: None)(iter([job.task(0, x, 0, 0)]))
        assert isinstance(made, Exhausted) and made.found and 0 < made.found.held < 1
        assert "time limit of 8 s" in made.reason and time.perf_counter() - began < 20
        assert isinstance(certificates.read(made.to_dict()), Exhausted)


def test_what_is_interrupted_is_kept_to_the_last_picture(tmp_path: Path) -> None:
    class Stopped(Slow):
        def forward(self, z: Tensor) -> Tensor:
            if asked(tmp_path) > 500 and not (tmp_path / "stopped").exists():
                (tmp_path / "stopped").touch()
                raise KeyboardInterrupt
            return super().forward(z)

    (tmp_path / "log").touch()
    x = picture(1)
    f = Levels(Stopped(tmp_path / "log", 0.0).eval(), 16, sees=Mosaic())
    job = Job(Held(f), THREAT, methods.chosen(f, batch=8))
    config = job.describe(f, data="noise", indices=range(1), seed=0)
    with pytest.raises(KeyboardInterrupt), Store(tmp_path / "run", config) as store:
        list(run(store, iter([job.task(0, x, 0, 0)]), here(job.open()), shared(job, 1)))
    with Store(tmp_path / "run", config) as store:
        kept = store.unfinished(0)
        assert isinstance(kept, Exhausted) and kept.found and kept.found.images > 1
        (record,) = run(store, iter([job.task(0, x, 0, 0)]), here(job.open()), shared(job, 1))
    assert record["certificate"]["found"]["held"] == 1


def test_parts_are_for_walks() -> None:
    f = classifier(picture(1), 1)
    method = methods.chosen(f)
    assert shared(Job(Held(f), Threat.shifts(1), method), 2) is None
    assert shared(Job(Held(f), THREAT, method), 2) is not None
    with pytest.raises(ValueError, match="different"):
        joined(replace(methods.part(method, f, picture(1), THREAT, (0, 0.01)).made, found=None), _part())


def _part() -> Part:
    x = picture(1)
    f = classifier(x, 1)
    return methods.part(methods.chosen(f), f, x, THREAT, (0.0, 0.01))
