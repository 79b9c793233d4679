"""`warpcert predict`: the deployed answer about pictures, and perhaps what is proved of their originals."""

from __future__ import annotations

import argparse
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from rich.console import Console

from warpcert.app.cli.options import CHANGES, EMBEDDED, add_classifier, add_data, add_settings, add_threat, natural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from warpcert.classifier import Classifier
    from warpcert.methods import Method
    from warpcert.threat import Threat

__all__ = ["add", "run"]

VOTES, ALPHA = 1000, 0.001


def add(p: argparse.ArgumentParser) -> None:
    p.add_argument("pictures", type=Path, nargs="*", help="picture files (default: pictures of --data)")
    p.add_argument("--from", type=Path, dest="folder", metavar="RUN", help="deploy exactly what this run certified")
    p.add_argument("--early", action="store_true", help="stop voting as soon as the answer is settled")
    p.add_argument("--seed", type=natural, help="default: fresh and secret")
    p.add_argument(
        "--method",
        choices=("dist-d-online", "indiv"),
        help="the pictures have been attacked: also certify that their originals get the same answer",
    )
    p.add_argument("--json", action="store_true", help="print one JSON line per picture")
    add_data(p)
    add_classifier(p)
    add_threat(p)
    add_settings(p)


@final
@dataclass(frozen=True)
class _Item:
    name: str
    x: Tensor
    label: int | None  # the true one, where it is known


def run(args: argparse.Namespace, console: Console) -> int:
    import torch

    from warpcert.classifier.votes.voting import ABSTAIN
    from warpcert.runs.job import device_of, seed_for

    device = device_of(args.device)
    classifier, items = _open(args)
    online = _online(args, classifier)
    seed = secrets.randbits(62) if args.seed is None else args.seed
    correct = abstained = asked = 0
    for place, item in enumerate(items):
        x = item.x.to(device)
        generator = torch.Generator(device=device).manual_seed(seed_for(seed, place))
        answer = _answer(args, classifier, x, generator)
        label, asked = answer["label"], asked + 1
        correct += label == item.label
        abstained += label == ABSTAIN
        certificate = None
        if online is not None:
            certificate = classifier.certify(x, online[1], method=online[0].name, **_given(args))
        names = classifier.classes
        said = "abstains" if label == ABSTAIN else names[label] if label < len(names) else f"class {label}"
        if args.json:
            row = {"picture": item.name, **answer, "class": said, "true_label": item.label}
            print(json.dumps(row | ({"certificate": certificate.to_dict()} if certificate else {})))
            continue
        share = f"   {max(answer['counts']) / sum(answer['counts']):.1%} of the votes" if "counts" in answer else ""
        truth = "" if item.label is None else f"   (is {names[item.label] if item.label < len(names) else item.label})"
        print(f"{item.name}: {said}{share}{truth}")
        if certificate:
            print(f"    {certificate}")
    if not args.pictures:
        console.print(f"correct {correct / asked:.3f}, abstained {abstained / asked:.3f} of {asked}")
    return 0


def _open(args: argparse.Namespace) -> tuple[Classifier, Iterator[_Item]]:
    """The classifier and the pictures that are asked about."""
    from warpcert.app.cli.case import classifier_of, open_case, pictures_of
    from warpcert.learn.pictures import read_picture
    from warpcert.runs.job import device_of

    if args.folder is not None:
        classifier = _certified(args)
    elif args.pictures:
        shape = None
        if Path(args.model).suffix in (".onnx", ".pt", ".pt2") or ":" in args.model:
            shape = tuple(read_picture(args.pictures[0]).shape)
        classifier, _ = classifier_of(args, shape, device_of(args.device))
    else:
        classifier = open_case(args).classifier
    if not args.pictures:
        dataset, indices = pictures_of(args)
        return classifier, (_Item(str(i), dataset.image(i), int(dataset.labels[i])) for i in indices)
    wanted = getattr(getattr(classifier.network, "config", None), "shape", None)
    return classifier, (_Item(str(p), read_picture(p, wanted), None) for p in args.pictures)


def _certified(args: argparse.Namespace) -> Classifier:
    """The classifier of a run, which nothing on the command line changes."""
    from warpcert.runs.run import Run

    changed = [name for name in CHANGES if getattr(args, name) is not None]
    if changed:
        flags = ", ".join(f"--{name}" for name in changed)
        raise ValueError(f"--from deploys exactly what the run certified: leave out {flags}")
    return Run(args.folder).classifier(args.device, args.model if args.model != EMBEDDED else None)


def _answer(args: argparse.Namespace, classifier: Classifier, x: Tensor, generator: Any) -> dict[str, Any]:
    """The deployed answer: votes of a smoothed classifier, the leading class of another."""
    from warpcert.classifier import Smoothed

    if not isinstance(classifier, Smoothed):
        if args.early:
            raise ValueError("--early is for classifiers that vote; this one answers at once")
        return {"label": classifier.predict(x)}
    n, alpha = args.n or VOTES, args.alpha or ALPHA
    found = classifier.vote(x, n=n, alpha=alpha, early=args.early, generator=generator, batch=args.batch)
    return {"label": found.label, "counts": list(found.counts)}


def _online(args: argparse.Namespace, classifier: Classifier) -> tuple[Method, Threat] | None:
    from warpcert import methods
    from warpcert.app.cli.case import method_of, threat_of

    if args.method is None and args.calibration is not None:
        args.method = "dist-d-online"
    if args.method is None:
        return None
    method, threat = method_of(args, classifier), threat_of(args, classifier)
    if why := methods.refusal(method, classifier, threat):
        raise ValueError(why)
    return method, threat


def _given(args: argparse.Namespace) -> dict[str, Any]:
    from warpcert import methods
    from warpcert.app.cli.case import settings_of

    return settings_of(args, methods.get(args.method).settings())
