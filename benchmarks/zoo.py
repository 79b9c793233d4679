"""Writes the table of docs/zoo.md from the manifest: `python -m benchmarks.zoo`. A test compares the two."""

from __future__ import annotations

import re
from pathlib import Path

from warpcert.learn.zoo import manifest

PAGE = Path(__file__).parents[1] / "docs" / "zoo.md"
MARKERS = ("<!-- zoo -->", "<!-- end of zoo -->")
EMBEDDED = Path(__file__).parents[1] / "warpcert" / "assets"


def table() -> str:
    """The models with their tasks and figures."""
    head = "name | task | certified accuracy | slack | logits differ by | size | in the package"
    lines = [f"| {head} |", "| --- " * (1 + head.count("|")) + "|"]
    for row in manifest().values():
        figures = "; ".join(f"{share} ({what})" for what, share in row.figures.items()) or "–"
        inside = "yes" if (EMBEDDED / f"{row.name}.safetensors").is_file() else ""
        slack = f"{row.deviation['slack']:g} | {row.deviation['largest']:.1e}" if row.deviation else "– | –"
        lines.append(f"| `{row.name}` | {row.task} | {figures} | {slack} | {row.bytes / 1e6:.1f} MB | {inside} |")
    return "\n".join(lines)


def render(page: str) -> str:
    """docs/zoo.md with the table between its markers."""
    start, end = MARKERS
    return re.sub(f"{start}.*?{end}", lambda _: f"{start}\n{table()}\n{end}", page, flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print("wrote docs/zoo.md")
