"""Certify many pictures: each with its own seed, each result on disk as soon as it is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from warpcert.runs.engine import Engine
from warpcert.runs.job import Task
from warpcert.runs.store import Store

__all__ = ["run"]


def run(store: Store, tasks: Iterable[Task], engine: Engine) -> Iterator[dict[str, Any]]:
    """Certifies the pictures that the store lacks and yields each record after it is written."""
    labels: dict[int, int] = {}

    def lacking() -> Iterator[Task]:
        for task in tasks:
            if task.index not in store.done:
                labels[task.index] = task.label
                yield task

    for index, (certificate, more) in engine(lacking()):
        yield store.append(index, labels.pop(index), certificate, **more)
