"""Photographs of any size in a zip file, cut to squares; and pictures with labels, from wherever they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from warpcert.learn.data import Dataset
from warpcert.learn.photos.archive import Archive
from warpcert.learn.photos.restricted import GROUPS
from warpcert.paper.desk import Desk

__all__ = [
    "GROUPS",
    "IMAGENET",
    "RIMAGENET",
    "SHORT_SIDE",
    "SIDE",
    "Photographs",
    "Source",
    "pictures_of",
    "reduced",
    "source_of",
]

IMAGENET, RIMAGENET = "imagenet", "rimagenet"
SHORT_SIDE, RESIZED, SIDE = 512, 256, 224  # where the paper transforms photographs, and what its networks see of them


@final
class Photographs:
    """The JPEGs of a zip file with labels.csv (file,label), in a fixed random order of that list: (place in the
    file, label). Of Restricted ImageNet the labels are the groups'.
    """

    def __init__(self, path: Path, restricted: bool = False) -> None:
        self.archive = Archive(path)
        items = [(place, label) for place, (_, label) in enumerate(self.archive.items)]
        items = [(place, _group(label)) for place, label in items] if restricted else items
        self.items = [items[i] for i in np.random.default_rng(0).permutation(len(items))]

    def __len__(self) -> int:
        return len(self.items)

    def image(self, index: int, side: int) -> Tensor:
        """Picture `index` as float32 [3,side,side] in [0,1]: short side scaled to `side`, the middle cut out."""
        return self.archive.picture(self.items[index][0], side, side).float() / 255

    def dataset(self, side: int) -> Dataset:
        """All of them in memory, [N,3,side,side]."""
        pixels = torch.stack([(self.image(i, side) * 255).round().byte() for i in range(len(self))])
        labels = torch.tensor([label for _, label in self.items])
        return Dataset(self.archive.path.stem, pixels, labels, tuple(str(i) for i in range(int(labels.max()) + 1)))


def _group(label: int) -> int:
    found = [place for place, (first, last) in enumerate(GROUPS.values()) if first <= label <= last]
    if not found:
        raise ValueError(f"class {label} is not one of Restricted ImageNet")
    return found[0]


@final
@dataclass(frozen=True, eq=False)
class Source:
    """Pictures with labels on the desk's device, one at a time."""

    count: int
    image: Callable[[int], Tensor]
    label: Callable[[int], int]


def _photographs(desk: Desk, name: str) -> Photographs | None:
    return Photographs(desk.file(name), name == RIMAGENET) if name in (IMAGENET, RIMAGENET) else None


def source_of(desk: Desk, name: str, side: int = SIDE) -> Source:
    """The test pictures of that name; photographs are cut to side × side as they are asked for."""
    if photographs := _photographs(desk, name):
        return Source(
            len(photographs),
            lambda i: photographs.image(i, side).to(desk.device),
            lambda i: photographs.items[i][1],
        )
    dataset = desk.dataset(name)
    return Source(len(dataset), lambda i: desk.image(dataset, i), lambda i: int(dataset.labels[i]))


def pictures_of(desk: Desk, name: str) -> Dataset:
    """The test pictures of that name in memory; photographs at SHORT_SIDE."""
    photographs = _photographs(desk, name)
    return photographs.dataset(SHORT_SIDE) if photographs else desk.dataset(name)


def reduced(x: Tensor) -> Tensor:
    """[...,3,512,512] → [...,3,224,224] as the paper does it: scaled to 256, the middle cut out. Linear."""
    small = interpolate(x, (RESIZED, RESIZED), mode="bilinear", antialias=True)
    start = (RESIZED - SIDE) // 2
    return small[..., start : start + SIDE, start : start + SIDE]
