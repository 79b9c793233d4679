"""The server's answers and refusals, one request at a time."""

from __future__ import annotations

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
from serving import GAMMA, PIXELS, png, running, text, write_folder

from warpcert.app.cli import build_parser, main
from warpcert.app.serve import pictures
from warpcert.app.serve.limits import Limits
from warpcert.app.serve.served import METHODS, Served, open_served
from warpcert.app.serve.server import Server
from warpcert.certificates.sealed import seal
from warpcert.runs.answers import verify_file


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return open_served(str(write_folder(tmp_path_factory.mktemp("served"))))


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


def test_documents(client: httpx.Client) -> None:
    assert client.get("/healthz").json()["status"] == "ok"
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"] and "http://www.w3.org" in page.text
    assert "https://" not in page.text and page.text.count("http://") == 1  # nothing from elsewhere
    defence = client.get("/v1/defence").json()
    assert set(defence["methods"]) == set(METHODS) and defence["classes"] == ["ant", "bee", "cat"]
    assert defence["transform"]["gamma"] == [[pytest.approx(-GAMMA), pytest.approx(GAMMA)]]
    assert defence["calibration"]["q_E"] > 0.99 and client.get("/v1/samples").json() == []
    assert {"/v1/predict", "/v1/certify"} <= client.get("/openapi.json").json()["paths"].keys()
    assert b'warpcert_answers_total{path="/v1/defence",status="200"}' in client.get("/metrics").content


def test_a_picture_in_every_dress_gives_one_digest(client: httpx.Client) -> None:
    given = {"json": {"pixels": [[[0.0] * 12] * 12]}}, {"json": {"image": text(png())}}
    dressed = {"json": {"image": f"data:image/png;base64,{text(png())}"}}, {"files": {"image": png()}}
    digests = {client.post("/v1/predict", **way).json()["picture"] for way in (*given, *dressed)}  # type: ignore[arg-type]
    assert len(digests) == 1


def test_numbers_are_the_floats_that_a_file_gives() -> None:
    levels = [[[k / 255 for k in range(256)]]]
    assert torch.equal(pictures.from_pixels(levels, (1, 1, 256)), torch.arange(256).reshape(1, 1, 256).float() / 255)


@pytest.mark.parametrize("early", [False, True])
def test_predict(client: httpx.Client, tmp_path: Path, early: bool) -> None:
    reply = client.post("/v1/predict", json={"pixels": PIXELS, "n": 200, "early": early})
    answer = reply.json()
    assert answer["prediction"]["label"] == answer["plain"] == 1
    assert sum(answer["prediction"]["counts"]) == (24 if early else 200)
    assert check_file(tmp_path, reply.content) == []
    assert (answer["certificate"] is None) == early  # the calibration also vouches for the unseen original
    if not early:
        assert answer["certificate"]["form"] == "attacked" and answer["certificate"]["label"] == 1
    other = client.post("/v1/predict", data={"n": "200", "early": str(early)}, files={"image": png()}).json()
    assert sum(other["prediction"]["counts"]) == sum(answer["prediction"]["counts"])


@pytest.mark.parametrize("method", list(METHODS))
def test_certify(client: httpx.Client, tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    gamma = 0.1 if method == "indiv" else GAMMA  # from an attacked picture it is slow
    asked = {
        "pixels": [[[k / 255 for k in range(12)]] * 12],
        "method": method,
        "n": 3000,
        "windows": 1,
        "gamma": [gamma],
    }
    reply = client.post("/v1/certify", json=asked)
    answer = reply.json()
    assert reply.status_code == 200 and answer["certificate"]["label"] == 1, answer
    assert answer["reach"][0][1] == pytest.approx(gamma)
    assert check_file(tmp_path, reply.content) == []
    assert main(["check", str(tmp_path / "answer.json")]) == 0 and "0 problems" in capsys.readouterr().out
    alone = json.dumps(answer["certificate"]).encode()
    assert check_file(tmp_path, alone) == []


def test_randomness_is_fresh(client: httpx.Client) -> None:
    asked = {"pixels": PIXELS, "method": "base", "n": 300, "windows": 1}
    seeds = {client.post("/v1/certify", json=asked).json()["certificate"]["seed"] for _ in range(3)}
    assert len(seeds) == 3 and all(seed > 2**40 for seed in seeds)


def test_an_edited_answer_is_noticed(client: httpx.Client, tmp_path: Path) -> None:
    reply = client.post("/v1/predict", json={"pixels": PIXELS, "n": 100})
    assert check_file(tmp_path, reply.content.replace(b"100", b"101", 1)) != []
    body = {k: v for k, v in reply.json().items() if k != "digest"}
    body["prediction"]["label"] = 2  # sealed anew, but it does not follow from the counts
    (problem,) = check_file(tmp_path, json.dumps(seal(body)).encode())
    assert "does not follow from the counts" in problem
    for edit in ({"label": 7}, {"counts": [0, 1e9, 0]}, {"counts": []}, {"rule": "luck"}):
        edited = seal(body | {"prediction": reply.json()["prediction"] | edit})
        assert check_file(tmp_path, json.dumps(edited).encode()) != []
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
    x = [[[float(row == column) for column in range(12)] for row in range(12)]]
    still = client.post("/v1/attack", json={"pixels": x, "gamma": [0]})
    assert still.headers["content-type"] == "image/png"
    assert torch.equal(pictures.from_file(still.content, (1, 12, 12)), torch.tensor(x))
    turned = pictures.from_file(client.post("/v1/attack", json={"pixels": x, "gamma": [90]}).content, (1, 12, 12))
    assert torch.allclose(turned, torch.tensor(x).rot90(1, (1, 2)), atol=1 / 255)
    moved = client.post("/v1/attack", json={"pixels": x, "gamma": [2]}).content
    found = client.post("/v1/originals", files={"image": moved}, data={"cells": "8"}).json()
    assert any(lo <= 2 <= hi for [[lo, hi]] in found["ranges"])
    low, high = (pictures.from_base64(found[end], (1, 12, 12)) for end in ("low", "high"))
    assert bool((low <= torch.tensor(x)).all()) and bool((torch.tensor(x) <= high).all())


def bomb(width: int, height: int) -> bytes:
    """A small PNG file that says it is large."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(9000))) + chunk(b"IEND", b"")
    )


P, C = "/v1/predict", "/v1/certify"
NAN = json.dumps({"pixels": [[[math.nan] * 12] * 12]})
REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    (P, {"files": {"image": b"no picture"}}, 422, "not a whole PNG or JPEG"),
    (P, {"files": {"image": png()[:-30]}}, 422, "not a whole PNG or JPEG"),
    (P, {"files": {"image": png(kind="GIF")}}, 422, "not a whole PNG or JPEG"),
    (P, {"files": {"image": bomb(50_000, 50_000)}}, 422, "not a whole PNG or JPEG picture (DecompressionBomb"),
    (P, {"files": {"image": bomb(9000, 9000)}}, 422, "9000×9000, but this model takes 12×12"),
    (P, {"files": {"image": bomb(12, 12)[:40]}}, 422, "not a whole"),
    (P, {"files": {"image": png(13, 12)}}, 422, "13×12, but this model takes 12×12"),
    (P, {"files": {"image": png(mode="RGB")}}, 422, "mode is RGB"),
    (P, {"files": {"image": png(mode="I;16")}}, 422, "mode is I;16"),
    (P, {"files": {"image": png(mode="RGBA")}}, 422, "mode is RGBA"),
    (P, {"files": {"other": png()}}, 422, "a file named image"),
    (P, {"data": {"image": "text"}, "files": {"other": png()}}, 422, "a file named image"),
    (P, {"json": {"image": "*"}}, 422, "not base64"),
    (P, {"json": {"image": text(png()), "pixels": PIXELS}}, 422, "send one picture"),
    (P, {"json": {}}, 422, "send one picture"),
    (P, {"json": {"pixels": [[[0.5] * 12] * 11]}}, 422, "must have the shape [1, 12, 12]"),
    (P, {"json": {"pixels": PIXELS * 3}}, 422, "must have the shape [1, 12, 12]"),
    (P, {"json": {"pixels": [[[1.5] * 12] * 12]}}, 422, "in [0, 1]"),
    (P, {"content": NAN, "headers": {"Content-Type": "application/json"}}, 422, "finite"),
    (P, {"content": "{", "headers": {"Content-Type": "application/json"}}, 400, "not JSON"),
    (P, {"content": "x", "headers": {"Content-Type": "text/plain"}}, 415, "got text/plain"),
    (P, {"json": {"pixels": PIXELS, "n": 6000}}, 422, "n = 6000 is outside what this server allows"),
    (P, {"json": {"pixels": PIXELS, "n": 0}}, 422, "n: Input should be greater"),
    (P, {"json": {"pixels": PIXELS, "alpha": 1e-12}}, 422, "alpha = 1e-12"),
    (P, {"json": {"pixels": PIXELS, "alpha": 2}}, 422, "alpha"),
    (P, {"json": {"pixels": PIXELS, "seed": 1}}, 422, "seed: Extra inputs"),
    (C, {"json": {"pixels": PIXELS, "gamma": [1e9]}}, 422, "beyond what this server allows, ±3°"),
    (C, {"json": {"pixels": PIXELS, "gamma": [-1]}}, 422, "≥ 0"),
    (C, {"json": {"pixels": PIXELS, "gamma": [1, 2]}}, 422, "must contain γ = 0"),
    (C, {"json": {"pixels": PIXELS, "gamma": [1, 2, 3]}}, 422, "Γ for rotation"),
    (C, {"json": {"pixels": PIXELS, "n": 10**9}}, 422, "n = 1e+09"),
    (C, {"json": {"pixels": PIXELS, "windows": 1000}}, 422, "windows = 1000"),
    (C, {"json": {"pixels": PIXELS, "method": "dist-d", "gamma": [1]}}, 422, "the calibration does not fit"),
    (C, {"json": {"pixels": PIXELS, "method": "magic"}}, 422, "'magic' is not known; this server offers cover"),
    ("/v1/attack", {"json": {"pixels": PIXELS, "gamma": [1, 2]}}, 422, "rotation has 1 parameter(s)"),
    ("/v1/attack", {"json": {"pixels": PIXELS, "gamma": [1e9]}}, 422, "gamma = 1e+09"),
    ("/v1/originals", {"json": {"pixels": PIXELS, "cells": 10**6}}, 422, "cells = 1e+06"),
    (P, {"files": {"image": bytes(60_000)}}, 413, "larger than the 50000 bytes"),
    (P, {"json": {"pixels": PIXELS}, "headers": {"Origin": "http://evil.example"}}, 403, "evil.example"),
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
    assert server.batcher.samples == before and server.quick.pending == server.slow.pending == 0


def test_the_examples_of_the_docs_exist(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()["paths"]
    lines = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8").splitlines()
    asked = [line for line in lines if line.startswith("curl ")]
    assert len(asked) >= 7
    for line in asked:
        (path,) = re.findall(r"http://127.0.0.1:8400(/\S*)", line)
        fields = set(re.findall(r"-F (\w+)=", line))
        body = document[path]["post" if fields else "get"].get("requestBody", {"content": {}})["content"]
        assert not fields or fields <= body["multipart/form-data"]["schema"]["properties"].keys()
    for line in (line.split("#")[0] for line in lines if line.startswith("warpcert ")):
        build_parser().parse_args(shlex.split(line)[1:])


def test_too_small_an_n_is_said(client: httpx.Client) -> None:
    reply = client.post("/v1/certify", json={"pixels": PIXELS, "method": "base", "n": 32, "alpha": 1e-8})
    assert reply.status_code == 422 and "raise n" in reply.json()["error"]


def test_the_token(served: Served) -> None:
    with running(served, "a-long-enough-token") as (url, _), httpx.Client(base_url=url) as client:
        assert client.get("/").status_code == client.get("/healthz").status_code == 200
        for path in ("/v1/defence", "/metrics", "/openapi.json"):
            reply = client.get(path)
            assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
            assert client.get(path, headers={"Authorization": "Bearer a-long-enough-tokem"}).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer a-long-enough-token"}).status_code == 200


@pytest.mark.parametrize("count", [0, 2])
def test_what_cannot_be_served_is_said(tmp_path: Path, count: int) -> None:
    for i in range(count):
        write_folder(tmp_path).joinpath("model.safetensors").rename(tmp_path / f"{i}.safetensors")
    with pytest.raises(ValueError, match=f"must hold one .safetensors file; it holds {count}"):
        open_served(str(tmp_path))


def test_serve_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "no-such-model"]) == 2 and "no-such-model" in capsys.readouterr().err
    monkeypatch.setenv("WARPCERT_TOKEN", "short")
    assert main(["serve", "no-such-model"]) == 2 and "at least 16 characters" in capsys.readouterr().err
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    assert main(["serve"]) == 2 and "pip install 'warpcert[serve]'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="n must be positive"):
        Limits(n=0)
