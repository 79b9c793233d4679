"""How far a run is: bars on a terminal, a line a minute in a log, also while nothing is heard of the work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from warpcert.methods.outlook.forecast import duration

__all__ = ["Watch"]

MINUTE = 60.0


@final
class Watch:
    """Bars by their names, shown while it is open. Where there is no terminal, a line a minute tells the same; some
    steps take minutes and tell nothing, and a thread of its own speaks for them.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._clock, self._said, self._tasks = clock, clock(), dict[str, Any]()
        self._begun = dict[str, tuple[float, int]]()  # when a bar was first shown, and how much was done
        self._last, self._heard = "", self._said
        self._lock, self._over = threading.Lock(), threading.Event()
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def show(self, name: str, done: int, total: int, note: str = "") -> None:
        """`done` of `total` of the bar of that name, which is made when it is first named."""
        if name not in self._tasks:
            self._begun[name] = self._clock(), done
            self._tasks[name] = self._bars.add_task(name, total=total, completed=done, note=note)
        self._bars.update(self._tasks[name], completed=done, total=total, note=note)
        with self._lock:
            self._last, self._heard = f"{name}: {done} of {total} {note}".rstrip(), self._clock()
            self._say(lambda: self._last + self._left(name, done, total))

    def still(self) -> None:
        """In a log: what was heard last, and how long ago, if nothing was said for a minute."""
        with self._lock:
            if self._last:
                self._say(lambda: f"{self._last}, on the next step for {duration(self._clock() - self._heard)}")

    def _say(self, line: Callable[[], str]) -> None:
        if not self._console.is_terminal and self._clock() - self._said >= MINUTE:
            self._said = self._clock()
            self._console.print(line(), markup=False, soft_wrap=True)

    def _left(self, name: str, done: int, total: int) -> str:
        began, before = self._begun[name]
        if not before < done < total:
            return ""
        return f", about {duration((self._clock() - began) * (total - done) / (done - before))} left"

    def __enter__(self) -> Self:
        self._bars.start()
        if not self._console.is_terminal:
            threading.Thread(target=self._speak, daemon=True).start()
        return self

    def _speak(self) -> None:
        while not self._over.wait(MINUTE / 4):
            self.still()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._bars.stop()
