"""Where pictures are certified: in this process, in others of this machine, or on the machines of a ray cluster.

An engine turns tasks into (index, outcome) pairs, in the order in which they come to be. A task carries its picture and
its seed, so a certificate depends on neither engine nor scheduling. Only the caller writes results: a worker that is
lost costs the picture it was at, which another one gets, and no picture is answered twice.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import sys
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from warpcert.classifier import Classifier
from warpcert.methods.base import Progress
from warpcert.runs.job import Certifier, Job, Outcome, Task

__all__ = ["Engine", "here", "named", "on_ray", "processes"]

ATTEMPTS = 3  # workers that one picture may cost before the run gives up
STARTING = -1  # stands for the picture of a worker that has none yet

Answer = tuple[int, Outcome]
Engine = Callable[[Iterator[Task]], Iterator[Answer]]


def here(certify: Certifier) -> Engine:
    """This process, one picture after the other."""
    return lambda tasks: (_answer(certify, task) for task in tasks)


def processes(job: Callable[[], Certifier], workers: int) -> Engine:
    """`workers` processes of this machine, each with a certifier of its own: `job` (picklable) builds it there."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers}")
    return lambda tasks: _processes(job, workers, tasks)


def on_ray(job: Callable[[], Certifier], workers: int | None, address: str | None, gpu: bool = False) -> Engine:
    """The machines of the ray cluster at `address`, or one that is started here if there is none: one core (or GPU)
    per picture, at most `workers` pictures at a time.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers}")
    return lambda tasks: _on_ray(job, workers, address, gpu, tasks)


def named(where: int | str, job: Job, classifier: Classifier, progress: Progress | None = None) -> Engine:
    """The engine of that name: so many processes of this machine (1: this one), "ray", or a ray cluster's address."""
    if isinstance(where, str):
        return on_ray(job.open, None, None if where == "ray" else where, gpu=classifier.device.type == "cuda")
    return here(job.certifier(classifier, progress)) if where == 1 else processes(job.open, where)


def _answer(certify: Certifier, task: Task) -> Answer:
    return task.index, certify(task)


def _outcome(certify: Callable[[], Certifier], task: Task) -> Answer | Exception:
    """The answer, or why there is none in an exception that survives pickling."""
    try:
        return _answer(certify(), task)
    except (ValueError, OSError) as error:
        return ValueError(str(error))
    except Exception:
        return RuntimeError(f"a worker failed at picture {task.index}:\n{traceback.format_exc()}")


def _checked(outcome: Answer | Exception) -> Answer:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _given_up(index: int) -> ValueError:
    if index == STARTING:
        return ValueError(
            f"workers ended before they were ready {ATTEMPTS} times: try fewer workers; and in a script, the call must "
            "stand below `if __name__ == '__main__':`, as workers import the script"
        )
    return ValueError(
        f"picture {index} ended its worker {ATTEMPTS} times (out of memory?): try fewer workers or a smaller batch"
    )


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    pipe: Connection
    ready: bool = False
    task: Task | None = None

    def ask(self, task: Task | None) -> None:
        self.task = task
        if task is not None:
            with suppress(OSError):  # if it died just now, the next look at its pipe will tell
                self.pipe.send(task)


def _hire(job: Callable[[], Certifier], threads: int) -> _Worker:
    """Starts a worker, which says None when it is ready for its first task."""
    context = multiprocessing.get_context("forkserver")  # a fork of the driver would break its threads and CUDA
    context.set_forkserver_preload([__name__])  # torch is loaded once for all workers
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, job, threads), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(pipe: Connection, job: Callable[[], Certifier], threads: int) -> None:
    """The life of a worker. It ends with the driver; Ctrl-C is the driver's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    opened = lru_cache(job)
    with suppress(EOFError, OSError):
        pipe.send(None)
        while True:
            pipe.send(_outcome(opened, pipe.recv()))


def _processes(job: Callable[[], Certifier], workers: int, tasks: Iterator[Task]) -> Iterator[Answer]:
    threads = max(1, torch.get_num_threads() // workers)
    waiting = deque(islice(tasks, workers))
    crew = [_hire(job, threads) for _ in waiting]  # no more workers than pictures
    lost: Counter[int] = Counter()
    outcomes: list[Answer | Exception] = []
    try:
        while True:
            for worker in crew:
                if worker.ready and worker.task is None:
                    worker.ask(waiting.popleft() if waiting else next(tasks, None))
            yield from map(_checked, outcomes)
            outcomes.clear()
            if not waiting and not any(w.task for w in crew):
                waiting += islice(tasks, 1)  # an answer may have led to another task
                if not waiting:
                    return
                continue
            heard = wait([w.pipe for w in crew])
            for worker in [w for w in crew if w.pipe in heard]:
                try:
                    outcome = worker.pipe.recv()
                except (EOFError, OSError):
                    at = worker.task.index if worker.task else STARTING
                    lost[at] += 1
                    if lost[at] == ATTEMPTS:
                        raise _given_up(at) from None
                    waiting += [worker.task] if worker.task else []
                    crew.remove(worker)
                    crew.append(_hire(job, threads))
                else:
                    outcomes += [] if outcome is None else [outcome]
                    worker.ready, worker.task = True, None
    finally:
        for worker in crew:
            worker.process.terminate()
            worker.process.join()
            worker.pipe.close()


@lru_cache(maxsize=1)
def _opened(job: bytes, path: tuple[str, ...]) -> Certifier:
    """One certifier per ray worker, opened at its first picture; what the driver could import, it can."""
    sys.path.extend(p for p in path if p not in sys.path)
    made: Certifier = pickle.loads(job)()
    return made


def _there(job: bytes, path: tuple[str, ...], task: Task) -> Answer | Exception:
    torch.set_num_threads(1)  # ray counts one core per picture
    return _outcome(lambda: _opened(job, path), task)


def _on_ray(
    job: Callable[[], Certifier], workers: int | None, address: str | None, gpu: bool, tasks: Iterator[Task]
) -> Iterator[Answer]:
    try:
        import ray
        from ray.exceptions import RayError
    except ImportError:
        raise ValueError("the ray engine needs ray: pip install 'warpcert[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address)
    resource = "GPU" if gpu else "CPU"
    remote = ray.remote(num_cpus=0 if gpu else 1, num_gpus=int(gpu), max_retries=ATTEMPTS - 1)(_there)
    path, flying = tuple(sys.path), dict[Any, int]()
    try:
        if not ray.cluster_resources().get(resource):
            raise ValueError(f"no machine of the ray cluster offers a {resource}")
        packed = ray.put(pickle.dumps(job))  # travels once, however large
        while True:
            there = int(ray.cluster_resources().get(resource, 0))  # changes with the cluster
            room = workers or max(1, 2 * there)
            for task in islice(tasks, max(0, room - len(flying))):
                flying[remote.remote(packed, path, task)] = task.index
            if not flying:
                return
            done, _ = ray.wait(list(flying), num_returns=1)
            for ref in done:
                index = flying.pop(ref)
                try:
                    outcome = ray.get(ref)
                except RayError as error:
                    raise _given_up(index) from error
                yield _checked(outcome)
    finally:
        for ref in flying:
            ray.cancel(ref, force=True)
        if ours:
            ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    """Joins the cluster; ray itself would wait minutes for one that is not there."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        if address and ":" in address:
            host, _, port = address.removeprefix("ray://").rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"no ray cluster answers at {address or 'this machine'}: {error}") from None
