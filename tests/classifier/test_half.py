"""Half precision on a CPU is float32 of the same float16 numbers; and weights that change without a word."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

import warpcert as wc
from warpcert.app.serve.batcher import Batcher
from warpcert.app.serve.jobs import Token
from warpcert.classifier.before.rounding import coarsened
from warpcert.classifier.half import in_half

X = (torch.rand(6, 1, 12, 12, generator=torch.Generator().manual_seed(1)) * 255).round() / 255


def network() -> Any:
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(400, 3)
    return nn.Sequential(*layers).eval()


def test_half_precision_on_a_cpu_follows_the_network() -> None:
    """Its weights and modes as they are now, for several threads at once, and behind a server's queue."""
    f = wc.Levels(network(), 64, precision="half")
    net: Any = f.network

    def right() -> bool:
        wide = deepcopy(net).float()(coarsened(X, 64).half().float())
        with ThreadPoolExecutor(4) as threads:
            told = [*threads.map(lambda _: f(X), range(8)), Batcher(f, 8).classifier(Token(60.0))(X)]
        return all(torch.equal(t, wide) for t in told)

    assert right() and all(t.dtype == torch.float16 for t in net.parameters())
    before = f(X)
    net[5].bias.data += 1.0
    assert right() and not torch.equal(f(X), before)
    net[1].running_mean.add_(1.0)
    assert right()
    f.train()
    assert not torch.equal(f(X), f(X)), "dropout"
    f.eval()
    assert right() and net[5].weight.dtype == net[1].running_var.dtype == torch.float16


def test_its_slack_covers_emulated_half_precision() -> None:
    f = wc.Plain(network(), precision="half")
    net: Any = f.network
    wide, narrow = in_half(net, X), net(X.half()).float()
    assert 0 < float((wide - narrow).abs().max()) < f.slack * float(wide.abs().max().clamp_min(1))


def test_a_certificate_names_the_weights_as_they_are() -> None:
    """`.data` keeps address and version: nothing shows but the numbers."""
    f, threat = wc.Levels(network(), 64), wc.Threat.rotation(0.001)
    before = f.certify(X[0], threat).classifier
    changed: Tensor = next(f.network.parameters())  # type: ignore[union-attr]
    changed.data += 0.5
    after = f.certify(X[0], threat).classifier
    assert before.fingerprint != after.fingerprint == f.fingerprint and before.network != after.network
