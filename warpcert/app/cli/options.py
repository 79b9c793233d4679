"""What the command line's words mean: arguments in surface units become datasets, models, defences and threats."""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from warpcert import transforms
from warpcert.classifier.defence import Defence
from warpcert.classifier.voting import Logits
from warpcert.errors.base import SupBound
from warpcert.errors.proved import Boxes, Curve
from warpcert.errors.sampled import Sampled
from warpcert.learn import data
from warpcert.learn.foreign import EMBEDDED, absolute, open_model
from warpcert.methods.run import Sampling
from warpcert.runs.job import device_of
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = [
    "BOUNDS",
    "EMBEDDED",
    "Case",
    "add_bound",
    "add_case",
    "add_device",
    "add_sampling",
    "bound_of",
    "describe",
    "device_of",
    "open_case",
    "sampling_of",
]

BOUNDS = ("curve", "interval", "sampled")


@final
@dataclass(frozen=True)
class Case:
    """What is examined: a dataset, a classifier and its fingerprint, the defence around it, the threat against it."""

    dataset: data.Dataset
    model: str  # its name, wherever it is opened
    classifier: Logits
    fingerprint: str
    defence: Defence
    threat: Threat
    device: torch.device
    indices: range
    shuffled: bool = False

    def image(self, index: int) -> Tensor:
        return self.dataset.image(index).to(self.device)

    @property
    def labels(self) -> list[int]:
        return [int(v) for v in self.dataset.labels]

    def class_name(self, label: int) -> str:
        """What the data calls a class; a model may know more of them."""
        names = self.dataset.classes
        return names[label] if label < len(names) else f"class {label}"


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", help="torch device, e.g. cpu or cuda (default: %(default)s)")


def add_case(parser: argparse.ArgumentParser) -> None:
    """Data, model, defence and threat; the defence's settings default to those stored with the model."""
    g = parser.add_argument_group("data and model")
    g.add_argument("--data", default="mnist500", help=f"{', '.join(data.NAMES)}, an .npz file or an image folder")
    g.add_argument("--data-root", type=Path, help=f"folder with the datasets (default: ${data.ROOT_VARIABLE})")
    g.add_argument("--split", default="test", choices=("train", "test"))
    g.add_argument("--count", type=int, default=20, help="how many images (default: %(default)s)")
    g.add_argument("--start", type=int, default=0, help="index of the first image (default: %(default)s)")
    g.add_argument("--shuffled", action="store_true", help="count images in a random order, always the same")
    g.add_argument(
        "--model",
        default=EMBEDDED,
        help="a name that `warpcert models` lists, a .safetensors, .onnx, .pt (TorchScript) or .pt2 file, or "
        "package.module:function (default: %(default)s, embedded)",
    )
    g.add_argument(
        "--half", action="store_true", help="compute the network in half precision: faster on a GPU, another function"
    )
    g.add_argument(
        "--coarse",
        type=int,
        default=1,
        metavar="STEP",
        help="the network sees levels of so many 8-bit values (a power of two): `exact` is cheaper, and holds for "
        "attackers who do not round",
    )
    add_device(g)  # type: ignore[arg-type]
    g = parser.add_argument_group("attacker")
    g.add_argument("--transform", choices=tuple(transforms.TRANSFORMS), help="default: the model's")
    g.add_argument(
        "--gamma",
        type=float,
        nargs="+",
        help="Γ in °, px, %%, dB or shares of full scale (brightness): 50 is ±50 (default: the model's)",
    )
    g.add_argument("--attacker", default="bilinear", help="the attacker's interpolation (default: %(default)s)")
    g.add_argument("--unrounded", action="store_true", help="the attacker hands over real numbers, not 8-bit values")
    g = parser.add_argument_group("defence (default: as the model was trained)")
    g.add_argument("--sigma", type=float, nargs="+", help="σ of the parameter noise, in the units of Γ")
    g.add_argument("--noise", type=float, help="σ of the pixel noise")
    g.add_argument("--interpolation", help="the defender's interpolation: nearest, bilinear, bicubic, bicubic-0.5")
    g.add_argument(
        "--reference", help="the kernel that dist-x and dist-d turn known originals with: those above, mitchell"
    )
    g.add_argument("--vignette", choices=("none", "circle", "rectangle"))
    g.add_argument("--margin", type=float, help="pixels that the vignette cuts")
    g.add_argument("--blur", type=float, nargs=2, metavar=("SIGMA", "SIZE"), help="Gaussian blur")


def add_bound(parser: argparse.ArgumentParser) -> None:
    """Which analysis of the interpolation error, and how long it may take."""
    parser.add_argument("--bound", choices=tuple(BOUNDS), default="curve", help="error analysis (default: %(default)s)")
    parser.add_argument("--time-limit", type=float, help="seconds of error analysis per image (default: none)")


def bound_of(args: argparse.Namespace) -> SupBound:
    if args.bound == "sampled":
        return Sampled()
    return (Boxes if args.bound == "interval" else Curve)(time_limit=args.time_limit)


def add_sampling(parser: argparse.ArgumentParser, *, n: int, alpha: float) -> None:
    g = parser.add_argument_group("sampling")
    g.add_argument(
        "--n", type=int, default=n, help="samples per image; of a cover, at most per window (default: %(default)s)"
    )
    g.add_argument("--alpha", type=float, default=alpha, help="allowed failure probability (default: %(default)s)")
    g.add_argument("--batch", type=int, help="samples per forward pass (default: by device)")


def sampling_of(args: argparse.Namespace, seed: int | None) -> Sampling:
    return Sampling(
        n=args.n,
        n0=args.n0,
        alpha=args.alpha,
        windows=args.windows,
        two_class=args.two_class,
        seed=seed,
        batch=args.batch,
    )


def open_case(args: argparse.Namespace) -> Case:
    """Loads and checks everything that the arguments name; a ValueError says what does not fit."""
    device = device_of(args.device)
    dataset = data.load(args.data, args.split, args.data_root)
    dataset = dataset.shuffled() if args.shuffled else dataset
    model = open_model(args.model, dataset.shape, device, args.half, args.coarse)
    if model.classes < len(dataset.classes):
        raise ValueError(f"the model knows {model.classes} classes, but {args.data} has {len(dataset.classes)}")
    if args.count < 1 or not 0 <= args.start < len(dataset):
        raise ValueError(f"count must be ≥ 1 and start in 0 … {len(dataset) - 1}; got {args.count} and {args.start}")
    defence = _defence(args, model.extra)
    gamma = args.gamma if args.gamma is not None else model.extra.get("gamma")
    if gamma is None or (
        args.gamma is None and model.extra.get("defence", {}).get("transform") != defence.transform.name
    ):
        raise ValueError(f"say Γ for {defence.transform.name} with --gamma: this model carries none")
    box = defence.transform.box(*gamma)
    threat = Threat(defence.transform, box, args.attacker, not args.unrounded)
    indices = range(args.start, min(args.start + args.count, len(dataset)))
    name = absolute(args.model)
    return Case(dataset, name, model.classifier, model.fingerprint, defence, threat, device, indices, args.shuffled)


def _defence(args: argparse.Namespace, extra: dict[str, Any]) -> Defence:
    """The model's own defence with what the arguments override."""
    stored = Defence.from_dict(extra["defence"]) if "defence" in extra else None
    unsmoothed = args.command == "attack" or getattr(args, "method", "") in ("cover", "exact")  # no parameter noise
    if args.transform and (stored is None or stored.transform.name != args.transform):
        transform = transforms.get(args.transform)
        if not unsmoothed and (args.sigma is None or args.noise is None):
            raise ValueError(f"the model was not trained for {transform.name}: say --sigma and --noise")
    elif stored is None:
        raise ValueError("the model carries no defence: say --transform, --gamma, --sigma and --noise")
    else:
        transform = stored.transform
    old = stored.preprocess if stored else Preprocess()
    blur = args.blur or (old.blur_sigma, old.blur_size)
    if blur[1] != int(blur[1]):
        raise ValueError(f"the blur's size must be a whole number of pixels; got {blur[1]}")
    preprocess = Preprocess(
        args.vignette or old.vignette, old.margin if args.margin is None else args.margin, blur[0], int(blur[1])
    )
    if args.sigma is not None:
        values = args.sigma * transform.dim if len(args.sigma) == 1 else args.sigma
        sigma = tuple(transform.internal(s) for s in values)
    else:
        sigma = stored.sigma_param if stored and stored.transform == transform else (0.0,) * transform.dim
    noise = args.noise if args.noise is not None else stored.sigma_noise if stored else 0.0
    interpolation = args.interpolation or (stored.interpolation if stored else "bicubic")
    reference = args.reference or (stored.reference if stored else None)
    return Defence(transform, sigma, noise, interpolation, preprocess, reference)


def describe(case: Case, sampling: Sampling, **more: Any) -> dict[str, Any]:
    """Everything that decides the outcome of a run, as JSON types: the run folder's configuration."""
    return {
        "data": case.dataset.name,
        "indices": [case.indices.start, case.indices.stop],
        "model": case.fingerprint,
        "defence": case.defence.to_dict(),
        "threat": case.threat.to_dict(),
        "sampling": dataclasses.asdict(sampling),
        "device": case.device.type,
        **({"order": "shuffled"} if case.shuffled else {}),
        **more,
    }
