"""Certificates: what was proved about one picture, in one small class per kind of statement.

Voted        votes under parameter noise, of a known picture or of an attacked one
Individual   the same about an attacked picture, for every original that can have led to it
Covered      cells of Γ, each tested under pixel noise
ByMargins    cells of Γ, and a network with a Lipschitz constant
Exhausted    every possible input was asked about

`read` takes any of their records and verifies it.
"""

from __future__ import annotations

import json
from typing import Any

from warpcert.certificates.base import Certificate, Subject, abstained
from warpcert.certificates.covered import Covered
from warpcert.certificates.evidence import NO_ERROR, Enumeration, ErrorBound, Kind, Margins, Share, Window
from warpcert.certificates.exhausted import Exhausted
from warpcert.certificates.individual import Individual
from warpcert.certificates.margins import ByMargins
from warpcert.certificates.sealed import same, unseal
from warpcert.certificates.typed import well_typed
from warpcert.certificates.verify import verify
from warpcert.certificates.voted import Voted

__all__ = [
    "NO_ERROR",
    "ByMargins",
    "Certificate",
    "Covered",
    "Enumeration",
    "ErrorBound",
    "Exhausted",
    "Individual",
    "Kind",
    "Margins",
    "Share",
    "Subject",
    "Voted",
    "Window",
    "abstained",
    "read",
    "renewed",
]

STRANGE = (KeyError, TypeError, AttributeError, IndexError, ArithmeticError, AssertionError, FloatingPointError)
STATEMENTS: dict[str, type[Certificate]] = {c.statement: c for c in (Voted, Covered, ByMargins, Exhausted, Individual)}


def read(record: dict[str, Any], *, digest: bool = True) -> Certificate:
    """The certificate that `to_dict` wrote, verified: a ValueError names the first thing that does not follow from the
    evidence. `digest` is off where a digest of more than the record was checked already.
    """
    body = unseal(record) if digest else {k: v for k, v in record.items() if k != "digest"}
    derived = body.pop("derived", {})
    made = _built(body)
    redone = _derived(made)
    for name in redone.keys() | derived.keys():
        if not same(redone.get(name), derived.get(name)):
            raise ValueError(f"{name} is {derived.get(name)!r}, but the evidence gives {redone.get(name)!r}")
    return made


def renewed(record: dict[str, Any]) -> dict[str, Any]:
    """The same evidence, verified, with all that follows from it written anew: for records in older words."""
    made = _built({k: v for k, v in record.items() if k not in ("digest", "derived")})
    _derived(made)
    return made.to_dict()


def _derived(made: Certificate) -> dict[str, Any]:
    """What follows from the evidence, once that is verified."""
    try:
        verify(made)
        redone: dict[str, Any] = json.loads(json.dumps(made.derived()))
    except STRANGE as error:
        raise ValueError(f"the evidence does not fit together: {error!r}") from None
    return redone


def _built(body: dict[str, Any]) -> Certificate:
    statement = str(body.pop("statement", None))
    if statement not in STATEMENTS:
        raise ValueError(f"statement {statement!r} is not one of {', '.join(STATEMENTS)}")
    try:
        made = STATEMENTS[statement].built(body)
        well_typed(made)
        written = made.evidence()
    except STRANGE as error:
        raise ValueError(f"fields are missing or strange: {error!r}") from None
    for name, value in body.items():
        if name != "windows" and written[name] != value:
            raise ValueError(f"{name} is not written as certificates write it: {value!r}")
    return made
