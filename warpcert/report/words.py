"""What a run says, for readers who know no theory: sentences, settings, and what each symbol means where it stands."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

from markupsafe import Markup, escape

from warpcert.certificates import Kind
from warpcert.certificates.words import attacker, thing
from warpcert.report.results import RunFolder
from warpcert.runs.summary import Level, held

__all__ = [
    "Setting",
    "between",
    "cell",
    "deploy",
    "duration",
    "explained",
    "grouped",
    "lowered",
    "percent",
    "plain_words",
    "settings",
]

SYMBOLS = {
    "σ_γ": "σ_γ is the standard deviation of the random transformations that the classifier applies before each vote.",
    "σ_δ": "σ_δ is the standard deviation of the noise added to each value; black to white is 1.",
    "E": "E bounds the distance between what the classifier sees and what the proof reasons about in its place (the "
    "square root of the sum of squared differences).",
    "ρ": "ρ bounds the probability, over the classifier's random transformations, that this distance exceeds E.",
    "α": "A certificate is false with probability at most α.",
    "κ": "κ is how far the picture may be shifted, in standard deviations of the noise, before the votes can change.",
    "β": "β is a random transformation that the classifier draws for a vote.",
    "γ": "γ is the transformation that the attacker chooses.",
    "Γ": "Γ is the range from which the attacker chooses.",
}
TOKEN = re.compile(r"[\w]+")


def cell(value: Any) -> str:
    """A number for people, a text as it is, a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "∞" if value > 0 else str(value)
    return str(value)


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def grouped(number: float) -> str:
    """A whole number, its thousands apart."""
    return f"{number:,.0f}".replace(",", "\u202f")


def percent(share: float) -> str:
    return f"{100 * share:.1f} %".replace(".0 %", " %")


def between(level: Level) -> str:
    """The interval of a certified accuracy."""
    return f"{100 * level.low:.1f}–{100 * level.high:.1f} %"


def lowered(text: str) -> Markup:
    """A text with its indices below the line: σ_γ."""
    return Markup(re.sub(r"_([γδ])", r"<sub>\1</sub>", str(escape(text))))


def explained(*texts: str) -> list[str]:
    """A sentence for each symbol that occurs in the texts."""
    found = set(TOKEN.findall(" ".join(texts)))
    return [sentence for symbol, sentence in SYMBOLS.items() if symbol in found]


def plain_words(run: RunFolder) -> str:
    """What the run guarantees."""
    first, s = run.rows[0].certificate, run.summary
    t = first.threat.transform
    kept, span = sum(held(r) == 1 for r in run.rows), t.span(first.threat.box)
    sure = "expected" if s.kind is Kind.HEURISTIC else "certified"
    what, data = thing(t), f" from {run.data}" if run.data_is_named else ""
    if first.unseen:
        start = f"For {kept} of {s.count} attacked {what}s{data}, the correct answer is {sure}"
        said = f"{start} to be that of the unseen original too, whichever {t.noun} within {span} was applied to it."
    else:
        start = f"For {kept} of {s.count} {what}s{data}, the correct answer is {sure}"
        said = f"{start} to hold under every {first.threat.within(first.threat.box)}."
    return f"{said} {first.because()}"


def deploy(run: RunFolder) -> str:
    """What must be deployed for the certificates to speak of it."""
    c = run.rows[0].certificate
    noise = dict(c.settings()).get("defender's noise", "none")
    start = f"Deploy {run.model}: the {c.deployed}"
    if noise == "none":
        return f"{start}. It needs a single pass and no noise."
    return (
        f"{start} ({noise}). It answers by majority over many random copies of the {thing(c.threat.transform)}. A "
        "single pass through the network is a different classifier, about which nothing is certified."
    )


@final
@dataclass(frozen=True)
class Setting:
    """A name, a value, and what the symbols in them mean."""

    name: str
    value: str
    meaning: str = ""


def settings(run: RunFolder) -> list[Setting]:
    """What decides the outcome of a run, in surface units, and what it cost."""
    c = run.rows[0].certificate
    t, E = c.threat.transform, run.summary.median_E
    found: list[tuple[str, str]] = [
        ("classifier", run.model),
        ("data", run.data),
        (f"{thing(t)}s", str(run.summary.count)),
        ("attacker", f"{c.threat.within(c.threat.box)}, {attacker(c.threat)}"),
        *((name, cell(value)) for name, value in c.settings()),
        *([("median E", cell(E))] if E is not None else []),
        *_attack(run),
        (f"time per {thing(t)}", duration(run.summary.seconds)),
        (f"forward passes per {thing(t)}", grouped(run.summary.passes)),
        ("folder", run.folder.as_posix()),
    ]
    return list(_with_meanings(found, Kind.weakest(*(r.certificate.error.kind for r in run.rows))))


def _attack(run: RunFolder) -> list[tuple[str, str]]:
    """Of a run on attacked pictures: what the attack does to the network, and what the classifier answers."""
    plan, found = run.config.get("attack"), run.attacked
    if found is None:
        return []
    lines = [("attack", f"{plan['name']} with k = {plan['k']}")] if plan else []
    lines += [("correct under attack, network alone", percent(found.answered_correctly_without_votes))]
    if found.answered_correctly is not None:
        lines += [("correct under attack, as deployed", percent(found.answered_correctly))]
    return [*lines, *([("mean share of Γ ruled out", percent(found.ruled_out))] if found.ruled_out is not None else [])]


def _with_meanings(found: Iterable[tuple[str, str]], error: Kind) -> Iterable[Setting]:
    """Each symbol is explained where it stands first."""
    told: set[str] = set()
    for name, value in found:
        new = [s for s in explained(name, value) if s not in told]
        told.update(new)
        if name == "median E":
            sure = (
                "It is proved for every γ in the range." if error is Kind.PROVED else "It may be too small: see kind."
            )
            new.append(sure)
        yield Setting(name, value, " ".join(new))
