"""Finite sets of shifts, alone and before one parameter: all are tried, and the range ends at the first that fails."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import warpcert as wc
from warpcert import certificates, methods
from warpcert.certificates import Exhausted
from warpcert.exhaustive import finite
from warpcert.transforms import Shifts

SIDE = 9
X = torch.zeros(1, SIDE, SIDE)
X[0, 3:6, 3:6] = torch.tensor([[40, 120, 200], [255, 90, 10], [60, 70, 80]]) / 255


class Watched(torch.nn.Module):
    """Another class for pictures that are brightest near one place; counts what it was asked."""

    def __init__(self, row: int, column: int, limit: float = 0.5) -> None:
        super().__init__()
        self.at, self.limit, self.asked = (row, column), limit, 0
        self.eval()

    def forward(self, z: Tensor) -> Tensor:
        self.asked += len(z)
        s = z[:, 0, self.at[0], self.at[1]] - self.limit
        return torch.stack((-s, s), 1)


def exact(f: wc.Classifier, threat: wc.Threat, x: Tensor = X, **settings: Any) -> Exhausted:
    made = f.certify(x, threat, method="exact", **settings)
    assert isinstance(made, Exhausted) and certificates.read(made.to_dict()) == made
    return made


@pytest.mark.parametrize("border", ["black", "reflected"])
@pytest.mark.parametrize("quantized", [True, False])
@pytest.mark.parametrize("at", [(0, 0), (1, 6), (4, 8), (8, 3), (2, 2)])
def test_the_range_ends_at_the_nearest_shift_that_fails(at: tuple[int, int], quantized: bool, border: str) -> None:
    threat = wc.Threat.shifts(6, border=border, quantized=quantized)
    t = threat.transform
    f = Watched(*at)
    made = exact(wc.Plain(f), threat)
    assert isinstance(t, finite.Steps)
    points = t.points(threat.box)
    wrong = points[t(X, points)[:, 0, at[0], at[1]] > 0.5]
    if not len(wrong):
        assert made.reach == threat.box and made.passes == len(points) and made.counterexample is None
        assert "within a radius of 6 px" in str(made) and f"{len(points)} in all" in str(made)
        return
    nearest = float(wrong.norm(dim=1).min())
    assert made.found is not None and made.found.held == pytest.approx(nearest / 6) and made.found.held < nearest / 6
    assert made.counterexample is not None and math.hypot(*made.counterexample) == pytest.approx(nearest)
    assert f(t(X, torch.tensor([made.counterexample])))[0].argmax() == 1
    assert not t.holds(made.counterexample, threat.box.scaled(made.found.held))


def test_a_shift_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: all points but one."""
    threat, f = wc.Threat.shifts(4), wc.Plain(Watched(4, 6))
    honest = exact(f, threat)
    assert honest.counterexample is not None and honest.reach != threat.box
    whole = Shifts.points
    monkeypatch.setattr(Shifts, "points", lambda t, box: whole(t, box)[whole(t, box)[:, 0] <= 0])
    assert exact(f, threat).reach == threat.box  # which is false


FOLLOWED = [
    (wc.Threat.shifts(2).then(rotation=25), (2, 2)),
    (wc.Threat.shifts(2, border="reflected", quantized=False).then(rotation=(-10, 25)), (2, 6)),
    (wc.Threat.shifts(2).then(brightness=0.3), (5, 5)),
    (wc.Threat.shifts(1).then(scaling=20), (4, 6)),
    (wc.Threat.shifts(1).then(power=0.4), (3, 4)),
]


@pytest.mark.parametrize(("threat", "at"), FOLLOWED)
@pytest.mark.parametrize("limit", [0.35, 0.52, 0.75])
def test_shifts_before_one_parameter(threat: wc.Threat, at: tuple[int, int], limit: float) -> None:
    f = wc.Levels(Watched(*at, limit), step=32)
    made = exact(f, threat)
    if made.abstains:
        assert f.predict(X) == 1 or "undecided" in made.reason or made.counterexample is not None
        return
    reach = made.reach
    assert reach is not None
    gamma = reach.uniform(4000, torch.Generator().manual_seed(0))
    gamma = torch.cat((gamma, reach.grid(9)))
    gamma = threat.transform.legal(gamma, reach)
    for dtype in (torch.float64, torch.float32):
        assert f.predict(threat.attacked(X.to(dtype), gamma).float()) == [made.label] * len(gamma)
    if made.counterexample is not None:
        away = torch.tensor([made.counterexample], dtype=torch.float64)
        assert f.predict(threat.attacked(X.double(), away).float()) != [made.label]
        assert threat.transform.holds(made.counterexample, threat.box)
        assert not threat.transform.holds(made.counterexample, reach)


def test_some_of_them_end_early_and_some_do_not() -> None:
    """So that the test above tests something."""
    made = [exact(wc.Levels(Watched(*at, v), step=32), t) for t, at in FOLLOWED for v in (0.35, 0.52, 0.75)]
    ends = [c.found.held for c in made if c.found]
    assert sum(end == 1 for end in ends) >= 3 and sum(0 < end < 1 for end in ends) >= 3


def test_the_least_of_all_shifts_counts() -> None:
    """By hand: with one shift of length 1 that fails from a tenth of the rotation on, the range ends at |k| = r."""
    threat = wc.Threat.shifts(2).then(brightness=0.5)
    f = wc.Levels(Watched(4, 6, 0.2), step=8)  # (4, 5) is nearly black: a shift by 1 brings 10/255 there
    made = exact(f, threat)
    own = [exact(f, wc.Threat.brightness(0.5), Shifts()(X, k[None])[0]) for k in Shifts().points(Shifts().box(2))]
    ends = [
        max(float(k.norm()) / 2, (c.found.held if c.found and c.label == 0 else 0.0))
        for k, c in zip(Shifts().points(Shifts().box(2)), own, strict=True)
        if not (c.found and c.found.held == 1 and c.label == 0)
    ]
    assert made.found is not None and made.found.held == pytest.approx(min(ends))


def test_records_that_do_not_fit_are_refused() -> None:
    made = exact(wc.Plain(Watched(4, 6)), wc.Threat.shifts(4))
    assert made.found is not None
    for changed, why in (
        (replace(made, found=replace(made.found, held=0.9)), "inside the certified range"),
        (replace(made, counterexample=(3.0, 3.0)), "outside Γ"),
        (replace(made, threat=replace(made.threat, l2=0.1)), "knows no ℓ2 part"),
        (replace(made, threat=replace(made.threat, tolerance=1e-9)), "no tolerance"),
    ):
        with pytest.raises(ValueError, match=why):
            certificates.read(changed.to_dict())


def test_what_exact_does_not_combine() -> None:
    f = wc.Plain(Watched(4, 6))
    for threat, why in (
        (wc.Threat.rotation(5).then(shifts=2), "not rotation then shifts; methods that do: none"),
        (wc.Threat.shifts(2).then(rotation=5, brightness=0.1), "not shifts then rotation then brightness"),
        (wc.Threat.shifts(2).then(l2=0.1), "exact knows no ℓ2 part"),
        (wc.Threat.shifts(2, tolerance=1e-9), "copy pixels"),
        (wc.Threat.shifts(2, quantized=False).then(rotation=5), "must see levels only"),
        (wc.Threat.shifts(2).then(translation=1), "got translation"),
    ):
        with pytest.raises(ValueError) as caught:
            f.certify(X, threat, method="exact")
        assert why.split(";")[0] in str(caught.value)
    assert methods.suitable(f, wc.Threat.shifts(2)) == ["exact"]


def test_a_limit_of_time_and_an_estimate() -> None:
    f = wc.Levels(Watched(4, 8), step=32)
    threat = wc.Threat.shifts(3).then(rotation=10)
    late = exact(f, threat, time_limit=1e-6)
    assert "time limit" in late.reason and late.reach != threat.box
    assert f.foresee(X, wc.Threat.shifts(3)).passes == 29
    assert f.foresee(X, threat).passes >= 29


@pytest.mark.parametrize("threat", [wc.Threat.shifts(4), wc.Threat.shifts(2).then(brightness=0.1)])
@pytest.mark.parametrize("after", [3, 7, 11])
def test_ctrl_c_between_shifts_keeps_what_was_proved(threat: wc.Threat, after: int, monkeypatch: Any) -> None:
    """It comes while a picture is shifted: nobody below catches it."""
    f, left = wc.Levels(Watched(0, 0), step=32), after
    whole, moved = exact(f, threat, batch=4), Shifts.__call__

    def stopped(t: Shifts, *given: Any) -> Tensor:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return moved(t, *given)

    monkeypatch.setattr(Shifts, "__call__", stopped)
    made = exact(f, threat, batch=4)
    assert left == 0 and made.found is not None and whole.found is not None and made.label == whole.label
    points = Shifts().points(Shifts().box(threat.box.upper[0]))
    done = points[: 4 * (after - 1) if len(threat.transform.parts) == 1 else after - 1]
    assert made.found.held == pytest.approx(float(points[len(done)].norm()) / threat.box.upper[0]) and not made.abstains
    assert made.found.held < whole.found.held == 1 and made.passes < whole.passes and "interrupted" in made.reason


def test_what_was_asked_beyond_the_end_is_not_said_to_be_possible() -> None:
    """Of the first shifts more of the range was tried than is certified in the end."""
    threat = wc.Threat.shifts(2).then(brightness=0.5)
    made = exact(wc.Levels(Watched(4, 6, 0.2), step=8), threat)
    assert made.found is not None and 0 < made.found.held < 1
    assert "in all" not in str(made) and f"about {made.found.images} inputs, among them every one" in str(made)
