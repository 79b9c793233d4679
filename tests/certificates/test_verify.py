"""The verifier: every changed field of every kind of record is refused, or is on the list of those that may change; and
so is every forgery that was once found to pass.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from certificate_samples import (
    ERROR,
    THREAT,
    by_margins,
    calibrated,
    covered,
    defence,
    exhausted,
    individual,
    part_exhausted,
    samples,
    subject,
    voted,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

import warpcert as wc
from warpcert import certificates
from warpcert.certificates import Certificate, ErrorBound, Kind, Margins, Window
from warpcert.certificates.sealed import seal
from warpcert.certificates.verify import FREE, MEASURED
from warpcert.transforms import Box

SAMPLES = samples()
RECORDS = {name: json.loads(json.dumps(c.to_dict())) for name, c in SAMPLES.items()}
Path = tuple[Any, ...]


def leaves(value: Any, path: Path = ()) -> list[Path]:
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in leaves(v, (*path, k))]
    if isinstance(value, list) and value:
        return [p for i, v in enumerate(value) for p in leaves(v, (*path, i))]
    return [path]


def at(record: Any, path: Path) -> Any:
    for key in path:
        record = record[key]
    return record


def with_field(record: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(record))
    at(copy, path[:-1])[path[-1]] = value
    return {k: v for k, v in copy.items() if k != "digest"}


def listed(path: Path, names: dict[str, str]) -> bool:
    """Whether the field, or one that holds it, is on the list."""
    words = [str(key) for key in path if not isinstance(key, int)]
    if path[0] == "ledger":
        words.append("amount" if path[-1] == 1 else "purpose")
    return any(".".join(words[: i + 1]) in names for i in range(len(words)))


def other(old: Any) -> st.SearchStrategy[Any]:
    """Values of the same kind, and of another."""
    junk = st.sampled_from([None, True, "x", [], {}, -1, 0, 1, 2, 0.5, 1e9, math.nan, math.inf])
    if isinstance(old, str):
        return st.sampled_from([f"{old}x", "", old.upper(), "proved", "base", "exact", "bicubic"]) | junk
    if isinstance(old, int | float) and not isinstance(old, bool):
        near = [old + 1, old - 1, -old, 2 * old, old / 2, old * (1 + 1e-3), old * (1 - 1e-3)]
        return st.sampled_from(near) | st.floats(-1e3, 1e3) | st.integers(-(10**4), 10**4) | junk
    return junk


def differs(new: Any, old: Any) -> bool:
    """By more than rounding: centres of windows are compared to a billionth of the range."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (new, old))
    return bool(new != old) and not (numbers and 0 < abs(new - old) <= 1e-12)


def refused(record: dict[str, Any]) -> bool:
    try:
        certificates.read(seal(record))
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_read(name: str) -> None:
    assert certificates.read(RECORDS[name]) == SAMPLES[name]
    assert certificates.renewed(RECORDS[name]) == RECORDS[name]


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=300)
@given(data=st.data())
def test_every_changed_field_is_refused_or_free(name: str, data: st.DataObject) -> None:
    record = RECORDS[name]
    path = data.draw(st.sampled_from([p for p in leaves(record) if p != ("digest",)]))
    old = at(record, path)
    new = data.draw(other(old).filter(lambda v: differs(v, old)))
    if not refused(with_field(record, path, new)):
        assert listed(path, FREE), f"{'.'.join(map(str, path))}: {old!r} became {new!r}"


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=300)
@given(data=st.data())
def test_a_changed_field_with_all_that_follows_is_refused_or_measured(name: str, data: st.DataObject) -> None:
    """The forger writes what follows from the changed field anew, the fingerprint too."""
    record = RECORDS[name]
    paths = [p for p in leaves(record) if p[0] not in ("digest", "derived")]
    path = data.draw(st.sampled_from(paths))
    old = at(record, path)
    new = data.draw(other(old).filter(lambda v: v != old))
    try:
        made = certificates.read(certificates.renewed(with_field(record, path, new)))
    except ValueError:
        return
    if made.abstains:  # claims nothing
        return
    assert listed(path, FREE) or listed(path, MEASURED), f"{'.'.join(map(str, path))}: {old!r} became {new!r}"


@pytest.mark.parametrize("name", SAMPLES)
def test_every_field_is_needed_and_no_other_is_taken(name: str) -> None:
    for key in RECORDS[name].keys() - {"digest"}:
        lacking = {k: v for k, v in RECORDS[name].items() if k not in ("digest", key)}
        assert refused(lacking), key
    assert refused({k: v for k, v in RECORDS[name].items() if k != "digest"} | {"more": 1})


def test_a_changed_digest_is_refused() -> None:
    with pytest.raises(ValueError, match="digest"):
        certificates.read(RECORDS["joint"] | {"digest": "0" * 64})


def test_the_lists_name_fields_that_exist() -> None:
    for names in (FREE, MEASURED):
        used = {name for name in names for r in RECORDS.values() for p in leaves(r) if listed(p, {name: ""})}
        assert used == set(names)


def window(c: Any, i: int, **changes: Any) -> tuple[Window, ...]:
    return tuple(replace(w, **changes) if j == i else w for j, w in enumerate(c.windows))


def rest(c: Certificate, *names: str) -> dict[str, Any]:
    """The facts of its classifier, some of them others."""
    assert c.classifier.facts is not None
    return {**c.classifier.facts, **dict(zip(names[::2], names[1::2], strict=True))}


JOINT, COVER, MARGINS, EXACT, PART = voted(), covered(), by_margins(), exhausted(), part_exhausted()
INDIV, TWO, CALIBRATED = individual(), SAMPLES["two-class"], calibrated()
SUBJECT = JOINT.classifier
SAMPLED = ErrorBound(0.05, 0.0, Kind.PROVED, "calibrated sampled", stated_rho=0.01)
WEAK = voted(*(replace(w, k=9100) for w in JOINT.windows))
assert isinstance(TWO, type(JOINT)) and EXACT.found and PART.found and CALIBRATED.share and INDIV.centred

FORGED: dict[str, Certificate] = {
    "joint relabelled nested": replace(WEAK, form="nested"),
    "joint relabelled nested, with inner tests": replace(WEAK, form="nested", alpha_inner=0.001),
    "joint relabelled base": replace(JOINT, form="base"),
    "nested relabelled joint": replace(SAMPLES["nested"], form="joint", alpha_inner=0.0),  # type: ignore[arg-type]
    "joint relabelled attacked": replace(JOINT, form="attacked"),
    "runner-up 0 while others got votes": replace(TWO, windows=window(TWO, 1, runner_up=0)),
    "windows of an individual record dropped": replace(INDIV, windows=INDIV.windows[1:], error=replace(
        INDIV.error, E=0.05)),
    "more than all ruled out": replace(INDIV, windows=INDIV.windows[1:], excluded=1.98),
    "more ruled out than the windows leave": replace(INDIV, excluded=0.5),
    "E below its windows'": replace(INDIV, error=replace(INDIV.error, E=0.01)),
    "a window over all of Γ": replace(INDIV, windows=(replace(
        INDIV.windows[1], cell=INDIV.threat.box),), error=replace(INDIV.error, E=0.05)),
    "no noise": replace(INDIV, defence=replace(INDIV.defence, sigma_noise=0.0)),
    "no parameter noise": replace(INDIV, defence=replace(INDIV.defence, sigma_param=(0.0,))),
    "no vote at the picture itself": replace(INDIV, centred=None),
    "centred elsewhere": replace(INDIV, centred=replace(INDIV.centred, center=(0.01,))),
    "held raised beside a counterexample": replace(PART, found=replace(PART.found, held=1.0)),
    "held raised beside a counterexample in the reason": replace(
        PART, found=replace(PART.found, held=1.0), counterexample=None),
    "held raised, and no word of it": replace(
        PART, found=replace(PART.found, held=1.0), counterexample=None, reason="", passes=1234),
    "counterexample removed": replace(PART, counterexample=None),
    "counterexample outside Γ": replace(PART, counterexample=(3.0,)),
    "no passes": replace(EXACT, passes=0),
    "one image": replace(EXACT, found=replace(EXACT.found, images=1)),
    "no image": replace(EXACT, found=replace(EXACT.found, images=0), passes=0),
    "the program of a flow": replace(EXACT, found=replace(EXACT.found, scope="program")),
    "any scope": replace(EXACT, found=replace(EXACT.found, scope="anything")),
    "a tolerance of 1": replace(EXACT, found=replace(EXACT.found, tolerance=1.0)),
    "a tolerance of 1, threatened too": replace(
        EXACT, found=replace(EXACT.found, tolerance=1.0), threat=replace(THREAT, tolerance=1.0)),
    "a tolerance that is not told": replace(EXACT, found=replace(EXACT.found, tolerance=None)),
    "a bicubic attacker of exact": replace(EXACT, threat=replace(THREAT, interpolation="bicubic")),
    "no slack": replace(EXACT, found=replace(EXACT.found, slack=0.0)),
    "a lead beyond that of the picture itself": replace(EXACT, found=replace(EXACT.found, margin=7.0)),
    "other levels": replace(EXACT, step=32),
    "exact arithmetic of attackers who do not round": replace(
        EXACT, threat=replace(THREAT, quantized=False), found=replace(EXACT.found, scope="exact", tolerance=1e-7)),
    "proved over a sampled calibration": replace(CALIBRATED, error=SAMPLED),
    "proved although sampled": replace(JOINT, error=replace(ERROR, bound="sampled")),
    "an unknown analysis": replace(JOINT, error=replace(ERROR, bound="divination")),
    "a share of 7": replace(CALIBRATED, share=replace(CALIBRATED.share, accepted=7000)),
    "stated ρ 0": replace(CALIBRATED, error=replace(CALIBRATED.error, stated_rho=0.0)),
    "stated ρ that the counts cannot show": replace(CALIBRATED, error=replace(CALIBRATED.error, stated_rho=1e-3)),
    "a share of dist-x": replace(JOINT, share=CALIBRATED.share),
    "a Lipschitz constant of 1e-9": replace(MARGINS, margins=Margins(1e-9, 1e-4)),
    "a Lipschitz constant of 1e-9, among the facts too": replace(
        MARGINS, margins=Margins(1e-9, 1e-4), classifier=subject("plain", lipschitz=1e-9)),
    "one window over all of Γ by margins": replace(
        MARGINS, windows=(Window((0.0,), cell=MARGINS.threat.box, E=0.1, margin=0.3),), passes=17),
    "E of a cover below its windows'": replace(COVER, error=replace(COVER.error, E=0.01)),
    "one window over all of Γ": replace(
        COVER, windows=(Window((0.0,), 80, 80, 0.0025, cell=COVER.threat.box, E=0.1),)),
    "a larger cell": replace(COVER, windows=window(
        COVER, 1, cell=Box((-0.6,), (0.0,)), center=(-0.3,))),
    "more votes than samples": replace(COVER, windows=window(COVER, 1, k=90)),
    "other samples": replace(COVER, windows=window(COVER, 1, n=90)),
    "cells outside Γ": replace(COVER, threat=wc.Threat.rotation(40)),
    "α unpaid": replace(COVER, alpha=0.001),
    "rotation threatened, scaling defended": replace(JOINT, defence=defence("scaling", 30)),
    "rotation threatened, scaling smoothed over": replace(JOINT, classifier=subject(
        "smoothed", over={"scaling": [30.0]})),
    "scaling threatened": replace(JOINT, threat=wc.Threat.scaling(20)),
    "any string as method": replace(JOINT, method="magic"),
    "another method": replace(JOINT, method="base"),
    "other interpolation": replace(JOINT, defence=replace(JOINT.defence, interpolation="bilinear")),
    "other preprocessing": replace(JOINT, defence=replace(JOINT.defence, preprocess=wc.Preprocess("circle"))),
    "other noise": replace(JOINT, defence=replace(JOINT.defence, sigma_noise=0.5)),
    "other facts": replace(JOINT, classifier=replace(SUBJECT, facts=rest(JOINT, "precision", "half"))),
    "another label": replace(JOINT, label=3),
    "a label that is no class": replace(JOINT, label=12),
    "a label withheld for nothing": replace(JOINT, label=-1, scores=None, classes=1),
    "more classes": replace(TWO, classes=100),
    "E of nothing": replace(JOINT, error=replace(ERROR, betas=0, alpha=0.0)),
    "the error unpaid": replace(JOINT, ledger=JOINT.ledger[1:]),
    "fewer windows": replace(JOINT, windows=JOINT.windows[1:]),
    "windows elsewhere": replace(JOINT, windows=window(JOINT, 1, center=(0.1,))),
    "other passes": replace(JOINT, passes=JOINT.passes + 1),
    "a tolerance of dist-x": replace(JOINT, threat=replace(THREAT, tolerance=1e-6)),
    "a reference of an unseen original": replace(INDIV, defence=replace(INDIV.defence, reference="mitchell")),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_forgeries_are_refused(name: str) -> None:
    """With everything that follows written anew, and with what followed before."""
    forged = FORGED[name]
    try:
        record = forged.to_dict()
    except (ValueError, AssertionError, ArithmeticError):
        record = RECORDS["joint"] | {k: v for k, v in vars(forged).items() if isinstance(v, int | float | str)}
        record.pop("digest")
        record = seal(json.loads(json.dumps(record)))
    with pytest.raises(ValueError):
        certificates.read(record)


@given(st.integers(0, 10_000), st.floats(0, 0.5), st.integers(10, 2000), st.sampled_from([None, "all", "few"]))
@example(9990, 0.2, 1000, "all")
def test_what_the_classes_compute_the_verifier_finds_too(k: int, E: float, betas: int, second: str | None) -> None:
    """Two ways through the arithmetic: whatever the counts, a label that one gives the other confirms."""
    runner_up = {None: None, "all": 10_000 - k, "few": math.ceil((10_000 - k) / 9)}[second]
    windows = tuple(replace(w, k=k, runner_up=runner_up) for w in JOINT.windows)
    c = voted(*windows, error=replace(ERROR, E=E, betas=betas))
    c = c if c.reach else replace(c, label=-1)
    assert certificates.read(c.to_dict()) == c


@given(st.lists(st.integers(0, 90), min_size=4, max_size=4), st.floats(0.0, 0.5))
def test_covers_are_found_by_both(k: list[int], E: float) -> None:
    c = covered(bad={i: {"k": v, "n": 90, "E": E} for i, v in enumerate(k)})
    c = c if c.reach else replace(c, label=-1)
    assert certificates.read(c.to_dict()) == c


@given(st.lists(st.sampled_from([0.3, 0.1]), min_size=16, max_size=16))
def test_covers_of_two_parameters_are_found_by_both(margins: list[float]) -> None:
    c = by_margins("translation", bad={i: {"margin": m} for i, m in enumerate(margins)})
    c = c if c.reach else replace(c, label=-1)
    assert certificates.read(c.to_dict()) == c


def test_thousands_of_cells_are_read_in_a_blink() -> None:
    """A row of shifts has some 2.5 million cells, 5000 in each of 500 records."""
    side = 70
    axis = [-2 + 4 * i / side for i in range(side + 1)]
    cells = [Box((a, c), (b, d)) for a, b in pairwise(axis) for c, d in pairwise(axis)]
    windows = [Window(c.center, cell=c, E=0.1, margin=0.3 + 1e-3 * i / len(cells)) for i, c in enumerate(cells)]
    c = by_margins("translation", windows=windows, passes=1 + len(windows))
    record = json.loads(json.dumps(c.to_dict()))
    start = time.process_time()
    assert certificates.read(record) == c
    assert time.process_time() - start < 0.2
