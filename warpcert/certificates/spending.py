"""What a certificate spends of α."""

from __future__ import annotations

import math

__all__ = ["Entries", "spent"]

Entries = tuple[tuple[str, float], ...]  # of a ledger: purpose and amount


def spent(ledger: Entries) -> str:
    """The entries of the ledger, those of votes added up."""
    votes = [amount for purpose, amount in ledger if _is_vote(purpose)]
    rest = [f"{purpose}: {amount:g}" for purpose, amount in ledger if not _is_vote(purpose)]
    return ", ".join([*rest, *([f"votes: {math.fsum(votes):.3g}"] if votes else [])]) or "–"


def _is_vote(purpose: str) -> bool:
    return purpose.startswith(("votes", "window"))
