"""Products on the command line: certify, check, report and attack know all parts, and mistakes get one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from serving import levels, running, write_file

import warpcert as wc
from warpcert.app.cli import main
from warpcert.app.serve.served import open_served

PARTS = ["--threat", "rotation=1", "brightness=-0.01,0.02", "l2=0.05"]


def test_a_run_against_a_product(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["certify", "--model", "mnist-rotation-lipschitz", *PARTS, "--count", "2", "--out", str(tmp_path)]
    assert main([*run, "--json"]) == 0
    shares = json.loads(capsys.readouterr().out)["certified_accuracy"]
    assert "±0.25° × -0.0025 of full scale … +0.005 of full scale" in shares
    assert main(["check", str(tmp_path)]) == 0
    found = wc.Run(tmp_path)
    c = found.rows[0].certificate
    assert c.threat == wc.Threat.rotation(1, quantized=False).then(brightness=(-0.01, 0.02), l2=0.05)
    assert c.kind is wc.Kind.PROVED and c.unit == {"rotation": "degrees", "brightness": "of full scale"}
    assert isinstance(c.range, dict) and c.range["brightness"] == pytest.approx((-0.01, 0.02))
    parts = "rotation within ±1°, then brightness change within -0.01 of full scale … +0.02 of full scale"
    assert f"every {parts}, then any change of ℓ2 norm up to 0.05 (real-valued, bilinear attacker)" in str(c)
    page = (tmp_path / "report.html").read_text()
    assert parts in page and "the other parts in proportion" in page
    assert main([*run[:-4], "--threat", "brightness=0.02", "rotation=1", "--count", "2", "--out", str(tmp_path)]) == 2
    assert "not rotation after brightness" in capsys.readouterr().err  # the order counts: no cover knows this one
    assert main([*run[:-6], "--threat", "rotation=2", "--count", "2", "--out", str(tmp_path)]) == 2
    assert "the ℓ2 norm added is 0.05 there and not set now" in capsys.readouterr().err


def test_a_front_before_levels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What levels do not see behind it costs nothing, and everything that reads records knows it."""
    run = ["certify", "--front", "grounded", "--threat", "rotation=2", "brightness=0.2", "--count", "1"]
    assert main([*run, "--out", str(tmp_path)]) == 0 and main(["check", str(tmp_path), "--against"]) == 0
    made = wc.Run(tmp_path).rows[0].certificate
    assert made.kind is wc.Kind.PROVED and made.range == {"rotation": (-2, 2), "brightness": (-0.2, 0.2)}
    assert "takes the least value away, and levels of 32" in (tmp_path / "report.html").read_text()
    capsys.readouterr()
    assert main(["predict", "--front", "stretched", "--levels", "16", "--count", "1"]) == 0


def test_an_attack_reports_every_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["attack", "--threat", "rotation=10", "brightness=0.1", "--method", "grid", "--k", "3", "--count", "1"]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[0])
    turned, toned = record["gamma"]
    assert abs(turned) <= 10 + 1e-9 and abs(toned) <= 0.1 + 1e-9 and record["unit"] == "° × of full scale"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["rotation=-5"], "number r ≥ 0"),
        (["rotation=5", "brightness=0.1,0.2"], "must contain 0"),
        (["rotation=1,2,3"], "both ends"),
        (["rotation=5", "rotation=3"], "rotation twice"),
        (["rotation=5", "smoke=3"], "'smoke' is not known"),
        (["rotation=5", "brightness"], "NAME=RANGE"),
        (["rotation=much"], "NAME=RANGE"),
        (["l2=0.1"], "begins with a transformation"),
        (["rotation=5", "l2=-0.1"], "one norm > 0"),
        (["l2=0.1", "rotation=5"], "is what may follow it"),
        (["rotation=5", "l2=0.1", "brightness=0.1"], "comes last"),
        (["rotation=5", "brightness=0.1"], 'is not seen behind wc.Levels(network, step=8, front="grounded")'),
        (["brightness=0.1", "rotation=5"], "not brightness then rotation; no method does"),
        (["rotation=5", "l2=0.1"], "methods that do: cover"),
        (["blur=-1"], "one variance ≥ 0"),
        (["blur=1", "rotation=5"], "not blur then rotation"),
        (["shifts=2,3"], "one radius r ≥ 0"),
        (["power=1000"], "too large to mean anything"),
        (["rotation=5", "brightness=1e308"], "too large to mean anything"),
        (["rotation=5", "l2=1e308"], "lies between 0 and 1e+06"),
        (["rotation=5", "--gamma", "3"], "leave --transform and --gamma out"),
    ],
)
def test_mistakes(words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "--threat", *words, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert why in said and said.count("\n") <= 2 and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--front", "standard", "--levels", "8"], "before levels take one of none, grounded, stretched"),
        (["--front", "grounded", "--noise", "0.1"], "before noise take one of none, centred, standard"),
        (["--front", "grounded", "--no-unrounded"], "for attackers who neither clip nor round"),
        (["brightness=0.1", "--front", "grounded", "--tolerance", "0.001"], "a tenth of a level"),
        (["--front", "grounded", "--levels", "8", "--noise", "0.1"], "leave --noise out"),
        (["--noise", "0.1", "--vignette", "circle", "--levels", "8"], "leave --noise, --vignette out"),
        (["--front", "centred", "--levels", "1"], "a front stands before noise or levels"),
        (["--model", "mnist-rotation-lipschitz", "--front", "centred"], "a front stands before noise or levels"),
        (["--noise", "0.1", "--front", "centred", "--vignette", "circle", "--method", "cover"], "leave vignette"),
    ],
)
def test_nothing_is_left_out_unsaid(
    words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["certify", "--threat", "rotation=1", *words, "--count", "1", "--out", str(tmp_path / "run")]
    assert main(run) == 2 and why in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_a_server_answers_about_a_product(tmp_path: Path) -> None:
    threat = wc.Threat.shifts(1).then(rotation=2)
    served = open_served(write_file(tmp_path, levels()), threat=threat)
    pixels = [[[k / 255 for k in range(12)]] * 12]
    with running(served) as (url, _), httpx.Client(base_url=url, timeout=60) as client:
        told = client.get("/v1/classifier").json()
        assert told["transform"]["parts"] == ["shifts", "rotation"] and told["transform"]["unit_name"] == "pixels"
        assert told["transform"]["range"] == [[-1, 1], [-1, 1], [pytest.approx(-2), pytest.approx(2)]]
        answer = client.post("/v1/certify", json={"pixels": pixels, "method": "exact", "gamma": [1, 1, 1]}).json()
        made = wc.read_certificate(answer["certificate"])
        assert made.threat == wc.Threat.shifts(1).then(rotation=1) and "then rotation within" in str(made)
        beyond = client.post("/v1/certify", json={"pixels": pixels, "method": "exact", "gamma": [1, 5]})
        assert beyond.status_code == 422 and "beyond what this server allows" in beyond.text
        picture = client.post("/v1/attack", json={"pixels": pixels, "gamma": [1, 0, 2]})
        assert picture.status_code == 200 and picture.headers["content-type"] == "image/png"
        wrong = client.post("/v1/certify", json={"pixels": pixels, "method": "cover"})
        assert wrong.status_code == 422 and "a cover does not know shifts; methods that do: exact" in wrong.text


def test_a_server_that_could_certify_nothing_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", "--threat", "rotation=5", "brightness=0.1"]) == 2
    said = capsys.readouterr().err
    assert "nothing can be certified here: exact knows one transformation at a time" in said and "served at" not in said


def test_a_blur_that_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "--threat", "blur=400", "--count", "1", "--out", str(tmp_path)]) == 2
    assert "wider than a picture of 28 × 28" in capsys.readouterr().err
