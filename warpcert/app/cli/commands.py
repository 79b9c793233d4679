"""What each command does. Progress and errors go to stderr, results to stdout."""

from __future__ import annotations

import argparse
import json
import secrets
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from warpcert import attacks, methods
from warpcert.app.cli import individual
from warpcert.app.cli.options import Case, bound_of, describe, device_of, open_case, sampling_of
from warpcert.app.pictures import read_picture, write_picture
from warpcert.certificates import Kind
from warpcert.classifier.voting import ABSTAIN
from warpcert.classifier.voting import predict as joint_predict
from warpcert.errors.calibration import Calibration, calibrate, estimate, inner_betas
from warpcert.learn import data, zoo
from warpcert.learn.train import Recipe
from warpcert.learn.train import train as train_recipe
from warpcert.methods.run import Sampling
from warpcert.runs import album
from warpcert.runs import summary as report
from warpcert.runs.answers import verify_file
from warpcert.runs.engine import Engine, here, on_ray, processes
from warpcert.runs.job import METHODS as PLAIN
from warpcert.runs.job import Job
from warpcert.runs.runner import run, seed_for
from warpcert.runs.store import Store, read_records, verify

__all__ = ["METHODS", "attack", "bound", "certify", "check", "list_data", "list_models", "predict", "train"]

METHODS = (*PLAIN, "indiv")
SHOWN = 10  # problems that `check` prints


def _progress(console: Console, *columns: str) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *(TextColumn(c) for c in columns),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )


def certify(args: argparse.Namespace, console: Console) -> int:
    case = open_case(args)
    if args.method == "indiv":
        return individual.certify(args, console, case)
    job = _job(args, case)
    more = {"method": args.method, "nested": args.nested, "seed": args.seed}
    if args.method == "dist-x":
        more |= {"bound": args.bound, "betas": args.betas, "guessed": args.guess_then_test, "limit": args.time_limit}
    if args.method == "cover":
        more |= {"target": args.target, "rounded": not args.plain_centers}
    if job.calibration is not None:
        more |= {"calibration": job.calibration.digest}
    engine = _engine(args, case, job)
    with Store(args.out, describe(case, job.sampling, **more)) as store:
        done = len(store.done.intersection(case.indices))
        if done:
            console.print(f"going on in {args.out}: {done} of {len(case.indices)} images are done")
        with _progress(console, "certified {task.fields[kept]}", "{task.fields[rate]}") as progress:
            kept = sum(r["certificate"]["label"] == r["true_label"] for r in store.records)
            task = progress.add_task(args.method, total=len(case.indices), completed=done, kept=kept, rate="–")
            for record in run(store, case.dataset.image, case.labels, case.indices, engine, args.seed):
                kept += record["certificate"]["label"] == record["true_label"]
                speed = progress.tasks[0].finished_speed or progress.tasks[0].speed
                progress.update(task, advance=1, kept=kept, rate=f"{1 / speed:.2f} s/image" if speed else "–")
        rows = report.parse(store.records)
    summary = report.summarise(rows)
    album.keep(args.out, case.dataset, [row.index for row in rows])
    report.plot_accuracy(rows, args.out / "accuracy.png")
    report.plot_gallery(rows, case.dataset.image, args.out / "gallery.png")
    if rows[0].certificate.bounded:
        report.plot_error(case.dataset.image(rows[0].index), rows[0].certificate, args.out / "error.png")
    if args.json:
        print(json.dumps(summary.to_dict() | {"folder": str(args.out)}))
    else:
        _print_summary(summary, args.out, rows[0])
    return 0


def _job(args: argparse.Namespace, case: Case) -> Job:
    return Job(
        method=args.method,
        model=case.model,
        fingerprint=case.fingerprint,
        half=args.half,
        coarse=args.coarse,
        shape=case.dataset.shape,
        device=str(case.device),
        defence=case.defence,
        threat=case.threat,
        sampling=sampling_of(args, None),
        nested=args.nested,
        sup=bound_of(args),
        betas=args.betas,
        guessed=args.guess_then_test,
        target=args.target,
        rounded=not args.plain_centers,
        calibration=_calibration(args, case) if args.method == "dist-d" else None,
    )


def _engine(args: argparse.Namespace, case: Case, job: Job) -> Engine:
    if args.engine == "ray":
        return on_ray(job.open, args.workers, args.address, gpu=case.device.type == "cuda")
    if args.address is not None:
        raise ValueError("--address belongs to --engine ray")
    workers = 1 if args.workers is None else args.workers
    return here(job.certifier(case.classifier)) if workers == 1 else processes(job.open, workers)


def _calibration(args: argparse.Namespace, case: Case) -> Calibration:
    if args.calibration is None:
        raise ValueError("dist-d needs --calibration FILE; write one with `warpcert bound`")
    calibration = Calibration.read(args.calibration)
    calibration.check_settings(case.defence, case.threat)
    return calibration


def bound(args: argparse.Namespace, console: Console) -> int:
    case = open_case(args)
    sup, generator = bound_of(args), torch.Generator(device=case.device).manual_seed(args.seed)
    start = time.perf_counter()
    betas = inner_betas(args.rho, args.alpha, args.allowed)
    with _progress(console, "E {task.fields[note]}") as progress:
        E = args.fixed_E
        if E is None:
            before = range(max(0, case.indices.start - args.estimate), case.indices.start)
            if not before:
                raise ValueError("E is chosen on images before --start: raise --start, or give --E")
            task = progress.add_task("estimate", total=len(before), note="–")
            values = []
            for value in estimate(
                sup, [case.image(i) for i in before], case.defence, case.threat, betas=betas, generator=generator
            ):
                values.append(value)
                progress.update(task, advance=1, note=f"{max(values):.4f}")
            E = args.factor * max(values)
        task = progress.add_task("test", total=len(case.indices), note=f"{E:.4f}")
        images = [case.image(i) for i in case.indices]
        accepted = 0
        for good in calibrate(
            sup, images, case.defence, case.threat, E=E, betas=betas, allowed=args.allowed, generator=generator
        ):
            accepted += good
            progress.update(task, advance=1)
    made = Calibration(
        defence=case.defence,
        threat=case.threat,
        shape=case.dataset.shape,
        data=f"{case.dataset.name} {args.split}",
        E=E,
        rho=args.rho,
        alpha=args.alpha,
        alpha_inner=args.alpha,
        images=len(images),
        accepted=accepted,
        betas=betas,
        allowed=args.allowed,
        kind=sup.kind,
        bound=sup.name,
        seed=args.seed,
        seconds=time.perf_counter() - start,
    )
    made.write(args.out)
    print(
        f"E = {E:.4f} ({made.kind}), ρ = {args.rho:g}: {accepted} of {len(images)} images, "
        f"so q_E ≥ {made.q_E:.4f} with confidence {1 - args.alpha:g}"
    )
    console.print(f"written to {args.out}")
    return 0


def _print_summary(summary: report.Summary, folder: Path, first: report.Row) -> None:
    out = Console(highlight=False)
    table = Table("certified range", "certified accuracy", title=f"{summary.count} images, kind: {summary.kind}")
    for text, share in summary.rows:
        table.add_row(text, f"{share:.3f}")
    out.print(table)
    if summary.kind is Kind.HEURISTIC:
        out.print(
            "HEURISTIC: the interpolation error was sampled or dropped, not bounded; these ranges are not proved."
        )
    if first.certificate.share:
        share = first.certificate.share.share
        out.print(f"DISTRIBUTIONAL: only for the share ≥ {share:.4f} of pictures that the calibration vouches for.")
    out.print(f"median E {summary.median_E:.4f}, {summary.seconds:.2f} s and {summary.passes:.0f} passes per image")
    out.print(f"image {first.index}: {first.certificate}")
    out.print(f"certificates and pictures are in {folder}")


def predict(args: argparse.Namespace, console: Console) -> int:
    case = open_case(args)
    items: list[tuple[str, Tensor, int | None]]
    if args.images:
        items = [(str(p), read_picture(p, case.dataset.shape), None) for p in args.images]
    else:
        items = [(str(i), case.dataset.image(i), case.labels[i]) for i in case.indices]
    seed = secrets.randbits(62) if args.seed is None else args.seed
    calibration = _calibration(args, case) if args.calibration else None
    correct = abstained = 0
    for place, (name, x, label) in enumerate(items):
        generator = torch.Generator(device=case.device).manual_seed(seed_for(seed, place))
        answer = joint_predict(
            case.classifier,
            case.defence,
            x.to(case.device),
            n=args.n,
            alpha=args.alpha,
            generator=generator,
            batch=args.batch,
        )
        correct += answer.label == label
        abstained += answer.label == ABSTAIN
        online = None
        sampling = Sampling(n=args.n, alpha=args.alpha, seed=None, batch=args.batch)
        if args.indiv:
            online = individual.certificate(args, case, x.to(case.device), replace(sampling, windows=args.windows))
        if calibration is not None:
            online = methods.dist_spt_d_online(
                case.classifier, x.to(case.device), calibration, sampling, model=case.fingerprint
            )
        if args.json:
            row = {"image": name, "label": answer.label, "counts": answer.counts, "true_label": label}
            print(json.dumps(row | ({"certificate": online.to_dict()} if online else {})))
        else:
            said = "abstains" if answer.label == ABSTAIN else case.class_name(answer.label)
            share = max(answer.counts) / sum(answer.counts)
            truth = "" if label is None else f"   (is {case.class_name(label)})"
            print(f"{name}: {said}   {share:.1%} of {args.n} votes{truth}")
            if online:
                print(f"    {online}")
    if not args.images:
        console.print(f"correct {correct / len(items):.3f}, abstained {abstained / len(items):.3f} of {len(items)}")
    return 0


def attack(args: argparse.Namespace, console: Console) -> int:
    case = open_case(args)
    t = case.threat.transform
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "attacks.jsonl").write_text("")

    def attacked(z: Tensor) -> Tensor:
        return case.classifier(case.defence.preprocess(z))

    clean = robust = 0
    with _progress(console) as progress:
        for index in progress.track(case.indices, description=args.method):
            x, label = case.image(index), case.labels[index]
            generator = torch.Generator().manual_seed(seed_for(args.seed, index))
            found = attacks.ATTACKS[args.method](attacked, x, label, case.threat, args.k, generator)
            with torch.no_grad():
                clean += int(attacked(x[None]).argmax()) == label
            robust += not found.succeeded
            record = {
                "index": index,
                "true_label": label,
                "label": found.label,
                "gamma": [t.surface(g) for g in found.gamma],
                "unit": t.unit,
                "loss": found.loss,
            }
            if args.json:
                print(json.dumps(record))
            if args.out:
                _save_attack(args.out, index, found.x_attacked, record)
    shares = f"plain accuracy {clean / len(case.indices):.3f}, under attack {robust / len(case.indices):.3f}"
    (console if args.json else Console(highlight=False)).print(f"{shares} ({len(case.indices)} images, {args.method})")
    return 0


def _save_attack(folder: Path, index: int, image: Tensor, record: dict[str, Any]) -> None:
    if image.dim() == 3 and image.shape[0] in (1, 3):
        write_picture(image, folder / f"{index}.png")
    with (folder / "attacks.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


def train(args: argparse.Namespace, console: Console) -> int:
    recipe = Recipe.read(args.recipe)
    result = train_recipe(
        recipe,
        data.load(recipe.dataset, "train", args.data_root),
        device_of(args.device),
        args.out,
        seconds_limit=args.seconds,
    )
    print(json.dumps(result))
    console.print(f"weights, log and result are in {args.out}")
    return 0


def check(args: argparse.Namespace, console: Console) -> int:
    if args.folder.is_file():
        problems, count = verify_file(args.folder), 1
    else:
        problems, count = verify(args.folder), sum(1 for _ in read_records(args.folder))
    if args.json:
        print(json.dumps({"certificates": count, "problems": problems}))
    for problem in problems[:SHOWN]:
        console.print(f"FAILED {problem}", style="red", markup=False, soft_wrap=True)
    if len(problems) > SHOWN:
        console.print(f"and {len(problems) - SHOWN} more; --json lists all", style="red")
    if not args.json:
        print(f"{count} certificates checked, {len(problems)} problems")
    return 1 if problems else 0


def list_data(args: argparse.Namespace, console: Console) -> int:
    table = Table("name", "images", "shape", "classes", "where")
    for name in data.NAMES:
        try:
            found = data.load(name, "test", args.data_root)
            shape = "×".join(map(str, found.shape))
            table.add_row(name, str(len(found)), shape, str(len(found.classes)), "found")
        except ValueError as error:
            table.add_row(name, "–", "–", "–", str(error))
    Console(highlight=False).print(table)
    return 0


def list_models(args: argparse.Namespace, console: Console) -> int:
    if args.json:
        print(json.dumps([asdict(listing) for listing in zoo.manifest().values()]))
        return 0
    for m in zoo.manifest().values():
        print(f"{m.name}   {m.task}   {m.bytes / 1e6:.1f} MB   {m.licence}\n    SHA-256 {m.sha256}")
        for what, share in m.figures.items():
            print(f"    certified {share}: {what}")
    return 0
