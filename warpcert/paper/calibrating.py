"""A calibration of DistSPT^D, measured picture by picture and resumable."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

from warpcert.errors.base import SupBound
from warpcert.errors.calibration import Calibrating, Calibration, Plan
from warpcert.errors.sampled import Sampled
from warpcert.learn.data import Dataset
from warpcert.paper.desk import Desk, Missing
from warpcert.paper.journal import WHOLE, Step, measured
from warpcert.paper.row import Size

__all__ = ["ALPHA", "calibrated", "calibration_data", "plan"]

ALPHA = 0.001  # of q_E, and per picture
FACTOR = 1.15  # E is this times the largest error seen; a bound that is to stay below it exceeds that by up to 5 % …
GLANCE = 17  # … at so many γ per axis


def calibration_data(desk: Desk, test: Dataset, train: str, size: Size) -> Dataset:
    """Pictures to calibrate on, none of them certified: of the training set, or (if there is none, or the run is quick)
    the last ones of the test set.
    """
    wanted = size.estimate + size.test
    if train and not desk.quick:
        try:
            return desk.dataset(train, "train").part(0, wanted)
        except Missing:
            pass
    if len(test) < size.images + wanted:
        raise Missing(f"{wanted} pictures to calibrate on, beyond those of {test.name}: name the data folder")
    return test.part(len(test) - wanted, len(test))


def plan(sup: SupBound, size: Size, E: float | None = None) -> Plan:
    return Plan(bound=sup, rho=size.rho, alpha=ALPHA, alpha_inner=ALPHA, factor=FACTOR, E=E)


def calibrated(
    desk: Desk, folder: Path, config: dict[str, Any], dataset: Dataset, work: Calibrating, size: Size
) -> Generator[Step, None, Calibration]:
    """E from the first `estimate` pictures of the dataset, unless the plan states it, and q_E tested on the `test`
    after them; writes calibration.json.

    E may be chosen in any way: FACTOR times the largest error sampled. That it holds is tested with the plan's bound.
    """
    config = config | {"defence": work.defence.to_dict(), "threat": work.threat.to_dict()}
    first = range(0 if work.plan.E is not None else min(size.estimate, len(dataset) - 1))
    rest = range(len(first), min(len(first) + size.test, len(dataset)))
    errors: list[float] = []
    if first:
        sup = work.plan.sup
        sup = sup if isinstance(sup, Sampled) else Sampled(gammas=GLANCE**work.threat.box.dim)
        glance = replace(work, plan=replace(work.plan, bound=sup))
        largest = lambda index: glance.largest(desk.image(dataset, index), index)  # noqa: E731
        errors = yield from measured(folder / "estimate", config, first, largest, WHOLE[0])
    E = work.chosen(errors)
    accepts = lambda index: work.accepts(desk.image(dataset, index), index, E)  # noqa: E731
    word = WHOLE[1] if size.n else "count who keeps E"  # without votes no certificate rests on it
    accepted = yield from measured(folder / "test", config | {"E": E}, rest, accepts, word)
    made = work.concluded(E, accepted, dataset.shape, dataset.name)
    made.write(folder / "calibration.json")
    return made
