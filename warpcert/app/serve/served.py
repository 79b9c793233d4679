"""What a server serves: one defended classifier, opened once, and its methods by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from warpcert import methods
from warpcert.app.options import device_of, model_path
from warpcert.bounds.calibration import Calibration
from warpcert.bounds.proved import Curve
from warpcert.certificate import Certificate
from warpcert.learn import data, models
from warpcert.smoothing.joint import Classifier
from warpcert.smoothing.run import Sampling
from warpcert.threat import Defence, Threat

__all__ = ["METHODS", "Question", "Served", "open_served"]

SAMPLES = 20  # bundled pictures that the page offers


@final
@dataclass(frozen=True)
class Served:
    """A classifier with its fingerprint, the defence around it, the threat it stands against, perhaps a calibration."""

    name: str
    model: nn.Module
    fingerprint: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    defence: Defence
    threat: Threat
    device: torch.device
    calibration: Calibration | None
    samples: tuple[tuple[Tensor, int], ...]

    def threat_of(self, gamma: Sequence[float] | None) -> Threat:
        """The served threat, with another Γ in surface units if one is given."""
        if gamma is None:
            return self.threat
        return replace(self.threat, box=self.threat.transform.box(*gamma))

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that this defence can be asked for."""
        return tuple(name for name in METHODS if name != "dist-d" or self.calibration is not None)


def open_served(name: str, *, device: str = "cpu", gamma: Sequence[float] | None = None) -> Served:
    """Loads an embedded model, a .safetensors file, or a folder with one and perhaps a calibration.json."""
    where, path = device_of(device), model_path(name)
    calibration = None
    if path.is_dir():
        weights = sorted(path.glob("*.safetensors"))
        if len(weights) != 1:
            raise ValueError(f"{path} must hold one .safetensors file; it holds {len(weights)}")
        if (path / "calibration.json").is_file():
            calibration = Calibration.read(path / "calibration.json")
        path = weights[0]
    model, config, extra = models.load_weights(path)
    if len(config.shape) != 3 or config.shape[0] not in (1, 3):
        raise ValueError(f"the server takes pictures of 1 or 3 channels; this model takes items {list(config.shape)}")
    if "defence" not in extra:
        raise ValueError(f"{path} carries no defence: serve a model that `warpcert train` wrote")
    defence = Defence.from_dict(extra["defence"])
    if gamma is None and calibration is None and "gamma" not in extra:
        raise ValueError(f"say Γ for {defence.transform.name} with --gamma: this model carries none")
    box = calibration.threat.box if calibration and gamma is None else defence.transform.box(*(gamma or extra["gamma"]))
    threat = replace(calibration.threat, box=box) if calibration else Threat(defence.transform, box)
    if calibration:
        calibration.check_settings(defence, threat)
    classes = tuple(str(c) for c in extra.get("classes", range(config.classes)))
    samples = _samples(str(extra.get("dataset", "")), config.shape)
    return Served(
        Path(name).stem,
        model.to(where),
        models.fingerprint(model),
        config.shape,
        classes,
        defence,
        threat,
        where,
        calibration,
        samples,
    )


def _samples(dataset: str, shape: tuple[int, ...]) -> tuple[tuple[Tensor, int], ...]:
    """The first bundled pictures of the data that the model is for: two of each digit, in order."""
    digits = data.load("mnist500", "test", None)
    if dataset not in ("mnist", "mnist500") or digits.shape != shape:
        return ()
    labels = digits.labels.tolist()
    first = [[i for i, label in enumerate(labels) if label == digit][: SAMPLES // 10] for digit in range(10)]
    return tuple((digits.image(i), labels[i]) for row in zip(*first, strict=True) for i in row)


@final
@dataclass(frozen=True)
class Question:
    """What a client asks to be certified: one picture against one threat."""

    served: Served
    classifier: Classifier
    x: Tensor
    threat: Threat
    sampling: Sampling
    seconds: float

    def dist_d(self) -> Certificate:
        calibration = self.served.calibration
        if calibration is None:
            raise ValueError("dist-d needs a calibration.json beside the weights; write one with `warpcert bound`")
        return methods.dist_spt_d(self.classifier, self.x, calibration, self.sampling, model=self.served.fingerprint)


def _dist_x(q: Question) -> Certificate:
    """Half of the time at most goes into the error bound: what it has reached then is a bound too."""
    sup = Curve(time_limit=q.seconds / 2)
    return methods.dist_spt_x(
        q.classifier, q.x, q.served.defence, q.threat, q.sampling, sup=sup, model=q.served.fingerprint
    )


METHODS: dict[str, Callable[[Question], Certificate]] = {
    "cover": lambda q: methods.cover(
        q.classifier, q.x, q.served.defence, q.threat, q.sampling, model=q.served.fingerprint
    ),
    "dist-x": _dist_x,
    "dist-d": Question.dist_d,
    "exact": lambda q: methods.exact(q.classifier, q.x, q.served.defence, q.threat, model=q.served.fingerprint),
    "base": lambda q: methods.base_spt(
        q.classifier, q.x, q.served.defence, q.threat, q.sampling, model=q.served.fingerprint
    ),
}
