"""Axes as SVG: small, sharp at any size, in the colours of the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

from markupsafe import Markup

__all__ = ["Axis", "Chart", "Point"]

Point = tuple[float, float]

WIDTH, HEIGHT = 360, 256  # units of the drawing: shown 320 to 440 pixels wide, its letters stay readable
LEFT, RIGHT, TOP, BOTTOM = 42, 352, 28, 212


@final
@dataclass(frozen=True)
class Axis:
    """From low to high, in what is said; `whole` for counts."""

    low: float
    high: float
    label: str
    unit: str = ""
    whole: bool = False

    @property
    def ticks(self) -> list[float]:
        """Round numbers, at most six or so."""
        size = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(size))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= size * (1 - 1e-9))
        step = max(1.0, round(step)) if self.whole else step
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [i * step + 0.0 for i in range(first, last + 1)]

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


@final
@dataclass
class Chart:
    """A drawing with two axes, to which curves, bands, bars and dots are added. Colours are classes: proved …"""

    x: Axis
    y: Axis
    _parts: list[Markup] = field(default_factory=list)
    _whiskers: list[float] = field(default_factory=list)

    def curve(self, points: Sequence[Point], css: str, dash: str = "") -> None:
        dashes = Markup(' stroke-dasharray="{}"').format(dash) if dash else ""
        self._add('<path class="curve {}"{} d="{}"/>', css, dashes, self._path(points))

    def band(self, low: Sequence[Point], high: Sequence[Point], css: str) -> None:
        """The area between two curves."""
        self._add('<path class="band {}" d="{}Z"/>', css, self._path([*high, *reversed(low)]))

    def whisker(self, at: Point, top: float, css: str) -> None:
        """An upright bar from a point to `top`, beside those that stand there already."""
        x, low, high = self._x(at[0]), self._y(at[1]), self._y(top)
        while any(abs(x - other) < 5 for other in self._whiskers):
            x += 5 if at[0] < (self.x.low + self.x.high) / 2 else -5
        self._whiskers.append(x)
        path = f"M{x - 2:.1f} {low:.1f}h4m-2 0V{high:.1f}m-2 0h4"
        self._add('<path class="bars {}" stroke-width="1.3" d="{}"/>', css, path)

    def bars(self, ends: Iterable[tuple[float, float, float]], css: str, width: float) -> None:
        """Upright bars (x, from, to), `width` units of the drawing wide."""
        lines = "".join(f"M{self._x(x):.1f} {self._y(a):.1f}V{self._y(b):.1f}" for x, a, b in ends)
        if lines:
            self._add('<path class="bars {}" stroke-width="{:.2f}" d="{}"/>', css, width, lines)

    def dot(self, at: Point, css: str) -> None:
        self._add('<circle class="dots {}" cx="{:.1f}" cy="{:.1f}" r="4"/>', css, self._x(at[0]), self._y(at[1]))

    def note(self, at: Point, text: str, css: str) -> None:
        """Words above a point on the left."""
        x, y = self._x(at[0]) + 3, self._y(at[1]) - 5
        self._add('<text class="note {}" x="{:.1f}" y="{:.1f}">{}</text>', css, x, y, text)

    def svg(self, alt: str) -> Markup:
        """The drawing as an <svg> element that takes the width it is given."""
        start = '<svg class="plot" role="img" aria-label="{}" viewBox="0 0 {} {}">'
        body = Markup("").join([self._axes(), *self._parts])
        return Markup(start).format(alt, WIDTH, HEIGHT) + body + Markup("</svg>")

    def _add(self, form: str, *values: object) -> None:
        self._parts.append(Markup(form).format(*values))

    def _x(self, value: float) -> float:
        return LEFT + (RIGHT - LEFT) * self.x.share(value)

    def _y(self, value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * self.y.share(value)

    def _path(self, points: Iterable[Point]) -> str:
        return "M" + "L".join(f"{self._x(x):.1f} {self._y(y):.1f}" for x, y in points)

    def _axes(self) -> Markup:
        text = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
        rows, columns = [(self._y(v), v) for v in self.y.ticks], [(self._x(v), v) for v in self.x.ticks]
        grid = "".join(f"M{LEFT} {y:.1f}H{RIGHT}" for y, _ in rows)
        grid += "".join(f"M{x:.1f} {BOTTOM}v4" for x, _ in columns)
        labels = [text.format(LEFT - 6, y + 4, "end", _number(v) + self.y.unit) for y, v in rows]
        labels += [text.format(min(x, RIGHT - 4), BOTTOM + 18, "middle", _number(v) + self.x.unit) for x, v in columns]
        labels += [text.format(2, 13, "start", self.y.label), text.format(RIGHT, HEIGHT - 6, "end", self.x.label)]
        return Markup('<g class="axes"><path d="{}"/>{}</g>').format(grid, Markup("").join(labels))


def _number(value: float) -> str:
    return f"{value:.6g}".replace("-", "−")
