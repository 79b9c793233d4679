"""Every 8-bit image that the attacker can hand over, in the order of γ.

Guarantee. `images` yields q(z) for every γ ∈ Γ and every z with |z − T_γ x| ≤ tolerance; in a plan with bundles,
q(T_γ x) for every γ ∈ Γ in exact arithmetic, with values on a threshold rounded up, down or to even, and, if it is
`followed`, what each program of `programs` makes of every γ ∈ Γ. What is possible at a γ is among the images whose
onset is at most γ.

Argument. Outside its events a pixel is settled, inside it takes one of the event's levels. Given γ let h ≥ γ be the
next upper end of an event. Events that contain γ contain h, and a pixel settled at γ is at h settled alike or in an
event that allows the same level, as no event ends in [γ, h). So what is possible at γ is among the combinations at h:
the events that contain h (a clique) at all their levels, all other pixels settled. Only an h with a lower end since the
last upper end is needed, for otherwise its clique is part of the one before. In the order of upper ends a clique of one
event between two levels has just the images before and after it: the spine, a step at a time, plus all combinations of
larger cliques.

Onset. Let o_s be the least lower end of steps s, s + 1, …; it does not decrease with s. The images of a clique at the
upper end of step s, and the spine after step s, have onset o_s; the spine before all steps has the lower end of Γ. For
γ with h the upper end of step s: if γ < o_s, no event contains γ and only the spine before step s is possible, with
onset at most o_{s−1} ≤ the upper end of step s − 1 < γ. If γ ≥ o_s, the combinations at h have onset o_s, or less if
their clique is part of one before. So who knows the answers for all images with onset below γ₀ knows those for γ < γ₀.

Each once. Many combinations are images of the spine, or come from several cliques. An image in which the steps before p
have happened, and of the later ones just a few, is told by p and by those few (for a step that ends on the level where
it began, "happened" means the other level, and it counts as one before p if it has not). What is told alike is alike.
Of several cliques the first has the least onset, and keeps the image. An image of the spine is left out of all cliques:
if the last step before p to have changed a level is s, then at any γ where this is possible s has begun, so o_s ≤ γ,
and o_s is the onset of the spine after step s, which is the same image. If s is before the clique, its onset is less.
A bundle that is a clique alone has its first two states, before and after, in common with the spine.

Bundles. Under symmetry, scaling and above all brightness many pixels cross at the same γ*, too many for their 2^m
combinations. If a clique exceeds `limit`, events that are strictly monotone, have a point in common and proportional
equations V − (k+½) = 0 (in integers, compared exactly) are bundled: the union is an interval on which they have one
common root. Left of it none has switched, right of it all have, on it all values lie on thresholds. An attacker who
does not round has no bundles: even exact values are handed over as floats, which near γ* are off to either side.

Programs. An attacker who computes in floating point does not switch all of a bundle at once. But `programs` tells all
numbers s at which an event turns, from not having happened to having happened or back. So its pictures near γ* are
those after the j first of the bundle's turns, j = 0, 1, …: as many as there are different numbers, and one more, also
where s falls as γ grows. Anywhere on the union of the bundle's intervals each of its pixels is on one of its two
levels, for the program stays within the tolerance, and beyond the union all are settled. So a followed bundle is like
an event on the whole union, with these pictures for levels, and the argument above holds for it. (It is about one
event of a pixel at a time: if the union meets another event of one of its pixels, the plan is not followed.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from warpcert.exhaustive.events.crossings import Crossings, Turns, hull, turns_of
from warpcert.exhaustive.events.isolation import ragged

__all__ = ["Chunks", "Plan", "images", "plan"]

_BLOCK = 128  # steps whose changes are summed up one after the other
_PATIENT = 64  # times as many combinations may a clique have if nothing else keeps a plan from being followed …
_ROOM = 1 << 28  # … and as long as its images have no more values than these
_FEW, _NEAR = 6, 31  # cliques of so few steps, within so many, are looked through for images that come twice
_TIES = 5  # states of a bundle: before, after, rounded to even, down, up; if all rise or all fall the first three
# are all; if they also start at levels all even or all odd, the first two. States of the programs follow.


@final
@dataclass(frozen=True)
class Plan:
    """How images are made: S steps by upper ends, K cliques by `base`, M pairs (clique, event) by clique."""

    crossings: Crossings  # events sorted by step
    step: Tensor  # int64 [E]
    lower: Tensor  # float64 [S]
    upper: Tensor  # float64 [S]
    onset: Tensor  # float64 [S+1]: of the spine after s steps; that of a clique is onset[base + 1]
    bundled: Tensor  # bool [S]
    turns: tuple[Tensor, ...]  # for each of P programs, sorted: event·2³² + the place of a turn among its bundle's
    begin: Tensor  # int64 [S,P]: the first of a bundle's states that is about this program
    base: Tensor  # int64 [K]: steps before the clique
    rows: Tensor  # int64 [K]: how many combinations of its members' states are asked about …
    chosen: Tensor  # int64 [N]: … and which, where not all …
    first: Tensor  # int64 [K]: … from which place on; −1: all
    common: Tensor  # float64 [K]: all its events contain [common, upper[base]]
    clique: Tensor  # int64 [M]
    event: Tensor  # int64 [M]
    states: Tensor  # int64 [M]: of the event's step …
    place: Tensor  # int64 [M]: … and the product of those before it in the clique
    unresolved: int  # cliques of more combinations than the limit, left out …
    doubt: float  # … and the least onset of one; ∞ if there are none

    @property
    def total(self) -> int:
        """How many images there are."""
        return self.lower.numel() + 1 + int(self.rows.sum())

    def below(self, gamma: float) -> int:
        """How many images have an onset below γ."""
        return int((self.onset < gamma).sum() + self.rows[self.onset[self.base + 1] < gamma].sum())

    @property
    def bundles(self) -> int:
        return int(self.bundled.sum())

    @property
    def followed(self) -> bool:
        """Whether it has what the programs produce."""
        return len(self.turns) > 0


def plan(crossings: Crossings, limit: int = 1024) -> Plan:
    """Steps and cliques; if a clique has more than `limit` combinations, exactly coinciding events are bundled."""
    made, crowded = _draw(crossings, torch.arange(len(crossings), device=crossings.pixel.device), limit)
    if not made.unresolved:
        return made
    group = _bundle(crossings, crowded)
    if turns := turns_of(crossings, group):
        patient = min(_PATIENT * limit, _ROOM // crossings.start.numel())
        for most in (limit, max(limit, patient)):  # that an attacker who exists is covered is worth some pictures
            followed = _draw(crossings, group, most, turns)[0]
            if not followed.unresolved:
                return followed
    return _draw(crossings, group, limit)[0]


def _states(c: Crossings, step: Tensor, size: Tensor, turns: list[Turns]) -> tuple[list[Tensor], Tensor, Tensor]:
    """For steps that are bundles, events by step: the turns of each program as in `Plan`, the first state that is about
    it [S,P], and how many states there are [S].
    """
    alike = torch.zeros_like(size).scatter_add(0, step, (c.after - c.before).sign()).abs() == size
    odd = torch.zeros_like(size).scatter_add(0, step, c.low % 2)
    states = torch.where(alike, 3 - ((odd == 0) | (odd == size)).long(), _TIES)
    keys, begin = list[Tensor](), list[Tensor]()
    for event, moment in turns:
        order = moment.argsort(stable=True)
        order = order[step[event[order]].argsort(stable=True)]
        event, moment, owner = event[order], moment[order], step[event[order]]
        fresh = torch.ones_like(order)
        fresh[1:] = (moment[1:] != moment[:-1]) | (owner[1:] != owner[:-1])
        moments = torch.zeros_like(size).scatter_add_(0, owner, fresh)
        rank = fresh.cumsum(0) - 1 - (moments.cumsum(0) - moments)[owner]
        keys.append((event << 32 | rank).sort().values)
        begin.append(states)
        states = states + (moments - 1).clamp_min(0)  # the first moment has passed, the first two … all but the last
    return keys, torch.stack(begin, 1) if begin else size.new_zeros(size.numel(), 0), states


def _draw(c: Crossings, group: Tensor, limit: int, turns: Sequence[Turns] = ()) -> tuple[Plan, Tensor]:
    """The plan in which a group of events is one step, and which events overlap others."""
    _, group, size = torch.unique(group, return_inverse=True, return_counts=True)
    lower, upper = hull(c, group, size.numel(), whole=len(turns) > 0)
    order = upper.argsort(stable=True)
    step, event = order.argsort()[group].sort(stable=True)
    c, lower, upper, size = c.take(event), lower[order], upper[order], size[order]
    head = size.cumsum(0) - size  # first event of each step
    bundled = size > 1
    place = event.argsort()
    keys, begin, states = _states(c, step, size, [(place[which], moment) for which, moment in turns])
    states = torch.where(bundled, states, (c.high - c.low + 1)[head])
    plain = (states == 2) & (c.before != c.after)[head]

    least = lower.flip(0).cummin(0).values.flip(0)
    onset = torch.cat((lower.new_tensor(c.gamma[:1]), least))

    index = torch.arange(size.numel(), device=size.device)
    opened = torch.searchsorted(lower.sort().values, upper, right=True)
    new = torch.ones_like(plain)
    new[1:] = opened[1:] > opened[:-1]
    members = opened - index
    first = torch.searchsorted(upper, lower)  # step s is open at the upper ends of steps first[s] … s

    def among(chosen: Tensor) -> tuple[Tensor, Tensor]:
        """How many chosen steps come before first[s], and how many are in first[s] … s."""
        before = torch.cat((index.new_zeros(1), chosen.cumsum(0)))
        return before[first], before[index + 1] - before[first]

    wanted, bits = new & ((members > 1) | ~plain), math.log2(limit) + 1e-9
    small = wanted & (members <= bits)
    skipped, count = among(small)
    who, position = ragged(count)
    clique, by_clique = (skipped[who] + position).sort(stable=True)
    who, base, members = who[by_clique], index[small], members[small]
    common = lower.new_full(base.shape, -math.inf).scatter_reduce(0, clique, lower[who], "amax")
    position = torch.arange(who.numel(), device=who.device) - (members.cumsum(0) - members)[clique]
    fits = torch.zeros_like(common).scatter_add(0, clique, states[who].double().log2()) <= bits
    keep = fits[clique]
    who, clique, position = who[keep], (fits.cumsum(0) - 1)[clique[keep]], position[keep]
    base, common = base[fits], common[fits]
    table = torch.ones(base.numel(), int(bits) + 2, dtype=torch.int64, device=base.device)
    table[clique, position + 1] = states[who]
    product = table.cumprod(1)
    rows, place = product[:, -1], product[clique, position]
    pair, nth = ragged(size[who])  # a member is a step: list its events
    listed = clique[pair], head[who[pair]] + nth, states[who][pair], place[pair]
    wanted[base] = False
    unresolved = int(wanted.sum())
    doubt = float(least[wanted].min()) if unresolved else math.inf
    sort = _Sort(c, head, plain, bundled, states)
    rows, chosen, begins = _distinct(sort, base, rows, (who, clique, position))
    cliques = base, rows, chosen, begins, common
    made = Plan(c, step, lower, upper, onset, bundled, tuple(keys), begin, *cliques, *listed, unresolved, doubt)
    return made, among(new & (opened - index > 1))[1][step] > 0


class _Sort(NamedTuple):
    """What kind of step each is."""

    crossings: Crossings
    head: Tensor
    plain: Tensor
    bundled: Tensor
    states: Tensor


def _distinct(
    sort: _Sort, base: Tensor, rows: Tensor, members: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Leaves out the combinations that are images of the spine or of a clique before: how many are left of each clique,
    which, and where they begin. (See "Each once" above.)
    """
    c, (who, clique, position), device = sort.crossings, members, base.device
    event = sort.head[who]
    graze = ~sort.plain[who]
    simple = (sort.states[who] == 2) & ~sort.bundled[who] & (position < _FEW) & (who - base[clique] < _NEAR)
    listed = torch.ones_like(rows).scatter_reduce(0, clique, simple.long(), "amin") > 0
    among = (listed.cumsum(0) - 1)[clique]
    use = listed[clique]
    step = base.new_full((int(listed.sum()), _FEW), -1)
    flip, still = (torch.zeros_like(step) for _ in range(2))
    spot = among[use], position[use]
    step[spot] = who[use]
    low = torch.where(graze, c.before[event] > c.low[event], c.before[event] > c.after[event])  # its other state is low
    flip[spot], still[spot] = low[use].long(), graze[use].long()
    owner, number = ragged(rows[listed])
    at = base[listed][owner]
    bits = (number[:, None] >> torch.arange(_FEW, device=device) & 1) ^ flip[owner]
    step, ahead = step[owner], bits ^ still[owner]
    passed = at.clone()
    for j in range(_FEW):
        passed += (step[:, j] == passed) & (ahead[:, j] > 0)
    rest = ((bits << (step - passed[:, None]).clamp(min=0)) * (step >= passed[:, None])).sum(1)
    spine = rest == 0
    key, order = (passed << _NEAR | rest).sort(stable=True)
    fresh = torch.ones_like(spine)
    fresh[1:] = key[1:] != key[:-1]
    keep = torch.zeros_like(spine)
    keep[order] = fresh
    keep &= ~spine
    left = torch.zeros_like(rows[listed]).scatter_add_(0, owner, keep.long())
    count, first = rows.clone(), torch.full_like(rows, -1)
    count[listed], first[listed] = left, left.cumsum(0) - left
    number = number[keep]
    alone = torch.zeros_like(rows).scatter_add_(0, clique, 1 + ~sort.bundled[who]) == 1
    if most := int(rows[alone].max()) if bool(alone.any()) else 0:  # a bundle alone: all but its first two states
        count[alone] -= 2
        first[alone] = number.numel()
        number = torch.cat((number, torch.arange(2, most, device=device)))
    return count, number, first


def _bundle(c: Crossings, crowded: Tensor) -> Tensor:
    """Groups: crowded events with proportional equations and a common point share a number, others have their own."""
    group = torch.arange(len(c), device=c.pixel.device)
    index = group[crowded & (c.equation != 0).any(1)]
    apart = torch.zeros_like(group)
    apart[1:] = c.lower.flip(0).cummin(0).values.flip(0)[1:] > c.upper[:-1]
    row = c.equation[index]
    divisor = row[:, 0].abs()
    for column in row[:, 1:].unbind(1):
        divisor = torch.gcd(divisor, column.abs())
    row = row // divisor[:, None]
    row *= row.gather(1, (row != 0).long().argmax(1, keepdim=True)).sign()
    key = torch.unique(torch.cat((apart.cumsum(0)[index, None], row), 1), dim=0, return_inverse=True)[1]
    lower = c.lower.new_full(key.shape, -math.inf).scatter_reduce(0, key, c.lower[index], "amax")
    upper = c.lower.new_full(key.shape, math.inf).scatter_reduce(0, key, c.upper[index], "amin")
    share = (lower <= upper)[key]
    group[index[share]] = len(c) + key[share]
    return group


def images(made: Plan, batch: int = 1024) -> Iterator[tuple[Tensor, Tensor]]:
    """All images of the plan as `Chunks` makes them, chunk by chunk."""
    chunks = Chunks(made, batch)
    for i in range(len(chunks.onset)):
        yield from chunks.images(i)


@final
class Chunks:
    """The images of a plan in chunks, one per `batch` steps of the spine, that can be made in any order.

    onset   per chunk the least onset of its images; does not decrease
    """

    def __init__(self, made: Plan, batch: int) -> None:
        c, steps, words = made.crossings, made.lower.numel(), -(-made.crossings.start.numel() // 8)
        ends = made.lower.new_tensor(c.gamma)
        since, until = torch.cat((ends[:1], made.upper)), torch.cat((made.onset[1:], ends[1:]))
        self.made, self.batch, self.block = made, batch, min(batch, _BLOCK)
        self.where = torch.stack((since, until, made.onset), 1)
        self.cuts = [*range(0, steps + 1, batch // self.block * self.block), steps + 1]
        self.onset: list[float] = made.onset[self.cuts[:-1]].tolist()
        row = made.step + 1  # the first image after the event
        cuts = torch.tensor(self.cuts, device=row.device)
        self.events: list[int] = torch.searchsorted(row, cuts).tolist()
        # Eight pixels are one number to base 256. Changes may be negative and carry, yet the sums are levels: digits.
        self.place = row * words + c.pixel // 8
        self.change = (c.after - c.before) << 8 * (c.pixel % 8)
        total = row.new_zeros(steps // self.block + 2, words)
        at = (row // self.block + 1) * words + c.pixel // 8
        total[0] = pad(c.start.flatten(), (0, 8 * words - c.start.numel())).view(torch.int64)
        self.state = total.view(-1).scatter_add_(0, at, self.change).view_as(total).cumsum(0)  # before each block
        self._group()

    def _group(self) -> None:
        """Cliques in groups of about `batch` images, none across chunks; all lengths are known before the first."""
        made, device = self.made, self.made.base.device
        before = made.rows.cumsum(0) - made.rows
        first = torch.searchsorted(made.base, torch.tensor(self.cuts, device=device))
        chunk = torch.searchsorted(torch.tensor(self.cuts, device=device), made.base, right=True) - 1
        inside = (before - before[first[chunk]] if made.base.numel() else before) // self.batch
        key, size = torch.unique_consecutive((chunk << 40) + inside, return_counts=True)
        edge = torch.cat((size.new_zeros(1), size.cumsum(0)))
        pair = torch.searchsorted(made.clique, edge)
        images = torch.cat((made.rows.new_zeros(1), made.rows.cumsum(0)))[edge].diff()
        written = made.rows[made.clique]
        written = torch.cat((written.new_zeros(1), written.cumsum(0)))[pair].diff()
        table = torch.stack((key >> 40, edge[:-1], edge[1:], pair[:-1], pair[1:], images, written), 1)
        self.groups: list[list[list[int]]] = [[] for _ in self.onset]
        for row in table.tolist():
            self.groups[row[0]].append(row[1:])

    def images(self, i: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Those of chunk i, at most about `batch` at a time: uint8 [B,C,H,W], and float64 [B,3] their (a, b, onset).

        If a < b, the image is q(T_γ x) for all γ strictly between. Otherwise it comes from overlapping events, and may
        occur between the two or not at all.
        """
        c, (start, stop) = self.made.crossings, self.cuts[i : i + 2]
        now, first, blocks = slice(*self.events[i : i + 2]), start // self.block, -(-(stop - start) // self.block)
        spine = self.change.new_zeros(blocks, self.block, self.state.shape[1])
        spine.view(-1).scatter_add_(0, self.place[now] - start * self.state.shape[1], self.change[now])
        spine[:, 0] += self.state[first : first + blocks]
        spine = spine.cumsum(1).flatten(0, 1)[: stop - start]  # many short sums: a GPU adds a long one up row by row
        yield self._pixels(spine).reshape(-1, *c.start.shape), self.where[start:stop]
        for group in self.groups[i]:
            image, where = self._combinations(spine, start, group)
            yield image.reshape(-1, *c.start.shape), where

    def _pixels(self, spine: Tensor) -> Tensor:
        return spine.view(torch.uint8)[:, : self.made.crossings.start.numel()]

    def _combinations(self, spine: Tensor, start: int, group: list[int]) -> tuple[Tensor, Tensor]:
        """The images of cliques first … last − 1 with the pairs lo … hi − 1, based on the spine from step `start`."""
        made, c = self.made, self.made.crossings
        first, last, lo, hi, images, written = group
        rows, base = made.rows[first:last], made.base[first:last]
        clique, _ = ragged(rows, images)
        image = self._pixels(spine[base[clique] - start])
        owner, event, place = made.clique[lo:hi] - first, made.event[lo:hi], made.place[lo:hi]
        pair, number = ragged(rows[owner], written)
        row, event = (rows.cumsum(0) - rows)[owner[pair]] + number, event[pair]
        if made.chosen.numel():
            begin = made.first[first:last][owner[pair]]
            picked = made.chosen[(begin + number).clamp(0, made.chosen.numel() - 1)]
            number = torch.where(begin < 0, number, picked)
        digit = number // place[pair] % made.states[lo:hi][pair]
        low, high = c.low[event], c.high[event]
        tie = torch.stack((c.before[event], c.after[event], low + low % 2, low, high), 1)
        tie = tie.gather(1, digit.clamp(max=_TIES - 1)[:, None])[:, 0]
        step = made.step[event]
        for turns, begin in zip(made.turns, made.begin.unbind(1), strict=True):
            nth, own = digit - begin[step], event << 32
            turned = torch.searchsorted(turns, own + nth.clamp_min(0) + 1) - torch.searchsorted(turns, own)
            tie = torch.where(nth < 0, tie, torch.where(turned % 2 > 0, c.after[event], c.before[event]))
        level = torch.where(made.bundled[step], tie, torch.minimum(low + digit, high))
        image[row, c.pixel[event]] = level.to(torch.uint8)
        return image, torch.stack((made.upper[base], made.common[first:last], made.onset[base + 1]), 1)[clique]
