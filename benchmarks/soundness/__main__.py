"""Attempts to break every bound and certificate: `python -m benchmarks.soundness [--minutes N] [--out FILE]`.

Zero tolerance, in float64, in float32 and in half precision, on the CPU or on a GPU. Every finished chunk is a line of
FILE; the same command goes on where it was interrupted, and ends with a table when there were enough trials. Exit code
1 if anything was violated, or an attempt failed.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import torch

from benchmarks.soundness import bounds, exact, fronts, inverse, networks, products, sounds
from benchmarks.soundness.breaking import Job, Task
from benchmarks.soundness.chunks import Limits, code_of, go, read, table
from warpcert import transforms


def rows() -> list[tuple[str, Job]]:
    """All of them."""
    some = (bounds, exact, inverse, products, fronts, sounds)
    return [*(row for room in some for row in room.rows()), *networks.rows()]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/soundness.jsonl"), help="finished chunks, one per line")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no chunk after so long")
    parser.add_argument("--trials", type=float, default=1e7, help="end after a round with so many in all")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pairs", type=int, default=5_000, help="parameters drawn per picture, at most")
    parser.add_argument("--seconds", type=float, default=20, help="begin no picture of a chunk after so long")
    parser.add_argument("--seed", type=int, default=0)
    args, code = parser.parse_args(arguments), code_of()  # of what is loaded, whatever is edited later
    transforms.TRANSFORMS.update(bounds.NEW)
    torch.backends.cudnn.allow_tf32 = False
    named = [(name, job) for name, job in rows() if args.only in name]
    task = Task(args.seed, pairs=args.pairs, seconds=args.seconds, device=args.device)
    print(f"{'':<64}{'trials':>10}{'violations':>12}{'closest':>10}{'time':>10}")
    try:
        for c in go(named, args.out, task, Limits(args.trials, 60 * args.minutes), code):
            name = f"{c.name} #{c.number}"
            print(f"{name:<64}{c.trials:>10}{c.violations:>12}{c.closest:>10.5f}{c.seconds:>8.0f} s", flush=True)
            for word, what in (("VIOLATED", c.example), ("FAILED", c.error)):
                print(f"    {word} {what}", flush=True) if what else None
    except KeyboardInterrupt:
        print("interrupted: the same command goes on")
    chunks, other = read(args.out, code)
    print(f"\n{table(chunks)}")
    missing = [name for name, _ in named if name not in {c.name for c in chunks}]
    if missing:
        print(f"not tried yet: {len(missing)} of {len(named)} rows; the same command goes on")
    if other:
        print(f"{other} chunks in {args.out} are of other code and do not count")
    return 1 if any(c.violations or c.error for c in chunks) else 0


if __name__ == "__main__":
    sys.exit(main())
