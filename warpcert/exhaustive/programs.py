"""Where each pixel switches under a tone, to the last bit, when the attacker computes in floating point.

Hundreds of pixels can meet their thresholds at one γ*. Within rounding error of γ* the order in which they switch is
not that of exact arithmetic: it is that of the program which computes them. So the program is named, and followed:

    s = γ, or e^γ about a pivot;  z = x + s, or x·s, or (x − c)·s + c;  clamp to [0, 1], times 255, round half to even,

each operation correctly rounded in one floating-point type (`Tone.moved` and `Transform.quantize`: the package's own
attack). s is one number for all pixels, so it does not matter how well or badly e^γ is computed.

Guarantee. Let an event of a pixel have the levels low and low + 1, m the least 8-bit value of the upper one, and r
whether the pixel rises with s. `switches` returns for each program the number t such that for all s of its type in
[least, most] the program's 8-bit value v(s) satisfies

    (v(s) ≥ m) = r   if and only if   s ≥ t.

Argument. A correctly rounded operation is monotone in each operand where the exact one is. So x + s and x·s (x ≥ 0) do
not decrease with s; nor does (x − c)·s + c where x − c, rounded, is ≥ 0, and where it is ≤ 0 it does not increase.
Clamping, times 255 and rounding do not decrease. Hence (v(s) ≥ m) = r changes at most once, from false to true, as s
runs through the floating-point numbers in order, and bisection over their bit patterns, which have the same order,
finds where. t = −∞ or ∞ if it does not change in [least, most]. Dividing by 255 afterwards, and rounding to float32
for the classifier, leaves the 8-bit value as it is.

The program stays within the tolerance, or it is left out. Of x = v/255 in a type with unit roundoff u each value is
off by u at most, which T makes `gain` times as large; `Tone.rounding` bounds the operations of T; and what the product
255z is off by is 255 times what u does to z. Sum: `Tone.follows`. Pictures that came as floats are a second start:
how far they are from the levels is in the tolerance of the events already.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpcert.threat import Threat
from warpcert.transforms import Tone

__all__ = ["Program", "programs", "switches"]

_BITS = {torch.float64: torch.int64, torch.float32: torch.int32}


class Program(NamedTuple):
    """Starts from `start`, flattened, and computes in its type."""

    transform: Tone
    start: Tensor

    def rises(self, pixel: Tensor) -> Tensor:
        """r of these pixels."""
        pivot = self.transform.pivot
        return torch.ones_like(pixel, dtype=torch.bool) if pivot is None else self.start[pixel] - pivot >= 0

    def passed(self, pixel: Tensor, s: Tensor, least: Tensor) -> Tensor:
        """v(s) ≥ m for these pixels, each with its own s and m."""
        z = self.transform.quantize(self.transform.moved(self.start[pixel], s))
        return (255 * z).round() >= least


def programs(threat: Threat, x: Tensor, value: Tensor, tolerance: float) -> list[Program]:
    """Those that stay within the tolerance, from the 8-bit picture and from x itself; value = 255x in whole levels."""
    found, transform = list[Program](), threat.transform
    if not isinstance(transform, Tone):
        return found
    extent = max(map(abs, (*threat.box.lower, *threat.box.upper)))
    for name in transform.follows(tolerance, extent):
        dtype = getattr(torch, name)
        starts = [value.to(dtype) / value.new_full((), 255.0, dtype=dtype)]
        if x.dtype != torch.uint8 and not torch.equal(starts[0], x.to(dtype)):
            starts.append(x.to(dtype))
        found += [Program(transform, start.flatten()) for start in starts]
    return found


def switches(program: Program, pixel: Tensor, least: Tensor, ends: tuple[float, float]) -> Tensor:
    """t in float64 for these pixels with m = `least`; s comes from γ in [ends], and a little more on both sides."""
    start = program.start
    case = torch.stack((start[pixel].double(), least.double()), 1)  # pixels of equal value switch together
    _, back = torch.unique(case, dim=0, return_inverse=True)
    first = pixel.new_full((int(back.max()) + 1 if back.numel() else 0,), pixel.numel())
    first = first.scatter_reduce(0, back, torch.arange(pixel.numel(), device=pixel.device), "amin")
    pixel, least, rising = pixel[first], least[first], program.rises(pixel[first])

    def switched(key: Tensor) -> Tensor:
        return program.passed(pixel, _number(key, start.dtype), least) == rising

    s = program.transform.amount(torch.tensor(ends, dtype=torch.float64, device=start.device))
    wide = 1e-5 * s.abs() + 1e-30  # more than e^γ is off by in float32
    low, high = (_key(e.to(start.dtype).expand(len(pixel))) for e in (s[0] - wide[0], s[1] + wide[1]))
    always, never = switched(low), ~switched(high)
    for _ in range(64):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)  # without overflow
        past = switched(middle)
        low, high = torch.where(past, low, middle), torch.where(past, middle, high)
    t = _number(high, start.dtype).double()
    t = torch.where(always, -torch.inf, torch.where(never, torch.inf, t))
    return t[back]


def _key(s: Tensor) -> Tensor:
    """Integers in the order of the floating-point numbers."""
    bits = s.contiguous().view(_BITS[s.dtype])
    return bits ^ ((bits >> (8 * bits.element_size() - 1)) & torch.iinfo(bits.dtype).max)


def _number(key: Tensor, dtype: torch.dtype) -> Tensor:
    return (key ^ ((key >> (8 * key.element_size() - 1)) & torch.iinfo(key.dtype).max)).view(dtype)
