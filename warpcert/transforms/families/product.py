"""Products: transformations one after the other, each with parameters of its own."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from warpcert.numerics.box import Box
from warpcert.transforms.families.base import Transform
from warpcert.transforms.families.gradation import Gradation
from warpcert.transforms.families.tone import Tone

__all__ = ["THEN", "Product", "product"]

THEN = " then "  # between the names of the parts


class Product(Transform):
    """T_γ = T_{γ_k} ∘ … ∘ T_{γ_1}, parameters in the order of the parts. Between parts nothing is clipped or rounded:
    the attacker does both at the end, or neither.

    Parameters of a product do not add, since the parts need not commute. `product` makes the types, one for each
    sequence of parts.
    """

    made_of: ClassVar[tuple[Transform, ...]]
    composition: ClassVar[str] = "each part by its own law"

    @property
    @final
    def parts(self) -> tuple[Transform, ...]:
        return self.made_of

    @final
    def __call__(self, x: Tensor, gamma: Tensor, interpolation: str = "bilinear") -> Tensor:
        self._check(x, gamma)
        first = 0
        for part in self.made_of:
            x = part(x, gamma[:, first : first + part.dim], interpolation)
            first += part.dim
        return x

    @final
    def legal(self, gamma: Tensor, box: Box) -> Tensor:
        found, first = [], 0
        for part, own in self.shared(box):
            found.append(part.legal(gamma[:, first : first + part.dim], own))
            first += part.dim
        return torch.cat(found, 1)

    @final
    def box(self, *surface: float) -> Box:
        """The box of surface units, one ±r for every parameter (of a disc, its radius): box(30, 0.2)."""
        wanted = [1 if part.disc else part.dim for part in self.made_of]
        if len(surface) == self.dim:
            wanted = [part.dim for part in self.made_of]
        if len(surface) != sum(wanted):
            raise ValueError(
                f"the range of {self.noun} is {sum(wanted)} numbers ≥ 0, one for each parameter; got {surface}"
            )
        boxes, first = [], 0
        for part, count in zip(self.made_of, wanted, strict=True):
            boxes.append(part.box(*surface[first : first + count]))
            first += count
        return Box(*(tuple(v for b in boxes for v in getattr(b, end)) for end in ("lower", "upper")))

    @final
    def __reduce__(self) -> tuple[Any, ...]:
        return product, self.made_of

    @final
    def __repr__(self) -> str:
        return f"product({', '.join(map(repr, self.made_of))})"


def product(*parts: Transform) -> Transform:
    """The parts one after the other, in this order; one part is itself."""
    parts = tuple(each for part in parts for each in part.parts)
    if not parts:
        raise ValueError("a threat needs at least one part, for instance rotation")
    names = [part.name for part in parts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"each part occurs once; got {', '.join(twice)} twice: say one range for it")
    if len(parts) > 1 and any(part.item_dims != 3 for part in parts):
        raise ValueError(f"a product is about pictures; got {', '.join(names)}")
    tones = [isinstance(part, Tone) for part in parts]
    for place, part in enumerate(parts):
        if isinstance(part, Gradation) and any(tones[:place]):
            raise ValueError(f"{part.name} is defined on [0,1]: apply it before {names[tones.index(True)]}, not after")
    return parts[0] if len(parts) == 1 else _made(parts)()


@cache
def _made(parts: tuple[Transform, ...]) -> type[Product]:
    """The type of a product: transformations are equal if their types are."""
    facts = {
        "made_of": parts,
        "name": THEN.join(p.name for p in parts),
        "dim": sum(p.dim for p in parts),
        "unit": " × ".join(p.unit for p in parts),
        "unit_name": " × ".join(p.unit_name for p in parts),
        "interpolates": any(p.interpolates for p in parts),
        "noun": ", then ".join(p.noun for p in parts),
        "natural_vignette": next((p.natural_vignette for p in parts if p.natural_vignette != "none"), "none"),
    }
    return type("Product", (Product,), facts)
