"""kill −9 at random moments: `python -m benchmarks.kills [--kills 100]`.

One run is left alone. Others are killed at random moments, from before their first line to after their last, and are
started again until they end; then their records are compared with those of the first: every field but times.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import torch

from warpcert.app.cli import case, estimates, summaries  # noqa: F401  (imported before the first fork)
from warpcert.app.cli import main as cli
from warpcert.runs import album, engine  # noqa: F401
from warpcert.runs.store import CERTIFICATES, read_records, verify

QUICK = ("--model", "mnist-rotation", "--n", "300", "--windows", "1", "--betas", "40", "--bound", "sampled")
TIMES = ("seconds", "digest")  # fields that no two runs share


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in TIMES}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def records(folder: Path) -> dict[int, Any]:
    return {record["index"]: timeless(record) for record in read_records(folder)}


def certified(folder: Path, count: int) -> None:
    """`warpcert certify`, in a process of its own that has imported everything already."""
    torch.set_num_threads(1)
    quiet = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    os._exit(cli(["certify", *QUICK, "--count", str(count), "--out", str(folder)]))


def begun(folder: Path, count: int) -> ForkProcess:
    child = get_context("fork").Process(target=certified, args=(folder, count))
    child.start()
    return child


def lines(folder: Path) -> int:
    path = folder / CERTIFICATES
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def killed(child: ForkProcess, seconds: float) -> bool:
    """Whether it was still at work after so long."""
    child.join(seconds)
    if child.exitcode is None:
        child.kill()
        child.join()
    if child.exitcode == -signal.SIGKILL:
        return True
    if child.exitcode:
        raise RuntimeError(f"a run ended by itself with {child.exitcode}")
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--count", type=int, default=12, help="pictures of a run")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, kills, runs, empty, wrong = random.Random(options.seed), 0, 0, 0, list[str]()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        start = time.monotonic()
        begun(root / "whole", options.count).join()
        whole, length = records(root / "whole"), time.monotonic() - start
        while kills < options.kills:
            folder, before, most, there = root / str(runs), kills, 1.1 * length, 0
            while killed(begun(folder, options.count), rng.uniform(0, most)):
                kills, empty = kills + 1, empty + (not lines(folder))
                most *= 1.0 if lines(folder) > there else 1.2  # a machine that others share may need longer to begin
                there = lines(folder)
            print(f"run {runs}: killed {kills - before} times", file=sys.stderr, flush=True)
            runs += 1
            if verify(folder):
                wrong.append(f"run {runs}: {verify(folder)[0]}")
            if (found := records(folder)) != whole:
                differs = sorted(i for i in whole.keys() | found.keys() if whole.get(i) != found.get(i))
                wrong.append(f"run {runs}, killed {kills - before} times: pictures {differs} differ")
    print(f"{kills} kills, {empty} before the first record, in {runs} runs of {options.count} pictures,", end=" ")
    print(f"each {length:.0f} s when left alone; differences: {json.dumps(wrong) if wrong else 'none'}")
    return 1 if wrong or len(whole) != options.count else 0


if __name__ == "__main__":
    raise SystemExit(main())
