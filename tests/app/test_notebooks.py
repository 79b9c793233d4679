"""The notebooks run, and keep what they printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))}
RUN = "import sys; from pathlib import Path; from benchmarks.notebooks import executed; executed(Path(sys.argv[1]))"


def ran(name: str) -> None:
    pytest.importorskip("nbclient", reason="notebooks need an extra: pip install 'warpcert[docs]'")
    pytest.importorskip("ipykernel", reason="notebooks need an extra: pip install 'warpcert[docs]'")
    done = subprocess.run([sys.executable, "-c", RUN, str(NOTEBOOKS[name])], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_they_keep_their_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    for name, path in NOTEBOOKS.items():
        cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
        assert all(cell["execution_count"] == n for n, cell in enumerate(cells, 1)), f"{name}: run benchmarks.notebooks"
        assert sum(bool(cell["outputs"]) for cell in cells) >= 3
        assert not any(o["output_type"] == "error" or o.get("name") == "stderr" for c in cells for o in c["outputs"])
        assert path.stat().st_size < 200_000


def test_one_runs() -> None:
    ran("certify_a_digit")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NOTEBOOKS) - {"certify_a_digit"}))
def test_the_others_run(name: str) -> None:
    ran(name)
