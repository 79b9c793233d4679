"""One picture's certificate as a job that travels: plain values here, the certifier wherever it is opened."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from warpcert import attacks, methods
from warpcert.certificates import Certificate
from warpcert.certificates.sealed import picture_digest
from warpcert.classifier import Classifier, Smoothed
from warpcert.exhaustive.parts import Part
from warpcert.learn.foreign import open_model
from warpcert.methods.base import Interrupted, Method, Progress
from warpcert.threat import Threat

__all__ = ["CALIBRATION", "AttackPlan", "Certifier", "Held", "Job", "Named", "Outcome", "Task", "device_of", "seed_for"]

CALIBRATION = "calibration.json"  # in the folder of a run
LITTLE = 2.0**-10
WRONG = "the picture is answered wrongly, so the rest of the range was left alone"


def device_of(name: str) -> torch.device:
    """The torch device of that name, with TF32 convolutions off: certified and deployed classifier are one float32
    function.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        torch.backends.cudnn.allow_tf32 = False
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


def seed_for(seed: int, index: int) -> int:
    """The seed of one picture, a hash of the run's seed and its index: order and restarts do not matter."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{index}".encode()).digest()[:8], "big") >> 1


@final
@dataclass(frozen=True, eq=False)
class Task:
    """One picture to certify; `known` is a certificate of a part of its range, to go on from.

    part     from which multiple of Γ to which, if only this is asked about
    seconds  that the part may take
    """

    index: int
    x: NDArray[Any]
    label: int
    seed: int
    known: Certificate | None = None
    part: tuple[float, float] | None = None
    seconds: float | None = None


Outcome = tuple[Certificate | Part, dict[str, Any]]  # and what is kept beside it
Certifier = Callable[[Task], Outcome]


@final
@dataclass(frozen=True)
class Named:
    """A classifier by the name of its model and its facts: it is loaded where it is needed."""

    model: str  # what `open_model` takes
    shape: tuple[int, ...]
    facts: Mapping[str, Any]
    fingerprint: str

    def open(self, device: torch.device) -> Classifier:
        """The classifier, loaded in this process; refuses another one than was described."""
        opened = open_model(self.model, self.shape, device).classifier(self.facts)
        if opened.fingerprint != self.fingerprint:
            raise ValueError(
                f"{self.model} has the fingerprint {opened.fingerprint[:12]}… here, but the run is about "
                f"{self.fingerprint[:12]}…; every machine must hold the same model under the same name"
            )
        return opened


@final
@dataclass(frozen=True, eq=False)
class Held:
    """A classifier that travels itself."""

    classifier: Classifier

    @property
    def fingerprint(self) -> str:
        return self.classifier.fingerprint

    def open(self, device: torch.device) -> Classifier:
        return self.classifier.to(device)


@final
@dataclass(frozen=True)
class AttackPlan:
    """How pictures are attacked before a method that is shown attacked ones."""

    name: str = "worst-of-k"
    k: int = 100

    def __post_init__(self) -> None:
        if self.name not in attacks.ATTACKS:
            raise ValueError(f"attack {self.name!r} is not known; choose one of {', '.join(attacks.ATTACKS)}")


@final
@dataclass(frozen=True)
class Job:
    """Everything that decides the certificate of a task, in values that can be pickled."""

    source: Named | Held
    threat: Threat
    method: Method
    device: str = "cpu"
    attack: AttackPlan | None = None  # of methods that are shown attacked pictures
    right_only: bool = False  # of pictures that are answered wrongly, no more than `LITTLE` of the range is proved

    def __post_init__(self) -> None:
        if self.attack is not None and not self.method.attacked:
            raise ValueError(f"{self.method.name} certifies the original picture: leave the attack out")
        if self.right_only and not self.method.in_parts(self.threat):
            raise ValueError(f"{self.method.name} proves a range as a whole here: certify wrong answers too")

    def open(self) -> Certifier:
        """The certifier, with the classifier opened in this process."""
        return self.certifier(self.source.open(device_of(self.device)))

    def certifier(self, classifier: Classifier, progress: Progress | None = None) -> Certifier:
        """The certifier around a classifier that is open already, on the job's device."""
        if why := methods.refusal(self.method, classifier, self.threat):
            raise ValueError(why)

        def certify(task: Task) -> Outcome:
            x = torch.from_numpy(task.x).to(self.device)
            if self.method.attacked:
                return self._attacked(classifier, task, progress)
            if self.right_only and (task.part or (0.0,))[0] == 0 and classifier.predict(x) != task.label:
                return self._little(classifier, x, progress), {}
            if task.part is not None:
                method = replace(self.method, time_limit=task.seconds)  # type: ignore[call-arg]
                return methods.part(method, classifier, x, self.threat, task.part, progress), {}
            if task.known is not None:
                return methods.go_on(self.method, task.known, classifier, x, self.threat, progress), {}
            return methods.certify_with(self.method, classifier, x, self.threat, seed=task.seed, progress=progress), {}

        return certify

    def _little(self, classifier: Classifier, x: torch.Tensor, progress: Progress | None) -> Certificate:
        """Of `LITTLE` of the range."""
        try:
            made = methods.part(self.method, classifier, x, self.threat, (0.0, LITTLE), progress).made
        except Interrupted as stop:
            raise Interrupted(stop.certificate) from None  # it is no part of a picture that others share
        return made if made.counterexample or made.found is None else replace(made, reason=WRONG)

    def _attacked(self, classifier: Classifier, task: Task, progress: Progress | None) -> Outcome:
        """Attacks the network behind P, then answers and certifies without the original (the paper's §6.4)."""
        plan, t = self.attack or AttackPlan(), self.threat.transform
        x = torch.from_numpy(task.x).to(self.device)
        source = torch.Generator().manual_seed(task.seed)
        found = attacks.ATTACKS[plan.name](
            lambda z: classifier.logits(classifier.preprocess(z)), x, task.label, self.threat, plan.k, source
        )
        made = methods.certify_with(
            self.method, classifier, found.x_attacked, self.threat, seed=task.seed, progress=progress
        )
        more = {
            "attack": {"gamma": t.to_surface(found.gamma), "unit": t.unit, "label": found.label},
            "answer": self._answer(classifier, found.x_attacked, seed_for(task.seed, 1)),
            "analysis_seconds": made.error.seconds,
            "smoothing_seconds": made.seconds - made.error.seconds,
        }
        return made, more

    def _answer(self, classifier: Classifier, x: torch.Tensor, seed: int) -> int:
        """The deployed answer about the attacked picture."""
        assert isinstance(classifier, Smoothed)  # methods that are shown attacked pictures refuse others
        n = 100 if classifier.nested else 1000
        generator = torch.Generator(device=x.device).manual_seed(seed)
        return classifier.vote(x, n=n, generator=generator, batch=getattr(self.method, "batch", None)).label

    def describe(self, classifier: Classifier, *, data: str, indices: range, seed: int) -> dict[str, Any]:
        """Everything that decides the outcome of a run, as JSON types: the run folder's configuration."""
        model = self.source.model if isinstance(self.source, Named) else ""
        shape = {"shape": list(self.source.shape)} if isinstance(self.source, Named) else {}
        about = {"name": classifier.name, "fingerprint": classifier.fingerprint, "facts": classifier.facts}
        return {
            "data": data,
            "indices": [indices.start, indices.stop],
            "model": model,
            **shape,
            "classifier": about,
            "threat": self.threat.to_dict(),
            "method": self.method.name,
            "settings": self.method.to_dict(),
            "device": torch.device(self.device).type,
            "seed": seed,
            **({"right_only": True} if self.right_only else {}),
            **({"attack": asdict(self.attack or AttackPlan())} if self.method.attacked else {}),
        }

    def refuse_other(self, made: Certificate, x: NDArray[Any]) -> None:
        """A ValueError unless a certificate, of a part of the range, is about this picture and about this job."""
        picture = picture_digest(torch.from_numpy(x))
        methods.refuse_other(made, (picture, self.source.fingerprint, self.threat, self.method.name))

    def keep(self, folder: Path) -> None:
        """Writes what its certificates rest on beside them: the calibration, if there is one."""
        known = getattr(self.method, "calibration", None)
        if known is not None:
            known.write(folder / CALIBRATION)

    def task(self, index: int, x: torch.Tensor, label: int, seed: int) -> Task:
        values = x.detach().cpu().numpy()
        return Task(index, np.ascontiguousarray(values), int(label), seed_for(seed, index))
