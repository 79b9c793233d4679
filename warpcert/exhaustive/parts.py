"""Parts of a range that are proved each by itself, by whoever has time, and put together again.

Guarantee. A part start … until says: if the label is proved for all γ ∈ start·Γ, then it is for all γ ∈ u·Γ with
u ≤ reached. `joined` puts such a part behind a certificate that reaches its start, and is a certificate again.

Argument. A walk outwards proves the label slice by slice (see `exhaustive.verify`): the pictures possible at γ are
among those of the slice that γ lies in, whatever was found out about others. A part is one or more such slices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from warpcert.certificates import Exhausted

__all__ = ["Part", "joined", "same"]


@final
@dataclass(frozen=True)
class Part:
    """What was found out about Γ between start·Γ and until·Γ.

    reached  how far the label is proved, if it is for start·Γ
    limit    the least multiple of Γ at which something is known to fail or to be undecided; ∞: none. Beyond `until` it
             was merely seen
    made     a certificate if start = 0; else it counts this part alone, and is none
    """

    start: float
    until: float
    reached: float
    limit: float
    made: Exhausted

    @property
    def ended(self) -> bool:
        """Whether the range of the whole ends here."""
        return self.limit <= self.until


def same(first: Exhausted, second: Exhausted) -> bool:
    """Whether both speak of the same picture, classifier and threat, on the same terms."""
    one, other = first.found, second.found
    about = [(c.picture, c.classifier.fingerprint, c.threat, c.method, c.label) for c in (first, second)]
    terms = [f and (f.slack, f.tolerance, f.eight_bit) for f in (one, other)]
    return about[0] == about[1] and terms[0] == terms[1] and one is not None


def joined(first: Exhausted, part: Part) -> Exhausted:
    """A certificate as far as the part reaches, from one that reaches its beginning."""
    if not same(first, part.made) or first.found is None or part.made.found is None:
        raise ValueError(
            "these parts speak of different pictures, classifiers, threats or terms: remove what was kept, and the "
            "picture starts anew"
        )
    if first.found.held < part.start or first.counterexample is not None:
        raise ValueError(f"nothing is proved from {first.found.held:g} to {part.start:g} of the range")
    crossings = first.found.crossings + part.made.found.crossings
    found = replace(part.made.found.after(first.found), crossings=crossings, held=part.reached)
    seconds = first.error.seconds + part.made.error.seconds
    return replace(
        part.made,
        found=found,
        error=replace(part.made.error, cells=crossings, seconds=seconds),
        passes=first.passes + part.made.passes,
        seconds=first.seconds + part.made.seconds,
    )
