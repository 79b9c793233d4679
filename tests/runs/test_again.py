"""Done again with picture and classifier, a forged record shows: the arithmetic alone cannot tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from certificate_samples import exhausted, individual, voted
from test_engine import DIGITS, linear

import warpcert as wc
from warpcert import certificates
from warpcert import statistics as stats
from warpcert.app.cli import main
from warpcert.certificates import Kind
from warpcert.certificates.sealed import seal
from warpcert.errors.calibration import calibrate
from warpcert.runs.again import Again, _contradictions
from warpcert.runs.run import Run, certify_all
from warpcert.runs.store import verify

FEW = DIGITS.part(0, 3)


def forged(folder: Path, line: int, change: Any) -> None:
    """Rewrites a record with all that follows from the change, digests included."""
    path = folder / "certificates.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    record = {k: v for k, v in lines[line].items() if k != "digest"}
    change(record)
    body = {k: v for k, v in record["certificate"].items() if k != "digest"}
    record["certificate"] = certificates.renewed(body)
    lines[line] = seal(record)
    path.write_text("".join(json.dumps(r) + "\n" for r in lines))


def problems(folder: Path, f: wc.Classifier) -> list[str]:
    again = Again(Run(folder), f, FEW)
    return [*again.pictures(), *(why for row in Run(folder).rows for why in again.redone(row))]


def test_votes_that_were_never_cast_show(tmp_path: Path) -> None:
    f = wc.Smoothed(linear(), noise=0.5, over={"rotation": 30})
    threat = wc.Threat.rotation(degrees=3)
    certify_all(f, FEW, tmp_path, threat, method="base", n=400, windows=1)
    assert problems(tmp_path, f) == []

    def more(record: dict[str, Any]) -> None:
        c = record["certificate"]
        c["windows"]["k"] = [c["windows"]["n"][0]]
        c["label"] = int(torch.tensor(c["scores"]).argmax())
        c["reason"] = ""

    forged(tmp_path, 0, more)
    assert Run(tmp_path).certificates[0].label >= 0  # the arithmetic holds
    (why,) = problems(tmp_path, f)
    assert "400 of 400 votes were counted" in why
    with pytest.raises(ValueError, match="not the classifier"):
        Again(Run(tmp_path), wc.Smoothed(linear(), noise=0.4, over={"rotation": 30}), FEW)


def test_ranges_that_were_never_proved_and_swapped_pictures_show(tmp_path: Path) -> None:
    f = wc.Levels(linear(), step=64)
    certify_all(f, FEW, tmp_path, wc.Threat.rotation(degrees=20))
    assert problems(tmp_path, f) == []
    ended = next(i for i, c in enumerate(Run(tmp_path).certificates) if c.counterexample and c.reach)

    def longer(record: dict[str, Any]) -> None:
        found = record["certificate"]["found"]
        found["held"], record["certificate"]["passes"] = 1.0, found["images"]
        record["certificate"]["counterexample"] = None
        record["certificate"]["reason"] = ""

    forged(tmp_path, ended, longer)
    assert any("inside the certified range" in why for why in problems(tmp_path, f))
    lines = [json.loads(text) for text in (tmp_path / "certificates.jsonl").read_text().splitlines()]
    lines[0]["certificate"], lines[1]["certificate"] = lines[1]["certificate"], lines[0]["certificate"]
    text = "".join(json.dumps(seal({k: v for k, v in r.items() if k != "digest"})) + "\n" for r in lines)
    (tmp_path / "certificates.jsonl").write_text(text)
    assert "picture 0: the certificate is about a different picture" in problems(tmp_path, f)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "--count", "2", "--gamma", "1", "--levels", "64", "--out", str(tmp_path)]) == 0
    assert main(["check", str(tmp_path), "--against", "--sample", "1"]) == 0
    said = capsys.readouterr()
    assert "2 certificates checked, 0 problems" in said.out and "done again: pictures" in said.err
    assert main(["check", str(tmp_path), "--against", "mnist-rotation"]) == 2


def test_counts_of_one_share_rarely_differ() -> None:
    k = torch.distributions.Binomial(200, torch.tensor(0.8))
    torch.manual_seed(0)
    pairs = k.sample((2000, 2)).int().tolist()
    assert sum(stats.differ(a, 200, b, 200, 0.05) for a, b in pairs) <= 0.06 * 2000
    assert stats.differ(150, 200, 198, 200, 1e-6) and not stats.differ(0, 5, 5, 5, 1e-6)


def test_stronger_words_than_what_comes_out_show() -> None:
    """Kind, scope, classes and what was ruled out."""
    exact, unseen, votes = exhausted(), individual(), voted()
    assert exact.found and list(_contradictions(exact, exact)) == []
    weaker = replace(exact, found=replace(exact.found, scope="exact"))
    assert list(_contradictions(exact, weaker)) == ["scope 'tolerance' was told, and 'exact' comes out now"]
    assert list(_contradictions(weaker, exact)) == []
    sampled = replace(votes, error=replace(votes.error, bound="sampled", kind=Kind.HEURISTIC))
    assert list(_contradictions(votes, sampled)) == ["it was with confidence, and is heuristic now"]
    assert list(_contradictions(sampled, votes)) == []
    (why,) = _contradictions(replace(votes, classes=9), votes)
    assert why == "9 classes were told, and there are 10"
    (why,) = _contradictions(unseen, replace(unseen, excluded=0.5))
    assert why == "98.0% of the range were ruled out, and 50.0% now"
    assert list(_contradictions(unseen, replace(unseen, excluded=0.5, reason="out of time"))) == []


def firm() -> torch.nn.Module:
    """A network that is fond of class 3."""
    network = linear()
    bias = network[1].bias  # type: ignore[index]
    bias.data[3] += 3.0
    return network


@pytest.mark.parametrize("kind", ["votes", "margins"])
def test_cells_with_too_small_an_error_show(kind: str, tmp_path: Path) -> None:
    f = wc.Smoothed(firm(), noise=0.5) if kind == "votes" else wc.Plain(firm(), lipschitz=1.5)
    certify_all(f, FEW, tmp_path, wc.Threat.rotation(degrees=2), method="cover", n=2000)
    assert problems(tmp_path, f) == []
    kept = next(i for i, c in enumerate(Run(tmp_path).certificates) if not c.abstains)

    def changed(name: str, factor: float) -> Any:
        def change(record: dict[str, Any]) -> None:
            windows = record["certificate"]["windows"]
            old = windows[name]
            windows[name] = [factor * v for v in old] if isinstance(old, list) else factor * old

        return change

    forged(tmp_path, kept, changed("E", 0.5))
    assert any(f"picture {kept}: E = " in why for why in problems(tmp_path, f))
    if kind == "margins":
        forged(tmp_path, kept, changed("E", 2.0))
        assert problems(tmp_path, f) == []
        forged(tmp_path, kept, changed("margin", 1.1))
        assert any(f"picture {kept}: a margin of " in why for why in problems(tmp_path, f))


@pytest.mark.parametrize("front", ["centred", "standard"])
def test_a_cover_behind_a_front_comes_out_again(front: str, tmp_path: Path) -> None:
    """Also where the front does not see all parts; less than its E shows."""
    f = wc.Smoothed(linear(), noise=0.5, front=front)
    threat = wc.Threat.rotation(degrees=1, quantized=False).then(brightness=0.5, l2=0.05)
    certify_all(f, FEW.part(0, 1), tmp_path, threat, n=500)
    assert problems(tmp_path, f) == []

    def less(record: dict[str, Any]) -> None:
        c = record["certificate"]
        c["windows"]["E"] = c["error"]["E"] = 0.06

    forged(tmp_path, 0, less)
    assert any("E = 0.06 was told of a window" in why for why in problems(tmp_path, f))


@pytest.mark.parametrize("method", ["dist-d", "dist-d-online"])
def test_a_calibrated_run_keeps_its_calibration(method: str, tmp_path: Path) -> None:
    """It is needed to do anything again; another one than that of the records shows."""
    f, threat = wc.Smoothed(linear(), noise=0.5, over={"rotation": 30}), wc.Threat.rotation(degrees=3)
    known = calibrate(f, [DIGITS.image(i) for i in range(10, 15)], threat, rho=0.3, alpha=0.3, bound="sampled")
    certify_all(f, FEW, tmp_path, threat, method=method, n=300, windows=1, calibration=known)
    assert problems(tmp_path, f) == verify(tmp_path) == []
    replace(known, E=2 * known.E).write(tmp_path / "calibration.json")
    assert "its share and its error are not those of calibration.json" in verify(tmp_path)[0]
