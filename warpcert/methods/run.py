"""Votes over parameters in the making: one ledger, one generator; guess the label, then test it in every window."""

from __future__ import annotations

import math
import time
from typing import Any, final

import torch
from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates import ErrorBound, Voted, Window, abstained
from warpcert.classifier import Classifier
from warpcert.classifier.defence import Defence
from warpcert.classifier.nested import guess, robust_votes
from warpcert.classifier.voting import votes
from warpcert.methods.base import Sampling, subject
from warpcert.threat import Threat
from warpcert.transforms import Box
from warpcert.version import __version__

__all__ = ["Votes", "window_centers"]


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
class Votes:
    """The shared part of base, dist-x and dist-d: votes around every window's centre, at an original or (form
    "attacked") at what the attacker handed over.
    """

    def __init__(
        self, method: Sampling, form: str, classifier: Classifier, x: Tensor, threat: Threat, defence: Defence
    ) -> None:
        self.start = time.perf_counter()
        self.inner = classifier.inner
        self.method, self.form = method, form if self.inner is None or form == "base" else "nested"
        self.classifier, self.x, self.threat, self.defence = classifier, x, threat, defence
        self.sampled = defence.known if form == "joint" else defence  # x is an original, or it is not compared with one
        self.centers = window_centers(threat.box, method.windows)
        self.per_window = method.n // len(self.centers)
        self.generator, self.seed = method.generator(x.device)
        self.ledger = stats.Ledger(method.alpha)

    def certify(self, error: ErrorBound, alpha: float, **more: Any) -> Voted:
        """Guesses the label, then tests it around every window's centre with alpha shared equally."""
        share = alpha / len(self.centers)
        self._check_n(share, error)
        guessed = self._guess()
        label, passes, windows = int(guessed.argmax()), self.method.n0, []
        for center in self.centers:
            self.ledger.spend(f"votes at {center}", share)
            window, used = self._test(label, center, share, error.E)
            windows.append(window)
            passes += used
        certificate = Voted(
            method=self.method.name,
            form=self.form,
            label=label,
            threat=self.threat,
            defence=self.defence,
            error=error,
            windows=tuple(windows),
            alpha=self.method.alpha,
            ledger=self.ledger.entries,
            classes=len(guessed),
            scores=tuple(guessed.tolist()),
            alpha_inner=self.inner.alpha if self.inner and self.form == "nested" else 0.0,
            seed=self.seed,
            classifier=subject(self.classifier),
            version=__version__,
            passes=passes,
            seconds=time.perf_counter() - self.start,
            **more,
        )
        return certificate if certificate.reach else abstained(certificate, _why(certificate))

    def _guess(self) -> Tensor:
        s = self.method
        if self.inner is not None:
            return guess(self.inner, self.sampled, self.x, s.n0, self.generator, s.batch)
        return votes(self.classifier.logits, self.sampled, self.x, s.n0, self.generator, batch=s.batch)

    def _test(self, label: int, center: tuple[float, ...], alpha: float, E: float) -> tuple[Window, int]:
        n, s = self.per_window, self.method
        if self.inner is not None:
            k, passes = robust_votes(
                self.inner, self.sampled, self.x, label, E, n, self.generator, center=center, batch=s.batch
            )
            return Window(center, k, n, alpha), passes
        counts = votes(self.classifier.logits, self.sampled, self.x, n, self.generator, center, s.batch)
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
                f"n = {self.method.n} is too small ever to certify: {len(self.centers)} window(s) need at least "
                f"n = {needed * len(self.centers)}; raise n (10 000 is usual) or α"
            )


def _why(c: Voted) -> str:
    if not math.isfinite(c.error.E):
        return "the error analysis gave no finite bound"
    if c.error.rho >= 0.5:
        return f"ρ = {c.error.rho:.3g} is too large: too few β's, or too many of them beyond E"
    p = max(c.p_lower(w) for w in c.windows)
    ratio = c.error.E / c.defence.sigma_noise if c.law.absorbs else 0.0
    short = f"the votes for class {c.label} reach p ≥ {p:.4f}, too little for E/σ_δ = {ratio:.3g}"
    if ratio > 2:
        return f"{short}: the error is too large for this noise; add a vignette and blur, or more noise"
    return f"{short} and ρ = {c.error.rho:.3g}"
