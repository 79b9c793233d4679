"""What a method is: its settings in one frozen record, which threats it can certify against, and how."""

from __future__ import annotations

import math
import secrets
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates import Certificate, Subject
from warpcert.classifier import Classifier
from warpcert.methods.outlook.forecast import Forecast
from warpcert.threat import Threat

if TYPE_CHECKING:
    from warpcert.exhaustive.parts import Part

__all__ = [
    "Interrupted",
    "Method",
    "Progress",
    "Sampling",
    "deadline",
    "needs_noise",
    "positive_limit",
    "refuse_tf32",
    "smooths_over",
    "subject",
    "tells_tolerance",
]


class Progress(Protocol):
    """Is told how much is done, of how much, and how fast it goes."""

    def __call__(self, done: int, of: int, note: str = "", /) -> None: ...


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a certificate of what was proved by then; `part`, if it speaks of a part of a range alone."""

    def __init__(self, certificate: Certificate, part: Part | None = None) -> None:
        super().__init__()
        self.certificate, self.part = certificate, part


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """One way to certify. An instance is a choice of its settings; leaves are final.

    summary    what is proved, for lists and help
    attacked   whether it is shown the attacked picture instead of the original
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    attacked: ClassVar[bool] = False

    @classmethod
    def beyond(cls, threat: Threat) -> str:
        """Why no classifier can be certified against this combination of parts this way; "" if some can."""
        if len(threat.transform.parts) > 1:
            return f"{cls.name} knows one transformation at a time, not {threat.transform.name}"
        return f"{cls.name} knows no ℓ2 part" if threat.l2 else ""

    def refuses(self, classifier: Classifier, threat: Threat) -> str:
        """Why this classifier cannot be certified against this threat this way, if `beyond` says that some can; "" if
        it can.
        """
        return ""

    @abstractmethod
    def certify(
        self, classifier: Classifier, x: Tensor, threat: Threat, progress: Progress | None = None
    ) -> Certificate:
        """The certificate about x, once the registry has let it in."""

    def go_on(
        self, made: Certificate, classifier: Classifier, x: Tensor, threat: Threat, progress: Progress | None = None
    ) -> Certificate:
        """The certificate about x, for which `made` is one already that was interrupted; by default from the start."""
        return self.certify(classifier, x, threat, progress)

    def in_parts(self, threat: Threat) -> bool:
        """Whether parts of a range can be proved each by itself (`part`), and put together."""
        return False

    def part(
        self, classifier: Classifier, x: Tensor, threat: Threat, share: tuple[float, float],
        progress: Progress | None = None,
    ) -> Part:  # fmt: skip
        """What holds on the part of Γ from one multiple of it to another."""
        raise NotImplementedError(f"{self.name} proves no parts")

    @abstractmethod
    def foresee(self, classifier: Classifier, x: Tensor, threat: Threat) -> Forecast:
        """What that will cost, from a probe of a few seconds; it may draw, but nothing that a certificate uses."""

    def to_dict(self) -> dict[str, Any]:
        """Its settings as JSON types: what a run folder keeps."""
        return {k: v for k, v in asdict(self).items() if k != "seed"}

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls))


@dataclass(frozen=True, kw_only=True)
class Sampling(Method):
    """How much to sample and at what risk.

    n samples in all, shared by the windows (per axis), after n0 free ones that guess the label; alpha for the whole
    certificate; `two_class` bounds the runner-up too; seed None draws a secret one; batch None chooses by device;
    after `time_limit` seconds for one picture nothing more is begun.
    """

    n: int = 10_000
    n0: int = 100
    alpha: float = 0.01
    windows: int = 3
    two_class: bool = False
    seed: int | None = None
    batch: int | None = None
    time_limit: float | None = None

    def __post_init__(self) -> None:
        stats.Ledger(self.alpha)
        positive_limit(self.time_limit)
        for name in ("n", "n0", "windows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")

    def generator(self, device: torch.device) -> tuple[torch.Generator, int]:
        """A fresh generator on the device, and its seed."""
        seed = secrets.randbits(63) if self.seed is None else self.seed
        return torch.Generator(device=device).manual_seed(seed), seed


def positive_limit(seconds: float | None) -> None:
    if seconds is not None and not seconds > 0:
        raise ValueError(f"a time limit must be > 0 s; got {seconds:g}")


def deadline(seconds: float | None) -> float:
    """When that limit, from now on, is over, by time.perf_counter()."""
    return math.inf if seconds is None else time.perf_counter() + seconds


def smooths_over(classifier: Classifier, threat: Threat, method: str) -> str:
    """Why a method that compares laws of parameters cannot speak of this classifier; "" if it can."""
    if not classifier.over:
        return f"{method} is for classifiers that smooth over parameters: wc.Smoothed(…, over={{…}})"
    (name,) = classifier.over
    if name != threat.transform.name:
        return f"the threat is {threat.transform.name}, but the classifier smooths over {name}"
    return tells_tolerance(threat, method)


def tells_tolerance(threat: Threat, method: str) -> str:
    if threat.tolerance is None:
        return ""
    return f"{method} bounds the attacker's float32 arithmetic itself: leave the tolerance out"


def needs_noise(classifier: Classifier, method: str) -> str:
    """Of joint votes."""
    if classifier.noise or classifier.nested:
        return ""
    return f"{method} needs pixel noise to absorb the error: set noise > 0"


def subject(classifier: Classifier) -> Subject:
    """How certificates name a classifier."""
    return Subject.of(classifier.name, classifier.source, classifier.facts)


def refuse_tf32(x: Tensor, slack: float) -> None:
    if x.is_cuda and torch.backends.cudnn.allow_tf32 and slack < 0.01:
        raise ValueError(
            "TF32 convolutions err by more than the slack on logits: set torch.backends.cudnn.allow_tf32 = False"
        )
