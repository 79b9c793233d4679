"""The reference: who asks with which kernel. The float slack, nested votes, predictions and calibrations, the command
line and the server each stand on the right side.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_reference import dot, sharp
from torch import Tensor
from warpcert.paper.individual import INDIVIDUAL

from warpcert import certificates
from warpcert.app.cli.options import _defence
from warpcert.certificates import Kind
from warpcert.classifier.defence import Defence
from warpcert.classifier.inner import MarginInner
from warpcert.classifier.nested import predict_nested
from warpcert.classifier.voting import predict
from warpcert.errors.calibration import Calibration, calibrate, estimate
from warpcert.errors.curve import bound as curve
from warpcert.errors.curve.direction import Seen
from warpcert.errors.curve.model import model
from warpcert.errors.curve.path import tables
from warpcert.errors.proved import Curve
from warpcert.methods import dist_spt_d_online, dist_spt_x, indiv_spt
from warpcert.methods.run import Sampling
from warpcert.originals.protocol import IntervalInverse
from warpcert.paper.desk import Model
from warpcert.threat import Threat
from warpcert.transforms.kernels import Kernel, kernel

STILL = Defence.surface("rotation", 0.01, noise=0.001, interpolation="bicubic-0.5", reference="mitchell")
HARDLY = Threat.of("rotation", 0.001)


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
    inner = MarginInner(f, lipschitz=1e-3)
    made = dist_spt_x(f, dot(), STILL, HARDLY, Sampling(n=500, seed=1), betas=100, inner=inner)
    assert made.form == "nested" and f.all_dim and made.error.E > 0.2
    g = Remembering()
    generator = torch.Generator().manual_seed(2)
    assert predict_nested(MarginInner(g, lipschitz=1e-3), STILL, dot(), generator=generator).label == 0
    assert predict(g, STILL, dot(), generator=generator).label == 0 and g.all_bright


def test_every_way_to_E_sees_the_reference() -> None:
    """The dot loses a fifth by the reference alone, so no E below that may pass."""
    draw = torch.Generator().manual_seed(3)
    made = dist_spt_x(sharp, dot(), STILL, HARDLY, Sampling(n=500, seed=1), betas=100, guessed=True)
    assert made.error.E > 0.2 and made.error.exceeded == 0
    x = [dot()]
    assert next(iter(estimate(Curve(), x, STILL, HARDLY, betas=5, generator=draw))) > 0.2
    for E, good in ((0.2, False), (1.0, True)):
        assert next(iter(calibrate(Curve(), x, STILL, HARDLY, E=E, betas=5, allowed=0, generator=draw))) is good


def test_individual_certificates_go_without_a_reference() -> None:
    """Votes at x' and errors are those of the deployed kernel: the same certificate as without one."""
    threat = Threat.of("rotation", 0.5)
    made = []
    for defence in (STILL, replace(STILL, reference=None)):
        f = Remembering()
        sampling = Sampling(n=3000, seed=4)
        c = indiv_spt(f, dot(), defence, threat, sampling, inverse=IntervalInverse(), betas=20)
        assert f.all_bright
        made.append(replace(c, seconds=0.0, error=replace(c.error, seconds=0.0)))
    assert made[0] == made[1] and made[0].defence.reference is None


def test_no_record_of_an_unknown_original_has_a_reference() -> None:
    """Neither does `warpcert check` take one, nor do the experiments make one of a model that was trained with it."""
    calibration = Calibration(
        replace(STILL, reference=None), HARDLY, (1, 9, 9), "dots", 1e-4, 0.05, 0.01, 0.01, 100, 100, 200, 0,
        Kind.PROVED, "curve", 0,
    )  # fmt: skip
    made = dist_spt_d_online(sharp, dot(), calibration, Sampling(n=1000, seed=1))
    assert made.label == 0 and certificates.read(made.to_dict()) == made
    with pytest.raises(ValueError, match="known originals"):
        certificates.read(replace(made, defence=STILL).to_dict())
    trained = Model("digits", sharp, "0", STILL)  # type: ignore[arg-type]
    for row in INDIVIDUAL.rows:
        assert row.defence(trained).reference is None  # type: ignore[attr-defined]


def test_the_command_line_keeps_the_stored_reference() -> None:
    stored = Defence.surface("rotation", 10, noise=0.1, interpolation="bicubic-0.5", reference="mitchell")
    nothing = dict.fromkeys(("transform", "sigma", "noise", "interpolation", "reference", "vignette", "margin", "blur"))
    extra = {"defence": stored.to_dict()}

    def asked(**changes: Any) -> Defence:
        return _defence(SimpleNamespace(command="certify", **(nothing | changes)), extra)  # type: ignore[arg-type]

    assert asked() == stored
    assert asked(reference="bilinear").reference == "bilinear"
    assert asked(reference="bicubic-0.5") == replace(stored, reference=None)  # how to go without
    assert asked(interpolation="mitchell") == replace(stored, interpolation="mitchell", reference=None)
