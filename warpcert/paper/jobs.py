"""Rows measured side by side, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch

from warpcert.paper.desk import Desk, Missing
from warpcert.paper.experiment import Experiment
from warpcert.paper.journal import limited
from warpcert.paper.row import Beside, Row, Versus
from warpcert.runs.job import device_of
from warpcert.runs.lines import InUseError

__all__ = ["side_by_side"]


def side_by_side(experiments: Sequence[Experiment], desk: Desk, jobs: int) -> Iterator[tuple[str, int, int]]:
    """Measures the rows of all experiments but those that compare times, `jobs` at once; yields (case, rows done, rows
    in all). `experiment.run` finds every record there and makes the tables.
    """
    rows = [(e.name, row) for e in experiments if not e.alone for row in e.rows if not isinstance(row, Beside)]
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context = multiprocessing.get_context("forkserver")
    pool = ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(threads, str(desk.device)))
    try:
        asked = {pool.submit(_measure, name, row, desk): row.case for name, row in rows}
        for done, future in enumerate(as_completed(asked), 1):
            future.result()
            yield asked[future], done, len(asked)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(threads: int, device: str) -> None:
    """As the process that hands out the rows began."""
    torch.set_num_threads(threads)
    device_of(device)


def _measure(name: str, row: Row, desk: Desk) -> None:
    """What another process measures already, or what is missing, is left to the table's own run."""
    row = row.of if isinstance(row, Versus) else row
    try:
        for _ in limited(row.work(desk, desk.out / name / row.name), desk.limit):
            pass
    except (Missing, InUseError):
        pass
