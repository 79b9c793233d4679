"""The methods by name. Each takes a classifier on P-images and one x, spends one α, and returns a Certificate.

base_spt           BaseSPT: assumes that T composes; heuristic
dist_spt_x         DistSPT^x: the interpolation error of this x is bounded, (E, ρ); joint or nested theorem
dist_spt_d         DistSPT^D: (E, ρ) comes from a calibration that holds for a share q_E of the data
dist_spt_d_online  the same at an attacked x' whose original is unseen
indiv_spt          IndivSPT: at an attacked x', (E, ρ) for every original that can have led to it
cover              pixel noise alone: Γ in small windows, each tested at one image; or none, and a Lipschitz network
exact              no smoothing: the plain classifier on every image that the attacker can hand over
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates.certificate import ABSTAIN, NO_ERROR, Certificate, ErrorBound, Exhausted, Kind, Margins
from warpcert.classifier.defence import Defence
from warpcert.classifier.inner import Inner
from warpcert.classifier.levels import Coarse
from warpcert.classifier.voting import Logits, logits_of
from warpcert.errors.base import SupBound, bound_error, guess_and_test
from warpcert.errors.calibration import Calibration
from warpcert.errors.proved import Curve
from warpcert.exhaustive.verify import verify
from warpcert.methods.covering import Covering
from warpcert.methods.individual import ErrorTest, Individual
from warpcert.methods.margins import MarginCover
from warpcert.methods.run import Run, Sampling, check_fit
from warpcert.originals.lagrangian.inverse import Lagrangian
from warpcert.originals.protocol import InverseBound
from warpcert.threat import Threat
from warpcert.transforms import Preprocess
from warpcert.version import __version__
from warpcert.windows.cover import cover_windows

__all__ = ["base_spt", "cover", "dist_spt_d", "dist_spt_d_online", "dist_spt_x", "exact", "indiv_spt"]

MARGIN_SLACK = 1e-4  # of the largest logit (at least 1): stands for the rounding of float32 logits


def base_spt(
    classifier: Logits,
    x: Tensor,
    defence: Defence,
    threat: Threat,
    sampling: Sampling = Sampling(),
    *,
    inner: Inner | None = None,
    model: str = "",
) -> Certificate:
    """HEURISTIC: the label of g within σ_γ κ of x, as if T_β(q(T_γ x)) were T_{β+γ} x. Violations exist; use it to
    compare.
    """
    run = Run("base", "base", classifier, x, replace(defence, reference=None), threat, sampling, inner, model)
    return run.certify(NO_ERROR, sampling.alpha)


def dist_spt_x(
    classifier: Logits,
    x: Tensor,
    defence: Defence,
    threat: Threat,
    sampling: Sampling = Sampling(),
    *,
    sup: SupBound = Curve(),
    betas: int = 500,
    rank: int = 0,
    guessed: bool = False,
    inner: Inner | None = None,
    model: str = "",
) -> Certificate:
    """The label of g at q(T_γ x) for every γ in the certified set, with confidence 1 − α if `sup` is proved, else
    heuristic.

    Half of α buys (E, ρ) from `betas` draws: by the order-statistic rule (E is the largest value but `rank`), or, if
    `guessed`, the paper's way: guess E on a tenth of the draws and count on fresh ones how often it is exceeded. The
    other half buys the votes.
    """
    run = Run("dist-x", "joint", classifier, x, defence, threat, sampling, inner, model)
    alpha = run.ledger.spend("error bound", sampling.alpha / 2)
    if stats.exceedance_bound(betas, alpha, rank) >= 0.5:
        raise ValueError(f"{betas} β's can never bound ρ below ½ at α = {alpha:g} and rank {rank}; 500 is usual")
    if guessed:
        error = guess_and_test(sup, run.x, defence, threat, betas=betas, alpha=alpha, generator=run.generator)
    else:
        error = bound_error(sup, run.x, defence, threat, betas=betas, alpha=alpha, generator=run.generator, rank=rank)
    return run.certify(error, sampling.alpha / 2)


def dist_spt_d(
    classifier: Logits,
    x: Tensor,
    calibration: Calibration,
    sampling: Sampling = Sampling(),
    *,
    inner: Inner | None = None,
    model: str = "",
) -> Certificate:
    """As dist_spt_x, for the pictures whose error is within the calibration's (E, ρ): a share ≥ q_E of the data.

    Not "each certificate holds with probability q_E": certified accuracy on the data is at least the measured one minus
    (1 − q_E) minus α.
    """
    calibration.check_image(x)
    run = Run("dist-d", "joint", classifier, x, calibration.defence, calibration.threat, sampling, inner, model)
    return run.certify(calibration.error(), sampling.alpha, share=calibration.share())


def dist_spt_d_online(
    classifier: Logits,
    x_attacked: Tensor,
    calibration: Calibration,
    sampling: Sampling = Sampling(),
    *,
    model: str = "",
) -> Certificate:
    """g(x) = g(x') for the unseen x with x' = q(T_γ x), γ ∈ Γ, if x is in the calibration's share: all of Γ or nothing.

    The draws are fresh and secret unless a seed is given: who knows them can fit x' to them.
    """
    calibration.check_image(x_attacked)
    if sampling.windows != 1:
        raise ValueError("online certificates use one window: set windows = 1")
    run = Run(
        "dist-d-online",
        "attacked",
        classifier,
        x_attacked,
        calibration.defence,
        calibration.threat,
        sampling,
        None,
        model,
    )
    return run.certify(calibration.error(), sampling.alpha, share=calibration.share())


def indiv_spt(
    classifier: Logits,
    x_attacked: Tensor,
    defence: Defence,
    threat: Threat,
    sampling: Sampling = Sampling(),
    *,
    inverse: InverseBound = Lagrangian(),
    betas: int = 500,
    rank: int = 0,
    merged: bool = False,
    inner: Inner | None = None,
    model: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Certificate:
    """g(x) = g(x') = label with confidence 1 − α, for the unseen x with x' = q(T_γ x), γ ∈ Γ: all of Γ or nothing.

    `inverse` excludes what γ it can; in each window of the rest, β ~ N(−γ_j, σ_γ²) measure errors and votes. A tenth of
    α buys g(x') = label; the rest buys (E, ρ) and votes of the one window that holds γ (merged: the votes alone, of
    those β whose error is within E). The draws are secret unless a seed is given.
    """
    test = ErrorTest(betas, rank, merged)
    return Individual(
        classifier, x_attacked, defence, threat, sampling, inverse, test, inner, model, progress
    ).certify()


def cover(
    classifier: Logits,
    x: Tensor,
    defence: Defence,
    threat: Threat,
    sampling: Sampling = Sampling(),
    *,
    target: float = 0.5,
    rounded: bool = True,
    max_windows: int = 20_000,
    lipschitz: float | None = None,
    model: str = "",
) -> Certificate:
    """The label of g(z) = argmax_c P_δ(f(P z + δ) = c) at q(T_γ x) for all γ in the certified cells, confidence 1 − α.

    Γ is cut into windows whose images are provably within E_j ≈ target·σ_δ of the window's own image, at which an
    anytime-valid test with α/J and at most n samples must find P_δ(label) > Φ(E_j/σ_δ). From γ = 0 outwards; the first
    window that fails ends it. Of the defence, P and the pixel noise are used; parameters are not smoothed.

    Without pixel noise, PROVED: the label of the plain classifier f∘P, if its logit vector is `lipschitz`-Lipschitz in
    ℓ2 (by default what `classifier.lipschitz` declares, as the package's own networks do once they are verified). One
    forward pass per window, whose width follows the margin; `sampling` and `target` are not used.
    """
    x = check_fit(classifier, x, defence, threat)
    if lipschitz is None and defence.sigma_noise == 0:
        lipschitz = getattr(classifier, "lipschitz", None)
    if lipschitz is not None:
        refuse_tf32(x, MARGIN_SLACK)
        margins = Margins(float(lipschitz), MARGIN_SLACK)
        return MarginCover(classifier, x, defence, threat, margins, rounded).certify(max_windows, model)
    return Covering(classifier, x, defence, threat, sampling, model).certify(
        cover_windows(
            x, threat, defence.preprocess, target=target * defence.sigma_noise, rounded=rounded, max_windows=max_windows
        )
    )


def exact(
    classifier: Logits,
    x: Tensor,
    defence: Defence,
    threat: Threat,
    *,
    slack: float = 1e-4,
    tolerance: float | None = None,
    batch: int | None = None,
    model: str = "",
) -> Certificate:
    """PROVED: the plain classifier f∘P answers the same at q(T_γ x) for every γ in the largest t·Γ of which that can be
    proved; if t < 1, with the reason why it ends there and, where one was found, a counterexample outside.

    Of the defence only P is used. One parameter, 8-bit attacker, known x; to a classifier behind `Coarse` an attacker
    who does not round is the same, and the proof is cheaper.

    tolerance   how far what the attacker hands over may be from the exact T, per pixel: 10⁻¹², and 10⁻⁷ for one who
                does not round. That is T in float64, and what float32 makes of its result. Who computes T itself in
                float32 errs by more under rotation and scaling (4·10⁻⁶ was seen at 32×32): 5·10⁻⁷·(H + W) covers him
    slack       every image's leading logit must lead by this times the largest logit (at least 1), which stands for the
                rounding of logits: 10⁻⁴ in float32, 10⁻² for a network in half precision
    """
    x = check_fit(classifier, x, defence, threat)
    refuse_tf32(x, slack)
    start = time.perf_counter()
    plain = defence.without_parameter_noise(0.0)
    step = classifier.step if isinstance(classifier, Coarse) else 1
    if isinstance(classifier, Coarse) and plain.preprocess != Preprocess():
        raise ValueError(
            "a coarse classifier is exhausted on the attacker's pictures: it goes without vignette and blur"
        )
    if tolerance is None:
        tolerance = 1e-12 if threat.quantized else 1e-7

    def answer(z: Tensor) -> Tensor:
        return logits_of(classifier, plain.preprocess(z))

    verdict = verify(answer, x, threat, batch=batch, slack=slack, tolerance=tolerance, step=step)
    done, found = None, verdict.crossings
    if verdict.held is not None:
        done = Exhausted(verdict.images, found, verdict.smallest_margin, slack, verdict.scope, verdict.held, tolerance)
    isolation = ErrorBound(0.0, 0.0, Kind.PROVED, "crossings", cells=found, seconds=verdict.seconds_isolation)
    return Certificate(
        method="exact",
        form="exact",
        label=verdict.label if done else ABSTAIN,
        threat=threat,
        defence=plain,
        error=isolation,
        windows=(),
        alpha=0.0,
        ledger=(),
        classes=answer(x[None]).shape[1],
        exhausted=done,
        counterexample=None if verdict.gamma is None else (verdict.gamma,),
        model=model,
        version=__version__,
        passes=verdict.evaluated,
        seconds=time.perf_counter() - start,
        reason="" if verdict.verified else verdict.reason,
    )


def refuse_tf32(x: Tensor, slack: float) -> None:
    if x.is_cuda and torch.backends.cudnn.allow_tf32 and slack < 0.01:
        raise ValueError(
            "TF32 convolutions err by more than the slack on logits: set torch.backends.cudnn.allow_tf32 = False"
        )
