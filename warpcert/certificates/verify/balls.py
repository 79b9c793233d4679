"""Votes under parameter noise: κ and radii from the counts, and whether the balls cover what is claimed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta

from warpcert.certificates.evidence import Window
from warpcert.certificates.individual import Individual
from warpcert.certificates.verify.cells import layers
from warpcert.certificates.verify.common import refuse, spends
from warpcert.certificates.voted import Voted
from warpcert.transforms import Box

__all__ = ["individual", "voted"]

TINY = 1e-9  # relative: how far two computations of one number may differ


def _lower(k: int, n: int, alpha: float, inner: float = 0.0) -> float:
    p = float(beta.ppf(alpha, k, n - k + 1)) if k else 0.0
    return max(0.0, (p - inner) / (1 - inner))


def _rho(c: Voted | Individual) -> float:
    e = c.error
    if isinstance(c, Voted) and c.share is not None:
        s = c.share
        refuse(e.stated_rho is None or not 0 < e.stated_rho < 1, "a calibration states a ρ between 0 and 1")
        refuse(not (0 <= s.accepted <= s.images and 0 <= s.allowed < s.betas), "a calibration's counts do not fit")
        least = float(beta.isf(s.alpha_inner, s.allowed + 1, s.betas - s.allowed))
        assert e.stated_rho is not None
        refuse(least > e.stated_rho * (1 + 1e-9), f"{s.betas} β's per picture cannot show ρ ≤ {e.stated_rho:g}")
        return e.stated_rho
    return (
        float(beta.isf(e.alpha, e.exceeded + 1, e.betas - e.exceeded))
        if e.exceeded < e.betas
        else 1.0
        if e.betas
        else 0.0
    )


def _radius(c: Voted | Individual, w: Window, rho: float) -> float:
    """In units of σ_γ; 0 if nothing follows."""
    alpha = w.alpha / 2 if w.runner_up is not None else w.alpha
    p = _lower(w.k, w.n, alpha, c.alpha_inner if "nested" in c.form else 0.0)
    unseen = c.form not in ("joint", "nested", "base")
    if w.runner_up is not None:
        p_b = min(float(beta.isf(w.alpha / 2 / (c.classes - 1), w.runner_up + 1, w.n - w.runner_up)), 1 - p)
        kappa = _two(p, p_b, rho)
    else:
        kappa = float(ndtri(p - rho) if unseen else ndtri(p) - ndtri(0.5 + rho)) if p - rho > 0.5 else 0.0
    E = w.E if isinstance(c, Individual) else c.error.E
    if not kappa > 0 or "nested" in c.form or c.form == "base" or E == 0:
        return max(kappa, 0.0)
    ratio = E / c.defence.sigma_noise
    return math.sqrt(kappa**2 - ratio**2) if kappa > ratio else 0.0


def _two(p_a: float, p_b: float, rho: float) -> float:
    """The μ at which Φ(Φ⁻¹(p_a) − μ) − Φ(Φ⁻¹(p_b) + μ) = 2ρ, by bisection."""
    a, b, low, high = float(ndtri(p_a)), float(ndtri(p_b)), 0.0, 64.0
    if not ndtr(a) - ndtr(b) > 2 * rho:
        return 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if ndtr(a - middle) - ndtr(b + middle) > 2 * rho else (low, middle)
    return low


def _votes(c: Voted | Individual, windows: tuple[Window, ...]) -> None:
    for w in windows:
        refuse(not (0 <= w.k <= w.n and w.n >= 1 and 0 < w.alpha < 1), "votes: expected 0 ≤ k ≤ n and 0 < α < 1")
        refuse(len(w.center) != c.threat.box.dim or w.margin != 0, "a window of votes has a centre, and no margin")
        r = w.runner_up
        if r is not None:
            rest = w.n - w.k
            refuse(not math.ceil(rest / (c.classes - 1)) <= r <= rest, f"a runner-up with {r} of {rest} other votes")


def _balls(c: Voted | Individual) -> None:
    d, e, nested = c.defence, c.error, "nested" in c.form
    refuse(not all(s > 0 for s in d.sigma_param), "the classifier does not smooth over parameters")
    refuse(not nested and c.form != "base" and not d.sigma_noise > 0, f"{c.form} needs pixel noise")
    inner = nested and d.sigma_noise > 0
    refuse((c.alpha_inner > 0) != inner or not 0 <= c.alpha_inner < 1, "inner tests spend α_in, and only they do")
    refuse(d.reference is not None and c.form not in ("joint", "nested"), "a reference turns known originals")
    refuse(c.form == "base" and e.E != 0, "what is left out has no E")


def voted(c: Voted) -> bool:
    _balls(c)
    if c.abstains and not c.windows:  # its time was up
        return False
    _votes(c, c.windows)
    box, e = c.threat.box, c.error
    refuse(c.method == "dist-x" and not e.betas, "dist-x draws β's")
    refuse(any(w.cell is not None or w.E != 0 for w in c.windows), "windows of votes have no cells and no E")
    refuse(len({(w.n, w.alpha, w.runner_up is None) for w in c.windows}) != 1, "the windows share n and α equally")
    refuse(not _centred(c, len(c.windows)), "the windows do not split Γ evenly")
    spends(c.alpha, c.ledger, [e.alpha, *(w.alpha for w in c.windows)])
    samples = sum(w.n for w in c.windows)
    guesses = c.passes - samples if c.scores is None else int(sum(c.scores))
    refuse(guesses < 1 or any(s != int(s) or s < 0 for s in c.scores or ()), "scores are votes")
    simple = "nested" not in c.form and not (c.classifier.facts or {}).get("nested")
    refuse(simple and c.passes != samples + guesses, "the passes do not add up")
    if c.abstains:
        return False
    rho = _rho(c)
    radii = [_radius(c, w, rho) for w in c.windows]
    claimed = box if c.form == "attacked" else c.reach or box.scaled(0.0)
    held = _within(c, claimed, radii)
    refuse(c.reach is not None and not held, "the windows do not certify that range")
    return held


def _centred(c: Voted, count: int) -> bool:
    """Centres as a regular split of Γ has them; a single one lies at γ = 0."""
    lower, upper = (np.array(end) for end in (c.threat.box.lower, c.threat.box.upper))
    per_axis = round(count ** (1 / len(lower)))
    if per_axis ** len(lower) != count:
        return False
    if count == 1:
        return not any(c.windows[0].center)
    axes = [a + (b - a) * (2 * np.arange(per_axis) + 1) / (2 * per_axis) for a, b in zip(lower, upper, strict=True)]
    wanted = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(count, -1)
    return bool((abs(np.array([w.center for w in c.windows]) - wanted) <= 1e-9 * (upper - lower)).all())


Balls = list[tuple[NDArray[np.float64], float]]  # centre and radius in units of σ


def _within(c: Voted, box: Box, radii: list[float]) -> bool:
    """Whether the balls cover the box: on a line by sweeping, else by halving it."""
    balls = [(np.array(w.center), r) for w, r in zip(c.windows, radii, strict=True) if r > 0]
    sigma, lower, upper = (np.array(v) for v in (c.defence.sigma_param, box.lower, box.upper))
    if box.dim > 1:
        return _halved(lower, upper, [(m / sigma, r * (1 + TINY)) for m, r in balls], sigma, 40)
    reached, slack = float(lower[0]), TINY * max(abs(float(lower[0])), abs(float(upper[0])), float(sigma[0]))
    met = False
    for low, high in sorted((float((m - r * sigma)[0]), float((m + r * sigma)[0])) for m, r in balls):
        if low <= reached + slack and high >= reached - slack:
            reached, met = max(reached, high), True
    return met and reached >= float(upper[0]) - slack


def _halved(
    low: NDArray[np.float64], high: NDArray[np.float64], balls: Balls, sigma: NDArray[np.float64], depth: int
) -> bool:
    a, b = low / sigma, high / sigma
    if any(np.linalg.norm(np.maximum(abs(a - m), abs(b - m))) <= r for m, r in balls):
        return True
    near_ = [(m, r) for m, r in balls if np.linalg.norm(np.maximum(0, np.maximum(a - m, m - b))) <= r]
    if not depth or not near_:
        return False
    first, second, axis = high.copy(), low.copy(), int((b - a).argmax())
    first[axis] = second[axis] = (low[axis] + high[axis]) / 2
    return _halved(low, first, near_, sigma, depth - 1) and _halved(second, high, near_, sigma, depth - 1)


def individual(c: Individual) -> bool:
    """Whether every window vouches for its cell; what was not ruled out lies in the windows."""
    _balls(c)
    _votes(c, c.windows)
    _refuse_strange_windows(c)
    if c.abstains:
        return False
    refuse(c.centred is None or not c.windows, "votes are needed around β = 0 and in at least one window")
    assert c.centred is not None
    dearest = {(w.n, w.alpha) for w in c.windows}
    refuse(len(dearest) != 1, "the windows share n and α equally")
    spends(c.alpha, c.ledger, [c.error.alpha, c.windows[0].alpha, c.centred.alpha])
    refuse(max(w.E for w in c.windows) != c.error.E, "E is the largest of the windows'")
    _refuse_passes(c, c.centred.n)
    inner = c.alpha_inner if "nested" in c.form else 0.0
    settled = _lower(c.centred.k, c.centred.n, c.centred.alpha, inner) > 0.5
    rho, sigma = _rho(c), np.array(c.defence.sigma_param)
    for w in c.windows:
        assert w.cell is not None
        half = np.maximum(np.array(w.cell.upper) - w.center, np.array(w.center) - w.cell.lower)
        refuse(
            bool(np.linalg.norm(half / sigma) > _radius(c, w, rho) * (1 + TINY)), "a window does not vouch for its cell"
        )
    return settled


def _refuse_passes(c: Individual, centred: int) -> None:
    """Joint votes take a pass each; with two parameters they come first, before a window turns out to be impossible."""
    first = c.threat.box.dim > 1 and c.error.betas > 0
    voted = len(c.windows) + (len(c.impossible) if first else 0)
    samples = centred + voted * c.windows[0].n
    guesses = c.passes - samples if c.scores is None else int(sum(c.scores))
    refuse(guesses < 1 or ("nested" not in c.form and c.passes != samples + guesses), "the passes do not add up")


def _refuse_strange_windows(c: Individual) -> None:
    gamma, cells = c.threat.box, [w.cell for w in c.windows]
    for box in (*cells, *c.impossible):
        inside = box is not None and gamma.contains(box.lower) and gamma.contains(box.upper)
        refuse(not inside, "every window of an individual certificate is a cell of Γ")
    refuse(any(w.cell and w.cell.center != w.center for w in c.windows), "a window stands in the middle of its cell")
    refuse(
        any(w.runner_up is not None or not w.E >= 0 for w in c.windows), "E is not negative, and no runner-up counts"
    )
    if c.centred is not None:
        _votes(c, (c.centred,))
        strange = any(c.centred.center) or c.centred.cell or c.centred.E or c.centred.runner_up is not None
        refuse(bool(strange), "the centred votes lie around β = 0")
    refuse(c.excluded is None or not 0 <= c.excluded <= 1, "the share of Γ that is ruled out lies between 0 and 1")
    assert c.excluded is not None
    wide = [i for i in range(gamma.dim) if gamma.upper[i] > gamma.lower[i]]
    size = sum(math.prod(b.upper[i] - b.lower[i] for i in wide) for b in (*cells, *c.impossible) if b)
    ends = (np.array([getattr(b, end) for b in (*cells, *c.impossible) if b]) for end in ("lower", "upper"))
    refuse(bool(cells) and bool((layers(gamma, *ends) > 1).any()), "windows overlap")
    whole = math.prod(gamma.upper[i] - gamma.lower[i] for i in wide)
    left = (1 - c.excluded) * whole
    refuse(not c.abstains and size < left * (1 - TINY) - TINY * whole, "what was not ruled out lies in the windows")
