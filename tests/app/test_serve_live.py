"""Many clients, and clients that go away: batching, queues, cancellation, time limits, draining."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch
from serving import PIXELS, eventually, png, running, slowed, write_file
from starlette.types import Message, Receive, Scope, Send
from torch import Tensor

from warpcert.app.serve.batcher import Batcher
from warpcert.app.serve.jobs import BusyError, CancelledError, LateError, Pool, Token
from warpcert.app.serve.limits import Gate, Limits
from warpcert.app.serve.metrics import Metrics
from warpcert.app.serve.served import Served, open_served
from warpcert.app.serve.server import Seldom
from warpcert.classifier import Plain
from warpcert.runs.answers import verify_file

STREAM = {"Accept": "text/event-stream"}
LONG = {"pixels": PIXELS, "method": "base", "n": 100_000}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return open_served(write_file(tmp_path_factory.mktemp("served")))


def metric(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_logits_find_their_way_back() -> None:
    """Rows of many threads share passes, large batches are cut, and everyone gets the logits of their own rows."""

    def double(batch: Tensor) -> Tensor:
        time.sleep(0.002)
        return 2 * batch

    batcher = Batcher(Plain(double), 8)
    sizes = [1, 3, 5, 8, 20] * 8
    with ThreadPoolExecutor(len(sizes)) as threads:
        batches = [torch.randn(size, 4) for size in sizes]
        futures = [threads.submit(batcher.classifier(Token(60)).logits, batch) for batch in batches]
        for batch, future in zip(batches, futures, strict=True):
            assert torch.equal(future.result(), 2 * batch)
    batcher.close()
    assert batcher.samples == sum(sizes) and batcher.passes < 1.2 * sum(sizes) / 8


def test_an_error_stays_with_its_pass() -> None:
    def picky(batch: Tensor) -> Tensor:
        if bool(batch.isnan().any()):
            raise RuntimeError("no")
        return batch

    batcher = Batcher(Plain(picky), 4)
    ask = batcher.classifier(Token(60)).network
    with pytest.raises(RuntimeError, match="no"):
        ask(torch.full((9, 1), torch.nan))
    assert torch.equal(ask(torch.ones(3, 1)), torch.ones(3, 1))
    batcher.close()
    with pytest.raises(RuntimeError, match="shut down"):
        ask(torch.ones(3, 1))


@pytest.mark.parametrize(("cancel", "error"), [(True, CancelledError), (False, LateError)])
def test_every_operation_is_a_place_to_end(cancel: bool, error: type[Exception]) -> None:
    """A job that never asks the classifier ends too, and one that waits for it does."""
    started = threading.Event()

    def endless(_: Token) -> None:
        started.set()
        while True:
            torch.ones(1).add_(1)

    pool, token = Pool("test", 1, 1), Token(60 if cancel else 0.2)
    future = pool.submit(endless, token)
    started.wait()
    if cancel:
        token.cancel()
    with pytest.raises(error):
        future.result(5)
    pool.close()
    assert pool.pending == 0


def test_a_full_queue_refuses() -> None:
    pool, go = Pool("test", 1, 2), threading.Event()
    futures = [pool.submit(lambda _: go.wait(), Token(60)) for _ in range(3)]
    with pytest.raises(BusyError) as refused:
        pool.submit(lambda _: None, Token(60))
    assert 1 <= refused.value.seconds <= 60
    go.set()
    assert all(f.result(5) for f in futures)
    assert pool.submit(lambda _: 7, Token(60)).result(5) == 7
    pool.close()


def test_clients_share_passes(served: Served) -> None:
    """16 clients at once need far fewer passes than one after the other; each still gets its own votes."""
    slow_one, slow = slowed(served, 0.05)
    asked = {"pixels": PIXELS, "n": 40}
    with running(slow_one, quick=16) as (url, server):
        httpx.post(f"{url}/v1/predict", json=asked)
        alone = server.batcher.passes
        with ThreadPoolExecutor(16) as threads:
            replies = list(threads.map(lambda _: httpx.post(f"{url}/v1/predict", json=asked), range(16)))
        together = server.batcher.passes - alone
        shared = metric(url, "warpcert_pass_requests_sum") / metric(url, "warpcert_pass_requests_count")
    assert all(sum(r.json()["prediction"]["counts"]) == 40 for r in replies)
    assert together <= 16 * alone / 2 and shared > 1.5
    assert max(slow.sizes) > 40


def test_overflow_gets_503_with_retry_after(served: Served) -> None:
    asked = {"pixels": PIXELS, "n": 32}
    with running(slowed(served, 0.3)[0], quick=1, waiting=1) as (url, _), ThreadPoolExecutor(6) as threads:
        replies = list(threads.map(lambda _: httpx.post(f"{url}/v1/predict", json=asked, timeout=30), range(6)))
        busy = [r for r in replies if r.status_code == 503]
        assert 2 <= len(busy) <= 4 and len(busy) + sum(r.status_code == 200 for r in replies) == 6
        assert all(int(r.headers["retry-after"]) >= 1 and "busy" in r.json()["error"] for r in busy)
        assert httpx.post(f"{url}/v1/predict", json=asked, timeout=30).status_code == 200


@pytest.mark.parametrize("streamed", [True, False])
def test_closing_the_connection_cancels(served: Served, streamed: bool) -> None:
    with running(slowed(served, 0.05)[0]) as (url, server):
        if streamed:
            with httpx.stream("POST", f"{url}/v1/certify", json=LONG, headers=STREAM) as reply:
                assert next(reply.iter_lines()) == "event: progress"
                assert server.slow.pending == 1
        else:
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{url}/v1/certify", json=LONG, timeout=0.5)
        assert eventually(lambda: server.slow.pending == 0)
        passes = server.batcher.passes
        time.sleep(0.2)
        assert server.batcher.passes <= passes + 1  # of some 800: the one that was running
        assert eventually(lambda: metric(url, 'warpcert_ended_total{reason="cancelled"}') == 1)


def test_a_failure_is_said_and_survived(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[object] = []
    monkeypatch.setattr("warpcert.app.serve.server.log.error", lambda _, exc_info: logged.append(exc_info))
    broken, network = slowed(served, 0.0)
    network.forward = lambda _: 1 / 0
    with running(broken) as (url, server):
        for headers in ({}, STREAM):
            reply = httpx.post(f"{url}/v1/certify", json=LONG, headers=headers)
            assert "the server failed; its log says why" in reply.text
            assert reply.status_code == (200 if headers else 500)  # a stream has begun already
        assert httpx.get(f"{url}/healthz").status_code == 200 and server.slow.pending == 0
    assert [type(error) for error in logged] == [ZeroDivisionError] * 2


def test_the_time_limit(served: Served) -> None:
    with running(slowed(served, 0.05)[0], seconds=2) as (url, server):
        reply = httpx.post(f"{url}/v1/predict", json={"pixels": PIXELS, "n": 100_000})
        assert reply.status_code == 504 and "longer than the 2 s" in reply.json()["error"]
        made = httpx.post(f"{url}/v1/certify", json=LONG).json()["certificate"]  # a certificate ends before
        assert made["label"] == -1 and made["reason"].startswith("the time limit of 1.")
        server.limits = replace(server.limits, seconds=1e-3)
        text = httpx.post(f"{url}/v1/certify", json=LONG, headers=STREAM).text
        assert "event: failure" in text and '"status": 504' in text
        assert eventually(lambda: server.slow.pending == 0 and server.quick.pending == 0)


def test_reading_stops_at_the_limit() -> None:
    """An endless body without a length is not kept, and read no further than a bound; a slow one is not waited for."""
    gate_limits, sent, taken = Limits(body=10_000, body_seconds=0.2), list[Message](), 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass

    async def endless() -> Message:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": bytes(1000), "more_body": True}

    async def silent() -> Message:
        await asyncio.sleep(9)
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    gate = Gate(app, gate_limits, None, None, Metrics())
    scope = {"type": "http", "path": "/v1/predict", "headers": [], "method": "POST"}
    for receive, status in ((endless, 413), (silent, 408)):
        with pytest.raises(Exception) as refused:
            asyncio.run(gate(scope, receive, send))
        assert getattr(refused.value, "status_code", 0) == status
    assert 11 < taken <= 11 + 80  # kept up to the limit, and let go within bounds


def test_a_chunked_body_is_cut_off(served: Served) -> None:
    def chunks() -> object:
        for _ in range(100):
            yield bytes(1000)

    with running(served, body=10_000) as (url, _):
        reply = httpx.post(f"{url}/v1/predict", content=chunks(), headers={"Content-Type": "application/json"})  # type: ignore[arg-type]
        assert reply.status_code == 413 and "larger than the 10000 bytes" in reply.json()["error"]


def test_an_analysis_of_unseen_originals_holds_nothing_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """`indiv` waits in a queue of its own: while one runs, predictions and other certificates are answered."""
    go = threading.Event()

    def endless(*_: object) -> None:
        while not go.wait(0.01):
            torch.ones(1).add_(1)  # where it can be called off
        raise ValueError("enough")

    monkeypatch.setattr("warpcert.methods.indiv.Indiv.certify", endless)
    asked = {"pixels": PIXELS, "gamma": [0.1]}
    with running(served) as (url, server), ThreadPoolExecutor(3) as threads:
        held = [threads.submit(httpx.post, f"{url}/v1/certify", json=asked | {"method": "indiv"}) for _ in range(2)]
        assert eventually(lambda: server.unseen.pending == 2)
        assert httpx.post(f"{url}/v1/predict", json={"pixels": PIXELS, "n": 100}).status_code == 200
        other = httpx.post(f"{url}/v1/certify", json=asked | {"method": "base", "n": 500}, timeout=30)
        assert other.status_code == 200 and server.unseen.pending == 2
        go.set()
        assert [reply.result().json()["error"] for reply in held] == ["enough"] * 2


def head(length: int, path: str = "/v1/predict") -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json")
    return "\r\n".join((*lines, f"Content-Length: {length}", "", "")).encode()


def connected(url: str, sent: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10)
    made.sendall(sent)
    return made


def test_clients_that_go_away_fill_no_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Half a body, then gone, or an end of writing: one line for all of them, no traceback, and the server lives."""
    caplog.set_level(logging.WARNING, "uvicorn.error")
    monkey = logging.getLogger("uvicorn.error")
    with running(served) as (url, server):
        monkey.setLevel(logging.WARNING)
        monkey.addHandler(caplog.handler)
        for number in range(30):
            client = connected(url, head(5000) + b'{"pixels"')
            if number % 2:
                client.shutdown(socket.SHUT_WR)
            client.close()
        assert eventually(lambda: metric(url, 'warpcert_answers_total{path="/v1/predict",status="499"}') == 30)
        assert httpx.post(f"{url}/v1/predict", json={"pixels": PIXELS, "n": 100}).status_code == 200
        monkey.removeHandler(caplog.handler)
    assert [r.getMessage() for r in caplog.records] == ["a client went away before its request had arrived"]
    assert all(r.exc_info is None for r in caplog.records) and all(pool.pending == 0 for pool in server.pools)


def test_a_client_that_closes_its_half_has_gone(served: Served) -> None:
    """An end of writing cannot be told from an end: the work is called off and the connection closed."""
    body = json.dumps(LONG).encode()
    with running(slowed(served, 0.05)[0]) as (url, server):
        with connected(url, head(len(body), path="/v1/certify") + body) as client:
            assert eventually(lambda: server.slow.pending == 1)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b""
        assert eventually(lambda: server.slow.pending == 0)
        assert eventually(lambda: metric(url, 'warpcert_ended_total{reason="cancelled"}') == 1)


def test_silent_clients_are_let_go(served: Served) -> None:
    """No head, half a head, half a second head, half a body: closed after the time that a request has to arrive."""
    with running(served, body_seconds=0.5) as (url, _), ExitStack() as open_ones:
        sent = (b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", head(900) + b"{")
        clients = [open_ones.enter_context(connected(url, part)) for part in sent]
        first = b""
        while not first.endswith(b"}"):  # the head and the body may come apart
            first += clients[2].recv(10_000)
        assert first.startswith(b"HTTP/1.1 200")
        clients[2].sendall(b"GET /healthz HT")
        said = [all_of(client) for client in clients]  # each waits for the end, or 10 s and a TimeoutError
        assert said[:3] == [b""] * 3 and b" 408 " in said[3][:20]


def all_of(client: socket.socket) -> bytes:
    found = b""
    while part := client.recv(10_000):
        found += part
    return found


def test_a_warning_is_seldom() -> None:
    seldom, told = Seldom(0.2), list[str]()

    def warn(level: int = logging.WARNING) -> None:
        record = logging.LogRecord("uvicorn.error", level, "", 0, "gone", None, None)
        if seldom.filter(record):
            told.append(record.getMessage())

    for _ in range(5):
        warn()
    assert told == ["gone"]
    warn(logging.ERROR)
    assert told == ["gone"] * 2  # errors always
    time.sleep(0.25)
    warn()
    assert told[2] == "gone (and 4 more since the last such line)"


def test_the_command_drains(tmp_path: Path) -> None:
    """`warpcert serve` told to stop: the certificate in the making is finished and sent, then it ends with 0."""
    command = [sys.executable, "-m", "warpcert", "serve", write_file(tmp_path), "--port", "0", "--threads", "1"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "200"})
    try:
        assert child.stderr is not None
        url = child.stderr.readline().split()[-1].rstrip("/")
        assert eventually(lambda: _alive(url), 20)
        asked = {"method": "base", "n": "40000", "windows": "1"}
        with httpx.stream(
            "POST", f"{url}/v1/certify", data=asked, files={"image": png()}, headers=STREAM, timeout=60
        ) as reply:
            lines = reply.iter_lines()
            assert next(lines).startswith("event: ")
            child.send_signal(signal.SIGTERM)
            events = list(lines)
        (data,) = (line.removeprefix("data: ") for line in events if line.startswith('data: {"picture"'))
        (tmp_path / "answer.json").write_text(data)
        assert verify_file(tmp_path / "answer.json") == [] and json.loads(data)["certificate"]["passes"] == 40_100
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.communicate()


def _alive(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False
