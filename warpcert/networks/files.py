"""Files of tensors: safetensors with text metadata, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["read_tensors", "write_tensors"]


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """A safetensors file, written whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    save_file(tensors, str(part), metadata)
    os.replace(part, path)


def read_tensors(path: Path, wanted: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file whose metadata says format = `wanted`."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}; give the path of a .safetensors file")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = dict(file.metadata() or {})
            if metadata.get("format") != wanted:
                raise ValueError(
                    f"{path} was not written by warpcert: expected format {wanted!r}, got {metadata.get('format')!r}"
                )
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error}); copy or download it again") from None
