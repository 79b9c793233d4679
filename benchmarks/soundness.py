"""Attempts to break the proved bounds: `python -m benchmarks.soundness [--pairs N] [--device D] [--seconds S]`.

Every row draws images, parameters of the defender and parameters of the attacker, and looks for one whose true error
exceeds the bound that was proved for it; zero tolerance, in float64 and in float32.

    curve         ‖P T_β q(T_γ x) − P T_{β+γ} x‖ ≤ upper(β): random γ, special γ, and a climb from the worst ones
    cover         ‖P x' − P z_j‖ ≤ E_j for γ in window j, and the windows tile Γ
    certificates  a vote of many samples at an attacked image never contradicts a certificate

Images: digits, smooth colour noise, white noise, binary noise, checkerboards, single pixels, constants, ascended ones
(signed gradient steps towards a large error), and sizes down to one pixel. Exit code 1 if anything was violated.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from warpcert import certificates, methods
from warpcert.classifier.defence import Defence
from warpcert.classifier.voting import ABSTAIN, predict
from warpcert.errors.base import interpolation_error
from warpcert.errors.curve.bound import curve_bound
from warpcert.errors.proved import Curve
from warpcert.learn import data
from warpcert.methods.run import Sampling
from warpcert.threat import Threat
from warpcert.transforms import Box, Preprocess
from warpcert.windows.cover import Windows, cover_windows

BETAS = 24  # per curve bound
WORK = 2**22  # pixels evaluated at once, and about as many for each case and precision
MOST = 20_000  # pairs per case
TURNS = 52  # cases per row at least, if time permits: four rounds of the pictures
CLIMBERS, CHILDREN, ROUNDS = 48, 12, 10  # of the climb from the worst pairs
LIMITS = (4.0, 1.0, 0.0)  # seconds for one curve bound: what it returns at the limit must hold too
SPATIAL = ("rotation", "scaling", "translation")
POINTWISE = ("brightness", "contrast")
KERNELS = ("bilinear", "bicubic")
PREPROCESS = (
    Preprocess(),
    Preprocess("circle", 1, 1.5, 7),
    Preprocess("none", 0, 1.0, 5),
    Preprocess("rectangle", 1),
    Preprocess("circle", 2),
)
BOXES: dict[str, tuple[Box, ...]] = {
    "rotation": tuple(
        Box((math.radians(a),), (math.radians(b),))
        for a, b in ((-50, 50), (-10, 10), (-7, 100), (-180, 180), (0, 90), (0, 0), (-1e-3, 2e-3))
    ),
    "scaling": tuple(Box((a,), (b,)) for a, b in ((-0.3, 0.3), (-1.4, 0.2), (0.0, 1.4), (0.0, 0.0), (-0.05, 0.1))),
    "translation": tuple(
        Box(a, b) for a, b in (((-1, -1), (1, 1)), ((-0.4, 0), (2.3, 0)), ((0, -1.5), (0.7, 0.2)), ((0, 0), (0, 0)))
    ),
    "brightness": tuple(Box((a,), (b,)) for a, b in ((-0.2, 0.2), (0.0, 0.9), (-0.01, 0.003), (0.0, 0.0))),
    "contrast": tuple(Box((a,), (b,)) for a, b in ((-0.3, 0.3), (0.0, 1.5), (-2.0, 0.0), (-0.001, 0.002))),
}
SIGMA = {"rotation": (0.6,), "scaling": (0.4,), "translation": (1.5, 1.5), "brightness": (0.3,), "contrast": (0.4,)}


@dataclass
class Row:
    """What one line of the report counts. `closest` is the largest true error over its bound."""

    name: str
    tried: int = 0
    violations: int = 0
    closest: float = 0.0
    example: str = ""
    start: float = field(default_factory=time.perf_counter)

    def count(self, true: Tensor, bound: Tensor, what: str) -> None:
        bad = ~(true <= bound)  # NaN counts as a violation
        self.tried += true.numel()
        self.closest = max(self.closest, float((true / bound).nan_to_num(0.0).max()) if true.numel() else 0.0)
        if bool(bad.any()):
            self.violations += int(bad.sum())
            at = int((true - bound).nan_to_num(math.inf).argmax())
            self.example = self.example or f"{what}: {float(true[at]):.9g} > {float(bound[at]):.9g}"

    def check(self, right: Tensor, what: str) -> None:
        """As `count`, for statements that are true or false."""
        self.tried += right.numel()
        if not bool(right.all()):
            self.violations += int((~right).sum())
            self.example = self.example or what

    def done(self, turn: int, options: argparse.Namespace) -> bool:
        late = time.perf_counter() - self.start > options.seconds
        return late or (self.tried >= options.pairs and turn + 1 >= TURNS)

    def report(self) -> None:
        seconds = time.perf_counter() - self.start
        print(f"{self.name:<58}{self.tried:>10}{self.violations:>12}{self.closest:>11.5f}{seconds:>8.0f} s", flush=True)
        if self.example:
            print(f"    VIOLATED {self.example}", flush=True)


# ---------------------------------------------------------------------------------------------------------- pictures


def smooth(shape: tuple[int, int, int], g: torch.Generator) -> Tensor:
    """Colour noise of a few pixels' scale, full contrast."""
    coarse = torch.rand(1, shape[0], 2 + shape[1] // 4, 2 + shape[2] // 4, generator=g, dtype=torch.float64)
    x = interpolate(coarse, shape[1:], mode="bicubic", align_corners=False)[0]
    x = x - x.min()
    return x / x.max().clamp_min(1e-9)


def pictures(g: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    """Kinds and sizes in turn, for ever, float64 in [0,1], each exactly a float32 picture, every other round 8-bit."""
    digits = data.load("mnist500").images
    for turn in itertools.count():

        def noise(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=g, dtype=torch.float64)

        i, j = torch.arange(9)[:, None], torch.arange(8)[None]
        pixel = torch.zeros(1, 7, 7, dtype=torch.float64)
        pixel[0, turn % 7, (3 * turn + 3) % 7] = 1.0
        level = int(torch.randint(256, (), generator=g)) / 255
        digit = digits[int(torch.randint(len(digits), (), generator=g))].double() / 255
        for name, x in (
            ("binary noise", (noise(1, 8, 8) > 0.5).double()),
            ("white noise", noise(2, 7, 9)),
            ("checkerboard", ((i + j + turn) % 2).double()[None]),
            ("smooth colour noise", smooth((3, 12, 12), g)),
            ("single pixel", pixel),
            ("digit", digit),
            ("constant", torch.full((1, 6, 6), level, dtype=torch.float64)),
            ("8-bit noise", (noise(1, 5, 11) * 255).round() / 255),
            ("one column", noise(1, 9, 1)),
            ("one pixel", noise(1, 1, 1)),
            ("stripes", ((i + turn) % 2).double().expand(9, 6)[None].clone()),
            ("small digit", avg_pool2d(digit[None], 2)[0]),
            ("smooth noise", smooth((1, 16, 13), g)),
        ):
            yield name, (x if turn % 2 else (x * 255).round() / 255).float().double()


def ascended(x: Tensor, defence: Defence, threat: Threat, beta: Tensor, gamma: Tensor, steps: int = 12) -> Tensor:
    """x after signed steps that raise ‖ε(β,γ,x)‖ for one pair: to the faces of the cube [0,1]^n."""
    unrounded = Threat(threat.transform, threat.box, threat.interpolation, quantized=False)
    for _ in range(steps):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(interpolation_error(x, defence, unrounded, beta, gamma).sum(), x)
        x = torch.where(slope == 0, x.detach(), (slope > 0).to(x))
    return x.detach()


# ------------------------------------------------------------------------------------------------------- parameters


def special(box: Box, beta: Tensor, g: torch.Generator) -> Tensor:
    """γ where pixels kink together or Γ ends, and close by: [B, n, d] for beta [B, d]."""
    lower, upper = (torch.tensor(e, dtype=torch.float64) for e in (box.lower, box.upper))
    turns = torch.arange(-4, 5, dtype=torch.float64)[:, None].expand(-1, box.dim)
    unit = math.pi / 2 if box.dim == 1 else 1.0
    fixed = torch.cat((lower[None], upper[None], (lower + upper)[None] / 2, turns * unit)).expand(len(beta), -1, -1)
    gamma = torch.cat((fixed, turns[None] * unit - beta[:, None]), 1)
    near = 10 ** (-9 * torch.rand(gamma.shape, generator=g, dtype=torch.float64))
    near = gamma + near * torch.randn(gamma.shape, generator=g, dtype=torch.float64)
    return torch.cat((gamma, near), 1).clamp(lower, upper)


Errors = Callable[[Tensor, Tensor], Tensor]  # (number of the bound [n], γ [n, d]) → true errors [n]


def composition_errors(
    x: Tensor, defence: Defence, threat: Threat, beta: Tensor, number: Tensor, gamma: Tensor
) -> Tensor:
    """‖P T_β q(T_γ x) − P T_{β+γ} x‖, the latter by the reference, in the arithmetic of x."""
    moved = defence.view(threat.attacked(x, gamma), beta[number]) - defence.known.view(x, beta[number] + gamma)
    return torch.linalg.vector_norm(moved.double().flatten(1), dim=1)


def window_errors(
    x: Tensor, preprocess: Preprocess, threat: Threat, centers: Tensor, number: Tensor, gamma: Tensor
) -> Tensor:
    """‖P x' − P z_j‖ in the arithmetic of x."""
    moved = preprocess(threat.attacked(x, gamma)).double() - preprocess(centers[number].to(x)).double()
    return torch.linalg.vector_norm(moved.flatten(1), dim=1)


def chunks(errors: Errors, at: Tensor, gamma: Tensor, pixels: int) -> Tensor:
    size = max(1, WORK // pixels)
    return torch.cat([errors(*part) for part in zip(at.split(size), gamma.split(size), strict=True)])


def attack(
    row: Row,
    what: str,
    tests: Sequence[tuple[str, Errors]],
    bound: Tensor,
    at: Tensor,
    gamma: Tensor,
    ends: tuple[Tensor, Tensor],
    pixels: int,
    g: torch.Generator,
) -> None:
    """Counts the pairs (bound number, γ) in every arithmetic, then climbs from the worst within ends [bounds, d]."""
    low, high = ends
    for name, errors in tests:
        true = chunks(errors, at, gamma, pixels)
        row.count(true, bound[at], f"{what}, {name}")
        best, rank = (true / bound[at]).topk(min(CLIMBERS, len(at)))
        who, best_gamma = at[rank], gamma[rank]
        scale = (high - low)[who] * 0.03
        for _ in range(ROUNDS):
            step = torch.randn(len(who), CHILDREN, gamma.shape[1], generator=g, dtype=torch.float64).to(gamma.device)
            tried = best_gamma[:, None] + step * scale[:, None]
            tried = tried.clamp(low[who, None], high[who, None]).flatten(0, 1)
            number = who.repeat_interleave(CHILDREN)
            true = chunks(errors, number, tried, pixels)
            row.count(true, bound[number], f"{what}, {name}, climbing")
            ratio, child = (true / bound[number]).reshape(len(who), CHILDREN).max(1)
            better = ratio > best
            chosen = tried.reshape(len(who), CHILDREN, -1)[torch.arange(len(who), device=child.device), child]
            best_gamma = torch.where(better[:, None], chosen, best_gamma)
            best = torch.maximum(ratio, best)
            scale = torch.where(better[:, None], scale, scale * 0.3)


# ------------------------------------------------------------------------------------------------------------- rows


def curve_row(
    row: Row, options: argparse.Namespace, transform: str, att: str, defend: str, quantized: bool, ref: str | None
) -> None:
    """Random (x, Γ, P, β, γ) against `curve_bound`."""
    g = torch.Generator().manual_seed(options.seed)
    boxes = BOXES[transform]
    for turn, (kind, x) in enumerate(pictures(g)):
        limit = LIMITS[turn % len(LIMITS)]
        preprocess = PREPROCESS[-1 if limit == 0 else (turn + turn // len(PREPROCESS)) % len(PREPROCESS)]
        if not bool(preprocess.mask(*x.shape[1:]).any()):
            preprocess = Preprocess()
        box = boxes[(turn + turn // len(boxes)) % len(boxes)]
        sample = Threat.of(transform, 1, interpolation=att, quantized=quantized)
        threat = Threat(sample.transform, box, att, quantized)
        defence = Defence(sample.transform, SIGMA[transform], 0.1, defend, preprocess, ref)
        beta = defence.draw_beta(BETAS, g)
        beta[:3] = torch.tensor([(0.0,) * box.dim, box.lower, box.upper], dtype=torch.float64).neg()
        count = min(MOST, max(1, WORK // x.numel()), options.pairs)
        at = torch.randint(BETAS, (count,), generator=g)
        gamma = box.uniform(count, g)
        extra = special(box, beta, g)
        at = torch.cat((at, torch.arange(BETAS).repeat_interleave(extra.shape[1])))
        gamma = torch.cat((gamma, extra.flatten(0, 1)))
        if limit == 0 or turn % 4 == 1:
            back = 1 if -box.lower[0] > box.upper[0] else 2
            pair = (at[:1], gamma[:1]) if turn % 2 else (torch.tensor([back]), -beta[back : back + 1])  # there and back
            kind, x = f"ascended {kind}", ascended(x, defence, threat, beta[pair[0]], pair[1]).float().double()
        place = options.device
        x, beta, at, gamma = (t.to(place) for t in (x, beta, at, gamma))
        found = curve_bound(x, defence, threat, beta, tightness=1.1, time_limit=limit)
        ends = (torch.tensor([e] * BETAS, dtype=torch.float64, device=place) for e in (box.lower, box.upper))
        what = f"turn {turn}, {kind} {list(x.shape)}, Γ {box.lower} … {box.upper}, {preprocess}, limit {limit}"
        tests = [(str(z.dtype), partial(composition_errors, z, defence, threat, beta)) for z in (x, x.float())]
        attack(row, what, tests, found.upper, at, gamma, tuple(ends), x.numel(), g)
        row.check(found.lower <= found.upper, f"{what}: lower ≤ upper")
        if row.done(turn, options):
            return


def tiles(row: Row, windows: Windows, box: Box, g: torch.Generator, what: str) -> None:
    """Γ is covered: end to end with one parameter, at random γ with two."""
    lower, upper = windows.lower.cpu(), windows.upper.cpu()
    if box.dim == 1:
        ends = torch.stack((lower[0, 0] == box.lower[0], upper[-1, 0] == box.upper[0]))
        row.check(torch.cat((ends, upper[:-1, 0] == lower[1:, 0])), f"{what}: contiguous windows")
        return
    gamma = torch.cat((box.uniform(500, g), box.grid(5)))[:, None]
    row.check(((lower <= gamma) & (gamma <= upper)).all(-1).any(1), f"{what}: some window holds γ")


def cover_row(row: Row, options: argparse.Namespace, transform: str, att: str, quantized: bool) -> None:
    """Random γ in every window against its E."""
    g = torch.Generator().manual_seed(options.seed + 1)
    boxes = BOXES[transform]
    for turn, (kind, x) in enumerate(pictures(g)):
        preprocess = PREPROCESS[(turn + turn // len(PREPROCESS)) % len(PREPROCESS)]
        box = boxes[(turn + turn // len(boxes)) % len(boxes)]
        sample = Threat.of(transform, 1, interpolation=att, quantized=quantized)
        threat = Threat(sample.transform, box, att, quantized)
        x = x.to(options.device)
        target, rounded = (0.05, 0.2, 0.5)[turn % 3] * math.sqrt(x.numel() / 64), turn % 4 != 3
        windows = cover_windows(x, threat, preprocess, target=target, rounded=rounded, max_windows=4000)
        what = f"turn {turn}, {kind} {list(x.shape)}, Γ {box.lower} … {box.upper}, {preprocess}, rounded {rounded}"
        tiles(row, windows, box, g, what)
        centers = windows.images(x.float() if turn % 2 else x, threat)

        count = min(MOST, max(1, WORK // x.numel()), options.pairs)
        at = torch.randint(len(windows), (count,), generator=g).to(x.device)
        share = torch.rand(count, box.dim, generator=g, dtype=torch.float64).to(x.device)
        share = torch.where(torch.rand(count, 1, generator=g).to(x.device) < 0.2, share.round(), share)
        low, high = windows.lower, windows.upper
        gamma = torch.minimum(low[at] + share * (high - low)[at], high[at])
        tests = [(str(z.dtype), partial(window_errors, z, preprocess, threat, centers)) for z in (x, x.float())]
        attack(row, what, tests, windows.E, at, gamma, (low, high), x.numel(), g)
        if row.done(turn, options):
            return


def certificates_row(row: Row, options: argparse.Namespace, method: str, transform: str) -> None:
    """Predictions at attacked images inside the certified set; α = 10⁻⁴ each, so a failure is no accident."""
    g = torch.Generator().manual_seed(options.seed + 3)
    digits = data.load("mnist500")
    images = avg_pool2d(digits.images.double() / 255, 2).mul(255).round().div(255).float().to(options.device)
    preprocess = Preprocess() if method != "dist-x" else Preprocess("circle", 1, 1.0, 5)
    means = torch.stack([preprocess(images[digits.labels == c]).mean(0).flatten() for c in range(10)])

    def classifier(z: Tensor) -> Tensor:  # nearest mean
        return z.flatten(1).to(means) @ means.T * 4 - 2 * means.square().sum(1)

    degrees = 6 if transform == "rotation" else 0.2
    threat = Threat.of(transform, degrees)
    sigma = [threat.transform.surface(s) for s in SIGMA[transform]]
    defence = Defence.surface(transform, *sigma, noise=0.25, preprocess=preprocess)
    plain = defence.without_parameter_noise(0.25)
    sampling = Sampling(n=4000, alpha=1e-4, seed=options.seed)
    for turn, number in enumerate(torch.randperm(len(images), generator=g).tolist()):
        x = images[number]
        if method == "dist-x":
            certificate = methods.dist_spt_x(classifier, x, defence, threat, sampling, sup=Curve(1.2), betas=120)
        else:
            certificate = methods.cover(classifier, x, defence, threat, sampling, target=0.8)
        again = certificates.read(certificate.to_dict())
        row.check(torch.tensor([again == certificate]), f"picture {number}: a record read back is the same")
        if (reach := certificate.reach) is not None and not certificate.abstains:
            gamma = torch.cat((reach.uniform(40, g), reach.grid(7 if reach.dim == 1 else 3))).to(x.device)
            given = threat.attacked(x.double(), gamma).float()
            answers = given.new_empty(len(given), dtype=torch.long)
            own = plain if method == "cover" else defence
            source = torch.Generator(device=x.device).manual_seed(number)
            for i, z in enumerate(given):
                answers[i] = predict(classifier, own, z, n=2000, alpha=1e-6, generator=source).label
            row.check((answers == certificate.label) | (answers == ABSTAIN), f"picture {number} of mnist500")
        if row.done(turn, options):
            return


Job = Callable[[Row, argparse.Namespace], None]


def rows() -> Iterator[tuple[str, Job]]:
    """Names and what to do."""

    def attacker(quantized: bool) -> str:
        return f"{'8-bit' if quantized else 'float'} attacker"

    more = [("bicubic-0.5", "bicubic-0.5", None), ("bilinear", "bicubic-0.5", "mitchell"), (*KERNELS, "mitchell")]
    for name in (*SPATIAL, *POINTWISE):
        every = [*((a, d, None) for a, d in itertools.product(KERNELS, KERNELS)), *more]
        for (att, defend, ref), quantized in itertools.product(every if name in SPATIAL else every[:1], (True, False)):
            job = partial(curve_row, transform=name, att=att, defend=defend, quantized=quantized, ref=ref)
            yield f"curve: {name}, {att} → {defend}{f' ({ref})' if ref else ''}, {attacker(quantized)}", job
    for name in (*SPATIAL, *POINTWISE):
        for att, quantized in itertools.product(KERNELS if name in SPATIAL else KERNELS[:1], (True, False)):
            job = partial(cover_row, transform=name, att=att, quantized=quantized)
            yield f"cover: {name}, {att}, {attacker(quantized)}", job
    for method, name in itertools.product(("dist-x", "cover"), ("rotation", "brightness")):
        yield f"certificates: {method}, {name}", partial(certificates_row, method=method, transform=name)


def run(named: Iterable[tuple[str, Job]], options: argparse.Namespace) -> int:
    """Does the rows that were asked for; the exit code."""
    print(f"{'':<58}{'tried':>10}{'violations':>12}{'closest':>11}{'time':>10}")
    broken = 0
    for name, job in named:
        if options.only in name:
            row = Row(name)
            job(row, options)
            row.report()
            broken += row.violations
    print("no violation" if not broken else f"{broken} violations")
    return 1 if broken else 0


def parser_of(words: str | None, pairs: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=words.splitlines()[0] if words else None)
    parser.add_argument("--pairs", type=int, default=pairs, help="parameters tried per row")
    parser.add_argument("--seconds", type=float, default=180, help="at most about so long per row")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    return parser


def main() -> int:
    return run(rows(), parser_of(__doc__, 1_000_000).parse_args())


if __name__ == "__main__":
    sys.exit(main())
