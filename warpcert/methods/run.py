"""Votes over parameters in the making: one ledger, one generator; guess the label, then test it in every window."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, final

import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates import NO_ERROR, ErrorBound, Voted, Window, abstained
from warpcert.classifier import Classifier
from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.nested import Ball, guess, robust_votes
from warpcert.classifier.votes.voting import Draws, batch_size, votes
from warpcert.methods.base import Progress, Sampling, deadline, subject
from warpcert.methods.outlook.remedies import LARGE, against_error, against_votes, with_time
from warpcert.numerics.deadline import TimeOverError, limited
from warpcert.threat import Threat
from warpcert.transforms import Box
from warpcert.version import __version__

__all__ = ["Votes", "window_centers"]

BATCHES = 8  # of votes, after which progress is told


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

    All votes are counted, so that no count depends on the clock; if time is up before they are there, it abstains,
    which is always sound. `error` is the bound, as far as it is known.
    """

    def __init__(
        self,
        method: Sampling,
        form: str,
        classifier: Classifier,
        x: Tensor,
        threat: Threat,
        defence: Defence,
    ) -> None:
        self.start, self.until, self.done = time.perf_counter(), deadline(method.time_limit), 0
        self.progress: Progress | None = None
        self.error = NO_ERROR
        self.guessed: Tensor | None = None  # votes by class that choose the label
        self.inner = classifier.inner
        self.method, self.form = method, form if self.inner is None or form == "base" else "nested"
        self.classifier, self.x, self.threat, self.defence = classifier, x, threat, defence
        self.sampled = defence.known if form == "joint" else defence  # x is an original, or it is not compared with one
        self.centers = window_centers(threat.box, method.windows)
        self.per_window = method.n // len(self.centers)
        self.generator, self.seed = method.generator(x.device)
        self.ledger = stats.Ledger(method.alpha)

    def certify(
        self,
        alpha: float,
        progress: Progress | None = None,
        analyse: Callable[[], ErrorBound] | None = None,
        **more: Any,
    ) -> Voted:
        """Bounds the error, if that is left to do, guesses the label, and tests it around every window's centre with
        alpha shared equally.
        """
        self.progress = progress
        try:
            with limited(self.until):
                self.error = analyse() if analyse is not None else self.error
                windows, passes = self._windows(alpha / len(self.centers))
        except TimeOverError:
            doing = (
                "votes were still being counted" if self.guessed is not None else "the error was still being bounded"
            )
            made = self._certificate((), self.method.n0, more)
            return abstained(made, f"{with_time(self.method.time_limit)}; {doing}")
        certificate = self._certificate(tuple(windows), passes, more)
        return certificate if certificate.reach else abstained(certificate, self._why(certificate))

    def check_n(self, alpha: float, rho: float) -> None:
        """n unanimous votes must be able to certify something: p = α^(1/n) > ½ + ρ."""
        share = alpha / len(self.centers)
        if rho >= 0.5:
            return  # no n would do: the certificate abstains and says why
        needed = stats.samples_needed(0.5 + rho, share)
        if self.per_window < needed:
            raise ValueError(
                f"n = {self.method.n} is too small ever to certify: {len(self.centers)} window(s) need at least "
                f"n = {needed * len(self.centers)}; raise n (10 000 is usual) or α"
            )

    def _windows(self, alpha: float) -> tuple[list[Window], int]:
        """The windows with their votes, at α each, and the passes of all."""
        self.check_n(alpha * len(self.centers), self.error.rho)
        self.guessed = self._guess()
        label, passes, windows = int(self.guessed.argmax()), self.method.n0, []
        for center in self.centers:
            self.ledger.spend(f"votes at {center}", alpha)
            window, used = self._test(label, center, alpha, self.error.E)
            windows.append(window)
            passes += used
        return windows, passes

    def _certificate(self, windows: tuple[Window, ...], passes: int, more: dict[str, Any]) -> Voted:
        guessed = self._guess() if self.guessed is None else self.guessed
        return Voted(
            method=self.method.name,
            form=self.form,
            label=int(guessed.argmax()),
            threat=self.threat,
            defence=self.defence,
            error=self.error,
            windows=windows,
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

    def _guess(self) -> Tensor:
        s = self.method
        if self.inner is not None:
            return guess(self.inner, self.sampled, self.x, s.n0, Draws(self.generator, batch=s.batch))
        return votes(self.classifier.logits, self.sampled, self.x, s.n0, Draws(self.generator, batch=s.batch))

    def _test(self, label: int, center: tuple[float, ...], alpha: float, E: float) -> tuple[Window, int]:
        n, s = self.per_window, self.method
        draws = Draws(self.generator, center, s.batch)
        if self.inner is not None:
            k = passes = 0
            for some in self._portions():
                good, used = robust_votes(self.inner, self.sampled, self.x, Ball(label, E), some, draws)
                k, passes = k + good, passes + used
            return Window(center, k, n, alpha), passes
        logits = self.classifier.logits
        found = [votes(logits, self.sampled, self.x, some, draws) for some in self._portions()]
        counts = torch.stack(found).sum(0)
        k = int(counts[label])
        counts[label] = -1
        return Window(center, k, n, alpha, int(counts.max()) if s.two_class else None), n

    def _portions(self) -> Iterator[int]:
        """The votes of a window in whole batches, so that the same are drawn as at once; says how far they are."""
        size = BATCHES * batch_size(self.x, self.method.batch)
        for start in range(0, self.per_window, size):
            yield (some := min(size, self.per_window - start))
            self.done += some
            if self.progress is not None:
                self.progress(self.done, self.per_window * len(self.centers))

    def _why(self, c: Voted) -> str:
        if c.error.rho >= 0.5:
            return f"ρ = {c.error.rho:.3g} is too large: draw more β's, or a larger E"
        ratio = c.error.E / c.defence.sigma_noise if c.law.absorbs or math.isinf(c.error.E) else 0.0
        if ratio > LARGE:
            return against_error(self.classifier, self.threat, ratio)
        best = max(c.windows, key=c.p_lower)
        rho = c.error.rho
        needed = ndtr(ratio) + rho if c.law.unseen else ndtr(ratio + float(ndtri(0.5 + rho)))  # κ > ratio
        return against_votes(c.p_lower(best), min(float(needed), 1.0), best.k == best.n)
