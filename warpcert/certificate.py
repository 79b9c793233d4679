"""Frozen results. A certificate holds what is needed to redo its arithmetic, says what it proves in one sentence, and
how far to trust it.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, final

from warpcert import radius, stats
from warpcert.threat import Defence, Threat
from warpcert.transforms import Box

__all__ = ["ABSTAIN", "Certificate", "ErrorBound", "Kind", "Window", "seal", "unseal"]

ABSTAIN = -1  # the label of "no answer"; no class has it


class Kind(StrEnum):
    """How far a statement can be trusted, strongest first."""

    PROVED = "proved"  # holds, no probability involved
    WITH_CONFIDENCE = "with confidence"  # holds with probability ≥ 1 − α over the certifier's own randomness
    HEURISTIC = "heuristic"  # may be false

    @staticmethod
    def weakest(*kinds: Kind) -> Kind:
        return max(kinds, key=list(Kind).index)


@final
@dataclass(frozen=True)
class ErrorBound:
    """P_β( sup_γ ‖ε(β,γ,x)‖ > E ) ≤ rho, with the stated kind and at the price alpha.

    `exceeded` of the `betas` values drawn were allowed above E: a rank fixed beforehand, or counted on a fresh sample.
    """

    E: float
    alpha: float
    kind: Kind
    bound: str  # which analysis: none, sampled, curve, interval …
    betas: int = 0
    exceeded: int = 0
    cells: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not self.E >= 0:
            raise ValueError(f"an error bound must be ≥ 0; got {self.E}")

    @property
    def rho(self) -> float:
        return stats.upper_bound(self.exceeded, self.betas, self.alpha) if self.betas else 0.0


NO_ERROR = ErrorBound(0.0, 0.0, Kind.HEURISTIC, "none")  # "T composes": what BaseSPT assumes


@final
@dataclass(frozen=True)
class Window:
    """k of n samples with parameters around `center` voted for the label; `runner_up` votes went to the second class
    (two-class law).
    """

    center: tuple[float, ...]
    k: int
    n: int
    alpha: float
    runner_up: int | None = None


@final
@dataclass(frozen=True)
class Certificate:
    """With probability ≥ 1 − alpha (kind permitting): the smoothed classifier answers `label` at q(T_γ x) for every γ
    in the certified set.

    The certified set is Γ ∩ ⋃_j { ‖(γ − γ_j)/σ_γ‖₂ < r_j } over the windows j. Each window compares the law of β + γ
    with that of its own samples, so a γ may be vouched for by any of them. `form` is joint (μ² = ‖γ−γ_j‖²/σ_γ² +
    E²/σ_δ² < κ²), nested (E sits inside the votes) or base (E is dropped: heuristic).
    """

    method: str
    form: str
    label: int
    threat: Threat
    defence: Defence
    error: ErrorBound
    windows: tuple[Window, ...]
    alpha: float
    ledger: tuple[tuple[str, float], ...]
    classes: int
    alpha_inner: float = 0.0
    seed: int | None = None
    model: str = ""  # fingerprint of the classifier
    version: str = ""
    passes: int = 0  # forward passes of the classifier
    seconds: float = 0.0
    reason: str = field(default="")  # why it abstains

    @property
    def abstains(self) -> bool:
        return self.label == ABSTAIN

    @property
    def kind(self) -> Kind:
        if self.form == "base":
            return Kind.HEURISTIC
        return Kind.weakest(Kind.WITH_CONFIDENCE, self.error.kind)

    def p_lower(self, window: Window) -> float:
        """Lower bound of the probability of the label around the window's centre."""
        alpha = window.alpha / 2 if window.runner_up is not None else window.alpha
        if self.form == "nested":
            return stats.acceptance_bound(window.k, window.n, alpha, self.alpha_inner)
        return stats.lower_bound(window.k, window.n, alpha)

    def kappa(self, window: Window) -> float | None:
        """The largest μ that the window's votes survive, None if none."""
        p = self.p_lower(window)
        if window.runner_up is None:
            return radius.kappa_one(p, self.error.rho)
        # The runner-up is chosen after looking: its bound must hold for every other class.
        p_b = stats.upper_bound(window.runner_up, window.n, window.alpha / 2 / (self.classes - 1))
        return radius.kappa_two(p, min(p_b, 1 - p), self.error.rho)

    def whitened_radius(self, window: Window) -> float | None:
        """r_j: the certified radius around the window's centre in units of σ_γ, None if nothing is certified there."""
        kappa = None if self.abstains else self.kappa(window)
        if kappa is None:
            return None
        if self.form != "joint" or self.error.E == 0:
            return kappa
        if self.defence.sigma_noise == 0 or not math.isfinite(self.error.E):
            return None
        return radius.param_radius(kappa, self.error.E / self.defence.sigma_noise)

    @cached_property
    def _balls(self) -> tuple[tuple[tuple[float, ...], float], ...]:
        pairs = ((w.center, self.whitened_radius(w)) for w in self.windows)
        return tuple((center, r) for center, r in pairs if r is not None)

    def covers(self, box: Box) -> bool:
        """True if every γ of the box is certified (False may also mean that the subdivision was too coarse to see)."""
        gamma = self.threat.box
        if not (gamma.contains(box.lower) and gamma.contains(box.upper)):
            return False
        return self._covered(box.lower, box.upper, depth=7 * box.dim)

    def _covered(self, lower: tuple[float, ...], upper: tuple[float, ...], depth: int) -> bool:
        sigma = self.defence.sigma_param
        corner = list(zip(lower, upper, sigma, strict=True))
        for center, r in self._balls:
            far = (max(abs(lo - c), abs(hi - c)) / s for (lo, hi, s), c in zip(corner, center, strict=True))
            if math.hypot(*far) < r:
                return True
        near = (
            math.hypot(*(max(lo - c, c - hi, 0.0) / s for (lo, hi, s), c in zip(corner, center, strict=True))) < r
            for center, r in self._balls
        )
        if depth == 0 or not any(near):
            return False
        axis = max(range(len(corner)), key=lambda i: (upper[i] - lower[i]) / sigma[i])
        middle = (lower[axis] + upper[axis]) / 2
        first = (*upper[:axis], middle, *upper[axis + 1 :])
        second = (*lower[:axis], middle, *lower[axis + 1 :])
        return self._covered(lower, first, depth - 1) and self._covered(second, upper, depth - 1)

    @cached_property
    def reach(self) -> Box | None:
        """The largest multiple t·Γ, 0 ≤ t ≤ 1, that is certified (t rounded down); None if not even γ = 0 is."""
        box = self.threat.box
        if self.covers(box):
            return box
        if not self.covers(box.scaled(0.0)):
            return None
        good, bad = 0.0, 1.0
        for _ in range(30):
            middle = (good + bad) / 2
            good, bad = (middle, bad) if self.covers(box.scaled(middle)) else (good, middle)
        return box.scaled(good)

    def __str__(self) -> str:
        reach = self.reach
        if self.abstains or reach is None:
            return f"Abstains: {self.reason or 'the votes are too close for this error bound'}."
        t = self.threat.transform
        axes = []
        for lo, hi in zip(reach.lower, reach.upper, strict=True):
            low, high = t.to_text(lo), t.to_text(hi)
            axes.append(f"±{high}" if low == f"-{high}" else f"{low} … +{high}")
        span = " × ".join(axes)
        pixels = f"{'rounded' if self.threat.quantized else 'unrounded'}, {self.threat.interpolation}"
        claim = f"label {self.label} is kept under every {t.noun} within {span} ({pixels})"
        if self.kind is Kind.HEURISTIC:
            return f"HEURISTIC, not a proof: {claim}; nominal confidence {1 - self.alpha:g}."
        return f"{claim[0].upper()}{claim[1:]}, with confidence {1 - self.alpha:g}."

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON types, sealed; `derived` repeats what follows from the rest."""
        reach = self.reach
        body = {
            "method": self.method,
            "form": self.form,
            "label": self.label,
            "threat": self.threat.to_dict(),
            "defence": self.defence.to_dict(),
            "error": asdict(self.error),
            "windows": [asdict(w) for w in self.windows],
            "alpha": self.alpha,
            "ledger": self.ledger,
            "classes": self.classes,
            "alpha_inner": self.alpha_inner,
            "seed": self.seed,
            "model": self.model,
            "version": self.version,
            "passes": self.passes,
            "seconds": self.seconds,
            "reason": self.reason,
            "derived": {
                "kind": self.kind,
                "rho": self.error.rho,
                "p_lower": [self.p_lower(w) for w in self.windows],
                "kappa": [self.kappa(w) for w in self.windows],
                "radius": [self.whitened_radius(w) for w in self.windows],
                "reach": asdict(reach) if reach else None,
                "sentence": str(self),
            },
        }
        return seal(json.loads(json.dumps(body)))

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Certificate:
        """Reads what `to_dict` wrote and redoes the arithmetic: a ValueError names the first field that does not
        follow.
        """
        body = unseal(d)
        stored = body.pop("derived")
        windows = tuple(Window(**(w | {"center": tuple(w["center"])})) for w in body["windows"])
        certificate = cls(
            **body
            | {
                "threat": Threat.from_dict(body["threat"]),
                "defence": Defence.from_dict(body["defence"]),
                "error": ErrorBound(**(body["error"] | {"kind": Kind(body["error"]["kind"])})),
                "windows": windows,
                "ledger": tuple((purpose, amount) for purpose, amount in body["ledger"]),
            }
        )
        certificate._check_alpha()
        redone = certificate.to_dict()["derived"]
        for name in redone.keys() | stored.keys():
            if not _same(redone.get(name), stored.get(name)):
                raise ValueError(f"{name} is {stored.get(name)!r}, but the counts give {redone.get(name)!r}")
        return certificate

    def _check_alpha(self) -> None:
        ledger = stats.Ledger(self.alpha)
        for purpose, amount in self.ledger:
            ledger.spend(purpose, amount)
        used = math.fsum((self.error.alpha, *(w.alpha for w in self.windows)))
        if used > ledger.spent * (1 + 1e-9):
            raise ValueError(f"the bounds use α = {used:g}, but the ledger shows only {ledger.spent:g}")


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float | int):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    return bool(a == b)


def _digest(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def seal(body: dict[str, Any]) -> dict[str, Any]:
    """The dictionary with a digest of its content: shows accidental edits, not forgery."""
    return body | {"digest": _digest(body)}


def unseal(sealed: dict[str, Any]) -> dict[str, Any]:
    """The content, if the digest matches; a ValueError otherwise."""
    body = {k: v for k, v in sealed.items() if k != "digest"}
    if sealed.get("digest") != _digest(body):
        raise ValueError("the digest does not match: a field was edited")
    return body
