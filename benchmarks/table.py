"""Certified accuracy: the README's short table, the full one of docs/benchmarks.md and the plots, from results/.

    python -m benchmarks.table pack NAME RUN      keeps the run folder RUN as results/NAME, compressed
    python -m benchmarks.table                    writes summaries, plots, the manifest of models and both tables

Every share is counted on certificates whose arithmetic was redone. results/NAME/summary.json remembers the counts, and
the digest of the file they were counted on.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from matplotlib import rc_context
from matplotlib.figure import Figure

from benchmarks import deviation
from warpcert.classifier import storage
from warpcert.learn.zoo import MANIFEST, listing_of
from warpcert.runs import summary as report
from warpcert.runs.store import PACKED, pack, read_config, read_records, verify
from warpcert.transforms import Box, Transform, get

ROOT = Path(__file__).parents[1]
MARKERS = ("<!-- table -->", "<!-- end of table -->")
STEPS = 50
LICENCE = "Apache-2.0"


@final
@dataclass(frozen=True)
class Measured:
    """A row of rows.toml and what its certificates say: counts at the ranges asked for, and along the whole of Γ."""

    row: dict[str, Any]
    summary: dict[str, Any]
    config: dict[str, Any]

    @property
    def transform(self) -> Transform:
        return get(self.summary["transform"])

    @property
    def count(self) -> int:
        return int(self.summary["count"])

    @property
    def facts(self) -> dict[str, Any] | None:
        """Of the classifier that was certified; None if its run does not tell."""
        return self.config.get("classifier", {}).get("facts")

    @property
    def on_gpu(self) -> bool:
        return bool(self.summary["device"] == "cuda")

    def range(self, at: str) -> str:
        if "ranges" in self.summary:
            return str(self.summary["ranges"][at])
        unit = self.transform.unit
        return f"±{at}{'' if unit in '°%' else ' '}{unit}"

    def shares(self) -> dict[str, str]:
        """By range, the certified accuracy and where it lies over such pictures with confidence 95 %."""
        return {self.range(at): share(k, self.count) for at, k in self.summary["certified"].items()}


def share(k: int, n: int) -> str:
    """k of n as a decimal, with its interval rounded outwards: .824 (.787–.857)."""
    low, high = report.share_interval(k, n)
    ends = math.floor(1000 * low) / 1000, math.ceil(1000 * high) / 1000
    return f"{decimal(k / n)} ({decimal(ends[0])}–{decimal(ends[1])})"


def decimal(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / PACKED).read_bytes()).hexdigest()


def rows_of(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "results" / "rows.toml").read_text(encoding="utf-8"))


def summarise(folder: Path, at: list[float]) -> dict[str, Any]:
    """What results/NAME holds: counted, after a check of every certificate; a ValueError if one does not stand."""
    if problems := verify(folder):
        raise ValueError(f"{folder}: {problems[0]} ({len(problems)} problems in all)")
    rows, config = report.parse(list(read_records(folder))), read_config(folder)
    box, transform = rows[0].certificate.threat.box, rows[0].certificate.threat.transform
    summary = report.summarise(rows)
    right = [(r.certificate, r.certificate.reach == box) for r in rows if r.certificate.label == r.label]

    def certified(part: Any) -> int:
        return sum(whole or c.covers(part) for c, whole in right)

    parts = {f"{a:g}": _part(transform, box, a) for a in at}
    plain = len(transform.parts) == 1 and not transform.disc and not transform.one_sided
    ranges = {} if plain else {"ranges": {a: transform.span(part) for a, part in parts.items()}}
    return {
        "certificates": digest(folder),
        "count": len(rows),
        "kind": str(summary.kind),
        "certified": {a: certified(part) for a, part in parts.items()},
        **ranges,
        "curve": [certified(box.scaled(step / STEPS)) for step in range(STEPS + 1)],
        "top": transform.axes[0].surface(box.upper[0]),
        "transform": transform.name,
        "seconds": round(summary.seconds, 4),
        "passes": round(summary.passes),
        "device": config["device"],
    }


def _part(transform: Transform, box: Box, at: float) -> Box:
    """The range that a row reports: in the unit of the transformation, or of a product a share of its Γ."""
    return transform.box(at) if len(transform.parts) == 1 else box.scaled(at)


def read_measured(root: Path) -> list[Measured]:
    """Every row of rows.toml that has results; a ValueError for one whose summary is out of date."""
    found = []
    for row in rows_of(root)["row"]:
        folder = root / "results" / row["name"]
        if (folder / PACKED).is_file():
            summary = _kept(folder)
            if not _fits(summary, folder, row):
                raise ValueError(f"{folder / 'summary.json'} is out of date: run python -m benchmarks.table")
            found.append(Measured(row, summary, read_config(folder)))
    return found


def _kept(folder: Path) -> dict[str, Any]:
    path = folder / "summary.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _fits(summary: dict[str, Any], folder: Path, row: dict[str, Any]) -> bool:
    asked = [f"{a:g}" for a in row["at"]]
    return summary.get("certificates") == digest(folder) and list(summary.get("certified", ())) == asked


def short_table(root: Path) -> str:
    """The README's: the rows with a headline, at their largest range, and one plot."""
    lines = ["| | range | certified accuracy (95 %) | kind | published |", "| --- " * 5 + "|"]
    chosen = [m for m in read_measured(root) if "headline" in m.row]
    for m in chosen:
        range_, certified = list(m.shares().items())[-1]
        published = m.row["published"].get(list(m.summary["certified"])[-1], "none")
        what = f"{m.row['headline']}: `{m.row['method']}`"
        lines.append(f"| {what} | {range_} | **{certified}** | {m.summary['kind']} | {published} |")
    if not chosen:
        return "No row has been measured yet."
    plot = chosen[min(1, len(chosen) - 1)].row["plot"]
    return "\n".join([*lines, "", f"![Certified accuracy against the range: {plot}](docs/img/accuracy-{plot}.svg)"])


def full_table(root: Path) -> str:
    """That of docs/benchmarks.md: every row with its cost, date and command, and the sources of published figures."""
    head = "what | certified accuracy (95 %) | kind | published | pictures | s per certificate | measured | command"
    lines = [f"| {head} |", "| --- " * (1 + head.count("|")) + "|"]
    measured = read_measured(root)
    for m in measured:
        certified = "<br>".join(f"{range_}: **{text}**" for range_, text in m.shares().items())
        published = "<br>".join(f"{m.range(at)}: {text}" for at, text in m.row["published"].items()) or "none"
        cost = f"{m.summary['seconds']:.2g} ({'GPU' if m.on_gpu else 'CPU'})"
        task, command = f"{m.row['task']}: `{m.row['method']}`", f"`{m.row['command']}`"
        cells = (task, certified, m.summary["kind"], published, str(m.count), cost, str(m.row["measured"]), command)
        lines.append(f"| {' | '.join(cells)} |")
    if not measured:
        return "No row has been measured yet."
    sources = "; ".join(f"{name}: {source}" for name, source in rows_of(root)["sources"].items())
    plots = sorted({m.row["plot"] for m in measured})
    shown = [f"![Certified accuracy against the range: {p}](img/accuracy-{p}.svg)" for p in plots]
    return "\n".join([*lines, "", f"Published figures: {sources}.", "", *shown])


def replaced(page: str, text: str) -> str:
    """The page with the text between the markers."""
    pattern = re.compile(re.escape(MARKERS[0]) + ".*?" + re.escape(MARKERS[1]), re.S)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"the page needs the markers {' and '.join(MARKERS)} once")
    return pattern.sub(lambda _: f"{MARKERS[0]}\n{text}\n{MARKERS[1]}", page)


def plot(root: Path) -> None:
    """docs/img/accuracy-PLOT.svg: one curve per row, in the band of its interval."""
    groups: dict[str, list[Measured]] = {}
    for m in read_measured(root):
        groups.setdefault(m.row["plot"], []).append(m)
    folder = root / "docs" / "img"
    folder.mkdir(parents=True, exist_ok=True)
    for name, members in groups.items():
        with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
            _drawn(members).savefig(folder / f"accuracy-{name}.svg", metadata={"Date": None, "Creator": None})


def _drawn(members: list[Measured]) -> Figure:
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for m in members:
        t, top, curve = m.transform.axes[0], m.summary["top"], m.summary["curve"]
        at = [t.surface(t.internal(top) * i / STEPS) for i in range(STEPS + 1)]
        label = f"{m.row['task']}: {m.row['method']} ({m.summary['kind']})"
        low, high = zip(*(report.share_interval(k, m.count) for k in curve), strict=True)
        (line,) = axes.step(at, [k / m.count for k in curve], where="pre", label=label, lw=1.8)
        axes.fill_between(at, low, high, step="pre", color=line.get_color(), alpha=0.12, lw=0)
    t = members[0].transform
    axes.set(ylim=(0, 1.02), xlabel=f"every {t.noun} up to … {t.axes[0].unit}", ylabel="certified accuracy")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6, loc="lower left")
    return figure


def write_manifest(root: Path) -> None:
    """assets/models.json: the embedded models and every recipe with weights, with the figures of the rows that certify
    them as they are.
    """
    measured = read_measured(root)
    assets, listings = root / "warpcert" / "assets", []
    weights = {p.parent.name: p for p in root.glob("recipes/*/model.safetensors")}
    weights |= {p.stem: p for p in assets.glob("*.safetensors")}
    for name, path in sorted(weights.items()):
        _, facts, about = storage.read(path)
        own = [m for m in measured if m.row["model"] == name and m.facts in (None, facts)]
        figures = {f"{m.row['method']}, {r}, {m.summary['kind']}": text for m in own for r, text in m.shares().items()}
        data, threat = str(about.notes["dataset"]).removesuffix(".npz"), about.threat
        task = f"{threat.transform.noun} within {threat.transform.span(threat.box)}" if threat else "plain"
        line = listing_of(path, name, f"{data}, {task}", LICENCE, figures)
        listings.append(line | deviation.listed(root / "recipes" / name))
    (assets / MANIFEST).write_text(json.dumps(listings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def regenerate(root: Path) -> None:
    for row in rows_of(root)["row"]:
        folder = root / "results" / row["name"]
        if not (folder / PACKED).is_file():
            print(f"{row['name']}: no results yet")
            continue
        if not _fits(_kept(folder), folder, row):
            text = json.dumps(summarise(folder, row["at"]))
            (folder / "summary.json").write_text(text + "\n", encoding="utf-8")
        m = Measured(row, _kept(folder), read_config(folder))
        print(f"{row['name']}: {m.shares()} of {m.count}, {m.summary['seconds']} s each on {m.summary['device']}")
    plot(root)
    write_manifest(root)
    for page, text in ((root / "README.md", short_table(root)), (root / "docs" / "benchmarks.md", full_table(root))):
        page.write_text(replaced(page.read_text(encoding="utf-8"), text), encoding="utf-8")


def main(arguments: list[str]) -> int:
    try:
        if arguments[:1] == ["pack"] and len(arguments) == 3:
            pack(Path(arguments[2]), ROOT / "results" / arguments[1])
        elif not arguments:
            regenerate(ROOT)
        else:
            print(__doc__)
            return 2
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
