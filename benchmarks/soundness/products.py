"""Attempts to break what is proved of products of parts, of classifiers with a front, and of shifts by whole pixels.

Zero tolerance, in float64 and in float32, attackers who round and who do not:

    cover         ‖P x' − P z_j‖ ≤ E_j for γ in window j, with and without an ℓ2 part, and the windows tile Γ
    behind        ‖front(x') − front(z_j)‖ ≤ E_j for classifiers with a front, the last parts unseen by it
    certificates  f answers as certified by `exact` for all shifts by whole pixels in the certified range, each followed
                  by many values of one parameter; and a vote at an attacked picture does not contradict a cover
    attacks       a grid, the worst of many and gradients over all parameters find nothing in what a cover by margins
                  certifies
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import torch

from benchmarks.soundness.bounds import BOXES, cover_row, too_small
from benchmarks.soundness.breaking import WORK, Job, Row, Task, cases
from warpcert import attacks, certificates, methods, transforms
from warpcert.classifier import Levels, Plain
from warpcert.classifier.before.front import Front
from warpcert.threat import Threat
from warpcert.transforms import Box, Steps
from warpcert.windows.behind import cover_behind, pictures_behind

COVERED = {  # and how much of the boxes of each part
    "rotation then brightness": 0.2,
    "scaling then brightness": 0.2,
    "shear then contrast": 0.2,
    "rotation then contrast then brightness": 0.06,
    "translation then brightness": 0.3,
    "brightness then contrast": 0.3,
    "power then brightness": 0.3,
    "blur then contrast": 0.3,
    "rotation then shear": 0.1,
    "shear then scaling then contrast": 0.05,
    "scaling then rotation then shear": 0.03,
    "translation then rotation then brightness": 0.05,
}
SHIFTED = ("rotation", "scaling", "shear", "brightness", "contrast", "power")
BEHIND = {
    "brightness": 1.0,
    "brightness then contrast": 1.0,
    "rotation then brightness": 0.3,
    "scaling then contrast then brightness": 0.3,
}


def boxes(name: str, share: float) -> tuple[Box, ...]:
    """A few products of the boxes that the parts are tried with alone."""
    every = [BOXES[part.name] for part in transforms.get(name).parts]
    found = []
    for turn in range(5):
        chosen = [own[(turn + place) % len(own)].scaled(share) for place, own in enumerate(every)]
        found.append(Box(*(tuple(v for box in chosen for v in getattr(box, end)) for end in ("lower", "upper"))))
    return tuple(found)


def shifts_row(row: Row, task: Task, steps: str, follows: str, how: str) -> None:
    """Random linear classifiers with a small lead, so that the answer changes in Γ."""
    g = torch.Generator().manual_seed(task.seed + 4)
    for turn, (kind, x) in cases(g, task):
        if row.done(task):
            return
        if x.numel() > 150:
            continue
        x = x.float().to(task.device)
        weight = torch.randn(6, x.numel(), generator=g).to(x)
        bias = torch.tensor([0.3 * x.numel() ** 0.5] + [0.0] * 5).to(x)

        def classifier(
            z: torch.Tensor, x: torch.Tensor = x, weight: torch.Tensor = weight, bias: torch.Tensor = bias
        ) -> torch.Tensor:
            return (z - x).flatten(1) @ weight.T + bias

        step = 1 if how == "8-bit" else 2 ** int(torch.randint(4, 7, (), generator=g))
        f = Plain(classifier) if step == 1 else Levels(classifier, step)
        threat = Threat.of(steps, float(1 + turn % 3), quantized=how != "does not")
        if follows:
            own = BOXES[follows][turn % len(BOXES[follows])].scaled(0.2)
            t = transforms.product(threat.transform, transforms.get(follows))
            box = Box((*threat.box.lower, *own.lower), (*threat.box.upper, *own.upper))
            threat = Threat(t, box, quantized=threat.quantized)
        certificate = methods.certify(f, x, threat, method="exact", time_limit=20.0)
        again = certificates.read(certificate.to_dict())
        row.check(torch.tensor([again == certificate]), f"turn {turn}: a record read back is the same")
        if (reach := certificate.reach) is None:
            continue
        first = threat.transform.parts[0]
        assert isinstance(first, Steps)
        shifts = first.points(Box(reach.lower[:2], reach.upper[:2]))
        shifts = shifts[[first.holds(k, Box(reach.lower[:2], reach.upper[:2])) for k in shifts.tolist()]]
        gamma = reach.uniform(max(1, 4000 // len(shifts)) * len(shifts), g)
        gamma[:, :2] = shifts.repeat(len(gamma) // len(shifts), 1)
        if follows:
            at = torch.rand(len(gamma), generator=g)
            gamma[at < 0.1, 2], gamma[at > 0.9, 2] = reach.lower[2], reach.upper[2]
        if "exactly" in str(certificate):  # about exact arithmetic: not at the very roots
            gamma = gamma[(gamma - torch.tensor(reach.upper)).abs().amin(1) > 1e-9]
        what = f"turn {turn}, {kind} {list(x.shape)}, {threat.box}, step {step}: {certificate}"
        for part in gamma.to(x.device).split(max(1, WORK // x.numel())):
            handed = threat.attacked(x.double(), part).float()
            row.check(f(handed).argmax(1) == certificate.label, what)


def attacked_row(row: Row, task: Task, name: str) -> None:
    """Every attack, gradients over all parameters among them, against covers by margins of linear classifiers with a
    small lead: in the certified range none changes the answer.
    """
    g = torch.Generator().manual_seed(task.seed + 6)
    for turn, (kind, x) in cases(g, task):
        if row.done(task):
            return
        if x.numel() > 150 or too_small(x, name):
            continue
        x, box = x.float().to(task.device), BOXES[name][turn % len(BOXES[name])]
        threat = Threat(transforms.get(name), box, quantized=turn % 2 == 1, l2=0.05 * (turn % 3 == 2))
        weight = torch.randn(5, x.numel(), generator=g).to(x)
        steep = float(torch.linalg.matrix_norm(weight.double(), 2)) * (1 + 1e-6)
        bias = torch.tensor([(1.0, 3.0, 9.0)[turn % 3] * steep**0.5] + [0.0] * 4).to(x)

        def classifier(
            z: torch.Tensor, x: torch.Tensor = x, weight: torch.Tensor = weight, bias: torch.Tensor = bias
        ) -> torch.Tensor:
            return (z - x).flatten(1) @ weight.T + bias

        f = Plain(classifier, lipschitz=steep)
        made = methods.certify(f, x, threat, method="cover", max_windows=2000)
        if (reach := made.reach) is None:
            continue
        within = Threat(threat.transform, reach, quantized=threat.quantized, l2=threat.l2)
        for how, attack in attacks.ATTACKS.items():
            effort = {"grid": max(3, round(400 ** (1 / reach.dim)))}.get(how, 20 if how == "gradient" else 400)
            found = attack(f, x, made.label, within, effort, g)
            row.check(torch.tensor([not found.succeeded] * found.tried), f"turn {turn}, {kind}, {how}: {made}")


def behind_row(row: Row, task: Task, transform: str, front: Front, l2: float) -> None:
    """Random γ in every window against its E, behind the front; the attacker hands over float32 or float64."""
    g = torch.Generator().manual_seed(task.seed + 5)
    for turn, (kind, x) in cases(g, task):
        if row.done(task):
            return
        box = BOXES[transform][turn % len(BOXES[transform])]
        threat = Threat(transforms.get(transform), box, quantized=turn % 3 == 2, l2=l2)
        windows = cover_behind(x, threat, front, target=0.3 * x.numel() ** 0.5, rounded=True, max_windows=1000)
        what = f"turn {turn}, {kind} {list(x.shape)}, Γ {box.lower} … {box.upper}, {front}"
        for j in torch.randint(len(windows), (12,), generator=g).tolist():
            z = front(pictures_behind(windows, x, threat, front, slice(j, j + 1))).double()
            share = torch.rand(max(1, min(400, WORK // x.numel())), box.dim, generator=g, dtype=torch.float64)
            share = torch.where(torch.rand(len(share), 1, generator=g) < 0.3, share.round(), share)
            gamma = windows.lower[j] + share * (windows.upper[j] - windows.lower[j])
            for given in (x, x.float()):
                handed = threat.attacked(given, gamma)
                away = handed.double() - handed.double().mean((1, 2, 3), keepdim=True) - z
                size = torch.linalg.vector_norm(away.flatten(1), dim=1).clamp_min(1e-12)[:, None, None, None]
                for push in (0.0, 1.0, -1.0):
                    sent = (handed + (1 - 1e-6) * push * threat.l2 * (away / size).to(handed)).to(given)
                    true = torch.linalg.vector_norm((front(sent).double() - z).flatten(1), dim=1)
                    row.count(true, windows.E[j].expand(len(true)), f"{what}, {given.dtype}")


def rows() -> Iterator[tuple[str, Job]]:
    """Names and what to do."""
    for name, share in (COVERED | {n: s for n, s in BEHIND.items() if n not in COVERED}).items():
        BOXES.setdefault(name, boxes(name, share))
    for (name, _), quantized in itertools.product(COVERED.items(), (True, False)):
        for l2 in (0.0, 0.1):
            job = partial(cover_row, transform=name, att="bilinear", quantized=quantized, l2=l2)
            yield f"cover: {name}{' + ℓ2' if l2 else ''}, {'8-bit' if quantized else 'float'}", job
    for name, front, l2 in itertools.product(BEHIND, ("centred", "standard"), (0.0, 0.1)):
        yield (
            f"behind: {front}, {name}{' + ℓ2' if l2 else ''}",
            partial(behind_row, transform=name, front=Front(front), l2=l2),
        )
    for name in COVERED:
        yield f"attacks: {name}", partial(attacked_row, name=name)
    hows = {"8-bit": "", "rounds": ", levels", "does not": ", levels, unrounded"}
    for how, steps, follows in itertools.product(hows, ("shifts", "reflected-shifts"), ("", *SHIFTED)):
        job = partial(shifts_row, steps=steps, follows=follows, how=how)
        yield f"certificates: {steps}{f' then {follows}' if follows else ''}{hows[how]}", job
