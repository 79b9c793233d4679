"""Frozen results. A certificate holds what is needed to redo its arithmetic, says what it proves in one sentence, and
how far to trust it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np

from warpcert import statistics as stats
from warpcert.certificates.evidence import NO_ERROR, ErrorBound, Exhausted, Kind, Margins, Share, Window, columns, rows
from warpcert.certificates.sealed import same, seal, unseal
from warpcert.classifier.defence import Defence
from warpcert.classifier.voting import ABSTAIN
from warpcert.numerics import region
from warpcert.numerics.region import Region
from warpcert.statistics import radius
from warpcert.threat import Threat
from warpcert.transforms import Box, SpatialTransform

__all__ = ["ABSTAIN", "NO_ERROR", "Certificate", "ErrorBound", "Exhausted", "Kind", "Margins", "Share", "Window"]

FORMS = ("joint", "nested", "base", "attacked", "indiv", "indiv-nested", "cover", "margin", "exact")
INDIVIDUAL = ("indiv", "indiv-nested")


@final
@dataclass(frozen=True)
class Certificate:
    """With probability ≥ 1 − alpha (kind permitting): the defended classifier answers `label` at q(T_γ x) for every γ
    in the certified set.

    form       certified set
    joint      Γ ∩ ⋃_j { ‖(γ − γ_j)/σ_γ‖₂ < r_j }, r_j² = κ_j² − E²/σ_δ². Each window compares the law of β + γ with
               that of its own samples, so a γ may be vouched for by any of them
    nested     the same with r_j = κ_j: E sits inside the votes
    base       the same with E dropped: heuristic
    attacked   x' was sampled: all of Γ or nothing, and the claim is g(x) = g(x') for the unseen original x
    indiv      as attacked, with (E_j, ρ) for every original that can have led here: the windows hold all γ that are
               not proved impossible, votes and E_j of a window come from β around −γ_j, and its cell must lie within
               r_j of γ_j. γ sits in one window, whichever, so α is spent on one. `centred` shows g(x') = label
    indiv-nested  the same with r_j = κ_j
    cover      the cells whose test accepts P_δ(label) > Φ(E_j/σ_δ); no parameter noise
    margin     the cells whose margin exceeds √2·L·E_j; the plain classifier, no α
    exact      t·Γ: the plain classifier answered `label` on every image that is possible there, no α
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
    share: Share | None = None
    exhausted: Exhausted | None = None
    margins: Margins | None = None
    centred: Window | None = None  # of an individual certificate: the votes at x' itself
    excluded: float | None = None  # the share of Γ that is proved not to have led to x'
    counterexample: tuple[float, ...] | None = None  # a γ, not certified, at which the plain classifier errs
    seed: int | None = None
    model: str = ""  # fingerprint of the classifier
    version: str = ""
    passes: int = 0  # forward passes of the classifier
    seconds: float = 0.0
    reason: str = field(default="")  # why it abstains

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"form {self.form!r} is not one of {', '.join(FORMS)}")

    @property
    def abstains(self) -> bool:
        return self.label == ABSTAIN

    @property
    def kind(self) -> Kind:
        if self.form == "base":
            return Kind.HEURISTIC
        sure = self.form in ("exact", "margin")
        return Kind.weakest(Kind.PROVED if sure else Kind.WITH_CONFIDENCE, self.error.kind)

    def p_lower(self, window: Window) -> float:
        """Lower bound of the probability of the label around the window's centre (a cover only tests it: see
        `accepted`).
        """
        alpha = window.alpha / 2 if window.runner_up is not None else window.alpha
        if self.form in ("nested", "indiv-nested"):
            return stats.acceptance_bound(window.k, window.n, alpha, self.alpha_inner)
        return stats.lower_bound(window.k, window.n, alpha)

    def kappa(self, window: Window) -> float | None:
        """The largest μ that the window's votes survive, None if none."""
        p = self.p_lower(window)
        if self.form == "attacked" or self.form in INDIVIDUAL:
            return radius.kappa_attacked(p, self.error.rho)
        if window.runner_up is None:
            return radius.kappa_one(p, self.error.rho)
        # The runner-up is chosen after looking: its bound must hold for every other class.
        p_b = stats.upper_bound(window.runner_up, window.n, window.alpha / 2 / (self.classes - 1))
        return radius.kappa_two(p, min(p_b, 1 - p), self.error.rho)

    def whitened_radius(self, window: Window) -> float | None:
        """r_j: the certified radius around the window's centre in units of σ_γ, None if nothing is certified there."""
        kappa = None if self.abstains else self.kappa(window)
        E = window.E if self.form in INDIVIDUAL else self.error.E
        if kappa is None:
            return None
        if self.form not in ("joint", "attacked", "indiv") or E == 0:
            return kappa
        if self.defence.sigma_noise == 0 or not math.isfinite(E):
            return None
        return radius.param_radius(kappa, E / self.defence.sigma_noise)

    def vouches(self, window: Window) -> bool:
        """Of an individual certificate: whether g(x) = label follows for every γ in the window's cell."""
        r = self.whitened_radius(window)
        return (
            r is not None
            and window.cell is not None
            and Region(window.center, self.defence.sigma_param, r).contains(window.cell)
        )

    @cached_property
    def accepted(self) -> tuple[bool, ...]:
        """Of a cover: per window, whether its anytime-valid test rejects P_δ(label) ≤ p₀, or its margin is enough."""
        if self.margins:
            return tuple(not self.abstains and w.margin > self.margins.needed(w.E) for w in self.windows)
        needed = (radius.needed_probability(w.E, self.defence.sigma_noise) for w in self.windows)
        p0 = np.array([math.nan if p is None or not w.n else p for p, w in zip(needed, self.windows, strict=True)])
        open_ = ~np.isnan(p0)
        k, n = (np.array([getattr(w, name) for w in self.windows], dtype=np.int64) for name in ("k", "n"))
        alphas = {w.alpha for w in self.windows}
        if self.abstains or not open_.any():
            return (False,) * len(self.windows)
        if len(alphas) > 1:
            raise ValueError("the windows of a cover share one α")
        good = np.zeros(len(p0), dtype=np.bool_)
        good[open_] = stats.accepts(k[open_], (n - k)[open_], p0[open_], alphas.pop())
        return tuple(good.tolist())

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """What each window certifies: a ball in units of σ_γ, or the cell itself."""
        if self.form == "exact":
            done = self.exhausted
            proved = not self.abstains and done is not None and done.margin > done.slack
            return (Region.cell(self.threat.box.scaled(done.held)),) if proved and done else ()
        if self.form in INDIVIDUAL:
            settled = not self.abstains and self.centred is not None and self.p_lower(self.centred) > 0.5
            proved = settled and bool(self.windows) and all(map(self.vouches, self.windows))
            return (Region.cell(self.threat.box),) if proved else ()
        if self.form in ("cover", "margin"):
            chosen = zip(self.windows, self.accepted, strict=True)
            return tuple(Region.cell(w.cell) for w, good in chosen if w.cell and good)
        pairs = ((w.center, self.whitened_radius(w)) for w in self.windows)
        return tuple(Region(center, self.defence.sigma_param, r) for center, r in pairs if r is not None)

    def covers(self, box: Box) -> bool:
        """True if every γ of the box is certified (False may also mean that the subdivision was too coarse to see)."""
        gamma = self.threat.box
        if not (gamma.contains(box.lower) and gamma.contains(box.upper)):
            return False
        return region.covered(gamma if self.form == "attacked" else box, self.regions)

    @cached_property
    def reach(self) -> Box | None:
        """The largest multiple t·Γ, 0 ≤ t ≤ 1, that is certified (t rounded down); None if not even γ = 0 is."""
        box = self.threat.box
        if self.form == "attacked":
            return box if self.covers(box) else None
        return region.reach(box, self.regions)

    @property
    def span(self) -> str:
        """The reach in words, never more than it is; "" if there is none."""
        reach, box = self.reach, self.threat.box
        return self.threat.transform.span(reach, inward=reach != box) if reach else ""

    def __str__(self) -> str:
        if self.abstains or self.reach is None:
            if self.counterexample is not None:
                return f"Not kept: {self.reason}."
            return f"Abstains: {self.reason or 'the votes are too close for this error bound'}."
        span = self.span
        pixels = "rounded" if self.threat.quantized else "unrounded"
        if isinstance(self.threat.transform, SpatialTransform):
            pixels += f", {self.threat.interpolation}"
        every = f"every {self.threat.transform.noun} within {span} ({pixels})"
        if self.form in INDIVIDUAL:
            claim = self._individual_claim(span, pixels)
        elif self.form == "attacked":
            claim = f"the original is answered {self.label} as this picture is, for {every} that led from it to here"
        else:
            who = {"exact": "plain", "margin": "plain", "cover": "noise-smoothed"}.get(self.form, "smoothed")
            claim = f"label {self.label} of the {who} classifier is kept under {every}"
        if self.kind is Kind.HEURISTIC:
            return f"HEURISTIC, not a proof: {claim}; nominal confidence {1 - self.alpha:g}."
        claim = claim[0].upper() + claim[1:]
        if self.exhausted:
            end = f"; {self.reason}" if self.reason else ""
            asked = f"the classifier was asked about all {self.exhausted.images} possible images"
            return f"{claim}: proved{self.exhausted.proviso}, {asked}{end}."
        if self.margins:
            return f"{claim}: proved by margins, its logits are {self.margins.lipschitz:.6g}-Lipschitz."
        scope = ""
        if self.share:
            sure = f"a share that was tested with confidence {1 - self.share.alpha:g}"
            scope = f", if it is one of the {self.share.share:.4g} of pictures with this error ({sure})"
        return f"{claim}, with confidence {1 - self.alpha:g}{scope}."

    def _individual_claim(self, span: str, pixels: str) -> str:
        t = self.threat.transform
        places = " and ".join(t.place(w.cell) for w in self.windows if w.cell)
        rest = f"all but {places} is excluded" if self.excluded else "nothing is excluded"
        return (
            f"the original picture, unseen, is classified as {self.label} by the smoothed classifier, and so is this "
            f"one, if it came from a {t.noun} within {span} ({pixels}; {rest}, E ≤ {self.error.E:.3g})"
        )

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
            "windows": columns(self.windows),
            "alpha": self.alpha,
            "ledger": self.ledger,
            "classes": self.classes,
            "alpha_inner": self.alpha_inner,
            "share": asdict(self.share) if self.share else None,
            "exhausted": asdict(self.exhausted) if self.exhausted else None,
            "margins": asdict(self.margins) if self.margins else None,
            "centred": columns((self.centred,)) if self.centred else None,
            "excluded": self.excluded,
            "counterexample": self.counterexample,
            "seed": self.seed,
            "model": self.model,
            "version": self.version,
            "passes": self.passes,
            "seconds": self.seconds,
            "reason": self.reason,
            "derived": {
                "kind": self.kind,
                "rho": self.error.rho,
                **self._derived_windows(),
                "reach": asdict(reach) if reach else None,
                "sentence": str(self),
            },
        }
        return seal(json.loads(json.dumps(body)))

    def _derived_windows(self) -> dict[str, Any]:
        if self.form in ("cover", "margin"):
            return {"rejected": [j for j, good in enumerate(self.accepted) if not good]}
        return {
            "p_lower": [self.p_lower(w) for w in self.windows],
            "kappa": [self.kappa(w) for w in self.windows],
            "radius": [self.whitened_radius(w) for w in self.windows],
        }

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Certificate:
        """Reads what `to_dict` wrote and redoes the arithmetic: a ValueError names the first field that does not
        follow.
        """
        body = unseal(d)
        stored = body.pop("derived")
        certificate = cls(
            **body
            | {
                "threat": Threat.from_dict(body["threat"]),
                "defence": Defence.from_dict(body["defence"]),
                "error": ErrorBound(**(body["error"] | {"kind": Kind(body["error"]["kind"])})),
                "windows": rows(body["windows"]),
                "share": Share(**body["share"]) if body["share"] else None,
                "exhausted": Exhausted(**body["exhausted"]) if body["exhausted"] else None,
                "margins": Margins(**body["margins"]) if body.get("margins") else None,
                "centred": rows(body["centred"])[0] if body.get("centred") else None,
                "counterexample": tuple(body["counterexample"]) if body["counterexample"] else None,
                "ledger": tuple((purpose, amount) for purpose, amount in body["ledger"]),
            }
        )
        certificate._check_consistency()
        certificate._check_alpha()
        redone = certificate.to_dict()["derived"]
        for name in redone.keys() | stored.keys():
            if not same(redone.get(name), stored.get(name)):
                raise ValueError(f"{name} is {stored.get(name)!r}, but the counts give {redone.get(name)!r}")
        return certificate

    def _check_consistency(self) -> None:
        """Refuses what no method can have written."""
        e = self.error
        if self.classes < 2 or not -1 <= self.label < self.classes:
            raise ValueError(f"label {self.label} and {self.classes} classes do not go together")
        if e.kind is not Kind.HEURISTIC and e.bound in ("none", "sampled"):
            raise ValueError(f"an error bound that was {e.bound} is heuristic, not {e.kind}")
        m = self.margins
        if (m is None) == (self.form == "margin") or (m and not (0 < m.lipschitz < math.inf and m.slack >= 0)):
            raise ValueError(
                "a certificate by margins, and no other, needs a positive Lipschitz constant and slack ≥ 0"
            )
        if self.exhausted and not 0 <= self.exhausted.held <= 1:
            raise ValueError(f"an exact certificate holds on t·Γ with 0 ≤ t ≤ 1; got t = {self.exhausted.held:g}")
        if self.exhausted and self.exhausted.scope == "exact" and not self.threat.quantized:
            raise ValueError("an attacker who does not round hands over floats: no certificate takes them for exact")
        if self.counterexample and any(r.contains(Box(self.counterexample, self.counterexample)) for r in self.regions):
            raise ValueError("the counterexample lies inside the certified set")
        if (e.stated_rho is None) != (self.share is None):
            raise ValueError("a stated ρ belongs to a calibration, and a calibration states ρ")
        if self.form in ("joint", "nested", "attacked") and self.share is None and not (e.betas and e.alpha):
            raise ValueError(f"a {self.form} certificate needs ρ from β's that were drawn, and pays for it")
        if self.defence.reference is not None and self.form not in ("joint", "nested"):
            raise ValueError(f"a reference turns known originals; a certificate of the form {self.form} has none")
        if self.form in INDIVIDUAL and not self.abstains:
            self._check_individual()

    def _check_individual(self) -> None:
        if self.centred is None or any(self.centred.center) or not self.windows:
            raise ValueError("an individual certificate needs votes around β = 0 and in at least one window")
        if self.share or bool(self.error.betas) != bool(self.error.alpha):
            raise ValueError("an individual certificate pays for ρ, or counts only β's within E and has none")
        cells = [(w.center, w.cell) for w in self.windows]
        if any(c is None or c.center != at or not _inside(c, self.threat.box) for at, c in cells):
            raise ValueError("every window of an individual certificate stands in the middle of a cell of Γ")
        if any(w.E > self.error.E for w in self.windows):
            raise ValueError(f"E = {self.error.E:g} is less than that of a window")

    def _check_alpha(self) -> None:
        if self.form in ("exact", "margin"):
            if self.alpha or self.ledger or (self.form == "exact" and self.windows):
                raise ValueError("an exact certificate spends no α and has no windows; one by margins spends no α")
            return
        ledger = stats.Ledger(self.alpha)
        for purpose, amount in self.ledger:
            ledger.spend(purpose, amount)
        votes = [w.alpha for w in self.windows]
        if self.form in INDIVIDUAL:  # γ lies in one of the windows: which one does not depend on the draws
            votes = [max(votes, default=0.0), self.centred.alpha if self.centred else 0.0]
        used = math.fsum((self.error.alpha, *votes))
        if used > ledger.spent * (1 + 1e-9):
            raise ValueError(f"the bounds use α = {used:g}, but the ledger shows only {ledger.spent:g}")


def _inside(cell: Box, box: Box) -> bool:
    return box.contains(cell.lower) and box.contains(cell.upper)
