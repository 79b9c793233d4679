"""What a certificate spends of α."""

from __future__ import annotations

import math
from collections.abc import Iterable

from warpcert import statistics as stats

__all__ = ["Entries", "check_alpha", "spent"]

Entries = tuple[tuple[str, float], ...]  # of a ledger: purpose and amount


def check_alpha(alpha: float, ledger: Entries, bounds: Iterable[float]) -> None:
    """Refuses a ledger that overspends α, and bounds that use more than it shows."""
    entries = stats.Ledger(alpha)
    for purpose, amount in ledger:
        entries.spend(purpose, amount)
    used = math.fsum(bounds)
    if used > entries.spent * (1 + 1e-9):
        raise ValueError(f"the bounds use α = {used:g}, but the ledger shows only {entries.spent:g}")


def spent(ledger: Entries) -> str:
    """The entries of the ledger, those of votes added up."""
    votes = [amount for purpose, amount in ledger if _is_vote(purpose)]
    rest = [f"{purpose} {amount:g}" for purpose, amount in ledger if not _is_vote(purpose)]
    return ", ".join([*rest, *([f"votes {math.fsum(votes):.3g}"] if votes else [])]) or "–"


def _is_vote(purpose: str) -> bool:
    return purpose.startswith(("votes", "window"))
