"""What a server serves: one defended classifier, opened once, and its methods by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from warpcert import methods
from warpcert.app.cli.options import device_of
from warpcert.certificates import Certificate
from warpcert.classifier.defence import Defence
from warpcert.classifier.voting import Logits
from warpcert.errors.calibration import Calibration
from warpcert.errors.proved import Curve
from warpcert.learn import data, zoo
from warpcert.methods.run import Sampling
from warpcert.networks import resnet as models
from warpcert.originals.protocol import IntervalInverse  # looser than the linear inverses, and much faster
from warpcert.threat import Threat

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
    """Loads a model by name, a .safetensors file, or a folder with one and perhaps a calibration.json."""
    where, weights, calibration = device_of(device), name, None
    if Path(name).is_dir():
        found = sorted(Path(name).glob("*.safetensors"))
        if len(found) != 1:
            raise ValueError(f"{name} must hold one .safetensors file; it holds {len(found)}")
        weights, beside = str(found[0]), Path(name) / "calibration.json"
        calibration = Calibration.read(beside) if beside.is_file() else None
    loaded = zoo.load(weights)
    shape, threat = loaded.config.shape, calibration.threat if calibration else loaded.threat
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(f"the server takes pictures of 1 or 3 channels; this model takes items {list(shape)}")
    if gamma is not None:
        threat = replace(threat, box=threat.transform.box(*gamma))
    if calibration:
        calibration.check_settings(loaded.defence, threat)
    return Served(
        Path(name).stem,
        loaded.classifier.to(where),
        models.fingerprint(loaded.classifier),
        shape,
        loaded.classes,
        loaded.defence,
        threat,
        where,
        calibration,
        _samples(shape, loaded.classes),
    )


def _samples(shape: tuple[int, ...], classes: tuple[str, ...]) -> tuple[tuple[Tensor, int], ...]:
    """The first bundled digits if the model is for digits: two of each, in order."""
    digits = data.load("mnist500", "test", None)
    if digits.shape != shape or digits.classes != classes:
        return ()
    labels = digits.labels.tolist()
    first = [[i for i, label in enumerate(labels) if label == digit][: SAMPLES // 10] for digit in range(10)]
    return tuple((digits.image(i), labels[i]) for row in zip(*first, strict=True) for i in row)


@final
@dataclass(frozen=True)
class Question:
    """What a client asks to be certified: one picture against one threat, in so many seconds."""

    served: Served
    classifier: Logits
    x: Tensor
    threat: Threat
    sampling: Sampling
    seconds: float

    def spread(self) -> tuple[Logits, Tensor, Defence, Threat, Sampling]:
        """As the methods take it."""
        return self.classifier, self.x, self.served.defence, self.threat, self.sampling


def _cover(q: Question) -> Certificate:
    """By margins if the network declares a Lipschitz constant and there is no noise."""
    constant = getattr(q.served.model, "lipschitz", None) if q.served.defence.sigma_noise == 0 else None
    return methods.cover(*q.spread(), lipschitz=constant, model=q.served.fingerprint)


def _dist_x(q: Question) -> Certificate:
    """Most of the time may go into the error bound: what it has reached then is a bound too."""
    return methods.dist_spt_x(*q.spread(), sup=Curve(time_limit=0.7 * q.seconds), model=q.served.fingerprint)


def _dist_d(q: Question) -> Certificate:
    if q.served.calibration is None:
        raise ValueError("dist-d needs a calibration.json beside the weights; write one with `warpcert bound`")
    return methods.dist_spt_d(q.classifier, q.x, q.served.calibration, q.sampling, model=q.served.fingerprint)


METHODS: dict[str, Callable[[Question], Certificate]] = {
    "cover": _cover,
    "dist-x": _dist_x,
    "dist-d": _dist_d,
    "indiv": lambda q: methods.indiv_spt(*q.spread(), inverse=IntervalInverse(), betas=200, model=q.served.fingerprint),
    "exact": lambda q: methods.exact(*q.spread()[:4], model=q.served.fingerprint),
    "base": lambda q: methods.base_spt(*q.spread(), model=q.served.fingerprint),
}
