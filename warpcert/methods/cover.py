"""Covers: the range in small windows, each decided at one picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from warpcert.certificates import Certificate, Margins
from warpcert.classifier import Classifier
from warpcert.classifier.before.front import Front
from warpcert.classifier.votes.voting import logits_of
from warpcert.methods.base import Progress, Sampling, deadline, refuse_tf32, tells_tolerance
from warpcert.methods.covering import Covering
from warpcert.methods.margins import MarginCover
from warpcert.methods.outlook import windows as outlook
from warpcert.methods.outlook.forecast import Forecast
from warpcert.numerics.deadline import TimeOverError, limited
from warpcert.threat import Threat
from warpcert.windows.behind import cover_behind
from warpcert.windows.cover import Windows, cover_windows, unknown

__all__ = ["Cover"]


@final
@dataclass(frozen=True, kw_only=True)
class Cover(Sampling):
    """The label of g(z) = argmax_c P_δ(f(P z + δ) = c) at q(T_γ x) for all γ in the certified cells, confidence 1 − α.

    Γ is cut into windows whose images are provably within E_j ≈ target·σ_δ of the window's own image, at which an
    anytime-valid test with α/J and at most n samples must find P_δ(label) > Φ(E_j/σ_δ). From γ = 0 outwards; the first
    window that fails ends it.

    Of a classifier with a Lipschitz constant and no noise, PROVED: one forward pass per window, whose width follows the
    margin; n, α and target are not used.

    centres     "rounded" centre images, or "plain" ones (better against attackers who do not round)
    time_limit  seconds for one picture; no window is begun later, and what was accepted by then is certified. Sound
                whatever the clock depends on: the windows and the α/J of each are fixed before the first test, a test
                rejects falsely with probability at most α/J whenever it ends, and a window left out claims nothing
    """

    windows: int = 1  # a cover chooses its own
    target: float = 0.5
    centres: str = "rounded"
    max_windows: int = 20_000
    name: ClassVar[str] = "cover"
    summary: ClassVar[str] = (
        "a classifier smoothed by noise keeps its label, with confidence 1 − α; a Lipschitz network, proved"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.centres not in ("rounded", "plain"):
            raise ValueError(f"centres are rounded or plain; got {self.centres!r}")

    @classmethod
    def beyond(cls, threat: Threat) -> str:
        first, *others = threat.transform.parts
        return unknown(threat) if others or first.one_sided or first.disc else ""

    def refuses(self, classifier: Classifier, threat: Threat) -> str:
        if classifier.over:
            (name,) = classifier.over
            return (
                f"cover certifies classifiers that smooth by noise alone, but this one smooths over {name} too: use "
                "dist-x, or certify and deploy wc.Smoothed(network, noise=…)"
            )
        if classifier.preprocess.halved:
            return "cover does not know classifiers that reduce pictures to half their size"
        if classifier.step > 1:
            return "cover needs noise or a Lipschitz constant; a classifier behind levels is certified by exact"
        if not classifier.noise and classifier.lipschitz is None:
            return "cover needs pixel noise (wc.Smoothed) or a proved Lipschitz constant (wc.Plain(…, lipschitz=…))"
        return tells_tolerance(threat, self.name)

    def certify(
        self, classifier: Classifier, x: Tensor, threat: Threat, progress: Progress | None = None
    ) -> Certificate:
        until = deadline(self.time_limit)
        if not classifier.noise and classifier.lipschitz is not None:
            refuse_tf32(x, classifier.slack)
            made = self._by_margins(classifier, x, threat, classifier.lipschitz)
            return made.certify(self.max_windows, self.time_limit, progress)
        covering = Covering(self, classifier, x, threat, until)
        try:
            with limited(until):
                windows = self._windows(classifier, x, threat)
        except TimeOverError:
            return covering.late()
        return covering.certify(windows, progress)

    def foresee(self, classifier: Classifier, x: Tensor, threat: Threat) -> Forecast:
        if not classifier.noise and classifier.lipschitz is not None:
            made = self._by_margins(classifier, x, threat, classifier.lipschitz)
            first = made.first_windows(logits_of(classifier, x[None]), self.max_windows)
            return outlook.by_margins(classifier, x, made.margins, first).within(self.time_limit)
        windows = self._windows(classifier, x, threat)
        found = outlook.by_votes(classifier, x, threat, windows, (self.n, self.n0), self.alpha)
        return found.within(self.time_limit)

    def _by_margins(self, classifier: Classifier, x: Tensor, threat: Threat, lipschitz: float) -> MarginCover:
        return MarginCover(classifier, x, threat, Margins(lipschitz, classifier.slack), self.centres == "rounded")

    def _windows(self, classifier: Classifier, x: Tensor, threat: Threat) -> Windows:
        target, rounded = self.target * classifier.noise, self.centres == "rounded"
        front = Front(classifier.defence(threat.transform).front)
        if front.name != "none":
            most = self.max_windows
            return cover_behind(x, threat, front, target=target, rounded=rounded, max_windows=most)
        return cover_windows(
            x, threat, classifier.preprocess, target=target, rounded=rounded, max_windows=self.max_windows
        )
