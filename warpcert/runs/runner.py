"""Certify many pictures: each with its own seed, each result on disk as soon as it is known; of one that is
interrupted, what is proved by then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from warpcert.certificates import Certificate
from warpcert.methods.base import Interrupted
from warpcert.runs.engine import Engine
from warpcert.runs.job import Task
from warpcert.runs.sharing import Sharing
from warpcert.runs.store import Store

__all__ = ["run"]


def run(
    store: Store, tasks: Iterable[Task], engine: Engine, sharing: Sharing | None = None
) -> Iterator[dict[str, Any]]:
    """Certifies the pictures that the store lacks and yields each record after it is written."""
    engine = sharing.over(engine, store.keep) if sharing else engine
    labels: dict[int, int] = {}

    def lacking() -> Iterator[Task]:
        for task in tasks:
            if task.index not in store.done:
                labels[task.index] = task.label
                yield replace(task, known=store.unfinished(task.index))

    try:
        for index, (certificate, more) in engine(lacking()):
            assert isinstance(certificate, Certificate)  # parts are put together by who dealt them out
            yield store.append(index, labels.pop(index), certificate, **more)
    except Interrupted as stop:
        if len(labels) == 1:  # in this process, one picture after the other
            store.keep(next(iter(labels)), stop.certificate)
        raise
