"""Figures as files: whole SVG documents, inert, and readable on a phone."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from warpcert.report.chart import Axis, Chart
from warpcert.report.sheet import STYLE, WIDTH, animation, heat, plot, sheet

SVG = "{http://www.w3.org/2000/svg}"


def read(path: Path) -> ElementTree.Element:
    found = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert found.tag == f"{SVG}svg" and found.get("aria-label") and not list(found.iter(f"{SVG}script"))
    return found


def test_a_sheet_holds_its_pictures_and_words(tmp_path: Path) -> None:
    x = (torch.arange(12).reshape(1, 3, 4) * 20).float() / 255
    sheet([[("a < b", x), ("second", x)], [("third", x)]], "pictures", tmp_path / "s.svg")
    found = read(tmp_path / "s.svg")
    assert [t.text for t in found.iter(f"{SVG}text")] == ["a < b", "second", "third"]
    images = list(found.iter(f"{SVG}image"))
    pixels = Image.open(io.BytesIO(base64.b64decode(str(images[0].get("href")).partition(",")[2])))
    assert np.asarray(pixels).tolist() == (x[0] * 255).round().int().tolist()
    tall = float(str(found.get("viewBox")).split()[3])
    for part in images:
        left, top, wide, high = (float(str(part.get(k))) for k in ("x", "y", "width", "height"))
        assert left >= 0 and left + wide <= WIDTH + 0.1 and top + high < tall
        assert high == pytest.approx(0.75 * wide, abs=0.1)
    letters = re.search(r"font:([\d.]+)px", STYLE)
    assert letters and float(letters[1]) * 300 / WIDTH > 10, "on a phone, inside a frame"


def test_an_animation_shows_one_row_at_a_time_and_stands_still_if_asked(tmp_path: Path) -> None:
    frames = [[(f"step {k}", torch.full((1, 2, 2), k / 4))] for k in range(4)]
    animation(frames, "steps", tmp_path / "a.svg")
    found = read(tmp_path / "a.svg")
    delays = [str(g.get("style")) for g in found.iter(f"{SVG}g")]
    assert delays == [f"animation-delay:{1.2 * k:.2f}s" for k in range(4)]
    told = "".join(str(s.text) for s in found.iter(f"{SVG}style"))
    assert "4.80s step-end infinite" in told and "25.000%{opacity:1}" in told
    assert "prefers-reduced-motion:reduce" in told


def test_a_plot_is_a_document(tmp_path: Path) -> None:
    chart = Chart(Axis(0, 2, "times & more"), Axis(0, 1, "E"))
    chart.curve([(0, 1), (2, 0)], "proved")
    plot(chart, 'E "falls"', tmp_path / "p.svg")
    found = read(tmp_path / "p.svg")
    assert found.get("aria-label") == 'E "falls"' and len(list(found.iter(f"{SVG}path"))) == 2


def test_heat_rises_from_black_to_white() -> None:
    shown = heat(torch.tensor([[0.0, 1.0, 2.0, 3.0, 9.0]]), 3)
    assert shown[:, 0].T.tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]
    assert float(heat(torch.zeros(1, 2), 0).abs().max()) == 0
