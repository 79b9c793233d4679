"""Additive brightness."""

from __future__ import annotations

from typing import ClassVar, final

from warpcert.transforms.families.tone import Tone

__all__ = ["Brightness"]


@final
class Brightness(Tone):
    """Adds γ to every value (0.1 is a tenth of the range from black to white)."""

    name: ClassVar[str] = "brightness"
    unit: ClassVar[str] = "of full scale"
    unit_name: ClassVar[str] = "of full scale"
    noun: ClassVar[str] = "brightness change"
    composition: ClassVar[str] = "offsets add"
    pivot: ClassVar[float | None] = None
