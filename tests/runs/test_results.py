"""The kept results: every row names a model of the zoo, checks, and is what that model certifies today."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import warpcert as wc
from warpcert import certificates
from warpcert.app.cli.case import classifier_of, method_of, threat_of
from warpcert.app.cli.main import build_parser
from warpcert.classifier import Classifier
from warpcert.learn import data
from warpcert.methods import Method, certify_with
from warpcert.numerics.box import Box
from warpcert.runs.store import read_config, read_records, verify

RESULTS = Path(__file__).parents[2] / "results"
ROWS = tomllib.loads((RESULTS / "rows.toml").read_text(encoding="utf-8"))["row"]
ROWS = [row for row in ROWS if (RESULTS / row["name"]).is_dir()]  # others are not measured yet
QUICK = ("mnist-rotation-exact", "mnist-rotation-lipschitz", "mnist-rotation-cover")  # a sample of the zoo
PASSES = 4000  # of a network per certificate that is made again: where a record took more, on less of its range
SOLID = ("exhausted", "margins")  # statements in which nothing is drawn

every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
sample_then_all = pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row["name"], marks=() if row["name"] in QUICK else pytest.mark.slow) for row in ROWS],
)


def meant(row: dict[str, Any]) -> tuple[Classifier, wc.Threat, Method]:
    """What the row's command certifies: the model with its own facts, threat and method, but for what it changes."""
    args = build_parser().parse_args(row["command"].split())
    net, _ = classifier_of(args, None, torch.device("cpu"))
    return net, threat_of(args, net), method_of(args, net)


def records(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return read_records(RESULTS / row["name"])


def pictures(config: dict[str, Any]) -> data.Dataset:
    """The data of a run, if it is here."""
    name, root = config["data"], data.default_root()
    file = root / f"{name}.npz" if root else Path(f"{name}.npz")
    try:
        found = data.load(file if file.is_file() else name)
    except ValueError as error:
        pytest.skip(f"{name} is not here: {error}")
    return found.shuffled() if config.get("order") == "shuffled" else found


@every_row
def test_a_row_speaks_of_the_model_as_it_is(row: dict[str, Any]) -> None:
    """Name, fingerprint, facts, threat, method and settings: all of them are the model's own, as the command has it."""
    (net, threat, method), config = meant(row), read_config(RESULTS / row["name"])
    facts = json.loads(json.dumps(net.facts))
    assert config["classifier"] == {"name": net.name, "fingerprint": net.fingerprint, "facts": facts}
    assert config["model"] == row["model"] == net.name
    assert wc.Threat.from_dict(config["threat"]) == threat
    kept = config["settings"]
    now, usual = json.loads(json.dumps(method.to_dict())), {f.name: f.default for f in fields(method)}
    assert config["method"] == method.name and {name: now[name] for name in kept} == kept
    assert all(now[name] == usual[name] for name in now.keys() - kept.keys()), "settings that came later"
    found = next(records(row))["certificate"]
    now = {"name": net.name, "fingerprint": net.fingerprint, "network": net.source, "facts": facts}
    assert {k: v for k, v in found["classifier"].items() if k != "formerly"} == now


@sample_then_all
def test_a_row_checks(row: dict[str, Any]) -> None:
    assert verify(RESULTS / row["name"]) == []


@sample_then_all
def test_the_zoo_certifies_what_its_rows_say(row: dict[str, Any]) -> None:
    """The first pictures of a row again: the label, and as much of the range as both runs speak of.

    What took many passes is certified on a part t·Γ, on which the record must agree. Where nothing is drawn the
    ranges are the same; votes on another machine may differ by a few, so an inner part of what they reach is compared.
    """
    config, (net, _, method) = read_config(RESULTS / row["name"]), meant(row)
    dataset = pictures(config)
    for record in islice(records(row), 2):
        told = certificates.read(record["certificate"])
        part = told.threat if method.attacked else nearer(told)
        made = certify_with(method, net, seen(record, told, dataset), part, seed=told.seed)
        agree(made, told, part.box)


def nearer(told: wc.Certificate) -> wc.Threat:
    """The record's threat on as much of its range as PASSES allow."""
    if told.statement == "voted":
        return told.threat  # votes do not depend on the range
    return replace(told.threat, box=told.threat.box.scaled(min(1.0, PASSES / max(told.passes, 1))))


def seen(record: dict[str, Any], told: wc.Certificate, dataset: data.Dataset) -> torch.Tensor:
    """What the record's method was shown: the picture, or what its attack made of it."""
    x = dataset.image(record["index"])
    assert int(dataset.labels[record["index"]]) == record["true_label"]
    if "attack" not in record:
        return x
    transform = told.threat.transform
    gamma = [transform.internal(v) for v in record["attack"]["gamma"]]
    return told.threat.attacked(x, torch.tensor([gamma]))[0]


def agree(made: wc.Certificate, told: wc.Certificate, box: Box) -> None:
    assert made.kind is told.kind
    if told.reach is None or made.reach is None:  # by the same votes, or by a hair
        assert told.statement not in SOLID or told.reach is made.reach is None
        return
    assert made.label == told.label
    common = Box(tuple(map(max, box.lower, told.reach.lower)), tuple(map(min, box.upper, told.reach.upper)))
    if told.statement in SOLID:
        assert made.reach.lower == pytest.approx(common.lower, rel=1e-6)
        assert made.reach.upper == pytest.approx(common.upper, rel=1e-6)
    else:
        assert made.covers(common.scaled(0.8))
