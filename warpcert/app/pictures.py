"""Picture files in and out."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

__all__ = ["read_picture", "write_picture"]


def read_picture(path: Path, shape: tuple[int, ...] | None = None) -> Tensor:
    """A picture file as float32 [C,H,W] in [0,1]; with a shape, a ValueError unless it has the size that the model
    takes.
    """
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    with Image.open(path) as picture:
        width, height = picture.size
        if shape is not None and (width, height) != (shape[2], shape[1]):
            raise ValueError(f"{path} is {width}×{height}, but the model takes {shape[2]}×{shape[1]}")
        grey = picture.mode in ("1", "L", "LA", "I", "F") if shape is None else shape[0] == 1
        pixels = picture.convert("L" if grey else "RGB").tobytes()
    raw = torch.frombuffer(bytearray(pixels), dtype=torch.uint8)
    return raw.reshape(height, width, -1).permute(2, 0, 1).float() / 255


def write_picture(image: Tensor, path: Path) -> None:
    """[C,H,W] with 1 or 3 channels as an 8-bit file."""
    pixels = (image * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).save(path)
