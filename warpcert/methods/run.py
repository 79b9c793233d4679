"""One certificate in the making: input validated, one ledger, one generator; guess the label, then test it in every
window.
"""

from __future__ import annotations

import math
import secrets
import time
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates.certificate import ABSTAIN, Certificate, ErrorBound, Window
from warpcert.classifier.defence import Defence
from warpcert.classifier.inner import Inner
from warpcert.classifier.nested import guess, robust_votes
from warpcert.classifier.voting import Logits, validate_classifier, validate_image, votes
from warpcert.threat import Threat
from warpcert.transforms import Box
from warpcert.version import __version__

__all__ = ["Run", "Sampling", "abstained", "check_fit", "window_centers"]


@final
@dataclass(frozen=True)
class Sampling:
    """How much to sample and at what risk.

    n samples in all, shared by the windows (per axis), after n0 free ones that guess the label; alpha for the whole
    certificate; `two_class` bounds the runner-up too; seed None draws a secret one; batch None chooses by device.
    """

    n: int = 10_000
    n0: int = 100
    alpha: float = 0.01
    windows: int = 1
    two_class: bool = False
    seed: int | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        stats.Ledger(self.alpha)
        for name in ("n", "n0", "windows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")

    def generator(self, device: torch.device) -> tuple[torch.Generator, int]:
        """A fresh generator on the device, and its seed."""
        seed = secrets.randbits(63) if self.seed is None else self.seed
        return torch.Generator(device=device).manual_seed(seed), seed


def check_fit(classifier: Logits, x: Tensor, defence: Defence, threat: Threat) -> Tensor:
    """x in float32; a ValueError unless it is legal and threat and defence speak of the same transformation."""
    validate_image(x, defence.transform)
    validate_classifier(classifier)
    if threat.transform != defence.transform:
        raise ValueError(f"the threat is {threat.transform.name}, but the defence is against {defence.transform.name}")
    return x.float()


def window_centers(box: Box, per_axis: int) -> list[tuple[float, ...]]:
    """Centres of a regular split of Γ into per_axis^d windows; a single window sits at γ = 0, where all certificates
    start.
    """
    if per_axis == 1:
        return [(0.0,) * box.dim]
    axes = [
        torch.tensor([lo + (hi - lo) * (2 * i + 1) / (2 * per_axis) for i in range(per_axis)], dtype=torch.float64)
        for lo, hi in zip(box.lower, box.upper, strict=True)
    ]
    return [tuple(p) for p in torch.cartesian_prod(*axes).reshape(-1, box.dim).tolist()]


@final
class Run:
    """The shared part of the methods that smooth over parameters."""

    def __init__(
        self,
        method: str,
        form: str,
        classifier: Logits,
        x: Tensor,
        defence: Defence,
        threat: Threat,
        sampling: Sampling,
        inner: Inner | None,
        model: str,
    ) -> None:
        x = check_fit(classifier, x, defence, threat)
        if not all(defence.sigma_param):
            raise ValueError(f"{method} needs parameter noise: set sigma_param > 0")
        if inner is None and form != "base" and defence.sigma_noise == 0:
            raise ValueError(f"{method} by joint sampling needs pixel noise to absorb the error: set sigma_noise > 0")
        if form == "attacked" and defence.reference is not None:
            raise ValueError(
                f"{method} does not know the original and goes without a reference: calibrate without one "
                f"(--reference {defence.interpolation})"
            )
        self.start = time.perf_counter()
        self.method, self.form = method, form if inner is None or form == "base" else "nested"
        self.classifier, self.x, self.inner, self.model = classifier, x, inner, model
        self.defence, self.threat, self.sampling = defence, threat, sampling
        self.sampled = defence.known if form == "joint" else defence  # x is an original, or it is not compared with one
        self.centers = window_centers(threat.box, sampling.windows)
        self.per_window = sampling.n // len(self.centers)
        self.generator, self.seed = sampling.generator(x.device)
        self.ledger = stats.Ledger(sampling.alpha)

    def certify(self, error: ErrorBound, alpha: float, **more: Any) -> Certificate:
        """Guesses the label, then tests it around every window's centre with alpha shared equally."""
        share = alpha / len(self.centers)
        self._check_n(share, error)
        guessed = self._guess()
        label, passes, windows = int(guessed.argmax()), self.sampling.n0, []
        for center in self.centers:
            self.ledger.spend(f"votes at {center}", share)
            window, used = self._test(label, center, share, error.E)
            windows.append(window)
            passes += used
        certificate = Certificate(
            method=self.method,
            form=self.form,
            label=label,
            threat=self.threat,
            defence=self.defence,
            error=error,
            windows=tuple(windows),
            alpha=self.sampling.alpha,
            ledger=self.ledger.entries,
            classes=len(guessed),
            alpha_inner=self.inner.alpha if self.inner else 0.0,
            seed=self.seed,
            model=self.model,
            version=__version__,
            passes=passes,
            seconds=time.perf_counter() - self.start,
            **more,
        )
        return certificate if certificate.reach else abstained(certificate, _why(certificate))

    def _guess(self) -> Tensor:
        s = self.sampling
        if self.inner is not None:
            return guess(self.inner, self.sampled, self.x, s.n0, self.generator, s.batch)
        return votes(self.classifier, self.sampled, self.x, s.n0, self.generator, batch=s.batch)

    def _test(self, label: int, center: tuple[float, ...], alpha: float, E: float) -> tuple[Window, int]:
        n, s = self.per_window, self.sampling
        if self.inner is not None:
            k, passes = robust_votes(
                self.inner, self.sampled, self.x, label, E, n, self.generator, center=center, batch=s.batch
            )
            return Window(center, k, n, alpha), passes
        counts = votes(self.classifier, self.sampled, self.x, n, self.generator, center, s.batch)
        k = int(counts[label])
        counts[label] = -1
        return Window(center, k, n, alpha, int(counts.max()) if s.two_class else None), n

    def _check_n(self, alpha: float, error: ErrorBound) -> None:
        """n unanimous votes must be able to certify something: p = α^(1/n) > ½ + ρ."""
        if error.rho >= 0.5:
            return  # no n would do: the certificate abstains and says why
        needed = stats.samples_needed(0.5 + error.rho, alpha)
        if self.per_window < needed:
            raise ValueError(
                f"n = {self.sampling.n} is too small ever to certify: {len(self.centers)} window(s) need at least "
                f"n = {needed * len(self.centers)}; raise n (10 000 is usual) or α"
            )


def abstained(c: Certificate, reason: str) -> Certificate:
    """The same record with the label withheld and the reason said."""
    return replace(c, label=ABSTAIN, reason=reason)


def _why(c: Certificate) -> str:
    if not math.isfinite(c.error.E):
        return "the error analysis gave no finite bound"
    if c.error.rho >= 0.5:
        return f"ρ = {c.error.rho:.3g} is too large: too few β's, or too many of them beyond E"
    p = max(c.p_lower(w) for w in c.windows)
    ratio = c.error.E / c.defence.sigma_noise if c.form in ("joint", "attacked") else 0.0
    votes_ = f"the votes for class {c.label} reach p ≥ {p:.4f}"
    return f"{votes_}, too little for E/σ_δ = {ratio:.3g} and ρ = {c.error.rho:.3g}"
