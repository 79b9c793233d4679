"""DistSPT^D: one (E, ρ) for a share q_E of the data, tested on fresh pictures with fresh β's, and kept in a file."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates import ErrorBound, Kind, Share
from warpcert.certificates.sealed import seal, unseal
from warpcert.classifier import Classifier
from warpcert.classifier.defence import Defence
from warpcert.errors.base import SupBound
from warpcert.errors.proved import named
from warpcert.threat import Threat
from warpcert.version import __version__

__all__ = ["Calibrating", "Calibration", "Plan", "calibrate", "calibrated", "inner_betas"]


@final
@dataclass(frozen=True)
class Calibration:
    """With confidence 1 − alpha: at least a share q_E of the pictures x has P_β( sup_γ ‖ε(β,γ,x)‖ > E ) ≤ rho.

    Of `images` fresh pictures, `accepted` showed at most `allowed` of `betas` values above E; for a picture outside the
    share that has probability ≤ alpha_inner, so q_E ≥ (a − alpha_inner)/(1 − alpha_inner) with a the Clopper–Pearson
    bound of the accepted. E was fixed before; the pictures are independent draws from the data that the claim is about.
    """

    defence: Defence
    threat: Threat
    shape: tuple[int, ...]
    data: str
    E: float
    rho: float
    alpha: float
    alpha_inner: float
    images: int
    accepted: int
    betas: int
    allowed: int
    kind: Kind
    bound: str
    seed: int
    seconds: float = 0.0
    version: str = __version__

    def __post_init__(self) -> None:
        stats.Ledger(self.alpha)
        if stats.upper_bound(self.allowed, self.betas, self.alpha_inner) > self.rho:
            raise ValueError(
                f"{self.betas} β's per picture cannot show ρ ≤ {self.rho:g} at α_in = {self.alpha_inner:g}"
            )
        if not self.E >= 0:
            raise ValueError(f"a calibration needs E ≥ 0; got {self.E}")

    @property
    def q_E(self) -> float:
        return stats.acceptance_bound(self.accepted, self.images, self.alpha, self.alpha_inner)

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self._body(), sort_keys=True).encode()).hexdigest()

    def error(self) -> ErrorBound:
        """(E, ρ) as certificates use it; its α was spent by the calibration."""
        return ErrorBound(self.E, 0.0, self.kind, f"calibrated {self.bound}", stated_rho=self.rho)

    def share(self) -> Share:
        counts = (self.images, self.accepted, self.betas, self.allowed)
        return Share(self.digest, self.alpha, self.alpha_inner, *counts)

    def check_image(self, x: Tensor) -> None:
        if tuple(x.shape) != self.shape:
            raise ValueError(f"the calibration is for pictures of shape {list(self.shape)}; got {list(x.shape)}")

    def mismatch(self, defence: Defence, threat: Threat) -> str:
        """The first setting in which defence or threat differ from the calibration's, in a sentence; "" if none."""
        for name, ours, theirs in (("classifier", self.defence, defence), ("threat", self.threat, threat)):
            a, b = ours.in_words(), theirs.in_words()
            for key in {**a, **b}:
                if a.get(key) != b.get(key):
                    return (
                        f"the calibration does not fit the {name}: {key} is {a.get(key, 'not set')} there and "
                        f"{b.get(key, 'not set')} here; calibrate anew with `warpcert bound`"
                    )
        return (
            ""
            if (self.defence, self.threat) == (defence, threat)
            else ("the calibration does not fit: it differs in digits that are not shown; calibrate anew")
        )

    def _body(self) -> dict[str, Any]:
        body = asdict(self) | {"defence": self.defence.to_dict(), "threat": self.threat.to_dict()}
        return dict(json.loads(json.dumps(body)))

    def write(self, path: Path) -> None:
        """calibration.json, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        part.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        os.replace(part, path)

    def to_dict(self) -> dict[str, Any]:
        """As JSON types, sealed."""
        return seal(self._body() | {"q_E": self.q_E})

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Calibration:
        """What `to_dict` gave, with the digest checked and q_E computed again."""
        try:
            body = unseal(d)
            q = body.pop("q_E")
            made = cls(
                **body
                | {
                    "defence": Defence.from_dict(body["defence"]),
                    "threat": Threat.from_dict(body["threat"]),
                    "shape": tuple(body["shape"]),
                    "kind": Kind(body["kind"]),
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"fields are missing or strange: {error}") from None
        if abs(made.q_E - q) > 1e-9:
            raise ValueError(f"it says q_E = {q}, but its counts give {made.q_E}")
        return made

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """From a file."""
        try:
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(f"{path} is not a calibration: {error}") from None


def inner_betas(rho: float, alpha_inner: float, allowed: int) -> int:
    """The smallest number of β's per picture that can show ρ with `allowed` values above E."""
    low, high = allowed + 1, allowed + 2
    while stats.upper_bound(allowed, high, alpha_inner) > rho:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if stats.upper_bound(allowed, middle, alpha_inner) <= rho else (middle + 1, high)
    return high


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a calibration is measured.

    E is what is given, or `factor` times the largest error among the pictures it is chosen on. A fresh picture is
    accepted if at most `allowed` of as many β's as ρ needs exceed E.
    """

    bound: str | SupBound = "curve"
    rho: float = 0.01
    alpha: float = 0.001
    alpha_inner: float = 0.001
    allowed: int = 0
    factor: float = 1.02
    E: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        named(self.bound)
        stats.Ledger(self.alpha)
        if not (0 < self.rho < 0.5 and 0 < self.alpha_inner < 1 and self.allowed >= 0):
            raise ValueError(f"expected 0 < rho < ½, 0 < alpha_inner < 1 and allowed ≥ 0; got {self}")
        if not self.factor > 0 or (self.E is not None and not self.E >= 0):
            raise ValueError(f"expected factor > 0 and E ≥ 0; got {self.factor} and {self.E}")

    @property
    def sup(self) -> SupBound:
        return named(self.bound)

    @property
    def betas(self) -> int:
        """Per picture."""
        return inner_betas(self.rho, self.alpha_inner, self.allowed)


@final
@dataclass(frozen=True)
class Calibrating:
    """A calibration in the making, picture by picture; every picture has draws of its own, whatever the order."""

    plan: Plan
    defence: Defence
    threat: Threat

    def largest(self, x: Tensor, index: int) -> float:
        """The largest of the suprema of a picture on which E is chosen; says nothing yet."""
        return float(self.plan.sup(x, self.defence, self.threat, self._draw("choose", x, index)).values.max())

    def chosen(self, errors: Sequence[float]) -> float:
        """E."""
        if self.plan.E is not None:
            return self.plan.E
        if not errors:
            raise ValueError("E is chosen on pictures of its own: give some, or state E")
        return self.plan.factor * max(errors)

    def accepts(self, x: Tensor, index: int, E: float) -> bool:
        """Whether at most `allowed` suprema of a fresh picture exceed E (the bound may count too many)."""
        values = self.plan.sup.within(x, self.defence, self.threat, self._draw("test", x, index), E)
        return int((~(values <= E)).sum()) <= self.plan.allowed

    def concluded(self, E: float, accepted: Sequence[bool], shape: tuple[int, ...], data: str) -> Calibration:
        """The calibration that these answers make."""
        plan = self.plan
        return Calibration(
            defence=self.defence,
            threat=self.threat,
            shape=shape,
            data=data,
            E=E,
            rho=plan.rho,
            alpha=plan.alpha,
            alpha_inner=plan.alpha_inner,
            images=len(accepted),
            accepted=sum(accepted),
            betas=plan.betas,
            allowed=plan.allowed,
            kind=plan.sup.kind,
            bound=plan.sup.name,
            seed=plan.seed,
        )

    def _draw(self, purpose: str, x: Tensor, index: int) -> Tensor:
        text = f"{self.plan.seed}:{purpose}:{index}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
        generator = torch.Generator(device=x.device).manual_seed(seed)
        return self.defence.draw_beta(self.plan.betas, generator)


Watching = Callable[[str, int, int], None]  # what is done, how many, of how many


def calibrated(
    plan: Plan,
    about: tuple[Defence, Threat],
    choose: Sequence[Tensor],
    test: Sequence[Tensor],
    data: str = "",
    progress: Watching | None = None,
) -> Calibration:
    """E from the pictures `choose` (unless the plan states it), its share tested on the pictures `test`: independent
    draws from the data that the claim is about, none of them in both.
    """
    if not test:
        raise ValueError("a calibration needs pictures to test E on")
    if about[1].l2:
        raise ValueError("a calibration is about one transformation, without an ℓ2 part")
    start, work, told = time.perf_counter(), Calibrating(plan, *about), progress or (lambda what, done, of: None)
    errors: list[float] = []
    for i, x in enumerate(choose if plan.E is None else ()):
        told("choose E", i, len(choose))
        errors.append(work.largest(x, i))
    E = work.chosen(errors)
    accepted: list[bool] = []
    for i, x in enumerate(test):
        told("test E", i, len(test))
        accepted.append(work.accepts(x, i, E))
    told("test E", len(test), len(test))
    made = work.concluded(E, accepted, tuple(test[0].shape), data)
    return replace(made, seconds=time.perf_counter() - start)


def calibrate(
    classifier: Classifier,
    pictures: Sequence[Tensor],
    threat: Threat | None = None,
    *,
    data: str = "",
    progress: Watching | None = None,
    **plan: Any,
) -> Calibration:
    """What `dist-d` needs: (E, ρ) for a tested share of the pictures like these. A fifth of them chooses E, the others
    test it; with E=… all of them do. Pass the result to `certify` as calibration=…

    `plan` are the fields of `Plan`, for instance rho (0.01), and reference, the kernel that turns known originals.
    """
    threat = threat or classifier.threat
    if threat is None:
        raise ValueError("a threat is missing, for instance wc.Threat.rotation(degrees=30)")
    if not classifier.over:
        raise ValueError("a calibration is for classifiers that smooth over parameters: wc.Smoothed(…, over={…})")
    defence = replace(classifier.defence(threat.transform), reference=plan.pop("reference", None))
    made = Plan(**plan)
    first = 0 if made.E is not None else len(pictures) // 5
    return calibrated(made, (defence, threat), pictures[:first], pictures[first:], data, progress)
