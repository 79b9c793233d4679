"""Attempts to break the proved bounds of errors, and the certificates that stand on them.

Every row draws images, parameters of the defender and parameters of the attacker, and looks for one whose true error
exceeds the bound that was proved for it; zero tolerance, in float64 and in float32.

    curve         ‖P T_β q(T_γ x) − P T_{β+γ} x‖ ≤ value(β): random γ, special γ, and a climb from the worst ones
    cover         ‖P x' − P z_j‖ ≤ E_j for γ in window j, and the windows tile Γ
    certificates  a vote of many samples at an attacked image never contradicts a certificate

Images: digits, smooth colour noise, white noise, binary noise, checkerboards, single pixels, constants, ascended ones
(signed gradient steps towards a large error), and sizes down to one pixel. Transformations: those of the package, and
a linear flow that is not part of it (a skew with every entry of its matrix).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

import warpcert as wc
from benchmarks.soundness.breaking import MOST, WORK, Hunt, Job, Row, Task, cases, special
from warpcert import certificates, transforms
from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.voting import ABSTAIN
from warpcert.errors.base import interpolation_error
from warpcert.errors.curve.bound import Curve
from warpcert.learn import data
from warpcert.threat import Threat
from warpcert.transforms import Box, Flow, Preprocess
from warpcert.transforms.families.flow import Matrix
from warpcert.transforms.families.product import THEN
from warpcert.windows.cover import Windows, cover_windows

__all__ = ["AVERAGED", "BOXES", "GRADED", "NEW", "POINTWISE", "PREPROCESS", "SIGMA", "rows", "too_small"]


class Outside(Flow):
    """A flow that the package does not have."""

    unit: ClassVar[str] = ""
    unit_name: ClassVar[str] = ""
    noun: ClassVar[str] = "change"
    composition: ClassVar[str] = "parameters add"
    natural_vignette: ClassVar[str] = "circle"
    generator: ClassVar[Matrix] = ((0, 0), (0, 0))


@final
class Skew(Outside):
    name: ClassVar[str] = "skew"
    generator: ClassVar[Matrix] = ((0.4, 1.1), (0.9, -0.2))


BETAS = 24  # per curve bound
LIMITS = (4.0, 1.0, 0.0)  # seconds for one curve bound: what it returns at the limit must hold too
NEW = {t.name: t for t in (Skew(),)}
SPATIAL = ("rotation", "scaling", "shear", "translation")
POINTWISE = ("brightness", "contrast")
GRADED = ("power",)  # no bound between two of them is claimed
AVERAGED = ("blur",)  # nor of these
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
    "shear": tuple(Box((a,), (b,)) for a, b in ((-0.4, 0.4), (-1.2, 0.1), (0.0, 0.9), (0.0, 0.0), (-1e-3, 2e-3))),
    "skew": tuple(Box((a,), (b,)) for a, b in ((-0.2, 0.2), (-0.7, 0.1), (0.0, 0.5), (0.0, 0.0), (-0.02, 0.05))),
    "brightness": tuple(Box((a,), (b,)) for a, b in ((-0.2, 0.2), (0.0, 0.9), (-0.01, 0.003), (0.0, 0.0))),
    "contrast": tuple(Box((a,), (b,)) for a, b in ((-0.3, 0.3), (0.0, 1.5), (-2.0, 0.0), (-0.001, 0.002))),
    "power": tuple(Box((a,), (b,)) for a, b in ((-0.3, 0.3), (0.0, 1.0), (-1.0, 0.2), (0.0, 0.0), (-0.001, 0.002))),
    "blur": tuple(Box((0.0,), (b,)) for b in (0.5, 2.0, 0.05, 0.0, 3.0)),
}
SIGMA = {
    "rotation": (0.6,),
    "scaling": (0.4,),
    "translation": (1.5, 1.5),
    "shear": (0.4,),
    "skew": (0.3,),
    "brightness": (0.3,),
    "contrast": (0.4,),
}


def ascended(x: Tensor, defence: Defence, threat: Threat, beta: Tensor, gamma: Tensor, steps: int = 12) -> Tensor:
    """x after signed steps that raise ‖ε(β,γ,x)‖ for one pair: to the faces of the cube [0,1]^n."""
    unrounded = Threat(threat.transform, threat.box, threat.interpolation, quantized=False)
    for _ in range(steps):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(interpolation_error(x, defence, unrounded, beta, gamma).sum(), x)
        x = torch.where(slope == 0, x.detach(), (slope > 0).to(x))
    return x.detach()


def composition_errors(
    x: Tensor, defence: Defence, threat: Threat, beta: Tensor, number: Tensor, gamma: Tensor
) -> Tensor:
    """‖P T_β q(T_γ x) − P T_{β+γ} x‖, the latter by the reference, in the arithmetic of x."""
    moved = defence.view(threat.attacked(x, gamma), beta[number]) - defence.known.view(x, beta[number] + gamma)
    return torch.linalg.vector_norm(moved.double().flatten(1), dim=1)


def window_errors(
    x: Tensor, preprocess: Preprocess, threat: Threat, centers: Tensor, number: Tensor, gamma: Tensor
) -> Tensor:
    """‖P x' − P z_j‖ in the arithmetic of x; an ℓ2 part goes where that grows fastest."""
    moved = preprocess(threat.attacked(x, gamma)).double() - preprocess(centers[number].to(x)).double()
    if threat.l2:
        push = preprocess(moved)
        size = torch.linalg.vector_norm(push.flatten(1), dim=1).clamp_min(1e-12)[:, None, None, None]
        moved = moved + preprocess((1 - 1e-12) * threat.l2 * push / size)
    return torch.linalg.vector_norm(moved.flatten(1), dim=1)


@dataclass(frozen=True)
class Setting:
    """Who interpolates how."""

    transform: str
    attacker: str
    defender: str
    reference: str | None
    quantized: bool

    def __str__(self) -> str:
        reference = f" ({self.reference})" if self.reference else ""
        rounding = "8-bit" if self.quantized else "float"
        return f"{self.transform}, {self.attacker} → {self.defender}{reference}, {rounding} attacker"

    def threat(self, box: Box) -> Threat:
        return Threat(transforms.get(self.transform), box, self.attacker, self.quantized)

    def defence(self, preprocess: Preprocess) -> Defence:
        t = transforms.get(self.transform)
        return Defence(t, SIGMA[self.transform], 0.1, self.defender, preprocess, self.reference)


def curve_row(row: Row, task: Task, setting: Setting) -> None:
    """Random (x, Γ, P, β, γ) against `Curve`."""
    g, transform = torch.Generator().manual_seed(task.seed), setting.transform
    boxes = BOXES[transform]
    for turn, (kind, x) in cases(g, task):
        limit = LIMITS[turn % len(LIMITS)]
        preprocess = PREPROCESS[-1 if limit == 0 else (turn + turn // len(PREPROCESS)) % len(PREPROCESS)]
        if not bool(preprocess.mask(*x.shape[1:]).any()):
            preprocess = Preprocess()
        box = boxes[(turn + turn // len(boxes)) % len(boxes)]
        threat, defence = setting.threat(box), setting.defence(preprocess)
        beta = defence.draw_beta(BETAS, g)
        beta[:3] = torch.tensor([(0.0,) * box.dim, box.lower, box.upper], dtype=torch.float64).neg()
        count = min(MOST, max(1, WORK // x.numel()), task.pairs)
        at = torch.randint(BETAS, (count,), generator=g)
        gamma = box.uniform(count, g)
        extra = special(box, beta, g)
        at = torch.cat((at, torch.arange(BETAS).repeat_interleave(extra.shape[1])))
        gamma = torch.cat((gamma, extra.flatten(0, 1)))
        if limit == 0 or turn % 4 == 1:
            back = 1 if -box.lower[0] > box.upper[0] else 2
            pair = (at[:1], gamma[:1]) if turn % 2 else (torch.tensor([back]), -beta[back : back + 1])  # there and back
            kind, x = f"ascended {kind}", ascended(x, defence, threat, beta[pair[0]], pair[1]).float().double()
        place = task.device
        x, beta, at, gamma = (t.to(place) for t in (x, beta, at, gamma))
        found = Curve(1.1, limit)(x, defence, threat, beta)
        low, high = (torch.tensor([e] * BETAS, dtype=torch.float64, device=place) for e in (box.lower, box.upper))
        what = f"turn {turn}, {kind} {list(x.shape)}, Γ {box.lower} … {box.upper}, {preprocess}, limit {limit}"
        tests = [(str(z.dtype), partial(composition_errors, z, defence, threat, beta)) for z in (x, x.float())]
        Hunt(row, what, found.values.to(place), low, high, x.numel(), g).attack(tests, at, gamma)
        row.check(found.lower <= found.values, f"{what}: lower ≤ value")
        if row.done(task):
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


def too_small(x: Tensor, transform: str) -> bool:
    """A blur has to fit into the picture."""
    blurred = transform.split(THEN)[0] in AVERAGED
    return blurred and min(x.shape[1:]) ** 2 < 9 * max(box.upper[0] for box in BOXES[transform])


def cover_row(row: Row, task: Task, transform: str, att: str, quantized: bool, l2: float = 0.0) -> None:
    """Random γ in every window against its E."""
    g = torch.Generator().manual_seed(task.seed + 1)
    boxes = BOXES[transform]
    for turn, (kind, x) in cases(g, task):
        if too_small(x, transform):
            continue
        preprocess = PREPROCESS[(turn + turn // len(PREPROCESS)) % len(PREPROCESS)]
        box = boxes[(turn + turn // len(boxes)) % len(boxes)]
        threat = Threat(transforms.get(transform), box, att, quantized, l2=l2)
        x = x.to(task.device)
        target, rounded = (0.05, 0.2, 0.5)[turn % 3] * math.sqrt(x.numel() / 64), turn % 4 != 3
        windows = cover_windows(x, threat, preprocess, target=target, rounded=rounded, max_windows=4000)
        what = f"turn {turn}, {kind} {list(x.shape)}, Γ {box.lower} … {box.upper}, {preprocess}, rounded {rounded}"
        tiles(row, windows, box, g, what)
        centers = windows.images(x.float() if turn % 2 else x, threat)

        count = min(MOST, max(1, WORK // x.numel()), task.pairs)
        at = torch.randint(len(windows), (count,), generator=g).to(x.device)
        share = torch.rand(count, box.dim, generator=g, dtype=torch.float64).to(x.device)
        share = torch.where(torch.rand(count, 1, generator=g).to(x.device) < 0.2, share.round(), share)
        low, high = windows.lower, windows.upper
        gamma = torch.minimum(low[at] + share * (high - low)[at], high[at])
        tests = [(str(z.dtype), partial(window_errors, z, preprocess, threat, centers)) for z in (x, x.float())]
        Hunt(row, what, windows.E, low, high, x.numel(), g).attack(tests, at, gamma)
        if row.done(task):
            return


def certificates_row(row: Row, task: Task, method: str, transform: str) -> None:
    """Predictions at attacked images inside the certified set; α = 10⁻⁴ each, so a failure is no accident."""
    g = torch.Generator().manual_seed(task.seed + 3)
    digits = data.load("mnist500")
    labels = digits.labels
    images = avg_pool2d(digits.images.double() / 255, 2).mul(255).round().div(255).float().to(task.device)
    preprocess = Preprocess() if method == "cover" else Preprocess("circle", 1, 1.0, 5)
    if method != "cover":  # noughts and ones, which turning does not mix up
        images, labels = images[labels < 2], labels[labels < 2]
    means = torch.stack([preprocess(images[labels == c]).mean(0).flatten() for c in labels.unique().tolist()])
    if method != "cover":  # nor does more light
        light = preprocess(torch.ones_like(images[0])).flatten()
        means -= (means @ light)[:, None] * light / light.square().sum()

    def classifier(z: Tensor) -> Tensor:  # nearest mean
        return z.flatten(1).to(means) @ means.T * 4 - 2 * means.square().sum(1)

    threat = Threat.of(transform, 6 if transform == "rotation" else 0.2)
    sigma = tuple(threat.transform.surface(s) for s in SIGMA[transform])
    over = None if method == "cover" else {transform: sigma}
    if method == "nested":  # votes on margins
        steep = 4.001 * float(torch.linalg.matrix_norm(means.double(), 2))
        smooth = wc.Smoothed(classifier, 0.0, over, preprocess=preprocess, nested=True, lipschitz=steep)
    else:
        smooth = wc.Smoothed(classifier, noise=0.25, over=over, preprocess=preprocess)
    settings = {"bound": Curve(1.2), "betas": 120, "windows": 1} if over else {"target": 0.8}
    for number in torch.randperm(len(images), generator=g).tolist():
        x = images[number]
        certificate = smooth.certify(
            x, threat, method="cover" if over is None else "dist-x", n=4000, alpha=1e-4, seed=task.seed, **settings
        )
        again = certificates.read(certificate.to_dict())
        row.check(torch.tensor([again == certificate]), f"picture {number}: a record read back is the same")
        if (reach := certificate.reach) is not None and not certificate.abstains:
            gamma = torch.cat((reach.uniform(40, g), reach.grid(7 if reach.dim == 1 else 3))).to(x.device)
            given = threat.attacked(x.double(), gamma).float()
            answers = given.new_empty(len(given), dtype=torch.long)
            source = torch.Generator(device=x.device).manual_seed(number)
            for i, z in enumerate(given):
                answers[i] = smooth.vote(z, n=2000, alpha=1e-6, generator=source).label
            row.check((answers == certificate.label) | (answers == ABSTAIN), f"picture {number} of mnist500")
        if row.done(task):
            return


def rows() -> Iterator[tuple[str, Job]]:
    """Names and what to do."""
    more = [("bicubic-0.5", "bicubic-0.5", None), ("bilinear", "bicubic-0.5", "mitchell"), (*KERNELS, "mitchell")]
    for name in (*SPATIAL, *NEW, *POINTWISE):
        every = [*((a, d, None) for a, d in itertools.product(KERNELS, KERNELS)), *more]
        for kernels, quantized in itertools.product(every if name not in POINTWISE else every[:1], (True, False)):
            setting = Setting(name, *kernels, quantized)
            yield f"curve: {setting}", partial(curve_row, setting=setting)
    for name in (*SPATIAL, *NEW, *POINTWISE, *GRADED, *AVERAGED):
        for att, quantized in itertools.product(KERNELS if name in (*SPATIAL, *NEW) else KERNELS[:1], (True, False)):
            job = partial(cover_row, transform=name, att=att, quantized=quantized)
            yield f"cover: {name}, {att}, {'8-bit' if quantized else 'float'} attacker", job
    for method, name in itertools.product(("dist-x", "nested", "cover"), ("rotation", "brightness")):
        yield f"certificates: {method}, {name}", partial(certificates_row, method=method, transform=name)
