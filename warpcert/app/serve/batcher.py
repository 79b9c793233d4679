"""One thread owns the device: batches from many requests become common forward passes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import final

import torch
from torch import Tensor, nn

from warpcert.app.serve.jobs import Token
from warpcert.classifier import Classifier

__all__ = ["Batcher", "Queued", "pass_size"]

POLL = 0.05  # seconds between two looks at a token while its samples wait


def pass_size(device: torch.device) -> int:
    """Samples per forward pass: enough to fill the device; more would only make others wait."""
    return 4096 if device.type == "cuda" else 512


@final
class _Entry:
    """A batch that waits: rows up to `taken` are on their way, `pieces` have come back."""

    def __init__(self, batch: Tensor) -> None:
        self.batch, self.taken, self.pieces = batch, 0, list[Tensor]()
        self.done, self.dropped = threading.Event(), False
        self.error: Exception | None = None


@final
class Queued(nn.Module):
    """A network as a request's thread calls it: blocks until its logits are there, or ends with the token.

    `fingerprint` is what stands for the network in the classifier's fingerprint: it is the same function.
    """

    def __init__(self, batcher: Batcher, token: Token, fingerprint: str) -> None:
        super().__init__()
        self.batcher, self.token, self.fingerprint = batcher, token, fingerprint

    def forward(self, batch: Tensor) -> Tensor:
        return self.batcher.ask(batch, self.token)


@final
class Batcher:
    """Logits of many threads' batches, each row as the network gives it; passes hold up to `size` samples.

    Rows are taken in the order they came, from as many requests as fit; a batch larger than a pass is cut. What came
    while a pass ran goes into the next: nobody waits for company. With size None every batch is its own pass. Logits
    of a row depend on its companions by float32 rounding alone.
    """

    def __init__(
        self, classifier: Classifier, size: int | None, threads: int = 0,
        seen: Callable[[int, int], None] | None = None,
    ) -> None:  # fmt: skip
        self.passes = self.samples = 0
        self._classifier, self._size, self._threads, self._seen = classifier, size, threads, seen
        self._source = classifier.source  # nobody changes what is served
        self._queue, self._closed, self._change = deque[_Entry](), False, threading.Condition()
        self._thread = threading.Thread(target=self._work, name="device", daemon=True)
        self._thread.start()

    def classifier(self, token: Token) -> Classifier:
        """The classifier for one request: the same function, facts and fingerprint; its network's batches are queued
        here.
        """
        made = copy(self._classifier)
        made._modules = {}
        made.__dict__.pop("network", None)  # a function stands there, a module among the modules
        made.network = Queued(self, token, self._source).eval()
        return made

    def ask(self, batch: Tensor, token: Token) -> Tensor:
        """The network's logits."""
        token.check()
        entry = _Entry(batch)
        with self._change:
            if self._closed:
                raise RuntimeError("the server has shut down")
            self._queue.append(entry)
            self._change.notify()
        while not entry.done.wait(POLL):
            entry.dropped = token.ended
            token.check()
        if entry.error is not None:
            raise entry.error
        token.samples += len(batch)
        return torch.cat(entry.pieces) if len(entry.pieces) > 1 else entry.pieces[0]

    def close(self) -> None:
        """Runs what is queued and ends the thread."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _take(self) -> list[tuple[_Entry, int, int]]:
        """Rows start … stop of queued entries that form the next pass; empty when closed and done."""
        with self._change:
            while not self._queue and not self._closed:
                self._change.wait()
            taken: list[tuple[_Entry, int, int]] = []
            room = self._size
            while self._queue and room != 0:
                entry = self._queue[0]
                start, rows = entry.taken, len(entry.batch)
                stop = rows if room is None else min(rows, start + room)
                if not entry.dropped:
                    taken.append((entry, start, stop))
                    room = 0 if room is None else room - (stop - start)
                    entry.taken = stop
                if entry.dropped or stop == rows:
                    self._queue.popleft()
            return taken

    @torch.no_grad()
    def _work(self) -> None:
        if self._threads:
            torch.get_num_threads()  # a thread's first look at the number takes over the last one set, by whomever
            torch.set_num_threads(self._threads)
        while True:
            parts = self._take()
            if not parts:
                with self._change:
                    if self._closed and not self._queue:
                        return
                continue
            try:
                rows = [entry.batch[start:stop] for entry, start, stop in parts]
                logits = self._classifier.compute(torch.cat(rows) if len(rows) > 1 else rows[0])
                pieces = logits.tensor_split(torch.tensor([len(r) for r in rows]).cumsum(0)[:-1])
            except Exception as error:  # the requests of this pass get it; the server goes on
                for entry, _, _ in parts:
                    entry.error, entry.dropped = error, True
                    entry.done.set()
                continue
            self.passes, self.samples = self.passes + 1, self.samples + sum(map(len, rows))
            if self._seen:
                self._seen(len({id(entry) for entry, _, _ in parts}), sum(map(len, rows)))
            for (entry, _, stop), piece in zip(parts, pieces, strict=True):
                entry.pieces.append(piece)
                if stop == len(entry.batch):
                    entry.done.set()
