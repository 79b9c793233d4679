"""What a classifier behind levels sees of a picture, if not every pixel: means of pixels, or a mosaic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from warpcert.classifier.before.mosaic import Mosaic, Mosaicked
from warpcert.classifier.before.stem import Stem, Stemmed

__all__ = ["Seen", "Sees", "behind", "sees", "told"]

Sees = Stem | Mosaic
Seen = Stemmed | Mosaicked  # its `levels` of pictures, and the `picture` that is made of levels
_KINDS: dict[str, type[Stem] | type[Mosaic]] = {"stem": Stem, "mosaic": Mosaic}


def behind(what: Sees, step: int) -> Seen:
    return Stemmed(step, what) if isinstance(what, Stem) else Mosaicked(step, what)


def told(what: Sees) -> dict[str, Any]:
    """As a fact of a classifier, JSON types: `sees` takes it."""
    kind = next(name for name, kind in _KINDS.items() if isinstance(what, kind))
    return {"kind": kind, **asdict(what)}


def sees(fact: Mapping[str, Any] | None) -> Sees | None:
    """From a fact; a ValueError if there is no such thing."""
    if fact is None:
        return None
    given = dict(fact)
    kind = given.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"classifiers see {' or '.join(_KINDS)}; got {kind!r}")
    try:
        return _KINDS[kind](**given)
    except TypeError as error:
        raise ValueError(f"these are not the facts of a {kind}: {error}") from None
