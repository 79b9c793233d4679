"""Certificates: what was proved about one picture, in one small class per kind of statement.

Voted        votes under parameter noise, of a known picture or of an attacked one
Individual   the same about an attacked picture, for every original that can have led to it
Covered      cells of Γ, each tested under pixel noise
ByMargins    cells of Γ, and a network with a Lipschitz constant
Exhausted    every possible input was asked about

`read` takes any of their records and redoes its arithmetic.
"""

from __future__ import annotations

from typing import Any

from warpcert.certificates.base import Certificate, Subject, abstained
from warpcert.certificates.covered import Covered
from warpcert.certificates.evidence import NO_ERROR, Enumeration, ErrorBound, Kind, Margins, Share, Window
from warpcert.certificates.exhausted import Exhausted
from warpcert.certificates.individual import Individual
from warpcert.certificates.margins import ByMargins
from warpcert.certificates.sealed import unseal
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
]

STATEMENTS: dict[str, type[Certificate]] = {c.statement: c for c in (Voted, Covered, ByMargins, Exhausted, Individual)}


def read(record: dict[str, Any]) -> Certificate:
    """The certificate that `to_dict` wrote, its arithmetic redone: a ValueError names the first field that does not
    follow from the evidence.
    """
    body = unseal(record)
    statement = body.pop("statement", None)
    if statement not in STATEMENTS:
        raise ValueError(f"statement {statement!r} is not one of {', '.join(STATEMENTS)}")
    return STATEMENTS[statement].from_body(body)
