"""Mutations that the tests must catch: `python -m benchmarks.mutations [WORD …]` prints which are killed.

Each is one changed line of code that proofs rest on. It is applied to a copy of the source tree, and the tests that
should notice are run there until one fails. Words choose mutations by their place.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1800  # seconds for the tests of one mutation


class Mutation(NamedTuple):
    """`old`, once in the file, becomes `new`; `tests` are what pytest is given."""

    what: str
    file: str
    old: str
    new: str
    tests: str


MUTATIONS = [
    Mutation(**each)
    for each in tomllib.loads((ROOT / "benchmarks" / "mutations.toml").read_text(encoding="utf-8"))["mutation"]
]


def copied(folder: Path) -> Path:
    """The files of the source tree that git knows or would add."""
    listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    for name in filter(None, names):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    return folder


def fails(tree: Path, tests: str) -> str:
    """The first test that fails in the tree; "" if none does."""
    chosen, *words = tests.split(" -k ")
    options = ("-q", "-x", "-p", "no:cacheprovider", "--no-header", "-rfE", *(("-k", words[0]) if words else ()))
    command = (sys.executable, "-m", "pytest", *options, *chosen.split())
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return "time limit"
    if done.returncode == 0:
        return ""
    told = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return told[-1].split("::")[-1] if told else f"exit status {done.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="of the places of mutations; none: all of them")
    options = parser.parse_args()
    chosen = [m for m in MUTATIONS if not options.words or any(word in m.file for word in options.words)]
    survived, start = 0, time.monotonic()
    print("| what is weakened | in | test that fails |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        tree = copied(Path(name))
        for m in chosen:
            path = tree / "warpcert" / m.file
            text = path.read_text(encoding="utf-8")
            if text.count(m.old) != 1:
                raise SystemExit(f"{m.file}: {m.old!r} is there {text.count(m.old)} times; expected once")
            path.write_text(text.replace(m.old, m.new), encoding="utf-8")
            test = fails(tree, m.tests)
            path.write_text(text, encoding="utf-8")
            survived += not test
            print(f"| {m.what} | `{m.file}` | {f'`{test}`' if test else '**none**'} |", flush=True)
    print(f"\n{len(chosen)} mutations, {survived} survived; {time.monotonic() - start:.0f} s")
    return 1 if survived else 0


if __name__ == "__main__":
    raise SystemExit(main())
