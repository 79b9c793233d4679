"""What a server counts, in the text format of Prometheus."""

from __future__ import annotations

from typing import final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from warpcert.app.serve.jobs import Pool

__all__ = ["Metrics"]


@final
class Metrics:
    """Answers by path and status, how long they took, forward passes and how full they were, queues."""

    def __init__(self) -> None:
        self._registry = r = CollectorRegistry()
        self._answers = Counter("warpcert_answers", "Answers by path and status", ["path", "status"], registry=r)
        self._seconds = Histogram("warpcert_seconds", "Seconds to the end of an answer", ["path"], registry=r)
        self._ended = Counter("warpcert_ended", "Jobs that did not finish, by reason", ["reason"], registry=r)
        self._passes = Counter("warpcert_passes", "Forward passes on the device", registry=r)
        self._samples = Counter("warpcert_samples", "Samples classified", registry=r)
        sizes = (1, 2, 4, 8, 16, 32, 64)
        self._shared = Histogram("warpcert_pass_requests", "Batches that share a pass", buckets=sizes, registry=r)
        self._pending = Gauge("warpcert_pending", "Jobs accepted and not answered", ["queue"], registry=r)

    def answered(self, path: str, status: int, seconds: float) -> None:
        self._answers.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def ended(self, reason: str) -> None:
        self._ended.labels(reason).inc()

    def passed(self, batches: int, samples: int) -> None:
        """One forward pass."""
        self._passes.inc()
        self._samples.inc(samples)
        self._shared.observe(batches)

    def watch(self, pool: Pool) -> None:
        self._pending.labels(pool.name).set_function(lambda: pool.pending)

    def text(self) -> bytes:
        return generate_latest(self._registry)
