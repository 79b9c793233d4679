"""DistSPT^D: one (E, ρ) for a share q_E of the data, tested on fresh pictures with fresh β's, and kept in a file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates import ErrorBound, Kind, Share
from warpcert.certificates.sealed import seal, unseal
from warpcert.classifier.defence import Defence
from warpcert.errors.base import SupBound
from warpcert.threat import Threat
from warpcert.version import __version__

__all__ = ["Calibration", "calibrate", "estimate", "inner_betas"]


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


def estimate(
    sup: SupBound, images: Sequence[Tensor], defence: Defence, threat: Threat, *, betas: int, generator: torch.Generator
) -> Iterator[float]:
    """One value per picture, the largest of `betas` suprema: what E is chosen from. Says nothing yet."""
    for x in images:
        yield float(sup(x, defence, threat, defence.draw_beta(betas, generator)).values.max())


def calibrate(
    sup: SupBound,
    images: Sequence[Tensor],
    defence: Defence,
    threat: Threat,
    *,
    E: float,
    betas: int,
    allowed: int,
    generator: torch.Generator,
) -> Iterator[bool]:
    """For each fresh picture, with fresh β's: whether at most `allowed` suprema exceed E (the bound may count too
    many).
    """
    for x in images:
        values = sup.within(x, defence, threat, defence.draw_beta(betas, generator), E)
        yield int((~(values <= E)).sum()) <= allowed
