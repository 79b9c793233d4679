"""The methods by name. Each takes a classifier on P-images, one x, a defence and a threat, spends one α, and returns a
Certificate.

base_spt    BaseSPT: assumes that T composes; heuristic
dist_spt_x  DistSPT^x: the interpolation error of this x is bounded (E, ρ), then the joint or nested theorem applies
"""

from __future__ import annotations

import math
import secrets
import time
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from warpcert import stats
from warpcert.bounds.error import SupBound, bound_error
from warpcert.bounds.sampled import Sampled
from warpcert.certificate import ABSTAIN, NO_ERROR, Certificate, ErrorBound, Window
from warpcert.smoothing.inner import Inner
from warpcert.smoothing.joint import Classifier, validate_image, votes
from warpcert.smoothing.nested import guess, robust_votes
from warpcert.threat import Defence, Threat
from warpcert.transforms import Box
from warpcert.version import __version__

__all__ = ["Sampling", "base_spt", "dist_spt_x", "window_centers"]


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
        if self.n0 < 1 or self.windows < 1:
            raise ValueError(f"n0 and windows must be at least 1; got {self.n0} and {self.windows}")
        if self.n < 1:
            raise ValueError(f"n must be at least 1; got {self.n}")


def base_spt(
    classifier: Classifier,
    x: Tensor,
    defence: Defence,
    threat: Threat,
    sampling: Sampling = Sampling(),
    *,
    inner: Inner | None = None,
    model: str = "",
) -> Certificate:
    """HEURISTIC: the label of g in a radius σ_γ κ around x, as if T_β(q(T_γ x)) were T_{β+γ} x. Violations exist; use
    it to compare.
    """
    run = _Run("base", classifier, x, defence, threat, sampling, inner, model)
    return run.certify(NO_ERROR, sampling.alpha)


def dist_spt_x(
    classifier: Classifier,
    x: Tensor,
    defence: Defence,
    threat: Threat,
    sampling: Sampling = Sampling(),
    *,
    sup: SupBound = Sampled(),
    betas: int = 500,
    rank: int = 0,
    inner: Inner | None = None,
    model: str = "",
) -> Certificate:
    """The label of g at q(T_γ x) for every γ in the certified set, with confidence 1 − α if `sup` is a proved bound,
    else heuristic.

    Half of α buys (E, ρ) from `betas` draws by the order-statistic rule, half the votes.
    """
    run = _Run("dist-x", classifier, x, defence, threat, sampling, inner, model)
    alpha = run.ledger.spend("error bound", sampling.alpha / 2)
    if stats.exceedance_bound(betas, alpha, rank) >= 0.5:
        raise ValueError(f"{betas} β's can never bound ρ below ½ at α = {alpha:g} and rank {rank}; 500 is usual")
    error = bound_error(sup, x, defence, threat, betas=betas, alpha=alpha, generator=run.generator, rank=rank)
    return run.certify(error, sampling.alpha / 2)


def window_centers(box: Box, per_axis: int) -> list[tuple[float, ...]]:
    """Centres of a regular split of Γ into per_axis^d windows; a single window sits at γ = 0, where the certificate
    starts.
    """
    if per_axis == 1:
        return [(0.0,) * box.dim]
    axes = [
        [lo + (hi - lo) * (2 * i + 1) / (2 * per_axis) for i in range(per_axis)]
        for lo, hi in zip(box.lower, box.upper, strict=True)
    ]
    return [
        tuple(p)
        for p in torch.cartesian_prod(*(torch.tensor(a, dtype=torch.float64) for a in axes))
        .reshape(-1, box.dim)
        .tolist()
    ]


@final
class _Run:
    """One certificate in the making: validated input, one ledger, one generator."""

    def __init__(
        self,
        method: str,
        classifier: Classifier,
        x: Tensor,
        defence: Defence,
        threat: Threat,
        sampling: Sampling,
        inner: Inner | None,
        model: str,
    ) -> None:
        validate_image(x, defence.transform)
        if threat.transform != defence.transform:
            raise ValueError(
                f"the threat is {threat.transform.name}, but the defence is against {defence.transform.name}"
            )
        if not all(defence.sigma_param):
            raise ValueError(f"{method} needs parameter noise: set sigma_param > 0")
        centers = window_centers(threat.box, sampling.windows)
        self.per_window = sampling.n // len(centers)
        if inner is None and method != "base" and defence.sigma_noise == 0:
            raise ValueError(f"{method} by joint sampling needs pixel noise to absorb the error: set sigma_noise > 0")
        self.start = time.perf_counter()
        self.method, self.classifier, self.x, self.inner, self.model = method, classifier, x, inner, model
        self.defence, self.threat, self.sampling, self.centers = defence, threat, sampling, centers
        self.seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
        self.generator = torch.Generator(device=x.device).manual_seed(self.seed)
        self.ledger = stats.Ledger(sampling.alpha)

    def certify(self, error: ErrorBound, alpha: float) -> Certificate:
        """Guesses the label, then tests it around every window's centre with alpha shared equally."""
        s = self.sampling
        self._check_n(alpha / len(self.centers), error)
        guessed = self._guess()
        label, classes = int(guessed.argmax()), len(guessed)
        passes = s.n0
        windows = []
        for center in self.centers:
            share = self.ledger.spend(f"votes at {center}", alpha / len(self.centers))
            window, used = self._test(label, center, share, error.E)
            windows.append(window)
            passes += used
        certificate = Certificate(
            method=self.method,
            form="base" if self.method == "base" else "joint" if self.inner is None else "nested",
            label=label,
            threat=self.threat,
            defence=self.defence,
            error=error,
            windows=tuple(windows),
            alpha=s.alpha,
            ledger=self.ledger.entries,
            classes=classes,
            alpha_inner=self.inner.alpha if self.inner else 0.0,
            seed=self.seed,
            model=self.model,
            version=__version__,
            passes=passes,
            seconds=time.perf_counter() - self.start,
        )
        return certificate if certificate.reach else _abstained(certificate)

    def _guess(self) -> Tensor:
        s = self.sampling
        if self.inner is not None:
            return guess(self.inner, self.defence, self.x, s.n0, self.generator, s.batch)
        return votes(self.classifier, self.defence, self.x, s.n0, self.generator, batch=s.batch)

    def _test(self, label: int, center: tuple[float, ...], alpha: float, E: float) -> tuple[Window, int]:
        n, s = self.per_window, self.sampling
        if self.inner is not None:
            k, passes = robust_votes(
                self.inner, self.defence, self.x, label, E, n, self.generator, center=center, batch=s.batch
            )
            return Window(center, k, n, alpha), passes
        counts = votes(self.classifier, self.defence, self.x, n, self.generator, center, s.batch)
        k = int(counts[label])
        counts[label] = -1
        return Window(center, k, n, alpha, int(counts.max()) if s.two_class else None), n

    def _check_n(self, alpha: float, error: ErrorBound) -> None:
        """n unanimous votes must be able to certify something: p = α^(1/n) > ½ + ρ."""
        needed = stats.samples_needed(0.5 + error.rho, alpha)
        if self.per_window < needed:
            raise ValueError(
                f"n = {self.sampling.n} is too small ever to certify: {len(self.centers)} window(s) need at least "
                f"n = {needed * len(self.centers)}; raise n (10 000 is usual) or α"
            )


def _abstained(c: Certificate) -> Certificate:
    """The same record with the label withheld and the reason said."""
    p = max(c.p_lower(w) for w in c.windows)
    ratio = c.error.E / c.defence.sigma_noise if c.form == "joint" else 0.0
    if not math.isfinite(c.error.E):
        reason = "the error analysis gave no finite bound"
    elif c.error.rho >= 0.5:
        reason = f"too few β for the error bound (ρ = {c.error.rho:.3f})"
    else:
        votes_ = f"the votes for class {c.label} reach p ≥ {p:.4f}"
        reason = f"{votes_}, too little for E/σ_δ = {ratio:.3g} and ρ = {c.error.rho:.3g}"
    return replace(c, label=ABSTAIN, reason=reason)
