"""A calibration of DistSPT^D, measured picture by picture and resumable."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch

from warpcert.classifier.defence import Defence
from warpcert.errors.base import SupBound
from warpcert.errors.calibration import Calibration, calibrate, estimate, inner_betas
from warpcert.learn.data import Dataset
from warpcert.paper.desk import Desk, Missing
from warpcert.paper.experiment import Size, Step, measured
from warpcert.runs.runner import seed_for
from warpcert.threat import Threat

__all__ = ["calibrated", "calibration_data"]

ALPHA = 0.001  # of q_E, and per picture
FACTOR = 1.1  # E is this times the largest error seen


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
        raise Missing(f"{wanted} pictures to calibrate on, beyond those of {test.name}: give --data-root")
    return test.part(len(test) - wanted, len(test))


def calibrated(
    desk: Desk,
    folder: Path,
    config: dict[str, Any],
    dataset: Dataset,
    defence: Defence,
    threat: Threat,
    size: Size,
    sup: SupBound,
    E: float | None = None,
) -> Generator[Step, None, Calibration]:
    """E from the first `estimate` pictures of the dataset (unless given), q_E tested on the `test` after them, each
    with β's of its own; writes calibration.json.
    """
    betas = inner_betas(size.rho, ALPHA, 0)
    sup_config = config | {"bound": sup.name, "defence": defence.to_dict(), "threat": threat.to_dict()}

    def draw(index: int) -> torch.Generator:
        return torch.Generator(device=desk.device).manual_seed(seed_for(3, index))

    def largest(index: int) -> float:
        x = [desk.image(dataset, index)]
        return next(iter(estimate(sup, x, defence, threat, betas=betas, generator=draw(index))))

    first = range(0 if E is not None else min(size.estimate, len(dataset) - 1))
    if E is None:
        errors = yield from measured(folder / "estimate", sup_config, first, largest, "choose E")
        E = FACTOR * max(errors)

    def within(index: int) -> bool:
        x = [desk.image(dataset, index)]
        good = calibrate(sup, x, defence, threat, E=E, betas=betas, allowed=0, generator=draw(index))
        return next(iter(good))

    rest = range(len(first), min(len(first) + size.test, len(dataset)))
    accepted = yield from measured(folder / "test", sup_config | {"E": E}, rest, within, "test q_E")
    made = Calibration(
        defence=defence,
        threat=threat,
        shape=dataset.shape,
        data=dataset.name,
        E=E,
        rho=size.rho,
        alpha=ALPHA,
        alpha_inner=ALPHA,
        images=len(accepted),
        accepted=sum(accepted),
        betas=betas,
        allowed=0,
        kind=sup.kind,
        bound=sup.name,
        seed=0,
    )
    made.write(folder / "calibration.json")
    return made
