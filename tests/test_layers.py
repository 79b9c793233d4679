"""Each layer imports only from those below it, and the public face names what exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import warpcert

PACKAGE = Path(warpcert.__file__).parent
LAYERS = [
    {"stats", "radius", "interval", "sealed", "coarse", "version"},
    {"transforms"},
    {"threat", "region", "evidence"},
    {"certificate"},
    {"bounds", "smoothing", "attacks"},
    {"methods"},
    {"learn"},
    {"lab"},
    {"app"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.stem not in ("__init__", "__main__"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "warpcert":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("warpcert."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("warpcert.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = room(path)
    for other in imported(path) - {own}:
        same_level = {own, other} <= LAYERS[LEVEL["attacks"]] or {own, other} <= LAYERS[0]
        assert LEVEL[other] < LEVEL[own] or same_level, f"{own} must not import {other}"


def test_public_names_exist() -> None:
    for name in warpcert.__all__:
        assert hasattr(warpcert, name)


def test_files_stay_small() -> None:
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 400, f"{path.name} has grown too large"
