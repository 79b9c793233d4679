"""Certify many images: each with its own seed, each result on disk before the next begins."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor

from warpcert.certificate import Certificate
from warpcert.lab.store import Store

__all__ = ["run", "seed_for"]


def seed_for(seed: int, index: int) -> int:
    """The seed of one image, a hash of the run's seed and its index: order and restarts do not matter."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{index}".encode()).digest()[:8], "big") >> 1


def run(
    store: Store,
    images: Callable[[int], Tensor],
    labels: Sequence[int],
    indices: Sequence[int],
    certify: Callable[[Tensor, int], Certificate],
    seed: int,
) -> Iterator[dict[str, Any]]:
    """Certifies the images that the store lacks and yields each record after it is written."""
    for index in indices:
        if index not in store.done:
            certificate = certify(images(index), seed_for(seed, index))
            yield store.append(index, labels[index], certificate)
