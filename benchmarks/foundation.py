"""Cost of the foundation: `python -m benchmarks.foundation [--device cuda]`, each ratio taken within this run."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

import warpcert as wc
from warpcert import statistics as stats
from warpcert.classifier.inner import GaussianInner
from warpcert.classifier.votes.voting import add_noise
from warpcert.learn import data
from warpcert.statistics import radius
from warpcert.transforms import get

SMOOTHED = "mnist-rotation"


def timed(f: Callable[[], object], repeat: int, device: torch.device) -> float:
    """Median seconds of a call, after one to warm up."""
    seconds = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        f()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds[1:])[repeat // 2]


def throughput(device: torch.device) -> dict[str, float]:
    """One 3×32×32 image, 2048 angles: ours against affine_grid + grid_sample, and kornia if it is installed."""
    x, count = torch.rand(3, 32, 32, device=device), 2048
    gamma = torch.randn(count, 1, device=device)
    rows: dict[str, float] = {}
    for mode in ("bilinear", "bicubic"):

        def plain(mode: str = mode) -> Tensor:
            cos, sin = gamma[:, 0].cos(), gamma[:, 0].sin()
            zero = torch.zeros_like(cos)
            theta = torch.stack((torch.stack((cos, -sin, zero), 1), torch.stack((sin, cos, zero), 1)), 1)
            grid = affine_grid(theta, [count, 3, 32, 32], align_corners=False)
            return grid_sample(x.expand(count, 3, 32, 32), grid, mode=mode, align_corners=False)

        def ours(mode: str = mode) -> Tensor:
            return get("rotation")(x, gamma, mode)

        assert (plain() - ours()).abs().max() < 1e-3
        a, b = timed(ours, 9, device), timed(plain, 9, device)
        rows |= {f"{mode}: images/s": round(count / a), f"{mode}: times grid_sample": round(b / a, 2)}
        try:
            from kornia.geometry.transform import rotate
        except ImportError:
            continue
        copies = x.expand(count, 3, 32, 32).contiguous()
        c = timed(lambda: rotate(copies, gamma[:, 0].rad2deg(), mode=mode), 9, device)  # noqa: B023
        rows[f"{mode}: times kornia"] = round(c / a, 2)
    return rows


def certificates(device: torch.device) -> dict[str, float]:
    """Seconds for one digit, by methods that vote."""
    net, x = wc.load(SMOOTHED).to(device), data.load("mnist500").image(0).to(device)
    rows = {
        "base, n = 10 000: s": timed(lambda: net.certify(x, method="base", seed=0), 3, device),
        "dist-x, n = 10 000, sampled E, 500 β: s": timed(lambda: net.certify(x, bound="sampled", seed=0), 3, device),
    }
    return {k: round(v, 3) for k, v in rows.items()}


def sequential(device: torch.device, pairs: int = 120) -> dict[str, float]:
    """The sequential inner test against fixed n = 10 000, on (digit, β) pairs: forward passes and decisions."""
    net = wc.load(SMOOTHED).to(device)
    f, defence = net.logits, net.own_defence
    digits, g = data.load("mnist500"), torch.Generator(device=device).manual_seed(0)
    E, alpha, fixed = 0.24, 0.001, 10_000
    p0 = radius.needed_probability(E, defence.sigma_noise)
    assert p0 is not None
    inner = GaussianInner(f, defence.sigma_noise, alpha=alpha, cap=fixed)
    passes, same, accepted = 0, 0, 0
    with torch.no_grad():
        for i in range(pairs):
            view = defence.view(digits.image(i).to(device), defence.draw_beta(1, g))
            label = int(digits.labels[i])
            early, used = inner.accepts(view, label, E, g)
            noisy = (add_noise(view.expand(500, -1, -1, -1), defence.sigma_noise, g) for _ in range(fixed // 500))
            k = sum(int((f(z).argmax(1) == label).sum()) for z in noisy)
            late = stats.lower_bound(k, fixed, alpha) > p0
            passes, same, accepted = passes + used, same + (bool(early[0]) == late), accepted + late
    return {
        "pairs": pairs,
        "accepted by fixed n": accepted,
        "same decision": same,
        "times fewer passes": round(pairs * fixed / passes, 1),
    }


def memory() -> dict[str, float]:
    """Peak memory above the loaded model at n = 100 000 on a 3×32×32 image, in a process of its own."""
    code = (
        "import torch, warpcert as wc\n"
        "from warpcert.networks.config import ModelConfig\n"
        "from warpcert.networks.weights import build, channels_last, fused\n"
        "f = channels_last(fused(build(ModelConfig((3, 32, 32), 10, width=32))))\n"
        "x = torch.rand(3, 32, 32)\n"
        "net = wc.Smoothed(f, noise=0.25, over={'rotation': 10})\n"
        "with torch.no_grad(): f(x[None])\n"
        "def kb(name): return [line.split()[1] for line in open('/proc/self/status') if line.startswith(name)][0]\n"
        "before = kb('VmRSS')\n"
        "net.certify(x, wc.Threat.rotation(degrees=10), method='base', n=100_000, seed=0)\n"
        "print(before, kb('VmHWM'))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    before, after = map(int, out.split())
    return {"n = 100 000 above the model: MB": round((after - before) / 1024)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args().device)
    parts: list[tuple[str, Callable[[], dict[str, float]]]] = [
        ("transformation", lambda: throughput(device)),
        ("one certificate", lambda: certificates(device)),
        ("sequential inner test", lambda: sequential(device)),
        ("memory", memory),
    ]
    for name, part in parts:
        print(json.dumps({name: part()}, ensure_ascii=False), flush=True)
    print(json.dumps({"device": device.type, "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
