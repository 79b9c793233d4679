"""A soak with faults: `python -m benchmarks.serve --faults SECONDS` calls it.

Good and bad requests as ever; besides, clients that stall, that leave in the middle, that close their half; kill −9 of
the server at random moments, and a new one. Every other server can write no file (as on a full disk); where libfaketime
is installed, the clock of the others jumps by hours. Asked of it: an answer that arrives whole is right, one that does
not is an error to the client, and memory and open files stay level. All on the loopback, bounded in clients and time.
"""

from __future__ import annotations

import asyncio
import glob
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.serve import Client, memory, mixture
from warpcert.runs.answers import verify_file

__all__ = ["faults"]

FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
CLIENTS, STALLED = 6, 24


@dataclass
class Seen:
    """What happened so far."""

    answers: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    sizes: list[tuple[int, float, int]] = field(default_factory=list)  # life, MiB, open files
    kills: int = 0
    jumps: int = 0
    lines: int = 0


@contextmanager
def started(port: int, folder: Path, faked: bool) -> Iterator[subprocess.Popen[bytes]]:
    """A server that may write no file; or one whose clock stands in a file (libfaketime writes files itself)."""
    extra: dict[str, str] = {}
    if faked:
        extra = {"LD_PRELOAD": FAKETIME[0], "FAKETIME_TIMESTAMP_FILE": str(folder / "clock")}
        extra |= {"FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    words = ("serve", "mnist-rotation", "--gamma", "3", "--threads", "1", "--port", str(port), "--time-limit", "10")
    child = subprocess.Popen(
        [sys.executable, "-m", "warpcert", *words],
        stderr=subprocess.PIPE,
        env=os.environ | extra,
        preexec_fn=None if faked else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.wait()


async def _asked(client: Client, name: str, request: bytes, until: bytes | None, seen: Seen, file: Path) -> None:
    try:
        status, body = await asyncio.wait_for(client.ask(request, until), 30)
    except (OSError, EOFError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError) as error:
        seen.errors[type(error).__name__] += 1
        client.close()
        await asyncio.sleep(0.1)  # the server may be on its way
        return
    seen.answers[str(status)] += 1
    if status == 200 and until is None and name.startswith(("predict", "certify")):
        file.write_bytes(body)
        seen.wrong += verify_file(file)
    if status >= 500 and status not in (503, 504):
        seen.wrong.append(f"{name}: {status} {body[:200]!r}")


async def _ordinary(port: int, end: float, rng: random.Random, seen: Seen, file: Path) -> None:
    kinds, client = [k for k in mixture() if k[0] != "too large"], Client(port)
    while time.monotonic() < end:
        await _asked(client, *rng.choice(kinds), seen, file)
    client.close()


async def _stalling(port: int, end: float, rng: random.Random) -> None:
    """Half a head, half a body, a whole request and gone, a whole request and half closed."""
    whole = mixture()[0][1]
    while time.monotonic() < end:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            way = rng.choice(("head", "body", "gone", "half"))
            writer.write(whole[: {"head": 20, "body": len(whole) // 2}.get(way, len(whole))])
            await writer.drain()
            if way == "half":
                writer.write_eof()
            await asyncio.sleep(rng.uniform(0, 0.2 if way == "gone" else 8))
            if way == "gone":
                writer.transport.abort()
            writer.close()
        except OSError:
            await asyncio.sleep(0.1)


def _heard(child: subprocess.Popen[bytes], seen: Seen) -> int:
    """Lines that the server has written since; a traceback is wrong."""
    assert child.stderr is not None
    said = child.stderr.read() or b""
    if b"Traceback" in said:
        seen.wrong.append(said.decode(errors="replace")[-500:])
    return said.count(b"\n")


async def _killing(port: int, end: float, life: float, folder: Path, seen: Seen) -> None:
    """Lives of the server, each ended by kill −9; the clock jumps now and then."""
    rng, clock = random.Random(0), folder / "clock"
    while time.monotonic() < end:
        clock.write_text("+0\n")
        faked = bool(FAKETIME) and seen.kills % 2 == 1
        with started(port, folder, faked) as child:
            assert child.stderr is not None
            os.set_blocking(child.stderr.fileno(), False)
            until = min(end, time.monotonic() + rng.uniform(0.4, 1.6) * life)
            while time.monotonic() < until:
                await asyncio.sleep(0.5)
                seen.lines += _heard(child, seen)
                if child.poll() is not None:
                    seen.wrong.append(f"the server ended by itself with {child.returncode}")
                    return
                files = len(os.listdir(f"/proc/{child.pid}/fd"))
                seen.sizes.append((seen.kills, memory(child.pid), files))
                if faked and rng.random() < 0.2:
                    clock.write_text(f"{rng.choice(('+', '-'))}{rng.randrange(100_000)}\n")
                    seen.jumps += 1
            seen.lines += _heard(child, seen)
        seen.kills += 1


async def _soak(port: int, seconds: float, life: float, folder: Path, seen: Seen) -> None:
    end = time.monotonic() + seconds
    await asyncio.gather(
        _killing(port, end, life, folder, seen),
        *(_ordinary(port, end, random.Random(i), seen, folder / f"{i}.json") for i in range(CLIENTS)),
        *(_stalling(port, end, random.Random(-i - 1)) for i in range(STALLED)),
    )


def faults(seconds: float, life: float = 60.0) -> int:
    """0 if nothing was wrong. A server lives for so many seconds, on average, until it is killed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    seen = Seen()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_soak(port, seconds, life, Path(folder), seen))
    print(f"{sum(seen.answers.values())} whole answers in {seconds:g} s: {dict(sorted(seen.answers.items()))}")
    print(f"errors that clients saw: {dict(seen.errors)}; kill −9: {seen.kills}; clock jumps: {seen.jumps or 'none'}")
    lives = [[(m, f) for life, m, f in seen.sizes if life == number] for number in range(seen.kills)]
    for number, life in enumerate(lives):
        third = life[len(life) // 3 :]
        if third:
            sizes, files = [m for m, _ in third], [f for _, f in third]
            half = len(sizes) // 2
            grown = sum(sizes[half:]) / max(1, len(sizes) - half) / (sum(sizes[: half or 1]) / (half or 1)) - 1
            print(f"  life {number}: last third against the one before {grown:+.1%}, ", end="")
            print(f"most {max(sizes):.0f} MiB and {max(files)} open files")
    print(f"lines on stderr: {seen.lines}; wrong: {json.dumps(seen.wrong[:5]) if seen.wrong else 'nothing'}")
    return 1 if seen.wrong or not seen.answers["200"] else 0
