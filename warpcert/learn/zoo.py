"""Classifiers by name: weights files of the package, checked against a manifest.

The manifest, assets/models.json, lists name, task, licence, size, SHA-256 and the certified figures. The small ones lie
beside it; the others are in the folder `recipes` of the source tree (recipes/NAME/model.safetensors). A name is looked
up without loading torch.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from warpcert.classifier import About, Classifier
    from warpcert.classifier.votes.voting import Logits

__all__ = ["EMBEDDED", "FOLDER_VARIABLE", "Listing", "find", "is_here", "listing_of", "load", "manifest", "read"]

FOLDER_VARIABLE = "WARPCERT_ZOO"
MANIFEST = "models.json"
EMBEDDED = "mnist-rotation-exact"  # what demo, page and command line use unless told otherwise


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
    deviation: dict[str, float] = field(default_factory=dict)  # largest of logits, of so many images, beside the slack


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


def is_here(name: str) -> bool:
    """Whether the weights of that model can be found."""
    try:
        find(name)
    except ValueError:
        return False
    return True


def read(name: str) -> tuple[Logits, dict[str, Any], About]:
    """Network, facts and purpose of the classifier of that name, or in that file."""
    from warpcert.classifier import storage

    network, facts, about = storage.read(find(name))
    return network, facts, replace(about, name=about.name or Path(name).stem)


def load(name: str) -> Classifier:
    """The classifier of that name, or in that file: what was certified, ready to be deployed.

    >>> net = load("mnist-rotation-exact")
    >>> net.kind, net.step, net.threat.transform.name, net.method
    ('levels', 32, 'rotation', 'exact')
    """
    from warpcert.classifier import storage

    return storage.configured(*read(name))


def listing_of(path: Path, name: str, task: str, licence: str, figures: dict[str, str]) -> dict[str, Any]:
    """A line for the manifest, about the file that is there."""
    raw = path.read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    return {"name": name, "task": task, "licence": licence, "bytes": len(raw), "sha256": digest, "figures": figures}
