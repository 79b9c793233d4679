"""One object: what is certified is what is deployed.

A classifier holds everything that decides its answers: the network, coarse levels, preprocessing, noise, precision.
Whatever changes an answer is one of its facts; facts are stored in its weights file and enter its fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, final

import torch
from torch import Tensor, nn

from warpcert import transforms
from warpcert.classifier.before.front import Front
from warpcert.classifier.before.sees import Sees
from warpcert.classifier.defence import Defence
from warpcert.classifier.half import halved, in_half
from warpcert.classifier.inner import Inner
from warpcert.classifier.votes.voting import Logits, logits_of
from warpcert.networks.lipschitz import LipschitzNet
from warpcert.networks.weights import Network, fingerprint
from warpcert.threat import Threat
from warpcert.transforms import Preprocess, Transform

if TYPE_CHECKING:
    from warpcert.certificates import Certificate
    from warpcert.methods import Forecast

__all__ = ["SLACK", "About", "Classifier", "Proved", "Rest", "fingerprint_of", "lipschitz_of", "prepared"]

# Relative to the largest logit: allows for rounding between batch sizes and, of half precision, for a device that
# computes with the same float16 numbers in float32 (see `half`).
SLACK = {"float32": 1e-4, "half": 1e-2}
LEAST_SLACK = {"float32": 2.0**-24, "half": 2.0**-11}  # one rounding of one number


@final
@dataclass(frozen=True)
class About:
    """What a classifier is called and made for. None of it changes an answer.

    threat, method, settings   what `certify` takes when nothing else is said
    notes                      whatever else is kept in its file: dataset, recipe, calibration
    """

    name: str = ""
    classes: tuple[str, ...] = ()
    threat: Threat | None = None
    method: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


class Rest(TypedDict, total=False):
    """What every classifier takes: float32 or half, the slack on logits that goes with it, and what it is made for."""

    precision: str
    slack: float | None
    about: About | None


class Proved(Rest, total=False):
    """And of those that may have one: a proved Lipschitz constant of the logits in ℓ2, as a function of P-images."""

    lipschitz: float | None


class Classifier(nn.Module, ABC):
    """A function of pictures [B,C,H,W] in [0,1]: call it, ask it (`predict`), certify it, save it."""

    kind: ClassVar[str]
    preprocess: Preprocess = Preprocess()
    step: int = 1  # between the levels that the network sees: 1 means all 256
    sees: Sees | None = None  # what the levels are of, if not of every pixel
    noise: float = 0.0
    over: Mapping[str, tuple[float, ...]] = {}  # transformation → σ of its parameters, in surface units
    nested: bool = False  # two levels of votes
    front: str = "none"  # what is done to pictures before P, see `Front`
    lipschitz: float | None = None  # of the logits in ℓ2, as a function of P-images

    def __init__(
        self, network: Logits, *, precision: str = "float32", slack: float | None = None, about: About | None = None
    ) -> None:
        super().__init__()
        if precision not in SLACK:
            raise ValueError(f"precision {precision!r} is not known; choose {' or '.join(SLACK)}")
        if not callable(network):
            raise ValueError(f"a classifier needs a network, batch → logits; got {type(network).__name__}")
        if isinstance(network, Classifier):
            raise ValueError(f"{type(network).__name__} is a classifier already: give the network itself")
        self.precision, self.slack = precision, SLACK[precision] if slack is None else float(slack)
        if not LEAST_SLACK[precision] <= self.slack < math.inf:
            least = f"not below one rounding ({LEAST_SLACK[precision]:.1g} in {precision})"
            raise ValueError(f"the slack on logits must be finite and {least}; got {slack}")
        self.network = halved(network) if precision == "half" else network
        self._identified: tuple[tuple[Any, ...], str] | None = None
        self.about = about or About()
        self.train(any(m.training for m in network.modules()) if isinstance(network, nn.Module) else False)

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Everything that decides its answers, besides the network, as JSON types: `configured` takes it."""

    @abstractmethod
    def defence(self, transform: Transform) -> Defence:
        """P, noise and parameter noise as the bounds take them; a ValueError if it smooths over another one."""

    @abstractmethod
    def predict(self, x: Tensor) -> int | list[int]:
        """The deployed answer about one picture [C,H,W], or a list of them for a batch."""

    def shown(self, z: Tensor) -> Tensor:
        """What the network is shown of pictures [B,...], but for noise."""
        return self.preprocess(Front(self.front)(z))

    @property
    def inner(self) -> Inner | None:
        """Of nested votes, the classifier inside."""
        return None

    def logits(self, views: Tensor) -> Tensor:
        """The network on P-images [B,...], in its precision: finite logits [B,K]."""
        found = logits_of(self.compute, views)
        return found.float() if self.precision == "half" else found

    def compute(self, views: Tensor) -> Tensor:
        """What the network gives, in its precision, as it comes."""
        return in_half(self.network, views) if self.precision == "half" else self.network(views)

    def single(self, x: Tensor) -> bool:
        """Whether x is one item, not a batch; a ValueError if it is neither."""
        if (
            not isinstance(x, Tensor)
            or not x.is_floating_point()
            or x.dim() not in (self.item_dims, self.item_dims + 1)
        ):
            what = f"{list(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
            rank = "[C,H,W]" if self.item_dims == 3 else "[C,L]"
            raise ValueError(f"expected one float tensor {rank} with values in [0, 1], or a batch of them; got {what}")
        return x.dim() == self.item_dims

    @property
    def source(self) -> str:
        """What stands for the network in the fingerprint, read anew where its tensors show that they have changed."""
        tensors = self.network.state_dict().values() if isinstance(self.network, nn.Module) else ()
        state = tuple((t.data_ptr(), t._version, t.dtype, t.device) for t in tensors)
        if self._identified is None or self._identified[0] != state:
            self._identified = (state, _identity(self.network))
        return self._identified[1]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the network's weights and of all facts: classifiers that share it give the same answers."""
        self.read_anew()
        return fingerprint_of(self.source, self.facts)

    def read_anew(self) -> None:
        """Has `source` read the weights again, which do not show a change through `.data`: each certificate does."""
        self._identified = None

    @property
    def name(self) -> str:
        return self.about.name

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; empty where they are not known."""
        return self.about.classes

    @property
    def threat(self) -> Threat | None:
        return self.about.threat

    @property
    def method(self) -> str:
        """The method that `certify` uses by default."""
        return self.about.method or self.usual_method

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of its own method that differ from the method's defaults."""
        return self.about.settings

    @property
    @abstractmethod
    def usual_method(self) -> str: ...

    @property
    def item_dims(self) -> int:
        """Dimensions of one item: 3 for pictures [C,H,W], 2 for sounds [C,L]."""
        own = [transforms.get(name) for name in self.over] + ([self.threat.transform] if self.threat else [])
        shape = getattr(getattr(self.network, "config", None), "shape", (0, 0, 0))
        limited = self.preprocess.limit is not None  # sounds alone pass a limiter
        return own[0].item_dims if own else 2 if limited else len(shape)

    @property
    def device(self) -> torch.device:
        """Where its tensors are; the CPU if it has none."""
        return next((t.device for t in self.state_dict().values()), torch.device("cpu"))

    def certify(
        self, x: Tensor, threat: Threat | None = None, *, method: str | None = None, **settings: Any
    ) -> Certificate:
        """How far its answer about x [C,H,W] survives the threat; by default, its own method and threat.

        `settings` are those of the method, for instance `alpha` (0.01) and `n`.
        """
        from warpcert import methods

        return methods.certify(self, x, threat, method=method, **settings)

    def foresee(
        self, x: Tensor, threat: Threat | None = None, *, method: str | None = None, **settings: Any
    ) -> Forecast:
        """What `certify` will cost, passes, seconds and memory, from a probe of a few seconds; and what to try if that
        looks hopeless.
        """
        from warpcert import methods

        return methods.foresee(methods.chosen(self, method, **settings), self, x, methods.threat_for(self, threat))

    def save(self, path: Path | str) -> None:
        """Writes one safetensors file from which `warpcert.load` brings back this very object."""
        from warpcert.classifier.storage import save

        save(self, Path(path))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def fingerprint_of(network: str, facts: Mapping[str, Any]) -> str:
    """SHA-256 of what stands for a network, and of the facts around it."""
    return hashlib.sha256(_canonical({"network": network, "facts": facts}).encode()).hexdigest()


def _identity(network: Logits) -> str:
    """What stands for the network in a fingerprint: its configuration and weights, or the name of a function."""
    declared = getattr(network, "fingerprint", None)
    if isinstance(declared, str):  # a file of another tool: its SHA-256
        return declared
    if isinstance(network, Network):  # same weights, another front or mirror: another function
        return hashlib.sha256(f"{_canonical(network.config.to_dict())}{fingerprint(network)}".encode()).hexdigest()
    if isinstance(network, nn.Module):  # its printed form tells layers and their settings
        return hashlib.sha256(f"{type(network).__qualname__}{network}{fingerprint(network)}".encode()).hexdigest()
    return f"{getattr(network, '__module__', '')}:{getattr(network, '__qualname__', type(network).__qualname__)}"


def lipschitz_of(network: Logits, given: float | None, precision: str) -> float | None:
    """The constant to work with: what was given, or what a Lipschitz network proves of itself."""
    if given is not None and not 0 < given < math.inf:
        raise ValueError(f"a Lipschitz constant must be positive and finite; got {given}")
    if precision != "float32":
        if given is not None:
            raise ValueError("a Lipschitz constant is proved for float32: do not compute the network in half precision")
        return None
    if not isinstance(network, LipschitzNet) or math.isnan(network.lipschitz):
        return None if given is None else float(given)
    own = _rounded_up(network.lipschitz)
    if given is not None and given < own:
        raise ValueError(f"this network's Lipschitz constant is proved to be at most {own:g}, not {given:g}")
    return own if given is None else float(given)


def _rounded_up(value: float, digits: int = 6) -> float:
    """Not below the value; the last digits of what is computed depend on the machine, and a fact must not."""
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    near = round(value * scale) / scale
    return near if near >= value else (round(value * scale) + 1) / scale


def prepared(p: Preprocess) -> dict[str, Any]:
    """P as a fact: 1 and 1.0 are the same margin."""
    return p.to_dict() | {"margin": float(p.margin), "blur_sigma": float(p.blur_sigma)}
