"""Cover: Γ as windows, each with an image that is provably within E of all that the attacker can hand over there.

The defender adds pixel noise δ ~ N(0, σ²) only: g(z) = argmax_c P(f(P z + δ) = c). If P(f(P z_j + δ) = c) > Φ(E_j/σ) at
the centre image z_j of every window, then g(x') = c for all γ ∈ Γ. `cover_windows` finds windows, z_j and E_j; it draws
nothing at random.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from warpcert.threat import Threat
from warpcert.transforms import Average, Flow, Gradation, Preprocess, Shift, Steps, Tone
from warpcert.windows.chain import is_chain, measured, room
from warpcert.windows.pieces import Scene, center_images

__all__ = ["Windows", "bounds", "cover_windows", "halved", "rounded_up", "unknown"]

PILOTS = 32  # places along Γ where the width that meets the target is sought
ROUNDS = 7  # of that search
AIM = 0.96  # E sought there, as a share of the target: neighbours vary by a few per cent
FLOOR = 1.2  # windows are not narrowed below this multiple of what a single γ costs
PLACES = 5  # decimals of the windows' ends inside Γ; E is rounded up to three digits: certificates stay small
HALVINGS = 8  # of a window that still misses the target


@final
@dataclass(frozen=True)
class Windows:
    """Closed boxes lower_j … upper_j [J,d] that tile Γ: ‖P x' − P z_j‖₂ ≤ E_j [J] for all x' from γ in box j, proved.

    It holds for attackers that compute in float32 or better, and for P in float32 or exact. All float64, on one device.

    rounded   which centre images z_j are meant: see `images`
    cells     windows that were evaluated on the way
    """

    lower: Tensor
    upper: Tensor
    E: Tensor
    rounded: bool
    cells: int
    seconds: float

    def __len__(self) -> int:
        return self.E.numel()

    @property
    def center(self) -> Tensor:
        """The middles of the windows [J,d]."""
        return (self.lower + self.upper) / 2

    def images(self, x: Tensor, threat: Threat, at: slice | Tensor = slice(None)) -> Tensor:
        """The centre images z_j of the windows `at` [n,C,H,W], float32 on x's device, for the x and threat covered.

        rounded, attacker with levels: per pixel, the middle between the smallest and the largest level at the corners
        of the window (with one parameter: the mean of the rounded images at its ends). Else T_γ x at its middle.
        """
        scene = Scene(x.double(), threat, Preprocess(), self.rounded)
        return center_images(scene, self.lower[at].to(x.device), self.upper[at].to(x.device)).float()


def cover_windows(
    x: Tensor,
    threat: Threat,
    preprocess: Preprocess,
    *,
    target: float,
    rounded: bool = True,
    max_windows: int = 20000,
) -> Windows:
    """`Windows` for x [C,H,W] in [0,1], or a sound [C,L] in [−1,1], with E_j ≤ target, few of them; E_j is proved even
    where it misses the target.

    It misses the target where `max_windows` is reached, where a single γ already costs about as much (an 8-bit attacker
    costs ‖P(q − id)‖ if centres are not rounded), or where many pixels change their level at one γ (brightness).
    """
    start = time.perf_counter()
    transform = threat.transform
    if x.dim() != transform.item_dims or float(x.min()) < transform.low or float(x.max()) > 1:
        legal = "[C,H,W] with values in [0,1]" if transform.item_dims == 3 else "[C,L] with values in [−1,1]"
        raise ValueError(f"x must be {legal}; got {list(x.shape)}")
    if not (math.isfinite(target) and target > 0):
        raise ValueError(f"target must be a finite E > 0; got {target}")
    preprocess = preprocess.linear
    if x.dim() == 2 and not preprocess.is_identity:
        raise ValueError("sound has no vignette and no blur; use a preprocess that does nothing, or a limiter")
    if why := unknown(threat):
        raise ValueError(why)
    if preprocess.halved:
        raise ValueError("a cover does not know classifiers that reduce pictures to half their size")
    if is_chain(threat):
        if threat.interpolation != "bilinear":
            raise ValueError(
                f"several parts that move pixels are covered if they interpolate bilinearly; got {threat.interpolation}"
            )
        rounded = False
    scene = Scene(x.double(), threat, preprocess, rounded)
    if transform.interpolates and scene.kernel.gradient is None:
        raise ValueError(f"a cover needs a continuous interpolation; {threat.interpolation} jumps")
    with torch.no_grad():
        search = _Search(scene, target, max_windows)
        if is_chain(threat):
            windows = _joined(x, threat, target, max_windows)
        else:
            windows = search.cells() if transform.dim > 1 else search.line()
        lower, upper, bound = search.halve(*windows)
    return Windows(lower, upper, rounded_up(bound), rounded, search.evaluated, time.perf_counter() - start)


@final
@dataclass
class _Search:
    scene: Scene
    target: float
    most: int
    evaluated: int = 0

    def evaluate(self, lower: Tensor, upper: Tensor) -> Tensor:
        self.evaluated += len(lower)
        return measured(self.scene, lower, upper)

    def check(self, least: int) -> None:
        if least > self.most:
            raise ValueError(
                f"this range needs at least {least} windows, whatever the target; got max_windows={self.most}"
            )

    def widths(self, center: Tensor, widest: Tensor, cell: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """About the widths [K,d] ≤ widest at which windows around `center` [K,d] meet the target. What is tried stays
        inside the cell, if one is given, however center and width are rounded.

        E grows like a power of the width, from ½ (levels crossed one by one) to 1 (many levels): the exponent 3/2 at
        least halves the logarithm of what is missing. In several dimensions the axes should contribute alike.
        """

        def around(half: Tensor) -> Tensor:
            low, high = center - half, center + half
            return self.evaluate(*(low, high) if cell is None else (low.maximum(cell[0]), high.minimum(cell[1])))

        floor = self.evaluate(center, center)
        self.target = max(self.target, FLOOR * float(floor.max()))
        width, dim = widest.clone(), widest.shape[1]
        for _ in range(ROUNDS):
            factor = (AIM * self.target / around(width / 2))[:, None] ** 1.5
            if dim > 1:
                halves = [torch.eye(dim).to(width)[a] * width / 2 for a in range(dim)]
                alone = torch.stack([around(h) - floor for h in halves], 1).clamp_min(1e-9)
                factor = factor * (alone.log().mean(1, keepdim=True).exp() / alone).sqrt().clamp(0.25, 4)
            width = torch.minimum(width * factor.clamp(1 / 64, 8), widest)
        return width

    def line(self) -> tuple[Tensor, Tensor]:
        """Γ ⊂ R as windows of about equal E: equal steps of ∫ dγ/width, with the widths found at the pilots."""
        first, last = self.scene.threat.box.lower[0], self.scene.threat.box.upper[0]
        widest = min(self.scene.widest, last - first)
        least = math.ceil((last - first) / widest) if widest else 1
        self.check(least)
        edges = torch.linspace(first, last, min(PILOTS, max(8, least)) + 1, dtype=torch.float64).to(self.scene.x)
        size, center = edges.diff(), (edges[:-1] + edges[1:]) / 2
        cell = (edges[:1, None], edges[-1:, None]) if self.scene.first.one_sided else None
        width = self.widths(center[:, None], torch.full_like(center, widest)[:, None], cell)[:, 0]
        each = size / width.clamp_min(1e-300)
        if (total := float(each.sum())) > self.most:  # fewer than wanted, but none too wide
            fewest = size / widest
            each = fewest + (each - fewest) * (self.most - float(fewest.sum())) / (total - float(fewest.sum()))
        steps = torch.cat((each.new_zeros(1), each.cumsum(0)))
        count = min(self.most, max(1, math.ceil(float(steps[-1]) - 1e-6)))
        place = torch.arange(count + 1).to(edges) * (float(steps[-1]) / count)
        block = torch.searchsorted(steps, place, right=True).clamp(1, len(size)) - 1
        share = (place - steps[block]) / each[block].clamp_min(1e-300)
        cuts = (edges[block] + size[block] * share).round(decimals=PLACES).clamp(first, last).cummax(0).values
        cuts[0], cuts[-1] = first, last
        return cuts[:-1, None], cuts[1:, None]

    def cells(self) -> tuple[Tensor, Tensor]:
        """Γ ⊂ R^d in cells, each of them a grid of windows: for shifts cut at integers, where the interpolant changes
        its formula; for flows often enough for the widest window.
        """
        box, axes = self.scene.threat.box, []
        if isinstance(self.scene.first, Shift):
            sides = list(zip(box.lower, box.upper, strict=True))[:2]
            self.check(math.prod(max(1, math.ceil(high) - math.floor(low)) for low, high in sides))
        for axis, (low, high) in enumerate(zip(box.lower, box.upper, strict=True)):
            ends = sorted({low, high, *self._cuts(axis, low, high)})
            ends = ends if len(ends) > 1 else ends * 2
            axes.append(torch.tensor([ends[:-1], ends[1:]], dtype=torch.float64).to(self.scene.x))
        lower, upper = (torch.cartesian_prod(*(a[e] for a in axes)).reshape(-1, len(axes)) for e in (0, 1))
        self.check(len(lower))
        width = self.widths((lower + upper) / 2, upper - lower, (lower, upper))
        count = ((upper - lower) / width.clamp_min(1e-300) - 1e-6).ceil().clamp_min(1)
        while float(count.prod(1).sum()) > self.most:
            count = (count * 0.98).floor().clamp_min(1)
        for axis in range(len(axes)):
            lower, upper, row = _cut(lower, upper, axis, count[:, axis].long())
            count = count[row]
        return lower, upper

    def _cuts(self, axis: int, low: float, high: float) -> list[float]:
        first, widest = self.scene.first, self.scene.widest
        if isinstance(first, Shift) and axis < 2:
            return list(map(float, range(math.ceil(low), math.floor(high) + 1)))
        if not isinstance(first, Flow) or axis or widest == math.inf:
            return []
        count = max(8, math.ceil((high - low) / widest))
        return [low + (high - low) * i / count for i in range(1, count)]

    def halve(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Evaluates the windows and halves those above the target, the worst first while there is room; sorted.

        Where two halvings in a row change nothing many pixels jump at one γ, which narrower windows do not cure.
        """
        bound = self.evaluate(lower, upper)
        vain = torch.zeros_like(bound)
        for _ in range(HALVINGS):
            urgent = torch.where((bound > self.target) & (vain < 2), bound, 0)
            worst = urgent.topk(min(int((urgent > 0).sum()), self.most - len(bound))).indices
            if not len(worst):
                break
            rest = torch.ones_like(bound, dtype=torch.bool).index_fill_(0, worst, False)
            low, high = _halves(lower[worst], upper[worst], self.scene.pace)
            new, old = self.evaluate(low, high), bound[worst].repeat(2)
            vain = torch.cat((vain[rest], torch.where(new > 0.95 * old, vain[worst].repeat(2) + 1, 0)))
            lower, upper = torch.cat((lower[rest], low)), torch.cat((upper[rest], high))
            bound = torch.cat((bound[rest], new))
        for axis in reversed(range(lower.shape[1])):
            order = torch.argsort(lower[:, axis], stable=True)
            lower, upper, bound = lower[order], upper[order], bound[order]
        return lower, upper, bound


def _joined(x: Tensor, threat: Threat, target: float, most: int) -> tuple[Tensor, Tensor]:
    """Every combination of a window of each part, which are covered as if it were alone."""
    while True:
        alone = [cover_windows(x, t, Preprocess(), target=e, max_windows=most) for t, e in room(threat, x, target)]
        count = math.prod(map(len, alone))
        if count <= most:
            break
        if all(len(windows) == 1 for windows in alone) or target > 1e6:
            raise ValueError(f"this range needs at least {count} windows, whatever the target; got max_windows={most}")
        target *= max(1.1, (count / most) ** (1 / len(alone)))
    index = torch.cartesian_prod(*(torch.arange(len(w), device=w.E.device) for w in alone)).reshape(-1, len(alone))
    lower, upper = (
        torch.cat([getattr(w, end)[index[:, i]] for i, w in enumerate(alone)], 1) for end in ("lower", "upper")
    )
    return lower, upper


def unknown(threat: Threat) -> str:
    """Why no bound of windows is known for this threat; "" if one is."""
    transform = threat.transform
    first, *others = transform.parts
    if isinstance(first, Steps):
        return f"a cover does not know {first.name}"
    if not isinstance(first, Flow | Shift | Tone | Gradation | Average):
        return str(first.unknown("no bound of windows is known"))
    if others and transform.item_dims != 3:
        return f"a cover knows sounds under one part; got {transform.name}"
    for before, part in zip(transform.parts, others, strict=False):
        moves = isinstance(part, Flow | Shift)
        if not (moves or isinstance(part, Tone)) or (moves and isinstance(before, Tone)):
            return (
                "a cover knows brightness and contrast at the end, and before them parts that move pixels after a "
                f"first one, but not {part.name} after {before.name}"
            )
    if is_chain(threat) and threat.interpolation != "bilinear":
        return f"a cover of several parts that move pixels is for bilinear attackers, not {threat.interpolation} ones"
    return ""


def halved(windows: Windows, chosen: Tensor, x: Tensor, threat: Threat, preprocess: Preprocess) -> Windows:
    """Both halves of each of the windows `chosen` (indices), and nothing else; x, threat and P as they were covered."""
    scene = Scene(x.to(windows.lower.device, torch.float64), threat, preprocess.linear, windows.rounded)
    with torch.no_grad():
        lower, upper = _halves(windows.lower[chosen], windows.upper[chosen], scene.pace)
    return bounds(lower, upper, x, threat, preprocess, windows.rounded)


def bounds(lower: Tensor, upper: Tensor, x: Tensor, threat: Threat, preprocess: Preprocess, rounded: bool) -> Windows:
    """These windows [J,d], which need not tile Γ, with E_j. Middles of several parts that move pixels are not rounded,
    as `cover_windows` has them.
    """
    start, rounded = time.perf_counter(), rounded and not is_chain(threat)
    scene = Scene(x.to(lower.device, torch.float64), threat, preprocess.linear, rounded)
    with torch.no_grad():
        bound = rounded_up(measured(scene, lower, upper))
    return Windows(lower, upper, bound, rounded, len(lower), time.perf_counter() - start)


def rounded_up(bound: Tensor) -> Tensor:
    """Not below `bound` ≥ 0, with three digits."""
    powers = torch.tensor([10.0**i for i in range(23)], dtype=torch.float64, device=bound.device)
    scale = powers[(2 - bound.clamp(1e-15, 1e2).log10().floor()).long()]
    return (bound * scale * (1 + 1e-12)).ceil() / scale


def _halves(lower: Tensor, upper: Tensor, pace: Tensor) -> tuple[Tensor, Tensor]:
    """Both halves of each box [J,d], cut across the side along which pictures move farthest."""
    side = ((upper - lower) * pace).argmax(1, keepdim=True)
    low, high, middle = (t.gather(1, side) for t in (lower, upper, (lower + upper) / 2))
    short = middle.round(decimals=PLACES)
    middle = torch.where((low < short) & (short < high), short, middle)
    return torch.cat((lower, lower.scatter(1, side, middle))), torch.cat((upper.scatter(1, side, middle), upper))


def _cut(lower: Tensor, upper: Tensor, axis: int, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each box [J,d] cut into count [J] equal slices along an axis with shared ends; and the box each is from."""
    row = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
    number = torch.arange(len(row), device=count.device) - (count.cumsum(0) - count)[row]
    low, size, n = lower[row, axis], (upper - lower)[row, axis], count[row].to(lower)
    start, end = low + size * (number / n), low + size * ((number + 1) / n)
    lower, upper = lower[row], upper[row]
    lower[:, axis], upper[:, axis] = start, torch.where(number + 1 == n, upper[:, axis], end)
    return lower, upper, row
