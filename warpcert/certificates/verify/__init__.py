"""The verifier: from counts, parameters and cells alone it redoes what a record claims, in arithmetic of its own.

Every field of a record is recomputed, cross-checked against the others, MEASURED (only doing it again can tell:
`warpcert check --against`) or FREE (nothing is claimed by it).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warpcert.certificates.base import Certificate
from warpcert.certificates.covered import Covered
from warpcert.certificates.exhausted import Exhausted
from warpcert.certificates.individual import Individual
from warpcert.certificates.margins import ByMargins
from warpcert.certificates.verify.balls import individual, voted
from warpcert.certificates.verify.cells import covered, margins
from warpcert.certificates.verify.classifiers import exists
from warpcert.certificates.verify.common import answers, rank, refuse, together
from warpcert.certificates.verify.fields import FORMER, FREE, MEASURED
from warpcert.certificates.verify.inputs import exhausted
from warpcert.certificates.voted import Voted

__all__ = ["FORMER", "FREE", "MEASURED", "exists", "verify"]

CERTIFIES: dict[type[Certificate], Callable[[Any], bool]] = {
    Voted: voted,
    Individual: individual,
    Covered: covered,
    ByMargins: margins,
    Exhausted: exhausted,
}


def verify(c: Certificate) -> None:
    """A ValueError names the first thing in which the evidence does not fit together, or does not carry the label, the
    kind and the range.
    """
    exists(c.classifier)
    together(c)
    answers(c, CERTIFIES[type(c)](c))
    refuse(c.kind is not rank(c), f"kind is {c.kind}, but the evidence gives {rank(c)}")
