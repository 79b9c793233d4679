"""Pictures that somebody holds in Python, as a dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from warpcert.learn.data import Dataset
from warpcert.learn.pictures import held_by_float32

__all__ = ["UNNAMED", "collected"]

UNNAMED = "pictures-"  # and a digest of the content, where pictures are handed over without a name


def collected(pictures: Any, classes: Sequence[str] = ()) -> Dataset:
    """Pairs (x, label), one by one or in the batches of a DataLoader, as a dataset in memory; x is float in [0,1].

    Values that are multiples of 1/255 are kept as 8-bit ones, which they are, and others as float32; float64 values
    that are neither are refused. The dataset is named by a digest of its content, so that a run can only be resumed
    with the same pictures.
    """
    if isinstance(pictures, Dataset):
        return pictures
    items, labels = list[Tensor](), list[int]()
    for pair in _pairs(pictures):
        try:
            x, label = pair
        except (TypeError, ValueError):
            raise ValueError("a dataset must give pairs: a picture [C,H,W] in [0,1] and its label") from None
        batched = isinstance(label, Tensor) and label.dim() == 1
        items += list(x) if batched else [x]
        labels += label.tolist() if batched else [int(label)]
    if not items:
        raise ValueError("the dataset is empty")
    return _dataset(items, labels, classes)


def _pairs(pictures: Any) -> Iterable[Any]:
    if hasattr(pictures, "__getitem__") and hasattr(pictures, "__len__"):
        return (pictures[i] for i in range(len(pictures)))
    if hasattr(pictures, "__iter__"):
        return iter(pictures)  # type: ignore[no-any-return]
    raise ValueError(f"expected a dataset or a DataLoader of pairs (picture, label); got {type(pictures).__name__}")


def _dataset(items: list[Tensor], labels: list[int], classes: Sequence[str]) -> Dataset:
    if not all(isinstance(x, Tensor) and x.is_floating_point() for x in items):
        raise ValueError("pictures must be float tensors [C,H,W] with values in [0,1]: divide 8-bit values by 255")
    if len({x.shape for x in items}) > 1:
        raise ValueError(f"pictures must share one shape; got {', '.join(sorted({str(list(x.shape)) for x in items}))}")
    x = torch.stack([item.detach().cpu() for item in items])
    if not bool((x >= 0).all() and (x <= 1).all()):
        raise ValueError("the values of pictures must lie in [0,1]: divide 8-bit values by 255")
    if not bool(held_by_float32(x).all()):
        raise ValueError("float64 pictures whose values float32 cannot represent become others: pass x.float()")
    levels = (x.double() * 255).round()
    eight_bit = bool((levels.float() / 255 == x.float()).all())
    stored = levels.to(torch.uint8) if eight_bit else x.float()
    digest = hashlib.sha256(stored.numpy().tobytes() + repr(labels).encode()).hexdigest()[:12]
    names = tuple(classes) or tuple(str(i) for i in range(max(labels) + 1))
    return Dataset(f"{UNNAMED}{digest}", stored, torch.tensor(labels, dtype=torch.int64), names)
