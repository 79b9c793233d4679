"""Picture files in and out: one way for files, folders, the server and its page.

PNG and JPEG with 8 bits per channel are read. What can be kept exactly is kept: a palette becomes colours, a grey
picture among coloured ones three equal channels, and a photograph stands as its EXIF orientation says. What cannot be
kept is refused in a sentence, or done by `fitted`, which says what it did.
"""

from __future__ import annotations

import io
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image as Raster

__all__ = [
    "MOST",
    "Picture",
    "decode",
    "encode",
    "fitted",
    "held_by_float32",
    "read_picture",
    "refuse_deep",
    "refuse_transparent",
    "write_picture",
]

MOST = 2**24  # pixels that are ever unpacked: more than a photograph of 12 megapixels
FORMATS = ("PNG", "JPEG")
ORIENTATION = 0x0112  # of EXIF
UPRIGHT = {  # what makes a picture of that orientation stand upright
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90",
}  # fmt: skip
PNG, DEPTH = b"\x89PNG\r\n\x1a\n", 24  # how such a file begins, and where it says its bits per channel
_filters = threading.Lock()  # warnings are caught for all threads at once


@final
@dataclass(frozen=True, eq=False)
class Picture:
    """levels: uint8 [1 or 3,H,W]; notes: what was done to the file's picture, in words."""

    levels: Tensor
    notes: tuple[str, ...] = ()

    @property
    def image(self) -> Tensor:
        """float32 [C,H,W] in [0,1]."""
        return self.levels.float() / 255


def held_by_float32(x: Tensor) -> Tensor:
    """Which values stay what they are in float32: those that it represents, and k/255, the 8-bit ones."""
    exact = x.double()
    return (x.float().to(x.dtype) == x) | (((255 * exact).round() / 255 - exact).abs() <= 2**-52)


def decode(raw: bytes, shape: tuple[int, ...] | None = None, name: str = "the picture") -> Picture:
    """The picture in a PNG or JPEG file; with a shape [C,H,W], a ValueError unless it has just that size.

    A coloured picture is not made grey, no picture is resized, and transparency is refused. Size and kind are known
    from the header: a file that would unpack to gigabytes is never unpacked.
    """
    with _opened(raw, name) as opened:
        if shape is not None and sorted(opened.size) != sorted(shape[1:]):  # EXIF may yet lay it on its side
            raise _size(name, opened, shape)
        raster, notes = _turned(_loaded(opened, name))
    if shape is not None and raster.size != (shape[2], shape[1]):
        raise _size(name, raster, shape)
    raster = _solid(raster, name)
    if shape is not None and shape[0] == 1 and raster.mode != "L":
        red, green, blue = raster.split()
        if not red.tobytes() == green.tobytes() == blue.tobytes():
            raise ValueError(f"{name} is in colour, but the classifier takes grey pictures: convert it first")
        raster = red
    if shape is not None and shape[0] == 3:
        raster = raster.convert("RGB")
    return Picture(_levels(raster), notes)


def fitted(raw: bytes, shape: tuple[int, ...], name: str = "the picture") -> Picture:
    """The picture made to fit [C,H,W]: on black where it is transparent, grey if need be, its middle cut out and
    resized. The notes say which of these was done.
    """
    from PIL import Image

    channels, height, width = shape
    with _opened(raw, name) as opened:
        raster, notes = _turned(_loaded(opened, name))
    if not _opaque(raster):
        behind = Image.new("RGBA", raster.size, "black")
        raster = Image.alpha_composite(behind, raster.convert("RGBA")).convert("RGB")
        notes += ("put on black where it is transparent",)
    raster = _solid(raster, name)
    if channels == 1 and raster.mode != "L":
        grey = raster.convert("L")
        if any(band.tobytes() != grey.tobytes() for band in raster.split()):
            notes += ("made grey",)
        raster = grey
    raster = raster.convert("L" if channels == 1 else "RGB")
    if raster.size != (width, height):
        notes += (f"cut and resized from {raster.width}×{raster.height} to {width}×{height} pixels",)
        raster = _cut(raster, width, height)
    return Picture(_levels(raster), notes)


def read_picture(path: Path, shape: tuple[int, ...] | None = None) -> Tensor:
    """A picture file as float32 [C,H,W] in [0,1]: see `decode`."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    return decode(path.read_bytes(), shape, str(path)).image


def encode(x: Tensor) -> bytes:
    """A picture [C,H,W] in [0,1], C = 1 or 3, as an 8-bit PNG."""
    from PIL import Image

    levels = (x.detach().cpu() * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(levels.squeeze(-1) if levels.shape[-1] == 1 else levels).save(file, "PNG")
    return file.getvalue()


def write_picture(x: Tensor, path: Path) -> None:
    """A picture [C,H,W] in [0,1] as an 8-bit PNG file."""
    path.write_bytes(encode(x))


def _opened(raw: bytes, name: str) -> Raster:
    """The picture with its header read and checked, nothing unpacked."""
    from PIL import Image  # here: training machines need not have it

    broken = f"{name} is not a whole PNG or JPEG picture"
    refuse_deep(raw, name)
    try:
        with _filters, warnings.catch_warnings():
            warnings.simplefilter("error")
            raster = Image.open(io.BytesIO(raw), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(f"{name} has far more pixels than the {MOST} that are read") from None
    except Exception as error:  # decoders of broken files raise anything
        raise ValueError(f"{broken} ({type(error).__name__})") from None
    if raster.width * raster.height > MOST:
        raise ValueError(f"{name} has {raster.width}×{raster.height} pixels; at most {MOST} are read: make it smaller")
    return raster


def refuse_deep(raw: bytes, name: str) -> None:
    """A ValueError for 16 bits per channel."""
    if raw.startswith(PNG) and raw[DEPTH : DEPTH + 1] == b"\x10":
        raise ValueError(f"{name} has 16 bits per channel: save it with 8")


def refuse_transparent(raster: Raster, name: str) -> None:
    """A ValueError unless every pixel is opaque."""
    if not _opaque(raster):
        raise ValueError(f"{name} is transparent in places: put it on a background first")


def _size(name: str, raster: Raster, shape: tuple[int, ...]) -> ValueError:
    given = f"{raster.width}×{raster.height}"
    return ValueError(f"{name} is {given}, but the classifier takes {shape[2]}×{shape[1]} pixels")


def _loaded(raster: Raster, name: str) -> Raster:
    try:
        raster.load()
        raster.getexif()
    except Exception as error:  # as above
        raise ValueError(f"{name} is not a whole PNG or JPEG picture ({type(error).__name__})") from None
    return raster


def _turned(raster: Raster) -> tuple[Raster, tuple[str, ...]]:
    """Upright, and a note if that took a turn; a palette becomes colours."""
    from PIL import Image

    way = UPRIGHT.get(raster.getexif().get(ORIENTATION, 1))
    if way is not None:
        raster = raster.transpose(Image.Transpose[way])
    if raster.mode in ("P", "PA") or "transparency" in raster.info:
        raster = raster.convert("RGBA" if raster.has_transparency_data else "RGB")
    return raster, ("turned as its EXIF orientation says",) if way else ()


def _opaque(raster: Raster) -> bool:
    return "A" not in raster.getbands() or raster.getchannel("A").getextrema() == (255, 255)


def _solid(raster: Raster, name: str) -> Raster:
    """Mode L or RGB, if nothing is lost by that."""
    refuse_transparent(raster, name)
    if raster.mode not in ("1", "L", "LA", "RGB", "RGBA"):
        raise ValueError(f"{name} has the mode {raster.mode}: save it as grey or RGB with 8 bits per channel")
    return raster.convert("L" if raster.mode in ("1", "L", "LA") else "RGB")


def _cut(raster: Raster, width: int, height: int) -> Raster:
    """The largest middle part of that form, resized."""
    from PIL import Image, ImageOps

    return ImageOps.fit(raster, (width, height), Image.Resampling.LANCZOS)


def _levels(raster: Raster) -> Tensor:
    values = np.asarray(raster)
    values = values[None] if values.ndim == 2 else values.transpose(2, 0, 1)
    return torch.from_numpy(values.copy())
