"""Photographs behind a stem: `python -m benchmarks.stems DATA [--count 3] [--gamma 2] [--device cuda] [--network]`.

Crossings per degree, images per crossing and seconds without a network, for attackers who round and who do not. With
--network every image is put to EfficientNet-Lite0 (half precision on a GPU), whose answer is held up so that no picture
ends early: images per second from end to end.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from torch import Tensor, nn

from warpcert.classifier import Levels
from warpcert.classifier.stem import Stem, Stemmed
from warpcert.classifier.swift import swift
from warpcert.exhaustive.enumeration import Chunks, plan
from warpcert.exhaustive.sight import find_means
from warpcert.exhaustive.verify import Terms, verify
from warpcert.learn.data import load
from warpcert.networks.weights import fused
from warpcert.threat import Threat

CASES = (  # step, stem, whether the attacker rounds
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


def enumerated(x: Tensor, threat: Threat, front: Stemmed) -> dict[str, float]:
    """What one slice holds, and the seconds to find its crossings and to make its pictures."""
    began = clock(x)
    c = find_means(x, threat, threat.off_by, front)
    found = clock(x)
    made = plan(c, 1 << 15)
    chunks = Chunks(made, 256)
    for i in range(len(chunks.onset)):
        for states, _ in chunks.images(i):
            front.picture(states, tuple(x.shape))
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


def asked(x: Tensor, threat: Threat, step: int, stem: Stem) -> dict[str, float]:
    from warpcert.learn.pretrained import pretrained

    network = Held(fused(pretrained("efficientnet-lite0")), 0).eval().to(x.device)
    f = Levels(network, step, sees=stem, precision="half" if x.is_cuda else "float32")
    terms = Terms(f.slack, threat.off_by, step, sees=stem)
    logits = swift(f, x[None].expand(terms.size(x), *x.shape))
    began = clock(x)
    verdict = verify(logits, x, threat, terms=terms)
    took = clock(x) - began
    return {
        "seconds": took,
        "isolation: s": verdict.seconds_isolation,
        "images/s": verdict.evaluated / took,
        "held": verdict.held or 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "data", help="photographs of one size: an .npz file, or a folder with a sub-folder for each class"
    )
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--gamma", type=float, default=2.0, help="the range in degrees, ±")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", action="store_true")
    args = parser.parse_args()
    photographs = load(args.data)
    for index in range(args.count):
        x = photographs.image(index).to(args.device)
        for step, stem, rounds in CASES:
            threat = Threat.rotation(args.gamma, quantized=rounds)
            row = {"picture": index, "stem": stem.in_words(step), "attacker": "8-bit" if rounds else "real-valued"}
            row |= enumerated(x, threat, Stemmed(step, stem))
            print(json.dumps(row | (asked(x, threat, step, stem) if args.network else {})), flush=True)


if __name__ == "__main__":
    main()
