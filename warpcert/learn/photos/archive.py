"""Photographs of any size with their labels, from a zip file or a folder.

They are read as most networks of photographs saw them: the short side is scaled to a given length (256) and the middle
cut out (224×224). One at a time, so that ten thousand photographs need the memory of ten thousand cut ones.
"""

from __future__ import annotations

import csv
import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Tensor

from warpcert.learn.pictures import refuse_deep, refuse_transparent

if TYPE_CHECKING:
    from PIL.Image import Image as Raster

__all__ = ["CUT", "LABELS", "SHORT", "Archive", "read_photographs", "square"]

SHORT, CUT = 256, 224  # pixels: the short side is scaled to, and the side of what is cut out
LABELS = "labels.csv"


@final
class Archive:
    """A zip file or folder of photographs (JPEG, PNG or WebP) with labels.csv (file,label), in the order of that list.

    Labels are whole numbers. Files may lie in folders inside; the list may name them with or without these.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._zip: zipfile.ZipFile | None = None
        try:
            self._zip = None if self.path.is_dir() else zipfile.ZipFile(self.path)
            names = self._names()
            listed = next((n for n in names if Path(n).name == LABELS), None)
            if listed is None:
                raise ValueError(f"it holds no {LABELS}")
            rows = list(csv.DictReader(io.StringIO(self._open(listed).decode("utf-8-sig"))))
            if not rows:
                raise ValueError(f"{LABELS} lists no picture")
            if not {"file", "label"} <= set(rows[0]):
                raise ValueError(f"the first line of {LABELS} must be: file,label")
            self.items = [(row["file"], int(row["label"])) for row in rows]
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise ValueError(f"{self.path} must be a zip file or folder of pictures with {LABELS}: {error}") from None
        inside = {name: name for name in names}
        inside |= {Path(name).name: name for name in reversed(names) if Path(name).name not in inside}
        missing = [file for file, _ in self.items if file not in inside]
        if missing:
            raise ValueError(f"{self.path} lists {missing[0]}, but does not hold it ({len(missing)} are missing)")
        if min(label for _, label in self.items) < 0:
            raise ValueError(f"{self.path}: labels must not be negative")
        self._inside = inside

    def __len__(self) -> int:
        return len(self.items)

    def picture(self, index: int, short: int = SHORT, side: int = CUT) -> Tensor:
        """Photograph `index` as uint8 [3,side,side]."""
        file = self.items[index][0]
        return square(self._open(self._inside[file]), short, side, name=f"{self.path}: {file}")

    def _names(self) -> list[str]:
        if self._zip:
            return self._zip.namelist()
        return sorted(p.relative_to(self.path).as_posix() for p in self.path.rglob("*") if p.is_file())

    def _open(self, name: str) -> bytes:
        return self._zip.read(name) if self._zip else (self.path / name).read_bytes()


def read_photographs(path: Path | str, short: int = SHORT, side: int = CUT) -> tuple[Tensor, Tensor]:
    """All photographs of an archive, uint8 [N,3,side,side], and their labels [N], in the order of its list."""
    archive = Archive(path)
    pixels = torch.empty(len(archive), 3, side, side, dtype=torch.uint8)

    def read(index: int) -> None:
        pixels[index] = archive.picture(index, short, side)

    with ThreadPoolExecutor() as threads:  # decoders let others work
        list(threads.map(read, range(len(archive))))
    return pixels, torch.tensor([label for _, label in archive.items])


def square(raw: bytes, short: int = SHORT, side: int = CUT, name: str = "the picture") -> Tensor:
    """A picture file as uint8 [3,side,side]: upright, the short side scaled to `short`, the middle cut out."""
    from PIL import Image, ImageOps  # here: not every machine that trains has it

    if not 0 < side <= short:
        raise ValueError(f"what is cut out must fit: 0 < side ≤ short; got {side} and {short}")
    refuse_deep(raw, name)
    try:
        with Image.open(io.BytesIO(raw), formats=("JPEG", "PNG", "WEBP")) as opened:
            clear = opened.convert("RGBA") if opened.has_transparency_data else None
            photo: Raster = ImageOps.exif_transpose(opened).convert("RGB")
    except Exception as error:  # decoders of broken files raise anything
        raise ValueError(f"{name} is not a whole JPEG, PNG or WebP picture ({type(error).__name__})") from None
    if clear is not None:
        refuse_transparent(clear, name)
    scale = short / min(photo.size)
    if scale != 1:
        photo = photo.resize((max(short, round(photo.width * scale)), max(short, round(photo.height * scale))))
    left, top = (photo.width - side) // 2, (photo.height - side) // 2
    cut = photo.crop((left, top, left + side, top + side))
    return torch.from_numpy(np.asarray(cut).copy()).permute(2, 0, 1)
