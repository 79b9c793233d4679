"""Chunks of work, done one by one and remembered in a file of JSON lines, so that hours of attempts can be interrupted.

A chunk is a function of its row's name, its number and the code: seed and pictures follow from these. The file is only
appended to. A line that was cut off is done again; lines of other code are left alone, and do not count.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import count
from pathlib import Path
from typing import final

from benchmarks.soundness.breaking import KINDS, Job, Row, Task

__all__ = ["Chunk", "Limits", "code_of", "go", "read", "table"]

ROOT = Path(__file__).parents[2]


@final
@dataclass(frozen=True)
class Chunk:
    """What came of one: `closest` is the largest true error over its bound, `error` the exception that ended it."""

    name: str
    number: int
    seed: int
    device: str
    cases: int
    trials: int
    violations: int
    closest: float
    example: str
    error: str
    seconds: float
    code: str

    @property
    def bound(self) -> str:
        """What it is about, for the table: the name as far as its first comma."""
        return self.name.split(",")[0]


@final
@dataclass(frozen=True)
class Limits:
    """When to stop: after so many trials, but not in the middle of a round of all rows; or after so many seconds."""

    trials: float = 1e7
    seconds: float = math.inf


def code_of(root: Path = ROOT) -> str:
    """What stands for the code that is attacked and the attacks: a digest of all of it."""
    digest = hashlib.sha256()
    for path in sorted((*root.glob("warpcert/**/*.py"), *root.glob("benchmarks/soundness/*.py"))):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def task_of(name: str, number: int, each: Task) -> Task:
    """Chunk `number` of a row: later pictures, from a kind that is drawn, and other random numbers."""
    digest = hashlib.sha256(f"{each.seed}/{name}/{number}".encode()).digest()
    return replace(each, seed=int.from_bytes(digest[:6], "big"), first=KINDS * number + digest[6] % KINDS)


def read(path: Path, code: str) -> tuple[list[Chunk], int]:
    """The chunks of this code, and how many of other code there are."""
    names, found, other = {f.name for f in fields(Chunk)}, list[Chunk](), 0
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            given = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut off
        if isinstance(given, dict) and set(given) == names:
            found += [Chunk(**given)] if given["code"] == code else []
            other += given["code"] != code
    return found, other


def done(name: str, number: int, job: Job, task: Task, code: str) -> Chunk:
    """One chunk, whatever happens in it."""
    row, error = Row(name), ""
    try:
        job(row, task)
    except Exception as found:
        place = traceback.extract_tb(found.__traceback__)[-1]
        error = f"{type(found).__name__}: {found} ({Path(place.filename).name}, line {place.lineno})"
    seconds = round(time.perf_counter() - row.start, 2)
    counted = (row.cases, row.tried, row.violations, row.closest)
    return Chunk(name, number, task.seed, task.device, *counted, row.example, error, seconds, code)


def go(named: Sequence[tuple[str, Job]], path: Path, each: Task, limits: Limits, code: str) -> Iterator[Chunk]:
    """Does what is missing, in rounds of one chunk of every row, and yields each chunk once it is in the file."""
    if len({name for name, _ in named}) < len(named) or not named:
        raise ValueError("rows need names of their own, and there must be one at least")
    start = time.perf_counter()
    before = read(path, code)[0]
    known, trials = {(c.name, c.number) for c in before}, sum(c.trials for c in before)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        if file.tell() and not path.read_bytes().endswith(b"\n"):
            file.write(b"\n")  # ends a line that was cut off
        for number in count():
            if number and trials >= limits.trials:
                return
            for name, job in named:
                if (name, number) in known:
                    continue
                if time.perf_counter() - start > limits.seconds:
                    return
                chunk = done(name, number, job, task_of(name, number, each), code)
                file.write((json.dumps(asdict(chunk)) + "\n").encode())
                file.flush()
                os.fsync(file.fileno())
                trials += chunk.trials
                yield chunk


def table(chunks: Iterable[Chunk]) -> str:
    """Trials, violations and the closest ratio of each bound and certificate, and their sum; then what went wrong."""
    groups: dict[str, list[Chunk]] = {}
    every = list(chunks)
    for chunk in every:
        groups.setdefault(chunk.bound, []).append(chunk)
    lines = ["| bound or certificate | trials | violations | closest |", "| --- | ---: | ---: | ---: |"]
    for bound, members in sorted(groups.items()):
        closest = max(c.closest for c in members)
        trials, violations = sum(c.trials for c in members), sum(c.violations for c in members)
        lines.append(f"| {bound} | {trials:,} | {violations} | {f'{closest:.5f}' if closest else '–'} |")
    trials, violations = sum(c.trials for c in every), sum(c.violations for c in every)
    lines += [f"| **all** | **{trials:,}** | **{violations}** | |"]
    lines += [f"VIOLATED {c.name}, chunk {c.number}: {c.example}" for c in every if c.violations]
    lines += [f"FAILED {c.name}, chunk {c.number}: {c.error}" for c in every if c.error]
    return "\n".join(lines)
