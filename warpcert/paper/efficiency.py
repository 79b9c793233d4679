"""What certificates cost: bounds against intervals, joint against nested, sequential against fixed, levels, size."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from warpcert import methods
from warpcert import statistics as stats
from warpcert.classifier.defence import Defence
from warpcert.classifier.inner import GaussianInner
from warpcert.classifier.levels import Coarse
from warpcert.classifier.voting import add_noise, logits_of
from warpcert.errors.boxes import boxes_bound
from warpcert.errors.curve.bound import curve_bound
from warpcert.errors.sampled import Sampled
from warpcert.methods.run import Sampling
from warpcert.paper.desk import Desk, Missing
from warpcert.paper.experiment import Experiment, Row, Size, Work, measured
from warpcert.runs.runner import seed_for
from warpcert.statistics import radius
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = ["EFFICIENCY"]

P = Preprocess("circle", 1, 1.5, 7)


@final
@dataclass(frozen=True)
class Bounding(Row):
    """One bound of the error for an MNIST digit, or for a smooth random picture of another side."""

    name: str
    case: str
    bound: str  # curve or interval
    side: int = 28
    channels: int = 1
    gamma: float = 10
    interpolation: str = "bilinear"
    limit: float = 120
    quick_limit: float = 15
    quick_most: int = 40  # larger sides are left to the full run
    full: Size = Size(3, betas=10)
    quick: Size = Size(1, betas=3)

    def work(self, desk: Desk, folder: Path) -> Work:
        if desk.quick and self.side > self.quick_most:
            raise Missing("the full run: this side takes too long for a quick one")
        dataset, size = desk.dataset("mnist500"), self.size(desk)
        defence = Defence.surface("rotation", 30, noise=0.15, interpolation=self.interpolation, preprocess=P)
        threat = Threat.of("rotation", self.gamma)
        limit = self.quick_limit if desk.quick else self.limit

        def one(index: int) -> dict[str, Any]:
            own = desk.image(dataset, index) if self.side == 28 else self.picture(index).to(desk.device)
            beta = defence.draw_beta(size.betas, torch.Generator().manual_seed(seed_for(0, index)))
            beta, x = beta.to(desk.device), own.double()
            found = float(Sampled(gammas=65)(x, defence, threat, beta).values.max())
            start = time.perf_counter()
            if self.bound == "interval":
                boxes = boxes_bound(x, defence, threat, beta, tightness=1.05, time_limit=limit)
                upper, lower, work = boxes.upper, boxes.lower, boxes.boxes
            else:
                curve = curve_bound(x, defence, threat, beta, tightness=1.05, time_limit=limit)
                upper, lower, work = curve.upper, curve.lower, curve.cells
            seconds = time.perf_counter() - start
            return {"ratio": float(upper.max()) / max(found, float(lower.max())), "work": work, "seconds": seconds}

        values = yield from measured(folder, self.config(desk), range(size.images), one)
        return {
            "images": len(values),
            "seconds": fmean(v["seconds"] for v in values),
            "work": f"{fmean(v['work'] for v in values):.0f} {'boxes' if self.bound == 'interval' else 'nodes'}",
            "bound / largest found": max(v["ratio"] for v in values),
        }

    def picture(self, seed: int) -> Tensor:
        """A smooth picture: random values at a sixth of the resolution, enlarged, 8-bit."""
        small = max(3, self.side // 6)
        coarse = torch.rand(1, self.channels, small, small, generator=torch.Generator().manual_seed(seed))
        fine = interpolate(coarse, (self.side, self.side), mode="bilinear", align_corners=True)[0]
        return (fine * 255).round() / 255


@final
@dataclass(frozen=True)
class Voting(Row):
    """A certificate of DistSPT^x by joint sampling, or by the paper's two levels; E only sampled, the same for both."""

    name: str
    case: str
    nested: bool
    full: Size = Size(20, n=20_000, betas=200)
    quick: Size = Size(3, n=2000, betas=40)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, model, size = desk.dataset("mnist500"), desk.model("mnist-rotation"), self.size(desk)
        threat, defence = Threat.of("rotation", 30), model.defence
        inner = GaussianInner(model.classifier, defence.sigma_noise, cap=size.n) if self.nested else None

        def one(index: int) -> dict[str, Any]:
            n = max(40, size.n // 50) if self.nested else size.n
            sampling = Sampling(n=n, seed=seed_for(0, index), alpha=0.05)
            c = methods.dist_spt_x(
                model.classifier, desk.image(dataset, index), defence, threat, sampling, sup=Sampled(gammas=9),
                betas=size.betas, inner=inner,
            )  # fmt: skip
            r = None if c.abstains else c.whitened_radius(c.windows[0])
            r_surface = 0.0 if r is None else threat.transform.surface(r * defence.sigma_param[0])
            return {"passes": c.passes, "seconds": c.seconds - c.error.seconds, "r": r_surface}

        values = yield from measured(folder, self.config(desk, model=model.fingerprint), range(size.images), one)
        return {
            "images": len(values),
            "seconds": fmean(v["seconds"] for v in values),
            "work": f"{fmean(v['passes'] for v in values):.0f} passes",
            "median r": f"{median(v['r'] for v in values):.3g}°",
        }


@final
@dataclass(frozen=True)
class Testing(Row):
    """The inner test of the nested form, P_δ(label) > Φ(E/σ_δ) at α = 0.001: sequential, or with a fixed n."""

    name: str
    case: str
    sequential: bool
    ratio: float = 1.5  # E/σ_δ
    full: Size = Size(20, n=10_000, betas=20)
    quick: Size = Size(2, n=1000, betas=5)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, model, size = desk.dataset("mnist500"), desk.model("mnist-rotation"), self.size(desk)
        defence, alpha = model.defence, 0.001
        E = self.ratio * defence.sigma_noise
        inner = GaussianInner(model.classifier, defence.sigma_noise, alpha=alpha, cap=size.n)

        @torch.no_grad()
        def one(index: int) -> dict[str, Any]:
            draw = torch.Generator(device=desk.device).manual_seed(seed_for(0, index))
            views = defence.view(desk.image(dataset, index), defence.draw_beta(size.betas, draw))
            label, start = int(dataset.labels[index]), time.perf_counter()
            if self.sequential:
                accepted, passes = inner.accepts(views, label, E, draw)
                count = int(accepted.sum())
            else:
                p0, count, passes = radius.needed_probability(E, defence.sigma_noise) or 1.0, 0, size.n * len(views)
                for view in views:
                    copies = (view.expand(m, *view.shape) for m in _batches(size.n))
                    noisy = (add_noise(z, defence.sigma_noise, draw) for z in copies)
                    k = sum(int((logits_of(model.classifier, z).argmax(1) == label).sum()) for z in noisy)
                    count += stats.lower_bound(k, size.n, alpha) > p0
            return {"accepted": count / len(views), "passes": passes, "seconds": time.perf_counter() - start}

        values = yield from measured(folder, self.config(desk, model=model.fingerprint), range(size.images), one)
        return {
            "images": len(values),
            "seconds": fmean(v["seconds"] for v in values),
            "work": f"{fmean(v['passes'] for v in values):.0f} passes",
            "accepted": fmean(v["accepted"] for v in values),
        }


@final
@dataclass(frozen=True)
class Exhausting(Row):
    """Every image that the attacker can produce, as the plain classifier sees them: all levels, or coarse ones."""

    name: str
    case: str
    step: int
    gamma: float = 5
    full: Size = Size(20)
    quick: Size = Size(2)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, model, size = desk.dataset("mnist500"), desk.model("mnist-rotation-exact"), self.size(desk)
        threat = Threat.of("rotation", self.gamma, quantized=self.step == 1)
        classifier = Coarse(model.classifier, self.step) if self.step > 1 else model.classifier
        defence = replace(model.defence, preprocess=Preprocess())

        def one(index: int) -> dict[str, Any]:
            c = methods.exact(classifier, desk.image(dataset, index), defence, threat)
            return {"passes": c.passes, "seconds": c.seconds, "proved": c.covers(threat.box)}

        values = yield from measured(folder, self.config(desk, model=model.fingerprint), range(size.images), one)
        return {
            "images": len(values),
            "seconds": fmean(v["seconds"] for v in values),
            "work": f"{fmean(v['passes'] for v in values):.0f} passes",
            "accepted": fmean(v["proved"] for v in values),
        }


def _batches(n: int) -> list[int]:
    return [min(500, n - start) for start in range(0, n, 500)]


def _sides() -> tuple[Row, ...]:
    base = Bounding("side", "", "curve", channels=3, quick_limit=20, interpolation="bicubic", full=Size(1, betas=10))
    sides = (16, 24, 32, 40, 64, 128, 224)
    return tuple(
        replace(base, name=f"side-{s}", case=f"curve bound, {s}×{s} colour, ±10°", side=s, quick_limit=20)
        for s in sides
    )


EFFICIENCY = Experiment(
    name="efficiency",
    title="What certificates cost",
    what="Error bounds of ours against intervals, one level of sampling against two, tests that stop against tests of "
    "fixed size, all levels of a picture against coarse ones, and cost against image size.",
    minutes=0.7,
    columns=("images", "seconds", "work", "bound / largest found", "median r", "accepted"),
    rows=(
        Bounding("curve", "error of a digit, ±10°: curve bound", "curve"),
        Bounding("interval", "error of a digit, ±10°: interval boxes", "interval"),
        Voting("joint", "votes for ±30°: joint", nested=False),
        Voting("nested", "votes for ±30°: nested, sequential inner test", nested=True),
        Testing("sequential", "inner test, E/σ_δ = 1.5: sequential", sequential=True),
        Testing("fixed", "inner test, E/σ_δ = 1.5: fixed n", sequential=False),
        Exhausting("exact", "every rotation within ±5°, 8-bit attacker", step=1),
        Exhausting("exact-8", "the same, levels of 8, real-valued attacker", step=8),
        Exhausting("exact-32", "the same, levels of 32, real-valued attacker", step=32),
        *_sides(),
    ),
    notes=(
        "Seconds and work per image on this machine. Bounds stop at 1.05 times the largest error found, or at a time "
        "limit (quick: 15 to 20 s, full: 120 s), when they are sound but loose.",
        "Joint and nested share an E that is only sampled: the row compares votes, its radii are heuristic. The "
        "paper's nested sampler takes 200 · 10 000 passes per MNIST image (authors' commands).",
        "Exhaustive verification asks the plain classifier about every image that can arrive. One that rounds its "
        "input to few levels sees fewer of them, and does not notice whether the attacker rounds.",
    ),
)
