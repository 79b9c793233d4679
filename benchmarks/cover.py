"""How many windows a cover takes, how tight its E is, and what it costs: `python -m benchmarks.cover [--images N]`.

Needs the CIFAR-10 binaries under $WARPCERT_DATA. "best centre" is E_j over half the distance between the two ends of
window j: no centre image whatever can bring it below 1.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from torch import Tensor

from warpcert.learn.data import load
from warpcert.threat import Threat
from warpcert.transforms import Preprocess
from warpcert.windows.cover import Windows, cover_windows
from warpcert.windows.pieces import Scene, distances

SHARES = 33  # parameters per window that the true distance is sampled at


def tightness(x: Tensor, threat: Threat, preprocess: Preprocess, w: Windows) -> tuple[float, float, float]:
    """E over the sampled maximum: mean and largest; and the mean of E over half the distance of the ends."""
    at = torch.linspace(0, len(w) - 1, min(40, len(w))).long()
    share = torch.linspace(0, 1, SHARES, dtype=torch.float64, device=x.device)[:, None]
    ratio, best = [], []
    for j, z in zip(at.tolist(), w.images(x, threat, at).double(), strict=True):
        attacked = threat.attacked(x.double(), w.lower[j] + share * (w.upper[j] - w.lower[j]))
        far = float(preprocess(attacked - z).flatten(1).norm(dim=1).max())
        if far > 1e-3:  # else nothing changes in this window
            ratio.append(float(w.E[j]) / far)
            best.append(float(w.E[j] / preprocess(attacked[0] - attacked[-1]).norm().clamp_min(1e-3) * 2))
    return sum(ratio) / len(ratio), max(ratio), sum(best) / len(best)


def fixed_width(pictures: list[Tensor], degrees: float) -> None:
    """Mean E of windows of one width, against q(T) at the middle as the centre image (sampled)."""
    threat, mine, other = Threat.of("rotation", 30), [], []
    h = math.radians(degrees) / 2
    for x in pictures:
        center = torch.linspace(-0.5, 0.5, 50, dtype=torch.float64, device=x.device)[:, None]
        mine.append(distances(Scene(x.double(), threat, Preprocess(), True), center - h, center + h).mean())
        middle = threat.attacked(x.double(), center)
        ends = [threat.attacked(x.double(), center + s * h) for s in (-1, 1)]
        other.append(torch.stack([(e - middle).flatten(1).norm(dim=1) for e in ends]).amax(0).mean())
    print(
        f"width {degrees}°: E {torch.stack(mine).mean():.4f}, around q(T_γj x) at least {torch.stack(other).mean():.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--images", type=int, default=10)
    options = parser.parse_args()
    data = load(options.data)
    pictures = [x.to(options.device).float() / 255 for x in data.images[: options.images]]
    for degrees in (0.1, 0.02, 0.004):
        fixed_width(pictures, degrees)
    blur = Preprocess("circle", 0.0, 1.0, 5)
    for name, gamma, quantized, preprocess, target in (
        ("rotation", 10, True, Preprocess(), 0.06),
        ("rotation", 30, True, Preprocess(), 0.06),
        ("rotation", 30, True, Preprocess(), 0.12),
        ("rotation", 30, True, blur, 0.06),
        ("rotation", 30, False, Preprocess(), 0.06),
        ("scaling", 20, True, Preprocess(), 0.06),
        ("brightness", 0.1, True, Preprocess(), 0.06),
        ("contrast", 0.18, True, Preprocess(), 0.06),
        ("translation", 1, True, blur, 0.25),
    ):
        threat, rows = Threat.of(name, gamma, quantized=quantized), []
        for x in pictures:
            start = time.perf_counter()
            w = cover_windows(x, threat, preprocess, target=target)
            seconds = time.perf_counter() - start
            rows.append((len(w), w.cells, float(w.E.mean()), seconds, *tightness(x, threat, preprocess, w)))
        count, cells, e, seconds, ratio, worst, best = torch.tensor(rows).double().unbind(1)
        print(
            f"{name} ±{gamma} {'8-bit' if quantized else 'real'} blur {preprocess.blur_sigma} target {target}: "
            f"windows {count.mean():.0f} ({count.min():.0f}–{count.max():.0f}), evaluated {cells.mean():.0f}, "
            f"E {e.mean():.4f}, E/sampled {ratio.mean():.3f} (max {worst.max():.3f}), best centre {best.mean():.3f}, "
            f"{seconds.median():.2f} s (first {seconds[0]:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
