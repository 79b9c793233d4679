"""Figures that are files of their own: SVG with pictures inside, to be read on light and dark pages and on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from markupsafe import Markup
from torch import Tensor

from warpcert.report.chart import Chart
from warpcert.report.svg import picture

__all__ = ["Shown", "animation", "heat", "plot", "sheet"]

Shown = tuple[str, Tensor]  # words below a picture, and the picture [C,H,W] in [0,1]

WIDTH, GAP, LINE = 360, 8, 18  # units of a drawing, which is shown 320 to 440 pixels wide
LARGE = 440  # pixels, where there is room
SECONDS = 1.2  # of each picture of an animation
# Greys and colours that are read on white and on black.
STYLE = (
    "text{font:12.5px system-ui,sans-serif;fill:#868e96}image{image-rendering:pixelated}"
    ".axes path{stroke:#868e96;stroke-opacity:.4;fill:none}.curve{stroke:var(--c);stroke-width:2.2;fill:none}"
    ".dots,.note{fill:var(--c)}.proved{--c:#2f9a66}.confidence{--c:#4a86cf}.heuristic{--c:#c2832a}.plain{--c:#868e96}"
)


def plot(chart: Chart, alt: str, path: Path) -> None:
    """Axes as a file."""
    inner = str(chart.svg(alt))
    _write(path, inner[: inner.index(">")].removeprefix("<svg"), inner[inner.index(">") + 1 : -len("</svg>")])


def sheet(rows: Sequence[Sequence[Shown]], alt: str, path: Path) -> None:
    """Rows of pictures, each with its words below."""
    height, body = _rows(rows)
    _write(path, _frame(height, alt), body)


def animation(frames: Sequence[Sequence[Shown]], alt: str, path: Path) -> None:
    """One row of pictures after the other, for ever; who wants no motion sees the last one."""
    drawn = [_rows([frame]) for frame in frames]
    count, each = len(frames), 100 / len(frames)
    steps = f"@keyframes f{{0%,{each:.3f}%{{opacity:1}}{each + 0.001:.3f}%,100%{{opacity:0}}}}"
    moving = f".f{{opacity:0;animation:f {SECONDS * count:.2f}s step-end infinite}}"
    still = "@media (prefers-reduced-motion:reduce){.f{animation:none}.f:last-of-type{opacity:1}}"
    parts = [
        Markup('<g class="f" style="animation-delay:{:.2f}s">{}</g>').format(SECONDS * place, body)
        for place, (_, body) in enumerate(drawn)
    ]
    style = Markup("<style>{}</style>").format(Markup(steps + moving + still))
    _write(path, _frame(max(height for height, _ in drawn), alt), style + Markup("").join(parts))


def heat(values: Tensor, most: float) -> Tensor:
    """Values [H,W] in 0 … most as a picture [3,H,W]: black, red, yellow, white."""
    level = (values / (most or 1.0)).clamp(0, 1).float().cpu()
    return torch.stack([(3 * level - place).clamp(0, 1) for place in range(3)])


def _rows(rows: Sequence[Sequence[Shown]]) -> tuple[float, Markup]:
    columns = max(map(len, rows))
    side = (WIDTH - GAP * (columns - 1)) / columns
    parts, top = [], 0.0
    for row in rows:
        tall = max(side * x.shape[-2] / x.shape[-1] for _, x in row)
        for place, (words, x) in enumerate(row):
            left = place * (side + GAP)
            form = '<image href="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>'
            parts.append(Markup(form).format(picture(x), left, top, side, tall))
            form = '<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>'
            parts.append(Markup(form).format(left + side / 2, top + tall + 13, words))
        top += tall + LINE + GAP
    return top - GAP, Markup("").join(parts)


def _frame(height: float, alt: str) -> Markup:
    return Markup(' role="img" aria-label="{}" viewBox="0 0 {} {:.1f}"').format(alt, WIDTH, height)


def _write(path: Path, attributes: str, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f'<svg xmlns="http://www.w3.org/2000/svg" width="{LARGE}"{attributes}><style>{STYLE}</style>{body}</svg>\n'
    path.write_text(text, encoding="utf-8")
