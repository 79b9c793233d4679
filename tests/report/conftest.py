"""Three runs and a paper result, the page about them, and a browser to look at it with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from warpcert.app.cli import main

FAST = ["--model", "mnist-rotation", "--n", "300", "--windows", "1", "--count", "3"]
SAMPLED = ["--betas", "40", "--bound", "sampled"]
EVIL = "<script>document.title='owned'</script>"


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory, table: dict[str, Any]) -> Path:
    """Three runs and a paper result, with names and texts that try to become markup."""
    folder = tmp_path_factory.mktemp("runs")
    assert main(["certify", *FAST, *SAMPLED, "--out", str(folder / "dist-x")]) == 0
    assert main(["certify", "--gamma", "0.2", "--count", "1", "--out", str(folder / "exact")]) == 0
    brightness = ["--transform", "brightness", "--gamma", "0.02", "--sigma", "0.05", "--noise", "0.15"]
    assert main(["certify", "--method", "base", *FAST, *brightness, "--out", str(folder / "_a & <b> $x$")]) == 0
    paper = folder / "paper" / "violations"
    shutil.copytree(folder / "dist-x", paper / "row")
    figure = Figure(figsize=(2, 1))
    figure.add_subplot().plot([0, 1])
    figure.savefig(paper / "drawing.svg")
    (paper / "table.json").write_text(json.dumps(table), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def evil() -> str:
    """What would take the page over, if it were taken for markup."""
    return EVIL


@pytest.fixture(scope="session")
def table() -> dict[str, Any]:
    cited = {"value": 0.9, "source": f'Table 1 "{EVIL}'}
    return {
        "format": "warpcert-table-1",
        "name": "violations",
        "title": f"Violations {EVIL}",
        "what": "How many pictures break the heuristic radius.",
        "quick": True,
        "command": "warpcert paper violations --quick",
        "seconds": 12.5,
        "columns": ["case", "share", "time"],
        "rows": [["MNIST", 0.123456, None], [EVIL, 1, "fast"]],
        "published": [[None, cited, None], [None, None, None]],
        "remarks": ["smaller on purpose", ""],
        "notes": [EVIL],
        "figures": [{"file": "drawing.svg", "caption": "A drawing."}],
        "runs": ["row"],
    }


@pytest.fixture(scope="session")
def page(results: Path) -> Path:
    out = results.parent / "report.html"
    assert main(["report", str(results), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("there is no chromium binary to look at the page with")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = shutil.which("chromedriver")
    service = webdriver.ChromeService(driver) if driver else webdriver.ChromeService()
    chrome = webdriver.Chrome(options=options, service=service)
    yield chrome
    chrome.quit()
