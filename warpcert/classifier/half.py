"""Half precision: a copy of a network with float16 weights, and what it computes on each kind of device."""

from __future__ import annotations

import threading
from copy import deepcopy
from itertools import chain

import torch
from torch import Tensor, nn
from torch.func import functional_call

from warpcert.classifier.votes.voting import Logits
from warpcert.networks.lipschitz import LipschitzNet

__all__ = ["halved", "in_half"]

_ALONE = threading.Lock()  # the weights of a module are exchanged while it computes in float32


def halved(network: Logits) -> Logits:
    """A copy in half precision: another function than in float32, several times faster on a GPU."""
    if isinstance(network, LipschitzNet):
        raise ValueError("a Lipschitz network proves its constant for float32: do not compute it in half precision")
    if not isinstance(network, nn.Module):
        raise ValueError("half precision needs an nn.Module; a function brings its own arithmetic")
    copy = deepcopy(network).half().requires_grad_(False)
    spatial = any(t.dim() == 4 for t in copy.parameters())
    return copy.to(memory_format=torch.channels_last) if spatial else copy  # type: ignore[call-overload]


def in_half(network: Logits, views: Tensor) -> Tensor:
    """The network on views, both rounded to float16. A CPU only emulates float16, some twenty times slower: there the
    same numbers are computed with in float32, which the slack for half precision covers.

    Nothing of the float32 weights is kept: they follow each change of the network's.
    """
    narrow = views.half()
    result: Tensor | None = None
    if narrow.device.type == "cpu" and isinstance(network, nn.Module):
        with _ALONE:
            tensors = chain(network.named_parameters(), network.named_buffers())
            wide = {name: t.float() for name, t in tensors if t.dtype == torch.float16}
            if wide:
                result = functional_call(network, wide, (narrow.float(),))
    return network(narrow) if result is None else result
