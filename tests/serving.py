"""What the server's tests share: a small sure classifier in a file, pictures, a server on loopback."""

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

from warpcert.app.serve.connections import impatient, listen
from warpcert.app.serve.limits import Limits, hosts_of
from warpcert.app.serve.routes import build
from warpcert.app.serve.served import Served
from warpcert.app.serve.server import Server
from warpcert.certificates import Kind
from warpcert.classifier import About, Classifier, Levels, Smoothed
from warpcert.errors.calibration import Calibration
from warpcert.networks import weights
from warpcert.networks.config import ModelConfig
from warpcert.networks.resnet import ResNet
from warpcert.threat import Threat

SHAPE = (1, 12, 12)
DEGREES = 3.0
THREAT = Threat.rotation(degrees=DEGREES)
ABOUT = About("insects", ("ant", "bee", "cat"), THREAT)
PIXELS = [[[128 / 255] * 12] * 12]


def network() -> ResNet:
    """It answers 1 to everything."""
    made = weights.fused(weights.build(ModelConfig(SHAPE, 3, width=2, blocks=(1,), head="flatten")))
    assert isinstance(made, ResNet)
    made.head.bias.data = torch.tensor([0.0, 50.0, 0.0])
    return made.requires_grad_(False)


def calibration(reference: str | None = None) -> Calibration:
    """A plausible one for `smoothed`."""
    defence = replace(smoothed().own_defence, reference=reference)
    counts = {"images": 1000, "accepted": 1000, "betas": 700, "allowed": 0, "alpha": 0.001, "alpha_inner": 0.001}
    more: dict[str, Any] = counts | {"kind": Kind.PROVED, "bound": "curve", "seed": 0}
    return Calibration(defence, THREAT, SHAPE, "test", 0.1, 0.01, **more)


def smoothed(**more: Any) -> Smoothed:
    return Smoothed(network(), noise=0.2, over={"rotation": 20}, about=ABOUT, **more)


def levels() -> Levels:
    return Levels(network(), step=32, about=ABOUT)


def write_file(folder: Path, classifier: Classifier | None = None) -> str:
    """A file to serve; unless another classifier is given, the smoothed one with its calibration."""
    made = classifier or smoothed()
    if classifier is None:
        made.about = replace(made.about, notes={"calibration": calibration().to_dict()})
    made.save(folder / "insects.safetensors")
    return str(folder / "insects.safetensors")


class Slow(nn.Module):
    """Takes a while for each pass, and remembers how large they were."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.sizes = seconds, list[int]()

    def forward(self, batch: Tensor) -> Tensor:
        time.sleep(self.seconds)
        self.sizes.append(len(batch))
        return torch.tensor([[0.0, 9.0, 0.0]]).expand(len(batch), 3)


def slowed(served: Served, seconds: float) -> tuple[Served, Slow]:
    """The same served with a network that is slow."""
    slow = Slow(seconds).eval()
    return replace(served, classifier=Smoothed(slow, noise=0.2, over={"rotation": 20}, about=ABOUT)), slow


def png(width: int = 12, height: int = 12, mode: str = "L", kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, kind)
    return file.getvalue()


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


@contextmanager
def running(served: Served, token: str | None = None, **limits: Any) -> Iterator[tuple[str, Server]]:
    """A real server on a free port of the loopback, in a thread."""
    server = Server(served, Limits(**limits))
    app = build(server, token, hosts_of("127.0.0.1"))
    http = impatient(server.limits.body_seconds)
    config = uvicorn.Config(app, http=http, log_level="critical", timeout_graceful_shutdown=10)
    listener = listen("127.0.0.1", 0)
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
