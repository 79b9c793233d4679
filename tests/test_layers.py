"""Each layer imports only from those below it, and the public face names what exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import warpcert

PACKAGE = Path(warpcert.__file__).parent
ROOMS = [  # each imports only from those before it
    "version", "numerics", "statistics", "transforms", "threat", "networks", "classifier", "certificates", "errors",
    "windows", "exhaustive", "originals", "methods", "attacks", "learn", "runs", "report", "paper", "app",
]  # fmt: skip
SUBROOMS = {"app": ["art", "serve", "cli"]}  # and inside a room, where it has an order
BOUND_UPWARDS = {  # one call each, inside a function: the object that people hold calls what is built on it
    ("classifier", "base"): "methods",
    ("runs", "run"): "report",
}
TYPES_ONLY = {("classifier", "base"): "certificates"}
FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.stem not in ("__init__", "__main__"))


def imported(path: Path) -> list[tuple[tuple[str, ...], bool]]:
    """The modules of the package that a file imports, as parts below warpcert, and whether at the top of the file."""
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        found += [(tuple(n.split(".")[1:]), id(node) in top) for n in names if n.startswith("warpcert.")]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = (*path.relative_to(PACKAGE).parts[:-1], path.stem)
    for other, at_top in imported(path):
        if other[0] == "__version__":
            continue
        allowed = {BOUND_UPWARDS.get(own), TYPES_ONLY.get(own)}
        if not at_top and other[0] in allowed:
            continue
        assert ROOMS.index(other[0]) <= ROOMS.index(own[0]), f"{own[0]} must not import {other[0]}"
        order = SUBROOMS.get(own[0])
        if order and other[0] == own[0] and len(other) > 1:
            assert order.index(other[1]) <= order.index(own[1]), f"{'.'.join(own)} must not import {'.'.join(other)}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_the_app_names_flags_and_no_function_is_wide(path: Path) -> None:
    tree = ast.parse(path.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            assert path.relative_to(PACKAGE).parts[0] == "app" or not re.search(r"(^|[\s`])--([a-z]|$)", node.value)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            assert len(names) - (names[:1] in (["self"], ["cls"])) <= 6, f"{node.name} takes {names}"


def test_public_names_exist() -> None:
    for name in warpcert.__all__:
        assert getattr(warpcert, name) is not None
    assert len(warpcert.__all__) <= 26
    with pytest.raises(AttributeError):
        _ = warpcert.Defence


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, warpcert; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_files_and_rooms_stay_small() -> None:
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 400, f"{path.name} has grown too large"
    for room in {p.parent for p in FILES}:
        assert len(list(room.glob("*.py"))) <= 15, f"{room.name} holds too many files"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_functions_take_few_parameters(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            taken = len(names) - (names[:1] in (["self"], ["cls"]))
            assert taken <= MOST.get(node.name, 6), f"{path.name}: {node.name} takes {taken} parameters"


MOST = {"__init__": 8}  # of classifiers: their facts


NAMED = {"Rotation", "Scaling", "Shear", "Translation", "Brightness", "Contrast", "Power", "Volume"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_room_asks_which_transformation_it_is(path: Path) -> None:
    if path.parent.name == "transforms":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            asked = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & NAMED
            assert not asked, f"{path.name} asks whether a transformation is {', '.join(asked)}: let it declare a fact"
