"""Attempts to break what is proved of changes of volume, with and without a limiter.

Zero tolerance, in float64 and in float32:

    known sounds   ‖P T_β q(T_γ x) − P T_{β+γ} x‖ ≤ value(β) of `Curve`
    unseen sounds  the same ≤ U(β) of a cell that holds γ, of which the inverse was made at x' alone
    sound covers   ‖P x' − P z_j‖ ≤ E_j for γ in window j

Many samples reach full scale, or would if they were a step louder, and β goes down to where a limiter no longer hides
what was clipped.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.soundness.bounds import composition_errors, tiles, window_errors
from benchmarks.soundness.breaking import MOST, WORK, Hunt, Job, Row, Task
from warpcert.classifier.defence import Defence
from warpcert.errors.curve.bound import Curve
from warpcert.originals.sound import VolumeInverse
from warpcert.threat import Threat
from warpcert.transforms import Preprocess, Volume
from warpcert.windows.cover import cover_windows

__all__ = ["rows"]

BETAS = 24
LIMITS = (None, 0.25, 0.7, 1.5)
RANGES = ((-4, 4), (-1, 1), (0, 6), (-8, 2), (0, 0), (-0.001, 0.002))  # dB
KINDS = 6  # of sounds


def sounds(g: torch.Generator, task: Task, threat: Threat) -> Iterator[tuple[int, Tensor]]:
    """Numbered sounds [1,L] of 16 bits, float64."""
    t, gain = threat.transform, threat.box.upper[0]
    for number in itertools.count(task.first):
        length = (1, 7, 64, 300)[number // KINDS % 4]
        noise = torch.randn(1, length, generator=g, dtype=torch.float64)
        at_the_edge = t.value(torch.tensor(-gain), torch.tensor(t.high)) + t.step * (0.7 * noise).round()
        spikes = torch.where(noise > 1, t.high, 0.01 * noise)
        kinds = 0.02 * noise, 0.5 * noise, 3 * noise, at_the_edge * noise.sign(), spikes, t.step * noise.sign()
        yield number, t.quantize(kinds[number % KINDS])


def setting(number: int, quantized: bool, limit: float | None) -> tuple[Threat, Defence]:
    low, high = RANGES[(number + number // KINDS) % len(RANGES)]
    threat = Threat(Volume(), Volume().box(low, high), quantized=quantized)
    return threat, Defence.surface("volume", (3, 0.5)[number % 2], noise=0.01, preprocess=Preprocess(limit=limit))


def quiet(beta: Tensor, limit: float | None) -> Tensor:
    """With a few that are so low that e^β is about the limit, or below it."""
    near = torch.tensor([0.0, 1e-9, -1e-9, 1e-4, -1e-4, 0.1, -0.1, -0.7], dtype=beta.dtype)
    beta[: len(near), 0] = near + (torch.tensor(limit, dtype=beta.dtype).log() if limit else -1.0)
    return beta


def known_row(row: Row, task: Task, quantized: bool, limit: float | None) -> None:
    g = torch.Generator().manual_seed(task.seed)
    for number, x in sounds(g, task, setting(task.first, quantized, limit)[0]):
        threat, defence = setting(number, quantized, limit)
        beta = quiet(defence.draw_beta(BETAS, g), limit)
        found = Curve((1.2, 1.8)[number % 2])(x, defence, threat, beta)
        at, gamma = _pairs(task, threat, x, g)
        ends = torch.tensor(threat.box.upper + threat.box.lower, dtype=torch.float64)[:, None]
        at = torch.cat((at, torch.arange(BETAS).repeat(2)))
        gamma = torch.cat((gamma, ends.repeat_interleave(BETAS, 0)))
        low, high = (torch.tensor([e] * BETAS, dtype=torch.float64) for e in (threat.box.lower, threat.box.upper))
        what = f"sound {number}, Γ {threat.box.lower} … {threat.box.upper}, limit {limit}"
        tests = [(str(z.dtype), partial(composition_errors, z, defence, threat, beta)) for z in (x, x.float())]
        Hunt(row, what, found.values, low, high, x.numel(), g).attack(tests, at, gamma)
        row.check(found.lower <= found.values, f"{what}: lower ≤ value")
        if row.done(task):
            return


def unseen_row(row: Row, task: Task, quantized: bool, limit: float | None) -> None:
    g, inverse = torch.Generator().manual_seed(task.seed + 1), VolumeInverse(5)
    for number, x in sounds(g, task, setting(task.first, quantized, limit)[0]):
        threat, defence = setting(number, quantized, limit)
        beta = quiet(defence.draw_beta(BETAS, g), limit)
        gamma = torch.cat((threat.box.uniform(30, g), threat.box.grid(2)))
        for each, z in itertools.product(gamma[:, None], (x, x.float())):
            attacked = threat.attacked(z, each)[0]
            found = inverse.survivors(attacked, threat)
            holds = (found.low <= each).all(1) & (each <= found.high).all(1)
            inside = ((found.lower <= x) & (x <= found.upper)).flatten(1).all(1)
            what = f"sound {number}, γ {float(each):.6g}, limit {limit}, {z.dtype}"
            row.check((holds & inside).any()[None], f"{what}: some cell holds γ and the original")
            moved = defence.view(attacked, beta) - defence.view(z, beta + each)
            true = moved.double().flatten(1).norm(dim=1)
            for U in inverse.errors(found, defence, beta)[:, holds].unbind(1):
                row.count(true, U, what)
        if row.done(task):
            return


def cover_row(row: Row, task: Task, quantized: bool, limit: float | None) -> None:
    g = torch.Generator().manual_seed(task.seed + 2)
    for number, x in sounds(g, task, setting(task.first, quantized, limit)[0]):
        threat, defence = setting(number, quantized, limit)
        p, target = defence.preprocess, (0.005, 0.05, 0.5)[number % 3]
        windows = cover_windows(x, threat, p, target=target, rounded=number % 4 != 3, max_windows=4000)
        what = f"sound {number}, Γ {threat.box.lower} … {threat.box.upper}, limit {limit}"
        tiles(row, windows, threat.box, g, what)
        centers, (at, _) = windows.images(x, threat), _pairs(task, threat, x, g, len(windows))
        share = torch.rand(len(at), 1, generator=g, dtype=torch.float64)
        low, high = windows.lower, windows.upper
        gamma = torch.minimum(low[at] + share * (high - low)[at], high[at])
        tests = [(str(z.dtype), partial(window_errors, z, p, threat, centers)) for z in (x, x.float())]
        Hunt(row, what, windows.E, low, high, x.numel(), g).attack(tests, at, gamma)
        if row.done(task):
            return


def _pairs(task: Task, threat: Threat, x: Tensor, g: torch.Generator, most: int = BETAS) -> tuple[Tensor, Tensor]:
    """Numbers of bounds and γ at random."""
    count = min(MOST, max(1, WORK // x.numel()), task.pairs)
    return torch.randint(most, (count,), generator=g), threat.box.uniform(count, g)


def rows() -> Iterator[tuple[str, Job]]:
    """Names and what to do."""
    jobs = {"known sounds": known_row, "unseen sounds": unseen_row, "sound covers": cover_row}
    for (name, job), quantized, limit in itertools.product(jobs.items(), (True, False), LIMITS):
        attacker = "16-bit" if quantized else "float"
        yield f"{name}: volume, limit {limit}, {attacker} attacker", partial(job, quantized=quantized, limit=limit)
