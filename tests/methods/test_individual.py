"""IndivSPT: the statement about the unseen original, α spent once, records that check, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, final

import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from warpcert import certificates, methods
from warpcert import statistics as stats
from warpcert.certificates import ErrorBound, Individual, Kind, Window
from warpcert.certificates.sealed import seal
from warpcert.classifier import Smoothed
from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.voting import Draws, Logits, votes
from warpcert.learn import data, zoo
from warpcert.methods.survivors import possible_windows
from warpcert.originals.protocol import IntervalInverse, InverseBound, Originals
from warpcert.threat import Threat
from warpcert.transforms import Box, Preprocess

SIDE = 12
THREAT = Threat.of("rotation", 10)
CIRCLE = Preprocess("circle", 4)
MASK = CIRCLE.mask(SIDE, SIDE)
INSIDE = int(MASK.sum())
DIGITS = data.load("mnist500")


class Known(InverseBound):
    """Cells and errors as told: what the method makes of them is under test."""

    name: ClassVar[str] = "interval"  # a record names an analysis that exists

    def __init__(self, cells: list[tuple[float, float]], error: Callable[[Tensor, int], Tensor]) -> None:
        self.cells = torch.tensor(cells, dtype=torch.float64).reshape(-1, 2).deg2rad()
        self.error = error

    def survivors(self, x_attacked: Tensor, threat: Threat) -> Originals:
        low, high = self.cells[:, :1], self.cells[:, 1:]
        box = torch.zeros(len(low), *x_attacked.shape, dtype=torch.float64)
        return Originals(x_attacked, threat, low, high, box, box + 1, 100, 0.0)

    def errors(self, originals: Originals, defence: Defence, beta: Tensor, **_: Any) -> Tensor:
        return torch.stack([self.error(beta[:, 0], k) for k in range(len(originals.low))], 1)


def constant(E: float) -> Callable[[Tensor, int], Tensor]:
    return lambda beta, k: torch.full_like(beta, E)


def brighter(z: Tensor) -> Tensor:
    """A half-space: class 1 if the mean inside the vignette exceeds ½. Turning a flat picture changes nothing."""
    s = z[:, 0, MASK].mean(1) - 0.5
    return torch.stack((-s, s), 1)


def flat(margin: float) -> Tensor:
    """A grey picture whose distance to the boundary is about `margin` in ℓ2, as 8-bit values."""
    return THREAT.transform.quantize(torch.full((1, SIDE, SIDE), 0.5 + margin / math.sqrt(INSIDE)))


def margin_of(x: Tensor) -> float:
    return (float(x[0, 0, 0]) - 0.5) * math.sqrt(INSIDE)


def smoothed(network: Logits = brighter, *, nested: bool = False) -> Smoothed:
    return Smoothed(network, noise=0.2, over={"rotation": 10}, preprocess=CIRCLE, nested=nested)


def certify(x: Tensor, inverse: InverseBound, *, nested: bool = False, **settings: Any) -> Individual:
    """By `indiv`, with one window's worth of samples unless told otherwise."""
    settings = {"n": 4000, "seed": 0, "betas": 100, "windows": 1} | settings
    c = methods.certify(smoothed(nested=nested), x, THREAT, method="indiv", inverse=inverse, **settings)
    assert isinstance(c, Individual)
    return c


@pytest.mark.parametrize("merged", [False, True])
def test_false_certificates_are_rarer_than_alpha(merged: bool) -> None:
    """An original whose view is E nearer to the boundary than x', and there just on the other side: g(x) is not 1."""
    x, wrong = flat(0.3), 0
    inverse = Known([(2.0, 2.1)], constant(margin_of(x) * 1.001))
    for seed in range(200):
        c = certify(x, inverse, merged=merged, betas=300, n=400, alpha=0.4, seed=seed)
        wrong += not c.abstains
    rate = 0.4 * 0.9 * (1 if merged else 0.5)  # what the votes were given
    assert 0 < wrong <= 200 * rate + 3 * math.sqrt(200 * rate)


@pytest.mark.parametrize(("share", "certified"), [(0.7, True), (0.93, False)])
def test_the_error_decides(share: float, certified: bool) -> None:
    """κ is at most the true margin/σ_δ: an error well below certifies, one close to it cannot."""
    x = flat(0.3)
    c = certify(x, Known([(2.0, 2.1)], constant(margin_of(x) * share)))
    assert (c.label == 1) == certified and (c.reach == THREAT.box) == certified
    assert certificates.read(c.to_dict()) == c
    if certified:
        assert "answers 1 for this picture, and for its unseen original" in str(c) and "confidence 0.99" in str(c)
        assert "2° … 2.1°" in str(c) and c.kind is Kind.WITH_CONFIDENCE


def test_by_hand() -> None:
    x = flat(0.4)
    c = certify(x, Known([(2.0, 6.0)], constant(0.1)))
    (window,) = c.windows
    assert window.center == pytest.approx((math.radians(4),)) and abs(window.E - 0.1) < 1e-9
    p = stats.lower_bound(window.k, 3600, 0.0045)
    rho = stats.upper_bound(0, 100, 0.0045)
    kappa = norm.ppf(p - rho)
    assert c.whitened_radius(window) == pytest.approx(math.sqrt(kappa**2 - 0.5**2), rel=1e-6)
    assert c.vouches(window) == (math.sqrt(kappa**2 - 0.5**2) > 0.2)


def test_alpha_is_spent_once_however_many_windows() -> None:
    cells = [(-9.0, -8.9), (0.0, 0.1), (8.9, 9.0)]
    c = certify(flat(0.6), Known(cells, constant(0.1)), windows=5)
    assert len(c.windows) == 3 and c.label == 1
    assert math.fsum(a for _, a in c.ledger) == pytest.approx(c.alpha)
    assert c.centred is not None
    assert c.centred.alpha + c.error.alpha + c.windows[0].alpha == pytest.approx(c.alpha)
    assert len({w.alpha for w in c.windows}) == 1
    assert c.excluded == pytest.approx(1 - 0.3 / 20)
    merged = certify(flat(0.6), Known(cells, constant(0.1)), merged=True, betas=200)
    assert merged.error.alpha == 0 and merged.error.rho == 0
    assert math.fsum(a for _, a in merged.ledger) == pytest.approx(c.alpha)


def test_all_windows_must_agree() -> None:
    """One surviving range with a large error withholds the answer, wherever the others stand."""
    x = flat(0.4)
    errors = {0: 0.05, 1: 5.0}
    inverse = Known([(-9.0, -8.9), (8.9, 9.0)], lambda beta, k: torch.full_like(beta, 0.05))
    assert certify(x, inverse, windows=3).label == 1

    def second(beta: Tensor, k: int) -> Tensor:
        return torch.full_like(beta, errors[int(beta.mean() < 0)])  # β sits around −γ_j

    c = certify(x, Known([(-9.0, -8.9), (8.9, 9.0)], second), windows=3)
    assert c.abstains and c.reach is None and "8.9° … 9°" in c.reason


def test_betas_sit_around_the_windows_mirror_image() -> None:
    seen: list[Tensor] = []

    def error(beta: Tensor, k: int) -> Tensor:
        seen.append(beta)
        return torch.zeros_like(beta)

    certify(flat(0.4), Known([(7.0, 9.0)], error), betas=400)
    degrees = seen[0].rad2deg()
    assert abs(float(degrees.mean()) + 8) < 2 and 8 < float(degrees.std()) < 12


def test_nearer_cells_may_err_more() -> None:
    """d_k² + U_k²/σ_δ² counts, not the largest U with the largest d."""
    x = flat(0.5)
    errors = (0.1, 0.2, 0.1)
    inverse = Known([(-9.0, -8.0), (-1.0, 1.0), (8.0, 9.0)], lambda beta, k: torch.full_like(beta, errors[k]))
    (window,) = certify(x, inverse).windows
    assert abs(window.E - 0.1) < 1e-7  # 0.2² − 0.2²·(0.9² − 0.1²) < 0.1²
    nested = certify(x, inverse, nested=True, n=300)
    assert abs(nested.windows[0].E - 0.2) < 1e-9


def test_the_rank_leaves_the_largest_out_and_pays_for_it() -> None:
    inverse = Known([(0.0, 0.1)], lambda beta, k: beta.abs())
    zero, two = (certify(flat(2.0), inverse, betas=300, rank=rank) for rank in (0, 2))
    assert two.windows[0].E < zero.windows[0].E and two.error.rho > zero.error.rho


def test_merged_votes_need_a_small_error() -> None:
    """β's whose error exceeds E do not vote, whatever they answer."""
    inverse = Known([(0.0, 0.1)], lambda beta, k: torch.where(torch.arange(len(beta)) % 2 == 1, 9.0, 0.1))
    pilot = Known([(0.0, 0.1)], lambda beta, k: torch.full_like(beta, 0.1 if len(beta) < 100 else 9.0))
    c = certify(flat(1.0), pilot, merged=True, betas=400)
    assert c.abstains and c.windows[0].k == 0
    half = certify(flat(1.0), inverse, merged=True, betas=400)
    assert half.windows[0].E > 9  # the pilot saw the large ones
    with pytest.raises(ValueError, match="no rank"):
        certify(flat(1.0), inverse, merged=True, rank=1)


@pytest.mark.parametrize("merged", [False, True])
def test_nested(merged: bool) -> None:
    x = flat(0.4)
    small, large = (
        certify(x, Known([(2.0, 2.1)], constant(E)), nested=True, merged=merged, betas=60, n=200) for E in (0.1, 0.6)
    )
    assert small.form == "indiv-nested" and small.label == 1 and small.reach == THREAT.box
    assert large.abstains and large.windows[0].k == 0
    for c in (small, large):
        assert certificates.read(c.to_dict()) == c


def test_nothing_left_is_outside_the_threat_model() -> None:
    none = certify(flat(0.4), Known([], constant(0.1)))
    assert none.abstains and "outside the threat model" in str(none) and none.excluded == 1
    later = certify(flat(0.4), Known([(1.0, 2.0)], constant(-math.inf)))
    assert later.abstains and "outside the threat model" in str(later)
    for c in (none, later):
        assert certificates.read(c.to_dict()) == c
    x = torch.zeros(1, SIDE, SIDE)
    x[0, 0, 0] = 1  # interpolation spreads the light of a corner, unless nothing moved
    threat = replace(THREAT, box=Box((0.0,), (0.1,)))
    real = methods.certify(smoothed(), x.flip(1), threat, method="indiv", seed=0, inverse=IntervalInverse())
    assert real.excluded is not None and real.excluded > 0.9


def test_a_cell_impossible_for_one_beta_is_impossible() -> None:
    def error(beta: Tensor, k: int) -> Tensor:
        values = torch.full_like(beta, (0.1, 50.0)[k])
        return values if k == 0 else torch.where(torch.arange(len(beta)) == 3, -math.inf, values)

    c = certify(flat(0.5), Known([(2.0, 2.1), (2.1, 2.2)], error))
    assert c.label == 1 and c.windows[0].E < 0.2


def test_a_picture_on_the_boundary_abstains_at_once() -> None:
    c = certify(flat(0.0), Known([(2.0, 2.1)], constant(0.0)))
    assert c.abstains and "this picture itself" in c.reason and not c.windows


def test_the_votes_at_the_picture_itself_are_needed() -> None:
    c = certify(flat(0.6), Known([(2.0, 2.1)], constant(0.1)))
    assert c.reach == THREAT.box and c.centred is not None
    weak = replace(c, centred=replace(c.centred, k=c.centred.n // 2))
    assert weak.reach is None and not weak.covers(THREAT.box) and str(weak).startswith("Abstains")


def test_windows_hold_all_cells() -> None:
    g = torch.Generator().manual_seed(0)
    low = torch.rand(50, 2, generator=g, dtype=torch.float64) * 2 - 1
    box = torch.zeros(50, 1, 2, 2, dtype=torch.float64)
    cells = Originals(box[0], SHIFT, low, low + 0.05, box, box, 50, 0.0)
    whole = Box((-1.0, -1.0), (1.05, 1.05))
    for per_axis in (1, 2, 5):
        groups = possible_windows(cells, whole, per_axis)
        assert sum(len(part.low) for part, _ in groups) == 50 and len(groups) <= per_axis**2
        for part, hull in groups:
            assert all(hull.contains(v.tolist()) for v in (*part.low, *part.high))
            assert all(b - a <= 2.05 / per_axis + 0.05 for a, b in zip(hull.lower, hull.upper, strict=True))
    assert possible_windows(replace(cells, low=low[:0], high=low[:0]), whole, 3) == []


def record(**changes: Any) -> dict[str, Any]:
    c = certify(flat(0.6), Known([(-9.0, -8.9), (8.9, 9.0)], constant(0.1)), windows=3)
    return replace(c, **changes).to_dict()


CELL = Box((0.1,), (0.11,))


@pytest.mark.parametrize(
    "change",
    [
        {"centred": None},
        {"centred": Window((0.1,), 400, 400, 0.001)},
        {"centred": Window((0.0,), 400, 400, 0.002)},
        {"windows": ()},
        {"windows": (Window((0.1,), 1000, 1000, 0.0045, E=0.1),)},
        {"windows": (Window((0.1,), 1000, 1000, 0.0045, cell=Box((0.1,), (0.2,)), E=0.1),)},
        {"windows": (Window((0.1,), 1000, 1000, 0.0045, cell=CELL, E=9.0),)},
        {"windows": (Window((0.1,), 1000, 1000, 0.0055, cell=CELL, E=0.1),)},
        {"error": ErrorBound(0.1, 0.0, Kind.PROVED, "interval", 100)},
        {"error": ErrorBound(0.1, 0.0045, Kind.PROVED, "interval")},
        {"error": ErrorBound(0.1, 0.0045, Kind.PROVED, "sampled", 100)},
    ],
    ids=["no centre", "off centre", "α", "none", "no cell", "outside", "E", "votes α", "free ρ", "no β", "sampled"],
)
def test_records_that_no_run_writes_are_refused(change: dict[str, Any]) -> None:
    certificates.read(record())
    with pytest.raises(ValueError):
        certificates.read(record(**change))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("k", 1, "does not vouch"),
        ("n", 10**6, "passes do not add up"),
        ("E", 0.0999, "largest of the windows"),
        ("lower", [[-0.17, 0.15]], "sentence is"),
        ("upper", [[-0.155, 0.17]], "sentence is"),
    ],
    ids=["k", "n", "E", "lower", "upper"],
)
def test_edited_windows_are_noticed_even_if_sealed_again(name: str, value: Any, words: str) -> None:
    stored = record()
    stored.pop("digest")
    assert stored["windows"][name] != value
    stored["windows"][name] = value
    with pytest.raises(ValueError, match=words):
        certificates.read(seal(stored))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"two_class": True}, "two_class"),
        ({"betas": 3}, "500 is usual"),
        ({"n": 60}, "too small ever"),
        ({"merged": True, "betas": 5}, "betas ="),
        ({"rank": 100}, "rank"),
    ],
    ids=["two-class", "betas", "n", "merged", "rank"],
)
def test_refusals(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        certify(flat(0.4), Known([(2.0, 2.1)], constant(0.1)), **changes)


def test_quantized_threats_need_8_bit_pictures() -> None:
    x = torch.full((1, SIDE, SIDE), 0.6013)
    with pytest.raises(ValueError, match="8-bit"):
        certify(x, Known([(2.0, 2.1)], constant(0.1)))
    loose = replace(THREAT, quantized=False)
    inverse = Known([(2.0, 2.1)], constant(0.1))
    methods.certify(smoothed(), x, loose, method="indiv", n=400, seed=0, inverse=inverse)


def test_progress_goes_through_all_windows() -> None:
    """Over the windows, not anew in each: thousandths that never fall."""

    class Telling(Known):
        def errors(self, originals: Originals, defence: Defence, beta: Tensor, **more: Any) -> Tensor:
            for done in range(1, 5):
                more["progress"](done, 4)
            return super().errors(originals, defence, beta)

    told = list[tuple[int, int]]()
    inverse = Telling([(-9.0, -8.9), (0.0, 0.1), (8.9, 9.0)], constant(0.1))
    for merged in (False, True):
        told.clear()
        method = methods.chosen(smoothed(), "indiv", inverse=inverse, merged=merged, n=4000, betas=100, windows=5)
        methods.certify_with(method, smoothed(), flat(0.6), THREAT, seed=0, progress=lambda *now: told.append(now))
        assert told == sorted(told) and told[-1] == (1000, 1000) and len(set(told)) == 12


def test_fresh_draws_unless_seeded() -> None:
    x, inverse = flat(0.1), Known([(2.0, 2.1)], lambda beta, k: beta.abs())
    seeded = [certify(x, inverse, seed=5).windows[0].E for _ in range(2)]
    fresh = [certify(x, inverse, seed=None).windows[0].E for _ in range(2)]
    assert seeded[0] == seeded[1] and fresh[0] != fresh[1]


def test_certified_digits_have_the_same_answer_as_their_originals(generator: torch.Generator) -> None:
    """The embedded model and the interval inverse, end to end: g at the original, which the method never saw."""
    model = zoo.load("mnist-rotation")
    defence = model.defence(THREAT.transform)
    inverse = IntervalInverse(refinements=4, finest=0.004)
    certified = 0
    for index, degrees in ((2, 0.4), (4, 5.0)):
        x = DIGITS.image(index)
        x_attacked = THREAT.attacked(x, torch.tensor([[math.radians(degrees)]]))[0]
        given = {"n": 1200, "seed": index, "betas": 60, "inverse": inverse, "windows": 3}
        c = methods.certify(model, x_attacked, THREAT, method="indiv", **given)
        certified += not c.abstains
        for z in (x, x_attacked) if not c.abstains else ():
            assert int(votes(model.logits, defence, z, 1000, Draws(generator)).argmax()) == c.label
    assert certified >= 1


SHIFT = Threat.of("translation", 1)
RECTANGLE = Preprocess("rectangle", 4)
SQUARE = RECTANGLE.mask(SIDE, SIDE)


@final
class Lazy(InverseBound):
    """Two cells of shifts whose true error is `least`, bounded no sharper than what is enough, times `share`."""

    name: ClassVar[str] = "lagrangian"

    def __init__(self, least: float, share: float = 1.0) -> None:
        self.least, self.share, self.asked = least, share, list[float]()

    def survivors(self, x_attacked: Tensor, threat: Threat) -> Originals:
        low = torch.tensor([[-1.0, -1.0], [0.5, 0.5]], dtype=torch.float64)
        box = torch.zeros(2, *x_attacked.shape, dtype=torch.float64)
        return Originals(x_attacked, threat, low, low + 0.1, box, box + 1, 100, 0.0)

    def errors(self, originals: Originals, defence: Defence, beta: Tensor, **more: Any) -> Tensor:
        self.asked.append(more["enough"])
        loose = self.share * more["enough"] if math.isfinite(more["enough"]) else 9.0
        return torch.full((len(beta), len(originals.low)), max(self.least, loose), dtype=torch.float64)


def shifted(x: Tensor, inverse: InverseBound, bright: Logits, **settings: Any) -> Individual:
    f = Smoothed(bright, noise=0.2, over={"translation": 0.4}, preprocess=RECTANGLE)
    settings = {"n": 4000, "seed": 0, "windows": 3, "betas": 300} | settings
    c = methods.certify(f, x, SHIFT, method="indiv", inverse=inverse, **settings)
    assert isinstance(c, Individual)
    return c


def inside_brighter(z: Tensor) -> Tensor:
    s = z[:, 0, SQUARE].mean(1) - 0.5
    return torch.stack((-s, s), 1)


def test_shifts_vote_first_and_errors_need_only_be_enough() -> None:
    """What votes forgive is what certifies: a bound at it does, one just above does not."""
    grey = SHIFT.transform.quantize(torch.full((1, SIDE, SIDE), 0.5 + 0.5 / math.sqrt(int(SQUARE.sum()))))
    for share, certified in ((0.999, True), (1.001, False)):
        inverse = Lazy(0.0, share)
        c = shifted(grey, inverse, inside_brighter)
        assert (c.label == 1) == certified and certificates.read(c.to_dict()) == c
        for window, enough in zip(c.windows, inverse.asked, strict=True):
            kappa, far = c.kappa(window), 2 * (0.05 / 0.4) ** 2
            assert kappa is not None and enough == pytest.approx(0.2 * math.sqrt(kappa**2 - far), rel=1e-5)
            assert share * enough * (1 + 1e-9) >= window.E


def test_a_shift_without_votes_costs_no_analysis() -> None:
    """Dark above: shifted back from (−1, −1) the picture has lost; that window comes first, and any bound will do."""
    x = torch.full((1, SIDE, SIDE), 0.75)
    x[:, :5] = 0.0
    inverse = Lazy(0.0)
    c = shifted(SHIFT.transform.quantize(x), inverse, inside_brighter)
    assert c.abstains and len(c.windows) == 1 and inverse.asked == [math.inf]
    assert c.windows[0].cell is not None and c.windows[0].cell.lower == (-1.0, -1.0)


def test_false_certificates_of_shifts_are_rarer_than_alpha() -> None:
    """The original's view is just on the other side, and the analysis does no more than the votes ask for."""
    grey = SHIFT.transform.quantize(torch.full((1, SIDE, SIDE), 0.5 + 0.3 / math.sqrt(int(SQUARE.sum()))))
    margin = (float(grey[0, 0, 0]) - 0.5) * math.sqrt(int(SQUARE.sum()))
    wrong = 0
    for seed in range(150):
        wrong += not shifted(grey, Lazy(margin * 1.001), inside_brighter, n=400, alpha=0.4, seed=seed).abstains
    assert wrong <= 150 * 0.18 + 3 * math.sqrt(150 * 0.18)
