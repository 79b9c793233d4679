"""Tightness and time of the curve bound: `python -m benchmarks.curve [--device cuda] [--data mnist500 --gamma 50]`.

Tightness is the largest upper bound over the largest error that a dense sample of γ (and the γ where all pixels kink
together) finds for the same β. Data sets other than mnist500 are read from $WARPCERT_DATA.
Photographs, transformed at 448×448 and seen at 224×224:

    python -m benchmarks.curve --device cuda --data PHOTOGRAPHS.zip --halved --gamma 30 --betas 100 --tightness 1.2 \\
        --interpolation bicubic-0.5 --reference mitchell --samples 21 --time-limit 60
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.errors.curve.bound import Curve
from warpcert.learn import data
from warpcert.learn.photos.archive import CUT, SHORT, Archive
from warpcert.threat import Threat
from warpcert.transforms import Preprocess


def sampled(x: Tensor, defence: Defence, threat: Threat, beta: Tensor, count: int) -> float:
    """The largest ‖ε‖ on a grid of γ and at γ = −β + k·90°."""
    grid = threat.box.grid(count).to(x)
    given = threat.attacked(x, grid)
    quarter = torch.arange(-2, 3, dtype=x.dtype, device=x.device)[:, None] * (math.pi / 2)
    worst = 0.0
    for b in beta.to(x):
        extra = (quarter - b).clamp(threat.box.lower[0], threat.box.upper[0])
        gamma = torch.cat((grid, extra))
        shift = b.expand(gamma.shape[0], 1)
        images = torch.cat((given, threat.attacked(x, extra)))
        error = defence.view(images, shift) - defence.view(x, shift + gamma)
        worst = max(worst, float(torch.linalg.vector_norm(error.flatten(1), dim=1).max()))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", default="mnist500")
    parser.add_argument("--gamma", type=float, default=50, help="Γ±, degrees")
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--betas", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--interpolation", default="bicubic", help="the defender's")
    parser.add_argument("--reference", help="the kernel that turns known originals (default: the defender's)")
    parser.add_argument("--blur", type=float, default=1.5)
    parser.add_argument("--halved", action="store_true", help="photographs at 448×448, which P reduces to 224×224")
    parser.add_argument("--time-limit", type=float, help="seconds for one picture")
    parser.add_argument("--tightness", type=float, default=1.03)
    parser.add_argument("--samples", type=int, default=401, help="γ per β of the dense sample; 0: skip it")
    options = parser.parse_args()
    device = torch.device(options.device)
    vignette = Preprocess("circle", 1, options.blur, halved=options.halved)
    kernels = {"interpolation": options.interpolation, "reference": options.reference}
    defence = Defence.surface("rotation", 30, noise=0.15, preprocess=vignette, **kernels)
    threat = Threat.of("rotation", options.gamma)
    if options.halved:
        archive = Archive(options.data)
        images = torch.stack([archive.picture(i, 2 * SHORT, 2 * CUT) for i in range(options.images)])
    else:
        images = data.load(options.data).images[: options.images]
    images = images.to(device, torch.float64) / 255
    first = defence.draw_beta(4, torch.Generator().manual_seed(0))
    Curve(time_limit=options.time_limit)(images[0], defence, threat, first)
    print(f"{options.data} ±{options.gamma:g}°, defender {options.interpolation}, {device}")
    for betas in options.betas:
        for number, x in enumerate(images):
            beta = defence.draw_beta(betas, torch.Generator().manual_seed(number))
            result = Curve(options.tightness, options.time_limit)(x, defence, threat, beta)
            upper, lower = float(result.values.max()), float(result.lower.max())
            found = max(lower, sampled(x, defence, threat, beta, options.samples)) if options.samples else lower
            print(
                f"  {betas} β: bound {upper:.4f}, found {found:.4f}, ratio {upper / found:.4f}, "
                f"{result.seconds:.2f} s, {result.cells} nodes, converged {result.converged}",
                flush=True,
            )


if __name__ == "__main__":
    main()
