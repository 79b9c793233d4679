"""Runs of certificates within an experiment: the same jobs and run folders as those of `warpcert certify`."""

from __future__ import annotations

import tomllib
from collections.abc import Generator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, final

from warpcert import certificates
from warpcert.certificates import Certificate
from warpcert.classifier import Classifier
from warpcert.learn.data import Dataset
from warpcert.methods import Method
from warpcert.paper.desk import Desk
from warpcert.paper.journal import EnoughError, Step
from warpcert.runs import album
from warpcert.runs.job import AttackPlan, Held, Job
from warpcert.runs.store import Store, read_records
from warpcert.threat import Threat

__all__ = ["Certified", "Certifying", "Kept", "certified", "kept"]

SEED = 0
ROWS = "rows.toml"


@final
@dataclass(frozen=True, eq=False)
class Certified:
    """One item: its true label, its certificate and, of attacked items, what the classifier answers to them."""

    label: int
    certificate: Certificate
    answer: int | None = None

    @property
    def correct(self) -> bool:
        """Certified for the true label, on all that the certificate's range holds."""
        return self.certificate.label == self.label and self.certificate.reach is not None


@final
@dataclass(frozen=True, eq=False)
class Certifying:
    """The first `count` items of a dataset against one threat by one method. A method that is shown attacked items gets
    the worst of 100 random ones for f∘P, as in the paper.
    """

    classifier: Classifier
    threat: Threat
    method: Method
    dataset: Dataset
    count: int

    def run(
        self, folder: Path, config: dict[str, Any], what: str = "certify"
    ) -> Generator[Step, None, list[Certified]]:
        """Certifies what the run folder lacks; returns all by index, or where that was enough, those that there are."""
        indices = range(min(self.count, len(self.dataset)))
        attack = AttackPlan() if self.method.attacked else None
        job = Job(Held(self.classifier), self.threat, self.method, str(self.classifier.device), attack)
        described = job.describe(self.classifier, data=self.dataset.name, indices=indices, seed=SEED)
        certify = job.certifier(self.classifier)
        with Store(folder, described | config) as store:
            for place, index in enumerate(indices):
                if index not in store.done:
                    label = int(self.dataset.labels[index])
                    made, more = certify(job.task(index, self.dataset.image(index), label, SEED))
                    assert isinstance(made, Certificate)  # no task asks for a part
                    store.append(index, label, made, **more)
                try:
                    yield what, place + 1, len(indices)
                except EnoughError:
                    store.ends()
                    break
            records = sorted((r for r in store.records if r["index"] in indices), key=lambda r: int(r["index"]))
        album.keep(folder, self.dataset, list(indices))
        return [_read(record) for record in records]


def certified(folder: Path) -> list[Certified]:
    """What a run folder, packed or not, holds, by index."""
    return [_read(record) for record in sorted(read_records(folder), key=lambda r: int(r["index"]))]


def _read(record: dict[str, Any]) -> Certified:
    return Certified(record["true_label"], certificates.read(record["certificate"]), record.get("answer"))


@final
@dataclass(frozen=True, eq=False)
class Kept:
    """Certificates by index; and where they are kept, what about, by which command and since when."""

    rows: list[Certified]
    said: str


def kept(desk: Desk, name: str, net: Classifier, threat: Threat) -> Kept | None:
    """results/NAME beside the package, in a full run, if its certificates are about this classifier and about all of
    this threat's Γ.
    """
    with resources.as_file(resources.files("warpcert")) as package:
        folder = package.parent / "results" / name
    if desk.quick or not name or not (folder.parent / ROWS).is_file() or not folder.is_dir():
        return None
    rows = certified(folder)
    about = rows[0].certificate
    if about.classifier.fingerprint != net.fingerprint or not _covers(about.threat, threat):
        return None
    told = next(row for row in _listed(folder.parent) if row["name"] == name)
    command = f"`warpcert {told['command']}`, {told['measured']}"
    return Kept(rows, f"{len(rows)} certificates kept in results/{name} ({told['task']}; {command}).")


def _covers(there: Threat, wanted: Threat) -> bool:
    """The same transformation and interpolation, and a Γ that holds the one that is wanted."""
    same = (there.transform, there.interpolation, there.l2) == (wanted.transform, wanted.interpolation, wanted.l2)
    holds = (a <= b for a, b in zip(there.box.lower, wanted.box.lower, strict=True))
    return same and all(holds) and all(a >= b for a, b in zip(there.box.upper, wanted.box.upper, strict=True))


def _listed(folder: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = tomllib.loads((folder / ROWS).read_text(encoding="utf-8"))["row"]
    return found
