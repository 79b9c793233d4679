"""What a server serves: one classifier, opened once, and the threat it stands against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from warpcert import methods
from warpcert.classifier import Classifier
from warpcert.errors.calibration import Calibration
from warpcert.learn import data
from warpcert.learn.foreign import open_model
from warpcert.runs.job import device_of
from warpcert.runs.run import Run
from warpcert.threat import Threat

__all__ = ["Served", "open_served"]

SAMPLES = 20  # bundled pictures that the page offers


@final
@dataclass(frozen=True, eq=False)
class Served:
    """A classifier on its device, the threat that is asked about unless a request says otherwise, pictures to try.

    source   what it was opened as
    shape    of the pictures that it takes, [C,H,W]
    """

    source: str
    classifier: Classifier
    threat: Threat
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    device: torch.device
    samples: tuple[tuple[Tensor, int], ...] = ()

    @cached_property
    def methods(self) -> list[str]:
        """Those that can certify it."""
        return methods.suitable(self.classifier, self.threat)

    def threat_of(self, gamma: Sequence[float] | None) -> Threat:
        """The served threat, with another Γ in surface units if one is given."""
        if gamma is None:
            return self.threat
        return replace(self.threat, box=self.threat.transform.box(*gamma))


def open_served(
    name: str, *, device: str = "cpu", transform: str | None = None, gamma: Sequence[float] | None = None,
    threat: Threat | None = None, calibration: Path | None = None,
) -> Served:  # fmt: skip
    """The classifier of that name of the zoo, in that .safetensors file, or that a run folder certified.

    What it is served against is said by the threat, by transform and gamma, or else by the calibration, the run, or the
    classifier.
    """
    where = device_of(device)
    classifier, told = _opened(name, where)
    known = Calibration.read(calibration) if calibration else None
    if known:
        notes = dict(classifier.about.notes) | {"calibration": known.to_dict()}
        classifier.about = replace(classifier.about, notes=notes)
    threat = threat or _threat(known.threat if known else classifier.threat, transform, gamma)
    shape = getattr(getattr(classifier.network, "config", None), "shape", None) or tuple(told.get("shape") or ())
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(f"the server takes pictures with 1 or 3 channels; this classifier takes items {list(shape)}")
    classes = classifier.classes or _numbered(classifier, shape, where)
    return Served(name, classifier, threat, shape, classes, where, _samples(shape, classes))


def _opened(name: str, device: torch.device) -> tuple[Classifier, dict[str, Any]]:
    """The classifier, and the configuration of the run that certified it, if any."""
    if not Path(name).is_dir():
        return open_model(name, None, device).classifier(), {}
    run = Run(name)
    return run.classifier(str(device)), run.config


def _threat(own: Threat | None, transform: str | None, gamma: Sequence[float] | None) -> Threat:
    if transform is not None and (own is None or own.transform.name != transform):
        if gamma is None:
            raise ValueError(f"give the range for which {transform} is served")
        return Threat.of(transform, *gamma)
    if own is None:
        raise ValueError("this classifier has no threat of its own: give the transformation and its range")
    return own if gamma is None else replace(own, box=own.transform.box(*gamma))


@torch.no_grad()
def _numbered(classifier: Classifier, shape: tuple[int, ...], device: torch.device) -> tuple[str, ...]:
    """Numbers for classes without names, as many as the network has."""
    blank = classifier.preprocess(torch.zeros(1, *shape, device=device))
    return tuple(str(i) for i in range(classifier.logits(blank).shape[1]))


def _samples(shape: tuple[int, ...], classes: tuple[str, ...]) -> tuple[tuple[Tensor, int], ...]:
    """The first bundled digits if the classifier is for digits: two of each, in order."""
    digits = data.load("mnist500", "test", None)
    if digits.shape != shape or digits.classes != classes:
        return ()
    labels = digits.labels.tolist()
    first = [[i for i, label in enumerate(labels) if label == digit][: SAMPLES // 10] for digit in range(10)]
    return tuple((digits.image(i), labels[i]) for row in zip(*first, strict=True) for i in row)
