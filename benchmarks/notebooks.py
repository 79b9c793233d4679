"""Runs the notebooks of docs/notebooks and keeps what they print and draw.

    python -m benchmarks.notebooks [NAME ...]      all of them, or those named

Tests run them too, and keep nothing.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # kernels use one core each: others may be busy


def executed(path: Path, limit: int = 300) -> nbformat.NotebookNode:
    """The notebook, run from the root of the repository in a fresh kernel; an exception in a cell is raised here."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=limit, resources={"metadata": {"path": str(ROOT)}}, record_timing=False)
    return client.execute()


def main(names: list[str]) -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            start = time.perf_counter()
            notebook = executed(path)
            for cell in notebook.cells:
                cell.metadata = {}
                if cell.cell_type == "code":  # progress is for those who wait
                    cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
            notebook.metadata.pop("language_info", None)  # it differs from machine to machine
            nbformat.write(notebook, path)
            print(f"{path.stem}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
