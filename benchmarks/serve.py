"""Throughput and latency of the server, on the loopback: `python -m benchmarks.serve`.

Predictions of an embedded classifier with n = 1000 by 1, 8 and 64 clients at once, against the same server with
batching off (one request at a time), with a fixed n and with early stopping; besides the clock, the server's CPU time
per request, which other work on the machine disturbs less. With --soak SECONDS: good and bad requests mixed, for so
many seconds, with the server's memory at the beginning and the end. With --faults SECONDS: see benchmarks/faults.py.
With --unseen SECONDS: predictions alone, then beside certificates of unseen originals, for so many seconds each.
The load is bounded in count and time.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from warpcert.learn import data
from warpcert.learn.pictures import encode

MODEL = "mnist-rotation"  # votes: the harder of the embedded classifiers to serve


def post(path: str, body: bytes, kind: str = "application/json", accept: str = "*/*") -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Type: {kind}", f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, f"Accept: {accept}", "", "")).encode() + body


def pictures(count: int) -> list[str]:
    digits = data.load("mnist500", "test", None)
    return [base64.b64encode(encode(digits.image(i))).decode() for i in range(count)]


@contextmanager
def server(*words: str) -> Iterator[tuple[int, int]]:
    """(port, process id) of a server of its own."""
    command = [sys.executable, "-m", "warpcert", "serve", MODEL, "--port", "0", *words]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "200"})
    try:
        assert child.stderr is not None
        found = re.search(r":(\d+)/", child.stderr.readline())
        assert found
        yield int(found[1]), child.pid
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(90)


class Client:
    """One connection that is kept; HTTP by hand, so that measuring costs little."""

    def __init__(self, port: int) -> None:
        self.port, self.reader, self.writer = port, None, None

    async def ask(self, request: bytes, until: bytes | None = None) -> tuple[int, bytes]:
        """Status and body; with `until`, as much of a stream as it takes to see these bytes."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 26)
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if until is not None and status == 200:
            body = await self.reader.readuntil(until)
            self.close()
            return status, body
        length = re.search(rb"content-length: (\d+)", head.lower())
        body = await self.reader.readexactly(int(length[1]) if length else 0)
        if b"connection: close" in head.lower():
            self.close()
        return status, body

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


@asynccontextmanager
async def clients(port: int, count: int) -> AsyncIterator[list[Client]]:
    made = [Client(port) for _ in range(count)]
    for _ in range(200):
        try:
            await made[0].ask(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            break
        except OSError:
            made[0].close()
            await asyncio.sleep(0.1)
    yield made
    for client in made:
        client.close()


async def load(port: int, count: int, requests: list[bytes], seconds: float) -> tuple[float, list[float]]:
    """Requests per second and the latencies, of `count` clients that ask one after the other for so many seconds."""
    latencies: list[float] = []
    async with clients(port, count) as made:
        for client in made[:2]:
            await client.ask(requests[0])  # warm
        start = time.perf_counter()

        async def one(client: Client, number: int) -> None:
            while time.perf_counter() - start < seconds:
                begun = time.perf_counter()
                status, body = await client.ask(requests[number % len(requests)])
                if status != 200:
                    raise RuntimeError(f"status {status}: {body.decode()}")
                latencies.append(time.perf_counter() - begun)
                number += 7

        await asyncio.gather(*(one(client, i) for i, client in enumerate(made)))
        return len(latencies) / (time.perf_counter() - start), latencies


def throughput(rules: list[str], counts: list[int], seconds: float, threads: int) -> None:
    images = pictures(40)
    print(f"{'':24} clients  requests/s    p50 ms    p99 ms  CPU ms/request")
    for rule in rules:
        asked = {"n": 1000, "early": rule == "early"}
        requests = [post("/v1/predict", json.dumps(asked | {"image": i}).encode()) for i in images]
        best: dict[bool, float] = {}
        for batching in (False, True):
            words = ["--threads", str(threads), "--time-limit", "300", *([] if batching else ["--no-batching"])]
            with server(*words) as (port, pid):
                for count in counts:
                    before = cpu(pid)
                    rate, latencies = asyncio.run(load(port, count, requests, seconds))
                    used = 1e3 * (cpu(pid) - before) / (len(latencies) + 2)
                    cuts = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else latencies * 99
                    name = f"{rule}, {'batching' if batching else 'one at a time'}"
                    row = f"{rate:11.1f} {1e3 * cuts[49]:9.0f} {1e3 * cuts[98]:9.0f} {used:12.1f}"
                    print(f"{name:24} {count:7} {row}", flush=True)
                    best[batching] = max(best.get(batching, 0.0), rate)
        print(f"best of batching / best of one at a time: {best[True] / best[False]:.2f}", flush=True)


async def beside(port: int, seconds: float) -> list[tuple[str, list[float]]]:
    """Latencies of a client's predictions, first alone and then while three others wait for `indiv`."""
    images = pictures(2)
    asked = [post("/v1/predict", json.dumps({"early": True, "image": i}).encode()) for i in images]
    slow = post("/v1/certify", json.dumps({"image": images[1], "method": "indiv", "gamma": [5]}).encode())
    await load(port, 1, asked, 1.0)
    found = [("alone", (await load(port, 1, asked, seconds))[1])]
    held = [asyncio.create_task(Client(port).ask(slow)) for _ in range(3)]
    await asyncio.sleep(0.5)
    _, latencies = await load(port, 1, asked, seconds)
    done = [h.result()[0] for h in held if h.done()]
    found.append((f"beside indiv (1 at work, 2 in line at first; {len(done)} answered meanwhile)", latencies))
    for h in held:
        h.cancel()
    return found


def cpu(pid: int) -> float:
    """Seconds of CPU that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    """Resident MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def mixture() -> list[tuple[str, bytes, bytes | None]]:
    """(name, request, what to wait for in a stream)."""
    image = pictures(1)[0]
    good = {"image": image}
    events = b"\n\n"
    form = b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n%b\r\n--b--\r\n'

    def sent(path: str, body: object) -> bytes:
        return post(path, json.dumps(body).encode())

    def streamed(body: object) -> bytes:
        return post("/v1/certify", json.dumps(body).encode(), accept="text/event-stream")

    multipart = "multipart/form-data; boundary=b"
    return [
        ("predict", sent("/v1/predict", good | {"n": 200}), None),
        ("predict early", sent("/v1/predict", good | {"early": True}), None),
        ("predict form", post("/v1/predict", form % base64.b64decode(image), multipart), None),
        ("attack", sent("/v1/attack", good | {"gamma": [20]}), None),
        ("originals", sent("/v1/originals", good | {"cells": 10}), None),
        ("certify small", sent("/v1/certify", good | {"method": "base", "gamma": [2], "n": 2000}), None),
        ("certify base", sent("/v1/certify", good | {"method": "base", "n": 1000}), None),
        ("certify, left", streamed(good | {"method": "dist-x"}), events),
        ("no picture", post("/v1/predict", form % b"nothing", multipart), None),
        ("wrong size", sent("/v1/predict", {"pixels": [[[0.0]]]}), None),
        ("NaN", post("/v1/predict", b'{"pixels": [[[NaN]]]}'), None),
        ("no JSON", post("/v1/predict", b"{"), None),
        ("absurd n", sent("/v1/predict", good | {"n": 10**12}), None),
        ("absurd range", sent("/v1/certify", good | {"gamma": [1e9]}), None),
        ("too large", post("/v1/predict", bytes(2 << 20)), None),
        ("unknown", sent("/v1/nothing", {}), None),
    ]


async def shower(port: int, pid: int, count: int, seconds: float) -> bool:
    kinds, seen, lost, sizes = mixture(), Counter[str](), Counter[str](), list[tuple[float, float]]()
    start = time.perf_counter()
    async with clients(port, count) as made:

        async def one(client: Client, rng: random.Random) -> None:
            while time.perf_counter() - start < seconds:
                name, request, until = rng.choice(kinds)
                try:
                    status, _ = await asyncio.wait_for(client.ask(request, until), 90)
                    seen[f"{name}: {status}"] += 1
                except (OSError, EOFError, asyncio.IncompleteReadError, TimeoutError) as error:
                    # A server may close on an oversized body while it is still being sent: that is its answer.
                    (seen if name == "too large" else lost)[f"{name}: {type(error).__name__}"] += 1
                    client.close()

        async def watch() -> None:
            while time.perf_counter() - start < seconds:
                sizes.append((time.perf_counter() - start, memory(pid)))
                await asyncio.sleep(min(5.0, seconds / 40))

        await asyncio.gather(watch(), *(one(client, random.Random(i)) for i, client in enumerate(made)))
        answered = await made[0].ask(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    third = [m for t, m in sizes if t > seconds / 3]
    half = len(third) // 2
    growth = statistics.mean(third[half:]) / statistics.mean(third[:half]) - 1
    for name in sorted(seen):
        print(f"{seen[name]:7} {name}")
    alive, largest = answered[0] == 200, max(m for _, m in sizes)
    print(f"{sum(seen.values())} answers in {seconds:g} s; unanswered: {dict(lost) or 'none'}; alive: {alive}")
    print(f"MiB: first {sizes[0][1]:.0f}, {third[0]:.0f} after a third, last {sizes[-1][1]:.0f}, most {largest:.0f}")
    print(f"mean memory of the last third against the one before: {growth:+.1%}")
    failed = any(re.search(r": 5(?!03)\d\d", name) for name in seen)
    return not lost and not failed and growth < 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--soak", type=float, help="seconds of mixed requests instead")
    parser.add_argument("--faults", type=float, help="seconds of mixed requests with faults instead")
    parser.add_argument("--unseen", type=float, help="seconds of predictions beside `indiv` instead")
    parser.add_argument("--life", type=float, default=60.0, help="of a server between two kills, in seconds")
    parser.add_argument("--rules", nargs="+", choices=("fixed", "early"), default=["fixed", "early"])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=10.0, help="per row of the table")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    if args.faults:
        from benchmarks.faults import faults

        return faults(args.faults, args.life)
    if args.soak:
        with server("--threads", str(args.threads)) as (port, pid):
            return 0 if asyncio.run(shower(port, pid, 8, args.soak)) else 1
    if args.unseen:
        with server("--threads", "1", "--time-limit", "300") as (port, _):
            for name, latencies in asyncio.run(beside(port, args.unseen)):
                cuts = [1e3 * c for c in statistics.quantiles(latencies, n=100)]
                print(f"{name}: {len(latencies)} predictions, p50 {cuts[49]:.0f}, p95 {cuts[94]:.0f}, ", end="")
                print(f"p99 {cuts[98]:.0f} ms")
        return 0
    throughput(args.rules, args.clients, args.seconds, args.threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
