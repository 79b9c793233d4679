"""A training recipe: everything that decides a run, in one flat record that is read from TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, final

from warpcert import transforms
from warpcert.classifier import About, Classifier
from warpcert.classifier.before.front import BEFORE_LEVELS, Front
from warpcert.classifier.before.mosaic import Mosaic
from warpcert.classifier.before.rounding import check_step
from warpcert.classifier.before.sees import Sees, told
from warpcert.classifier.before.stem import Stem
from warpcert.classifier.defence import Defence
from warpcert.classifier.storage import configured
from warpcert.networks.config import LITES, ModelConfig
from warpcert.networks.weights import Network
from warpcert.threat import Threat
from warpcert.transforms import Box, Preprocess, kernels

__all__ = ["Recipe"]


@final
@dataclass(frozen=True)
class Recipe:
    """How one model is trained for one defence. Parameters and their noise are in surface units.

    The model sees P T_b x + δ with b = β + γ: γ uniform in `gamma`, as an attacker may choose it, and β the defender's
    noise times `spread`. A share `attacked` of each batch takes the path of deployment, T_β(q(T_γ x)).
    levels > 0 is for networks deployed behind `Levels`: P T_b x is rounded as there, and δ is added afterwards.

    draws > 1 shows every picture under several δ at once; `consistency` weighs how far their predictions lie apart.
    adv_steps > 0 first moves the picture by up to adv_eps (ℓ2) to where the mean over the draws fails (SmoothAdv);
    adv_eps grows from 0 over the first `adv_warmup` of the run. luma > 0 puts the network behind a stem (`Stem`),
    `levels` apart in brightness. A lipschitz model needs neither noise nor attacks: its robustness comes from `offset`
    (about √2·E for the E it shall bear) and a small `temperature`.
    """

    name: str
    dataset: str
    # model
    family: str = "resnet"  # or convnet, lipschitz, efficientnet-lite0 … 2
    width: int = 32
    blocks: tuple[int, ...] = (1, 1, 1)
    stem_kernel: int = 5
    stem_stride: int = 2
    head: str = "average"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    front: str = "none"  # mfcc: the network hears; standard: it does not see brightness
    mirror: bool = False  # deployed, it looks at the mirror image too
    groups: tuple[int, ...] = ()  # efficientnet-lite: how many logits each class stands for
    start: str = "random"  # or the family's name: its ImageNet weights; or a classifier's file
    # what it sees of photographs
    luma: int = 0  # side of the squares over which a stem takes means of brightness (0: no stem)
    chroma: int = 4
    chroma_step: int = 16
    mosaic: str = "none"  # bayer or all: it sees these colours of the pixels inside a circle (`Mosaic`)
    side: int = 0  # of the squares that are cut out of larger pictures (0: pictures are taken whole)
    crop: float = 0.35  # the smallest share of a picture that such a square covers
    # defence
    transform: str = "rotation"
    sigma: tuple[float, ...] = (30.0,)
    noise: float = 0.15
    interpolation: str = "bicubic"
    reference: str = "none"  # the kernel with which certification turns originals, where it is another
    vignette: str = "none"
    margin: float = 0.0
    blur_sigma: float = 0.0
    blur_size: int = 1
    limit: float = 0.0  # of the limiter that sounds pass (0: none)
    # deployment, where it differs from what training sees
    step: int = 0  # of the levels that it is deployed behind (0: `levels`)
    turned_by: str = "none"  # the kernel that it is deployed with (none: `interpolation`)
    precision: str = "float32"  # or half
    before: str = "none"  # the front that stands before its levels or its noise, in training too (see `Front`)
    halved: bool = False  # it transforms pictures of twice the side, and sees them at half of it (see `Preprocess`)
    withstands: tuple[float, ...] = ()  # Γ of its threat (none: `gamma`)
    pixels: str = "none"  # what its attacker hands over: rounded or unrounded (none: as in training)
    method: str = "none"  # its own way to be certified (none: the usual one of its kind)
    settings: dict[str, Any] = field(default_factory=dict)  # of that method
    # augmentation
    gamma: tuple[float, ...] = (0.0,)
    spread: float = 1.0
    attacked: float = 0.5
    attacker: str = "bilinear"
    rounded: bool = True  # the attacker hands over 8-bit values
    worst: int = 1  # so many γ are drawn for every picture, and the one with the largest loss is trained on
    flip: bool = False  # mirror left and right
    shift: int = 0  # whole pixels, up to this many along each side; of a sound, samples of time
    cutout: int = 0  # pixels: a square of this side is blanked; of half the sounds, as much time, and a band
    levels: int = 0  # the step between the levels that the network sees in training (0: all of them)
    # optimisation
    epochs: float = 20.0
    steps: int = 0  # in place of epochs, where positive
    batch: int = 512
    optimizer: str = "sgd"  # with Nesterov's momentum; or adamw
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    warmup: float = 0.15  # share of the run until lr is reached; then half a cosine to 0
    ema: float = 0.999
    label_smoothing: float = 0.0
    distil: float = 0.0  # so much of the loss compares with a teacher, who sees the picture as it was
    teacher: str = "none"  # a family's name, or a classifier's file
    mix: float = 0.0  # so much of each batch is blended with other pictures, which a teacher can judge
    temperature: float = 1.0  # the loss is that of logits / temperature
    offset: float = 0.0  # taken from the right logit first: a margin that is asked for
    # smoothing
    draws: int = 1
    consistency: float = 0.0
    adv_steps: int = 0
    adv_eps: float = 0.0
    adv_warmup: float = 0.3
    # run
    validation: int = 2000  # items held out from the end of the training set
    seed: int = 0
    amp: bool = True  # bfloat16 inside the model, on CUDA only

    def __post_init__(self) -> None:
        kernels.kernel(self.attacker)
        if self.optimizer not in ("sgd", "adamw"):
            raise ValueError(f"optimizer {self.optimizer!r} is not known; choose sgd or adamw")
        for name in ("batch", "draws", "lr", "spread", "temperature", "worst"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)}")
        counts = ("steps", "validation", "shift", "cutout", "adv_steps")
        for name in (*counts, "adv_eps", "consistency", "weight_decay", "offset"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative; got {getattr(self, name)}")
        for name in ("attacked", "warmup", "ema", "label_smoothing", "adv_warmup", "momentum", "distil", "crop", "mix"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in [0, 1]; got {getattr(self, name)}")
        if not (self.steps or self.epochs > 0):
            raise ValueError(f"a run needs epochs > 0 or steps > 0; got {self.epochs} and {self.steps}")
        if self.consistency and self.draws < 2:
            raise ValueError("consistency compares draws: set draws to 2 or more, or consistency to 0")
        if self.pixels not in ("none", "rounded", "unrounded"):
            raise ValueError(f"pixels are rounded, unrounded or, as in training, none; got {self.pixels!r}")
        for step in filter(None, (self.levels, self.step)):
            check_step(step)
        if self.luma and self.mosaic != "none":
            raise ValueError("a network sees means (luma) or a mosaic, not both")
        if self.sees and (self.levels < 2 or not self.defence().preprocess.is_identity):
            raise ValueError("a stem or a mosaic is of the picture itself: say levels = 32, and no vignette")
        if Front(self.before).name != "none" and (self.before in BEFORE_LEVELS) != bool(self.step or self.levels):
            raise ValueError(f"the front {self.before!r} does not stand before {'levels' if self.levels else 'noise'}")
        if (self.start != "random" or self.distil) and self.family not in LITES:
            raise ValueError(f"networks to start from or to learn from are known of {', '.join(LITES)} only")
        if (self.distil and self.teacher == "none") or (self.mix and not self.distil):
            raise ValueError("distillation needs a teacher, and blended pictures need distillation")
        self.defence(), self.box(), self.threat(), self.facts()

    @classmethod
    def read(cls, path: Path | str) -> Recipe:
        """From a TOML file. Tables are headings only: the keys below them are the fields of a recipe."""
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not TOML: {error}") from None
        except OSError as error:
            raise ValueError(f"the recipe {path} cannot be read: {error.strerror}") from None
        flat: dict[str, Any] = {"name": Path(path).resolve().parent.name}
        for key, value in content.items():
            heading = isinstance(value, dict) and key != "settings"
            for name, given in value.items() if heading else [(key, value)]:
                if name in flat and name != "name":
                    raise ValueError(f"{path} gives {name} twice")
                flat[name] = given
        return cls.from_dict(flat)

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Recipe:
        kinds = {f.name: str(f.type) for f in fields(cls)}
        unknown = sorted(set(d) - set(kinds))
        if unknown:
            raise ValueError(f"a recipe has no {', '.join(unknown)}; it has {', '.join(kinds)}")
        missing = [k for k in ("name", "dataset") if k not in d]
        if missing:
            raise ValueError(f"a recipe needs {' and '.join(missing)}")
        return cls(**{k: _as(kinds[k], k, v) for k, v in d.items()})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def override(self, settings: Iterable[str]) -> Recipe:
        """With some fields set by "key=value", the value as in TOML (quotes may be left off)."""
        changes: dict[str, Any] = {}
        for setting in settings:
            key, equals, text = setting.partition("=")
            if not equals:
                raise ValueError(f"a setting is key=value; got {setting!r}")
            try:
                changes[key] = tomllib.loads(f"value = {text}")["value"]
            except tomllib.TOMLDecodeError:
                changes[key] = text
        return self.from_dict(self.to_dict() | changes)

    def defence(self) -> Defence:
        """What the model is trained for."""
        p = Preprocess(self.vignette, self.margin, self.blur_sigma, self.blur_size, limit=self.limit or None)
        return Defence.surface(
            self.transform,
            *self.sigma,
            noise=self.noise,
            interpolation=self.interpolation,
            preprocess=p,
            reference=None if self.reference == "none" else self.reference,
        )

    def threat(self) -> Threat:
        """What the model shall withstand when it is deployed."""
        transform = transforms.get(self.transform)
        rounded = self.rounded if self.pixels == "none" else self.pixels == "rounded"
        return Threat(transform, transform.box(*(self.withstands or self.gamma)), self.attacker, rounded)

    def facts(self) -> dict[str, Any]:
        """How the network is deployed: behind levels, smoothed, or plain."""
        common: dict[str, Any] = {"precision": self.precision}
        common |= {} if self.before == "none" else {"front": self.before}
        if step := self.step or self.levels:
            sees = {"sees": told(self.sees)} if self.sees else {}
            return {"kind": "levels", "step": step, **sees, **common}
        common["preprocess"] = self.defence().preprocess.to_dict() | ({"halved": True} if self.halved else {})
        if not any(self.sigma) and (not self.noise or self.family == "lipschitz"):
            return {"kind": "plain", "lipschitz": None, **common}
        over = {self.transform: list(self.sigma)} if any(self.sigma) else {}
        turned = self.interpolation if self.turned_by == "none" else self.turned_by
        return {"kind": "smoothed", "noise": self.noise, "over": over, "interpolation": turned, **common}

    @property
    def sees(self) -> Sees | None:
        """What the levels are of, if not of every pixel."""
        if self.mosaic != "none":
            return Mosaic(self.mosaic)
        return Stem(self.luma, self.chroma, self.chroma_step) if self.luma else None

    def about(self, classes: tuple[str, ...], **notes: Any) -> About:
        """What it is called and made for."""
        method = "" if self.method == "none" else self.method
        kept = {"recipe": self.name, "dataset": self.dataset, **notes}
        threat = self.threat() if any(self.gamma) else None
        return About(self.name, classes, threat, method, self.settings, kept)

    def classifier(self, network: Network, classes: tuple[str, ...], **notes: Any) -> Classifier:
        """The network as it is deployed."""
        return configured(network, self.facts(), self.about(classes, **notes))

    def box(self) -> Box:
        """Where γ is drawn, in internal units."""
        return transforms.get(self.transform).box(*self.gamma)

    def config(self, shape: tuple[int, ...], classes: int) -> ModelConfig:
        own = {f.name: getattr(self, f.name) for f in fields(ModelConfig) if f.name not in ("shape", "classes")}
        return ModelConfig(shape, classes, **own)


def _as(kind: str, key: str, value: Any) -> Any:
    """`value` as the type that the field `key` declares, or an error."""
    if kind.startswith("dict"):
        if not isinstance(value, dict):
            raise ValueError(f"{key} must be a table; got {value!r}")
        return dict(value)
    if kind.startswith("tuple"):
        inner = kind.removeprefix("tuple[").split(",")[0]
        return tuple(_as(inner, key, v) for v in (value if isinstance(value, list | tuple) else [value]))
    wanted = {"int": int, "float": (int, float), "bool": bool, "str": str}[kind]
    if not isinstance(value, wanted) or (kind != "bool" and isinstance(value, bool)):  # type: ignore[arg-type]
        raise ValueError(f"{key} must be of type {kind}; got {value!r}")
    return float(value) if kind == "float" else value
