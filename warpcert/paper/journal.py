"""Measurements that survive a crash: one folder per table row, one sealed JSON line per item, appended and never
rewritten."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from warpcert.certificates.sealed import seal, unseal

__all__ = ["RECORDS", "Journal", "read_journal"]

CONFIG, RECORDS = "config.json", "records.jsonl"


@final
class Journal:
    """A folder of measurements {"key", "value", "seconds"}, opened for appending by one process at a time.

    A record is on disk (fsync) when `append` returns. A torn last line is cut off on opening, so its item is measured
    again. A folder that was measured with another configuration is refused.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        config = json.loads(json.dumps(config))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / RECORDS
        self._file = path.open("ab")
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"{folder} is in use by another run; wait for it, or choose another --out") from None
            _cut_torn_line(path)
            _claim(folder, config, started=path.stat().st_size > 0)
            self.values = {record["key"]: record["value"] for record in read_journal(folder)}
        except BaseException:
            self._file.close()
            raise

    def append(self, key: str | int, value: Any, seconds: float) -> None:
        body = json.loads(json.dumps({"key": key, "value": value, "seconds": seconds}))
        self._file.write(json.dumps(seal(body)).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.values[key] = body["value"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def _claim(folder: Path, config: dict[str, Any], started: bool) -> None:
    path = folder / CONFIG
    if started:
        present = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        differing = sorted(k for k in present.keys() | config.keys() if present.get(k) != config.get(k))
        if differing:
            raise ValueError(
                f"{folder} was measured with another {', '.join(differing)}; choose another --out, or remove it"
            )
        return
    part = path.with_suffix(".tmp")
    part.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(part, path)


def _cut_torn_line(path: Path) -> None:
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end < len(content):
        os.truncate(path, end)


def read_journal(folder: Path) -> Iterator[dict[str, Any]]:
    """The complete records of a folder in the order they were written, each with its digest checked."""
    for number, line in enumerate((folder / RECORDS).read_bytes().split(b"\n")[:-1], 1):
        try:
            yield unseal(json.loads(line))
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{folder / RECORDS}, line {number} is not a record: {error}") from None
