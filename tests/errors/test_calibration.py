"""DistSPT^D: the share is a sound bound, the file is refused where it does not fit, and online certificates are all or
nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pytest
import torch
from torch import Tensor

import warpcert as wc
from warpcert import certificates
from warpcert import statistics as stats
from warpcert.classifier.defence import Defence
from warpcert.errors.base import Rule, SupBound, Suprema, bound_error
from warpcert.errors.calibration import Calibrating, Calibration, Plan, calibrate, calibrated, inner_betas
from warpcert.transforms import Box, Brightness

DEFENCE = Defence(Brightness(), (0.1,), 0.2)
THREAT = wc.Threat(Brightness(), Box((-0.05,), (0.05,)), quantized=False)


@final
class ByHand(SupBound):
    """sup‖ε‖ = |β|/σ·x[0]: its law is known."""

    name: ClassVar[str] = "by hand"
    kind: ClassVar[wc.Kind] = wc.Kind.PROVED

    def __call__(
        self, x: Tensor, defence: Defence, threat: wc.Threat, beta: Tensor, target: float | None = None
    ) -> Suprema:
        values = beta[:, 0].abs() / defence.sigma_param[0] * float(x.flatten()[0])
        return Suprema(values, values, len(beta), 0.0)


def brighter(z: Tensor) -> Tensor:
    mean = z.flatten(1).mean(1)
    return torch.stack((0.5 - mean, mean - 0.5), 1)


def calibration(**changes: object) -> Calibration:
    values = {
        "defence": DEFENCE,
        "threat": THREAT,
        "shape": (1, 4, 4),
        "data": "grey",
        "E": 0.01,
        "rho": 0.01,
        "alpha": 0.001,
        "alpha_inner": 0.001,
        "images": 1000,
        "accepted": 1000,
        "betas": 700,
        "allowed": 0,
        "kind": wc.Kind.PROVED,
        "bound": "curve",
        "seed": 0,
    }
    return Calibration(**values | changes)  # type: ignore[arg-type]


def test_inner_betas_is_the_smallest_that_works() -> None:
    for rho, alpha, allowed in ((0.01, 0.001, 0), (0.02, 0.01, 2)):
        n = inner_betas(rho, alpha, allowed)
        assert stats.upper_bound(allowed, n, alpha) <= rho < stats.upper_bound(allowed, n - 1, alpha)


def test_the_share_is_rarely_claimed_too_large(generator: torch.Generator) -> None:
    """A share of exactly 0.8 of the pictures satisfies (E, ρ): claims above it are rarer than α."""
    rng = np.random.default_rng(0)
    E, rho, alpha, alpha_inner = 2.0, 0.2, 0.1, 0.05
    edge = E / float(torch.distributions.Normal(0, 1).icdf(torch.tensor(1 - rho / 2)))  # P(|N|·v > E) = ρ at v = edge
    wrong, claims = 0, []
    for seed in range(60):
        good = rng.random(40) < 0.8
        images = [torch.full((1, 1, 1), (0.5 if g else 1.001) * edge) for g in good]
        plan = Plan(bound=ByHand(), rho=rho, alpha=alpha, alpha_inner=alpha_inner, allowed=1, E=E, seed=seed)
        made = calibrated(plan, (DEFENCE, THREAT), [], images)
        assert made.images == 40 and made.betas == inner_betas(rho, alpha_inner, 1)
        claims.append(made.q_E)
        wrong += made.q_E > 0.8
    assert max(claims) > 0.6
    assert wrong <= 60 * alpha + 3 * (60 * alpha) ** 0.5


def test_E_is_chosen_on_other_pictures_than_it_is_tested_on() -> None:
    """The largest error of the first ones, times the factor; the draws of a picture depend on nothing else."""
    plan, told = Plan(bound=ByHand(), rho=0.05, factor=1.1, seed=5), []
    low, high = (torch.full((1, 2, 2), v) for v in (0.1, 0.9))
    work = Calibrating(plan, DEFENCE, THREAT)
    errors = [work.largest(low, 0), work.largest(high, 1)]
    assert 0 < errors[0] < errors[1] and work.largest(high, 2) != errors[1]
    made = calibrated(plan, (DEFENCE, THREAT), [low, high], [low] * 5, "grey", lambda *now: told.append(now))
    assert pytest.approx(1.1 * max(errors)) == made.E and made.accepted == made.images == 5 and made.data == "grey"
    assert told[0] == ("choose E", 0, 2) and told[-1] == ("test E", 5, 5)
    assert calibrated(plan, (DEFENCE, THREAT), [low], [high] * 5).accepted == 0
    stated = replace(plan, E=0.0)
    assert calibrated(stated, (DEFENCE, THREAT), [], [low]).E == 0.0
    with pytest.raises(ValueError, match="pictures of its own"):
        calibrated(plan, (DEFENCE, THREAT), [], [low])
    with pytest.raises(ValueError, match="test E on"):
        calibrated(plan, (DEFENCE, THREAT), [low], [])
    for bad in ({"rho": 0.6}, {"alpha": 0.0}, {"factor": 0.0}, {"E": -1.0}, {"allowed": -1}, {"bound": "magic"}):
        with pytest.raises(ValueError):
            replace(plan, **bad)  # type: ignore[arg-type]


def test_the_public_way() -> None:
    """A fifth of the pictures chooses E, the others test it; what comes out serves dist-d."""
    net = wc.Smoothed(brighter, 0.2, {"brightness": 0.1})
    pictures = [torch.full((1, 4, 4), 0.7 + 0.001 * i) for i in range(20)]
    made = calibrate(net, pictures, THREAT, data="grey", rho=0.05, alpha=0.05, bound="curve")
    assert made.images == 16 and made.data == "grey" and made.defence == net.defence(THREAT.transform)
    c = net.certify(pictures[0], THREAT, method="dist-d", calibration=made, n=2000, seed=0)
    assert c.share == made.share() and certificates.read(c.to_dict()) == c
    with pytest.raises(ValueError, match="a threat is missing"):
        calibrate(net, pictures)
    with pytest.raises(ValueError, match="smooth over"):
        calibrate(wc.Plain(brighter), pictures, THREAT)


def test_file_round_trip_and_refusals(tmp_path: Path) -> None:
    made = calibration()
    made.write(tmp_path / "c.json")
    assert Calibration.read(tmp_path / "c.json") == made
    assert made.mismatch(DEFENCE, THREAT) == ""
    for other in (
        replace(DEFENCE, sigma_noise=0.3),
        replace(DEFENCE, interpolation="bilinear"),
        replace(DEFENCE, preprocess=wc.Preprocess("circle")),
        replace(DEFENCE, sigma_param=(0.2,)),
    ):
        assert "does not fit" in made.mismatch(other, THREAT)
    wider = made.mismatch(DEFENCE, replace(THREAT, box=Box((-0.1,), (0.1,))))
    assert "the range is" in wider and "±0.05" in wider and "±0.1" in wider
    with pytest.raises(ValueError, match="shape"):
        made.check_image(torch.zeros(1, 5, 5))
    text = json.loads((tmp_path / "c.json").read_text())
    for key, value in (("accepted", 1001), ("E", 0.001), ("q_E", 0.99999), ("kind", "proved!")):
        (tmp_path / "bad.json").write_text(json.dumps(text | {key: value}))
        with pytest.raises(ValueError, match="not a calibration"):
            Calibration.read(tmp_path / "bad.json")
    with pytest.raises(ValueError, match="cannot show"):
        calibration(betas=10)


NET = wc.Smoothed(brighter, 0.2, {"brightness": 0.1})


def test_certificates_at_the_original_and_online() -> None:
    x, made = torch.full((1, 4, 4), 0.75), calibration()
    given = {"calibration": made, "n": 2000, "seed": 0}
    known = NET.certify(x, THREAT, method="dist-d", **given)
    assert known.kind is wc.Kind.WITH_CONFIDENCE and known.label == 1 and known.reach == THREAT.box
    assert known.share is not None and 0.99 < known.share.share < 1 and "of such pictures" in str(known)
    online = NET.certify(x - 0.05, THREAT, method="dist-d-online", **given)
    assert online.label == 1 and online.reach == THREAT.box and "original" in str(online)
    for c in (known, online):
        assert certificates.read(c.to_dict()) == c
    weak = NET.certify(torch.full((1, 4, 4), 0.53), THREAT, method="dist-d-online", **given)
    assert weak.abstains and weak.reach is None  # r < max‖γ‖: no part of Γ may be claimed
    with pytest.raises(ValueError, match="one window"):
        NET.certify(x, THREAT, method="dist-d-online", calibration=made, windows=3)
    with pytest.raises(ValueError, match="does not fit the threat"):
        NET.certify(x, wc.Threat.brightness(0.1), method="dist-d", calibration=made)
    with pytest.raises(ValueError, match="shape"):
        NET.certify(torch.zeros(1, 5, 5), THREAT, method="dist-d", calibration=made)


def test_online_claims_nothing_less_than_all_of_gamma() -> None:
    made = calibration(E=0.0)
    for value in np.linspace(0.5, 0.7, 15):
        x = torch.full((1, 4, 4), float(value))
        c = NET.certify(x, THREAT, method="dist-d-online", calibration=made, n=3000, seed=1)
        if c.reach is not None:  # g(x) = 1 for every x that could have led here: value − 0.05 > ½
            assert c.reach == THREAT.box and value - 0.05 > 0.5


def test_a_guessed_error_counts_on_fresh_draws(generator: torch.Generator) -> None:
    x = torch.full((1, 1, 1), 0.5)
    tested = bound_error(ByHand(), x, DEFENCE, THREAT, Rule(1000, 0.01, factor=1.02), generator)
    assert tested.betas == 900 and tested.rho == stats.upper_bound(tested.exceeded, 900, 0.01)
    ruled = bound_error(ByHand(), x, DEFENCE, THREAT, Rule(1000, 0.01), generator)
    assert ruled.rho < tested.rho  # the order-statistic rule needs no second sample


def test_order_statistic_rule_holds_for_raised_values() -> None:
    """P(V > E) ≤ ρ fails rarely, with V = |N| and E from 60 draws."""
    wrong, normal = 0, torch.distributions.Normal(0, 1)
    for seed in range(200):
        g = torch.Generator().manual_seed(seed)
        e = bound_error(ByHand(), torch.ones(1, 1, 1), DEFENCE, THREAT, Rule(60, 0.1), g)
        wrong += 2 * float(1 - normal.cdf(torch.tensor(e.E))) > e.rho
    assert 0 < wrong <= 200 * 0.1 + 3 * (200 * 0.1) ** 0.5
