"""How the house is built, in numbers: `python -m benchmarks.house [TREE]`, of this source tree or another one."""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

NAMED = ("Rotation", "Scaling", "Shear", "Translation", "Brightness", "Contrast", "Power", "Volume")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path, nargs="?", default=Path(__file__).resolve().parents[1])
    parser.add_argument("--start", action="store_true", help="also time `warpcert --version` (best of five)")
    args = parser.parse_args()
    package = args.tree / "warpcert"
    files = sorted(package.rglob("*.py"))
    rooms: dict[str, list[int]] = {}
    for path in files:
        room = str(path.parent.relative_to(package)) if path.parent != package else "(top)"
        rooms.setdefault(room, []).append(len(path.read_text(encoding="utf-8").splitlines()))
    print("| room | files | lines | longest |\n| --- | --- | --- | --- |")
    for room, lines in sorted(rooms.items()):
        print(f"| {room} | {len(lines)} | {sum(lines)} | {max(lines)} |")
    counts = Counter[str]()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                counts["wide"] += len(names) - (names[:1] in (["self"], ["cls"])) > 6
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                asked = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                counts["named"] += bool(asked.intersection(NAMED)) and path.parent.name != "transforms"
    readme = re.sub(r"<!--.*?-->", "", (args.tree / "README.md").read_text(encoding="utf-8"), flags=re.S)
    face = (package / "__init__.py").read_text(encoding="utf-8")
    public = next(
        len(node.value.elts)
        for node in ast.parse(face).body
        if isinstance(node, ast.Assign)
        and getattr(node.targets[0], "id", "") == "__all__"
        and isinstance(node.value, ast.List)
    )
    print(f"\nfiles {len(files)}, lines {sum(map(sum, rooms.values()))}")
    print(f"functions with more than six parameters: {counts['wide']}")
    print(f"isinstance checks on named transformations outside transforms/: {counts['named']}")
    print(f"public names: {public}")
    print(f"README: {len(readme.split())} words, {len(readme.splitlines())} lines")
    if args.start:
        print(f"warpcert --version: {min(_seconds(args.tree) for _ in range(5)):.2f} s")


def _seconds(tree: Path) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "warpcert", "--version"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
