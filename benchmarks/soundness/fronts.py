"""Attempts to break exhaustive verification behind a front: tones at the end of a threat that the front does not see.

Zero tolerance, with pictures and attackers in float64 and in float32, none of whom clips or rounds:

    exact         what a classifier sees of x' is among the pictures that were enumerated, for random γ, at the ends of
                  every crossing, in it, and close by, each with random tones and with the ends of their ranges
    certificates  f answers as certified for every x' that is handed over within the certified range

Who computes in float64 errs on purpose by all of the tolerance, up or down in each pixel, and hands over float64 or
float32 pictures. Who computes in float32 is given the tolerance that docs/threats.md states.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from benchmarks.soundness.bounds import BOXES
from benchmarks.soundness.breaking import WORK, Job, Row, Task, cases
from benchmarks.soundness.exact import Known
from warpcert import certificates, methods, transforms
from warpcert.classifier import Levels
from warpcert.classifier.before.front import Front
from warpcert.classifier.before.rounding import level
from warpcert.exhaustive.enumeration import plan
from warpcert.exhaustive.events.crossings import Crossings, find_behind
from warpcert.exhaustive.events.relative import Faint, before_tones
from warpcert.threat import Threat
from warpcert.transforms import Box

__all__ = ["rows"]

SEEN = ("rotation", "scaling", "shear", "skew", "power", "blur", "contrast")
TONES = {
    "grounded": {"brightness": ((-0.3, 0.5), (-2.0, 0.0), (0.0, 20.0))},
    "stretched": {
        "contrast": ((-0.5, 0.4), (0.0, 1.2), (-1.0, 0.0)),
        "brightness": ((-0.5, 0.5), (0.0, 3.0), (-0.1, 0.1)),
    },
}


def threat_of(part: str, front: str, turn: int) -> Threat:
    own = BOXES[part][turn % len(BOXES[part])]
    made, lower, upper = [transforms.get(part)], [*own.lower], [*own.upper]
    for name, ranges in TONES[front].items():
        made.append(transforms.get(name))
        low, high = ranges[turn % len(ranges)]
        lower, upper = [*lower, low], [*upper, high]
    return Threat(transforms.product(*made), Box(tuple(lower), tuple(upper)), quantized=False)


def searched(c: Crossings, threat: Threat, count: int, g: torch.Generator) -> Tensor:
    """Random γ, and for every event its ends, points inside, and points at all distances from 10⁻¹⁰ to 10⁻⁴, with
    random tones and with those at the ends of their ranges.
    """
    width = c.upper - c.lower
    inside = c.lower + width * torch.linspace(0, 1, 5, dtype=torch.float64, device=width.device)[:, None]
    far = 10 ** (-10 + 6 * torch.rand(8, len(c), generator=g, dtype=torch.float64)).to(width.device)
    near = torch.cat((inside.flatten(), (c.lower - far[:4]).flatten(), (c.upper + far[4:]).flatten()))
    near = near[((near >= c.gamma[0]) & (near <= c.gamma[1])).cpu().to(near.device)]
    gamma = threat.box.uniform(count + len(near), g).to(width.device)
    gamma[count:, 0] = near
    ends = torch.rand(gamma.shape, generator=g).to(width.device)
    for axis in range(1, gamma.shape[1]):
        low, high = threat.box.lower[axis], threat.box.upper[axis]
        gamma[:, axis] = gamma[:, axis].where(ends[:, axis] < 0.5, low).where(ends[:, axis] < 0.75, high)
    return gamma


def handed(x: Tensor, threat: Threat, gamma: Tensor, g: torch.Generator, narrow: bool) -> Tensor:
    """x' within the tolerance, as far off as float32 allows where it is handed over in float32."""
    moved = threat.attacked(x, gamma)
    if x.dtype == torch.float64:
        sign = torch.randint(-1, 2, moved.shape, generator=g).to(moved)
        spare = 2.0**-24 * float(moved.abs().amax()) * 1.01 if narrow else 0.0
        moved = moved + sign * max(0.0, threat.off_by * (1 - 1e-6) - spare)
    return moved.float() if narrow else moved


def told(threat: Threat, x: Tensor) -> Threat:
    """With the tolerance of an attacker who computes in float32."""
    tops = [t.top(max(-low, high)) for t, low, high in _tones(threat)]
    most = torch.tensor(tops).prod().item()
    return replace(threat, tolerance=5e-7 * sum(x.shape[1:]) * most + 4e-7 * most)


def _tones(threat: Threat) -> list[tuple[transforms.Tone, float, float]]:
    parts = threat.transform.shared(threat.box)
    return [(t, own.lower[0], own.upper[0]) for t, own in parts if isinstance(t, transforms.Tone)]


def exact_row(row: Row, task: Task, part: str, front: str, arithmetic: str) -> None:
    g = torch.Generator().manual_seed(task.seed + 6)
    float32 = arithmetic == "float32"
    for turn, (kind, x) in cases(g, task):
        if row.done(task):
            return
        x = ((x * 255).round() / 255 if turn % 3 else x).to(task.device, getattr(torch, arithmetic))
        small = part == "blur" and min(x.shape[1:]) ** 2 < 9 * max(box.upper[0] for box in BOXES[part])
        threat = told(threat_of(part, front, turn), x) if float32 else threat_of(part, front, turn)
        rest, tolerance = before_tones(threat, front, threat.off_by)
        if x.numel() > (64 if float32 or part == "blur" else 300) or small or tolerance > 0.09 / 255:
            continue
        step = 2 ** int(torch.randint(4 if float32 else 2, 7, (), generator=g))
        try:
            crossings = find_behind(x, rest, Front(front), tolerance, step)
        except Faint:
            continue
        made = plan(crossings, 1 << 12)
        if made.total > 2**19:
            continue
        known, what = Known(made, g), f"turn {turn}, {kind} {list(x.shape)}, {threat.box}, step {step}"
        gamma = searched(crossings, threat, task.pairs, g)
        for some in gamma[gamma[:, 0] < made.doubt].split(max(1, WORK // x.numel())):
            for narrow in (True,) if float32 else (True, False):
                seen = level(Front(front).exactly(handed(x, threat, some, g, narrow)), step)
                row.check(known.holds(seen, some[:, 0]), f"{what}, narrow {narrow}")


def certificates_row(row: Row, task: Task, part: str, front: str) -> None:
    """Random linear classifiers with a small lead, so that the answer changes in Γ; many γ near the ends found."""
    g = torch.Generator().manual_seed(task.seed + 7)
    for turn, (kind, x) in cases(g, task):
        if row.done(task):
            return
        small = part == "blur" and min(x.shape[1:]) ** 2 < 9 * max(box.upper[0] for box in BOXES[part])
        if x.numel() > (64 if part == "blur" else 300) or small:
            continue
        x = x.float().to(task.device)
        seen, weight = Front(front)(x), torch.randn(6, x.numel(), generator=g).to(x)
        bias = torch.tensor([0.05 * x.numel() ** 0.5] + [0.0] * 5).to(x)

        def network(z: Tensor, x: Tensor = seen, weight: Tensor = weight, bias: Tensor = bias) -> Tensor:
            return (z - x).flatten(1) @ weight.T + bias

        threat = threat_of(part, front, turn)
        f = Levels(network, 2 ** int(torch.randint(3, 7, (), generator=g)), front=front)
        if threat.off_by > 0.05 / 255:
            continue
        made = methods.certify(f, x, threat, method="exact", time_limit=20.0)
        row.check(torch.tensor([certificates.read(made.to_dict()) == made]), f"turn {turn}: read back")
        if (reach := made.reach) is None:
            continue
        gamma = reach.uniform(4000, g)
        far = 1 - 10 ** (-12 * torch.rand(2000, generator=g, dtype=torch.float64))
        gamma[:1000, 0], gamma[1000:2000, 0] = far[:1000] * reach.lower[0], far[1000:] * reach.upper[0]
        for axis in range(1, gamma.shape[1]):
            at = torch.rand(len(gamma), generator=g)
            gamma[at < 0.25, axis], gamma[at > 0.75, axis] = reach.lower[axis], reach.upper[axis]
        what = f"turn {turn}, {kind} {list(x.shape)}: {made}"
        for some in gamma.to(x.device).split(max(1, WORK // x.numel())):
            for narrow in (True, False):
                answers = f(handed(x.double(), threat, some, g, narrow)).argmax(1)
                row.check(answers == made.label, f"{what}, narrow {narrow}")


def rows() -> Iterator[tuple[str, Job]]:
    for front, part in itertools.product(TONES, SEEN):
        if part == "contrast" and front == "stretched":
            continue  # it does not see that
        for arithmetic in ("float64", "float32") if part in ("rotation", "scaling", "shear") else ("float64",):
            job = partial(exact_row, part=part, front=front, arithmetic=arithmetic)
            yield f"exact: behind {front}, {part}, T {arithmetic}", job
        yield f"certificates: exact, behind {front}, {part}", partial(certificates_row, part=part, front=front)
