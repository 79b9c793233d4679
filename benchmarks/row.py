"""Measures rows of results/rows.toml in turn: `python -m benchmarks.row NAME … [--seconds 1500] [--each 60]`.

Each row runs its own command into runs/NAME, with `--each` seconds for a picture; other options are handed on. When the
time in all is over the run at hand is interrupted as by Ctrl-C: what is proved is kept, and the same command goes on
from there. Then `python -m benchmarks.table pack NAME runs/NAME` keeps the row.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.table import rows_of

ROOT = Path(__file__).resolve().parents[1]
GRACE = 60.0  # seconds in which an interrupted run writes what it knows


def command(row: dict[str, str], each: float | None, more: list[str]) -> list[str]:
    """What to run for a row."""
    limit = [] if each is None else ["--time-limit", f"{each:g}"]
    out = str(Path("runs") / row["name"])
    return [sys.executable, "-m", "warpcert", *shlex.split(row["command"]), "--out", out, *limit, *more]


def measured(words: list[str], seconds: float) -> bool:
    """Runs it for at most so long; whether it came to its end."""
    with subprocess.Popen(words, cwd=ROOT) as run:
        try:
            return run.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGINT)
        try:
            run.wait(GRACE)
        except subprocess.TimeoutExpired:
            run.kill()
        return False


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--seconds", type=float, default=1500, help="in all (default: %(default)g)")
    parser.add_argument("--each", type=float, help="seconds for one picture")
    args, more = parser.parse_known_args(words)
    rows = {row["name"]: row for row in rows_of(ROOT)["row"]}
    if unknown := [name for name in args.names if name not in rows]:
        parser.error(f"results/rows.toml has no row {', '.join(unknown)}")
    until = time.monotonic() + args.seconds
    for name in args.names:
        left = until - time.monotonic()
        if left <= 0 or not measured(command(rows[name], args.each, more), left):
            print(f"{name} is not finished: the same command goes on from here", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
