"""How the cost of the curve bound grows with Γ, image side and number of β: `python -m benchmarks.growth`.

Writes growth.json and growth.png into --out. The image is a smooth random colour picture; the defence is that of the
README. Interval boxes are timed beside it on the smallest case.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.boxes import Boxes
from warpcert.errors.curve.bound import Curve
from warpcert.threat import Threat
from warpcert.transforms import Preprocess


def picture(side: int, device: torch.device) -> Tensor:
    """A smooth colour picture: random values at a tenth of the resolution, enlarged."""
    coarse = torch.rand(1, 3, max(3, side // 6), max(3, side // 6), generator=torch.Generator().manual_seed(0))
    fine = torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear", align_corners=True)[0]
    return (fine * 255).round().div(255).double().to(device)


def measure(side: int, gamma: float, betas: int, device: torch.device, limit: float) -> dict[str, float | bool]:
    preprocess = Preprocess("circle", 1, 1.5, 7)
    defence = Defence.surface("rotation", 30, noise=0.15, interpolation="bicubic", preprocess=preprocess)
    threat, x = Threat.of("rotation", gamma), picture(side, device)
    beta = defence.draw_beta(betas, torch.Generator().manual_seed(0)).to(device)
    start = time.perf_counter()
    r = Curve(1.05, limit)(x, defence, threat, beta)
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    ratio = float(r.values.max() / r.lower.max())
    return {"side": side, "gamma": gamma, "betas": betas, "seconds": round(seconds, 3), "cells": r.cells,
            "upper / found": round(ratio, 4), "converged": r.converged}  # fmt: skip


def against_boxes(device: torch.device, limit: float) -> dict[str, float]:
    """28×28, ±10°, 3 β, bilinear defender: cells and tightness of both in the same time limit."""
    defence = Defence.surface(
        "rotation", 30, noise=0.15, interpolation="bilinear", preprocess=Preprocess("circle", 1, 1.5, 7)
    )
    threat, x = Threat.of("rotation", 10), picture(28, device)[:1]
    beta = defence.draw_beta(3, torch.Generator().manual_seed(0)).to(device)
    curve = Curve(1.05)(x, defence, threat, beta)
    boxes = Boxes(1.05, limit)(x, defence, threat, beta)
    return {
        "curve: upper / found": round(float(curve.values.max() / curve.lower.max()), 4),
        "curve: cells": curve.cells,
        "curve: seconds": round(curve.seconds, 3),
        "boxes: upper / found": round(float(boxes.values.max() / curve.lower.max()), 4),
        "boxes: cells": boxes.cells,
        "boxes: seconds": round(boxes.seconds, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=float, default=60, help="seconds per measurement")
    parser.add_argument("--sides", type=int, nargs="+", default=[28, 32, 64, 128, 224])
    parser.add_argument("--out", type=Path, default=Path("runs/growth"))
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="other growth.json files to draw beside")
    options = parser.parse_args()
    device = torch.device(options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    measure(16, 5, 4, device, options.limit)  # warm up
    series = {
        "Γ± in degrees (32×32, 50 β)": [measure(32, g, 50, device, options.limit) for g in (5, 10, 30, 50)],
        "β's (32×32, ±10°)": [measure(32, 10, b, device, options.limit) for b in (10, 50, 200, 500)],
        "side in pixels (±10°, 10 β)": [measure(s, 10, 10, device, options.limit) for s in options.sides],
    }
    result = {"device": device.type, "series": series, "boxes": against_boxes(device, options.limit)}
    (options.out / "growth.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(result, ensure_ascii=False, indent=1))
    plot([result, *(json.loads(path.read_text()) for path in options.beside)], options.out / "growth.png")


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Seconds against Γ, number of β and side, a line per device."""
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    panels = zip(figure.subplots(1, 3), results[0]["series"], ("gamma", "betas", "side"), strict=True)
    for axes, name, key in panels:
        for result in results:
            rows = result["series"][name]
            axes.loglog([r[key] for r in rows], [r["seconds"] for r in rows], "o-", label=result["device"])
            for r in rows:
                if not r["converged"]:
                    axes.annotate("limit", (float(r[key]), float(r["seconds"])), fontsize=7)
        axes.set_xticks([r[key] for r in rows], [str(r[key]) for r in rows])
        axes.minorticks_off()
        axes.set_xlabel(name)
        axes.set_ylabel("seconds per image")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
