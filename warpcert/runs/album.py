"""The pictures of a run, kept beside its records: a report needs no dataset and cannot show the wrong picture."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpcert.learn.data import Dataset

__all__ = ["PICTURES", "Pictures", "keep", "read"]

PICTURES = "pictures.npz"
MOST, ROOM = 100, 2**25  # pictures, and bytes before compression, that a run keeps
LEVELS = {"uint8": 255.0, "int16": 32768.0, "float32": 1.0}


@final
@dataclass(frozen=True, eq=False)
class Pictures:
    """What was certified: x [N,C,H,W] uint8, or float32 where it is not 8-bit (sound: [N,C,L] int16), at the places
    `index` of the run's dataset.

    For a run on attacked pictures x holds the originals and `attacked`, of the same shape, what was certified.
    """

    index: NDArray[Any]
    x: NDArray[Any]
    classes: tuple[str, ...]
    attacked: NDArray[Any] | None = None

    def place(self, index: int) -> int | None:
        """Where the picture of that index is kept, None if it is not."""
        (found,) = np.nonzero(self.index == index)
        return int(found[0]) if len(found) else None

    def tensor(self, values: NDArray[Any], place: int) -> Tensor:
        """float32 [C,...] in the range that the classifier sees."""
        return torch.from_numpy(values[place].astype(np.float32)) / LEVELS[str(values.dtype)]


def keep(
    folder: Path, dataset: Dataset, indices: Sequence[int], certified: Callable[[int], Tensor] | None = None
) -> None:
    """Writes pictures.npz, whole or not at all, unless it is there: the first of `indices`, as many as have room.

    `certified` gives what was certified in place of the originals: it is kept beside them where it differs.
    """
    size = dataset.images[:1].numpy().nbytes
    chosen = list(indices)[: max(1, min(MOST, ROOM // max(1, size)))]
    present = read(folder)
    if present is not None and present.index.tolist() == chosen:
        return
    originals = dataset.images[chosen]
    content = {"index": np.array(chosen, dtype=np.int64), "x": originals.numpy()}
    if certified is not None:
        values = torch.stack([certified(i).cpu() for i in chosen]) * dataset.levels
        attacked = (values if originals.is_floating_point() else values.round()).to(originals.dtype)
        content |= {} if torch.equal(attacked, originals) else {"attacked": attacked.numpy()}
    part = folder / f"{PICTURES}.part"
    with part.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, classes=np.array(dataset.classes), **content)
    os.replace(part, folder / PICTURES)


def read(folder: Path) -> Pictures | None:
    """The pictures of a run folder, None if it keeps none."""
    path = folder / PICTURES
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            content = {name: file[name] for name in file.files}
        classes = tuple(str(c) for c in content.pop("classes"))
        found = Pictures(classes=classes, **content)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not hold the pictures of a run: {error}") from None
    arrays = [a for a in (found.x, found.attacked) if a is not None]
    if any(len(a) != len(found.index) or str(a.dtype) not in LEVELS for a in arrays):
        raise ValueError(f"{path} does not hold the pictures of a run: its arrays do not fit together")
    return found
