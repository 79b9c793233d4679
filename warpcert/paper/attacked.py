"""Attacked pictures and sounds, and what can be certified about their unseen originals."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from warpcert.attacks import worst_of_k
from warpcert.classifier.defence import Defence
from warpcert.classifier.voting import predict
from warpcert.learn.data import Dataset
from warpcert.paper.desk import Desk, Model
from warpcert.paper.experiment import Size, Step, measured
from warpcert.paper.table import Cell
from warpcert.runs import summary as report
from warpcert.runs.runner import seed_for
from warpcert.threat import Threat

__all__ = ["attacked_cells", "attacked_images", "attacked_views"]

CANDIDATES = 100  # worst of so many uniform γ, as in the paper


def attacked_images(desk: Desk, dataset: Dataset, model: Model, threat: Threat, p: Callable[[Tensor], Tensor]) -> Any:
    """index → x', the worst for f∘P of CANDIDATES uniform γ; always the same one, made once."""

    def plain(z: Tensor) -> Tensor:
        return model.classifier(p(z))  # type: ignore[no-any-return]

    @cache
    def image(index: int) -> Tensor:
        x, label = desk.image(dataset, index), int(dataset.labels[index])
        draw = torch.Generator().manual_seed(seed_for(4, index))
        return worst_of_k(plain, x, label, threat, k=CANDIDATES, generator=draw).x_attacked

    return image


def attacked_views(
    desk: Desk,
    folder: Path,
    config: dict[str, Any],
    dataset: Dataset,
    model: Model,
    defence: Defence,
    image: Callable[[int], Tensor],
    size: Size,
) -> Generator[Step, None, list[int]]:
    """What g answers at each attacked image: a label, or ABSTAIN."""

    def answer(index: int) -> int:
        draw = torch.Generator(device=desk.device).manual_seed(seed_for(5, index))
        return predict(model.classifier, defence, image(index), n=min(1000, size.n), generator=draw).label

    answers = yield from measured(folder, config, range(min(size.images, len(dataset))), answer, "attack, answer")
    return [int(a) for a in answers]


def attacked_cells(rows: Sequence[report.Row], answers: Sequence[int]) -> dict[str, Cell]:
    """Share correct, share certified and correct, E of the windows, time of analysis and of smoothing."""
    certificates = [r.certificate for r in rows]
    analysed = [c for c in certificates if c.error.E > 0]
    good = [r.certificate.label == r.label and r.certificate.reach is not None for r in rows]
    return {
        "attacked images": len(rows),
        "g correct": fmean(answers[r.index] == r.label for r in rows),
        "certified and correct": fmean(good),
        "E": median(c.error.E for c in analysed) if analysed else None,
        "ρ": max(c.error.rho for c in certificates),
        "excluded share of Γ": fmean(c.excluded or 0.0 for c in certificates),
        "analysis, s": fmean(c.error.seconds for c in certificates),
        "smoothing, s": fmean(c.seconds - c.error.seconds for c in certificates),
    }
