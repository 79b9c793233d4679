"""The figures of the report: what was certified, how far the errors behind it go, each with words to read it by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import final

import torch
from markupsafe import Markup
from torch import Tensor

from warpcert.certificates import Certificate, Kind
from warpcert.certificates.words import thing
from warpcert.errors.base import interpolation_error
from warpcert.report.chart import Axis, Chart, Point
from warpcert.runs.summary import Row, accuracy_curve, share_interval
from warpcert.transforms import Transform

__all__ = ["CSS", "Entry", "Figure", "Series", "accuracy", "error", "errors", "ranges"]

CSS = {Kind.PROVED: "proved", Kind.WITH_CONFIDENCE: "confidence", Kind.HEURISTIC: "heuristic"}
DASHES = ("", "7 4", "2 3", "9 3 2 3", "14 4", "1 5")  # tell runs of one kind apart

Series = tuple[str, Sequence[Row]]  # the name of a run and its rows


@final
@dataclass(frozen=True)
class Entry:
    """A line of a legend."""

    name: str
    kind: Kind
    dash: str = ""
    mark: str = ""  # in place of a piece of the curve


@final
@dataclass(frozen=True)
class Figure:
    """A drawing, what it shows and how to read it."""

    title: str
    drawing: Markup
    caption: str
    legend: list[Entry] = field(default_factory=list)


def _far(certificate: Certificate, share: float = 1.0) -> float:
    """The end of share·Γ that is farther from 0, along its first axis, in surface units without its sign."""
    t, box = certificate.threat.transform, certificate.threat.box
    return max(abs(t.axes[0].surface(end[0] * share)) for end in (box.lower, box.upper))


def _unit(t: Transform) -> str:
    """Of the first axis; the other parts of a product are in proportion."""
    return t.unit_name if len(t.parts) == 1 else f"{t.axes[0].unit_name}, the other parts in proportion"


def _wide(value: float) -> float:
    """An axis needs a length."""
    return value or 1.0


def accuracy(title: str, series: Sequence[Series]) -> Figure:
    """Certified accuracy against the range, for runs of one transformation, each with its interval."""
    t = series[0][1][0].certificate.threat.transform
    top = _wide(max(_far(rows[0].certificate) for _, rows in series))
    chart = Chart(Axis(0, top, f"every {t.noun} up to … {_unit(t)}"), Axis(0, 100, "certified accuracy", "%"))
    legend: list[Entry] = []
    for name, rows in series:
        kind = Kind.weakest(*(r.certificate.kind for r in rows))
        steps, shares = accuracy_curve(rows)
        at = [_far(rows[0].certificate, s) for s in steps]
        bounds = [share_interval(round(share * len(rows)), len(rows)) for share in shares]
        dash = DASHES[sum(entry.kind is kind for entry in legend) % len(DASHES)]
        if len(series) == 1:
            low, high = (_stairs(at, [100 * b[end] for b in bounds]) for end in (0, 1))
            chart.band(low, high, CSS[kind])
        else:
            chart.whisker((at[-1], 100 * bounds[-1][0]), 100 * bounds[-1][1], CSS[kind])
        chart.curve(_stairs(at, [100 * s for s in shares]), CSS[kind], dash)
        legend.append(Entry(name, kind, dash))
    what, drawn = thing(t), "The pale band" if len(series) == 1 else "The vertical bar at its end"
    caption = (
        f"Pick a range on the horizontal axis: the line's height is the share of {what}s whose correct answer is "
        f"certified under every {t.noun} up to it. {drawn} is the 95 % confidence interval of that share, since the "
        f"certified {what}s are only a sample."
    )
    alt = f"Certified accuracy against the {t.noun}: {', '.join(name for name, _ in series)}"
    return Figure(title, chart.svg(alt), caption, legend)


def _stairs(at: Sequence[float], values: Sequence[float]) -> list[Point]:
    """A step function that has values[i] up to at[i], from there on the next one."""
    points = [(at[0], values[0])]
    for place in range(1, len(at)):
        points += [(at[place - 1], values[place]), (at[place], values[place])]
    return points


def ranges(rows: Sequence[Row]) -> Figure:
    """The certified range of every picture, the longest first."""
    threat = rows[0].certificate.threat
    t, box = threat.transform, threat.box
    first = t.axes[0]
    low, high = first.surface(box.lower[0]), first.surface(box.upper[0])
    chart = Chart(Axis(0, len(rows), f"{thing(t)}s", whole=True), Axis(low, _wide(high), f"γ in {_unit(t)}"))
    found: list[tuple[bool, float, float]] = []
    for row in rows:
        if (reach := row.certificate.reach) is not None:
            found.append(
                (row.certificate.label == row.label, first.surface(reach.lower[0]), first.surface(reach.upper[0]))
            )
    found.sort(key=lambda bar: (not bar[0], bar[1] - bar[2]))
    right, kind = sum(good for good, _, _ in found), Kind.weakest(*(r.certificate.kind for r in rows))
    width = max(0.3, min(9.0, 0.7 * 310 / len(rows)))
    bars = [(place + 0.5, a, b) for place, (_, a, b) in enumerate(found)]
    chart.bars(bars[:right], CSS[kind], width)
    chart.bars(bars[right:], "wrong", width)
    sure = "should hold" if kind is Kind.HEURISTIC else "holds"
    none, bars_said = len(rows) - len(found), f"{right} bar{'' if right == 1 else 's'}"
    caption = (
        f"One bar for each {thing(t)}, the longest first: its answer {sure} under every {t.noun} from the lower to the "
        f"upper end of the bar. {bars_said} with the correct answer, {len(found) - right} with a wrong one (red); "
        f"{none} of {len(rows)} {thing(t)}s have no certificate."
    )
    return Figure(f"Certified range of each {thing(t)}", chart.svg(f"Certified range per {thing(t)}"), caption)


def errors(title: str, series: Sequence[Series]) -> Figure | None:
    """E against Γ: one dot per run at the median of its certificates, a bar over the middle half of them. None unless
    two runs have errors.
    """
    t = series[0][1][0].certificate.threat.transform
    found = [(name, _far(rows[0].certificate), _quartiles(rows), rows) for name, rows in series]
    known = [(name, end, q, rows) for name, end, q, rows in found if q is not None]
    if len(known) < 2:
        return None
    wide, tall = 1.15 * _wide(max(end for _, end, _, _ in known)), 1.2 * max(q[2] for _, _, q, _ in known)
    chart = Chart(Axis(0, wide, f"Γ: every {t.noun} up to … {_unit(t)}"), Axis(0, tall, "E"))
    legend = []
    for number, (name, end, (low, middle, high), rows) in enumerate(known, 1):
        kind = Kind.weakest(*(r.certificate.error.kind for r in rows))
        chart.bars([(end, low, high)], CSS[kind], 2)
        chart.dot((end, middle), CSS[kind])
        chart.note((end, middle), str(number), CSS[kind])
        legend.append(Entry(f"{name}: {middle:.3g}", kind, mark=str(number)))
    caption = (
        "E bounds the distance between what the classifier sees and what the proof reasons about in its place (the "
        "square root of the sum of squared differences). A dot marks a run's median, its bar the middle half. "
        "A wider range of attacks makes E larger; the smaller E is, the further the certificates reach."
    )
    return Figure(title, chart.svg(f"E against the range of the {t.noun}"), caption, legend)


def _quartiles(rows: Sequence[Row]) -> tuple[float, float, float] | None:
    """Of the finite E's; None if there are none."""
    values = [r.certificate.error.E for r in rows if 0 < r.certificate.error.E < math.inf]
    if not values:
        return None
    low, middle, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return low, middle, high


def error(x: Tensor, certificate: Certificate) -> Figure | None:
    """‖ε(β,γ,x)‖ against γ for some β's and the certificate's E above them; None where E bounds something else."""
    bound, t = certificate.error, certificate.threat.transform
    if certificate.bounded is None or not math.isfinite(bound.E):
        return None
    many = x.numel() > 10_000
    at, curves = _error_curves(x, certificate, 6 if many else 12, 61 if many else 121)
    top = 1.2 * max(bound.E, *(max(curve) for curve in curves))
    chart = Chart(Axis(at[0], _wide(at[-1]), f"γ in {t.unit_name}"), Axis(0, _wide(top), "error"))
    for curve in curves:
        chart.curve(list(zip(at, curve, strict=True)), "thin plain")
    css = CSS[bound.kind]
    chart.curve([(at[0], bound.E), (at[-1], bound.E)], css)
    chart.note((at[0], bound.E), f"E = {bound.E:.3g}, {bound.kind}", css)
    caption = (
        f"A {thing(t)} transformed by the attacker and then by the classifier is not quite the same as one transformed "
        "once by both together. Each grey line shows that error, against the attacker's γ, for one random β of the "
        f"classifier. The coloured line is E, the bound that the certificate uses: the β's whose line rises above it "
        f"have probability at most ρ = {bound.rho:.3g}."
    )
    alt = f"Interpolation error against γ for some β, and the bound E = {bound.E:.4f}"
    return Figure(f"Error of the first {thing(t)}", chart.svg(alt), caption)


def _error_curves(
    x: Tensor, certificate: Certificate, betas: int, gammas: int
) -> tuple[list[float], list[list[float]]]:
    """γ along the first axis in surface units, and ‖ε(β,γ,x)‖ at each for some β's."""
    threat, defence = certificate.threat, certificate.bounded
    assert defence is not None
    box = threat.box
    beta = defence.draw_beta(betas, torch.Generator().manual_seed(0))
    gamma = torch.zeros(gammas, box.dim, dtype=torch.float64)
    gamma[:, 0] = torch.linspace(box.lower[0], box.upper[0], gammas, dtype=torch.float64)
    z = x.cpu().double()
    found = [interpolation_error(z, defence, threat, b.expand(gammas, -1), gamma).tolist() for b in beta]
    return [threat.transform.surface(v) for v in gamma[:, 0].tolist()], found
