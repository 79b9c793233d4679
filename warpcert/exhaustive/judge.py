"""Who asks the classifier, and remembers from where on nothing is proved, why, and the nearest counterexample."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Tensor

from warpcert.exhaustive.events.crossings import levels
from warpcert.exhaustive.sight import Sight, Terms

__all__ = ["Judge", "relative_lead"]

_VALUES = 1 << 22  # pixels of the probe's pictures made at once


class _Asked(NamedTuple):
    """A batch and its answer, which is there once the GPU is ready."""

    states: Tensor
    where: Tensor
    lead: Tensor
    ready: torch.cuda.Event | None


def relative_lead(logits: Tensor, label: Tensor) -> Tensor:
    """By how much a label leads, in units of max(1, largest |logit|) of the image, [B]; NaN for logits that are not
    finite, which do not lead.
    """
    others = logits.index_fill(1, label, -math.inf).amax(1)
    return (logits.index_select(1, label.reshape(1))[:, 0] - others) / logits.abs().amax(1).clamp_min(1)


@final
class Judge:
    """Asks f about images. `limit` is the least onset, as a multiple of Γ, of an image that failed."""

    def __init__(self, classifier: Callable[[Tensor], Tensor], sight: Sight, label: int | None, terms: Terms) -> None:
        self.classifier, self.sight, self.threat, self.slack = classifier, sight, sight.threat, terms.slack
        self.later = terms.proved > 0
        self.size, self.gpu = terms.size(sight.x), sight.x.is_cuda
        self.gamma: float | None = None
        self.image: Tensor | None = None
        self.limit = math.inf
        self.evaluated, self.settled, self.smallest, self.reason = 0, 0, math.inf, ""
        self._open: deque[_Asked] = deque()
        self.x = levels(sight.x)[0] / 255
        own = sight.states(self.x[None])
        self.label = int(self._logits(own).argmax()) if label is None else label
        self.own = torch.tensor(self.label, device=sight.x.device)

    def end(self, limit: float, reason: str) -> None:
        """Nothing is proved from `limit` on, if it was until now."""
        if limit < self.limit or (limit == self.limit < math.inf and not self.reason):
            self.limit, self.reason = limit, reason

    @torch.inference_mode()
    def _logits(self, states: Tensor) -> Tensor:
        """A GPU gets full batches, for it prepares anew for every size it meets."""
        count = len(states)
        if self.gpu and count < self.size:
            states = torch.cat((states, states[-1:].expand(self.size - count, *states.shape[1:])))
        return self.classifier(self.sight.pictures(states))[:count]

    @torch.inference_mode()
    def _leads(self, states: Tensor) -> Tensor:
        return relative_lead(self._logits(states), self.own)

    def probe(self, count: int) -> Tensor:
        """Looks for the counterexample nearest to 0 on a grid of γ: cheap, and most pictures that have one show it.
        Where a part is proved already this was done before, and f is left alone.

        Returns, for each step of the grid, by how many levels all pixels change in it: roughly how many crossings
        there are.
        """
        grid = self.threat.box.grid(count).to(self.x.device)
        first, last = self.threat.box.lower[0], self.threat.box.upper[0]
        changed, states, clear = list[Tensor](), list[Tensor](), list[Tensor]()
        part = max(2, _VALUES // self.x.numel())
        for start in range(0, count - 1, part - 1):
            moved = self.threat.transform(self.x, grid[start : start + part], self.threat.interpolation)
            values = self.sight.values(moved)
            changed.append(self.sight.changes(values))
            clear.append(((values - 0.5) - (values - 0.5).round()).abs().flatten(1).amin(1) > 1e-8)
            states.append(self.sight.states(moved))
            if start:  # the last one of a part is the first one of the next
                clear[-1], states[-1] = clear[-1][1:], states[-1][1:]
        if self.later:
            return torch.cat(changed)
        leads = torch.cat([self._leads(some) for some in torch.split(torch.cat(states), self.size)])
        bad = (leads < -self.slack) & torch.cat(clear)
        wrong = [(g / last if g > 0 else g / first if g < 0 else 0.0, g) for g in grid[bad, 0].tolist()]
        for t, gamma in sorted(wrong)[:16]:
            at = torch.tensor([[gamma]], dtype=grid.dtype, device=grid.device)
            moved = self.threat.transform(self.x, at, self.threat.interpolation)
            if self._refutes(self.sight.states(moved)[0], gamma):
                self.limit = t
                break
        return torch.cat(changed)

    def ask(self, states: Tensor, where: Tensor) -> None:
        """Whether all of the images get the label: if not, the limit moves inwards. On a GPU the answer to a batch is
        looked at while the next one is computed.
        """
        lead, ready = self._leads(states), None
        self.evaluated += lead.numel()
        if self.gpu:
            lead = torch.empty(lead.shape, dtype=lead.dtype, pin_memory=True).copy_(lead, non_blocking=True)
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record()
        self._open.append(_Asked(states, where, lead, ready))
        while len(self._open) > self.gpu:
            self._settle(self._open.popleft())

    def finish(self) -> None:
        """Looks at all answers that are still open."""
        while self._open:
            self._settle(self._open.popleft())

    def _settle(self, asked: _Asked) -> None:
        if asked.ready is not None:
            asked.ready.synchronize()
        lead = asked.lead
        if not (smallest := float(lead.min())) > self.slack:
            smallest = float(lead[lead > self.slack].amin()) if bool((lead > self.slack).any()) else math.inf
            self._failed(asked.states, asked.where, lead.to(asked.where.device))
        self.smallest = min(self.smallest, smallest)
        self.settled += lead.numel()

    def _failed(self, image: Tensor, where: Tensor, lead: Tensor) -> None:
        """Takes note of the images that failed, if one of them has an onset below the limit."""
        failed = (~(lead > self.slack) & (where[:, 2] < self.limit)).nonzero()[:, 0]
        if not failed.numel():
            return
        failed = failed[where[failed, 2].argsort(stable=True)]
        self.limit = float(where[failed[0], 2])
        wrong = failed[lead[failed] < -self.slack]
        surely = (where[wrong, 1].abs() > where[wrong, 0].abs()).int().argsort(descending=True, stable=True)
        for i in wrong[surely][:16].tolist():
            gamma = self._witness(image[i], where[i])
            if gamma is not None and self._refutes(image[i], gamma):
                return
        doubt = "the lead is too small"
        if wrong.numel():
            doubt = "a picture that perhaps no attack produces is answered differently"
        near = self.threat.transform.to_text(float(where[failed[0], :2].mean()))
        self.reason = f"undecided near {near}, where {doubt}"

    def _witness(self, image: Tensor, where: Tensor) -> float | None:
        """A γ at which the attack in float64 hands over exactly this image."""
        start, end, _ = where.tolist()
        grid = torch.linspace(start, end, 33, dtype=torch.float64, device=where.device)[:, None]
        moved = self.threat.transform(self.x, grid, self.threat.interpolation)
        same = (self.sight.states(moved) == image).flatten(1).all(1).nonzero()[:, 0]
        return float(grid[same[same.numel() // 2], 0]) if same.numel() else None

    def _refutes(self, image: Tensor, gamma: float) -> bool:
        """Asks once more about this image alone."""
        wrong = bool(self._leads(image[None]) < -self.slack)
        if wrong:
            self.gamma, self.image = gamma, (255 * self.sight.pictures(image[None])[0]).round().to(torch.uint8)
            self.reason = f"the classifier answers differently at {self.threat.transform.to_text(gamma)}"
        return wrong
