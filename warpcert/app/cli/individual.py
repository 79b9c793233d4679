"""`certify --method indiv`, the paper's §6.4: attack every image, then certify what the attacker hands over without
looking at the original.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor

from warpcert import attacks, methods
from warpcert.app.cli.options import Case, describe, sampling_of
from warpcert.certificates import Certificate
from warpcert.classifier.inner import GaussianInner
from warpcert.classifier.nested import predict_nested
from warpcert.classifier.voting import predict
from warpcert.methods.run import Sampling
from warpcert.originals.functional import Functional
from warpcert.originals.lagrangian.inverse import Lagrangian
from warpcert.originals.protocol import IntervalInverse, InverseBound
from warpcert.runs import album
from warpcert.runs import summary as report
from warpcert.runs.runner import seed_for
from warpcert.runs.store import Store

__all__ = ["INVERSES", "add_attack", "add_inverse", "certificate", "certify", "inverse_of", "summary"]

INVERSES: dict[str, Callable[..., InverseBound]] = {
    "lagrangian": Lagrangian,
    "functional": Functional,
    "interval": IntervalInverse,
}


def add_inverse(parser: argparse.ArgumentParser, default: str = "lagrangian") -> None:
    """Which analysis leads back from x' to its originals."""
    g = parser.add_argument_group("possible originals (indiv)")
    g.add_argument("--inverse", choices=tuple(INVERSES), default=default, help="default: %(default)s")
    g.add_argument("--refinements", type=int, help="of the boxes of the original (default: 5, interval: 10)")


def add_attack(parser: argparse.ArgumentParser) -> None:
    """How x' is made from the images of a data set."""
    g = parser.add_argument_group("attack (indiv)")
    g.add_argument("--attack", choices=tuple(attacks.ATTACKS), default="worst-of-k", help="default: %(default)s")
    g.add_argument("--k", type=int, default=100, help="candidates of the attack (default: %(default)s)")
    g.add_argument("--merged", action="store_true", help="only β's within E vote: no ρ, --betas votes per window")


def inverse_of(args: argparse.Namespace) -> InverseBound:
    return INVERSES[args.inverse](**{} if args.refinements is None else {"refinements": args.refinements})


def certificate(
    args: argparse.Namespace,
    case: Case,
    x_attacked: Tensor,
    sampling: Sampling,
    progress: Callable[[int, int], None] | None = None,
) -> Certificate:
    """What the arguments say, about one attacked picture."""
    nested = getattr(args, "nested", False)
    return methods.indiv_spt(
        case.classifier,
        x_attacked,
        case.defence,
        case.threat,
        sampling,
        inverse=inverse_of(args),
        betas=args.betas,
        merged=getattr(args, "merged", False),
        inner=GaussianInner(case.classifier, case.defence.sigma_noise) if nested else None,
        model=case.fingerprint,
        progress=progress,
    )


def certify(args: argparse.Namespace, console: Console, case: Case) -> int:
    if args.engine != "local" or args.workers not in (None, 1):
        raise ValueError("indiv runs in one process: leave --engine and --workers off, or split the images by --start")
    sampling = sampling_of(args, None)
    more = {"method": "indiv", "nested": args.nested, "seed": args.seed, "betas": args.betas, "merged": args.merged}
    more |= {"inverse": args.inverse, "refinements": args.refinements, "attack": args.attack, "k": args.k}
    with Store(args.out, describe(case, sampling, **more)) as store:
        if store.done:
            console.print(f"going on in {args.out}: {len(store.done)} of {len(case.indices)} images are done")
        with Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        ) as bars:
            images = bars.add_task("indiv", total=len(case.indices), completed=len(store.done))
            errors = bars.add_task("  errors", total=args.betas)
            for index in case.indices:
                if index not in store.done:
                    _one(args, case, store, index, lambda done, total: bars.update(errors, completed=done, total=total))
                    bars.update(images, advance=1)
        rows = report.parse(store.records)  # redoes the arithmetic
        album.keep(args.out, case.dataset, [row.index for row in rows])
        found = summary(store.records)
    if args.json:
        print(json.dumps(found | {"folder": str(args.out)}))
    else:
        _print(found, args, store.records[0])
    return 0


def _one(args: argparse.Namespace, case: Case, store: Store, index: int, progress: Callable[[int, int], None]) -> None:
    """Attack, answer, certify, record."""
    x, label, seed = case.image(index), case.labels[index], seed_for(args.seed, index)
    t, defence = case.threat.transform, case.defence

    def base(z: Tensor) -> Tensor:
        return case.classifier(defence.preprocess(z))

    source = torch.Generator().manual_seed(seed)
    found = attacks.ATTACKS[args.attack](base, x, label, case.threat, args.k, source)
    sampling = Sampling(args.n, args.n0, args.alpha, args.windows, args.two_class, seed, args.batch)
    made = certificate(args, case, found.x_attacked, sampling, progress)
    own = torch.Generator(device=case.device).manual_seed(seed_for(seed, 1))
    if args.nested:
        inner = GaussianInner(case.classifier, defence.sigma_noise)
        answer = predict_nested(inner, defence, found.x_attacked, n=100, generator=own, batch=args.batch)
    else:
        answer = predict(case.classifier, defence, found.x_attacked, generator=own, batch=args.batch)
    attack = {"gamma": [t.surface(g) for g in found.gamma], "unit": t.unit, "label": found.label}
    store.append(
        index,
        label,
        made,
        attack=attack,
        answer=answer.label,
        analysis_seconds=made.error.seconds,
        smoothing_seconds=made.seconds - made.error.seconds,
    )


def summary(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares and times of a run of §6.4."""
    made = [r["certificate"] for r in records]
    certified = [c["derived"]["reach"] is not None for c in made]
    right = [good and c["label"] == r["true_label"] for good, c, r in zip(certified, made, records, strict=True)]
    examined = [c["error"]["E"] for c in made if "lower" in c["windows"]]  # with windows that were analysed
    return {
        "count": len(records),
        "kind": made[0]["derived"]["kind"],
        "base_correct": statistics.fmean(r["attack"]["label"] == r["true_label"] for r in records),
        "correct": statistics.fmean(r["answer"] == r["true_label"] for r in records),
        "certified": statistics.fmean(certified),
        "certified_and_correct": statistics.fmean(right),
        "median_E": statistics.median(examined) if examined else None,
        "excluded": statistics.fmean(c["excluded"] for c in made),
        "analysis_seconds": statistics.fmean(r["analysis_seconds"] for r in records),
        "smoothing_seconds": statistics.fmean(r["smoothing_seconds"] for r in records),
    }


def _print(found: dict[str, Any], args: argparse.Namespace, first: dict[str, Any]) -> None:
    out = Console(highlight=False)
    title = f"{found['count']} images after {args.attack} (k = {args.k}), inverse {args.inverse}, kind: {found['kind']}"
    table = Table("of the attacked pictures", "", title=title)
    rows = (
        ("answered correctly by the base classifier", "base_correct", ".3f"),
        ("answered correctly by the smoothed classifier", "correct", ".3f"),
        ("certified: the original has the same answer", "certified", ".3f"),
        ("certified and correct", "certified_and_correct", ".3f"),
        ("share of Γ excluded, mean", "excluded", ".4f"),
        ("E, median", "median_E", ".4f"),
        ("analysis, s per image", "analysis_seconds", ".2f"),
        ("smoothing, s per image", "smoothing_seconds", ".2f"),
    )
    for text, name, form in rows:
        table.add_row(text, "–" if found[name] is None else format(found[name], form))
    out.print(table)
    at = ", ".join(f"{g:.4g}{first['attack']['unit']}" for g in first["attack"]["gamma"])
    out.print(
        f"image {first['index']}, attacked by {at}: {first['certificate']['derived']['sentence']}", soft_wrap=True
    )
    out.print(f"certificates are in {args.out}")
