"""What a run says, on the terminal."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from warpcert.certificates import Kind
from warpcert.runs.run import Run
from warpcert.runs.summary import under_attack

__all__ = ["PAGE", "show"]

PAGE = "report.html"


def show(run: Run, as_json: bool) -> None:
    """The table of a run on stdout, or the same as JSON."""
    under = under_attack(run.rows)
    attacked = under.to_dict() if under else {}
    if as_json:
        print(json.dumps(run.summary.to_dict() | attacked | {"folder": str(run.folder)}))
        return
    out = Console(highlight=False)
    found, first = run.summary, run.rows[0]
    counted = f"{found.count} picture{'s' * (found.count > 1)}, kind: {found.kind}"
    table = Table("certified range", "certified accuracy", "95 % interval", title=counted)
    for text, share, low, high in found.rows:
        table.add_row(text, f"{share:.3f}", f"{low:.3f} … {high:.3f}")
    out.print(table)
    if found.kind is Kind.HEURISTIC:
        out.print(
            "HEURISTIC: the interpolation error was sampled or dropped, not bounded; these ranges are not proved."
        )
    if first.certificate.share:
        share = first.certificate.share.share
        out.print(f"DISTRIBUTIONAL: only for the share ≥ {share:.4f} of pictures that the calibration vouches for.")
    for line in _attack_lines(attacked):
        out.print(line)
    error = "" if found.median_E is None else f"median E {found.median_E:.4f}, "
    out.print(f"{error}{found.seconds:.2f} s and {found.passes:.0f} passes per picture")
    out.print(f"picture {first.index}: {first.certificate}", soft_wrap=True)
    out.print(f"certificates are in {run.folder}; look at {run.folder / PAGE}", soft_wrap=True)


def _attack_lines(found: dict[str, Any]) -> list[str]:
    if not found:
        return []
    out = "" if found["ruled_out"] is None else f"; {found['ruled_out']:.1%} of the range ruled out on average"
    return [
        f"attacked pictures: {found['answered_correctly']:.3f} answered correctly "
        f"({found['answered_correctly_without_votes']:.3f} by the network alone){out}",
        f"{found['analysis_seconds']:.2f} s of analysis and {found['smoothing_seconds']:.2f} s of votes per picture",
    ]
