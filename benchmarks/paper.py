"""The paper's evaluation as it is kept, and its records checked.

`python -m benchmarks.paper keep runs/paper TO` packs tables, figures and records of `warpcert paper all` into another
folder; `python -m benchmarks.paper check TO` redoes their arithmetic: every certificate, from its own evidence; the
digest of every other measurement; and every cell that certificates give. Quick runs are not kept.
`python -m benchmarks.paper page` writes docs/paper-full.md: every published number beside ours, from results/paper.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from warpcert.paper import journal
from warpcert.paper.cells import accuracy_cells, attacked_cells
from warpcert.paper.certifying import certified
from warpcert.paper.experiments import EXPERIMENTS
from warpcert.paper.experiments.verified import Verified
from warpcert.report.table import TABLE, Cell, Table, signed
from warpcert.runs import store

RESULTS = Path(__file__).resolve().parents[1] / "results"
PAGE = RESULTS.parent / "docs" / "paper-full.md"
ALSO = ("images", "attacked images", "sounds", "g, attacked", "g or abstains, original", "g or abstains, attacked")
HEAD = """# The paper's tables, ours beside them

Written by `python -m benchmarks.paper page` from `results/paper`; `python -m benchmarks.paper check results/paper`
redoes the arithmetic. [The paper's evaluation](paper.md) says what each experiment is. A row says how many pictures it
has."""
LARGEST = 30 * 2**20  # bytes of all that is kept
TIMES = ("seconds per image", "analysis, s", "smoothing, s")


def keep(folder: Path, to: Path) -> int:
    """Copies every experiment that has a table, with its records compressed; returns the bytes."""
    tables = sorted(folder.glob(f"*/{TABLE}"))
    if not tables:
        raise ValueError(f"{folder} holds no tables; run `warpcert paper all --out {folder}`")
    for path in tables:
        table, target = Table.read(path.parent), to / path.parent.name
        if table.quick:
            raise ValueError(f"{path} is of a quick run; keep a full one")
        target.mkdir(parents=True, exist_ok=True)
        for name in (TABLE, *(figure.file for figure in table.figures)):
            shutil.copyfile(path.parent / name, target / name)
        for records in sorted(path.parent.rglob(journal.RECORDS)):
            journal.pack(records.parent, target / records.parent.relative_to(path.parent))
        for name in table.runs:
            store.pack(path.parent / name, target / name)
        for calibration in path.parent.rglob("calibration.json"):
            shutil.copyfile(calibration, target / calibration.relative_to(path.parent))
    size = sum(p.stat().st_size for p in to.rglob("*") if p.is_file())
    if size > LARGEST:
        raise ValueError(f"{to} has {size >> 20} MiB, more than {LARGEST >> 20}")
    return size


def check(folder: Path) -> Iterator[str]:
    """What is wrong, a sentence each."""
    for path in sorted(folder.glob(f"*/{TABLE}")):
        table = Table.read(path.parent)
        if table.quick:
            yield f"{path} is of a quick run"
        for figure in table.figures:
            if not (path.parent / figure.file).is_file():
                yield f"{path} names {figure.file}, which is not there"
        for records in sorted(path.parent.rglob(journal.PACKED)):
            try:
                sum(1 for _ in journal.read_journal(records.parent))
            except ValueError as error:
                yield str(error)
        broken = [
            f"{path.parent / name}: {problem}" for name in table.runs for problem in store.verify(path.parent / name)
        ]
        yield from broken or _cells(table, path.parent)


def _cells(table: Table, folder: Path) -> Iterator[str]:
    """Cells that are not what the certificates of their row give."""
    rows = {row.name: cells for row, cells in zip(EXPERIMENTS[table.name].rows, table.rows, strict=True)}
    runs = {name.removesuffix("/run"): folder / name for name in table.runs}
    for row, remark in zip(EXPERIMENTS[table.name].rows, table.remarks, strict=True):
        if (kept := getattr(row, "kept", "")) and f"results/{kept} " in remark and not isinstance(row, Verified):
            runs[row.name] = RESULTS / kept
    for name, place in runs.items():
        if name not in rows:
            continue  # a run for each range: a row has one cell of each
        certificates = certified(place)
        made = (attacked_cells if certificates[0].certificate.unseen else accuracy_cells)(certificates)
        told = dict(zip(table.columns, rows[name], strict=True))
        for column, ours in made.items():
            if column in told and column not in TIMES and told[column] is not None and not _same(told[column], ours):
                yield f"{place}: {column} is {told[column]} in the table, but its certificates give {ours}"


def page(folder: Path) -> str:
    """Every published number beside ours, as Markdown."""
    lines = [HEAD]
    for name in EXPERIMENTS:
        if not (folder / name / TABLE).is_file():
            continue
        table = Table.read(folder / name)
        where = f"`{table.command}`; {table.device}, {table.date}, {table.seconds:.0f} s of work in all."
        lines += [f"## {table.title}", f"{table.what} {where}", "| case | quantity | published | ours | difference |"]
        lines[-1] += "\n| --- | --- | --- | --- | --- |"
        said = list(dict.fromkeys(filter(None, table.remarks)))
        for row, cited, remark in zip(table.rows, table.published, table.remarks, strict=True):
            mark = f" ({said.index(remark) + 1})" if remark else ""
            for column, ours, known in zip(table.columns, row, cited, strict=True):
                if known is not None or (column in ALSO and ours is not None):
                    cells = (_shown(known and known.value), _shown(ours), signed(ours, known and known.value))
                    lines[-1] += f"\n| {row[0]}{mark} | {column} | {' | '.join(cells)} |"
        lines += ["\n".join(f"{place}. {remark}" for place, remark in enumerate(said, 1))]
        lines += ["\n".join(f"- {note}" for note in table.notes)]
    return "\n\n".join(lines).replace("_(", "\\_(") + "\n"


def _shown(cell: Cell) -> str:
    return "–" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell).replace("|", "\\|")


def _same(told: Cell, ours: Cell) -> bool:
    if isinstance(told, str) and isinstance(ours, float):
        return told.removesuffix(" #") == f"{ours:.3g}"
    return f"{told:.4g}" == f"{ours:.4g}" if isinstance(told, float) and isinstance(ours, float) else told == ours


def main(arguments: list[str]) -> int:
    try:
        if arguments[:1] == ["keep"] and len(arguments) == 3:
            print(f"{keep(Path(arguments[1]), Path(arguments[2])) / 2**20:.1f} MiB in {arguments[2]}")
            arguments = ["check", arguments[2]]
        if arguments == ["page"]:
            PAGE.write_text(page(RESULTS / "paper"), encoding="utf-8")
            print(f"wrote {PAGE}")
            return 0
        if arguments[:1] == ["check"] and len(arguments) == 2:
            problems = list(check(Path(arguments[1])))
            print("\n".join([*problems, f"{len(problems)} problems"]))
            return 1 if problems else 0
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
