"""Attempts to break exhaustive verification.

Zero tolerance, with pictures and attackers in float64 and in float32, who round and who do not:

    exact         what a classifier sees of x' is among the pictures that were enumerated, of those with an onset of at
                  most γ: for random γ, at the ends of every crossing, in it, and close by
    ties          the same where many pixels change at one parameter: at and beside the numbers at which the program
                  turns one of them, in float64 from 8 bits and from the picture's floats
    certificates  f answers as certified for every x' that is handed over within the certified range

Rows with levels draw the step from 2 … 64. Whoever does not round hands over float32 pictures, and in float64 errs on
purpose by all of the tolerance, up or down in each pixel.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks.soundness.bounds import AVERAGED, BOXES, GRADED, NEW, POINTWISE, too_small
from benchmarks.soundness.breaking import MOST, WORK, Row, Task, cases
from warpcert import certificates, methods, transforms
from warpcert.certificates import Exhausted
from warpcert.classifier import Levels, Plain
from warpcert.classifier.before.rounding import level
from warpcert.exhaustive.enumeration import Plan, images, plan
from warpcert.exhaustive.events.crossings import Crossings, find_crossings
from warpcert.threat import Threat
from warpcert.transforms import Box, Flow, Tone, Transform

TRANSFORMS = ("rotation", "scaling", "shear", *NEW, *POINTWISE, *GRADED, *AVERAGED)
KINDS = (("float64", "float64"), ("float32", "float64"), ("float32", "float32"))  # of the picture and of T
MAKES_FLOAT32 = 3.1e-8  # what rounding to float32 does to a value in [0, 1], and a little more


@dataclass(frozen=True)
class Attacker:
    """Computes T in some arithmetic, rounds or not, and hands over float32 pictures within the tolerance of T."""

    threat: Threat
    arithmetic: torch.dtype
    tolerance: float

    @classmethod
    def of(cls, transform: str, box: Box, arithmetic: str, rounds: bool, x: Tensor) -> Attacker:
        threat = Threat(transforms.get(transform), box, quantized=rounds)
        tolerance = 5e-7 * sum(x.shape[1:]) if arithmetic == "float32" else 1e-12 if rounds else 1e-7
        return cls(threat, getattr(torch, arithmetic), tolerance)

    def legal(self, gamma: Tensor) -> Tensor:
        """Parameters [n] that this arithmetic can write and Γ holds."""
        gamma = gamma.to(self.arithmetic).double()
        return gamma[(gamma >= self.threat.box.lower[0]) & (gamma <= self.threat.box.upper[0])]

    def hands_over(self, x: Tensor, gamma: Tensor, g: torch.Generator) -> Tensor:
        """x' [n,C,H,W] for parameters [n], as float32."""
        moved = self.threat.transform(x.to(self.arithmetic), gamma[:, None])
        if self.arithmetic == torch.float64 and not self.threat.quantized:
            sign = torch.randint(-1, 2, moved.shape, generator=g).to(moved.device)
            moved = moved + sign * (self.tolerance - MAKES_FLOAT32)
        return (self.threat.transform.quantize(moved) if self.threat.quantized else moved).float()


def searched(c: Crossings, attacker: Attacker, count: int, g: torch.Generator) -> Tensor:
    """Random γ, and for every event its ends, points inside, and points at all distances from 10⁻¹⁰ to 10⁻⁴."""
    width = c.upper - c.lower
    inside = c.lower + width * torch.linspace(0, 1, 7, dtype=torch.float64, device=width.device)[:, None]
    far = 10 ** (-10 + 6 * torch.rand(12, len(c), generator=g, dtype=torch.float64)).to(width.device)
    near = torch.cat((c.lower - far[:6], c.upper + far[6:]))
    at_random = attacker.threat.box.uniform(count, g)[:, 0].to(width.device)
    return attacker.legal(torch.cat((at_random, inside.flatten(), near.flatten())))


class Known:
    """The pictures of a plan by hash, with the least onset of each."""

    def __init__(self, made: Plan, g: torch.Generator) -> None:
        start = made.crossings.start
        self.key = torch.randint(-(2**62), 2**62, (start.numel(),), generator=g).to(start.device)
        parts = [(self._hash(image), where[:, 2]) for image, where in images(made, 4096)]
        every, onset = (torch.cat(each) for each in zip(*parts, strict=True))
        self.hash, number = every.unique(return_inverse=True)
        self.onset = torch.full_like(self.hash, torch.inf, dtype=torch.float64).scatter_reduce(0, number, onset, "amin")

    def _hash(self, level: Tensor) -> Tensor:
        return (level.flatten(1).long() * self.key).sum(1)

    def holds(self, level: Tensor, gamma: Tensor) -> Tensor:
        """Whether each picture [n,C,H,W] is known, with an onset of at most its γ [n]."""
        wanted = self._hash(level)
        at = torch.searchsorted(self.hash, wanted).clamp_(max=len(self.hash) - 1)
        return (self.hash[at] == wanted) & (self.onset[at] <= gamma)


def exact_row(row: Row, task: Task, transform: str, picture: str, arithmetic: str, how: str) -> None:
    """how: "8-bit", or for classifiers behind levels "rounds" or "does not"."""
    g = torch.Generator().manual_seed(task.seed + 2)
    float32 = arithmetic == "float32"
    for turn, (kind, x) in cases(g, task):
        if row.done(task):
            return
        if x.numel() > (64 if float32 else 432) or too_small(x, transform):
            continue
        x = ((x * 255).round() / 255).to(task.device, getattr(torch, picture))
        if float32 and turn % 2:  # not a multiple of 1/255: taken as it is
            x = (x * 0.9).clamp(0, 1)
        box = BOXES[transform][turn % len(BOXES[transform])]
        step = 1 if how == "8-bit" else 2 ** int(torch.randint(1, 7, (), generator=g))
        box = box.scaled(0.1) if float32 and step < 8 else box
        attacker = Attacker.of(transform, box, arithmetic, how != "does not", x)
        crossings = find_crossings(x, attacker.threat, attacker.tolerance, step)
        made = plan(crossings)
        if made.total > 2**20 or (float32 and made.bundles):
            continue
        gamma = searched(crossings, attacker, max(1, min(4 * MOST, task.pairs) * 16 // (16 + x.numel())), g)
        exactly = bool(made.bundles) and attacker.threat.quantized and not made.followed
        if exactly:  # about exact arithmetic on the 8-bit picture: at the very root float64 may differ
            away = crossings.upper.new_tensor([1e-11])
            at = torch.searchsorted(crossings.upper, gamma - away).clamp_(max=len(crossings) - 1)
            gamma = gamma[crossings.lower.flip(0).cummin(0).values.flip(0)[at] > gamma + away]
        known = Known(made, g)
        start = (255 * x.double()).round() / 255 if exactly else x
        what = f"turn {turn}, {kind} {list(x.shape)}, {box}, step {step}"
        for part in gamma[gamma < made.doubt].split(max(1, WORK // x.numel())):
            row.check(known.holds(level(attacker.hands_over(start, part, g), step), part), what)


def ties_row(row: Row, task: Task, transform: str) -> None:
    """Symmetric pictures, grey in three channels: their ties are as large as their symmetry."""
    g = torch.Generator().manual_seed(task.seed + 4)
    for turn, (kind, x) in cases(g, task):
        if row.done(task):
            return
        side = min(8, *x.shape[1:])
        x = x[0, :side, :side]
        for other in (x.T, x.flip(0), x.flip(1)):
            x = torch.maximum(x, other)
        x = (255 * x).round().to(task.device).repeat(3, 1, 1).float() / 255
        box = BOXES[transform][turn % len(BOXES[transform])].scaled(0.2)
        threat, step = Threat(transforms.get(transform), box), 2 ** int(torch.randint(0, 5, (), generator=g))
        crossings = find_crossings(x, threat, threat.off_by, step)
        for sign, half in ((1, crossings.from_zero()), (-1, crossings.mirrored().from_zero())):
            made = plan(half)
            if made.followed and made.doubt == torch.inf:
                known, gamma = Known(made, g), _near_ties(made, threat, sign, g)
                what = f"turn {turn}, {kind} {list(x.shape)}, {box}, step {step}"
                for start in (x.double(), (255 * x.double()).round() / 255):
                    for part in gamma.split(max(1, WORK // x.numel())):
                        row.check(known.holds(level(threat.attacked(start, sign * part[:, None]), step), part), what)


def _parameter(transform: Transform, s: Tensor) -> Tensor:
    """γ of which s is the amount, roughly."""
    if isinstance(transform, Tone):
        return s if transform.pivot is None else s.log()
    assert isinstance(transform, Flow)
    rate = transform.generator[0][0]
    return s.log() / rate if rate else s


def _near_ties(made: Plan, threat: Threat, sign: int, g: torch.Generator) -> Tensor:
    """Up to `MOST` parameters of one half, against |γ|."""
    c, tied = made.crossings, made.bundled[made.step].nonzero()[:, 0]
    tied = tied[torch.randperm(len(tied), generator=g)[:400].to(tied.device)]
    found = [made.crossings.lower[tied], made.crossings.upper[tied]]
    for program in c.programs:
        if (turns := program.turns(c.tied(tied))) is not None:
            gamma = sign * _parameter(threat.transform, turns[1])
            some = gamma[torch.randperm(len(gamma), generator=g)[: MOST // 16].to(gamma.device)]
            away = 2.0**-54 * torch.arange(-4, 5, device=some.device)
            found.append((some[:, None] + away).flatten())
    gamma, last = torch.cat(found), max(sign * threat.box.lower[0], sign * threat.box.upper[0])
    return gamma[gamma.isfinite() & (gamma >= 0) & (gamma <= last)]


def certificates_row(row: Row, task: Task, transform: str, how: str) -> None:
    """Random linear classifiers with a small lead, so that the answer changes in Γ; many γ near the ends found."""
    g = torch.Generator().manual_seed(task.seed + 3)
    for turn, (kind, x) in cases(g, task):
        if row.done(task):
            return
        if x.numel() > 432 or too_small(x, transform):
            continue
        x = x.float().to(task.device)
        weight = torch.randn(6, x.numel(), generator=g).to(x)
        bias = torch.tensor([0.02 * x.numel() ** 0.5] + [0.0] * 5).to(x)

        def classifier(z: Tensor, x: Tensor = x, weight: Tensor = weight, bias: Tensor = bias) -> Tensor:
            return (z - x).flatten(1) @ weight.T + bias

        step = 1 if how == "8-bit" else 2 ** int(torch.randint(1, 7, (), generator=g))
        f = Plain(classifier) if step == 1 else Levels(classifier, step)
        box = BOXES[transform][turn % len(BOXES[transform])]
        attacker = Attacker.of(transform, box, "float64", how != "does not", x)
        certificate = methods.certify(f, x, attacker.threat, method="exact")
        assert isinstance(certificate, Exhausted)
        again = certificates.read(certificate.to_dict())
        row.check(torch.tensor([again == certificate]), f"turn {turn}: a record read back is the same")
        if (reach := certificate.reach) is None or certificate.found is None:
            continue
        far = 1 - 10 ** (-12 * torch.rand(2, 4000, generator=g, dtype=torch.float64))
        ends = torch.tensor([reach.lower, reach.upper], dtype=torch.float64)
        gamma = torch.cat((reach.uniform(4000, g)[:, 0], (far * ends).flatten(), ends.flatten())).to(x.device)
        if certificate.found.scope == "exact" and attacker.threat.quantized:  # not at the very roots
            gamma = gamma[:4000]
        what = f"turn {turn}, {kind} {list(x.shape)}, {box}, step {step}: {certificate}"
        for part in gamma.split(max(1, WORK // x.numel())):
            row.check(f(attacker.hands_over(x, part, g)).argmax(1) == certificate.label, what)


def rows() -> Iterator[tuple[str, partial[None]]]:
    hows = {"8-bit": "", "rounds": ", levels", "does not": ", levels, unrounded"}
    for how, name, (picture, arithmetic) in itertools.product(hows, TRANSFORMS, KINDS):
        if name in NEW and arithmetic == "float32":
            continue  # float32 errs by more than the tolerance of the others
        job = partial(exact_row, transform=name, picture=picture, arithmetic=arithmetic, how=how)
        yield f"exact: {name}, x {picture}, T {arithmetic}{hows[how]}", job
    for name in ("scaling", "shear", *POINTWISE):
        yield f"ties: {name}", partial(ties_row, transform=name)
    for how, name in itertools.product(hows, TRANSFORMS):
        yield f"certificates: exact, {name}{hows[how]}", partial(certificates_row, transform=name, how=how)
