"""The README's table of certified accuracy, from the certificates in results/.

    python -m benchmarks.table pack NAME RUN      keeps the run folder RUN as results/NAME, compressed
    python -m benchmarks.table                    writes summaries, plots, the manifest of models and the README's table

Every share is counted on certificates whose arithmetic was redone. results/NAME/summary.json remembers the counts, and
the digest of the file they were counted on.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from warpcert.learn.zoo import MANIFEST, listing_of
from warpcert.networks.resnet import load_weights
from warpcert.runs import summary as report
from warpcert.runs.store import PACKED, pack, read_config, read_records, verify
from warpcert.transforms import get

ROOT = Path(__file__).parents[1]
MARKERS = ("<!-- table -->", "<!-- end of table -->")
STEPS = 50
LICENCE = "Apache-2.0"


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / PACKED).read_bytes()).hexdigest()


def summarise(folder: Path, at: list[float]) -> dict[str, Any]:
    """What results/NAME holds: counted, after a check of every certificate; a ValueError if one does not stand."""
    if problems := verify(folder):
        raise ValueError(f"{folder}: {problems[0]} ({len(problems)} problems in all)")
    rows, config = report.parse(list(read_records(folder))), read_config(folder)
    box, transform = rows[0].certificate.threat.box, rows[0].certificate.threat.transform
    summary = report.summarise(rows)
    right = [(r.certificate, r.certificate.reach == box) for r in rows if r.certificate.label == r.label]

    def share(part: Any) -> float:
        return sum(whole or c.covers(part) for c, whole in right) / len(rows)

    shares = {f"{a:g}": share(transform.box(a)) for a in at}
    curve = [share(box.scaled(step / STEPS)) for step in range(STEPS + 1)]
    return {
        "certificates": digest(folder),
        "count": len(rows),
        "kind": str(summary.kind),
        "shares": shares,
        "curve": curve,
        "top": transform.surface(box.upper[0]),
        "unit": transform.unit,
        "transform": transform.name,
        "seconds": round(summary.seconds, 4),
        "passes": round(summary.passes),
        "device": config["device"],
    }


def read_summaries(root: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(row, summary) of every row of rows.toml that has results; a ValueError for one that is out of date."""
    found = []
    for row in tomllib.loads((root / "results" / "rows.toml").read_text(encoding="utf-8"))["row"]:
        folder = root / "results" / row["name"]
        if (folder / PACKED).is_file():
            path = folder / "summary.json"
            summary = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            if summary.get("certificates") != digest(folder) or list(summary["shares"]) != [
                f"{a:g}" for a in row["at"]
            ]:
                raise ValueError(f"{path} is out of date: run python -m benchmarks.table")
            found.append((row, summary))
    return found


def decimal(share: float) -> str:
    return f"{share:.3f}".removeprefix("0")


def ranges(summary: dict[str, Any]) -> str:
    unit = get(summary["transform"]).unit
    return " / ".join(f"±{a}{'' if unit in '°%' else ' '}{unit}" for a in summary["shares"])


def table(root: Path) -> str:
    """The README's section, markers excluded."""
    head = (
        "| what | range | kind | certified | published | s per certificate | images | command |\n" + "| --- " * 8 + "|"
    )
    lines = [head]
    for row, s in read_summaries(root):
        shares = " / ".join(decimal(v) for v in s["shares"].values())
        cost = f"{s['seconds']:.2g} ({'GPU' if s['device'] == 'cuda' else 'CPU'})"
        command = f"`{row['command']}{' --device cuda' if s['device'] == 'cuda' else ''}`"
        cells = (f"{row['task']}: `{row['method']}`", ranges(s), s["kind"], f"**{shares}**", row["published"], cost)
        lines.append(f"| {' | '.join((*cells, str(s['count']), command))} |")
    sources = tomllib.loads((root / "results" / "rows.toml").read_text(encoding="utf-8"))["sources"]
    plots = sorted({row["plot"] for row, _ in read_summaries(root)})
    shown = ", ".join(f"[{p}](docs/accuracy-{p}.png)" for p in plots)
    if not plots:
        lines = ["No row has been measured yet."]
    notes = "Published figures: " + "; ".join(f"{k}: {v}" for k, v in sources.items()) + "."
    return "\n".join([*lines, "", notes, *(["Certified accuracy against the range: " + shown + "."] if shown else [])])


def replaced(readme: str, text: str) -> str:
    """The README with the text between the markers."""
    pattern = re.compile(re.escape(MARKERS[0]) + ".*?" + re.escape(MARKERS[1]), re.S)
    if len(pattern.findall(readme)) != 1:
        raise ValueError(f"README.md needs the markers {' and '.join(MARKERS)} once")
    return pattern.sub(lambda _: f"{MARKERS[0]}\n{text}\n{MARKERS[1]}", readme)


def plot(root: Path) -> None:
    """docs/accuracy-PLOT.png: one curve per row."""
    groups: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for row, s in read_summaries(root):
        groups.setdefault(row["plot"], []).append((row, s))
    for name, members in groups.items():
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot()
        for row, s in members:
            at = [
                get(s["transform"]).surface(get(s["transform"]).internal(s["top"]) * i / STEPS)
                for i in range(STEPS + 1)
            ]
            axes.step(at, s["curve"], where="post", label=f"{row['task']}: {row['method']} ({s['kind']})", lw=1.8)
        axes.set(
            ylim=(0, 1.02), xlabel=f"every {get(s['transform']).noun} up to … {s['unit']}", ylabel="certified accuracy"
        )
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=6, loc="lower left")
        figure.savefig(root / "docs" / f"accuracy-{name}.png", dpi=150, metadata={"Software": None})


def write_manifest(root: Path) -> None:
    """assets/models.json: the embedded model and every recipe with weights, with the figures of their rows."""
    figures: dict[str, dict[str, str]] = {}
    for row, s in read_summaries(root):
        shares = " / ".join(decimal(v) for v in s["shares"].values())
        figures.setdefault(row["model"], {})[f"{row['method']}, {ranges(s)}, {s['kind']}"] = shares
    assets, listings = root / "warpcert" / "assets", []
    weights = {p.parent.name: p for p in root.glob("recipes/*/model.safetensors")}
    weights |= {p.stem: p for p in assets.glob("*.safetensors")}
    for name, path in sorted(weights.items()):
        _, _, extra = load_weights(path)
        t, data = get(extra["defence"]["transform"]), extra["dataset"].removesuffix(".npz")
        task = f"{data}, {t.noun} within {t.span(t.box(*extra['gamma']))}" if any(extra["gamma"]) else f"{data}, plain"
        listings.append(listing_of(path, name, task, LICENCE, figures.get(name, {})))
    (assets / MANIFEST).write_text(json.dumps(listings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def regenerate(root: Path) -> None:
    for row in tomllib.loads((root / "results" / "rows.toml").read_text(encoding="utf-8"))["row"]:
        folder = root / "results" / row["name"]
        if not (folder / PACKED).is_file():
            print(f"{row['name']}: no results yet")
            continue
        path, asked = folder / "summary.json", [f"{a:g}" for a in row["at"]]
        old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if old.get("certificates") != digest(folder) or list(old["shares"]) != asked:
            path.write_text(json.dumps(summarise(folder, row["at"])) + "\n", encoding="utf-8")
        s = json.loads(path.read_text(encoding="utf-8"))
        print(f"{row['name']}: {s['shares']} of {s['count']}, {s['seconds']} s each on {s['device']}")
    plot(root)
    write_manifest(root)
    readme = root / "README.md"
    readme.write_text(replaced(readme.read_text(encoding="utf-8"), table(root)), encoding="utf-8")


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
