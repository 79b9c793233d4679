"""The server's answers and refusals, one request at a time."""

from __future__ import annotations

import base64
import html
import json
import math
import re
import shlex
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from serving import DEGREES, PIXELS, calibration, levels, network, png, running, smoothed, text, write_file

import warpcert as wc
from warpcert.app.cli.main import build_parser, main
from warpcert.app.serve import answers, asked
from warpcert.app.serve.batcher import Batcher
from warpcert.app.serve.connections import listen
from warpcert.app.serve.jobs import Token
from warpcert.app.serve.limits import Limits, hosts_of
from warpcert.app.serve.served import Served, open_served
from warpcert.app.serve.server import Server
from warpcert.certificates.sealed import seal
from warpcert.classifier import Classifier, Plain, Smoothed
from warpcert.learn import pictures
from warpcert.runs.answers import predicted, sealed_answer, verify_file

METHODS = ("dist-x", "dist-d", "dist-d-online", "indiv", "base")  # of a smoothed classifier with a calibration


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return open_served(write_file(tmp_path_factory.mktemp("served")))


@pytest.fixture(scope="module")
def both(served: Served) -> Iterator[tuple[httpx.Client, Server]]:
    with running(served, body=50_000, n=5000) as (url, server), httpx.Client(base_url=url, timeout=60) as client:
        yield client, server


@pytest.fixture
def client(both: tuple[httpx.Client, Server]) -> httpx.Client:
    return both[0]


@pytest.fixture
def server(both: tuple[httpx.Client, Server]) -> Server:
    return both[1]


def check_file(folder: Path, body: bytes) -> list[str]:
    (folder / "answer.json").write_bytes(body)
    return verify_file(folder / "answer.json")


def test_documents(client: httpx.Client, served: Served) -> None:
    assert client.get("/healthz").json()["status"] == "ok"
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"] and "http://www.w3.org" in page.text
    assert "https://" not in page.text and page.text.count("http://") == 1  # nothing from elsewhere
    told = client.get("/v1/classifier").json()
    assert [m["name"] for m in told["methods"]] == list(METHODS) == served.methods
    assert told["classes"] == ["ant", "bee", "cat"] and told["name"] == "insects" and told["votes"]
    assert told["fingerprint"] == served.classifier.fingerprint and told["facts"] == served.classifier.facts
    assert told["transform"]["range"] == [[pytest.approx(-DEGREES), pytest.approx(DEGREES)]]
    assert told["calibration"]["q_E"] > 0.99 and client.get("/v1/samples").json() == []
    assert {"/v1/predict", "/v1/certify"} <= client.get("/openapi.json").json()["paths"].keys()
    assert b'warpcert_answers_total{path="/v1/classifier",status="200"}' in client.get("/metrics").content


def test_the_api_is_shown_without_a_script(client: httpx.Client) -> None:
    """Every path and every field of the document stands on /docs, which loads nothing."""
    shown, document = client.get("/docs"), client.get("/openapi.json").json()
    assert shown.status_code == 200 and "script-src 'none'" in shown.headers["content-security-policy"]
    assert not re.search(r"(src|href)=\"(?!/openapi\.json|/\"|data:)", shown.text)
    for path, verbs in document["paths"].items():
        assert f"<code>{path}</code>" in shown.text
        for operation in verbs.values():
            assert operation["summary"] in html.unescape(shown.text)
    for field in ("pixels", "alpha", "windows", "inverse", "cells", "prediction", "notes"):
        assert f"<code>{field}</code>" in shown.text


def test_a_picture_in_every_dress_gives_one_digest(client: httpx.Client) -> None:
    given = {"json": {"pixels": [[[0.0] * 12] * 12]}}, {"json": {"image": text(png())}}
    dressed = {"json": {"image": f"data:image/png;base64,{text(png())}"}}, {"files": {"image": png()}}
    digests = {client.post("/v1/predict", **way).json()["picture"] for way in (*given, *dressed)}  # type: ignore[arg-type]
    assert len(digests) == 1


def test_numbers_are_the_floats_that_a_file_gives() -> None:
    values = [[[k / 255 for k in range(256)]]]
    assert torch.equal(asked.from_pixels(values, (1, 1, 256)), torch.arange(256).reshape(1, 1, 256).float() / 255)


def test_numbers_that_float32_would_change_are_refused() -> None:
    """What is certified is the picture that was sent: 64.4999… levels, one step of float64 beside 64.5, is another."""
    held = [0.1, 0.3, 1e-7, 0.5019608, 0.50196078431372548, float(torch.tensor(0.7)), 2**-149, 1 / 255, 254 / 255, 0, 1]
    kept = asked.from_pixels([[held]], (1, 1, len(held)))
    assert torch.equal(kept.flatten(), torch.tensor(held, dtype=torch.float64).float())
    for value in (64.49999999974 / 255, 0.123456789, 0.1 + 1e-12, 1 / 255 + 1e-12, 1 - 1e-9):
        with pytest.raises(ValueError, match="float32 holds"):
            asked.from_pixels([[[0.5, value]]], (1, 1, 2))


@pytest.mark.parametrize("early", [False, True])
def test_predict(client: httpx.Client, served: Served, tmp_path: Path, early: bool) -> None:
    reply = client.post("/v1/predict", json={"pixels": PIXELS, "n": 200, "early": early})
    found = reply.json()["prediction"]
    assert found["label"] == served.classifier.predict(torch.tensor(PIXELS)) == 1
    assert sum(found["counts"]) == (24 if early else 200) and found["rule"] == ("anytime" if early else "fixed")
    assert found["classifier"]["name"] == "insects"
    assert found["classifier"]["fingerprint"] == served.classifier.fingerprint
    assert check_file(tmp_path, reply.content) == []
    other = client.post("/v1/predict", data={"n": "200", "early": str(early)}, files={"image": png()}).json()
    assert sum(other["prediction"]["counts"]) == sum(found["counts"])


@pytest.mark.parametrize("made", [levels(), Plain(network()), Plain(network().half().float(), precision="half")])
def test_classifiers_without_noise_answer_by_their_logits(made: Classifier, tmp_path: Path) -> None:
    """The answer over HTTP is `predict`'s, with the logits that lead to it; the certificate speaks of the same."""
    served = Served("file", made, wc.Threat.rotation(1), (1, 12, 12), ("ant", "bee", "cat"), torch.device("cpu"))
    with running(served) as (url, _):
        reply = httpx.post(f"{url}/v1/predict", json={"pixels": PIXELS})
        proof = httpx.post(f"{url}/v1/certify", json={"pixels": PIXELS}, timeout=60)
    found, x = reply.json()["prediction"], torch.tensor(PIXELS)
    assert found["label"] == made.predict(x) == 1 and found["rule"] == "deterministic"
    assert dict(found["logits"]) == pytest.approx(dict(enumerate(made(x[None])[0].tolist())), abs=0.05)
    assert check_file(tmp_path, reply.content) == [] == check_file(tmp_path, proof.content)
    certificate = proof.json()["certificate"]
    assert certificate["method"] == "exact" and certificate["label"] == 1
    assert certificate["classifier"]["fingerprint"] == found["classifier"]["fingerprint"] == made.fingerprint


def test_nested_votes_are_said_to_be_nested(tmp_path: Path) -> None:
    """Their test is another one, with the inner α."""
    record = predicted(smoothed(nested=True), torch.tensor(PIXELS), n=60)
    assert record["label"] == 1 and record["rule"] == "nested" and (record["n"], record["alpha_inner"]) == (60, 0.001)
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(sealed_answer(torch.tensor(PIXELS), prediction=record)))
    assert verify_file(file) == []
    for wrong in ({"n": 10_000}, {"alpha_inner": 0.9}, {"rule": "fixed"}, {"counts": [30, 60, 0]}, {"label": 0}):
        file.write_text(json.dumps(sealed_answer(torch.tensor(PIXELS), prediction=record | wrong)))
        assert verify_file(file) != [], wrong


def test_the_batched_classifier_is_the_classifier() -> None:
    """Another network stands in it, and nothing else is different: fingerprint, facts, logits, votes."""
    for made in (smoothed(), levels(), Smoothed(lambda z: z.flatten(1)[:, :3], noise=0.1)):
        batcher = Batcher(made, 64)
        through = batcher.classifier(Token(60))
        assert type(through) is type(made) and through.network is not made.network
        assert (through.fingerprint, through.facts, through.name) == (made.fingerprint, made.facts, made.name)
        z = torch.rand(5, 1, 12, 12)
        assert torch.allclose(through.logits(z), made.logits(z), atol=1e-5) and batcher.samples == 5
        assert made.network is not through.network and not any(m.training for m in through.modules())
        if isinstance(through, Smoothed) and isinstance(made, Smoothed):
            draws = [torch.Generator().manual_seed(7) for _ in range(2)]
            a, b = (c.vote(z[0], n=50, generator=g) for c, g in zip((through, made), draws, strict=True))
            assert a == b
        batcher.close()


@pytest.mark.parametrize("method", METHODS)
def test_certify(client: httpx.Client, tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    degrees = 0.1 if method == "indiv" else DEGREES  # from an attacked picture it is slow
    pixels = [[[k / 255 for k in range(12)]] * 12]
    given = {"pixels": pixels, "method": method, "n": 3000, "windows": 1, "gamma": [degrees]}
    reply = client.post("/v1/certify", json=given)
    answer = reply.json()
    assert reply.status_code == 200 and answer["certificate"]["label"] == 1, answer
    assert answer["certificate"]["derived"]["range"] == pytest.approx([-degrees, degrees])
    assert answer["certificate"]["classifier"]["name"] == "insects"
    made = wc.read_certificate(answer["certificate"])
    assert str(made) == answer["certificate"]["derived"]["sentence"] and made.method == method
    assert check_file(tmp_path, reply.content) == []
    assert main(["check", str(tmp_path / "answer.json")]) == 0 and "0 problems" in capsys.readouterr().out
    alone = json.dumps(answer["certificate"]).encode()
    assert check_file(tmp_path, alone) == []


def test_settings_left_out_are_the_method_s_own(client: httpx.Client, served: Served) -> None:
    """The classifier's method, its settings where no others are given, and n no larger than the server allows."""
    limits = Limits(n=2000)
    method = asked.method_of(asked.Certify(), served, served.threat, limits)
    assert method.name == served.classifier.method == "dist-x" and method.to_dict()["n"] == 2000
    given = asked.Certify(method="indiv", betas=40, alpha=0.2)
    settings = asked.method_of(given, served, served.threat, limits).to_dict()
    assert (settings["betas"], settings["alpha"], settings["inverse"]) == (40, 0.2, "interval")
    reply = client.post("/v1/certify", json={"pixels": PIXELS, "method": "base", "betas": 40})
    assert reply.status_code == 422 and "base has no setting betas" in reply.json()["error"]


def test_randomness_is_fresh(client: httpx.Client) -> None:
    asked = {"pixels": PIXELS, "method": "base", "n": 300, "windows": 1}
    seeds = {client.post("/v1/certify", json=asked).json()["certificate"]["seed"] for _ in range(3)}
    assert len(seeds) == 3 and all(seed > 2**40 for seed in seeds)


def test_an_edited_answer_is_noticed(client: httpx.Client, tmp_path: Path) -> None:
    reply = client.post("/v1/predict", json={"pixels": PIXELS, "n": 100})
    assert check_file(tmp_path, reply.content.replace(b"100", b"101", 1)) != []
    body = {k: v for k, v in reply.json().items() if k != "digest"}
    body["prediction"]["label"] = 2  # sealed anew, but it does not follow from the counts
    named = reply.json()["prediction"]["classifier"]
    (problem,) = check_file(tmp_path, json.dumps(seal(body)).encode())
    assert "does not follow from the counts" in problem
    for edit in (
        {"label": 7}, {"label": True}, {"counts": [0, 1e9, 0]}, {"counts": []}, {"rule": "luck"}, {"alpha": 0},
        {"rule": "deterministic"}, {"note": "trust me"}, {"classifier": named | {"fingerprint": "0" * 64}},
        {"classifier": named | {"facts": named["facts"] | {"noise": 9.0}}},
    ):  # fmt: skip
        edited = seal(body | {"prediction": reply.json()["prediction"] | edit})
        assert check_file(tmp_path, json.dumps(edited).encode()) != []
    assert check_file(tmp_path, json.dumps(seal(body | {"prediction": reply.json()["prediction"], "x": 1})).encode())
    for wrong in (b"[]", b"{}", json.dumps(seal({"certificate": None, "prediction": None})).encode()):
        assert check_file(tmp_path, wrong) != []
    with pytest.raises(ValueError, match="is not JSON"):
        check_file(tmp_path, b"{")


def test_progress_comes_as_events(client: httpx.Client) -> None:
    asked = {"pixels": PIXELS, "method": "base", "n": 5000}
    reply = client.post("/v1/certify", json=asked, headers={"Accept": "text/event-stream"})
    events = [event.split("\n") for event in reply.text.strip().split("\n\n")]
    assert events[-1][0] == "event: certificate"
    assert json.loads(events[-1][1].removeprefix("data: "))["certificate"]["label"] == 1
    asked |= {"n": 32, "alpha": 1e-8}
    reply = client.post("/v1/certify", json=asked, headers={"Accept": "text/event-stream"})
    assert "event: failure" in reply.text and "raise n" in reply.text


def test_attack_and_originals(client: httpx.Client) -> None:
    """A positive angle turns counter-clockwise: what was at the right is then at the top."""
    x = [[[float(row == column) for column in range(12)] for row in range(12)]]
    still = client.post("/v1/attack", json={"pixels": x, "gamma": [0]})
    assert still.headers["content-type"] == "image/png"
    assert torch.equal(pictures.decode(still.content, (1, 12, 12)).image, torch.tensor(x))
    turned = pictures.decode(client.post("/v1/attack", json={"pixels": x, "gamma": [90]}).content).image
    assert torch.allclose(turned, torch.tensor(x).rot90(1, (1, 2)), atol=1 / 255)
    moved = client.post("/v1/attack", json={"pixels": x, "gamma": [2]}).content
    found = client.post("/v1/originals", files={"image": moved}, data={"cells": "8"}).json()
    assert any(lo <= 2 <= hi for [[lo, hi]] in found["ranges"])
    low, high = (pictures.decode(base64.b64decode(found[end])).image for end in ("low", "high"))
    assert bool((low <= torch.tensor(x)).all()) and bool((torch.tensor(x) <= high).all())


def test_a_file_is_rounded_whatever_the_attacker_does() -> None:
    """Against an attacker who hands over real numbers, the originals of a PNG are those of a rounded picture."""
    x = torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(1)).mul(255).round() / 255
    threat = wc.Threat.rotation(10, quantized=False)
    moved = pictures.decode(answers.attack(threat, x, [5.0])).image
    found = answers.originals(threat, moved, 40)
    assert any(lo <= 5 <= hi for [[lo, hi]] in found["ranges"])
    low, high = (pictures.decode(base64.b64decode(found[end])).image for end in ("low", "high"))
    assert bool((low <= x).all()) and bool((x <= high).all())
    exact = threat.attacked(x, torch.tensor([[math.radians(5)]], dtype=torch.float64))[0]
    assert any(lo <= 5 <= hi for [[lo, hi]] in answers.originals(threat, exact, 40)["ranges"])


def test_a_photograph_is_made_fit_and_it_says_how(client: httpx.Client) -> None:
    photo = png(400, 300, "RGB", "JPEG") + bytes(60_000)  # larger than other requests may be
    found = client.post("/v1/picture", content=photo, headers={"Content-Type": "image/jpeg"}).json()
    assert found["notes"] == ["cut and resized from 400×300 to 12×12 pixels"]
    assert pictures.decode(base64.b64decode(found["image"]), (1, 12, 12)).notes == ()
    exact = client.post("/v1/picture", content=png(), headers={"Content-Type": "image/png"}).json()
    assert exact["notes"] == []
    for body, kind, status in ((png(mode="I;16"), "image/png", 422), (png(), "text/plain", 415)):
        assert client.post("/v1/picture", content=body, headers={"Content-Type": kind}).status_code == status


def bomb(width: int, height: int) -> bytes:
    """A small PNG file that says it is large."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(9000))) + chunk(b"IEND", b"")
    )


P, C = "/v1/predict", "/v1/certify"
red = pictures.encode(torch.tensor([1.0, 0, 0]).reshape(3, 1, 1).expand(3, 12, 12))
NAN = json.dumps({"pixels": [[[math.nan] * 12] * 12]})
REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    (P, {"files": {"image": b"no picture"}}, 422, "not a whole PNG or JPEG"),
    (P, {"files": {"image": png()[:-30]}}, 422, "not a whole PNG or JPEG"),
    (P, {"files": {"image": png(kind="GIF")}}, 422, "not a whole PNG or JPEG"),
    (P, {"files": {"image": bomb(50_000, 50_000)}}, 422, "far more pixels than"),
    (P, {"files": {"image": bomb(9000, 9000)}}, 422, "9000×9000 pixels; at most"),
    (P, {"files": {"image": bomb(4000, 4000)}}, 422, "4000×4000, but the classifier takes 12×12"),
    (P, {"files": {"image": bomb(12, 12)[:40]}}, 422, "not a whole"),
    (P, {"files": {"image": png(13, 12)}}, 422, "13×12, but the classifier takes 12×12"),
    (P, {"files": {"image": red}}, 422, "in colour, but the classifier takes grey"),
    (P, {"files": {"image": png(mode="I;16")}}, 422, "16 bits per channel: save it with 8"),
    (P, {"files": {"image": png(mode="RGBA")}}, 422, "transparent in places"),
    (P, {"files": {"other": png()}}, 422, "a file named image"),
    (P, {"data": {"image": "text"}, "files": {"other": png()}}, 422, "a file named image"),
    (P, {"json": {"image": "*"}}, 422, "not base64"),
    (P, {"json": {"image": text(png()), "pixels": PIXELS}}, 422, "send one picture"),
    (P, {"json": {}}, 422, "send one picture"),
    (
        P,
        {"json": {"pixels": [[[0.5] * 12] * 11]}},
        422,
        "must have the shape [1, 12, 12]: channels, rows, columns; got [1, 11, 12]",
    ),
    (P, {"json": {"pixels": [[[0.5]] * 12] * 12}}, 422, "got [12, 12, 1]; these are rows, columns, channels"),
    (P, {"json": {"pixels": PIXELS * 3}}, 422, "must have the shape [1, 12, 12]"),
    (P, {"json": {"pixels": [[[1.5] * 12] * 12]}}, 422, "in [0, 1]"),
    (C, {"json": {"pixels": [[[64.49999999974 / 255] * 12] * 12]}}, 422, "another picture"),
    (P, {"content": NAN, "headers": {"Content-Type": "application/json"}}, 422, "finite"),
    (P, {"content": "{", "headers": {"Content-Type": "application/json"}}, 400, "not JSON"),
    (P, {"content": "x", "headers": {"Content-Type": "text/plain"}}, 415, "got text/plain"),
    (P, {"json": {"pixels": PIXELS, "n": 6000}}, 422, "n = 6000 is outside what this server allows"),
    (P, {"json": {"pixels": PIXELS, "n": 0}}, 422, "n: Input should be greater"),
    (P, {"json": {"pixels": PIXELS, "alpha": 1e-12}}, 422, "alpha = 1e-12"),
    (P, {"json": {"pixels": PIXELS, "alpha": 2}}, 422, "alpha"),
    (P, {"json": {"pixels": PIXELS, "seed": 1}}, 422, "seed: Extra inputs"),
    (C, {"json": {"pixels": PIXELS, "gamma": [1e6]}}, 422, "beyond what this server allows, ±3°"),
    (C, {"json": {"pixels": PIXELS, "gamma": [-1]}}, 422, "≥ 0"),
    (C, {"json": {"pixels": PIXELS, "gamma": [1, 2]}}, 422, "must contain 0"),
    (C, {"json": {"pixels": PIXELS, "gamma": [1, 2, 3]}}, 422, "rotation"),
    (C, {"json": {"pixels": PIXELS, "n": 10**9}}, 422, "n = 1e+09"),
    (C, {"json": {"pixels": PIXELS, "windows": 1000}}, 422, "windows = 1000"),
    (C, {"json": {"pixels": PIXELS, "method": "dist-d", "gamma": [1]}}, 422, "the calibration does not fit"),
    (C, {"json": {"pixels": PIXELS, "method": "magic"}}, 422, "'magic' is not known; choose one of exact"),
    (C, {"json": {"pixels": PIXELS, "method": "exact"}}, 422, "without noise"),
    (C, {"json": {"pixels": PIXELS, "method": "cover"}}, 422, "(this server offers dist-x, dist-d"),
    ("/v1/attack", {"json": {"pixels": PIXELS, "gamma": [1, 2]}}, 422, "rotation has 1 parameter(s) in degrees"),
    ("/v1/attack", {"json": {"pixels": PIXELS, "gamma": [1e9]}}, 422, "gamma = 1e+09"),
    ("/v1/originals", {"json": {"pixels": PIXELS, "cells": 10**6}}, 422, "cells = 1e+06"),
    (P, {"files": {"image": bytes(60_000)}}, 413, "larger than the 50000 bytes"),
    (P, {"json": {"pixels": PIXELS}, "headers": {"Origin": "http://evil.example"}}, 403, "evil.example"),
    (P, {"json": {"pixels": PIXELS}, "headers": {"Host": "evil.example"}}, 403, "by the name of evil.example"),
    (P, {"json": {"pixels": PIXELS}, "headers": {"Host": ""}}, 403, "by the name of nobody"),
    ("/v1/nothing", {}, 404, "Not Found"),
    ("/healthz", {}, 405, "Not Allowed"),
]


@pytest.mark.parametrize(("path", "given", "status", "sentence"), REFUSED, ids=[f"{i}" for i in range(len(REFUSED))])
def test_refused_before_any_work(
    client: httpx.Client, server: Server, path: str, given: dict[str, Any], status: int, sentence: str
) -> None:
    before = server.batcher.samples
    reply = client.post(path, **given)
    assert reply.status_code == status and sentence in reply.json()["error"], reply.text
    assert server.batcher.samples == before and all(pool.pending == 0 for pool in server.pools)


def test_the_examples_of_the_docs_exist(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()["paths"]
    lines = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8").splitlines()
    asked = [line for line in lines if line.startswith("curl ")]
    assert len(asked) >= 7
    for line in asked:
        (path,) = re.findall(r"http://127.0.0.1:8400(/\S*)", line)
        fields = set(re.findall(r"-F (\w+)=", line))
        asks = document[path]["post" if fields or "--data-binary" in line else "get"]
        body = asks.get("requestBody", {"content": {}})["content"]
        assert not fields or fields <= body["multipart/form-data"]["schema"]["properties"].keys()
    for line in (line.split("#")[0] for line in lines if line.startswith("warpcert ")):
        build_parser().parse_args(shlex.split(line)[1:])


def test_too_small_an_n_is_said(client: httpx.Client) -> None:
    reply = client.post("/v1/certify", json={"pixels": PIXELS, "method": "base", "n": 32, "alpha": 1e-8})
    assert reply.status_code == 422 and "raise n" in reply.json()["error"]


def test_the_token(served: Served) -> None:
    with running(served, "a-long-enough-token") as (url, _), httpx.Client(base_url=url) as client:
        assert all(client.get(path).status_code == 200 for path in ("/", "/healthz", "/docs"))
        for path in ("/v1/classifier", "/metrics", "/openapi.json"):
            reply = client.get(path)
            assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
            assert client.get(path, headers={"Authorization": "Bearer a-long-enough-tokem"}).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer a-long-enough-token"}).status_code == 200


def test_what_is_served_can_be_said(tmp_path: Path) -> None:
    """Another range, another transformation, a calibration; and what cannot be served."""
    bare = write_file(tmp_path, smoothed())
    assert "dist-d" not in open_served(bare).methods and open_served(bare, gamma=[2]).threat == wc.Threat.rotation(2)
    calibration().write(tmp_path / "calibration.json")
    known = open_served(bare, calibration=tmp_path / "calibration.json")
    assert "dist-d" in known.methods and known.threat == calibration().threat
    assert "dist-d" not in open_served(bare, gamma=[2], calibration=tmp_path / "calibration.json").methods
    moved = open_served(write_file(tmp_path, levels()), transform="scaling", gamma=[5])
    assert moved.threat == wc.Threat.scaling(5) and moved.methods == ["exact"]
    with pytest.raises(ValueError, match="give the range for which"):
        open_served(bare, transform="scaling")
    nothing = Plain(network())
    with pytest.raises(ValueError, match="no threat of its own"):
        open_served(write_file(tmp_path, nothing))
    assert open_served(write_file(tmp_path, nothing), transform="scaling", gamma=[5]).classes == ("0", "1", "2")


def test_a_reference_is_for_known_originals(tmp_path: Path) -> None:
    """A calibration with one certifies originals, and never from an attacked picture."""
    calibration("mitchell").write(tmp_path / "calibration.json")
    served = open_served(write_file(tmp_path, smoothed()), calibration=tmp_path / "calibration.json")
    assert "dist-d" in served.methods and "dist-d-online" not in served.methods
    with running(served, n=5000) as (url, _), httpx.Client(base_url=url, timeout=60) as client:
        body = {"pixels": PIXELS, "n": 3000}
        assert client.post("/v1/predict", json=body).json()["prediction"]["label"] == 1
        made = client.post("/v1/certify", json=body | {"method": "dist-d", "windows": 1}).json()
        assert made["certificate"]["defence"]["reference"] == "mitchell"
        refused = client.post("/v1/certify", json=body | {"method": "dist-d-online"})
        assert refused.status_code == 422 and "without a reference" in refused.json()["error"]


def test_the_classifier_of_a_run_is_served(tmp_path: Path) -> None:
    """Exactly what a run certified: same fingerprint, its threat, its method."""
    weights = write_file(tmp_path, levels())
    config = open_served(weights)
    images = torch.zeros(1, 1, 12, 12, dtype=torch.uint8)
    wc.certify_all(wc.load(weights), [(images[0].float(), 1)], out=tmp_path / "run", threat=wc.Threat.rotation(1))
    served = open_served(str(tmp_path / "run"))
    assert served.classifier.fingerprint == config.classifier.fingerprint
    assert served.threat == wc.Threat.rotation(1) and served.classifier.method == "exact"
    with pytest.raises(ValueError):
        open_served(str(tmp_path))


def test_a_taken_port_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", write_file(tmp_path), "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"port {port} of 127.0.0.1 cannot be used" in said and "served at" not in said
    assert said.count("\n") <= 3 and "Traceback" not in said
    with pytest.raises(ValueError, match="a port lies in 0"):
        listen("127.0.0.1", 99_999)


def test_only_a_local_server_minds_its_names() -> None:
    assert hosts_of("0.0.0.0") is None and hosts_of("192.168.1.2") is None
    assert hosts_of("localhost", ["Proxy.Example"]) == {"127.0.0.1", "::1", "localhost", "proxy.example"}


def test_serve_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "no-such-model"]) == 2 and "no-such-model" in capsys.readouterr().err
    monkeypatch.setenv("WARPCERT_TOKEN", "short")
    assert main(["serve"]) == 2 and "at least 16 characters" in capsys.readouterr().err
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    assert main(["serve"]) == 2 and "pip install 'warpcert[serve]'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="n must be positive"):
        Limits(n=0)
