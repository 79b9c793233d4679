"""Attempts to break the inverses.

Zero tolerance, in float64 and in float32:

    inverse       the true γ is in a surviving cell and the original in its boxes, and so is every other original of the
                  same x' that is found; ‖P T_β x' − P T_{β+γ} x‖ ≤ U(β) of that cell for all of them
    programs      as inverse, for one cell around the true γ of a small picture: the other originals are those that
                  linear programs find, each the farthest along the error's gradient of all that lead to the same x'
    certificates  g at the original, with many samples, never contradicts a certificate made from x' alone

Other originals: x' itself (nothing moved), x changed where x' does not see it, and an ascent of the error along
directions that leave T_γ x as it is, or change it by less than the rounding shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from benchmarks.inverse import worst_consistent
from benchmarks.soundness.bounds import PREPROCESS, SIGMA
from benchmarks.soundness.breaking import Row, Task, cases
from warpcert import methods
from warpcert.classifier import Smoothed
from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.voting import ABSTAIN
from warpcert.learn import data, zoo
from warpcert.originals.functional import Functional
from warpcert.originals.interval import interval_inverse
from warpcert.originals.lagrangian.inverse import Lagrangian
from warpcert.originals.protocol import IntervalInverse, InverseBound, Originals
from warpcert.threat import Threat
from warpcert.transforms import Preprocess, SpatialTransform

BETAS = 24
SAMPLES = 100_000  # votes at an original whose answer is certified
INVERSES: dict[str, InverseBound] = {
    "lagrangian": Lagrangian(),
    "functional": Functional(),
    "interval": IntervalInverse(cells=40, finest=0.01, most=128),
    "interval, unrefined": IntervalInverse(refinements=0, cells=16, finest=0.1, most=64),
}
THREATS = {
    "rotation": (Threat.of("rotation", 10), Threat.of("rotation", -5, 60), Threat.of("rotation", 1)),
    "translation": (Threat.of("translation", 1), Threat.of("translation", 2, 0.5)),
    "scaling": (Threat.of("scaling", 10), Threat.of("scaling", -40, 20)),
}


def errors(x_attacked: Tensor, z: Tensor, gamma: Tensor, defence: Defence, beta: Tensor) -> Tensor:
    """‖P T_β x' − P T_{β+γ} z‖ [n] in the arithmetic of z."""
    moved = defence.view(x_attacked.to(z), beta) - defence.view(z, beta + gamma)
    return torch.linalg.vector_norm(moved.double().flatten(1), dim=1)


def matrix(threat: Threat, gamma: Tensor, x: Tensor) -> Tensor:
    assert isinstance(threat.transform, SpatialTransform)
    return threat.transform.matrix(gamma[0].tolist(), *x.shape[1:], threat.interpolation).to_dense().to(x.device)


def others(
    x: Tensor, x_attacked: Tensor, gamma: Tensor, threat: Threat, defence: Defence, beta: Tensor, g: torch.Generator
) -> list[Tensor]:
    """Originals with q(T_γ z) = x' exactly, found by changing x: pixels out of sight, then an ascent for some β."""
    A = matrix(threat, gamma, x)
    free = (A.abs().sum(0) == 0).reshape(x.shape[1:])
    found = [torch.where(free, value, x) for value in (0.0, 1.0)]
    found.append(torch.where(free, torch.rand(x.shape, generator=g, dtype=x.dtype).to(x.device), x))
    basis = torch.linalg.svd(A)
    hidden = basis.Vh[(basis.S / basis.S[0].clamp_min(1e-9)).lt(1e-3)]
    for b in beta[:2]:
        z = x
        for step in range(6):
            z = z.detach().requires_grad_()
            (slope,) = torch.autograd.grad(errors(x_attacked, z, gamma, defence, b[None]).sum(), z)
            flat, z = slope.flatten(1), z.detach()
            way = flat @ hidden.T @ hidden if step % 2 == 0 and len(hidden) else flat.sign() / 500
            z = _furthest(z, way.reshape(x.shape), x_attacked, gamma, threat)
        found.append(z)
    return [z for z in found if torch.equal(threat.attacked(z, gamma)[0], x_attacked)]


def _furthest(z: Tensor, way: Tensor, x_attacked: Tensor, gamma: Tensor, threat: Threat) -> Tensor:
    """The longest of some steps along `way` that leads to the same x'."""
    lengths = (2.0 ** -torch.arange(0, 24, dtype=z.dtype, device=z.device) * 64).reshape(-1, 1, 1, 1)
    tried = (z + lengths * way).clamp(0, 1)
    same = (threat.attacked(tried, gamma.expand(len(tried), -1)) == x_attacked).flatten(1).all(1)
    return tried[int(same.float().argmax())] if bool(same.any()) else z


def holds(found: Originals, z: Tensor, gamma: Tensor) -> Tensor:
    """Cells with γ inside whose boxes hold z [k]."""
    here = ((found.low <= gamma) & (gamma <= found.high)).all(1)
    return here & ((found.lower <= z) & (z <= found.upper)).flatten(1).all(1)


def inverse_row(row: Row, task: Task, inverse: str, transform: str, defend: str) -> None:
    g = torch.Generator().manual_seed(task.seed)
    analysis, threats = INVERSES[inverse], THREATS[transform]
    for turn, (kind, picture) in cases(g, task):
        x = picture.to(task.device)
        preprocess = PREPROCESS[(turn + turn // len(PREPROCESS)) % len(PREPROCESS)]
        if not bool(preprocess.mask(*x.shape[1:]).any()):
            preprocess = Preprocess()
        threat = replace(threats[turn % len(threats)], quantized=turn % 5 != 4)
        defence = Defence(threat.transform, SIGMA[transform], 0.1, defend, preprocess)
        gamma = threat.box.uniform(1, g)
        if turn % 4 == 3:
            gamma = threat.box.grid(3)[turn % 3][None]  # ends and the middle of Γ
        gamma = gamma.to(x)
        x_attacked = threat.attacked(x, gamma)[0]
        beta = torch.cat((defence.draw_beta(BETAS - 2, g).to(x), -gamma, 0 * gamma))
        found = analysis.survivors(x_attacked, threat)
        bound = analysis.errors(found, defence, beta)
        zero = torch.zeros_like(gamma)
        pairs = [(z, gamma) for z in (x, *others(x, x_attacked, gamma, threat, defence, beta, g))]
        pairs += [(x_attacked, zero)] if torch.equal(threat.attacked(x_attacked, zero)[0], x_attacked) else []
        for z, at in pairs:
            what = f"{kind} {list(x.shape)}, {threat.box}, γ = {at.tolist()}, turn {turn}"
            cells = holds(found, z, at)
            row.check(cells.any()[None], f"{what}: not among the survivors")
            for exact in (z, z.float()) if bool(cells.any()) else ():
                row.count(errors(x_attacked, exact, at, defence, beta), bound[:, cells].amin(1), what)
        if row.done(task):
            return


def programs_row(row: Row, task: Task, transform: str, defend: str) -> None:
    g = torch.Generator().manual_seed(task.seed)
    inverse, threats = Lagrangian(steps=3, rounds=2), THREATS[transform]
    for turn, (kind, picture) in cases(g, task):
        x = picture[..., :9, :9]
        preprocess = PREPROCESS[(turn + turn // len(PREPROCESS)) % len(PREPROCESS)]
        if not bool(preprocess.mask(*x.shape[1:]).any()):
            preprocess = Preprocess()
        threat = replace(threats[turn % len(threats)], quantized=turn % 5 != 4)
        defence = Defence(threat.transform, SIGMA[transform], 0.1, defend, preprocess)
        gamma = threat.box.uniform(1, g).double()
        x_attacked = threat.attacked(x, gamma)[0]
        width = (1e-3, 0.01, 0.05)[turn % 3]
        low, high = gamma - 0.4 * width, gamma + 0.6 * width
        low, high = torch.where((low < 0) & (gamma >= 0), 0.0, low), torch.where((high > 0) & (gamma < 0), 0.0, high)
        boxes = interval_inverse(x_attacked, threat, low, high, refinements=3)
        what = f"{kind} {list(x.shape)}, {threat.box}, γ = {gamma.tolist()}, turn {turn}"
        row.check(boxes.possible, f"{what}: no original is possible")
        found = Originals(x_attacked, threat, low, high, boxes.low, boxes.high, 1, 0.0)
        beta = torch.cat((defence.draw_beta(7, g).double(), -gamma))
        for b, bound in zip(beta[:, None], inverse.errors(found, defence, beta), strict=True):
            _, z = worst_consistent(x_attacked, x, threat, defence, b, gamma, rounds=2)
            if torch.equal(threat.attacked(z, gamma)[0], x_attacked):
                row.count(errors(x_attacked, z, gamma, defence, b), bound, what)
        if row.done(task):
            return


def certificates_row(row: Row, task: Task, merged: bool) -> None:
    """Digits moved by random γ, certified from x' alone (α = 10⁻⁴); then g at the original, 10⁵ samples."""
    model, digits = zoo.load("mnist-rotation").to(task.device), data.load("mnist500")
    assert isinstance(model, Smoothed)
    threat, g = THREATS["rotation"][0], torch.Generator().manual_seed(task.seed)
    for turn in itertools.count(task.first):
        x = digits.image(turn % len(digits)).to(task.device)
        gamma = threat.box.uniform(1, g) * (0.1 if turn % 2 else 1)
        x_attacked = threat.attacked(x, gamma.to(x.device))[0]
        sampling = {"n": 5000, "alpha": 1e-4, "seed": task.seed + turn, "betas": 200, "merged": merged}
        made = methods.certify(model, x_attacked, threat, method="indiv", **sampling)
        if not made.abstains:
            source = torch.Generator(device=x.device).manual_seed(task.seed + turn)
            for z in (x, x_attacked):
                answer = model.vote(z, n=SAMPLES, alpha=1e-9, generator=source).label
                row.check(torch.tensor([answer in (made.label, ABSTAIN)]), f"picture {turn % len(digits)} of mnist500")
        if row.done(task):
            return


def rows() -> Iterator[tuple[str, partial[None]]]:
    for inverse, transform, defend in itertools.product(INVERSES, THREATS, ("bilinear", "bicubic", "bicubic-0.5")):
        if transform == "scaling" and not inverse.startswith("interval"):
            continue  # they are proved for rotation and translation
        job = partial(inverse_row, inverse=inverse, transform=transform, defend=defend)
        yield f"inverse: {inverse}, {transform}, defender {defend}", job
    for transform, defend in itertools.product(("rotation", "translation"), ("bilinear", "bicubic-0.5")):
        job = partial(programs_row, transform=transform, defend=defend)
        yield f"inverse: lagrangian against linear programs, {transform}, defender {defend}", job
    for merged in (False, True):
        yield f"certificates: indiv, rotation{', merged' if merged else ''}", partial(certificates_row, merged=merged)
