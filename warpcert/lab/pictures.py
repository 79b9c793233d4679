"""Photographs of any size in a zip file, cut to squares: what ImageNet's rows read."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path
from typing import final

import numpy as np
import torch
from PIL import Image
from torch import Tensor

__all__ = ["Photographs"]


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
