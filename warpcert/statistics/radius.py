"""From probabilities to κ, the largest μ that a vote survives: certified iff μ < κ.

A class of probability p has, after the Gaussian noise is shifted by a whitened length μ, a probability between
Φ(Φ⁻¹(p) − μ) − ρ and Φ(Φ⁻¹(p) + μ) + ρ, where ρ bounds the probability that the shift is longer than stated
(Neyman–Pearson; half-spaces attain it). A parameter γ and an interpolation error of norm ≤ E together shift by
μ² = ‖γ‖²/σ_γ² + E²/σ_δ². Each κ below is this inequality solved for μ.

`None` means abstain. Results are rounded down: sums of probabilities go to the next float on the safe side, and each
quantile and radius gives up a relative 1e-12, far more than its floating-point error.
"""

from __future__ import annotations

import math

from scipy.special import ndtr, ndtri

__all__ = [
    "kappa_attacked",
    "kappa_no_abstain",
    "kappa_one",
    "kappa_two",
    "needed_margin",
    "needed_probability",
    "param_radius",
]

_SLACK = 1e-12


def kappa_one(p: float, rho: float = 0.0) -> float | None:
    """κ = Φ⁻¹(p) − Φ⁻¹(½+ρ): for μ < κ the class keeps more than half of the vote, so no other can win.

    p ≤ P(class) at the original image. None if p ≤ ½+ρ, in particular if ρ ≥ ½; inf for p = 1.
    """
    return kappa_no_abstain(p, rho, 0.0)


def kappa_no_abstain(p: float, rho: float, tau: float) -> float | None:
    """κ = Φ⁻¹(p) − Φ⁻¹(½+τ+ρ): for μ < κ the class keeps more than ½+τ, a lead that a vote of finite size can see."""
    _check(p=p, rho=rho, tau=tau)
    return _gap(p, math.nextafter(math.fsum((0.5, tau, rho)), 2.0))


def kappa_attacked(p: float, rho: float) -> float | None:
    """κ = Φ⁻¹(p−ρ): for μ < κ the class that has p at the *attacked* image has more than half at the original.

    With probability q at the original, p ≤ Φ(Φ⁻¹(q) + μ) + ρ, hence q ≥ Φ(Φ⁻¹(p−ρ) − μ). None unless p−ρ > ½.
    """
    _check(p=p, rho=rho)
    return _gap(math.nextafter(p - rho, -1.0) if rho else p, 0.5)


def kappa_two(p_a: float, p_b: float, rho: float = 0.0) -> float | None:
    """The κ for which μ < κ implies Φ(Φ⁻¹(p_a) − μ) − Φ(Φ⁻¹(p_b) + μ) > 2ρ: the class stays ahead of each other class.

    p_a ≤ P(class), p_b ≥ P(any other class), at the original image; each side loses ρ. For ρ = 0 this is
    ½(Φ⁻¹(p_a) − Φ⁻¹(p_b)). The left side decreases in μ: bisection, returning the end that was seen to hold.
    None if μ = 0 fails. With p_b = 1 − p_a it is `kappa_one`; a larger p_b is sound and useless.
    """
    _check(p_a=p_a, p_b=p_b, rho=rho)
    a, b = float(ndtri(p_a)), float(ndtri(p_b))

    def survives(mu: float) -> bool:
        return float(ndtr(a - mu)) * (1 - _SLACK) > (float(ndtr(b + mu)) + 2 * rho) * (1 + _SLACK)

    if not survives(0.0):
        return None
    if rho == 0 or a == -b == math.inf:
        double = _gap(p_a, p_b)
        return None if double is None else double / 2
    low, high = 0.0, 1.0
    while survives(high):
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if survives(middle) else (low, middle)
    return low or None


def param_radius(kappa: float, error_ratio: float) -> float | None:
    """r = √(κ² − (E/σ_δ)²): a parameter with ‖γ‖/σ_γ < r has μ < κ. In units of σ_γ; None if κ ≤ E/σ_δ.

    It holds within the parameters for which E was computed, and says nothing outside of them.
    """
    if math.isnan(kappa) or not error_ratio >= 0:
        raise ValueError(f"kappa = {kappa}, error_ratio = {error_ratio}: expected numbers, error_ratio = E/sigma >= 0")
    if kappa <= error_ratio:
        return None
    return math.sqrt(kappa - error_ratio) * math.sqrt(kappa + error_ratio) * (1 - _SLACK)


def _gap(p: float, q: float) -> float | None:
    """At most Φ⁻¹(p) − Φ⁻¹(q); None unless positive."""
    if p <= q:
        return None
    gap = sum(z * (1 - math.copysign(_SLACK, z)) for z in (float(ndtri(p)), -float(ndtri(q))))
    return gap if gap > 0 else None


def _check(**probabilities: float) -> None:
    for name, value in probabilities.items():
        if not 0 <= value <= 1:  # also refuses NaN
            raise ValueError(f"{name} = {value}: expected a probability, 0 <= {name} <= 1; give a bound from stats")


def needed_margin(E: float, lipschitz: float) -> float:
    """A class whose logit leads by more than this is not overtaken within E, if the logit vector is `lipschitz`-
    Lipschitz in ℓ2: the difference of two logits is ⟨e_a − e_b, ·⟩, and ‖e_a − e_b‖ = √2.
    """
    if not (E >= 0 and lipschitz > 0):
        raise ValueError(f"E = {E}, L = {lipschitz}: expected E >= 0 and L > 0")
    return math.sqrt(2) * lipschitz * E * (1 + _SLACK)


def needed_probability(E: float, sigma: float) -> float | None:
    """p₀ ≥ Φ(E/σ): a class with P_δ(class) > p₀ at an image wins at every image within E of it in ℓ2 (Cohen et al.
    2019).

    Rounded up; None where no probability below 1 is enough.
    """
    if not (E >= 0 and sigma > 0):
        raise ValueError(f"E = {E}, sigma = {sigma}: expected E >= 0 and sigma > 0")
    p0 = max(0.5, float(ndtr(E / sigma))) * (1 + _SLACK)
    return p0 if p0 < 1 - 1e-9 else None
