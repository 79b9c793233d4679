"""Small drawings: pictures, sounds and certified ranges."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from PIL import Image
from torch import Tensor

from warpcert.certificates import Certificate
from warpcert.report.figures import CSS

__all__ = ["data_uri", "dial", "picture", "waveform"]

SIDE = 128  # pixels of the longest side of a picture on the page


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
    """The certified range as a drawing, 100 × 100: an arc around the picture if it turns, a bar below it for another
    parameter, a rectangle beside it for two. The pale part is Γ.
    """
    t, box, reach = certificate.threat.transform, certificate.threat.box, certificate.reach
    inner, around = Markup(""), t.dial or box.dim > 1
    side, top = (60, 20) if around else (84, 2)
    if image:
        place = Markup('<image href="{}" x="{}" y="{}" width="{}" height="{}"/>')
        inner = place.format(image, (100 - side) / 2, top, side, side)
    shapes = [(box, "track"), *([(reach, CSS[certificate.kind])] if reach else [])]
    if t.dial:
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
