"""What an experiment finds on its desk: data and classifiers by name, or a sentence that says what is missing."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from warpcert.classifier import Classifier
from warpcert.learn import data, zoo

__all__ = ["FILES", "Desk", "Missing"]

FILES = {
    "gtsrb": "gtsrb32.npz",
    "speech": "speech10.npz",
    "imagenet": "imagenet200.zip",
    "rimagenet": "rimagenet203.zip",
}


class Missing(ValueError):
    """A row cannot be measured: its data or its classifier is not there. The text goes on after "needs"."""


@final
@dataclass(frozen=True, eq=False)
class Desk:
    """Where an experiment writes, how thorough it is, and where it looks for data and classifiers.

    files  paths of the datasets that have no standard layout, by name (gtsrb, speech, imagenet, rimagenet); one that is
           not given is looked for in the data folder under its usual file name
    limit  seconds after which a row begins no further item of a kind: what it has by then is what it tells
    """

    out: Path
    quick: bool
    device: torch.device
    data_root: Path | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    limit: float = math.inf

    @property
    def machine(self) -> str:
        """What a reader calls the device."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type.upper()

    def dataset(self, name: str, split: str = "test") -> data.Dataset:
        """The dataset in a fixed random order (mnist500 is the first part of such an order of MNIST's test set)."""
        if name in FILES:
            return data.load(self.file(name), split).shuffled()
        try:
            found = data.load(name, split, self.data_root)
        except ValueError:
            raise Missing(f"the {name} data: name the folder that has them") from None
        return found if name == "mnist500" else found.shuffled()

    def file(self, name: str) -> Path:
        """The path of a dataset that is one file."""
        root = self.data_root or data.default_root()
        path = self.files.get(name) or (root / FILES[name] if root else None)
        if path is None or not path.exists():
            where = f"; {path} is not there" if path else ""
            raise Missing(f"the {name} data: give the path of its file{where}")
        return path

    def classifier(self, *names: str) -> Classifier:
        """The first of these that is there: in the package, or recipes/NAME/model.safetensors."""
        for name in names:
            if (path := weights(name)) is not None:
                return zoo.load(str(path)).to(self.device)
        wanted = " or ".join(names)
        raise Missing(f"the model {wanted}: train it with `warpcert train recipes/{names[0]}/recipe.toml`")

    def image(self, dataset: data.Dataset, index: int) -> Tensor:
        return dataset.image(index).to(self.device)


def weights(name: str) -> Path | None:
    """The weights file of that name, if there is one: in the package, in the zoo's folder (or ./recipes), or in recipes
    beside the package.
    """
    folder = Path(os.environ.get(zoo.FOLDER_VARIABLE) or "recipes")
    with resources.as_file(resources.files("warpcert")) as package:
        places = (place / name / "model.safetensors" for place in (folder, package.parent / "recipes"))
        return next((p for p in (package / "assets" / f"{name}.safetensors", *places) if p.is_file()), None)
