"""The reference: who asks with which kernel. The float slack, nested votes, predictions and calibrations each stand on
the right side.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from test_reference import dot, sharp
from torch import Tensor

import warpcert as wc
from warpcert import certificates
from warpcert.certificates import Individual, Kind, Voted
from warpcert.classifier.defence import Defence
from warpcert.classifier.inner import MarginInner
from warpcert.classifier.votes.nested import predict_nested
from warpcert.classifier.votes.voting import Draws, predict
from warpcert.errors.calibration import Calibrating, Calibration, Plan
from warpcert.errors.curve import bound as curve
from warpcert.errors.curve.bound import Curve
from warpcert.errors.curve.direction import Seen
from warpcert.errors.curve.model import model
from warpcert.errors.curve.path import tables
from warpcert.threat import Threat
from warpcert.transforms.kernels import Kernel, kernel

STILL = Defence.surface("rotation", 0.01, noise=0.001, interpolation="bicubic-0.5", reference="mitchell")
HARDLY = Threat.of("rotation", 0.001)


def still(network: Any, **more: Any) -> wc.Smoothed:
    return wc.Smoothed(network, 0.001, {"rotation": 0.01}, interpolation="bicubic-0.5", **more)


class Remembering:
    """`sharp`, and what it answered."""

    def __init__(self) -> None:
        self.answers: list[Tensor] = []

    def __call__(self, batch: Tensor) -> Tensor:
        self.answers.append(sharp(batch).argmax(1))
        return sharp(batch)

    @property
    def all_dim(self) -> bool:
        return bool((torch.cat(self.answers) == 1).all())

    @property
    def all_bright(self) -> bool:
        return bool((torch.cat(self.answers) == 0).all())


@pytest.mark.parametrize("name", ["rotation", "scaling", "translation"])
def test_the_slack_of_both_kernels_is_in_the_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """10⁴ for the deployed kernel, 10² for the reference; where steepness is used, each side's own."""
    x = torch.rand(1, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    defence = Defence.surface(name, 1, noise=0.1, interpolation="bicubic-0.5", reference="mitchell")
    threat = Threat.of(name, 0.5)
    sides = {"bicubic-0.5": 1e4, "mitchell": 1e2}
    steep: dict[str, float] = {}

    def slack(side: Defence, *size: Any) -> float:
        if len(size) == 5:
            steep[side.interpolation] = size[4]
        return sides[side.interpolation]

    def by_steps(k: Kernel, *_: Any) -> float:
        return 1.0 if k.name == "bicubic-0.5" else 0.0

    monkeypatch.setattr(curve, "inference_slack", slack)
    monkeypatch.setattr(curve, "steepness_by_steps", by_steps)
    beta = defence.draw_beta(2, torch.Generator().manual_seed(1))
    result = Curve(1.03)(x, defence, threat, beta)
    assert bool((result.values >= 10_100 + result.lower).all())
    if name != "translation":
        extent = float(beta.abs().max()) + max(threat.box.upper)
        own = curve.steepness_of(tables(x, kernel("mitchell")), threat.transform, extent)  # type: ignore[arg-type]
        assert steep["mitchell"] == own and steep["bicubic-0.5"] > 0


@pytest.mark.parametrize("name", ["rotation", "scaling"])
@pytest.mark.parametrize("mine, theirs", [("bicubic", "bilinear"), ("bilinear", "mitchell"), ("mitchell", "bicubic")])
def test_chords_of_the_reference_leave_no_more_than_their_remainder(name: str, mine: str, theirs: str) -> None:
    """Kinks of a bilinear reference, curvature of a cubic one: of the reference's own tables, not the defender's."""
    x = torch.rand(2, 8, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    defence = Defence.surface(name, 1, noise=0.1, interpolation=mine, reference=theirs)
    m = model(x, defence, Threat.of(name, 5), torch.zeros(1, 1, dtype=torch.float64))
    width = 0.02  # at most 0.12 px
    low = torch.arange(-20, 20, dtype=torch.float64) * 0.0173
    share = torch.linspace(0, 1, 9, dtype=torch.float64)
    true = m.defend(low[:, None] + width * share)  # [cells, 9, C, v]
    used = 0.0
    for source in (Seen(m, width), Seen.table(m, width, float(low[0]) - width, float(low[-1]) + 2 * width)):
        first, last = source.at(low), source.at(low + width)
        row, rest, _ = source.remainder(low)
        chord = first[:, None] + (last - first)[:, None] * share[:, None, None]
        off = (true - chord).abs().amax(1)
        assert bool((off <= rest[row] + 1e-12).all())
        used = max(used, float((off / (rest[row] + 1e-12)).max()))
    assert used > 0.1


def test_what_holds_before_anything_is_computed() -> None:
    """T_β of a clipped picture lies in ½ ± ½(1 + 2o_def), T^R x in ½ ± ½(1 + 2o_ref), whichever is larger."""
    x, beta = torch.zeros(1, 5, 5, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    for mine, theirs in (("bilinear", "bicubic"), ("bicubic", "bilinear"), ("bicubic-0.5", "mitchell")):
        defence = Defence.surface("rotation", 1, noise=0.1, interpolation=mine, reference=theirs)
        needed = 1 + kernel(mine).overshoot + kernel(theirs).overshoot
        assert model(x, defence, HARDLY, beta).trivial >= 5 * needed


def test_what_an_unrounded_attacker_adds_passes_the_deployed_kernel() -> None:
    x, threat = torch.zeros(1, 5, 5, dtype=torch.float64), replace(HARDLY, quantized=False)
    plain = Defence.surface("rotation", 1, noise=0.1, interpolation="bicubic")
    added = curve._unclipped(x, plain, threat, 1.0, 0.1)
    for reference in ("bilinear", "mitchell"):
        assert curve._unclipped(x, replace(plain, reference=reference), threat, 1.0, 0.1) == added


def test_nested_votes_are_counted_at_the_reference_and_predictions_are_not() -> None:
    f = Remembering()
    net = wc.Smoothed(f, 0.0, {"rotation": 0.01}, interpolation="bicubic-0.5", nested=True, lipschitz=1e-3)
    made = net.certify(dot(), HARDLY, n=500, seed=1, betas=100, reference="mitchell")
    assert isinstance(made, Voted) and made.form == "nested" and f.all_dim and made.error.E > 0.2
    g = Remembering()
    generator = torch.Generator().manual_seed(2)
    assert predict_nested(MarginInner(g, lipschitz=1e-3), STILL, dot(), draws=Draws(generator)).label == 0
    assert predict(g, STILL, dot(), draws=Draws(generator)).label == 0 and g.all_bright


def test_every_way_to_E_sees_the_reference() -> None:
    """The dot loses a fifth by the reference alone, so no E below that may pass."""
    made = still(sharp).certify(dot(), HARDLY, n=500, seed=1, betas=100, guessed=True, reference="mitchell")
    assert made.error.E > 0.2 and made.error.exceeded == 0
    work = Calibrating(Plan(rho=0.3, alpha_inner=0.1), STILL, HARDLY)
    assert work.largest(dot(), 0) > 0.2
    assert not work.accepts(dot(), 1, 0.2) and work.accepts(dot(), 1, 1.0)


def test_individual_certificates_go_without_a_reference() -> None:
    """Votes at x' and errors are those of the deployed kernel: the same certificate as without one."""
    threat, f = Threat.of("rotation", 0.5), Remembering()
    made = still(f).certify(dot(), threat, method="indiv", n=3000, seed=4, inverse="interval", betas=20)
    assert isinstance(made, Individual) and f.all_bright and made.defence.reference is None
    with pytest.raises(ValueError, match="no setting reference"):
        still(f).certify(dot(), threat, method="indiv", reference="mitchell")
    if not made.abstains:
        with pytest.raises(ValueError, match="known originals"):
            certificates.read(replace(made, defence=replace(made.defence, reference="mitchell")).to_dict())


def test_no_record_of_an_unknown_original_has_a_reference() -> None:
    calibration = Calibration(
        replace(STILL, reference=None), HARDLY, (1, 9, 9), "dots", 1e-4, 0.05, 0.01, 0.01, 100, 100, 200, 0,
        Kind.PROVED, "curve", 0,
    )  # fmt: skip
    net = still(sharp)
    made = net.certify(dot(), HARDLY, method="dist-d-online", calibration=calibration, n=1000, seed=1)
    assert isinstance(made, Voted) and made.label == 0 and certificates.read(made.to_dict()) == made
    with pytest.raises(ValueError, match="known originals"):
        certificates.read(replace(made, defence=STILL).to_dict())
    other = replace(calibration, defence=STILL)
    with pytest.raises(ValueError, match="without a reference"):
        net.certify(dot(), HARDLY, method="dist-d-online", calibration=other, n=1000)


def test_a_reference_equal_to_the_own_kernel_is_none() -> None:
    made = still(sharp).certify(dot(), HARDLY, n=500, seed=1, betas=100, reference="bicubic-0.5")
    assert isinstance(made, Voted) and made.defence.reference is None


def test_dist_d_takes_the_reference_of_its_calibration() -> None:
    """Votes are counted at the reference; deployed, the classifier uses its own kernel."""
    calibration = Calibration(STILL, HARDLY, (1, 9, 9), "dots", 1.0, 0.05, 0.01, 0.01, 100, 100, 200, 0, Kind.PROVED,
                              "curve", 0)  # fmt: skip
    f = Remembering()
    made = still(f).certify(dot(), HARDLY, method="dist-d", calibration=calibration, n=1000, seed=1)
    assert isinstance(made, Voted) and made.defence.reference == "mitchell" and f.all_dim


@pytest.mark.parametrize("early", [False, True])
def test_the_deployed_classifier_asks_with_its_own_kernel(early: bool) -> None:
    f = Remembering()
    assert still(f).vote(dot(), n=200, alpha=0.01, early=early).label == 0 and f.all_bright
