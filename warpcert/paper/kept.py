"""Certificates that the repository keeps: a row of the paper that asks for the same ones tells those."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import final

from warpcert.classifier import Classifier
from warpcert.paper.certifying import Certified, certified
from warpcert.paper.desk import Desk
from warpcert.threat import Threat

__all__ = ["Kept", "kept"]

ROWS = "rows.toml"


@final
@dataclass(frozen=True, eq=False)
class Kept:
    """Certificates by index; and where they are kept, what about, by which command and since when."""

    rows: list[Certified]
    said: str


def kept(desk: Desk, name: str, net: Classifier, threat: Threat) -> Kept | None:
    """results/NAME beside the package, in a full run, if its certificates are about this classifier and about all of
    this threat's Γ.
    """
    with resources.as_file(resources.files("warpcert")) as package:
        folder = package.parent / "results" / name
    if desk.quick or not name or not (folder.parent / ROWS).is_file() or not folder.is_dir():
        return None
    rows = certified(folder)
    about = rows[0].certificate
    if about.classifier.fingerprint != net.fingerprint or not _covers(about.threat, threat):
        return None
    told = next(row for row in _listed(folder.parent) if row["name"] == name)
    command = f"`warpcert {told['command']}`, {told['measured']}"
    return Kept(rows, f"{len(rows)} certificates kept in results/{name} ({told['task']}; {command}).")


def _covers(there: Threat, wanted: Threat) -> bool:
    """The same transformation and interpolation, and a Γ that holds the one that is wanted."""
    same = (there.transform, there.interpolation, there.l2) == (wanted.transform, wanted.interpolation, wanted.l2)
    holds = (a <= b for a, b in zip(there.box.lower, wanted.box.lower, strict=True))
    return same and all(holds) and all(a >= b for a, b in zip(there.box.upper, wanted.box.upper, strict=True))


def _listed(folder: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = tomllib.loads((folder / ROWS).read_text(encoding="utf-8"))["row"]
    return found
