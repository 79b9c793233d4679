"""Certify a whole dataset from Python, and look at what a run folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

from warpcert import methods
from warpcert.certificates import Certificate
from warpcert.classifier import Classifier
from warpcert.learn.collect import collected
from warpcert.learn.data import Dataset
from warpcert.learn.foreign import open_model
from warpcert.networks.weights import Network
from warpcert.runs import album, engine, summary
from warpcert.runs.job import AttackPlan, Held, Job, device_of
from warpcert.runs.progress import Watch
from warpcert.runs.runner import run
from warpcert.runs.sharing import shared
from warpcert.runs.store import Store, read_config, read_records
from warpcert.threat import Threat

__all__ = ["CLASSIFIER", "Run", "certify_all", "tasks_of"]

CLASSIFIER = "classifier.safetensors"  # in the folder of a run whose classifier came from Python, if it can be stored


@final
class Run:
    """What a run folder holds: certificates, certified accuracy, and the classifier that they speak of."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.config = read_config(self.folder)

    @cached_property
    def rows(self) -> list[summary.Row]:
        """Index, true label and certificate of every picture, the arithmetic of each certificate redone."""
        return summary.parse(list(read_records(self.folder)))

    @property
    def certificates(self) -> list[Certificate]:
        return [row.certificate for row in self.rows]

    @cached_property
    def summary(self) -> summary.Summary:
        return summary.summarise(self.rows)

    def accuracy(self, *surface: float) -> float:
        """The share of the pictures that are answered correctly and certified on ±surface (degrees, pixels, per cent …;
        both ends of an asymmetric range, or one value per axis).
        """
        return summary.accuracy(self.rows, self._box(surface))

    def interval(self, *surface: float) -> tuple[float, float]:
        """A 95 % interval of that share over such pictures."""
        return summary.interval(self.rows, self._box(surface))

    def report(self, path: Path | str = "report.html") -> Path:
        """Writes the run as one HTML page that needs nothing else."""
        from warpcert.report.html import write

        return write([self.folder], Path(path))

    def classifier(self, device: str = "cpu", model: str | None = None) -> Classifier:
        """The classifier that was certified, opened anew (from another place, if one is named), with the run's threat
        and method as its own; a ValueError if it cannot be found or is another one.
        """
        told, name = self.config["classifier"], model or self.config["model"] or self._stored
        shape = self.config.get("shape")
        found = open_model(name, tuple(shape) if shape else None, device_of(device)).classifier(told["facts"])
        if found.fingerprint != told["fingerprint"]:
            raise ValueError(
                f"{name} is not the classifier that was certified: its fingerprint is {found.fingerprint[:12]}…, and "
                f"that of the run is {told['fingerprint'][:12]}…"
            )
        settings = found.settings if self.config["method"] == found.method else {}
        threat = Threat.from_dict(self.config["threat"])
        found.about = replace(found.about, threat=threat, method=self.config["method"], settings=settings)
        return found

    @property
    def _stored(self) -> str:
        """The file beside the records that holds the classifier."""
        if not (self.folder / CLASSIFIER).is_file():
            raise ValueError(
                f"the classifier of {self.folder} was built in Python around a network that warpcert cannot store: "
                "build it again and call its `predict`"
            )
        return str(self.folder / CLASSIFIER)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def _box(self, surface: Sequence[float]) -> Any:
        return self.rows[0].certificate.threat.transform.box(*surface)


def certify_all(
    classifier: Classifier,
    dataset: Any,
    out: Path | str,
    threat: Threat | None = None,
    *,
    method: str | None = None,
    workers: int | str = 1,
    **settings: Any,
) -> Run:
    """Certifies every picture of a dataset (or DataLoader) of pairs (picture in [0,1], label) into the folder `out`.

    Each certificate is on disk as soon as it is made: an interrupted run goes on with the same call. Progress is shown
    on stderr. A classifier around a network of the package is stored beside them: `Run(out).classifier()` opens it.

    workers    processes of this machine, or "ray", or the address of a ray cluster
    settings   those of the method; `seed` of the run (0), from which each picture's own seed follows
    """
    seed = int(settings.pop("seed", 0))
    chosen = methods.chosen(classifier, method, **settings)
    against = methods.threat_for(classifier, threat)
    data = collected(dataset, classifier.classes)
    job = Job(Held(classifier), against, chosen, str(classifier.device), AttackPlan() if chosen.attacked else None)
    folder, indices = Path(out), range(len(data))
    with Watch() as watch, Store(folder, job.describe(classifier, data=data.name, indices=indices, seed=seed)) as store:
        inside = lambda done, of, note="": watch.show("  this picture", done, of, note)  # noqa: E731
        where = engine.named(workers, job, classifier, inside)
        _store(classifier, folder)
        job.keep(folder)
        watch.show(chosen.name, len(store.done), len(data))
        for _ in run(store, tasks_of(job, data, indices, seed), where, shared(job, workers, inside)):
            watch.show(chosen.name, len(store.done), len(data))
    made = Run(folder)
    album.keep(folder, data, [row.index for row in made.rows])
    return made


def _store(classifier: Classifier, folder: Path) -> None:
    """Keeps the classifier with its certificates, if it is made of a network that a file can hold."""
    network, path = classifier.network, folder / CLASSIFIER
    if isinstance(network, Network) and network.is_fused and not path.exists():
        classifier.save(path)


def tasks_of(job: Job, data: Dataset, indices: Sequence[int], seed: int) -> Any:
    """The pictures of a dataset as tasks."""
    return (job.task(i, data.image(i), int(data.labels[i]), seed) for i in indices)
