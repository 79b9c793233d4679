"""`warpcert serve`: its words, and how the server is started."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
from pathlib import Path

from rich.console import Console

from warpcert.app.cli.options import EMBEDDED, TRANSFORMS, add_device, add_parts

__all__ = ["add", "run"]

TOKEN_VARIABLE = "WARPCERT_TOKEN"
M_ARENA_MAX, M_MMAP_THRESHOLD = -8, -3  # of glibc's mallopt
LARGE = 1 << 20  # bytes


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "model", nargs="?", default=EMBEDDED, help="a name that `warpcert models` lists, a .safetensors file, or a run "
        "folder: the classifier that it certified (default: %(default)s)"
    )  # fmt: skip
    p.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine only)")
    p.add_argument("--port", type=int, default=8400, help="default: %(default)s; 0 picks a free one")
    p.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a further host name to answer to on this "
        "machine, for instance that of a proxy (repeatable)"
    )  # fmt: skip
    add_parts(p)
    p.add_argument("--transform", choices=TRANSFORMS, help="default: what the classifier is made for")
    p.add_argument(
        "--gamma", type=float, nargs="+", help="range that is served (default: what the classifier is made for)"
    )
    p.add_argument("--calibration", type=Path, help="calibration.json for dist-d, written by `warpcert bound`")
    p.add_argument("--max-gamma", type=float, help="largest range that a client may ask for (default: the served one)")
    p.add_argument("--max-n", type=int, default=100_000, help="most samples per request (default: %(default)s)")
    p.add_argument("--max-body", type=int, default=1 << 20, help="bytes per request (default: %(default)s)")
    p.add_argument("--time-limit", type=float, default=60.0, help="seconds per request (default: %(default)s)")
    p.add_argument("--queue", type=int, default=64, help="requests that may wait (default: %(default)s)")
    p.add_argument("--threads", type=int, default=0, help="CPU threads of a forward pass (default: all cores)")
    p.add_argument("--no-batching", action="store_true", help="one request at a time: to measure what batching gives")
    p.add_argument(
        "--token-file", type=Path, help=f"file with a bearer token that clients must send (or set {TOKEN_VARIABLE})"
    )
    add_device(p)


def run(args: argparse.Namespace, console: Console) -> int:
    """Opens the classifier once and answers until interrupted; then what was accepted is finished."""
    try:
        import uvicorn

        from warpcert import methods
        from warpcert.app.cli.case import parts_of
        from warpcert.app.serve.connections import impatient, listen
        from warpcert.app.serve.limits import LOCAL, Limits, hosts_of
        from warpcert.app.serve.routes import build
        from warpcert.app.serve.served import open_served
        from warpcert.app.serve.server import Server
        from warpcert.threat import Threat
    except ImportError as error:
        raise ValueError(f"{error.name} is missing: pip install 'warpcert[serve]' brings it") from None
    parts = parts_of(args)
    limits = Limits(
        body=args.max_body, n=args.max_n, gamma=args.max_gamma, seconds=args.time_limit, waiting=args.queue
    )  # fmt: skip
    token = _token(args.token_file)
    with listen(args.host, args.port) as listener:
        _few_heaps()
        served = open_served(
            args.model,
            device=args.device,
            transform=args.transform,
            gamma=args.gamma,
            threat=None if parts is None else Threat.made_of(parts),
            calibration=args.calibration,
        )
        if parts is not None and not served.methods:
            own = methods.chosen(served.classifier)
            raise ValueError(f"nothing can be certified here: {methods.refusal(own, served.classifier, served.threat)}")
        if args.max_gamma is not None and len(served.threat.transform.parts) > 1:
            raise ValueError("--max-gamma is for a threat of one part: a product is served within its own range")
        server = Server(served, limits, batching=not args.no_batching, threads=args.threads or os.cpu_count() or 1)
        if token is None and args.host not in LOCAL:
            say = f"listening on {args.host} without a token: everyone who reaches it can use it"
            console.print(say, style="yellow")
        config = uvicorn.Config(
            build(server, token, hosts_of(args.host, args.allow_host)),
            http=impatient(limits.body_seconds),
            log_level="warning",
            timeout_graceful_shutdown=int(args.time_limit) + 5,
            server_header=False,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)  # uvicorn drains on them and then raises them again: a clean end
        host = f"[{args.host}]" if ":" in args.host else args.host
        name = served.classifier.name or served.source
        console.print(f"{name} is served at http://{host}:{listener.getsockname()[1]}/", soft_wrap=True)
        uvicorn.Server(config).run(sockets=[listener])
    return 0


def _few_heaps() -> None:
    """glibc gives every thread a heap of its own; tensors that come and go in many threads leave holes in all of them,
    and the memory grows without a leak. Two heaps serve as well, and large tensors get pages of their own, which go
    back to the system at once. Elsewhere nothing is done.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_ARENA_MAX, 2)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE)


def _token(path: Path | None) -> str | None:
    token = path.read_text(encoding="utf-8").strip() if path else os.environ.get(TOKEN_VARIABLE)
    if token is not None and len(token) < 16:
        raise ValueError(f"a token needs at least 16 characters; got {len(token)} (python -c 'import secrets; "
                         "print(secrets.token_urlsafe())' makes one)")  # fmt: skip
    return token
