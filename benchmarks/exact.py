"""Exhaustive verification: `python -m benchmarks.exact [--device cuda] [--train 60]`, data from WARPCERT_DATA.

Crossings, the images made from them, and a small residual network's images per second. With --train the network is
trained on moved pictures for that many seconds, and the share of pictures that it is verified on is told too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import mean

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from warpcert.exhaustive.enumeration import images, plan
from warpcert.exhaustive.events.crossings import find_crossings
from warpcert.exhaustive.verify import Terms, Verdict, verify
from warpcert.learn.data import Dataset, load
from warpcert.networks.resnet import ModelConfig
from warpcert.networks.weights import build, channels_last, fused
from warpcert.threat import Threat

CASES = (
    ("mnist", ("rotation", 50)),
    ("cifar", ("rotation", 10)),
    ("cifar", ("rotation", 30)),
    ("cifar", ("scaling", 20)),
)


def synchronized(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def isolation(x: Tensor, threat: Threat) -> dict[str, float]:
    """Seconds to find the crossings and to make all images, and how many there are."""
    start = synchronized(x.device)
    crossings = find_crossings(x, threat)
    found = synchronized(x.device)
    made = plan(crossings)
    planned = synchronized(x.device)
    for _ in images(made, 4096):
        pass
    end = synchronized(x.device)
    width = float((crossings.upper - crossings.lower).median())
    return {
        "crossings": len(crossings),
        "images": made.total,
        "bundles": made.bundles,
        "unresolved": made.unresolved,
        "crossings: s": found - start,
        "plan: s": planned - found,
        "images: s": end - planned,
        "median width": width,
    }


def network(data: Dataset, device: torch.device, threat: Threat, seconds: float) -> Callable[[Tensor], Tensor]:
    """A small residual network, trained for `seconds` on pictures moved by γ ∈ Γ (and mirrored, if in colour)."""
    config = ModelConfig(data.shape, len(data.classes), width=32 if data.shape[0] == 1 else 64)
    model = channels_last(build(config, 0).to(device)).train()
    g = torch.Generator(device=device).manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    x, y = data.images.to(device), data.labels.to(device)
    began = synchronized(device)
    while (share := (time.perf_counter() - began) / max(seconds, 1e-9)) < 1:
        optimizer.param_groups[0]["lr"] = 0.2 * min(share / 0.2, (1 - share) / 0.8)
        pick = torch.randint(len(y), (512,), generator=g, device=device)
        z = threat.attacked(x[pick].float() / 255, threat.box.uniform(512, g))
        if data.shape[0] == 3:
            z = torch.where(torch.rand(512, 1, 1, 1, generator=g, device=device) < 0.5, z, z.flip(3))
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = cross_entropy(model(z.contiguous(memory_format=torch.channels_last)).float(), y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    deployed = channels_last(fused(model.eval()).to(device))
    return lambda z: deployed(z.contiguous(memory_format=torch.channels_last))


def pictures(data: Dataset, count: int) -> Iterator[tuple[Tensor, int]]:
    for i in range(count):
        yield data.images[i], int(data.labels[i])


def average(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: float(f"{mean(row[key] for row in rows):.3g}") for key in rows[0]}


def rate(f: Callable[[Tensor], Tensor], x: Tensor, threat: Threat, batch: int, seconds: float) -> dict[str, float]:
    """Images per second through f, the making of them included, measured for some seconds after the first batch."""
    made, done, start = plan(find_crossings(x, threat)), 0, 0.0
    with torch.inference_mode():
        for image, _ in images(made, batch):
            float(f(image.float() / 255).amin())
            done, start = (done + len(image), start) if start else (0, time.perf_counter())
            if time.perf_counter() - start > seconds:
                break
    per_second = done / (time.perf_counter() - start)
    return {"images/s": round(per_second), "s for all images": round(made.total / per_second, 2)}


def trained(
    f: Callable[[Tensor], Tensor], data: Dataset, threat: Threat, count: int, batch: int, device: torch.device
) -> dict[str, float]:
    """What exhaustive verification says about f on the first pictures."""
    verdicts: list[tuple[Verdict, int]] = []
    start = synchronized(device)
    for x, label in pictures(data, count):
        verdicts.append((verify(f, x.to(device), threat, label, Terms(batch=batch)), label))
    seconds = (synchronized(device) - start) / count
    tally = Counter("verified" if v.verified else "open" if v.gamma is None else "refuted" for v, _ in verdicts)
    clean = sum(int(f(x[None].to(device).float() / 255).argmax()) == label for x, label in pictures(data, count))
    shares = {key: round(tally[key] / count, 3) for key in ("verified", "refuted", "open")}
    return {"pictures": count, "accuracy": clean / count, **shares, "s per picture": round(seconds, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mnist", default="mnist", help="dataset: a name or an .npz file")
    parser.add_argument("--cifar", default="cifar10", help="dataset: a name or an .npz file")
    parser.add_argument("--count", type=int, default=4, help="pictures for each case")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=10.0, help="longest measurement of images/s")
    parser.add_argument("--train", type=float, default=0.0, help="seconds of training for each case")
    parser.add_argument("--verified", type=int, default=50, help="pictures to verify with the trained network")
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.backends.cudnn.allow_tf32 = False
    for name, surface in CASES:
        source = getattr(given, name)
        data, threat = load(source), Threat.of(surface[0], surface[1])
        isolation(data.images[0].to(device), threat)  # warm up
        row = average([isolation(x.to(device), threat) for x, _ in pictures(data, given.count)])
        f = network(load(source, "train") if given.train else data, device, threat, given.train)
        row |= rate(f, data.images[0].to(device), threat, given.batch, given.seconds)
        if given.train:
            row |= trained(f, data, threat, given.verified, given.batch, device)
        print(json.dumps({f"{name} {surface[0]} ±{surface[1]}": row}, ensure_ascii=False), flush=True)
    print(json.dumps({"device": device.type, "threads": torch.get_num_threads(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
