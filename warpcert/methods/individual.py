"""IndivSPT in the making. Only x' is known: which originals are possible, then errors and votes in every window of γ
that is left.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, final

import torch
from scipy.special import ndtr
from torch import Tensor

from warpcert import statistics as stats
from warpcert.certificates import ErrorBound, Individual, Kind, Window, abstained
from warpcert.classifier import Classifier
from warpcert.classifier.votes.nested import Ball, guess, robust_votes
from warpcert.classifier.votes.voting import Draws, add_noise, votes
from warpcert.methods.base import Progress, deadline, subject
from warpcert.methods.outlook.remedies import LARGE, against_error, against_votes, with_time
from warpcert.methods.survivors import excluded, possible_windows
from warpcert.numerics.deadline import TimeOverError, limited
from warpcert.originals.named import named
from warpcert.originals.protocol import Originals
from warpcert.threat import Threat
from warpcert.transforms import Box
from warpcert.version import __version__

if TYPE_CHECKING:
    from warpcert.methods.indiv import Indiv

__all__ = ["CENTRED", "Unseen"]

CENTRED = 0.1  # the share of α and of n that the vote at x' itself gets


@final
class Unseen:
    """One certificate about an attacked picture and its unseen original."""

    def __init__(
        self, method: Indiv, classifier: Classifier, x_attacked: Tensor, threat: Threat, progress: Progress | None
    ) -> None:
        self.start, self.until = time.perf_counter(), deadline(method.time_limit)
        self.x = _read(x_attacked, threat) if threat.quantized else x_attacked
        self.classifier, self.inner, self.method = classifier, classifier.inner, method
        self.defence, self.threat = classifier.defence(threat.transform), threat
        self.inverse, self.progress = named(method.inverse, method.refinements), progress
        self.generator, self.seed = method.generator(x_attacked.device)
        self.votes_first = self.inner is None and not method.merged
        self.passes, self.analysis = 0, 0.0
        self.turn, self.share, self.told = 0, 1.0, 0  # windows that are done, what each is of all, thousandths told
        self.ledger = stats.Ledger(method.alpha)
        rest = (1 - CENTRED) * method.alpha
        self.alpha_centred = self.ledger.spend("votes at x'", CENTRED * method.alpha)
        self.alpha_error = 0.0
        if not method.merged:
            self.alpha_error = self.ledger.spend("error bound, once: in the window that holds γ", rest / 2)
        self.alpha_votes = self.ledger.spend("votes, once: in the window that holds γ", rest - self.alpha_error)

    def certify(self) -> Individual:
        """Label, originals, the vote at x', then each window until one fails; all of it until the time is over."""
        guessed = self._guess()
        self.made = self._blank(int(guessed.argmax()), tuple(guessed.tolist()))
        try:
            with limited(self.until):
                return self._analysed(self.made)
        except TimeOverError:
            return self._finished(self.made, with_time(self.method.time_limit))

    def _analysed(self, made: Individual) -> Individual:
        originals, label = self.inverse.survivors(self.x, self.threat), made.label
        self.analysis += originals.seconds
        groups = possible_windows(originals, self.threat.box, self.method.windows)
        n = self._samples(len(groups))
        error = replace(made.error, cells=originals.examined)
        self.made = made = replace(made, error=error, excluded=excluded(originals, self.threat.box))
        if not groups:
            return self._finished(made, self._outside())
        centred = self._vote(label, (0.0,) * self.threat.box.dim, int(CENTRED * self.method.n), self.alpha_centred)
        self.made = made = replace(made, centred=centred)
        if made.p_lower(centred) <= 0.5:
            advice = against_votes(made.p_lower(centred), 0.5, centred.k == centred.n)
            return self._finished(made, f"at this picture itself, class {label}: {advice}")
        self.share = 1 / len(groups)
        for turn, (part, voted) in enumerate(self._voted(made, groups, n)):
            self.turn = turn
            window = self._window(made, part, voted)
            if window is None:
                assert voted.cell is not None
                self.made = made = replace(made, impossible=(*made.impossible, voted.cell))
                continue
            worst = max(made.error.E, window.E)
            ordered = tuple(sorted((*made.windows, window), key=lambda w: w.center))
            self.made = made = replace(made, windows=ordered, error=replace(made.error, E=worst))
            if not made.vouches(window):
                return self._finished(made, self._why(made, window))
        return self._finished(made, "" if made.windows else self._outside())

    def _voted(self, made: Individual, groups: list[tuple[Originals, Box]], n: int) -> list[tuple[Originals, Window]]:
        """The windows, without E. With two parameters and joint sampling with their votes, those that forgive least
        first: a window that cannot be certified is found before any error is analysed.
        """
        windows = [(part, Window(hull.center, 0, n, self.alpha_votes, cell=hull)) for part, hull in groups]
        if not self.votes_first:
            return windows
        made_of = [
            (part, replace(w, k=self._vote(made.label, tuple(-c for c in w.center), n, self.alpha_votes).k))
            for part, w in windows
        ]
        return sorted(made_of, key=lambda each: made.kappa(each[1]) or 0.0)

    def _window(self, made: Individual, originals: Originals, voted: Window) -> Window | None:
        """E and votes around −γ_j; None if every cell of the window turned out to be impossible.

        If the votes came first, E is sharpened only until they are enough for it: whatever they were, E is at least
        the largest of the true suprema.
        """
        hull = voted.cell
        assert hull is not None
        test, center, label, n = self.method, tuple(-c for c in hull.center), made.label, voted.n
        first = max(1, test.betas // 10) if test.merged else test.betas
        enough = self._enough(made.kappa(voted), hull) if self.votes_first else 0.0
        V = self._errors(originals, hull, self.defence.draw_beta(first, self.generator, center), enough)
        if V is None:
            return None
        E = float(V.sort(descending=True).values[test.rank])
        if self.votes_first:
            return replace(voted, E=E)
        if not test.merged:
            k = 0 if math.isinf(E) else self._vote(label, center, n, self.alpha_votes, E).k
            return replace(voted, k=k, E=E)
        beta = self.defence.draw_beta(test.betas, self.generator, center)
        V = self._errors(originals, hull, beta)
        if V is None:
            return None
        k = self._merged_votes(label, beta, V, 1.02 * E)
        return Window(hull.center, k, test.betas, self.alpha_votes, cell=hull, E=1.02 * E)

    def _told(self, done: int, of: int) -> None:
        """Of the analysis of one window: what is done of all."""
        if self.progress is not None:
            self.told = max(self.told, int(1000 * self.share * (self.turn + done / max(1, of))))
            self.progress(self.told, 1000)

    def _enough(self, kappa: float | None, hull: Box) -> float:
        """The error that κ forgives in a window: √(far² + E²/σ_δ²) < κ; inf if it forgives none, so that any bound will
        do to say so.
        """
        left = (kappa or 0.0) ** 2 - self._far(hull) ** 2
        return self.defence.sigma_noise * math.sqrt(left) * (1 - 1e-6) if left > 0 else math.inf

    def _errors(self, originals: Originals, hull: Box, beta: Tensor, enough: float = 0.0) -> Tensor | None:
        """V [n]: for each cell k of the window d_k² + U_k²/σ_δ² ≤ d² + V²/σ_δ², with d_k and d the largest
        ‖(γ−γ_j)/σ_γ‖ in the cell and in the hull and U_k the bound of the error: cells near the centre may err more.
        Nested: V = max U_k. None if no cell is possible; a cell that is impossible for one β is so for all.
        """
        start = time.perf_counter()
        U = self.inverse.errors(originals, self.defence, beta, enough=enough, progress=self._told)
        self.analysis += time.perf_counter() - start
        if bool(U.isnan().any()):
            raise ValueError("the error analysis returned NaN")
        left = ~U.isneginf().any(0)
        if not bool(left.any()):
            return None
        U = U[:, left].double().clamp_min(0)
        if self.inner is None:
            center, corner, sigma = (
                torch.tensor(v, dtype=torch.float64, device=U.device)
                for v in (hull.center, hull.upper, self.defence.sigma_param)
            )
            ends = torch.stack((originals.low[left], originals.high[left]))
            near = ((ends - center).abs().amax(0) / sigma).square().sum(1)
            far = ((corner - center) / sigma).square().sum()
            nearer = (far * (1 - 1e-9) - near * (1 + 1e-9)).clamp_min(0)
            U = (U.square() - self.defence.sigma_noise**2 * nearer).clamp_min(0).sqrt() * (1 + 1e-12)
        return U.amax(1)

    @torch.no_grad()
    def _merged_votes(self, label: int, beta: Tensor, V: Tensor, E: float) -> int:
        """For how many β the label is answered and V ≤ E; nested: h is the label on the whole ball of radius V."""
        k, size = 0, self.method.batch or 256
        for b, v in zip(torch.split(beta, size), torch.split(V, size), strict=True):
            views = self.defence.view(self.x, b)
            if self.inner is not None:
                good, used = self.inner.accepts(views, label, v, self.generator)
            else:
                noisy = add_noise(views, self.defence.sigma_noise, self.generator)
                good, used = (self.classifier.logits(noisy).argmax(1) == label) & (v <= E), len(b)
            k += int(good.sum())
            self.passes += used
        return k

    def _vote(self, label: int, center: tuple[float, ...], n: int, alpha: float, E: float = 0.0) -> Window:
        draws = Draws(self.generator, center, self.method.batch)
        if self.inner is not None:
            k, used = robust_votes(self.inner, self.defence, self.x, Ball(label, E), n, draws)
        else:
            k, used = int(votes(self.classifier.logits, self.defence, self.x, n, draws)[label]), n
        self.passes += used
        return Window(center, k, n, alpha)

    def _guess(self) -> Tensor:
        s = self.method
        self.passes += s.n0
        if self.inner is not None:
            return guess(self.inner, self.defence, self.x, s.n0, Draws(self.generator, batch=s.batch))
        return votes(self.classifier.logits, self.defence, self.x, s.n0, Draws(self.generator, batch=s.batch))

    def _samples(self, windows: int) -> int:
        """Votes per window; a ValueError if unanimous ones could not certify: p = α^(1/n) > ½ + ρ is needed."""
        test = s = self.method
        rho = 0.0 if test.merged else stats.exceedance_bound(test.betas, self.alpha_error, test.rank)
        if rho >= 0.5:
            raise ValueError(f"{test.betas} β's can never bound ρ below ½ at rank {test.rank}; 500 is usual")
        n = test.betas if test.merged else int((1 - CENTRED) * s.n) // max(1, windows)
        needed = stats.samples_needed(0.5 + rho, self.alpha_votes)
        centred = stats.samples_needed(0.5, self.alpha_centred)
        if n < needed or int(CENTRED * s.n) < centred:
            least = max(math.ceil(needed * max(1, windows) / (1 - CENTRED)), math.ceil(centred / CENTRED))
            raise ValueError(
                f"n = {s.n} is too small ever to certify {windows} window(s): at least n = {least} is needed"
                + (f" and betas = {needed}" if test.merged else "")
            )
        return n

    def _blank(self, label: int, scores: tuple[float, ...]) -> Individual:
        drawn = (0, 0) if self.method.merged else (self.method.betas, self.method.rank)
        return Individual(
            method=self.method.name,
            form="indiv" if self.inner is None else "indiv-nested",
            label=label,
            threat=self.threat,
            defence=self.defence,
            error=ErrorBound(0.0, self.alpha_error, Kind.PROVED, self.inverse.name, *drawn),
            windows=(),
            alpha=self.method.alpha,
            ledger=self.ledger.entries,
            classes=len(scores),
            scores=scores,
            alpha_inner=self.inner.alpha if self.inner else 0.0,
            excluded=0.0,
            seed=self.seed,
            classifier=subject(self.classifier),
            version=__version__,
        )

    def _finished(self, c: Individual, reason: str) -> Individual:
        done = replace(
            c,
            error=replace(c.error, seconds=self.analysis),
            passes=self.passes,
            seconds=time.perf_counter() - self.start,
        )
        return abstained(done, reason) if reason else done

    def _why(self, c: Individual, window: Window) -> str:
        place = c.threat.transform.place(window.cell) if window.cell else ""
        sigma = c.defence.sigma_noise
        ratio = window.E / sigma if sigma else math.inf if math.isinf(window.E) else 0.0
        if self.votes_first and window.cell and math.isinf(self._enough(c.kappa(window), window.cell)):
            ratio = 0.0  # no error would be small enough for these votes, so none was analysed
        if ratio > LARGE:
            return f"if it came from {place}, {against_error(self.classifier, self.threat, ratio)}"
        far = self._far(window.cell) if window.cell else 0.0
        p, needed = c.p_lower(window), float(ndtr(math.hypot(ratio, far))) + c.error.rho
        return f"if it came from {place}, {against_votes(p, min(needed, 1.0), window.k == window.n)}"

    def _far(self, cell: Box) -> float:
        """From the middle of a cell to its corner, in units of σ_γ."""
        ends = zip(cell.lower, cell.upper, self.defence.sigma_param, strict=True)
        return math.sqrt(math.fsum(((hi - lo) / 2 / sigma) ** 2 for lo, hi, sigma in ends))

    def _outside(self) -> str:
        t = self.threat.transform
        return f"outside the threat model: no original leads here by a {t.noun} within {t.span(self.threat.box)}"


def _read(x: Tensor, threat: Threat) -> Tensor:
    """x' as the 8-bit values that it stands for; a ValueError if it has others."""
    exact = threat.transform.quantize(x)
    if bool(((x - exact).abs() > 1e-6).any()):
        levels = round(1 / threat.transform.step)
        raise ValueError(
            f"the attacker of this threat hands over 8-bit pictures, values k/{levels}, but x' has others: "
            "round it (threat.transform.quantize), or say quantized=False"
        )
    return exact
