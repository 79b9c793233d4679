"""Are individual certificates true? `python -m benchmarks.agreement RUN [RUN …] --model NAME [--device cuda]`.

A certificate of `certify --method indiv` says, without having seen the original x, that g(x) is its label. Here x is
known: g votes on it, N times with fresh β and δ, and the majority is compared with every certified label. Each
certificate may be false with probability α; its vote share at x should exceed ½, and usually does by far. The exit code
is 1 if a majority contradicts a certificate.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from warpcert import statistics as stats
from warpcert.certificates import Individual
from warpcert.classifier.votes.voting import Draws, votes
from warpcert.learn import data
from warpcert.learn.foreign import open_model
from warpcert.runs import summary as report
from warpcert.runs.job import device_of, seed_for
from warpcert.runs.store import read_config, read_records

DOUBT = 1e-6  # a vote share above ½ is beyond doubt if its lower bound at this α is


@final
@dataclass(frozen=True)
class Answer:
    """What g says at the original of a certified picture: k of n votes for the certified label."""

    index: int
    label: int
    majority: int
    k: int
    n: int

    @property
    def contradicts(self) -> bool:
        return self.majority != self.label

    @property
    def sure(self) -> bool:
        return stats.lower_bound(self.k, self.n, DOUBT) > 0.5


def certified_rows(folder: Path, most: int | None) -> tuple[dict[str, Any], list[report.Row], list[report.Row]]:
    """Configuration, the first rows of the run, and those of them that certify; the arithmetic of each is redone."""
    config = read_config(folder)
    if config.get("method") != "indiv" or config["classifier"]["facts"]["nested"]:
        raise ValueError(f"{folder} is not a joint run of `certify --method indiv`: its g is another one")
    rows = report.parse(list(read_records(folder)))[:most]
    return config, rows, [r for r in rows if r.certificate.reach is not None]


def answers(config: dict[str, Any], rows: Sequence[report.Row], given: argparse.Namespace) -> Iterator[Answer]:
    """g's votes at the originals of the rows, each with a seed of its own."""
    device, told = device_of(given.device), config["classifier"]
    dataset = data.load(config["data"], "test", given.data_root)
    dataset = dataset.shuffled() if config.get("order") == "shuffled" else dataset
    net = open_model(given.model, dataset.shape, device).classifier(told["facts"])
    if net.fingerprint != told["fingerprint"]:
        known = f"{told['name']} ({told['fingerprint'][:12]}…)"
        raise ValueError(f"the run is about the classifier {known}, but {given.model} is another: say --model")
    for row in rows:
        c, seed = row.certificate, seed_for(given.seed, row.index)
        assert isinstance(c, Individual)
        if seed == c.seed:
            raise ValueError(f"the certificates were drawn with seed {given.seed}, too: choose another")
        if int(dataset.labels[row.index]) != row.label:
            raise ValueError(f"image {row.index} of {config['data']} is not the one of the run: its label differs")
        x, draw = dataset.image(row.index).to(device), torch.Generator(device=device).manual_seed(seed)
        counts = votes(net.logits, c.defence, x, given.n, Draws(draw, batch=given.batch))
        yield Answer(row.index, c.label, int(counts.argmax()), int(counts[c.label]), given.n)


def summary(found: Sequence[Answer], images: int) -> dict[str, Any]:
    weakest = min(found, key=lambda a: a.k / a.n, default=None)
    return {
        "images": images,
        "certified": len(found),
        "contradicted": sum(a.contradicts for a in found),
        "beyond doubt": sum(a.sure for a in found),
        "smallest share": weakest and weakest.k / weakest.n,
        "of image": weakest and weakest.index,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path, nargs="+", help="run folders of `certify --method indiv`")
    parser.add_argument("--model", default="mnist-rotation-individual")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--count", type=int, help="the first so many records of each run (default: all)")
    parser.add_argument("--n", type=int, default=100_000, help="votes per picture (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=20_201, help="not that of the runs (default: %(default)s)")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args(arguments)
    images, found, start = 0, [], time.perf_counter()
    try:
        for folder in given.run:
            config, rows, certified = certified_rows(folder, given.count)
            images += len(rows)
            for a in answers(config, certified, given):
                found.append(a)
                word = "CONTRADICTED" if a.contradicts else "agrees" if a.sure else "agrees, barely"
                print(f"{folder.name} {a.index}: certified {a.label}, g says {a.majority}, {a.k} of {a.n}: {word}")
                sys.stdout.flush()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(summary(found, images) | {"seconds": round(time.perf_counter() - start, 1)}))
    return int(any(a.contradicts for a in found))


if __name__ == "__main__":
    sys.exit(main())
