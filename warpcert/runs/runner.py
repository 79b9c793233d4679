"""Certify many images: each with its own seed, each result on disk as soon as it is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor

from warpcert.runs.engine import Engine, Task
from warpcert.runs.store import Store

__all__ = ["run", "seed_for"]


def seed_for(seed: int, index: int) -> int:
    """The seed of one image, a hash of the run's seed and its index: order and restarts do not matter."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{index}".encode()).digest()[:8], "big") >> 1


def run(
    store: Store,
    images: Callable[[int], Tensor],
    labels: Sequence[int],
    indices: Sequence[int],
    engine: Engine,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """Certifies the images that the store lacks and yields each record after it is written."""
    tasks = (Task(i, images(i).numpy(), seed_for(seed, i)) for i in indices if i not in store.done)
    for index, certificate in engine(tasks):
        yield store.append(index, labels[index], certificate)
