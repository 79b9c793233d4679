"""Measurements that survive a crash: one folder per table row, one sealed JSON line per item, appended and never
rewritten."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast, final

from warpcert.certificates.sealed import unseal
from warpcert.paper.desk import Missing
from warpcert.runs.lines import Lines, add_device, read_lines, write_json

__all__ = [
    "PACKED",
    "RECORDS",
    "WHOLE",
    "EnoughError",
    "Journal",
    "Step",
    "limited",
    "measured",
    "pack",
    "read_journal",
]

T = TypeVar("T")
Step = tuple[str, int, int]  # what is being done, items done, items in all


class EnoughError(Exception):
    """Thrown into a measurement that waits at a step: no further item of this kind is to be begun."""


WHOLE = ("choose E", "test q_E")  # what certificates rest on


def limited(work: Generator[Step, None, T], seconds: float) -> Generator[Step, None, T]:
    """The same measurement, but no item is begun so many seconds after the first of its kind."""
    last, began = ("", 0, 0), 0.0
    try:
        step = next(work)
        while True:
            if step[0] != last[0] or step[1] <= last[1]:
                began = time.monotonic()
            last = step
            yield step
            over = time.monotonic() - began >= seconds
            step = work.throw(EnoughError()) if over else next(work)
    except StopIteration as done:
        return cast(T, done.value)


CONFIG, RECORDS = "config.json", "records.jsonl"
PACKED = RECORDS + ".gz"


@final
class Journal:
    """A folder of measurements {"key", "value", "seconds"}, opened for appending by one process at a time.

    A record is on disk when `append` returns; an item whose line was torn is measured again. A folder that was measured
    with another configuration is refused.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        config = json.loads(json.dumps(config))
        self._lines = Lines(folder / RECORDS)
        try:
            _claim(folder, config, self._lines.started)
            self._folder, self._device = folder, config.get("device")  # until it has done something
            self.values = {record["key"]: record["value"] for record in read_journal(folder)}
        except BaseException:
            self._lines.close()
            raise

    def append(self, key: str | int, value: Any, seconds: float) -> None:
        add_device(self._folder / CONFIG, self._device)
        self._device = None
        self.values[key] = self._lines.append({"key": key, "value": value, "seconds": seconds})["value"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lines.close()


def _claim(folder: Path, config: dict[str, Any], started: bool) -> None:
    """A ValueError if the folder was measured otherwise; a measurement may go on on another device."""
    path = folder / CONFIG
    present = json.loads(path.read_text(encoding="utf-8")) if started and path.is_file() else {}
    keys = (present.keys() | config.keys()) - {"device"}
    differing = sorted(k for k in keys if present.get(k) != config.get(k))
    if started and differing:
        raise ValueError(
            f"{folder} was measured with a different {', '.join(differing)}; choose another folder, or remove it"
        )
    write_json(path, config | {"device": present.get("device", config.get("device"))})


def read_journal(folder: Path) -> Iterator[dict[str, Any]]:
    """The complete records of a folder, plain or packed, as they were written, each with its digest checked."""
    path = folder / (PACKED if (folder / PACKED).is_file() else RECORDS)
    for number, record in read_lines(path):
        try:
            yield unseal(record)
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not a record: {error}") from None


def pack(journal: Path, folder: Path) -> None:
    """Keeps a journal's configuration and records, compressed, in another folder."""
    text = (journal / RECORDS).read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PACKED).write_bytes(gzip.compress(text, 9, mtime=0))
    (folder / CONFIG).write_bytes((journal / CONFIG).read_bytes())


def measured(
    folder: Path,
    config: dict[str, Any],
    keys: Sequence[str | int],
    measure: Callable[[Any], Any],
    what: str = "measure",
) -> Generator[Step, None, list[Any]]:
    """measure(key) for every key that the folder's journal lacks, each on disk before the next; returns the values of
    all keys, or where that was enough, of those that there are; of WHOLE, Missing if any lacks.
    """
    with Journal(folder, config) as journal:
        for place, key in enumerate(keys):
            if key not in journal.values:
                start = time.perf_counter()
                value = measure(key)
                journal.append(key, value, time.perf_counter() - start)
            try:
                yield what, place + 1, len(keys)
            except EnoughError:
                there = sum(key in journal.values for key in keys)
                if what in WHOLE and there < len(keys):
                    raise Missing(f"more time: {there} of {len(keys)} pictures of its calibration are done") from None
                break
        return [journal.values[key] for key in keys if key in journal.values]
