"""Results that survive a crash: one folder per run, one sealed JSON line per picture, appended and never rewritten.

A finished folder may be kept packed (certificates.jsonl.gz): it can be read and checked, not appended to.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from warpcert import certificates
from warpcert.certificates import Certificate
from warpcert.certificates.sealed import parsed, unseal
from warpcert.errors.calibration import Calibration
from warpcert.runs.job import CALIBRATION
from warpcert.runs.lines import Lines, add_device, read_lines, write_json
from warpcert.runs.settings import differences

__all__ = ["Store", "missing", "pack", "read_config", "read_records", "run_folders", "verify"]

CONFIG = "config.json"
CERTIFICATES = "certificates.jsonl"
UNFINISHED = "unfinished-{}.json"
PACKED = CERTIFICATES + ".gz"


@final
class Store:
    """A run folder, opened for appending by one process at a time.

    A record is on disk when `append` returns; a picture whose line was torn is done again. A folder that holds other
    settings is refused; how many pictures are asked for is none of them: `indices` [start, stop] grows with the run.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        if (folder / PACKED).exists():
            raise ValueError(f"{folder} holds a finished run ({PACKED}); choose another folder")
        self._folder, self._lines = folder, Lines(folder / CERTIFICATES)
        try:
            begun = self._lines.started or any(folder.glob(UNFINISHED.format("*")))
            _claim(folder, json.loads(json.dumps(config)), begun)
            self.records = list(read_records(folder))
        except BaseException:
            self._lines.close()
            raise
        self.done = {record["index"] for record in self.records}
        self._device: str | None = config.get("device")  # until it has done something

    def append(self, index: int, true_label: int, certificate: Certificate, **more: Any) -> dict[str, Any]:
        """Writes one record and returns it; `more` is kept beside the certificate."""
        if index in self.done:
            raise ValueError(f"picture {index} is in the folder already")
        body = {"index": index, "true_label": true_label, "certificate": certificate.to_dict(), **more}
        record = self._lines.append(body)
        add_device(self._folder / CONFIG, self._device)
        self._device = None
        self.done.add(index)
        self.records.append(record)
        (self._folder / UNFINISHED.format(index)).unlink(missing_ok=True)
        return record

    def ends(self) -> None:
        """The run asks for no picture behind those that are done, unless it is begun again."""
        config = read_config(self._folder)
        config["indices"][1] = max(self.done) + 1
        write_json(self._folder / CONFIG, config)

    def unfinished(self, index: int) -> Certificate | None:
        """What `keep` has kept about the picture; a ValueError names the file if it is no certificate."""
        path = self._folder / UNFINISHED.format(index)
        try:
            return certificates.read(parsed(path.read_text())) if path.exists() else None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path}: {error}; remove it, and the picture starts anew") from None

    def keep(self, index: int, certificate: Certificate) -> None:
        """What is proved about a picture that was interrupted, until its record is there."""
        write_json(self._folder / UNFINISHED.format(index), certificate.to_dict())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lines.close()


def _claim(folder: Path, config: dict[str, Any], started: bool) -> None:
    if started:
        if not (folder / CONFIG).exists():
            raise ValueError(f"{folder} holds certificates without {CONFIG}; choose another folder")
        present = read_config(folder)
        if found := differences(present, config):
            raise ValueError(
                f"{folder} holds a run with other settings: {'; '.join(found)}. "
                "Go on with those, or choose another folder"
            )
        if "indices" in config:
            config["indices"][1] = max(config["indices"][1], present["indices"][1])
        if "device" in config:
            config["device"] = present.get("device", config["device"])
    write_json(folder / CONFIG, config)


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a run folder."""
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder} is not a run folder: it has no {CONFIG}")
    try:
        config = parsed(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold an object")
    return config


def run_folders(folder: Path) -> list[Path]:
    """The folders with certificates in and below this one."""
    return sorted({path.parent for name in (CERTIFICATES, PACKED) for path in folder.rglob(name)})


def read_records(folder: Path) -> Iterator[dict[str, Any]]:
    """The complete records of a run folder, in the order they were written; a torn last line is passed over."""
    path = folder / (PACKED if (folder / PACKED).is_file() else CERTIFICATES)
    if not path.is_file():
        raise ValueError(f"{folder} is not a run folder: it has no {CERTIFICATES}")
    for number, record in read_lines(path):
        if not {"index", "true_label", "certificate", "digest"} <= record.keys():
            raise ValueError(f"{path}, line {number} is not a record: fields are missing")
        yield record


def pack(run: Path, folder: Path) -> None:
    """Keeps a run's configuration and certificates, by index and compressed, in another folder."""
    records = sorted(read_records(run), key=lambda record: int(record["index"]))
    text = "".join(json.dumps(record) + "\n" for record in records)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PACKED).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    (folder / CONFIG).write_bytes((run / CONFIG).read_bytes())


def verify(folder: Path) -> list[str]:
    """What is wrong with a run folder; the arithmetic of every certificate is redone from its counts."""
    problems: list[str] = []
    seen: set[int] = set()
    config = read_config(folder)
    beside = folder / CALIBRATION
    calibration = Calibration.read(beside) if beside.is_file() else None
    for number, record in enumerate(read_records(folder), 1):
        try:
            unseal(record)
            made = certificates.read(record["certificate"])
            if record["index"] in seen:
                raise ValueError(f"picture {record['index']} appears twice")
            told = {"threat": made.threat.to_dict(), "method": made.method}
            if "classifier" in config and config["classifier"]["fingerprint"] != made.classifier.fingerprint:
                raise ValueError(f"its classifier is not that of {CONFIG}")
            for name, value in json.loads(json.dumps(told)).items():
                if name in config and config[name] != value:
                    raise ValueError(f"its {name} is not that of {CONFIG}")
            _as_asked(made, config.get("settings", {}))
            if calibration and made.share and (made.share, made.error) != (calibration.share(), calibration.error()):
                raise ValueError(f"its share and its error are not those of {beside.name}")
        except (ValueError, TypeError, KeyError) as error:
            problems.append(f"line {number} (picture {record['index']}): {error}")
        seen.add(record["index"])
    lacking = missing(config, seen)
    if lacking:
        problems.append(
            f"{len(lacking)} pictures of the run are missing, first picture {lacking[0]} (not finished, or removed)"
        )
    return problems


def _as_asked(c: Certificate, settings: dict[str, Any]) -> None:
    """α, analysis, draws and calibration are those that the run was asked for, where it was asked for any."""
    share = c.share and c.share.calibration
    told = {"alpha": getattr(c, "alpha", None), "betas": c.error.betas or None, "calibration": share}
    told["bound"] = c.error.bound if "bound" in settings else None
    for name, value in told.items():
        if value is not None and settings.get(name) is not None and settings[name] != value:
            raise ValueError(f"its {name} is {value}, but the run was asked for {settings[name]}")


def missing(config: dict[str, Any], done: Iterable[int]) -> list[int]:
    """The pictures of a run that are not among those done, in order."""
    return sorted(set(range(*config["indices"])) - set(done)) if "indices" in config else []
