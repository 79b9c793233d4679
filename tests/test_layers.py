"""Each layer imports only from those below it, and the public face names what exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import warpcert

PACKAGE = Path(warpcert.__file__).parent
ROOMS = [  # each imports only from those before it
    "version", "numerics", "statistics", "transforms", "threat", "classifier", "certificates", "errors", "windows",
    "exhaustive", "originals", "smoothing", "methods", "attacks", "learn", "runs", "paper", "report", "app",
]  # fmt: skip
SUBROOMS = {"errors": ["curve"], "originals": ["lagrangian"], "app": ["serve", "cli"]}
FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.stem not in ("__init__", "__main__"))


def imported(path: Path) -> set[tuple[str, ...]]:
    """The modules of the package that a file imports, as parts below warpcert; names count as modules."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
    return {tuple(name.split(".")[1:]) for name in found if name.startswith("warpcert.")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = (*path.relative_to(PACKAGE).parts[:-1], path.stem)
    for other in imported(path):
        if other[0] in ("__version__",):
            continue
        assert ROOMS.index(other[0]) <= ROOMS.index(own[0]), f"{own[0]} must not import {other[0]}"


def test_public_names_exist() -> None:
    for name in warpcert.__all__:
        assert hasattr(warpcert, name)


def test_files_stay_small() -> None:
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 400, f"{path.name} has grown too large"
