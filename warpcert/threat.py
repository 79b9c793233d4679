"""What the attacker may do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

from torch import Tensor

from warpcert import transforms
from warpcert.transforms import Box, Transform, kernels

__all__ = ["Threat"]


@final
@dataclass(frozen=True)
class Threat:
    """The attacker picks γ ∈ Γ = `box` and hands over x' = q(T_γ x), or T_γ x itself when `quantized` is off."""

    transform: Transform
    box: Box
    interpolation: str = "bilinear"
    quantized: bool = True

    def __post_init__(self) -> None:
        kernels.interpolating(self.interpolation)
        if self.box.dim != self.transform.dim:
            raise ValueError(
                f"Γ has {self.box.dim} dimension(s), but {self.transform.name} has {self.transform.dim} parameter(s)"
            )
        if not self.box.contains((0.0,) * self.box.dim):
            raise ValueError(f"Γ must contain γ = 0 (the picture as it is); got {self.box.lower} … {self.box.upper}")

    @classmethod
    def surface(cls, transform: str, *gamma: float, interpolation: str = "bilinear", quantized: bool = True) -> Threat:
        """In surface units: Threat.surface("rotation", 30) is ±30°, ("scaling", -10, 30) is ×0.9 to ×1.3."""
        t = transforms.get(transform)
        return cls(t, t.box(*gamma), interpolation, quantized)

    def attacked(self, x: Tensor, gamma: Tensor) -> Tensor:
        """x' for parameters [B,d]: [C,...] or [B,C,...] → [B,C,...]."""
        moved = self.transform(x, gamma, self.interpolation)
        return self.transform.quantize(moved) if self.quantized else moved

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"transform": self.transform.name}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Threat:
        box = Box(tuple(d["box"]["lower"]), tuple(d["box"]["upper"]))
        return cls(transforms.get(d["transform"]), box, d["interpolation"], d["quantized"])
