"""Volume changes of spoken words: DistSPT with E for each sound or for a share, and IndivSPT for attacked sounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, final

import torch

from warpcert import methods, transforms
from warpcert.attacks import worst_of_k
from warpcert.classifier.defence import Defence
from warpcert.classifier.votes.voting import Draws, votes
from warpcert.errors.calibration import Calibrating
from warpcert.errors.proved import Curve
from warpcert.learn.data import Dataset
from warpcert.learn.views import delayed
from warpcert.originals.sound import VolumeInverse, clipped
from warpcert.paper.calibrating import calibrated, plan
from warpcert.paper.cells import DECIBELS, accuracy_cells
from warpcert.paper.certifying import Certified, Certifying
from warpcert.paper.classifiers import plain, smoothed
from warpcert.paper.desk import Desk
from warpcert.paper.experiment import Experiment
from warpcert.paper.journal import measured
from warpcert.paper.row import NONE, Measured, Size, Work
from warpcert.report.table import Cell
from warpcert.runs.job import seed_for
from warpcert.threat import Threat

__all__ = ["AUDIO"]

MODEL = "speech-volume"
LEVELS = DECIBELS[1:]
# Rounding is nearly all of the error. Half a step everywhere is at most √3 times the norm of true roundings, and the
# first pass finds it; cells small enough to see single roundings cost a hundred times as much.
SUP = Curve(tightness=1.8)


@final
@dataclass(frozen=True)
class VolumeEach(Measured):
    """DistSPT^x: an E proved for each sound, and all levels from one run."""

    name: str
    case: str
    windows: int = 6
    full: Size = Size(200, n=1200, betas=300)
    quick: Size = Size(10, n=1200, betas=60)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, net, size = desk.dataset("speech"), desk.classifier(MODEL), self.size(desk)
        method = methods.chosen(net, "dist-x", n=size.n, windows=self.windows, betas=size.betas, bound=SUP)
        certifying = Certifying(net, Threat.of("volume", LEVELS[-1]), method, dataset, size.images)
        rows = yield from certifying.run(folder / "run", self.config(desk))
        return _told(rows, dataset)


def _told(rows: list[Certified], dataset: Dataset) -> dict[str, Cell]:
    """Of a run over all levels."""
    cells = accuracy_cells(rows)
    loud = sum(_clips(dataset, index, LEVELS[-1]) for index in range(len(rows)))
    kept: dict[str, Cell] = {k: v for k, v in cells.items() if k in ("E", "ρ") or k.endswith("dB")}
    kept |= {"sounds": len(rows), "clipped at ±4 dB": f"{loud} of {len(rows)}"}
    return kept | {"seconds per sound": cells["seconds per image"]}


@final
@dataclass(frozen=True)
class VolumesUnseen(Measured):
    """IndivSPT at Γ = ±level dB, every level a run of its own: attacked by the worst of 100, the original unseen."""

    name: str
    case: str
    windows: int = 4
    full: Size = Size(100, n=1200, betas=500)
    quick: Size = Size(6, n=1000, betas=60)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, net, size = desk.dataset("speech"), desk.classifier(MODEL), self.size(desk)
        inverse: dict[str, Any] = {"inverse": VolumeInverse()}
        method = methods.chosen(net, "indiv", n=size.n, windows=self.windows, betas=size.betas, **inverse)
        rows: list[Certified] = []
        cells: dict[str, Cell] = {}
        for level in LEVELS:
            threat = Threat.of("volume", level)
            certifying = Certifying(net, threat, method, dataset, size.images)
            rows = yield from certifying.run(folder / f"{level}dB", self.config(desk), f"±{level} dB")
            good = [r.certificate.label == r.label and r.certificate.covers(threat.box) for r in rows]
            cells[f"±{level} dB"] = fmean(good)
        loud = sum(_clips(dataset, index, LEVELS[-1]) for index in range(len(rows)))
        cells |= {"sounds": len(rows), "clipped at ±4 dB": f"{loud} of {len(rows)}"}
        errors = [r.certificate.error.E for r in rows if r.certificate.error.E > 0]
        cells["ρ"] = rows[0].certificate.error.rho
        return cells | {
            "E": median(errors) if errors else None,
            "seconds per sound": fmean(r.certificate.seconds for r in rows),
        }


def _clips(dataset: Dataset, index: int, level: float) -> bool:
    """Whether the loudest that an attacker can make of it reaches full scale."""
    threat = Threat.of("volume", level)
    return bool(clipped(threat.attacked(dataset.image(index), threat.box.grid(2)), threat).any())


@final
@dataclass(frozen=True)
class VolumeShare(Measured):
    """DistSPT^D with a fixed E, as in the paper: the share q_E of sounds that keep it, and what it certifies."""

    name: str
    case: str
    gamma: float
    E: float
    full: Size = Size(200, n=1200, test=400, rho=0.05)
    quick: Size = Size(6, n=500, test=20, rho=0.1)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, net, size = desk.dataset("speech"), desk.classifier(MODEL), self.size(desk)
        threat, config = Threat.of("volume", self.gamma), self.config(desk)
        other = desk.dataset("speech", "train").part(0, size.test)
        work = Calibrating(plan(SUP, size, self.E), net.defence(threat.transform), threat)
        made = yield from calibrated(desk, folder, config | {"classifier": net.fingerprint}, other, work, size)
        method = methods.chosen(net, "dist-d", n=size.n, calibration=made)
        rows = yield from Certifying(net, threat, method, dataset, size.images).run(folder / "run", config)
        cells = accuracy_cells(rows)
        kept = {k: v for k, v in cells.items() if k in ("E", "ρ") or k.endswith("dB")}
        found: dict[str, Cell] = {"sounds": len(rows), "q_E": made.q_E}
        return kept | found | {"seconds per sound": cells["seconds per image"]}


@final
@dataclass(frozen=True)
class VolumeCover(Measured):
    """Windows of γ, each decided at one sound, by the network smoothed by pixel noise alone. Nothing is undone, so
    clipping does no harm: what is clipped in all of a window does not move there.
    """

    name: str
    case: str
    target: float = 1.0  # E of a window, in units of σ_δ
    full: Size = Size(100, n=2000)
    quick: Size = NONE

    def work(self, desk: Desk, folder: Path) -> Work:
        size, dataset, found = self.size(desk), desk.dataset("speech"), desk.classifier(MODEL)
        net, threat = smoothed(found, found.noise, {}), Threat.of("volume", LEVELS[-1])
        method = methods.chosen(net, "cover", n=size.n, target=self.target)
        rows = yield from Certifying(net, threat, method, dataset, size.images).run(folder / "run", self.config(desk))
        return {name: cell for name, cell in _told(rows, dataset).items() if name != "ρ"}


@final
@dataclass(frozen=True)
class Shifted(Measured):
    """Every shift in time by whole samples, up to `SHIFTS` of them, silence in their place: a finite set, and the
    network without noise is asked about all of it. Proved where the right answer always leads by more than the slack.
    """

    name: str
    case: str
    full: Size = Size(200)
    quick: Size = Size(3)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, b, size = desk.dataset("speech"), plain(desk.classifier(MODEL)), self.size(desk)

        @torch.no_grad()
        def one(index: int) -> int:
            """The most samples that it can be shifted by, −1 if it is not recognised as it is."""
            x, label = desk.image(dataset, index), int(dataset.labels[index])
            for first in range(0, SHIFTS[-1] + 1, BATCH):
                by = torch.arange(first, min(first + BATCH, SHIFTS[-1] + 1), device=x.device)
                both = torch.cat((by, -by))
                logits = b.logits(delayed(x.expand(len(both), -1, -1), both))
                others = logits.clone()
                others[:, label] = -torch.inf
                lead = logits[:, label] - others.amax(1)
                good = (lead > b.slack * logits.abs().amax(1).clamp_min(1)).reshape(2, -1).all(0)
                if not bool(good.all()):
                    return first + int((~good).nonzero()[0]) - 1
            return SHIFTS[-1]

        keys = range(min(size.images, len(dataset)))
        values = yield from measured(folder, self.config(desk, classifier=b.fingerprint), keys, one)
        cells: dict[str, Cell] = {shift_column(n): fmean(v >= n for v in values) for n in SHIFTS}
        return cells | {"sounds": len(values)}


SHIFTS, BATCH = (400, 1600), 200  # samples, at 16 000 a second; and shifts to either side at a time


def shift_column(samples: int) -> str:
    return f"shifts ±{samples / 16:g} ms"


@final
@dataclass(frozen=True)
class UnseenErrors(Measured):
    """E of IndivSPT alone, of attacked sounds: the share of them within each of `limits`."""

    name: str
    case: str
    gamma: float
    sigma: float
    limits: tuple[float, ...]
    full: Size = Size(200, betas=500)
    quick: Size = Size(20, betas=60)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, net, size = desk.dataset("speech"), desk.classifier(MODEL), self.size(desk)
        threat, b, inverse = Threat.of("volume", self.gamma), plain(net), VolumeInverse()
        defence = Defence.surface("volume", self.sigma, noise=net.noise, preprocess=net.preprocess)

        def one(index: int) -> float:
            x, draw = desk.image(dataset, index), torch.Generator().manual_seed(seed_for(4, index))
            attacked = worst_of_k(b, x, int(dataset.labels[index]), threat, k=100, generator=draw).x_attacked
            beta = defence.draw_beta(size.betas, draw)
            found = inverse.survivors(attacked, threat)
            return float(inverse.errors(found, defence, beta).max())

        keys = range(min(size.images, len(dataset)))
        values = yield from measured(folder, self.config(desk, classifier=b.fingerprint), keys, one)
        shares: dict[str, Cell] = {f"E ≤ {E:g}": fmean(v <= E for v in values) for E in self.limits}
        return {"sounds": len(values), "E": median(values), **shares}


@final
@dataclass(frozen=True)
class Unattacked(Measured):
    """What the network answers without any attack, with its noise averaged out."""

    name: str
    case: str
    full: Size = Size(200, n=50)
    quick: Size = Size(40, n=20)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, net, size = desk.dataset("speech"), desk.classifier(MODEL), self.size(desk)
        defence = net.defence(transforms.get("volume"))

        def one(index: int) -> bool:
            draw = torch.Generator(device=desk.device).manual_seed(index)
            counts = votes(net.logits, defence, desk.image(dataset, index), size.n, Draws(draw))
            return int(counts.argmax()) == int(dataset.labels[index])

        keys = range(min(size.images, len(dataset)))
        values = yield from measured(folder, self.config(desk, classifier=net.fingerprint), keys, one)
        return {"sounds": len(values), "accuracy of g": fmean(values)}


AUDIO = Experiment(
    name="audio",
    title="Volume changes of spoken words",
    what="Ten spoken words: certified accuracy under every change of volume up to 1, 2, 3, 4 dB, 16-bit rounding and "
    "clipping included.",
    minutes=0.9,
    columns=("sounds", "accuracy of g", "E", "ρ", "q_E", *(f"±{v} dB" for v in DECIBELS), "E ≤ 0.0055", "E ≤ 0.005",
             "clipped at ±4 dB", *map(shift_column, SHIFTS), "seconds per sound"),
    rows=(
        Unattacked("accuracy", "smoothed classifier, no attack"),
        VolumeEach("dist-x", "DistSPT^x, E of each sound, Γ = ±4 dB"),
        VolumeCover("cover", "cover, Γ = ±4 dB: no random change of volume"),
        VolumeShare("dist-d", "DistSPT^D, Γ = ±3 dB, fixed E", 3, 0.0032),
        VolumesUnseen("indiv", "IndivSPT, attacked sounds, originals unseen"),
        Shifted("shifts", "every shift in time by whole samples, without noise: proved"),
        UnseenErrors("indiv-error", "IndivSPT's E alone, σ_γ = 0.85 dB, Γ = ±1.05 dB", 1.05, 0.85, (0.0055, 0.005)),
    ),
    notes=(
        "The network is an MFCC front end of our own (torch, no audio library) and a small ResNet, taken as one "
        "classifier; noise is added to the sound, before the front end. σ_γ = 2 dB, σ_δ = 0.006.",
        "The attacker hands over 16-bit samples, clipped at full scale. A clipped sample does not say how loud the "
        "original was. The classifier begins with a limiter at a quarter of full scale, after the random change of "
        "volume: behind it nobody hears what was clipped, and loud sounds are certified as quiet ones are. The paper "
        "does not say what it does about clipping.",
        "cover smooths the same network by noise alone, and compares what the attacker can hand over with other such "
        "sounds, clipped as they are.",
        "Shifts in time by whole samples are a finite set: 801 sounds within ±25 ms, 3201 within ±100 ms. The network "
        "without noise is asked about all of them, and its answer must lead by more than float32 can change.",
        "r = 1 means ±1 dB. The paper prints ±1.12 dB beside it: 1.12 = 10^(1/20) is the factor by which the amplitude "
        "grows, no number of decibels; likewise 1.26, 1.41 and 1.58 at r = 2, 3 and 4.",
        "Certified accuracy at ±v dB: the part of Γ up to there (IndivSPT: Γ = ±v dB, a run of its own).",
    ),
)  # fmt: skip
