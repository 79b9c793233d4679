"""What a run will cost, said before it begins."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import final

import torch
from rich.console import Console

from warpcert import methods
from warpcert.app.cli.case import Case
from warpcert.methods import Forecast, Method
from warpcert.methods.outlook.forecast import duration
from warpcert.numerics.deadline import TimeOverError, limited
from warpcert.runs.store import CONFIG, read_records

__all__ = ["Timed", "described", "tell", "warn"]

LONG = 60.0  # seconds in all, beyond which a run says so before it begins
LOOKED_AT = 3  # pictures of a dry run, evenly spread
LOOK = 30.0  # seconds that a look before a run may take, or a picture's time limit
FIRST = 3  # pictures after which a calibration says how long it takes


def described(found: Forecast) -> str:
    return f"{found}; {found.advice}" if found.advice else str(found)


def tell(case: Case, method: Method, as_json: bool) -> int:
    """The estimate alone: some pictures one by one, and the run in all. 0, as an exit code."""
    count = len(case.indices)
    places = sorted({round(i * (count - 1) / max(1, LOOKED_AT - 1)) for i in range(LOOKED_AT)})
    found = {case.indices[place]: _foreseen(case, method, case.indices[place]) for place in places}
    each = [f.seconds for f in found.values()]
    whole, passes = count * sum(each) / len(each), count * sum(f.passes for f in found.values()) // len(each)
    if as_json:
        pictures = [{"index": i, **vars(f)} for i, f in found.items()]
        print(json.dumps({"method": method.name, "count": count, "seconds": whole, "passes": passes, "some": pictures}))
        return 0
    for index, forecast in found.items():
        print(f"picture {index}: {described(forecast)}")
    pictures_in_all = f"{count} picture{'s' * (count > 1)}"
    print(f"{method.name}, {pictures_in_all}, one after the other: {Forecast(passes, whole, 0)}")
    return 0


def warn(case: Case, method: Method, folder: Path, console: Console) -> None:
    """One line, if what is left of a run will take more than a minute or is not going to be certified."""
    done = {r["index"] for r in read_records(folder)} if (folder / CONFIG).is_file() else set()
    left = [i for i in case.indices if i not in done]
    if not left:
        return
    limit, pictures = getattr(method, "time_limit", None), f"{len(left)} picture{'s' * (len(left) > 1)}"
    with suppress(ValueError):  # what cannot be done says so when it is tried
        try:
            with limited(time.perf_counter() + min(LOOK, limit or LOOK)):
                found = _foreseen(case, method, left[0])
        except TimeOverError:
            line = f"how long {pictures} will take cannot be told within {LOOK:g} s: --dry-run takes its time over it"
            if limit is not None:
                line = f"{pictures} will take at most {duration(len(left) * limit)}"
            if limit is None or len(left) * limit > LONG:
                console.print(line, markup=False, soft_wrap=True)
            return
        whole = len(left) * found.seconds
        if whole > LONG or found.advice:
            line = f"{pictures} will take about {duration(whole)}, judged by the first: {described(found)} each"
            console.print(line, markup=False, soft_wrap=True)


def _foreseen(case: Case, method: Method, index: int) -> Forecast:
    """Of a picture, or of one that was attacked half-way, for methods that are shown those."""
    x = case.image(index)
    if method.attacked:
        half = torch.tensor([case.threat.box.scaled(0.5).upper], dtype=torch.float64, device=x.device)
        x = case.threat.attacked(x, half)[0].float()
    return methods.foresee(method, case.classifier, x, case.threat)


@final
class Timed:
    """Watches a calibration: says once for each of its parts, after the first pictures, how long the rest will take."""

    def __init__(
        self, show: Callable[[str, int, int], None], console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._show, self._console, self._clock, self._begun = show, console, clock, dict[str, float]()

    def __call__(self, what: str, done: int, of: int) -> None:
        self._show(what, done, of)
        begun = self._begun.setdefault(what, self._clock())
        each = (self._clock() - begun) / max(1, done)
        if done == FIRST and (left := (of - done) * each) > LONG:
            line = f"{what}: {duration(each)} a picture, so that {of - done} more will take about {duration(left)}"
            self._console.print(line, markup=False, soft_wrap=True)
