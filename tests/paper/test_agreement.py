"""Individual certificates are compared with what g says at the originals; a false one is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import agreement
from warpcert import certificates
from warpcert.certificates import ErrorBound, Individual, Kind, Subject, Window
from warpcert.classifier.votes.voting import ABSTAIN
from warpcert.learn import data, zoo
from warpcert.runs.job import seed_for
from warpcert.runs.store import Store, read_config, read_records, verify
from warpcert.threat import Threat

MODEL = "mnist-rotation"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three digits: two certificates with the right label, and one picture that abstains."""
    digits, net = data.load("mnist500"), zoo.load(MODEL)
    threat = Threat.of("rotation", 1)
    window = Window((0.0,), 4500, 4500, 0.0045, cell=threat.box, E=0.1)
    about = {"name": net.name, "fingerprint": net.fingerprint, "facts": net.facts}
    config = {"method": "indiv", "data": "mnist500", "classifier": about, "indices": [0, 3]}
    with Store(tmp_path / "run", config) as store:
        for index in range(3):
            label = int(digits.labels[index])
            made = Individual(
                method="indiv",
                form="indiv",
                label=label,
                threat=threat,
                defence=net.defence(threat.transform),
                error=ErrorBound(0.1, 0.0045, Kind.PROVED, "lagrangian", betas=500),
                windows=(window,),
                alpha=0.01,
                ledger=(("votes at x'", 0.001), ("error bound", 0.0045), ("votes", 0.0045)),
                classes=10,
                scores=tuple(100.0 * (i == label) for i in range(10)),
                centred=Window((0.0,), 1000, 1000, 0.001),
                excluded=0.0,
                seed=seed_for(0, index),
                passes=100 + 1000 + 4500,
                classifier=Subject(net.name, net.fingerprint, net.source, net.facts),
            )
            store.append(index, label, made if index < 2 else replace(made, label=ABSTAIN, reason="votes"))
    return tmp_path / "run"


def ask(*more: str) -> int:
    return agreement.main(["--n", "300", "--model", MODEL, *more])


def test_certificates_agree_with_their_originals(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(run) == [] and ask(str(run)) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)
    assert len(lines) == 2 and 0.5 < found["smallest share"] <= 1
    assert [found[k] for k in ("images", "certified", "contradicted", "beyond doubt")] == [3, 2, 0, 2]


def test_a_false_certificate_is_noticed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same record with another label passes every check of its arithmetic, but not this one."""
    with Store(tmp_path / "false", read_config(run)) as store:
        for r in list(read_records(run))[:1]:
            c = certificates.read(r["certificate"])
            assert c.scores is not None
            store.append(
                r["index"], r["true_label"], replace(c, label=(c.label + 1) % 10, scores=(c.scores[-1], *c.scores[:-1]))
            )
    assert ask(str(tmp_path / "false"), str(run), "--count", "1") == 1
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert "CONTRADICTED" in out and found["contradicted"] == 1 and found["certified"] == 2


def test_what_does_not_fit_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").mkdir()
    told = read_config(run)["classifier"]
    nested, other = told | {"facts": told["facts"] | {"nested": True}}, told | {"fingerprint": "x"}
    changes = (({"method": "cover"}, "indiv"), ({"classifier": nested}, "joint"), ({"classifier": other}, "--model"))
    for change, words in changes:
        for name in ("config.json", "certificates.jsonl"):
            (tmp_path / "other" / name).write_bytes((run / name).read_bytes())
        (tmp_path / "other" / "config.json").write_text(json.dumps(read_config(run) | change))
        assert ask(str(tmp_path / "other")) == 2 and words in capsys.readouterr().err
    assert ask(str(run), "--seed", "0") == 2 and "seed" in capsys.readouterr().err
