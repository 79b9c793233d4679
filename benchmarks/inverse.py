"""Tightness and time of the inverses: `python -m benchmarks.inverse [--device cuda] [--data FILE.npz] [--size 64 96]`.

Every image is attacked with a random γ. Per inverse: cells that survive, the proved E over all β and survivors
(largest, and the median over β), the true error, the worst error of a consistent original that linear programs find
for the β of the largest bound, the ratio, and the seconds; with --size for pictures enlarged to each of these sides,
and the largest memory so far. Data sets other than mnist500 and .npz files are read from $WARPCERT_DATA.
"""

from __future__ import annotations

import argparse
import math
import resource
import time

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.learn import data
from warpcert.originals.functional import Functional
from warpcert.originals.lagrangian.inverse import Lagrangian
from warpcert.originals.protocol import IntervalInverse, InverseBound, Originals
from warpcert.threat import Threat
from warpcert.transforms import Preprocess, SpatialTransform


def worst_consistent(
    x_attacked: Tensor, x: Tensor, threat: Threat, defence: Defence, beta: Tensor, gamma: Tensor, rounds: int = 3
) -> tuple[float, Tensor]:
    """An original x with q(T_γ x) = x' whose view differs much from that of x', and by how much: ascent from x by
    linear programs, each channel by itself, along the direction of the present difference. β, γ [1,d].
    """
    transform = threat.transform
    assert isinstance(transform, SpatialTransform)
    channels, height, width = x_attacked.shape
    half = transform.step / 2 * (1 - 1e-4) if threat.quantized else 1e-9
    a = transform.matrix(gamma[0].tolist(), height, width, threat.interpolation).to_dense().numpy()
    b = transform.matrix((beta + gamma)[0].tolist(), height, width, defence.interpolation).to_dense()
    c = defence.preprocess.matrix(height, width) @ b
    target = defence.view(x_attacked.double().cpu(), beta.cpu())[0].flatten(1)
    given = x_attacked.double().cpu().flatten(1)
    best = x.double().cpu().flatten(1).clone()
    for _ in range(rounds):
        slope = (best @ c.T - target) @ c
        for i in range(channels):
            limits = np.concatenate(((given[i] + half).numpy(), (half - given[i]).numpy()))
            found = linprog(-slope[i].numpy(), np.concatenate((a, -a)), limits, bounds=(0, 1), method="highs")
            if found.status == 0:
                best[i] = torch.from_numpy(found.x)
    return float((best @ c.T - target).norm()), best.reshape(channels, height, width)


def images(options: argparse.Namespace, side: int) -> Tensor:
    """[n,C,H,W] in [0,1], enlarged to this side (0: as they are)."""
    x = data.load(options.data).images[options.start : options.start + options.images].double() / 255
    if side:
        x = torch.nn.functional.interpolate(x, side, mode="bicubic").clamp(0, 1)
    return x


def run(
    inverse: InverseBound, x: Tensor, threat: Threat, defence: Defence, beta: Tensor, gamma: Tensor, searched: bool
) -> tuple[float, float, float]:
    """Prints one line; returns E, ratio to what was found, and seconds."""
    x_attacked = threat.attacked(x.float(), gamma.to(x.device, torch.float32))[0]
    start = time.perf_counter()
    originals: Originals = inverse.survivors(x_attacked, threat)
    middle = time.perf_counter()
    errors = inverse.errors(originals, defence, beta).cpu()
    end = time.perf_counter()
    truth = torch.linalg.vector_norm(
        (defence.view(x_attacked.double(), beta.to(x)) - defence.view(x, (beta + gamma).to(x))).flatten(1), dim=1
    ).cpu()
    over_cells = errors.amax(1)
    at = int(over_cells.argmax())
    found = float(truth.max())
    if searched:
        found = max(found, worst_consistent(x_attacked, x, threat, defence, beta[at : at + 1], gamma)[0])
    e = float(over_cells.max())
    print(
        f"  {inverse.name:10} {originals.examined:5d} cells, {len(originals.low):3d} survive; "
        f"E {e:.4f} (median over β {float(over_cells.median()):.4f}), true {float(truth.max()):.4f}, "
        f"consistent {found:.4f}, ratio {e / found:.3f}; exclusion {middle - start:.2f} s, bound {end - middle:.2f} s",
        flush=True,
    )
    return e, e / found, end - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", default="mnist500")
    parser.add_argument("--transform", default="rotation", choices=["rotation", "translation"])
    parser.add_argument("--gamma", type=float, default=10, help="Γ±, degrees or pixels")
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--betas", type=int, default=100)
    parser.add_argument("--size", type=int, nargs="+", default=[0], help="enlarge the images to these sides")
    parser.add_argument("--sigma", type=float, default=None, help="σ_γ, degrees or pixels")
    parser.add_argument("--blur", type=float, default=1.5)
    parser.add_argument("--interpolation", default="bicubic", help="the defender's")
    parser.add_argument("--inverses", nargs="+", default=["interval", "functional", "lagrangian"])
    parser.add_argument("--motion", type=float, default=None, help="px per cell")
    parser.add_argument("--steps", type=int, default=None, help="of the tuning")
    parser.add_argument("--no-search", action="store_true", help="leave out the linear programs")
    options = parser.parse_args()
    vignette = "circle" if options.transform == "rotation" else "rectangle"
    size = 2 * math.ceil(2 * options.blur) + 1
    defence = Defence.surface(
        options.transform, options.sigma or (30 if options.transform == "rotation" else 1.0), noise=0.15,
        interpolation=options.interpolation, preprocess=Preprocess(vignette, 1, options.blur, size),
    )  # fmt: skip
    threat = Threat.of(options.transform, options.gamma)
    made = {"motion": options.motion} if options.motion else {}
    known: dict[str, InverseBound] = {
        "interval": IntervalInverse(),
        "functional": Functional(**made),
        "lagrangian": Lagrangian(**made, **({"steps": options.steps} if options.steps else {})),
    }
    for side in options.size:
        measure(options, side, known, threat, defence)


def measure(
    options: argparse.Namespace, side: int, known: dict[str, InverseBound], threat: Threat, defence: Defence
) -> None:
    """Prints the lines of all images and inverses, and one line each over the images."""
    device, pictures = torch.device(options.device), images(options, side)
    shape = "×".join(map(str, pictures.shape[1:]))
    print(f"{options.data} {shape}, {threat.transform.span(threat.box)}, {options.betas} β, {device}")
    total: dict[str, list[tuple[float, float, float]]] = {name: [] for name in options.inverses}
    for number, x in enumerate(pictures):
        generator = torch.Generator().manual_seed(options.start + number)
        gamma = threat.box.uniform(1, generator)
        beta = defence.draw_beta(options.betas, generator)
        print(
            f" image {options.start + number}, γ = {[round(threat.transform.surface(g), 3) for g in gamma[0].tolist()]}"
        )
        for name in options.inverses:
            line = run(known[name], x.to(device), threat, defence, beta, gamma, not options.no_search)
            total[name].append(line)
    for name, lines in total.items():
        e, ratio, seconds = (torch.tensor(v, dtype=torch.float64) for v in zip(*lines, strict=True))
        print(
            f"{name} {shape}: E median {float(e.median()):.4f} largest {float(e.max()):.4f}; "
            f"ratio median {float(ratio.median()):.3f} largest {float(ratio.max()):.3f}; "
            f"{float(seconds.median()):.2f} s per image (largest {float(seconds.max()):.2f}); "
            f"{memory(device):.1f} GiB at most",
            flush=True,
        )


def memory(device: torch.device) -> float:
    """The most that was in use so far, in GiB: of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
