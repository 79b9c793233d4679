"""What an engine costs beside the certificates: `python -m benchmarks.engine [--count 200] [--workers 2]`.

The same digits by one process, by worker processes and by ray. `busy` is the seconds that certificates took where they
were made; what a worker spends beyond it, per image and after the first answers, is the engine's overhead.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

import warpcert as wc
from warpcert.learn import data
from warpcert.learn.foreign import EMBEDDED, open_model
from warpcert.runs.engine import Engine, Task, here, on_ray, processes
from warpcert.runs.job import Job
from warpcert.runs.runner import seed_for


def digits_job(n: int) -> Job:
    """BaseSPT: forward passes and little else, so that the engine's share is as large as it gets."""
    model = open_model(EMBEDDED, (1, 28, 28), torch.device("cpu"))
    defence, threat = wc.Defence.from_dict(model.extra["defence"]), wc.Threat.of("rotation", 50)
    sampling = wc.Sampling(n=n)
    return Job("base", EMBEDDED, model.fingerprint, (1, 28, 28), "cpu", defence, threat, sampling)


def measured(engine: Engine, count: int, workers: int) -> tuple[dict[str, float], dict[int, object]]:
    """Seconds to the first answer, per image, and beside the certificates; and the answers."""
    digits, warm = data.load("mnist500"), 2 * workers
    tasks = (Task(i, digits.image(i).numpy(), seed_for(0, i)) for i in range(count))
    begin = time.perf_counter()
    answers, at = [], []
    own: list[float] = []  # CPU seconds of this process so far
    for answer in engine(tasks):
        answers.append(answer)
        at.append(time.perf_counter())
        own.append(time.process_time())
    wall, busy = at[-1] - at[warm - 1], sum(c.seconds for _, c in answers[warm:])
    figures = {
        "s to the first answer": at[0] - begin,
        "s per image": wall / (count - warm),
        "busy s per image": busy / (count - warm),
        "overhead per image, ms": 1000 * (workers * wall - busy) / (count - warm),
        "CPU of the driver per image, ms": 1000 * (own[-1] - own[warm - 1]) / (count - warm),
    }
    return {k: round(v, 4) for k, v in figures.items()}, {i: c.windows for i, c in answers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--n", type=int, default=2000, help="samples per image")
    args = parser.parse_args()
    torch.set_num_threads(1)
    job = digits_job(args.n)
    engines = {
        "1 process": (here(job.open()), 1),
        f"{args.workers} processes": (processes(job.open, args.workers), args.workers),
        f"ray, {args.workers} workers": (on_ray(job.open, args.workers, None), args.workers),
    }
    results = []
    for name, (engine, workers) in engines.items():
        figures, windows = measured(engine, args.count, workers)
        results.append(windows)
        print(json.dumps({name: figures}, ensure_ascii=False), flush=True)
    print(json.dumps({"same certificates": all(r == results[0] for r in results), "images": args.count}))


if __name__ == "__main__":
    main()
