"""What a classifier sees of a picture, as vectors or pictures of small numbers, and where these can change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from warpcert.classifier.before.front import Front
from warpcert.classifier.before.mosaic import Mosaic, Mosaicked
from warpcert.classifier.before.rounding import level, shown
from warpcert.classifier.before.sees import Sees
from warpcert.classifier.before.stem import Stem, Stemmed
from warpcert.exhaustive.events.crossings import Crossings, find_behind, find_crossings, joined, levels
from warpcert.exhaustive.events.means import Means, of_means
from warpcert.exhaustive.events.paths import Moved, refusal
from warpcert.exhaustive.events.rounded import of_rounded
from warpcert.threat import Threat
from warpcert.transforms import Flow

__all__ = ["Pixels", "Sight", "Squares", "Terms", "find_means", "sight_of"]

MEMORY = 1 << 30  # bytes that the crossings of one slice may take, roughly; more on a GPU


@final
@dataclass(frozen=True)
class Terms:
    """On what terms the classifier f is asked.

    slack       an image counts as label if its logit leads by more than slack·max(1, largest |logit|), as another class
                if that leads by more; anything between leaves the answer open
    tolerance   how far each pixel of the attacker, before rounding, may be from the exact T_γ x
    step        w > 1: f rounds its input to levels, f(z) = f(Q_w(z)) for all real z, and the attacker may round or not
    front       f does this to pictures before it rounds them: `tolerance` is about pictures before the tones at the end
                of the threat that it does not see (see `relative`)
    sees        what the levels are of, if not of every pixel: f is given the picture that it makes of them
    batch       images per forward pass; by default as many as have 2²² values, and 2²⁸ on a GPU, at most 1024 and 8192
    limit       combinations of one clique, beyond which coinciding crossings are bundled (see `enumeration`), or else
                the walk ends: 1024 by default, and 32768 for an attacker who does not round and has no bundles
    time_limit  seconds after which the walk ends, with what is proved by then
    proved      the label is known to be kept on this multiple of Γ already: the walk goes on from there …
    until       … and ends here
    """

    slack: float = 1e-4
    tolerance: float = 1e-12
    step: int = 1
    front: str = "none"
    sees: Sees | None = None
    batch: int | None = None
    limit: int | None = None
    time_limit: float | None = None
    proved: float = 0.0
    until: float = 1.0

    def combinations(self, threat: Threat) -> int:
        return self.limit or (1024 if threat.quantized and not isinstance(self.sees, Stem) else 1 << 15)

    @property
    def late(self) -> str:
        """Why the walk ends when the time is over."""
        return f"undecided, as the time limit of {self.time_limit:g} s was reached"

    def size(self, x: Tensor) -> int:
        most, values = (8192, 1 << 28) if x.is_cuda else (1024, 1 << 22)
        return self.batch or min(most, 1 << max(3, (values // x.numel()).bit_length() - 1))


class Sight(ABC):
    """Of one picture x [C,H,W] under one threat."""

    def __init__(self, x: Tensor, threat: Threat) -> None:
        self.x, self.threat = x, threat
        self.full = torch.tensor(255.0, device=x.device)  # a tensor: a GPU multiplies by the reciprocal of a number

    @property
    def memory(self) -> int:
        """Bytes that the crossings of one slice may take."""
        return torch.cuda.get_device_properties(self.x.device).total_memory // 8 if self.x.is_cuda else MEMORY

    @property
    @abstractmethod
    def bytes(self) -> float:
        """That one crossing takes, roughly: with the image before every 128th of them, which is kept."""

    @abstractmethod
    def states(self, z: Tensor) -> Tensor:
        """What f sees of real pictures [B,C,H,W], uint8 [B,…]."""

    @abstractmethod
    def pictures(self, states: Tensor) -> Tensor:
        """What the network is asked about, float32 [B,C,H,W]."""

    @abstractmethod
    def crossings(self, near: tuple[float, float]) -> Crossings:
        """All events of the states for γ in [near]."""

    def values(self, z: Tensor) -> Tensor:
        """What is rounded of real pictures [B,C,H,W], times 255."""
        return 255 * z

    @abstractmethod
    def changes(self, values: Tensor) -> Tensor:
        """By how many levels all states change from each of these pictures to the next, roughly."""


@final
class Pixels(Sight):
    """Every pixel, rounded to 8 bits, or to levels `step` apart, perhaps behind a front."""

    def __init__(self, x: Tensor, threat: Threat, tolerance: float, step: int, front: Front) -> None:
        super().__init__(x, threat)
        self.tolerance, self.step, self.front = tolerance, step, front

    @property
    def bytes(self) -> float:
        return 500 + self.x.numel() / 64

    def states(self, z: Tensor) -> Tensor:
        if self.step > 1:
            return level(self.front.exactly(z), self.step)
        return (255 * self.threat.transform.quantize(z)).round().to(torch.uint8)

    def pictures(self, states: Tensor) -> Tensor:
        return shown(states, self.step).float().div_(self.full)

    def crossings(self, near: tuple[float, float]) -> Crossings:
        if self.front.name != "none":
            return find_behind(self.x, self.threat, self.front, self.tolerance, self.step, near)
        return find_crossings(self.x, self.threat, self.tolerance, self.step, near)

    def values(self, z: Tensor) -> Tensor:
        return 255 * self.front(z)

    def changes(self, values: Tensor) -> Tensor:
        return values.diff(dim=0).abs().flatten(1).sum(1) / self.step


@final
class Places(Sight):
    """What a mosaic reads, rounded to 8 bits, or to levels `step` apart."""

    def __init__(self, x: Tensor, threat: Threat, tolerance: float, step: int, mosaic: Mosaic) -> None:
        super().__init__(x, threat)
        self.tolerance, self.front = tolerance, Mosaicked(step, mosaic)
        self.read = mosaic.read(tuple(x.shape)).flatten().nonzero()[:, 0].to(x.device)

    @property
    def bytes(self) -> float:
        return 500 + self.read.numel() / 64

    def states(self, z: Tensor) -> Tensor:
        return self.front.levels(self.threat.transform.quantize(z) if self.front.step == 1 else z)

    def pictures(self, states: Tensor) -> Tensor:
        return self.front.picture(states, tuple(self.x.shape))

    def crossings(self, near: tuple[float, float]) -> Crossings:
        return find_crossings(self.x, self.threat, self.tolerance, self.front.step, near, self.read)

    def changes(self, values: Tensor) -> Tensor:
        return values.flatten(1)[:, self.read].diff(dim=0).abs().sum(1) / self.front.step


@final
class Squares(Sight):
    """The means of a stem, rounded to levels."""

    def __init__(self, x: Tensor, threat: Threat, tolerance: float, step: int, stem: Stem) -> None:
        super().__init__(x, threat)
        self.tolerance, self.front = tolerance, Stemmed(step, stem)
        self.planes = stem.planes(step, tuple(x.shape))
        self.rounded = stem.rounds or threat.quantized

    @property
    def bytes(self) -> float:
        return (20_000 if self.rounded else 2_000) + self.x.numel() / 512

    def states(self, z: Tensor) -> Tensor:
        return self.front.levels(self.threat.transform.quantize(z) if self.threat.quantized else z)

    def pictures(self, states: Tensor) -> Tensor:
        return self.front.picture(states, tuple(self.x.shape))

    def crossings(self, near: tuple[float, float]) -> Crossings:
        return find_means(self.x, self.threat, self.tolerance, self.front, near)

    def changes(self, values: Tensor) -> Tensor:
        jitter = 2.5 if self.rounded else 1.0  # how often a mean of rounded pixels crosses, for once without rounding
        each = [plane.means(values).diff(dim=0).abs().flatten(1).sum(1) / plane.step for plane in self.planes]
        return jitter * torch.stack(each).sum(0)


def find_means(
    x: Tensor, threat: Threat, tolerance: float, front: Stemmed, near: tuple[float, float] | None = None
) -> Crossings:
    """All events of the levels that `front` makes of x [C,H,W] for γ ∈ Γ, or in the interval [near].

    Of an 8-bit picture that came as floats, and of who starts from these, the same is true as in `find_crossings`.
    """
    if why := refusal(threat, front.step, behind=True):
        raise ValueError(why)
    if not 0 <= tolerance < 0.1 / 255:
        raise ValueError(f"tolerance must lie in [0, {0.1 / 255:.1e}), a tenth of a level; got {tolerance}")
    assert isinstance(threat.transform, Flow)
    gamma = near or (threat.box.lower[0], threat.box.upper[0])
    value, whole = levels(x)
    if whole and x.dtype != torch.uint8:
        tolerance += 1.01 * float((x.double() - value / 255).abs().max())
    found = list[Crossings]()
    for plane in front.stem.planes(front.step, tuple(x.shape)):
        means = Means(value, threat.transform, gamma, plane)
        if front.stem.rounds or threat.quantized:
            found.append(of_rounded(Moved(value, threat.transform, gamma, 1), means, gamma, tolerance))
        else:
            found.append(of_means(means, gamma, tolerance))
    return joined(found)


def sight_of(x: Tensor, threat: Threat, terms: Terms) -> Sight:
    tolerance, step, sees = terms.tolerance, terms.step, terms.sees
    if isinstance(sees, Mosaic):
        return Places(x, threat, tolerance, step, sees)
    if sees is not None:
        return Squares(x, threat, tolerance, step, sees)
    return Pixels(x, threat, tolerance, step, Front(terms.front))
