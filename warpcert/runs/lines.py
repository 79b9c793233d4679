"""Files that survive a crash: one sealed JSON object per line, appended by one process at a time, never rewritten."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from warpcert.certificates.sealed import parsed, seal

__all__ = ["InUseError", "Lines", "add_device", "devices", "read_lines", "write_json"]


class InUseError(ValueError):
    """Another process is appending to the file."""


@final
class Lines:
    """A file of sealed lines, locked for appending.

    A line is on disk (fsync) when `append` returns. A torn last line, as a kill leaves it, is cut off on opening.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            message = f"{path.parent} is in use by another run; wait for it or choose another folder"
            raise InUseError(message) from None
        content = path.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.truncate(path, end)
        self.started = end > 0  # whether there are lines

    def append(self, body: dict[str, Any]) -> dict[str, Any]:
        """Writes the body, sealed, and returns what was written."""
        record = seal(json.loads(json.dumps(body)))
        self._file.write(json.dumps(record).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        return record

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and content of every complete line, plain or packed (.gz), digests unchecked; a torn last line is passed
    over.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be unpacked ({error}); copy it again") from None
    for number, line in enumerate(raw.split(b"\n")[:-1], 1):
        try:
            record = parsed(line)
            if not isinstance(record, dict):
                raise ValueError("it is no object")
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not a record: {error}") from None
        yield number, record


def devices(*told: str | None) -> str:
    """The devices of several configurations, each once: "NVIDIA H200, CPU"."""
    return ", ".join(dict.fromkeys(name for text in told if text for name in text.split(", ")))


def add_device(path: Path, name: str | None) -> None:
    """Another device has worked on what this configuration describes."""
    config = json.loads(path.read_text(encoding="utf-8"))
    if name and (all_of_them := devices(config.get("device"), name)) != config.get("device"):
        write_json(path, config | {"device": all_of_them})


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes the file at once or not at all."""
    part = path.with_suffix(".tmp")
    part.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(part, path)
