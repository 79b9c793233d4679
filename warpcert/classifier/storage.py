"""Weights files: one safetensors file holds the whole classifier, and gives it back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from warpcert.classifier.base import About, Classifier
from warpcert.classifier.before.sees import sees
from warpcert.classifier.levels import Levels
from warpcert.classifier.plain import Plain
from warpcert.classifier.smoothed import Smoothed
from warpcert.classifier.votes.voting import Logits
from warpcert.networks.config import ModelConfig
from warpcert.networks.files import read_tensors, write_tensors
from warpcert.networks.lipschitz import LipschitzNet
from warpcert.networks.weights import Network, restored
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

__all__ = ["FORMAT", "KINDS", "configured", "load", "read", "save"]

FORMAT = "warpcert-classifier-1"
KINDS: dict[str, type[Plain] | type[Levels] | type[Smoothed]] = {c.kind: c for c in (Plain, Levels, Smoothed)}


def configured(network: Logits, facts: Mapping[str, Any], about: About | None = None) -> Classifier:
    """The classifier with these facts around a network; a ValueError for facts that its kind does not have.

    A Lipschitz network brings its constant itself: no smaller one is taken from the facts.
    """
    given = dict(facts)
    kind = given.pop("kind", None)
    if kind not in KINDS:
        raise ValueError(f"a classifier is {', '.join(KINDS)}; got {kind!r}: was it written by a later version?")
    if "preprocess" in given:
        given["preprocess"] = Preprocess(**given["preprocess"])
    if "sees" in given:
        given["sees"] = sees(given["sees"])
    if isinstance(network, LipschitzNet):
        stated = given.pop("lipschitz", None)
        if isinstance(stated, int | float) and stated > network.lipschitz * (1 + 1e-5):
            given["lipschitz"] = stated  # looser than what the weights prove
    try:
        return KINDS[kind](network, **given, about=about)
    except TypeError as error:
        raise ValueError(f"these are not the facts of a {kind} classifier: {error}") from None


def save(classifier: Classifier, path: Path) -> None:
    """Writes network, facts and what it is made for, bit by bit; networks of the package only, in deployed form."""
    network, about = classifier.network, classifier.about
    if not isinstance(network, Network):
        raise ValueError(
            f"only networks of warpcert can be saved; {type(network).__name__} keeps its own file: save its state_dict "
            "and build the classifier around it again"
        )
    if not network.is_fused:
        raise ValueError("this network is still in training form; build the classifier around the deployed one")
    metadata = {
        "format": FORMAT,
        "network": json.dumps(network.config.to_dict()),
        "classifier": json.dumps(classifier.facts),
        "about": json.dumps(
            {
                "name": about.name,
                "classes": list(about.classes),
                "threat": about.threat.to_dict() if about.threat else None,
                "method": about.method,
                "settings": dict(about.settings),
                "notes": dict(about.notes),
            }
        ),
    }
    write_tensors({name: _packed(t) for name, t in network.state_dict().items()}, path, metadata)


def _packed(t: Tensor) -> Tensor:
    """The same numbers on the CPU, in half precision if it holds them."""
    plain = t.detach().cpu().contiguous()
    return plain.half() if t.is_floating_point() and bool((plain.half() == plain).all()) else plain


def read(path: Path | str) -> tuple[Logits, dict[str, Any], About]:
    """What `save` wrote: network (CPU, eval mode), facts, and what it is made for. `configured` joins them."""
    path = Path(path)
    tensors, metadata = read_tensors(path, FORMAT)
    try:
        network = restored(ModelConfig.from_dict(json.loads(metadata["network"])), tensors)
        about = json.loads(metadata["about"])
        threat = Threat.from_dict(about["threat"]) if about["threat"] else None
        facts: dict[str, Any] = json.loads(metadata["classifier"])
        return network, facts, About(**about | {"classes": tuple(about["classes"]), "threat": threat})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} does not hold the classifier that its header describes: {error}") from None


def load(path: Path | str) -> Classifier:
    """The classifier that `save` wrote."""
    return configured(*read(path))
