"""Jobs that workers open in the tests of the engines; apart from them, so that a worker imports little."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

from warpcert.certificates import Certificate
from warpcert.runs.job import Certifier, Outcome, Task


@dataclass(frozen=True)
class Fragile:
    """Its certifier notes each picture and who started its process, waits until there are so many `machines`, and dies
    at picture `weak`, the first `deaths` times.
    """

    certificate: Certificate
    log: Path
    weak: int
    deaths: int
    seconds: float = 0.0
    machines: int = 0

    def __call__(self) -> Certifier:
        return self.certify

    def certify(self, task: Task) -> Outcome:
        seed = task.seed
        with self.log.open("a") as file:
            file.write(f"{seed} {os.getppid()}\n")
        time.sleep(self.seconds)
        deadline = time.monotonic() + 60
        while len(machines(self.log)) < self.machines and time.monotonic() < deadline:
            time.sleep(0.05)
        if seed == self.weak and seen(self.log).count(seed) <= self.deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self.certificate, seed=seed), {}


@dataclass(frozen=True)
class Refusing:
    """Cannot be opened."""

    error: Exception

    def __call__(self) -> Certifier:
        raise self.error


def seen(log: Path) -> list[int]:
    """The pictures that were begun, in order."""
    return [int(line.split()[0]) for line in log.read_text().splitlines()]


def machines(log: Path) -> set[str]:
    """The parents of the workers: ray has one per machine."""
    return {line.split()[1] for line in log.read_text().splitlines()}
