"""What a network of the package looks like, in one record that is stored with its weights."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, final

__all__ = ["ModelConfig"]

LITES = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
FAMILIES = ("resnet", "convnet", "lipschitz", *LITES)
FRONTS = ("none", "mfcc", "standard")


@final
@dataclass(frozen=True)
class ModelConfig:
    """shape [C,H,W] or [C,L] → `classes` logits.

    The stem is a convolution of `stem_kernel` and `stem_stride`; stage i has blocks[i] residual blocks (the first stage
    may have none) of width · 2^i channels, and every stage but the first halves the resolution. head: average
    (over places) or flatten (keeps them). mean and std, one value or one per channel, normalise the input inside the
    network. front (resnet only) comes before everything else: "mfcc" is the front end of sounds, whose picture the
    convolutions then see; "standard" takes an item's own mean away and divides by its own deviation, so that no change
    of brightness is seen, but for rounding, unless it clips. mirror (resnet, images only): deployed, logits are the
    mean over a picture and its mirror image.

    family: resnet; or convnet (images only), the paper's for MNIST, which uses nothing but width; or lipschitz (images
    only), where the stem only folds stem_stride × stem_stride pixels into channels and `stem_kernel` is not used; or
    efficientnet-lite0 … 2 (images only), which settle width, blocks, stem and head.
    groups (efficientnet-lite only): each class stands for so many logits, which follow one another; its score is the
    logarithm of the sum of their exponentials.
    """

    shape: tuple[int, ...]
    classes: int
    width: int = 32
    blocks: tuple[int, ...] = (1, 1, 1)
    stem_kernel: int = 5
    stem_stride: int = 2
    head: str = "average"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    family: str = "resnet"
    front: str = "none"  # or mfcc, standard
    mirror: bool = False
    groups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.shape) not in (2, 3) or min(self.shape) < 1:
            raise ValueError(f"a model's shape is [C,H,W], or [C,L] for sound; got {self.shape}")
        stages = self.blocks and self.blocks[0] >= 0 and min(self.blocks[1:], default=1) >= 1
        if self.classes < 2 or self.width < 1 or not stages:
            raise ValueError(
                f"a model needs classes ≥ 2, width ≥ 1 and stages of ≥ 1 block (the first: ≥ 0); "
                f"got {self.classes}, {self.width}, {self.blocks}"
            )
        if self.stem_kernel < 1 or self.stem_kernel % 2 == 0 or self.stem_stride < 1:
            raise ValueError(
                f"the stem needs an odd kernel and a stride ≥ 1; got {self.stem_kernel}, {self.stem_stride}"
            )
        if self.family not in FAMILIES or (self.family != "resnet" and len(self.shape) != 3):
            raise ValueError(
                f"the family {self.family!r} is not known for shape {self.shape}; choose one of {', '.join(FAMILIES)} "
                f"(all but resnet: images [C,H,W])"
            )
        if self.groups and (self.family not in LITES or len(self.groups) != self.classes or min(self.groups) < 1):
            raise ValueError(
                f"groups are for efficientnet-lite, one size ≥ 1 for each of {self.classes} classes; "
                f"got {self.groups} for a {self.family}"
            )
        if self.head not in ("average", "flatten"):
            raise ValueError(f"head {self.head!r} is not known; choose average or flatten")
        if self.front not in FRONTS or (self.front != "none" and self.family != "resnet"):
            raise ValueError(
                f"front {self.front!r} is not known for a {self.family}; choose none, or for a resnet mfcc or standard"
            )
        if self.mirror and (self.family != "resnet" or len(self.shape) != 3):
            raise ValueError(f"mirror is for a resnet of images; got a {self.family} of shape {self.shape}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.shape[0]) or not all(map(math.isfinite, values)):
                raise ValueError(f"{name} needs 1 or {self.shape[0]} finite value(s); got {values}")
        if min(self.std) <= 0:
            raise ValueError(f"std must be positive; got {self.std}")

    def to_dict(self) -> dict[str, Any]:
        """Without the groups that most models do not have, so that these keep the fingerprint that they had before."""
        return {name: value for name, value in asdict(self).items() if name != "groups" or value}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> ModelConfig:
        unknown = set(d) - {f.name for f in fields(cls)}
        if unknown:
            raise ValueError(f"a model has no field {', '.join(sorted(unknown))}")
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in d.items()}
        return cls(**given)
