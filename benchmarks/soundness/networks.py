"""Attempts to break certificates of the zoo's own networks, in their own precision, in batches of other sizes.

Certified is what `certify` certifies, within a time limit; attacked is each network at many γ of the certified range,
then closer to those where it leads least; asked in batches of 1 to some hundreds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.deviation import Plan, originals
from benchmarks.soundness.breaking import Job, Row, Task
from warpcert.classifier import Classifier
from warpcert.learn import zoo

__all__ = ["rows"]

SIZES = (1, 3, 17, 64, 200, 501)
SECONDS = 5.0  # for one certificate: what it proves by then must hold too
BATCH = 64  # on a CPU, so that the clock is looked at
GRID, ROUNDS, CLOSEST = 200, 4, 10


@torch.no_grad()
def asked(f: Classifier, z: Tensor, label: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """(answered as certified [n], lead [n]) of pictures [n,...], in batches of a random size."""
    size = SIZES[int(torch.randint(len(SIZES), (), generator=g))]
    logits = torch.cat([f(part) for part in z.split(size)]).double()
    others = logits.clone()
    others[:, label] = -torch.inf
    return logits.argmax(1) == label, logits[:, label] - others.amax(1)


def network_row(row: Row, task: Task, name: str) -> None:
    g = torch.Generator().manual_seed(task.seed)
    f = zoo.load(name).to(task.device)
    assert f.threat is not None
    items = originals(f, Plan(0, 0, task.device))[0].to(task.device)
    settings = {"time_limit": SECONDS, "batch": None if items.is_cuda else BATCH}
    for number in torch.randperm(len(items), generator=g).tolist():
        x = items[number]
        certificate = f.certify(x, **settings)
        if (reach := certificate.reach) is not None and not certificate.abstains:
            what, threat = f"item {number}: {certificate}", f.threat
            gamma = torch.cat((reach.uniform(GRID, g), reach.grid(3)))
            for turn in range(ROUNDS):
                at = threat.transform.legal(gamma, reach).to(x.device)  # whole pixels, in the disc that was certified
                given = threat.attacked(x.double(), at).float()
                right, lead = asked(f, given, certificate.label, g)
                row.check(right, what)
                near = gamma[lead.argsort()[:CLOSEST].cpu()].repeat_interleave(GRID // CLOSEST, 0)
                width = torch.tensor(reach.upper) - torch.tensor(reach.lower)
                step = torch.randn(near.shape, generator=g, dtype=torch.float64) * width * 0.1 ** (turn + 1)
                low, high = (torch.tensor(e, dtype=torch.float64) for e in (reach.lower, reach.upper))
                gamma = torch.cat((near + step, near.new_tensor([reach.lower, reach.upper]))).clamp(low, high)
        if row.done(task):
            return


def rows() -> Iterator[tuple[str, Job]]:
    """Every network that is here and answers without votes."""
    for name in zoo.manifest():
        if not zoo.is_here(name):
            continue
        _, facts, about = zoo.read(name)
        if about.threat and facts["kind"] != "smoothed":
            yield f"certificates: networks in {facts['precision']}, {name}", partial(network_row, name=name)
