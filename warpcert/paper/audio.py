"""Volume changes of spoken words: DistSPT with E for each sound or for a share, and IndivSPT for attacked sounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, final

import torch
from torch import Tensor

from warpcert import methods
from warpcert.certificates import Certificate
from warpcert.classifier.voting import votes
from warpcert.errors.proved import Curve
from warpcert.methods.run import Sampling
from warpcert.originals.sound import VolumeInverse, clipped
from warpcert.paper.attacked import attacked_images
from warpcert.paper.calibrating import calibrated
from warpcert.paper.desk import Desk
from warpcert.paper.distribution import accuracy_cells
from warpcert.paper.experiment import Experiment, Row, Size, Work, certified, measured
from warpcert.paper.table import Cell
from warpcert.threat import Threat

__all__ = ["AUDIO"]

LEVELS = (1, 2, 3, 4)  # dB
# Rounding is nearly all of the error. Half a step everywhere is at most √3 times the norm of true roundings, and the
# first pass finds it; cells small enough to see single roundings cost a hundred times as much.
SUP = Curve(tightness=1.8)


@final
@dataclass(frozen=True)
class Volumes(Row):
    """Certified accuracy at Γ = ±level dB, every level a run of its own with its own E.

    method  dist-x (E of each sound, proved) or indiv (attacked by the worst of 100, the original unseen)
    """

    name: str
    case: str
    method: str
    windows: int = 2
    full: Size = Size(200, n=10_000, betas=500)
    quick: Size = Size(6, n=2000, betas=60)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, model, size = desk.dataset("speech"), desk.model("speech-volume"), self.size(desk)
        config, indices = self.config(desk, model=model.fingerprint), range(min(size.images, len(dataset)))
        cells: dict[str, Cell] = {"sounds": len(indices)}
        clips: list[int] = []
        seconds, errors = [], []
        for level in LEVELS:
            threat = Threat.of("volume", level)
            attacked = attacked_images(desk, dataset, model, threat, model.defence.preprocess)
            image = attacked if self.method == "indiv" else lambda i: desk.image(dataset, i)

            def one(x: Tensor, seed: int, threat: Threat = threat) -> Certificate:
                sampling, name = Sampling(n=size.n, seed=seed, windows=self.windows), model.fingerprint
                f, defence, betas = model.classifier, model.defence, size.betas
                if self.method == "indiv":
                    return methods.indiv_spt(
                        f, x, defence, threat, sampling, inverse=VolumeInverse(), betas=betas, model=name
                    )
                return methods.dist_spt_x(f, x, defence, threat, sampling, sup=SUP, betas=betas, model=name)

            more: dict[str, Any] = {"method": self.method, "threat": threat.to_dict()}
            rows = yield from certified(
                folder / f"{level}dB", config | more, dataset, indices, one, image, what=f"±{level} dB"
            )
            good = [r.certificate.label == r.label and r.certificate.covers(threat.box) for r in rows]
            cells[f"±{level} dB"] = fmean(good)
            seconds += [r.certificate.seconds for r in rows]
            errors += [r.certificate.error.E for r in rows if r.certificate.error.E > 0]
            cells["ρ"] = rows[0].certificate.error.rho
            if level == LEVELS[-1]:
                loudest = (threat.attacked(desk.image(dataset, i), _ends(threat).to(desk.device)) for i in indices)
                seen = [image(i) for i in indices] if self.method == "indiv" else [x.flatten(0, 1) for x in loudest]
                clips = [int(clipped(x, threat).sum()) for x in seen]
        cells["clipped at ±4 dB"] = f"{sum(c > 0 for c in clips)} of {len(clips)}"
        return cells | {"E": median(errors), "seconds per sound": fmean(seconds)}


def _ends(threat: Threat) -> Tensor:
    return threat.box.grid(2)


@final
@dataclass(frozen=True)
class VolumeShare(Row):
    """DistSPT^D with a fixed E, as in the paper: the share q_E of sounds that keep it, and what it certifies."""

    name: str
    case: str
    gamma: float
    E: float
    full: Size = Size(200, n=10_000, test=1000, rho=0.05)
    quick: Size = Size(6, n=500, test=25, rho=0.1)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, model, size = desk.dataset("speech"), desk.model("speech-volume"), self.size(desk)
        defence, threat = model.defence, Threat.of("volume", self.gamma)
        config = self.config(desk, model=model.fingerprint)
        other = desk.dataset("speech", "train").part(0, size.test)
        made = yield from calibrated(desk, folder, config, other, defence, threat, size, SUP, self.E)

        def one(x: Tensor, seed: int) -> Certificate:
            sampling = Sampling(n=size.n, seed=seed)
            return methods.dist_spt_d(model.classifier, x, made, sampling, model=model.fingerprint)

        more: dict[str, Any] = {"method": "dist-d", "threat": threat.to_dict(), "calibration": made.digest}
        indices = range(min(size.images, len(dataset)))
        rows = yield from certified(
            folder / "run", config | more, dataset, indices, one, lambda i: desk.image(dataset, i)
        )
        cells = accuracy_cells(rows)
        kept = {k: v for k, v in cells.items() if k in ("E", "ρ") or k.endswith("dB")}
        found: dict[str, Cell] = {"sounds": len(rows), "q_E": made.q_E, "remark": CLIPPED_SHARE}
        return kept | found | {"seconds per sound": cells["seconds per image"]}


@final
@dataclass(frozen=True)
class Plain(Row):
    """What the network answers without any attack, with its noise averaged out."""

    name: str
    case: str
    full: Size = Size(200, n=1000)
    quick: Size = Size(40, n=20)

    def work(self, desk: Desk, folder: Path) -> Work:
        dataset, model, size = desk.dataset("speech"), desk.model("speech-volume"), self.size(desk)

        def one(index: int) -> bool:
            draw = torch.Generator(device=desk.device).manual_seed(index)
            counts = votes(model.classifier, model.defence, desk.image(dataset, index), size.n, draw)
            return int(counts.argmax()) == int(dataset.labels[index])

        keys = range(min(size.images, len(dataset)))
        values = yield from measured(folder, self.config(desk, model=model.fingerprint), keys, one)
        return {"sounds": len(values), "accuracy of g": fmean(values)}


CLIPPED_SHARE = "Sounds that can be clipped within Γ are not in the share: their error is far above E."

AUDIO = Experiment(
    name="audio",
    title="Volume changes of spoken words",
    what="Ten spoken words: certified accuracy under every change of volume up to 1, 2, 3, 4 dB, 16-bit rounding and "
    "clipping included.",
    minutes=1.2,
    columns=("sounds", "accuracy of g", "E", "ρ", "q_E", *(f"±{v} dB" for v in (0, *LEVELS)), "clipped at ±4 dB",
             "seconds per sound"),
    rows=(
        Plain("accuracy", "smoothed classifier, no attack"),
        Volumes("dist-x", "DistSPT^x, E of each sound", "dist-x"),
        VolumeShare("dist-d", "DistSPT^D, Γ = ±3 dB, fixed E", 3, 0.0065),
        Volumes("indiv", "IndivSPT, attacked sounds, originals unseen", "indiv"),
    ),
    notes=(
        "The network is an MFCC front end of our own (torch, no audio library) and a small ResNet, taken as one "
        "classifier; noise is added to the sound, before the front end. σ_γ = 3 dB, σ_δ = 0.006.",
        "The attacker hands over 16-bit samples, clipped at full scale. A clipped sample does not say how loud the "
        "original was: the inverse is unbounded there, but for the range of legal sounds, and attacked sounds with "
        "clipped samples are not certified.",
        "Certified accuracy at ±v dB: Γ = ±v dB, a run of its own (DistSPT^D: one run at ±3 dB).",
    ),
)  # fmt: skip
