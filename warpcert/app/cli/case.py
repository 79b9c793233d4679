"""What the words mean: arguments in surface units become a dataset, a classifier, a threat and a method."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from warpcert import methods, transforms
from warpcert.app.cli.options import SETTINGS
from warpcert.classifier import Classifier
from warpcert.errors.calibration import Calibration
from warpcert.learn import data
from warpcert.learn.foreign import Opened, absolute, open_model
from warpcert.learn.photos.archive import CUT
from warpcert.learn.photos.restricted import restricted
from warpcert.methods import Method
from warpcert.runs.job import Named, device_of
from warpcert.threat import Threat

__all__ = [
    "Case",
    "classifier_of",
    "in_groups",
    "method_of",
    "open_case",
    "parts_of",
    "pictures_of",
    "settings_of",
    "threat_of",
]


@final
@dataclass(frozen=True)
class Case:
    """What is examined: pictures of a dataset, a classifier, and the threat against it."""

    dataset: data.Dataset
    indices: range
    source: Named
    classifier: Classifier
    threat: Threat
    device: torch.device

    def image(self, index: int) -> Tensor:
        return self.dataset.image(index).to(self.device)

    @property
    def labels(self) -> list[int]:
        return [int(v) for v in self.dataset.labels]

    def class_name(self, label: int) -> str:
        """What data or classifier call a class."""
        for names in (self.dataset.classes, self.classifier.classes):
            if label < len(names):
                return names[label]
        return f"class {label}"


def open_case(args: argparse.Namespace) -> Case:
    """Loads and checks everything that the arguments name; a ValueError says what does not fit."""
    device = device_of(args.device)
    dataset, _ = pictures_of(args)
    classifier, classes = classifier_of(args, dataset.shape, device)
    if classifier.preprocess.halved and dataset.shape[1:] == (CUT, CUT):
        dataset, _ = pictures_of(args, 2 * CUT)
    dataset = in_groups(dataset, classifier)
    indices = _meant(args, dataset)
    if classes < len(dataset.classes):
        raise ValueError(f"the model knows {classes} classes, but {args.data} has {len(dataset.classes)}")
    source = Named(absolute(args.model), dataset.shape, classifier.facts, classifier.fingerprint)
    return Case(dataset, indices, source, classifier, threat_of(args, classifier), device)


def pictures_of(args: argparse.Namespace, side: int = CUT) -> tuple[data.Dataset, range]:
    """The dataset, photographs cut out at this side, and which of its pictures are meant."""
    dataset = data.load(args.data, args.split, args.data_root, side)
    dataset = dataset.shuffled() if args.shuffled else dataset
    return dataset, _meant(args, dataset)


def in_groups(dataset: data.Dataset, classifier: Classifier) -> data.Dataset:
    """The dataset; of ImageNet, if the classifier knows groups of its classes, the pictures that belong to these."""
    groups = getattr(getattr(classifier.network, "config", None), "groups", ())
    return restricted(dataset) if groups and len(groups) < len(dataset.classes) else dataset


def _meant(args: argparse.Namespace, dataset: data.Dataset) -> range:
    indices = range(args.start, args.start + args.count)
    if indices.stop > len(dataset):
        raise ValueError(
            f"{args.data} has {len(dataset)} pictures: {args.count} from number {args.start} are not there; "
            "choose a smaller --count or --start"
        )
    return indices


def classifier_of(
    args: argparse.Namespace, shape: tuple[int, ...] | None, device: torch.device
) -> tuple[Classifier, int]:
    """The classifier that the arguments describe, and how many classes it knows."""
    opened = open_model(args.model, shape, device)
    return opened.classifier(_changed(args, opened)), opened.classes


def _changed(args: argparse.Namespace, opened: Opened) -> dict[str, Any]:
    """The facts of the classifier, with what the arguments override."""
    facts = dict(opened.facts)
    precision = "half" if args.half else facts["precision"]
    slack = {} if args.half and facts["precision"] != "half" else {"slack": facts["slack"]}
    step = args.levels if args.levels is not None else facts.get("step", 1)
    others = (args.noise, args.sigma, args.nested, args.interpolation, args.vignette, args.margin, args.blur)
    if step > 1 and (args.levels is not None or (args.front is not None and all(v is None for v in others))):
        _refuse_beside_levels(args)
        front = facts.get("front", "none") if args.front is None else args.front
        kept = {"sees": facts["sees"]} if "sees" in facts else {}
        kept |= {"front": front} if front != "none" else {}
        return {"kind": "levels", "step": step, **kept, "precision": precision, **slack}
    before = [args.interpolation, args.vignette, args.margin, args.blur, args.front]
    smoothing = [args.noise, args.sigma, args.nested, *before]
    if all(v is None for v in smoothing) and args.levels is None:
        return facts | {"precision": precision} | ({} if slack else {"slack": None})
    common = {"precision": precision, **slack, "preprocess": _preprocess(args, facts).to_dict()}
    common["lipschitz"] = facts.get("lipschitz")
    noise, over = facts.get("noise", 0.0) if args.noise is None else args.noise, dict(facts.get("over") or {})
    if args.sigma is not None:
        parts = [name for name in parts_of(args) or {} if name != "l2"]
        named = args.transform or (parts[0] if len(parts) == 1 else None)
        name = named or next(iter(over), None) or (opened.about.threat or _no_transform()).transform.name
        over = {name: args.sigma} if any(args.sigma) else {}
    if not noise and not over:
        if args.front not in (None, "none"):
            raise ValueError("a front stands before noise or levels: add --noise or --levels, or leave --front out")
        return {"kind": "plain", **common}
    turned = args.interpolation or facts.get("interpolation", "bicubic")
    nested = facts.get("nested", False) if args.nested is None else args.nested
    front = args.front or facts.get("front", "none")
    common |= {} if front == "none" else {"front": front}
    return {"kind": "smoothed", "noise": noise, "over": over, "interpolation": turned, "nested": nested, **common}


def _refuse_beside_levels(args: argparse.Namespace) -> None:
    """What nothing would come of: levels stand before the network, and but for a front alone."""
    names = ("noise", "sigma", "nested", "interpolation", "vignette", "margin", "blur")
    given = {name: getattr(args, name) for name in names}
    idle = (None, "none", 0.0, [0.0])
    if flags := [f"--{name}" for name, value in given.items() if value not in idle]:
        raise ValueError(f"only levels and a front stand before a network behind levels: leave {', '.join(flags)} out")


def _no_transform() -> Threat:
    raise ValueError("name the transformation to smooth over with --transform")


def _preprocess(args: argparse.Namespace, facts: dict[str, Any]) -> transforms.Preprocess:
    old = transforms.Preprocess(**facts.get("preprocess", {}))
    changes: dict[str, Any] = {"vignette": args.vignette, "margin": args.margin}
    if args.blur is not None:
        if args.blur[1] != int(args.blur[1]):
            raise ValueError(f"the blur's size must be a whole number of pixels; got {args.blur[1]}")
        changes |= {"blur_sigma": args.blur[0], "blur_size": int(args.blur[1])}
    return replace(old, **{k: v for k, v in changes.items() if v is not None})


def threat_of(args: argparse.Namespace, classifier: Classifier) -> Threat:
    """The classifier's own threat, or that of the calibration that was given, with what the arguments override."""
    calibration, parts = getattr(args, "calibration", None), parts_of(args)
    own = Calibration.read(Path(calibration)).threat if calibration else classifier.threat
    arithmetic: dict[str, Any] = {
        "interpolation": args.attacker or (own.interpolation if own else "bilinear"),
        "quantized": (own.quantized if own else True) if args.unrounded is None else not args.unrounded,
        "tolerance": args.tolerance if args.tolerance is not None else own.tolerance if own else None,
    }
    if parts is not None:
        return Threat.made_of(parts, **arithmetic)
    name = args.transform or (own.transform.name if own else None)
    if name is None:
        raise ValueError("name what the classifier should survive: --threat rotation=30, for instance")
    transform = transforms.get(name)
    l2 = own.l2 if own is not None and own.transform == transform else 0.0
    if args.gamma is not None:
        box = transform.box(*args.gamma)
    elif own is not None and own.transform == transform:
        box = own.box
    else:
        raise ValueError(f"give the range of {transform.name} with --gamma: this model has none of its own")
    return Threat(transform, box, **arithmetic, l2=l2)


def parts_of(args: argparse.Namespace) -> dict[str, tuple[float, ...]] | None:
    """The parts of --threat by name, in their order; None if it was not given."""
    if args.threat is None:
        return None
    if args.transform is not None or args.gamma is not None:
        raise ValueError("--threat names all parts: leave --transform and --gamma out")
    found: dict[str, tuple[float, ...]] = {}
    for text in args.threat:
        name, sign, given = text.partition("=")
        try:
            numbers = tuple(float(v) for v in given.split(","))
        except ValueError:
            numbers = ()
        if not (name and sign and numbers):
            raise ValueError(f"a part is written NAME=RANGE, for instance rotation=30; got {text!r}")
        if name in found:
            raise ValueError(f"each part may occur once; got {name} twice: give one range for it")
        found[name] = numbers
    return found


def settings_of(args: argparse.Namespace, names: tuple[str, ...]) -> dict[str, Any]:
    """Those of the settings that were given, of the ones that a method has."""
    given = {name: value for name in SETTINGS if (value := getattr(args, name, None)) is not None}
    if "calibration" in given:
        given["calibration"] = Calibration.read(Path(given["calibration"]))
    if unknown := sorted(set(given) - set(names)):
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in unknown)
        raise ValueError(f"the method does not use {flags}; leave it out")
    return given


def method_of(args: argparse.Namespace, classifier: Classifier) -> Method:
    """The method that the arguments choose, by default the classifier's own."""
    name = args.method or classifier.method
    return methods.chosen(classifier, name, **settings_of(args, methods.get(name).settings()))
