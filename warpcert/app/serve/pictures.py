"""Pictures in and out. What comes in is checked before it is decoded; nothing is resized or converted silently."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import math
import warnings

import torch
from PIL import Image
from torch import Tensor

__all__ = ["digest", "from_base64", "from_file", "from_pixels", "to_png"]

CHANNELS = {"1": 1, "L": 1, "RGB": 3}
FORMATS = ("PNG", "JPEG")


def from_file(raw: bytes, shape: tuple[int, ...]) -> Tensor:
    """A PNG or JPEG file as float32 [C,H,W]; a ValueError unless it has just the size and channels of `shape`.

    Only the header is read before size and channels are known to be right: a picture that would unpack to gigabytes
    is never unpacked.
    """
    channels, height, width = shape
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Image.open(io.BytesIO(raw), formats=FORMATS) as picture:
                _check_header(picture, shape)
                pixels = picture.convert("L" if channels == 1 else "RGB").tobytes()
    except _ShapeError:
        raise
    except Exception as error:  # decoders of broken files raise anything
        raise ValueError(f"this is not a whole PNG or JPEG picture ({type(error).__name__})") from None
    levels = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).reshape(height, width, channels)
    return levels.permute(2, 0, 1).float() / 255


class _ShapeError(ValueError):
    pass


def _check_header(picture: Image.Image, shape: tuple[int, ...]) -> None:
    channels, height, width = shape
    if picture.size != (width, height):
        raise _ShapeError(
            f"the picture is {picture.width}×{picture.height}, but this model takes {width}×{height} pixels"
        )
    if CHANNELS.get(picture.mode) != channels:
        wanted = "grey (L, 8 bits)" if channels == 1 else "RGB, 8 bits"
        raise _ShapeError(f"the picture's mode is {picture.mode}, but this model takes {channels} channel(s): {wanted}")


def from_base64(text: str, shape: tuple[int, ...]) -> Tensor:
    """As `from_file`, from base64 text, with or without data:…;base64, before it."""
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return from_file(base64.b64decode(text, validate=True), shape)
    except binascii.Error as error:
        raise ValueError(f"the image is not base64 ({error})") from None


def from_pixels(pixels: list[list[list[float]]], shape: tuple[int, ...]) -> Tensor:
    """Nested lists [C][H][W] of numbers in [0,1] as float32."""
    channels, height, width = shape
    rows = [row for plane in pixels for row in plane]
    if len(pixels) != channels or {len(p) for p in pixels} != {height} or {len(r) for r in rows} != {width}:
        raise ValueError(f"pixels must have the shape {list(shape)}: channels, rows, columns")
    if not all(math.isfinite(v) and 0 <= v <= 1 for row in rows for v in row):
        raise ValueError("pixels must be finite numbers in [0, 1] (divide 8-bit values by 255)")
    return torch.tensor(pixels, dtype=torch.float32)


def to_png(x: Tensor) -> bytes:
    """A picture [C,H,W] in [0,1] as an 8-bit PNG."""
    levels = (x.detach().cpu() * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(levels.squeeze(-1) if levels.shape[-1] == 1 else levels).save(file, "PNG")
    return file.getvalue()


def digest(x: Tensor) -> str:
    """sha256 of the float32 values: ties an answer to its picture."""
    return hashlib.sha256(x.detach().cpu().float().contiguous().numpy().tobytes()).hexdigest()
