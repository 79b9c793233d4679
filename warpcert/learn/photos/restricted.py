"""Restricted ImageNet: nine groups of ImageNet's classes."""

from __future__ import annotations

import torch

from warpcert.learn.data import Dataset

__all__ = ["GROUPS", "restricted"]

GROUPS = {  # Tsipras et al., 2019: the first and last class of each
    "dog": (151, 268),
    "cat": (281, 285),
    "frog": (30, 32),
    "turtle": (33, 37),
    "bird": (80, 100),
    "primate": (365, 382),
    "fish": (389, 397),
    "crab": (118, 121),
    "insect": (300, 319),
}


def restricted(dataset: Dataset) -> Dataset:
    """The photographs of ImageNet that belong to Restricted ImageNet, labelled by their groups."""
    group = torch.full((1 + max(last for _, last in GROUPS.values()),), -1)
    for place, (first, last) in enumerate(GROUPS.values()):
        group[first : last + 1] = place
    found = group[dataset.labels.clamp_max(len(group) - 1)]
    found[dataset.labels >= len(group)] = -1
    kept = (found >= 0).nonzero()[:, 0]
    if not len(kept):
        raise ValueError(f"{dataset.name} has no picture of a class of Restricted ImageNet")
    return Dataset(f"{dataset.name}-restricted", dataset.images[kept], found[kept], tuple(GROUPS))
