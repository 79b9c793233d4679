"""By how much logits depend on how they are computed: `python -m benchmarks.deviation --out FILE [--pictures FOLDER]`.

A proof about a network in floating point takes `slack` times the largest logit (at least 1) off every lead, because the
same picture gets slightly different logits in another batch or on another device. How different, in the same unit: the
largest (max d − min d) / max(1, largest |logit|), with d the difference of the logits of a picture in two computations.
No lead changes by more. For every network of the zoo, in its own precision:

    batches    4096 pictures at once against parts of other sizes, 1 among them: all pictures
    cpu        against the CPU: one picture in a thousand
    compiled   against `torch.compile`: one in ten
    exact      against float64, for networks in float32: one in a hundred. What a Lipschitz constant is about. Both ends
               of a window's proof deviate from it, so twice this must be below the slack

Pictures are what certification shows the network: pictures of its own kind (FOLDER/DATASET.npz; else those that
WARPCERT_DATA has; else coloured digits, and tones for sounds), attacked at random γ, behind its levels, or turned,
preprocessed and noisy. FILE keeps what is finished; the same command goes on. `--keep FILE …` then writes
recipes/NAME/deviation.json, refusing what was measured on other weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from warpcert.classifier import Classifier
from warpcert.classifier.levels import Levels
from warpcert.classifier.smoothed import Smoothed
from warpcert.classifier.votes.voting import add_noise
from warpcert.learn import data, zoo
from warpcert.threat import Threat

ROOT = Path(__file__).parents[1]
KEPT = "deviation.json"
BATCH = 4096
SIZES = (8192, 1000, 2048, 3333, 512)  # against BATCH, in turn
SMALL = {1: 128, 2: 256, 7: 1001, 64: 4096}  # size of a batch → pictures; cost more than they weigh
ORIGINALS = 500
Function = Callable[[Tensor], Tensor]


@dataclass
class Tally:
    """Of one comparison. `answers` counts pictures whose leading class differs, `certain` those of them for which the
    lead was above the slack: each would be a false proof.
    """

    images: int = 0
    largest: float = 0.0
    answers: int = 0
    certain: int = 0

    def add(self, a: Tensor, b: Tensor, slack: float) -> None:
        a, b = a.double(), b.to(a.device).double()
        change, size = a - b, torch.minimum(a.abs().amax(1), b.abs().amax(1)).clamp_min(1)
        moved = (change.amax(1) - change.amin(1)) / size
        top = a.topk(2).values
        other = a.argmax(1) != b.argmax(1)
        sure = (top[:, 0] - top[:, 1]) / a.abs().amax(1).clamp_min(1) > slack
        worst = moved.max()  # NaN wins
        self.images += len(a)
        self.largest = max(self.largest, math.inf if bool(worst.isnan()) else float(worst))
        self.answers += int(other.sum())
        self.certain += int((other & sure).sum())


@dataclass
class Plan:
    """What is compared how often."""

    images: int
    seed: int
    device: str
    pictures: Path | None = None
    compiled: bool = True
    threads: int = 0
    until: float = math.inf  # by time.time(): no network is begun later
    shares: dict[str, int] = field(default_factory=lambda: {"cpu": 1000, "compiled": 10, "exact": 100})

    def some(self, name: str) -> int:
        """How many pictures of a comparison that does not see all: whole batches, but for the CPU."""
        count = max(1, self.images // self.shares[name])
        return max(256, count) if name == "cpu" else min(self.images, math.ceil(count / BATCH) * BATCH)


def originals(classifier: Classifier, plan: Plan) -> tuple[Tensor, str]:
    """At most ORIGINALS items [N,...] float32 of the network's own kind, and where they are from."""
    shape, name = classifier.network.config.shape, str(classifier.about.notes["dataset"])  # type: ignore[union-attr]
    stem = Path(name).stem
    try:
        beside = plan.pictures / f"{stem}.npz" if plan.pictures else None
        found = data.load("mnist500" if stem == "mnist" else beside if beside and beside.is_file() else name)
        at = torch.linspace(0, len(found) - 1, min(ORIGINALS, len(found))).long()
        if found.shape == shape:
            return found.images[at].float() / found.levels, f"{found.name}, {len(at)} items"
    except ValueError:
        pass
    g = torch.Generator().manual_seed(plan.seed)
    if len(shape) == 2:  # three tones each
        t, pitch, loud = torch.arange(shape[1]) / 16000, torch.rand(ORIGINALS, 3, 1, generator=g), torch.rand(3, 1) / 3
        return (loud * (2 * math.pi * t * (100 + 3000 * pitch)).sin()).sum(1, keepdim=True), "tones"
    digits = data.load("mnist500").images.float() / 255
    ink, paper = torch.rand(2, len(digits), shape[0], 1, 1, generator=g)
    x = interpolate(digits, shape[1:], mode="bilinear")
    return (255 * (x * ink + (1 - x) * paper)).round() / 255, "mnist500 in colour"


def shown(classifier: Classifier, items: Tensor, count: int, g: torch.Generator) -> Tensor:
    """What the network sees of `count` items attacked at random γ: P-images, with noise if the classifier draws it."""
    threat = classifier.threat or Threat.rotation(30)
    z = items[torch.randint(len(items), (count,), generator=g, device=items.device)]
    low, high = (
        torch.tensor(e, device=items.device, dtype=torch.float64) for e in (threat.box.lower, threat.box.upper)
    )
    share = torch.rand(count, threat.box.dim, generator=g, device=items.device, dtype=torch.float64)
    z = threat.attacked(z, threat.legal(low + share * (high - low)))
    if isinstance(classifier, Smoothed):
        defence = classifier.own_defence
        return add_noise(defence.view(z, defence.draw_beta(count, g)), defence.sigma_noise, g)
    return classifier.seen(z) if isinstance(classifier, Levels) else classifier.preprocess(z)


def in_parts(f: Function, views: Tensor, size: int) -> Tensor:
    return torch.cat([f(part) for part in views.split(size)])


def on_cpu(classifier: Classifier) -> Function:
    copy = deepcopy(classifier).cpu()
    return lambda z: in_parts(copy.logits, z.cpu(), BATCH)


def compiled(classifier: Classifier) -> Function:
    torch.compiler.reset()  # or the next networks of this process exceed the limit, and are not compiled any more
    f = torch.compile(classifier.network, dynamic=False)
    half = classifier.precision == "half"
    return lambda z: in_parts(f, z.half() if half else z, BATCH).float()


def exact(classifier: Classifier) -> Function:
    network = deepcopy(classifier.network).double()  # type: ignore[union-attr]
    return lambda z: in_parts(network, z.double(), 512)


@torch.no_grad()
def measured(name: str, plan: Plan) -> dict[str, Any]:
    """Everything about one network."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if plan.threads:
        torch.set_num_threads(plan.threads)
    start, device = time.perf_counter(), torch.device(plan.device)
    path = zoo.find(name)
    classifier = zoo.load(name).to(device).eval()
    items, source = originals(classifier, plan)
    items = items.to(device)
    g = torch.Generator(device=device).manual_seed(plan.seed)
    tallies, others, failed = {"batches": Tally()}, dict[str, Function](), dict[str, str]()
    ways: dict[str, Callable[[Classifier], Function]] = {}
    if device.type != "cpu":
        ways["cpu"] = on_cpu
    if plan.compiled:
        ways["compiled"] = compiled
    if classifier.precision == "float32":
        ways["exact"] = exact
    for turn, (count, size) in enumerate(_chunks(plan.images)):
        views = shown(classifier, items, count, g)
        reference = in_parts(classifier.logits, views, BATCH)
        tallies["batches"].add(reference, in_parts(classifier.logits, views, size), classifier.slack)
        if turn == 0:
            for small, some in SMALL.items():
                few = views[: min(some, max(1, plan.images // 200))]
                part = in_parts(classifier.logits, few, small)
                tallies["batches"].add(reference[: len(few)], part, classifier.slack)
        for what, way in ways.items():
            tally = tallies.setdefault(what, Tally())
            left = plan.some(what) - tally.images
            if left <= 0 or what in failed:
                continue
            try:
                others[what] = f = others.get(what) or way(classifier)
                tally.add(reference[:left], f(views[:left]), classifier.slack)
            except Exception as error:  # a compiler that is not there, an operation that the CPU lacks
                failed[what] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    if device.type == "cuda":
        torch.cuda.empty_cache()  # other processes need it
    return {
        "name": name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "fingerprint": classifier.fingerprint,
        "precision": classifier.precision,
        "slack": classifier.slack,
        "items": source,
        "seed": plan.seed,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "sizes": sorted({BATCH, *SIZES, *SMALL}),
        "seconds": round(time.perf_counter() - start, 1),
        "compared": {what: asdict(t) for what, t in tallies.items() if what not in failed},
        "failed": failed,
    }


def _chunks(images: int) -> Iterator[tuple[int, int]]:
    """(pictures, size of the other batches), until there are enough."""
    for turn, start in enumerate(range(0, images, 2 * BATCH)):
        yield min(2 * BATCH, images - start), SIZES[turn % len(SIZES)]


def largest(found: dict[str, Any]) -> float:
    """The largest deviation of two computations that a proof and its use may be, in the unit of the slack."""
    return max(float(t["largest"]) for what, t in found["compared"].items() if what != "exact")


def listed(folder: Path) -> dict[str, Any]:
    """What the manifest says of the measurement that a recipe's folder keeps, if it does."""
    path = folder / KEPT
    if not path.is_file():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    images = found["compared"]["batches"]["images"]
    return {"deviation": {"slack": found["slack"], "largest": largest(found), "images": images}}


def in_words(found: dict[str, Any]) -> str:
    parts = [f"{what} {t['largest']:.2e} of {t['images']}" for what, t in found["compared"].items()]
    failed = [f"{what} failed ({why})" for what, why in found["failed"].items()]
    wrong = sum(t["certain"] for t in found["compared"].values())
    alarm = f"   {wrong} CERTAIN ANSWERS DIFFER" if wrong else ""
    return f"{found['name']:<30} slack {found['slack']:g}   {'   '.join(parts + failed)}   {found['seconds']} s{alarm}"


def _measured(job: tuple[str, Plan]) -> dict[str, Any] | None:
    return measured(*job) if time.time() < job[1].until else None


def run(plan: Plan, out: Path, names: list[str], workers: int) -> None:
    """Measures the networks that `out` does not have yet; the file is whole after each."""
    done: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    todo = [(name, plan) for name in names if name not in done]
    with ExitStack() as stack:
        each: Iterable[dict[str, Any] | None] = map(_measured, todo)
        if workers > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(workers))
            each = pool.imap_unordered(_measured, todo)
        for found in filter(None, each):
            done[found["name"]] = found
            out.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
            print(in_words(found), flush=True)
    if left := [name for name, _ in todo if name not in done]:
        print(f"not measured yet: {', '.join(left)}; the same command goes on")


def keep(files: list[Path], root: Path = ROOT) -> list[str]:
    """Writes recipes/NAME/deviation.json; a ValueError for measurements on other weights."""
    kept = []
    for name, found in (pair for file in files for pair in json.loads(file.read_text(encoding="utf-8")).items()):
        if found["sha256"] != zoo.manifest()[name].sha256:
            raise ValueError(f"{name} was measured with other weights: measure it again")
        text = json.dumps(found, indent=1) + "\n"
        (root / "recipes" / name / KEPT).write_text(text, encoding="utf-8")
        kept.append(name)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="where measurements go; those that are there already are kept")
    parser.add_argument("--keep", type=Path, nargs="+", help="writes recipes/NAME/deviation.json from such files")
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=1, help="networks at a time, each in a process of its own")
    parser.add_argument("--threads", type=int, default=0, help="on the CPU, of each process")
    parser.add_argument("--only", default="", help="networks whose name fits this regular expression")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no network after so long")
    parser.add_argument("--pictures", type=Path, help="a folder with DATASET.npz")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.keep:
        print(f"kept {', '.join(keep(args.keep))}")
    elif args.out is None:
        parser.error("say --out FILE, or --keep FILE")
    else:
        until = time.time() + 60 * args.minutes
        plan = Plan(args.images, args.seed, args.device, args.pictures, not args.no_compile, args.threads, until)
        names = sorted((n for n in zoo.manifest() if re.search(args.only, n)), key=lambda n: -zoo.manifest()[n].bytes)
        run(plan, args.out, names, args.workers)


if __name__ == "__main__":
    main()
