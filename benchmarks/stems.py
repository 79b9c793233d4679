"""Photographs behind a mosaic or a stem: `python -m benchmarks.stems DATA [--count 3] [--gamma 2] [--device cuda]`.

Crossings per degree, images per crossing and seconds without a network, for attackers who round and who do not. With
--network SECONDS every image is put to EfficientNet-Lite0 (half precision on a GPU) for so long, its answer held up so
that no picture ends early: how far that comes, and images per second from end to end. With --trivial the network is a
mean, so that what is left is the work of making images.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from torch import Tensor, nn

from warpcert.classifier import Levels
from warpcert.classifier.before.mosaic import Mosaic
from warpcert.classifier.before.sees import Sees
from warpcert.classifier.before.stem import Stem
from warpcert.classifier.swift import swift
from warpcert.exhaustive.enumeration import Chunks, plan
from warpcert.exhaustive.sight import sight_of
from warpcert.exhaustive.verify import Terms, verify
from warpcert.learn.data import load
from warpcert.learn.photos.pretrained import pretrained
from warpcert.networks.weights import fused
from warpcert.threat import Threat

CASES: tuple[tuple[int, Sees | None, bool], ...] = (  # step, what is seen, whether the attacker rounds
    (32, None, False),
    (32, Mosaic(), False),
    (32, Stem(2, 4, 16), True),
    (32, Stem(2, 4, 16), False),
    (32, Stem(2, 4, 16, rounds=False), False),
    (32, Stem(2, 8, 32), True),
    (16, Stem(4, 8, 16), True),
)


def clock(x: Tensor) -> float:
    if x.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def enumerated(x: Tensor, threat: Threat, step: int, sees: Sees | None) -> dict[str, float]:
    """What one slice holds, and the seconds to find its crossings and to make its pictures."""
    sight, began = sight_of(x, threat, threat.off_by, step, sees), clock(x)
    c = sight.crossings((threat.box.lower[0], threat.box.upper[0]))
    found = clock(x)
    made = plan(c, 1 << 15)
    chunks = Chunks(made, 256)
    for i in range(len(chunks.onset)):
        for states, _ in chunks.images(i):
            sight.pictures(states)
    width = threat.transform.surface(threat.box.upper[0] - threat.box.lower[0])
    return {
        "crossings": len(c),
        "per degree": len(c) / width,
        "images per crossing": made.total / max(1, len(c)),
        "crossings: s": found - began,
        "pictures: s": clock(x) - found,
    }


class Held(nn.Module):
    """A network whose first answer is held up."""

    def __init__(self, network: nn.Module, label: int) -> None:
        super().__init__()
        self.network, self.label = network, label

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.network(z)
        logits[:, self.label] += 1000
        return logits


def asked(x: Tensor, threat: Threat, case: tuple[int, Sees | None], seconds: float, trivial: bool) -> dict[str, float]:
    step, sees = case
    mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = Held(mean if trivial else fused(pretrained("efficientnet-lite0")), 0).eval().to(x.device)
    f = Levels(network, step, sees=sees, precision="half" if x.is_cuda else "float32")
    terms = Terms(f.slack, threat.off_by, step, sees=sees, time_limit=seconds)
    logits = swift(f, x[None].expand(terms.size(x), *x.shape))
    began, cpu = clock(x), time.process_time()
    verdict = verify(logits, x, threat, terms=terms)
    took = clock(x) - began
    return {
        "seconds": took,
        "CPU seconds": time.process_time() - cpu,
        "isolation: s": verdict.seconds_isolation,
        "images/s": verdict.evaluated / took,
        "proved, ±°": (verdict.held or 0.0) * threat.transform.surface(threat.box.upper[0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="photographs, as `data.load` takes them; in a fixed random order")
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--gamma", type=float, default=2.0, help="the range in degrees, ±")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", type=float, metavar="SECONDS")
    parser.add_argument("--trivial", action="store_true")
    parser.add_argument("--cases", type=int, nargs="+", default=range(len(CASES)))
    args = parser.parse_args()
    photographs = load(args.data).shuffled()
    for index in range(args.count):
        x = photographs.image(index).to(args.device)
        for step, sees, rounds in (CASES[i] for i in args.cases):
            threat = Threat.rotation(args.gamma, quantized=rounds)
            seen = sees.in_words(step) if sees else f"levels of {step}"
            row = {"picture": index, "sees": seen, "attacker": "8-bit" if rounds else "real-valued"}
            if args.network:
                row |= asked(x, threat, (step, sees), args.network, args.trivial)
            else:
                row |= enumerated(x, threat, step, sees)
            print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
