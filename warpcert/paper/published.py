"""What the paper publishes: every number of its tables and figures, with its settings, by experiment and row.

The paper is Fischer, Baader, Vechev, Certified Defense to Image Transformations via Randomized Smoothing, revised
version. '#' marks an E that is sampled only. All of its certificates have α = 0.01.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from warpcert.report.table import Cited

__all__ = ["PUBLISHED", "Printed"]

Value = float | int | str
Rows = dict[str, "Printed"]


@final
@dataclass(frozen=True)
class Printed:
    """Numbers by column, where the paper has them, and the settings that it gives."""

    where: str
    settings: Mapping[str, Value]
    numbers: Mapping[str, Value]

    def cited(self, column: str) -> Cited | None:
        return Cited(self.numbers[column], f"paper, {self.where}") if column in self.numbers else None

    @property
    def setting(self) -> str:
        """Where the numbers stand, and with which settings, as a sentence."""
        values = {k: f"{v:g}" if isinstance(v, float) else str(v) for k, v in self.settings.items()}
        told = ", ".join(f"{name} {value}" for name, value in values.items())
        return f"Paper, {self.where}{': ' if told else ''}{told}."


def _columns(names: str, values: Sequence[Value]) -> dict[str, Value]:
    return dict(zip(names.split(" | "), values, strict=True))


def _levels(pattern: str, values: Mapping[int, float]) -> dict[str, Value]:
    return {pattern.format(level): share for level, share in values.items()}


def _angles(*shares: float, also: Mapping[int, float] = {}) -> dict[str, Value]:
    return _levels("±{}°", {**dict(zip((0, 10, 20, 30), shares, strict=False)), **also})


def _heuristic(row: str, *values: float) -> Rows:
    transform = row.rpartition("-")[2]
    sigma = "30°" if transform == "rotation" else "20 px" if row.startswith("imagenet") else "4 px"
    names = "accuracy of b | b, attacked | g, original | t, s"
    numbers = {"images": 1000, "attacks on each": 3} | _columns(names, values)
    settings: dict[str, Value] = {"σ_γ = Γ": f"±{sigma}", "worst of": 100, "n_γ": 1000}
    return {row: Printed("BaseSPT, main table and appendix", settings, numbers)}


HEURISTIC = (
    _heuristic("mnist-rotation", 0.99, 0.73, 0.99, 0.97)
    | _heuristic("fashion-mnist-rotation", 0.91, 0.13, 0.87, 7.98)
    | _heuristic("cifar10-rotation", 0.91, 0.26, 0.85, 0.95)
    | _heuristic("gtsrb-rotation", 0.91, 0.30, 0.88, 8.00)
    | _heuristic("imagenet-rotation", 0.76, 0.56, 0.76, 5.43)
    | _heuristic("mnist-translation", 0.99, 0.03, 0.53, 0.86)
    | _heuristic("fashion-mnist-translation", 0.91, 0.10, 0.50, 6.12)
    | _heuristic("cifar10-translation", 0.91, 0.44, 0.79, 0.95)
    | _heuristic("gtsrb-translation", 0.91, 0.30, 0.63, 5.17)
    | _heuristic("imagenet-translation", 0.76, 0.65, 0.75, 6.70)
)


def _radius(row: str, median: float, violated: int) -> Rows:
    sigma = "10°" if row == "imagenet-rotation" else "30°" if "-rotation" in row else "4 px"
    settings: dict[str, Value] = {
        "Γ": f"±{'20 px' if row == 'imagenet-translation' else sigma}",
        "γ inside r": "30 in the caption, 100 in the text",
        "n_γ": 2000,
    }
    numbers = {"images": 30, "median r": median, "images violated": violated}
    return {row: Printed("BaseSPT's radius, appendix", settings, numbers)}


VIOLATIONS = (
    _radius("mnist-rotation", 28.34, 0)
    | _radius("fashion-mnist-rotation", 13.45, 1)
    | _radius("cifar10-rotation", 19.16, 14)
    | _radius("gtsrb-rotation", 20.93, 0)
    | _radius("imagenet-rotation", 27.13, 1)
    | _radius("mnist-rotation-vignette", 28.34, 0)
    | _radius("fashion-mnist-rotation-vignette", 17.07, 0)
    | _radius("cifar10-rotation-vignette", 11.49, 10)
    | _radius("gtsrb-rotation-vignette", 25.28, 0)
    | _radius("mnist-rotation-composed", 28.34, 0)
    | _radius("fashion-mnist-rotation-composed", 17.07, 0)
    | _radius("cifar10-rotation-composed", 11.49, 0)
    | _radius("gtsrb-rotation-composed", 25.28, 0)
    | _radius("mnist-translation", 1.12, 0)
    | _radius("fashion-mnist-translation", 1.78, 1)
    | _radius("cifar10-translation", 4.76, 14)
    | _radius("gtsrb-translation", 2.58, 0)
    | _radius("imagenet-translation", 16.43, 0)
)


def _share(
    row: str, first: Sequence[Value], accuracies: dict[str, Value], last: Sequence[Value], noise: Sequence[Value]
) -> Rows:
    """first: E, q_E, accuracy of b; last: percentiles, seconds; noise: Γ, σ_δ, n_γ, n_δ, n₀."""
    settings: dict[str, Value] = {"σ_γ": "30°", "ρ": 0.001, "images × β for q_E": "1000 × 8000"}
    numbers = _columns("E | q_E | accuracy of b", first) | accuracies
    numbers |= _columns("r: 25, 50, 75 % | seconds per image", last)
    told = {name: value for name, value in _columns("Γ | σ_δ | n_γ | n_δ | n₀", noise).items() if value != ""}
    return {row: Printed("DistSPT^D, rotation", told | settings, numbers)}


_DIGITS = ((0.45, 0.99, 0.98), ("52.95, 57.22, 57.22", 21.56), ("±90°", 0.25, 200, 10_000, 10_000))
_PHOTOS = ("±30°", 0.50, 50, 2500, 200)
_PHOTOS_55 = ("±30°", 0.55, 50, 2500, 200)
DISTRIBUTION_D = (
    _share("mnist-rotation", _DIGITS[0], _angles(0.89, 0.88, 0.87, 0.85), *_DIGITS[1:])
    | _share("mnist-rotation-50", _DIGITS[0], _angles(0.89, 0.88, 0.87, 0.85, also={50: 0.75}), *_DIGITS[1:])
    | _share("cifar10-rotation", (0.55, 0.99, 0.56), _angles(0.31, 0.28, 0.25, 0.19),
             ("24.80, 30, 30", 89.75), ("±30°", 0.30, 50, 15_000, 10_000))
    | _share("cifar10-rotation-200", (0.55, 0.99, 0.56), _angles(0.32, 0.30, 0.28, 0.25),
             ("30, 30, 30", 351.47), ("±30°", 0.30, 200, 15_000, 10_000))
    | _share("rimagenet-rotation", ("1.2 #", 0.97, 0.78), _angles(0.74, 0.72, 0.68, 0.61),
             ("30, 30, 30", 100.73), _PHOTOS)
    | _share("rimagenet-rotation-135", ("1.35 #", 0.99, 0.78), _angles(0.64, 0.62, 0.56, 0.50),
             ("30, 30, 30", 100.13), _PHOTOS_55)
    | _share("imagenet-rotation", ("0.95 #", 0.75, 0.38), _angles(0.30, 0.24, 0.18, 0.12),
             ("14.51, 24.34, 30", 100.21), _PHOTOS)
    | _share("imagenet-rotation-120", ("1.2 #", 0.97, 0.38), _angles(0.23, 0.19, 0.13, 0.09),
             ("12.38, 21.47, 30", 100.73), _PHOTOS)
    | _share("imagenet-rotation-135", ("1.35 #", 0.99, 0.38), _angles(0.16, 0.12, 0.08, 0.06),
             ("10.46, 21.47, 30", 100.44), _PHOTOS_55)
    | {"mnist-translation": Printed(
        "DistSPT^D, translation",
        {"Γ": "±2 px", "σ_γ": "1.5 px", "σ_δ": 0.25, "n_γ": 200},
        {"E": 0.65, "q_E": 0.99, "r > 0 px": 0.64, "r > √2 px": 0.49},
    )}
)  # fmt: skip


def _each(row: str, noise: Sequence[Value], accuracies: dict[str, Value], last: Sequence[Value]) -> Rows:
    """noise: Γ, σ_γ, σ_δ, n_γ; last: E, seconds of analysis and of smoothing."""
    settings = {name: value for name, value in _columns("Γ | σ_γ | σ_δ | n_γ", noise).items() if value != ""}
    numbers = accuracies | _columns("E | analysis, s | smoothing, s", last)
    settings |= {"analysis": "on 128 threads, alone 766 s"} if row.startswith("imagenet") else {}
    kind = "translation" if "translation" in row else "rotation"
    return {row: Printed(f"DistSPT^x, {kind}", settings, numbers)}


DISTRIBUTION_X = (
    _each("mnist-rotation", ("±50°", "30°", 0.15, 200), _angles(0.93, 0.92, 0.91, 0.90, also={50: 0.82}),
          (0.34, 53.33, 20.56))
    | _each("cifar10-rotation-30", ("±30°", "40°", 0.20, 50), _angles(0.35, 0.30, 0.27, 0.22), (0.34, 81.83, 91.72))
    | _each("cifar10-rotation-10", ("±10°", "10°", 0.18, 50), _angles(0.43, 0.37), (0.34, 51.12, 92.83))
    | _each("imagenet-rotation", ("±30°", "30°", 0.50, 50), _angles(0.31, 0.25, 0.17, 0.11), ("0.86 #", 73.58, 100.47))
    | _each("imagenet-rotation-40", ("±30°", "30°", 0.40, 200), _angles(0.32, 0.29, 0.22, 0.16),
            ("0.86 #", 73.58, 396.50))
    | _each("mnist-translation", ("±2 px", "2.5 px", "0.25 (printed as σ_γ)", ""),
            _columns("r > 0 px | r > 1 px | r > √2 px | r > 2 px", (0.89, 0.86, 0.85, 0.82)), (0.56, 62.22, 19.33))
)  # fmt: skip

_TURNED = Printed(
    "IndivSPT",
    {"Γ": "±10°", "σ_γ": "30°", "σ_δ": 0.3, "worst of": 100, "β": 500, "refinements": 10},
    {"attacked images": "3 × 1000", "E": 0.45, "g correct": 0.82, "certified and correct": 0.81, "analysis, s": 0.26,
     "smoothing, s": 25.03},
)  # fmt: skip
_SHIFTED = Printed(
    "IndivSPT",
    {"Γ": "±1 px", "σ_γ": "1.5 px", "σ_δ": 0.3, "worst of": 100, "β": 500, "refinements": 10},
    {"attacked images": "3 × 100", "E": 0.45, "g correct": 0.75, "certified and correct": 0.59, "analysis, s": 14.14,
     "smoothing, s": 19.89},
)  # fmt: skip
INDIVIDUAL = {
    "mnist-rotation": _TURNED,
    "mnist-rotation-lagrangian": _TURNED,
    "mnist-translation": _SHIFTED,
    "mnist-translation-lagrangian": _SHIFTED,
    "mnist-rotation-online": Printed(
        "DistSPT^D online", {"Γ": "±30°"}, {"attacked images": 100, "certified and correct": 0.91}
    ),
}


def _error(row: str, E: Value, q: float, where: str = "bicubic interpolation") -> Rows:
    return {row: Printed(where, {}, {"E": E, "q_E": q})}


BICUBIC = (
    _error("mnist-bilinear", 0.45, 0.99, "DistSPT^D, rotation")
    | _error("mnist-bicubic", 0.5, 0.99)
    | _error("cifar10-bilinear", 0.55, 0.99, "DistSPT^D, rotation")
    | _error("cifar10-bicubic", 1.10, 0.99)
    | _error("cifar10-bicubic-55", 0.55, 0.27)
    | _error("imagenet-bilinear", "1.35 #", 0.99, "DistSPT^D, rotation")
    | _error("imagenet-bilinear-95", "0.95 #", 0.75, "DistSPT^D, rotation")
    | _error("imagenet-bilinear-120", "1.2 #", 0.97, "DistSPT^D, rotation")
    | _error("imagenet-bicubic", 2.50, 0.99)
    | _error("imagenet-bicubic-120", 1.20, 0.28)
    | {"mnist-online-bicubic": Printed(
        "bicubic interpolation", {"Γ": "±30°"}, {"attacked images": 100, "certified and correct": 0.90})}
)  # fmt: skip

_LOUDER = _levels("±{} dB", {1: 0.92, 2: 0.89, 3: 0.83, 4: 0.69})
_WORDS: dict[str, Value] = {
    "words": 30, "σ_γ": "3 dB", "Γ": "±3 dB (although r = 4 is given)", "n_γ": 150, "n_ε": 400,
}  # fmt: skip
AUDIO = {
    "accuracy": Printed("audio, appendix", {"words": 30}, {"sounds": 100, "accuracy of g": 0.93}),
    "dist-x": Printed("audio, appendix", _WORDS, {"sounds": 100} | _LOUDER | {"seconds per sound": 26.80}),
    "dist-d": Printed(
        "audio, appendix", _WORDS,
        {"sounds": 100, "E": 0.005, "ρ": 0.05, "q_E": 0.75} | _LOUDER | {"seconds per sound": 26.80},
    ),
    "indiv-error": Printed(
        "audio, appendix", {"σ_γ": 0.85, "Γ": "±1.05"}, {"sounds": 100, "E ≤ 0.0055": 0.92, "E ≤ 0.005": 0.68}
    ),
}  # fmt: skip


def _largest(data: str, *errors: float) -> Rows:
    kinds = zip(("both", "blur", "vignette", "none"), errors, strict=True)
    return {f"{data}-{kind}": Printed("ablation, appendix", {}, {"largest error": e}) for kind, e in kinds}


ABLATION = (
    _largest("mnist", 0.36, 0.36, 2.47, 2.51)
    | _largest("cifar10", 0.51, 6.08, 2.66, 18.17)
    | _largest("imagenet", 0.91, 70.66, 9.25, 75.69)
    | {"indiv-with-blur": Printed("IndivSPT", {"Γ": "±10°"}, {"certified and correct": 0.81})}
    | {"indiv-without-blur": Printed("IndivSPT", {"Γ": "±10°"}, {"certified and correct": 0.11})}
)


def _base(row: str, *shares: float) -> Rows:
    numbers = _columns("plain | + blur (G) | + vignette (V) | + both", shares)
    return {row: Printed("base accuracies, appendix", {}, numbers)}


ACCURACY = (
    _base("mnist-rotation", 0.98, 0.98, 0.98, 0.98)
    | _base("mnist-translation", 0.94, 0.92, 0.94, 0.93)
    | _base("cifar10-d", 0.34, 0.36, 0.56, 0.56)
    | _base("cifar10-x", 0.75, 0.76, 0.70, 0.70)
    | _base("rimagenet", 0.77, 0.77, 0.78, 0.77)
    | _base("imagenet", 0.38, 0.32, 0.38, 0.32)
)


def _deepg(row: str, *shares: float) -> Rows:
    numbers = {"images": 100} | _columns("correct | verified | verified, vignette", shares)
    return {row: Printed("comparison with DeepG", {}, numbers)}


def _quoted(row: str, whose: str, settings: dict[str, Value], numbers: dict[str, Value]) -> Rows:
    return {row: Printed(f"related work, {whose}", settings, numbers)}


VERIFIED = (
    _deepg("mnist", 0.98, 0.86, 0.87)
    | _deepg("cifar10", 0.74, 0.65, 0.32)
    | _deepg("cifar10-vignette", 0.78, 0.63, 0.23)
    | _quoted("mnist-quoted", "DeepG", {"Γ": "±30°"},
              {"verified": 0.8701, "verified, refined": 0.97, "seconds per image": 35})
    | _quoted("mnist-translation", "DeepG", {"Γ": "±2 px"}, {"verified": 0.7630, "seconds per image": 263})
    | _quoted("cifar10-quoted", "DeepG", {"Γ": "±10°"}, {"verified": 0.6251})
    | _quoted("imagenet-quoted", "Pei et al.", {"Γ": "±2°", "interpolation": "nearest neighbour"},
              {"seconds per image": 714})
)  # fmt: skip
REFINEMENT = {"imagenet-10": Printed("IndivSPT", {"manageable E": "≤ 2"}, {"E": "≈ 40"})}

_TABLES: dict[str, Rows] = {
    "heuristic": HEURISTIC,
    "violations": VIOLATIONS,
    "distribution-d": DISTRIBUTION_D,
    "distribution-x": DISTRIBUTION_X,
    "individual": INDIVIDUAL,
    "bicubic": BICUBIC,
    "audio": AUDIO,
    "ablation": ABLATION,
    "accuracy": ACCURACY,
    "verified": VERIFIED,
    "refinement": REFINEMENT,
}
PUBLISHED: dict[tuple[str, str], Printed] = {  # by experiment and row
    (name, row): printed for name, rows in _TABLES.items() for row, printed in rows.items()
}
