"""Every field of every kind of kept record, changed: `python -m benchmarks.fields` counts what `check` refuses.

Of each row of results/ the shortest record with a label is taken, and each of its fields is given other values, with a
digest made anew: once alone, and once with all that follows from it written anew, the fingerprint included. What passes
has to be on the list of free fields, or, in the second case, of those that only doing it again can tell (`check
--against`).
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warpcert import certificates
from warpcert.certificates.sealed import seal
from warpcert.certificates.verify import FORMER, FREE, MEASURED
from warpcert.runs.store import read_records

RESULTS = Path(__file__).resolve().parents[1] / "results"
MOST = 4  # entries of a long list that are changed
JUNK = (None, True, "x", [], {}, -1, 0, 1, 0.5, 1e9, float("nan"))

Way = tuple[Any, ...]


def leaves(value: Any, rng: random.Random, path: Way = ()) -> Iterator[Way]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, rng, (*path, key))
    elif isinstance(value, list) and value:
        for i in sorted(rng.sample(range(len(value)), min(MOST, len(value)))):
            yield from leaves(value[i], rng, (*path, i))
    else:
        yield path


def at(record: Any, path: Way) -> Any:
    for key in path:
        record = record[key]
    return record


def changed(record: dict[str, Any], path: Way, value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(record))
    at(copy, path[:-1])[path[-1]] = value
    return {k: v for k, v in copy.items() if k != "digest"}


def others(old: Any) -> Iterator[Any]:
    yield from JUNK
    if isinstance(old, str):
        yield from (f"{old}x", "", "proved", "exact", "bicubic")
    elif isinstance(old, int | float) and not isinstance(old, bool):
        yield from (old + 1, old - 1, -old, 2 * old, old / 2, old * 1.001, old * 0.999)


def listed(path: Way, names: dict[str, str]) -> bool:
    words = [str(key) for key in path if not isinstance(key, int)]
    if path[0] == "ledger":
        words.append("amount" if path[-1] == 1 else "purpose")
    return any(".".join(words[: i + 1]) in names for i in range(len(words)))


def refused(record: dict[str, Any]) -> bool:
    try:
        certificates.read(seal(record))
    except ValueError:
        return True
    return False


def follows(record: dict[str, Any]) -> bool:
    """Whether it passes and claims something once all that follows is written anew."""
    who = record["classifier"]
    try:
        text = json.dumps({"network": who["network"], "facts": who["facts"]}, sort_keys=True)
        who["fingerprint"] = hashlib.sha256(text.encode()).hexdigest()
        return not certificates.read(certificates.renewed(record)).abstains
    except (ValueError, TypeError, KeyError, AttributeError):
        return False


def main() -> int:
    rng, holes, total = random.Random(0), list[str](), Counter[str]()
    print("| record | fields | changes | refused | free | with all that follows: refused | free or measured |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for folder in sorted(f for f in RESULTS.iterdir() if f.is_dir()):
        every = (r["certificate"] for r in read_records(folder))
        labelled = (c for c in every if c["label"] >= 0 and any(c["derived"]["reach"]["upper"]))
        record = min(labelled, key=lambda r: len(str(r.get("windows"))))
        free = FREE | (FORMER if record["classifier"]["formerly"] else {})
        paths = [p for p in leaves(record, rng) if p != ("digest",)]
        count = Counter[str](fields=len(paths))
        for path in paths:
            old = at(record, path)
            for new in others(old):
                if new == old or new != new:
                    continue
                count["changes"] += 1
                alone = refused(changed(record, path, new))
                count["refused" if alone else "free"] += 1
                if not alone and not listed(path, free):
                    holes.append(f"{folder.name} {path}: {old!r} became {new!r}")
                if path[0] == "derived":
                    continue
                passes = follows(changed(record, path, new))
                count["passes" if passes else "stopped"] += 1
                if passes and not listed(path, free | MEASURED) and path[-1] != "fingerprint":
                    holes.append(f"{folder.name} {path} and what follows: {old!r} became {new!r}")
        total += count
        names = ("fields", "changes", "refused", "free", "stopped", "passes")
        print(f"| {folder.name} | {' | '.join(str(count[name]) for name in names)} |", flush=True)
    print(f"| in all | {' | '.join(str(total[name]) for name in names)} |\n")
    for title, why in (("Free", FREE), ("Free before 0.1.0", FORMER), ("Measured", MEASURED)):
        print(f"{title}:\n" + "\n".join(f"  {name}: {reason}" for name, reason in why.items()))
    print("\n".join(holes) or "Nothing else passed.")
    return 1 if holes else 0


if __name__ == "__main__":
    raise SystemExit(main())
