"""What the server's tests share: a small sure model in a folder with a calibration, pictures, a server on loopback."""

from __future__ import annotations

import base64
import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import uvicorn
from PIL import Image
from torch import Tensor, nn

import warpcert as wc
from warpcert.app.serve.limits import Limits
from warpcert.app.serve.routes import build
from warpcert.app.serve.served import Served
from warpcert.app.serve.server import Server
from warpcert.networks import resnet as models

SHAPE = (1, 12, 12)
DEFENCE = wc.Defence.surface("rotation", 20, noise=0.2)
GAMMA = 3.0


def write_folder(folder: Path, defence: wc.Defence = DEFENCE) -> Path:
    """A folder to serve: the model answers 1 to everything; the calibration is a plausible one."""
    config = models.ModelConfig(SHAPE, 3, width=2, blocks=(1,), head="flatten")
    model = models.build(config)
    model.head.bias.data = torch.tensor([0.0, 50.0, 0.0])
    extra = {"defence": defence.to_dict(), "gamma": [GAMMA], "classes": ["ant", "bee", "cat"], "dataset": "none"}
    models.save(model, folder / "model.safetensors", extra)
    threat = wc.Threat.of("rotation", GAMMA)
    counts = {"images": 1000, "accepted": 1000, "betas": 700, "allowed": 0, "alpha": 0.001, "alpha_inner": 0.001}
    more: dict[str, Any] = counts | {"kind": wc.Kind.PROVED, "bound": "curve", "seed": 0}
    wc.Calibration(defence, threat, SHAPE, "test", 0.1, 0.01, **more).write(folder / "calibration.json")
    return folder


class Slow(nn.Module):
    """Takes a while for each pass, and remembers how large they were."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.sizes = seconds, list[int]()

    def forward(self, batch: Tensor) -> Tensor:
        time.sleep(self.seconds)
        self.sizes.append(len(batch))
        return torch.tensor([[0.0, 9.0, 0.0]]).expand(len(batch), 3)


def slowed(served: Served, seconds: float) -> Served:
    return replace(served, model=Slow(seconds).eval())


def png(width: int = 12, height: int = 12, mode: str = "L", kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, kind)
    return file.getvalue()


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


PIXELS = [[[0.5] * 12] * 12]


@contextmanager
def running(served: Served, token: str | None = None, **limits: Any) -> Iterator[tuple[str, Server]]:
    """A real server on a free port of the loopback, in a thread."""
    server = Server(served, Limits(**limits))
    config = uvicorn.Config(build(server, token), port=0, log_level="critical", timeout_graceful_shutdown=10)
    listener = config.bind_socket()
    web = uvicorn.Server(config)
    thread = threading.Thread(target=web.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not web.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
    finally:
        web.should_exit = True
        thread.join()
        listener.close()


def eventually(true: Any, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(true())
