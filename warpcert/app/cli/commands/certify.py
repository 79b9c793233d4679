"""`warpcert certify`: a run over a dataset, or one picture."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from warpcert.app.cli.options import (
    ATTACKS,
    METHODS,
    add_classifier,
    add_data,
    add_settings,
    add_threat,
    natural,
    positive,
)

if TYPE_CHECKING:
    from warpcert.app.cli.case import Case
    from warpcert.methods.base import Progress
    from warpcert.runs.engine import Engine
    from warpcert.runs.job import Job
    from warpcert.runs.progress import Watch

__all__ = ["add", "run"]


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument("pictures", type=Path, nargs="*", help="picture files (default: pictures of --data)")
    p.add_argument("--method", choices=METHODS, help="default: the model's own")
    p.add_argument("--out", type=Path, default=Path("runs/certify"), help="run folder, resumed (default: %(default)s)")
    p.add_argument("--seed", type=natural, default=0, help="default: %(default)s")
    p.add_argument("--json", action="store_true", help="print the summary as JSON")
    p.add_argument("--dry-run", action="store_true", help="print only what the run will cost, from a quick probe")
    p.add_argument("--fail-under", type=float, metavar="SHARE", help="exit with 1 if certified accuracy is lower")
    p.add_argument(
        "--right-only", action="store_true",
        help="exact: of pictures that are answered wrongly, prove no more than a thousandth of the range",
    )  # fmt: skip
    add_data(p)
    add_classifier(p)
    add_threat(p)
    add_settings(p)
    g = p.add_argument_group("attack (methods that are shown attacked pictures)")
    g.add_argument("--attack", choices=ATTACKS, help="how pictures are attacked first (default: worst-of-k)")
    g.add_argument("--k", type=positive, help="how many candidates the attack tries (default: 100)")
    g = p.add_argument_group("engine (the certificates are the same with every one)")
    g.add_argument("--engine", choices=("local", "ray"), default="local", help="default: %(default)s")
    g.add_argument(
        "--workers", type=positive, help="pictures at a time (default: local 1, ray as many as the cluster holds)"
    )
    g.add_argument("--address", help="of the ray cluster (default: this machine's, or a new one)")


def run(args: argparse.Namespace, console: Console) -> int:
    from warpcert.app.cli import estimates, summaries
    from warpcert.app.cli.case import open_case
    from warpcert.runs import album
    from warpcert.runs.progress import Watch
    from warpcert.runs.run import Run

    if args.pictures:
        if args.fail_under is not None or args.attack is not None or args.k is not None:
            raise ValueError("--fail-under and --attack need true labels, which files do not have: leave them out")
        return _pictures(args, console)
    if args.address is not None and args.engine != "ray":
        raise ValueError("--address belongs to --engine ray")
    if args.fail_under is not None and not 0 <= args.fail_under <= 1:
        raise ValueError(f"--fail-under is a share from 0 to 1; got {args.fail_under:g}")
    case = open_case(args)
    job = _job(args, case)
    if args.dry_run:
        return estimates.tell(case, job.method, args.json)
    estimates.warn(case, job.method, args.out, console)
    with Watch(console) as watch:
        _certify(args, case, job, watch)
    made = Run(args.out)
    album.keep(args.out, case.dataset, [row.index for row in made.rows], _attacked(case, args.out))
    made.report(args.out / summaries.PAGE)
    summaries.show(made, args.json)
    whole = made.summary.rows[-1][1]
    if args.fail_under is not None and whole < args.fail_under:
        console.print(f"certified accuracy {whole:.3f} is below {args.fail_under:g}", style="red")
        return 1
    return 0


def _job(args: argparse.Namespace, case: Case) -> Job:
    from warpcert.app.cli.case import method_of
    from warpcert.runs.job import AttackPlan, Job

    method = method_of(args, case.classifier)
    given = {k: v for k, v in {"name": args.attack, "k": args.k}.items() if v is not None}
    plan = AttackPlan(**given) if given or method.attacked else None
    return Job(case.source, case.threat, method, str(case.device), plan, args.right_only)


def _certify(args: argparse.Namespace, case: Case, job: Job, watch: Watch) -> None:
    from warpcert.runs.run import tasks_of
    from warpcert.runs.runner import run as certified
    from warpcert.runs.sharing import shared
    from warpcert.runs.store import Store

    sharing = shared(job, args.workers or (args.engine if args.engine == "ray" else 1), _inside(watch))
    config = job.describe(case.classifier, data=case.dataset.name, indices=case.indices, seed=args.seed)
    config |= {"order": "shuffled"} if args.shuffled else {}
    engine = _engine(args, case, job, watch)
    with Store(args.out, config) as store:
        job.keep(args.out)
        name, count = job.method.name, len(case.indices)
        right = sum(r["certificate"]["label"] == r["true_label"] for r in store.records)
        watch.show(name, len(store.done.intersection(case.indices)), count, f"{right} right")
        for record in certified(store, tasks_of(job, case.dataset, case.indices, args.seed), engine, sharing):
            right += record["certificate"]["label"] == record["true_label"]
            watch.show(name, len(store.done.intersection(case.indices)), count, f"{right} right")


def _engine(args: argparse.Namespace, case: Case, job: Job, watch: Watch) -> Engine:
    from warpcert.runs.engine import here, on_ray, processes

    if args.engine == "ray":
        return on_ray(job.open, args.workers, args.address, gpu=case.device.type == "cuda")
    if (args.workers or 1) > 1:
        return processes(job.open, args.workers)
    return here(job.certifier(case.classifier, _inside(watch)))


def _inside(watch: Watch) -> Progress:
    return lambda done, of, note="": watch.show("  this picture", done, of, note)


def _attacked(case: Case, folder: Path) -> Any:
    """What was certified in place of the originals, if pictures were attacked: made again from the recorded γ."""
    import torch

    from warpcert.runs.store import read_records

    t = case.threat.transform
    gammas = {r["index"]: r["attack"]["gamma"] for r in read_records(folder) if "attack" in r}
    if not gammas:
        return None

    def picture(index: int) -> torch.Tensor:
        gamma = torch.tensor([t.to_internal(gammas[index])], dtype=torch.float64)
        return case.threat.attacked(case.dataset.image(index), gamma)[0]

    return picture


def _pictures(args: argparse.Namespace, console: Console) -> int:
    """Certifies picture files one by one and prints what is proved about each."""
    import torch

    from warpcert import methods
    from warpcert.app.cli import estimates
    from warpcert.app.cli.case import classifier_of, method_of, threat_of
    from warpcert.learn.pictures import read_picture
    from warpcert.runs.job import device_of, seed_for
    from warpcert.runs.progress import Watch

    device = device_of(args.device)
    shape = None if _knows_its_shape(args.model) else tuple(read_picture(args.pictures[0]).shape)
    classifier, _ = classifier_of(args, shape, device)
    threat, method = threat_of(args, classifier), method_of(args, classifier)
    taken = getattr(getattr(classifier.network, "config", None), "shape", shape)
    for place, path in enumerate(args.pictures):
        x: torch.Tensor = read_picture(path, taken).to(device)
        if args.dry_run:
            print(f"{path}: {estimates.described(methods.foresee(method, classifier, x, threat))}")
            continue
        stopped = False
        with Watch(console) as watch:
            try:
                made = methods.certify_with(
                    method, classifier, x, threat, seed=seed_for(args.seed, place),
                    progress=lambda done, of, note="": watch.show(method.name, done, of, note),
                )  # fmt: skip
            except methods.Interrupted as stop:  # what is proved by then
                made, stopped = stop.certificate, True
        print(json.dumps({"picture": str(path)} | made.to_dict()) if args.json else f"{path}: {made}")
        if stopped:
            return 130
    return 0


def _knows_its_shape(model: str) -> bool:
    return ":" not in model and Path(model).suffix not in (".onnx", ".pt", ".pt2")
