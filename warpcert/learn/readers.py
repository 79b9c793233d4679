"""Readers of data files that others made: they check what they read and run nothing that is in it."""

from __future__ import annotations

import gzip
import pickle
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from warpcert.learn import pictures

__all__ = ["read_cifar", "read_folder", "read_idx", "read_npz"]

Bytes = NDArray[np.uint8]
SUFFIXES = (".png", ".jpg", ".jpeg")


def read_idx(path: Path, dims: int) -> Bytes:
    """An IDX file of bytes with `dims` dimensions (3: images, 1: labels), plain or .gz."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is not a whole gzip file ({error}); download it again") from None
    magic, header = 0x0800 | dims, 4 + 4 * dims
    if len(raw) < header or struct.unpack(">I", raw[:4])[0] != magic:
        raise ValueError(
            f"{path} is not an IDX file of bytes: expected it to start with {magic:08x}, got {raw[:4].hex()}"
        )
    shape = struct.unpack(f">{dims}I", raw[4:header])
    size = int(np.prod(shape, dtype=object))
    if len(raw) - header != size:
        raise ValueError(f"{path} should hold {size} bytes of data, as its header says; it holds {len(raw) - header}")
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


@final
class _Array:
    """Stands in for numpy.ndarray while a batch is unpickled: takes its state, an array of bytes, and nothing else."""

    value: Bytes

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("an array that is not of bytes")
        self.value = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


@final
class _Dtype:
    """Stands in for numpy.dtype("u1")."""

    def __init__(self, code: Any, *_: Any) -> None:
        if code not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"an array of {code!r}; CIFAR batches hold bytes (u1)")

    def __setstate__(self, state: Any) -> None:
        pass


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text in {encoding!r}")
    return text.encode("latin1")


@final
class _BatchUnpickler(pickle.Unpickler):
    """Unpickles dicts, lists, numbers, text and arrays of bytes. The only globals it knows are the stand-ins above."""

    allowed = {  # noqa: RUF012
        ("_codecs", "encode"): _encode,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Dtype,
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"it wants to use {module}.{name}, which no CIFAR batch needs")
        return self.allowed[module, name]


def read_cifar(path: Path) -> tuple[Bytes, Bytes]:
    """A batch of CIFAR-10 ("python version"): images [N,3,32,32] and labels [N]."""
    try:
        with path.open("rb") as file:
            batch = _BatchUnpickler(file, encoding="bytes").load()
        named = {k.decode() if isinstance(k, bytes) else k: v for k, v in batch.items()}
        images, labels = named["data"].value.reshape(-1, 3, 32, 32), np.array(named["labels"], dtype=np.uint8)
    except OSError:
        raise
    except Exception as error:  # a hostile pickle can raise anything
        raise ValueError(f"{path} is not a batch of CIFAR-10 ({type(error).__name__}: {error})") from None
    if labels.shape != (len(images),):
        raise ValueError(f"{path} holds {len(images)} images, but labels of shape {list(labels.shape)}")
    return images, labels


def read_npz(path: Path, split: str) -> tuple[NDArray[Any], NDArray[Any], tuple[str, ...] | None]:
    """Arrays x_SPLIT and y_SPLIT, or x and y: images [N,C,H,W] or sound [N,1,L], labels, and names if it lists them.

    Names are an array of text, `classes` or `words`.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a whole .npz file; write it with numpy.savez")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            keys = (f"x_{split}", f"y_{split}") if f"x_{split}" in file.files else ("x", "y")
            missing = [k for k in keys if k not in file.files]
            if missing:
                raise ValueError(
                    f"{path} has no array {' and '.join(missing)} (it has {', '.join(file.files)}); "
                    f"expected x_{split} and y_{split}, or x and y"
                )
            x, y = file[keys[0]], file[keys[1]]
            listed = next((k for k in ("classes", "words") if k in file.files), None)
            names = tuple(str(v) for v in file[listed]) if listed else None
    except (zipfile.BadZipFile, zlib.error, EOFError, AttributeError) as error:
        raise ValueError(f"{path} is not a whole .npz file ({error})") from None
    if x.dtype == np.uint8 and x.ndim == 3:
        return x[:, None], y, names
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[3] in (1, 3):
        return x.transpose(0, 3, 1, 2), y, names
    if x.dtype == np.int16 and x.ndim == 2:
        return x[:, None], y, names
    raise ValueError(
        f"{path}: {keys[0]} must be uint8 [N,H,W], uint8 [N,H,W,1 or 3] or, for sound, int16 [N,L]; "
        f"got {x.dtype} {list(x.shape)}"
    )


def read_folder(path: Path) -> tuple[Bytes, NDArray[np.int64], tuple[str, ...]]:
    """One sub-folder of .png and .jpg files per class, all of one size: images [N,1 or 3,H,W], labels, class names."""
    classes = tuple(sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")))
    files = [
        (label, file)
        for label, name in enumerate(classes)
        for file in sorted((path / name).iterdir())
        if file.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise ValueError(f"{path} needs sub-folders of png or jpg files, one per class; found no such file")
    images: list[Bytes] = []
    for _, file in files:
        image = pictures.decode(file.read_bytes(), name=str(file)).levels.numpy()
        if images and image.shape[1:] != images[0].shape[1:]:
            given, first = image.shape[1:], images[0].shape[1:]
            raise ValueError(
                f"all pictures must have one size: {file} is {given[1]}×{given[0]}, "
                f"the first is {first[1]}×{first[0]}; resize or crop them"
            )
        images.append(image)
    channels = max(len(image) for image in images)  # grey pictures among coloured ones become coloured
    stacked = np.stack([np.broadcast_to(image, (channels, *image.shape[1:])) for image in images])
    return stacked, np.array([label for label, _ in files]), classes
