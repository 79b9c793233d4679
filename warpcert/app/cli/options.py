"""The words that several commands share. Nothing here loads torch; a test compares the choices with the registries."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "ATTACKS",
    "CHANGES",
    "DATA_VARIABLE",
    "EMBEDDED",
    "METHODS",
    "SETTINGS",
    "add_classifier",
    "add_data",
    "add_device",
    "add_parts",
    "add_settings",
    "add_threat",
    "natural",
    "positive",
]

EMBEDDED = "mnist-rotation-exact"
DATA_VARIABLE = "WARPCERT_DATA"
DATASETS = ("mnist500", "mnist", "fashion-mnist", "cifar10")
TRANSFORMS = (
    "rotation", "translation", "scaling", "shear", "brightness", "contrast", "power", "volume", "shifts",
    "reflected-shifts", "blur",
)  # fmt: skip
FRONTS = ("none", "centred", "standard", "grounded", "stretched")
METHODS = ("exact", "cover", "dist-x", "dist-d", "dist-d-online", "indiv", "base")
ATTACKS = ("worst-of-k", "grid", "gradient")
BOUNDS = ("curve", "interval", "sampled")
EXPERIMENTS = (
    "heuristic", "violations", "distribution-d", "distribution-x", "individual", "bicubic", "audio", "ablation",
    "accuracy", "refinement", "inverse", "verified", "efficiency",
)  # fmt: skip
CHANGES = ("levels", "noise", "sigma", "nested", "interpolation", "vignette", "margin", "blur", "half")  # of a model
INVERSES = ("lagrangian", "functional", "interval")


def positive(text: str) -> int:
    """A whole number ≥ 1."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """A whole number ≥ 0."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}; got {text!r}")
    return value


# The settings of methods: every name is a field of one of them, and what is not given is the classifier's own.
SETTINGS: dict[str, dict[str, Any]] = {
    "n": {"type": positive, "help": "samples per picture (cover: at most, per window)"},
    "n0": {"type": positive, "help": "samples that choose the label to certify"},
    "alpha": {"type": float, "help": "allowed failure probability"},
    "windows": {"type": positive, "help": "windows per axis that share n and α"},
    "two_class": {"action": "store_true", "help": "bound the runner-up class too"},
    "bound": {"choices": BOUNDS, "help": "dist-x: analysis of the interpolation error (sampled: heuristic)"},
    "time_limit": {"type": float, "help": "seconds per picture; what is proved by then is kept"},
    "betas": {"type": positive, "help": "dist-x, indiv: parameters drawn for the error bound"},
    "rank": {"type": natural, "help": "dist-x, indiv: how many of the errors drawn may exceed E"},
    "guessed": {"action": "store_true", "help": "dist-x: guess E, then test it, as the paper does"},
    "reference": {"help": "dist-x: kernel that transforms the known original, e.g. mitchell"},
    "calibration": {"type": Path, "help": "dist-d: calibration.json, written by `warpcert bound`"},
    "target": {"type": float, "help": "cover: target error per window, in units of the noise"},
    "centres": {"choices": ("rounded", "plain"), "help": "cover: whether pictures at window centres are rounded"},
    "max_windows": {"type": positive, "help": "cover: maximum number of windows"},
    "merged": {"action": "store_true", "help": "indiv: only parameters within E vote, so that ρ is not needed"},
    "inverse": {"choices": INVERSES, "help": "indiv: how the possible originals are bounded"},
    "refinements": {"type": natural, "help": "indiv: rounds of refinement of those bounds"},
    "eight_bit": {"action": "store_true", "help": "exact: the attacker starts from the 8-bit picture, not from floats"},
    "batch": {"type": positive, "help": "pictures per forward pass (default: by device)"},
}


def add_device(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--device", default="cpu", help="torch device, e.g. cpu or cuda (default: %(default)s)")


def add_data(parser: argparse.ArgumentParser, *, split: str = "test", count: int = 20) -> None:
    g = parser.add_argument_group("data")
    g.add_argument("--data", default="mnist500", help=f"{', '.join(DATASETS)}, an .npz file or an image folder")
    g.add_argument("--data-root", type=Path, help=f"folder with the datasets (default: ${DATA_VARIABLE})")
    g.add_argument("--split", default=split, choices=("train", "test"), help="default: %(default)s")
    g.add_argument("--count", type=positive, default=count, help="how many pictures (default: %(default)s)")
    g.add_argument("--start", type=natural, default=0, help="index of the first picture (default: %(default)s)")
    g.add_argument("--shuffled", action="store_true", help="take pictures in a fixed random order")


def add_classifier(parser: argparse.ArgumentParser) -> None:
    """The model, and what makes another classifier of its network."""
    g = parser.add_argument_group("classifier (default: as it is stored with the model)")
    g.add_argument(
        "--model",
        default=EMBEDDED,
        help="a name that `warpcert models` lists, a .safetensors, .onnx, .pt (TorchScript) or .pt2 file, or "
        "package.module:function (default: %(default)s, which comes with the package)",
    )
    g.add_argument("--levels", type=positive, metavar="STEP", help="round pixels to multiples of STEP (of 255) first")
    g.add_argument("--noise", type=float, help="σ of the pixel noise to smooth over (0: none)")
    g.add_argument("--sigma", type=float, nargs="+", help="σ of the parameter to smooth over (0: none)")
    g.add_argument("--nested", action="store_true", default=None, help="two levels of votes (the paper's construction)")
    g.add_argument("--interpolation", help="how the classifier interpolates: bilinear, bicubic, bicubic-0.5")
    g.add_argument("--vignette", choices=("none", "circle", "rectangle"), help="what stays visible")
    g.add_argument("--margin", type=float, help="pixels that the vignette hides at the edge")
    g.add_argument("--blur", type=float, nargs=2, metavar=("SIGMA", "SIZE"), help="Gaussian blur, in pixels")
    g.add_argument(
        "--front",
        choices=FRONTS,
        help="before noise: subtract the mean (centred), and divide by the deviation too (standard); before levels: "
        "subtract the least value (grounded), and divide by the largest that is left too (stretched)",
    )
    g.add_argument("--half", action="store_true", default=None, help="half precision: faster on a GPU")
    add_device(g)


def add_parts(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--threat",
        nargs="+",
        metavar="PART=RANGE",
        help="what the attacker does, in this order: rotation=30 is ±30°, rotation=-10,30 from −10° to 30°; a last "
        "l2=0.05 adds any change of that ℓ2 norm",
    )


def add_threat(parser: argparse.ArgumentParser) -> None:
    g = parser.add_argument_group("threat (default: the model's)")
    add_parts(g)
    g.add_argument("--transform", choices=TRANSFORMS, help="what the attacker does, if it is one thing; with --gamma")
    g.add_argument(
        "--gamma",
        type=float,
        nargs="+",
        help="the range, in degrees, pixels, per cent, dB or (brightness) shares of full scale: 50 is ±50",
    )
    g.add_argument("--attacker", help="the attacker's interpolation: bilinear, bicubic, bicubic-0.5")
    g.add_argument(
        "--unrounded",
        action=argparse.BooleanOptionalAction,
        help="the attacker hands over real numbers, not 8-bit values",
    )
    g.add_argument("--tolerance", type=float, help="exact: how far the attacker's arithmetic may be off, per pixel")


def add_settings(parser: argparse.ArgumentParser, names: Sequence[str] = tuple(SETTINGS)) -> None:
    g = parser.add_argument_group("settings of the method (default: the model's, or the method's own)")
    for name in names:
        given = dict(SETTINGS[name])
        if given.get("action") == "store_true":
            given["default"] = None
        g.add_argument(f"--{name.replace('_', '-')}", **given)
