"""Drawings for a page: matplotlib figures and small dials as SVG that takes its colours from the page's style sheet."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from warpcert.certificates import Certificate, Kind
from warpcert.runs.summary import Row, accuracy_curve, error_curves
from warpcert.transforms import Rotation

__all__ = ["accuracy_figure", "data_uri", "dial", "error_figure", "picture"]

# Colours that stand for the style sheet's variables until the drawing is text.
PAPER, INK, MUTED, LINE = "#010101", "#010102", "#010103", "#010104"
KINDS = {Kind.PROVED: "#010105", Kind.WITH_CONFIDENCE: "#010106", Kind.HEURISTIC: "#010107"}
VARIABLES = {
    PAPER: "--card",
    INK: "--ink",
    MUTED: "--muted",
    LINE: "--line",
    KINDS[Kind.PROVED]: "--proved",
    KINDS[Kind.WITH_CONFIDENCE]: "--confidence",
    KINDS[Kind.HEURISTIC]: "--heuristic",
}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "ytick.left": False,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
DASHES = ("-", "--", ":", "-.", (0, (6, 2, 1, 2, 1, 2)), (0, (1, 3)))
SIDE = 128  # pixels of the longest side of a picture on the page


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    return figure, figure.add_subplot()


def _plain(text: str) -> str:
    """A label as it is: no formulas, and not hidden for an underscore."""
    return "\u200b" + text.replace("$", r"\$")


def _inline(figure: Figure, name: str, alt: str) -> Markup:
    """The figure as an <svg> element: own ids, the page's fonts and colours, no size of its own."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'\b(id="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(
        r"font: ([\d.]+px) [^;\"]*|font-family: [^;\"]*", lambda m: f"font-size: {m[1]}" if m[1] else "", text
    )
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{Markup.escape(alt)}"', 1))


def accuracy_figure(series: Sequence[tuple[str, Sequence[Row]]], name: str) -> Markup:
    """Certified accuracy against γ for runs of one transformation, each (its name, its rows)."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure, axes = _figure()
        drawn: dict[str, int] = {}
        for label, rows in series:
            first = rows[0].certificate
            t, box = first.threat.transform, first.threat.box
            kind = Kind.weakest(*(r.certificate.kind for r in rows))
            steps, shares = accuracy_curve(rows)
            again, place = divmod(drawn.setdefault(kind, 0), len(DASHES))
            drawn[kind] += 1
            xs = [t.surface(box.upper[0] * s) for s in steps]
            look: dict[str, Any] = {"ls": DASHES[place], "lw": 1.9, "alpha": 0.45 if again else 1.0}
            axes.step(xs, shares, where="pre", color=KINDS[kind], **look, label=_plain(label))
        axes.set_ylim(0, 1.03)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"every {t.noun} up to … {t.unit}")
        axes.set_ylabel("certified accuracy")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2, labelcolor=INK)
        return _inline(figure, name, f"Certified accuracy against the {t.noun}: " + ", ".join(n for n, _ in series))


def error_figure(x: Tensor, certificate: Certificate, name: str) -> Markup:
    """‖ε(β,γ,x)‖ against γ for some β's, and the certificate's E above them."""
    many = x.numel() > 10_000
    at, errors = error_curves(x, certificate, 6 if many else 12, 61 if many else 181)
    error, t = certificate.error, certificate.threat.transform
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure, axes = _figure()
        axes.plot(at, errors.T, color=MUTED, lw=0.7, alpha=0.65)
        axes.axhline(error.E, color=KINDS[error.kind], lw=1.9)
        axes.annotate(
            f"E = {error.E:.4f}, {error.kind}",
            (at[0], error.E),
            (0, 3),
            textcoords="offset points",
            va="bottom",
            color=KINDS[error.kind],
        )
        axes.set_xlim(at[0], at[-1])
        axes.set_ylim(0, 1.15 * max(error.E, float(errors.max())))
        axes.set_xlabel(f"γ in {t.unit}")
        axes.set_ylabel("‖ε(β, γ, x)‖₂")
        return _inline(figure, name, f"Interpolation error against γ for some β, and the bound E = {error.E:.4f}")


def data_uri(content: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def picture(x: Tensor) -> str:
    """A picture [C,H,W] in [0,1] with one or three channels as a data URI: PNG, or a smaller JPEG if it is large."""
    pixels = (x.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] != 3 else pixels)
    out = io.BytesIO()
    if max(image.size) > SIDE:
        image.thumbnail((SIDE, SIDE))
        image.save(out, "JPEG", quality=85)
        return data_uri(out.getvalue(), "image/jpeg")
    image.save(out, "PNG", optimize=True)
    return data_uri(out.getvalue(), "image/png")


def waveform(x: Tensor, points: int = 120) -> Markup:
    """A sound [C,L] in [−1,1] as an SVG of its extremes over time."""
    signal = x[0].cpu().numpy()
    parts = [p for p in np.array_split(signal, points) if len(p)]
    top = " ".join(f"{i * 100 / len(parts):.1f},{50 - 48 * float(p.max()):.1f}" for i, p in enumerate(parts))
    low = " ".join(
        f"{i * 100 / len(parts):.1f},{50 - 48 * float(p.min()):.1f}" for i, p in reversed(list(enumerate(parts)))
    )
    return Markup(f'<svg class="wave" viewBox="0 0 100 100" aria-hidden="true"><polygon points="{top} {low}"/></svg>')


def dial(certificate: Certificate, image: str | None) -> Markup:
    """The certified range as a drawing, 100 × 100: an arc around the picture for a rotation, a bar below it for another
    parameter, a rectangle beside it for two. The pale part is Γ.
    """
    t, box, reach = certificate.threat.transform, certificate.threat.box, certificate.reach
    inner = Markup("")
    turning = isinstance(t, Rotation)
    side = 60 if turning or box.dim > 1 else 84
    top = (100 - side) / 2 if turning or box.dim > 1 else 2
    if image:
        inner = Markup('<image href="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
            image, (100 - side) / 2, top, side, side
        )
    colour = {Kind.PROVED: "proved", Kind.WITH_CONFIDENCE: "confidence", Kind.HEURISTIC: "heuristic"}[certificate.kind]
    shapes = [(box, "track"), *([(reach, colour)] if reach else [])]
    if turning:
        marks = [Markup('<circle class="ring" cx="50" cy="50" r="46"/>')]
        marks += [_arc(t.surface(b.lower[0]), t.surface(b.upper[0]), css) for b, css in shapes]
    elif box.dim == 1:
        marks = [_bar(b.lower[0], b.upper[0], box.lower[0], box.upper[0], css) for b, css in shapes]
    else:
        marks = [_rectangle(b.lower[:2], b.upper[:2], box.lower[:2], box.upper[:2], css) for b, css in shapes]
    body = Markup("").join([*marks, inner]) if box.dim > 1 else Markup("").join([inner, *marks])
    return Markup('<svg class="dial" viewBox="0 0 100 100" aria-hidden="true">{}</svg>').format(body)


def _arc(low: float, high: float, css: str) -> Markup:
    """From low to high degrees, 0° at the top, counter-clockwise as the picture is turned."""
    if high - low >= 359.9:
        return Markup(f'<circle class="{css}" cx="50" cy="50" r="46"/>')
    (x0, y0), (x1, y1) = (
        (50 - 46 * math.sin(math.radians(a)), 50 - 46 * math.cos(math.radians(a))) for a in (low, high)
    )
    large = int(high - low > 180)
    return Markup(f'<path class="{css}" d="M{x0:.2f} {y0:.2f}A46 46 0 {large} 0 {x1:.2f} {y1:.2f}"/>')


def _bar(low: float, high: float, first: float, last: float, css: str) -> Markup:
    at = [8 + 84 * (v - first) / ((last - first) or 1) for v in (low, high)]
    return Markup(f'<path class="{css}" d="M{at[0]:.2f} 94H{at[1]:.2f}"/>')


def _rectangle(
    low: Sequence[float], high: Sequence[float], first: Sequence[float], last: Sequence[float], css: str
) -> Markup:
    """The first parameter to the right, the second down."""
    (x0, x1), (y0, y1) = (
        [4 + 92 * (v - f) / ((e - f) or 1) for v in ends] for *ends, f, e in zip(low, high, first, last, strict=True)
    )
    return Markup(
        f'<rect class="{css} area" x="{x0:.2f}" y="{y0:.2f}" width="{x1 - x0:.2f}" height="{y1 - y0:.2f}" rx="2"/>'
    )
