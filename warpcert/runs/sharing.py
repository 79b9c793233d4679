"""One picture's range in parts, each the work of about twenty seconds: whoever has time takes the next one, from γ = 0
outwards. What is proved without a gap is kept after every part, so that neither Ctrl-C nor a power cut costs more.

A part speaks of a beginning that others prove (see `exhaustive.parts`); only what has come together is a certificate.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import final

from warpcert.certificates import Certificate, Exhausted
from warpcert.exhaustive.parts import Part, joined
from warpcert.methods.base import Interrupted, Progress
from warpcert.methods.outlook.remedies import with_time
from warpcert.runs.engine import Answer, Engine
from warpcert.runs.job import Job, Task

__all__ = ["Sharing", "shared"]

LARGE = 1 << 15  # values in a picture from which on its range is cut: others are done before
SECONDS = 20.0  # that a part shall take
FIRST = 2.0**-10  # of the range: the parts dealt before it is known how long one takes
GROWTH = 4.0  # from one part to the next, at most


@final
@dataclass(frozen=True)
class Sharing:
    """How a job's pictures are shared: so many parts at once."""

    job: Job
    at_once: int
    progress: Progress | None = None

    def over(self, engine: Engine, keep: Callable[[int, Certificate], None]) -> Engine:
        """The engine, asked about parts of large pictures; `keep` is told what is proved about one so far."""
        return lambda tasks: self._shared(engine, keep, tasks)

    def _shared(
        self, engine: Engine, keep: Callable[[int, Certificate], None], tasks: Iterator[Task]
    ) -> Iterator[Answer]:
        table = _Table(self, tasks)
        try:
            for index, (made, more) in engine(table):
                if not isinstance(made, Part):
                    table.open.pop(index, None)
                    yield index, (made, more)
                    continue
                if (picture := table.open.get(index)) is None:
                    continue  # it lies beyond the end of a range that was found meanwhile
                picture.took(made)
                if picture.over():
                    del table.open[index]
                    yield index, (picture.certificate(), {})
                    continue
                if picture.proved is not None:
                    keep(index, picture.proved)
                if self.progress is not None and self.at_once > 1:
                    self.progress(int(1000 * picture.reached / min(1.0, picture.end)), 1000, picture.pace())
        except Interrupted as stop:
            if stop.part is None:
                raise
            (picture,) = table.open.values()  # in this process there is one at a time
            picture.took(stop.part)
            raise Interrupted(picture.proved or stop.part.made) from None


def shared(job: Job, workers: int | str, progress: Progress | None = None) -> Sharing | None:
    """How the job's pictures are shared by so many workers, or by a cluster; None if its method proves no parts."""
    if job.attack is not None or not job.method.in_parts(job.threat):
        return None
    return Sharing(job, workers if isinstance(workers, int) else 2, progress)


class _Table(Iterator[Task]):
    """Deals out parts: those of the first picture that has any. It may have none now and some later."""

    def __init__(self, sharing: Sharing, tasks: Iterator[Task]) -> None:
        self.sharing, self.tasks, self.open = sharing, tasks, dict[int, _Picture]()

    def __next__(self) -> Task:
        for picture in self.open.values():
            if (task := picture.deal()) is not None:
                return task
        task = next(self.tasks)
        if task.x.size < LARGE:
            return task
        picture = self.open[task.index] = _Picture(task, self.sharing.job)
        dealt = picture.deal()
        assert dealt is not None
        return dealt


def _kept(task: Task, job: Job) -> Exhausted | None:
    """What was proved about the picture before, on the terms in force; a ValueError if it is about something else."""
    made = task.known
    if made is None:
        return None
    job.refuse_other(made, task.x)
    if not isinstance(made, Exhausted) or made.found is None or made.counterexample is not None or made.found.held == 1:
        return None
    terms = (job.threat.off_by, getattr(job.method, "eight_bit", False))
    return made if (made.found.tolerance, made.found.eight_bit) == terms else None


@final
class _Picture:
    """Which parts of a picture's range are dealt out, came back, and fit together."""

    def __init__(self, task: Task, job: Job) -> None:
        self.task, self.limit = replace(task, known=None), getattr(job.method, "time_limit", None)
        self.proved = _kept(task, job)
        self.before = self.proved.seconds if self.proved else 0.0
        self.next, self.width, self.seconds, self.end = self.reached, FIRST, SECONDS, 1.0
        self.left = deque[tuple[float, float]]()  # what parts that were cut short left undone
        self.flying, self.back = set[float](), dict[float, Part]()
        self.last: Part | None = None
        self.began, self.asked, self.late = time.perf_counter(), 0, False

    @property
    def reached(self) -> float:
        return self.proved.found.held if self.proved and self.proved.found else 0.0

    def _time(self) -> float:
        """Seconds left."""
        return math.inf if self.limit is None else self.limit - (time.perf_counter() - self.began)

    def deal(self) -> Task | None:
        if self.late:
            return None
        if self.left:
            start, until = self.left.popleft()
        elif self.next < self.end:
            start, until = self.next, min(1.0, self.next + self.width)
            self.next = until
        else:
            return None
        self.flying.add(start)
        return replace(self.task, part=(start, until), seconds=min(self.seconds, max(1e-2, self._time())))

    def took(self, part: Part) -> None:
        self.flying.discard(part.start)
        self.last, self.asked, self.late = part, self.asked + part.made.passes, self._time() <= 0
        self.end = min(self.end, part.limit)
        if part.limit > part.until and part.reached < part.until:
            self.left.append((max(part.start, part.reached), part.until))
            self.seconds *= 1.0 if part.reached > part.start else 2.0  # compiling alone may take longer
        gone = max(0.0, part.reached - part.start)
        pace = gone * SECONDS / max(1e-3, part.made.seconds)
        self.width = min(max(pace, FIRST / 16), GROWTH * self.width)
        if part.reached > part.start or part.ended:
            self.back[part.start] = part
        while (ready := self.back.pop(self.reached, None)) is not None:
            self.proved = ready.made if self.proved is None else joined(self.proved, ready)
            if ready.ended:
                self.back.clear()

    def over(self) -> bool:
        """Whether no part that matters is out, or to be dealt."""
        waited = any(start < self.end for start in self.flying)
        more = self.next < self.end or any(start < self.end for start, _ in self.left)
        return not waited and (not more or self.late)

    def certificate(self) -> Exhausted:
        assert self.last is not None
        made = self.proved or self.last.made
        held = made.found.held if made.found else 0.0
        if held < min(1.0, self.end) * (1 - 1e-9) and self.limit is not None and made.counterexample is None:
            made = replace(made, reason=f"undecided, as {with_time(self.limit)}")
        return replace(made, seconds=self.before + time.perf_counter() - self.began)

    def pace(self) -> str:
        return f"{self.asked / max(1e-9, time.perf_counter() - self.began):.0f} pictures/s"
