"""Models by name: weights with the defence and the threat they were trained for, checked against a manifest.

The manifest, assets/models.json, lists name, task, licence, size, SHA-256 and the certified figures. The small default
model lies beside it; the others are in the folder `recipes` of the source tree (recipes/NAME/model.safetensors).
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, final

from warpcert.classifier.defence import Defence
from warpcert.networks.config import ModelConfig
from warpcert.networks.resnet import Network, load_weights
from warpcert.threat import Threat

__all__ = ["FOLDER_VARIABLE", "Listing", "Loaded", "find", "listing_of", "load", "manifest"]

FOLDER_VARIABLE = "WARPCERT_ZOO"
MANIFEST = "models.json"


@final
@dataclass(frozen=True)
class Listing:
    """One line of the manifest."""

    name: str
    task: str
    licence: str
    bytes: int
    sha256: str
    figures: dict[str, str] = field(default_factory=dict)  # what was certified → share of test images


@final
@dataclass(frozen=True)
class Loaded:
    """A classifier (deployed form, eval mode, CPU) and everything it was trained for."""

    name: str
    classifier: Network
    config: ModelConfig
    defence: Defence
    threat: Threat
    classes: tuple[str, ...]
    figures: dict[str, str]


@cache
def manifest() -> dict[str, Listing]:
    """The models by name."""
    text = (resources.files("warpcert") / "assets" / MANIFEST).read_text(encoding="utf-8")
    return {row["name"]: Listing(**row) for row in json.loads(text)}


def find(name: str) -> Path:
    """The weights of a model: a .safetensors file by its path, or by a name of the manifest, its digest checked."""
    if name.endswith(".safetensors") or Path(name).is_file():
        return Path(name)
    listing = manifest().get(name)
    if listing is None:
        raise ValueError(f"there is no model {name!r}: give a .safetensors file or one of {', '.join(manifest())}")
    folder = Path(os.environ.get(FOLDER_VARIABLE) or "recipes")
    with resources.as_file(resources.files("warpcert") / "assets" / f"{name}.safetensors") as embedded:
        places = [embedded, folder / name / "model.safetensors", folder / f"{name}.safetensors"]
        path = next((p for p in places if p.is_file()), None)
    if path is None:
        raise ValueError(
            f"the weights of {name} ({listing.bytes / 1e6:.1f} MB) are not installed: they are in the source tree, in "
            f"recipes/{name}; set {FOLDER_VARIABLE} to its folder recipes, or train them again with "
            f"`warpcert train recipes/{name}/recipe.toml` and give the path of the file"
        )
    if hashlib.sha256(path.read_bytes()).hexdigest() != listing.sha256:
        raise ValueError(
            f"{path} is not the file that the manifest lists as {name} (its SHA-256 differs): fetch it again, or give "
            f"its path instead of the name to use it all the same"
        )
    return path


def load(name: str) -> Loaded:
    """The model of that name, or in that file, with the defence and the threat it was trained for.

    >>> loaded = load("mnist-rotation")
    >>> loaded.threat.transform.name, loaded.config.classes
    ('rotation', 10)
    """
    path = find(name)
    model, config, extra = load_weights(path)
    if "defence" not in extra or "gamma" not in extra:
        raise ValueError(f"{path} carries no defence and no Γ; open it with load_weights and say both yourself")
    defence = Defence.from_dict(extra["defence"])
    box = defence.transform.box(*extra["gamma"])
    threat = Threat(defence.transform, box, extra.get("attacker", "bilinear"), extra.get("rounded", True))
    listing = manifest().get(name)
    classes = tuple(extra.get("classes", map(str, range(config.classes))))
    return Loaded(name, model, config, defence, threat, classes, dict(listing.figures) if listing else {})


def listing_of(path: Path, name: str, task: str, licence: str, figures: dict[str, str]) -> dict[str, Any]:
    """A line for the manifest, about the file that is there."""
    raw = path.read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    return {"name": name, "task": task, "licence": licence, "bytes": len(raw), "sha256": digest, "figures": figures}
