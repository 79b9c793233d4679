"""The website builds without a warning, and shows every public name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import warpcert as wc

ROOT = Path(__file__).parents[2]
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_the_reference_has_every_public_name() -> None:
    written = set(re.findall(r"^::: (\S+)$", API, re.M))
    for name in wc.__all__:
        thing = getattr(wc, name)
        if isinstance(thing, int | str):
            assert f"`wc.{name}`" in API
        else:
            assert f"{thing.__module__}.{thing.__qualname__}" in written, f"docs/api.md lacks {name}"


def test_the_reference_has_every_method() -> None:
    from warpcert.methods import METHODS

    for method in METHODS.values():
        assert f"::: {method.__module__}.{method.__qualname__}\n" in API


def test_it_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the website is an extra: pip install 'warpcert[docs]'")
    pytest.importorskip("mkdocstrings", reason="the website is an extra: pip install 'warpcert[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-3000:]
    page = (tmp_path / "notebooks" / "certify_a_digit" / "index.html").read_text(encoding="utf-8")
    assert "Proved: mnist-rotation-exact" in page and "data:image/png;base64" in page
    assert "certify_all" in (tmp_path / "api" / "index.html").read_text(encoding="utf-8")
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert {"theory/", "project/DESIGN/"} <= {entry["location"] for entry in index["docs"]}
    for path in tmp_path.rglob("*.html"):
        outside = re.findall(r'(?:src|<link[^>]*href)="(https?://[^"]+)"', path.read_text(encoding="utf-8"))
        assert not outside, f"{path.name} loads {outside[0]}"
