"""Datasets: pictures or sounds in memory as they are on disk, with their labels."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpcert.learn import readers
from warpcert.learn.photos.archive import CUT, LABELS, SHORT, read_photographs

__all__ = ["NAMES", "ROOT_VARIABLE", "Dataset", "default_root", "load", "make_mnist500"]

ROOT_VARIABLE = "WARPCERT_DATA"
DIGITS = tuple("0123456789")
CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NAMES = ("mnist500", "mnist", "fashion-mnist", "cifar10")


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """images uint8 [N,C,H,W] (or float32 in [0,1] where they are not 8-bit), or int16 [N,C,L] for sound; labels int64
    [N], each the place of its name in `classes`.
    """

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        form = (self.images.dtype, self.images.dim())
        if form not in ((torch.uint8, 4), (torch.float32, 4), (torch.int16, 3)):
            raise ValueError(
                f"{self.name}: images must be uint8 or float32 [N,C,H,W], or int16 [N,C,L] for sound; "
                f"got {form[0]} {list(self.images.shape)}"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"{self.name}: labels must be int64 [{len(self.images)}]; "
                f"got {self.labels.dtype} {list(self.labels.shape)}"
            )
        if len(self.labels) and (int(self.labels.min()) < 0 or int(self.labels.max()) >= len(self.classes)):
            raise ValueError(f"{self.name}: labels must lie in 0 … {len(self.classes) - 1}, one per class name")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one picture or sound."""
        return tuple(self.images.shape[1:])

    @property
    def levels(self) -> int:
        """What divides a stored value: 255, or 32768 for sound; 1 where values are kept as they are."""
        return {torch.uint8: 255, torch.int16: 32768}.get(self.images.dtype, 1)

    def image(self, i: int) -> Tensor:
        """Picture i, float32 [C,H,W] in [0,1]; or sound i, float32 [C,L] in [−1,1)."""
        if not 0 <= i < len(self):
            raise ValueError(f"{self.name} has the indices 0 … {len(self) - 1}; got {i}")
        return self.images[i].float() / self.levels

    def part(self, start: int, stop: int) -> Dataset:
        """Items start … stop − 1."""
        return Dataset(self.name, self.images[start:stop], self.labels[start:stop], self.classes)

    def shuffled(self) -> Dataset:
        """In a fixed random order."""
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(self)))
        return Dataset(self.name, self.images[order], self.labels[order], self.classes)


def load(name: str | Path, split: str = "test", root: str | Path | None = None, side: int = CUT) -> Dataset:
    """The dataset of that name ("mnist500" comes with the package), or in that .npz file or folder of class folders; or
    photographs of any size in a .zip file or folder with labels.csv (file,label).

    `root` is the folder with MNIST/, FashionMNIST/ and cifar-10-batches-py/; the environment variable WARPCERT_DATA if
    None. NAME is also the file NAME.zip in it. Of a folder with train/ and test/ in it, the one of `split` is read.
    The short side of a photograph is scaled to 256, and the middle 224×224 of it kept; all 256×256 for training, which
    crops them itself. For classifiers that halve what they are given, `side` is 448, and the short side 512.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split {split!r} is not known; choose train or test")
    text, path, root = str(name), Path(name), None if root is None else Path(root)
    if text == "mnist500":
        with resources.as_file(resources.files("warpcert") / "assets" / "mnist500.npz") as asset:
            x, y, _ = readers.read_npz(asset, "test")
        return _dataset(text, x, y, DIGITS)
    if text in ("mnist", "fashion-mnist"):
        return _idx(text, split, root, *(("MNIST", DIGITS) if text == "mnist" else ("FashionMNIST", CLOTHES)))
    if text == "cifar10":
        return _cifar(split, root)
    if path.suffix == ".npz" and path.is_file():
        x, y, names = readers.read_npz(path, split)
        count = int(y.max()) + 1 if y.size and y.dtype.kind in "iu" else 1
        return _dataset(path.stem, x, y, names or tuple(str(i) for i in range(count)))
    zipped = (root or default_root() or Path()) / f"{text}.zip"
    archive = path if path.suffix == ".zip" and path.is_file() else zipped if zipped.is_file() else path
    if (archive.suffix == ".zip" and archive.is_file()) or (archive / LABELS).is_file():
        short = SHORT * side // CUT
        pixels, labels = read_photographs(archive, short, side if split == "test" else short)
        return Dataset(archive.stem, pixels, labels, tuple(str(i) for i in range(int(labels.max()) + 1)))
    if path.is_dir():
        return _dataset(path.name, *readers.read_folder(path / split if (path / split).is_dir() else path))
    raise ValueError(
        f"dataset {text!r} is not known: give one of {', '.join(NAMES)}, an .npz file, or a .zip file or "
        "folder of pictures that exists"
    )


def _dataset(name: str, x: NDArray[Any], y: NDArray[Any], classes: tuple[str, ...]) -> Dataset:
    if y.dtype.kind not in "iu":
        raise ValueError(f"{name}: labels must be integers; got {y.dtype}")
    return Dataset(name, torch.from_numpy(np.array(x, order="C")), torch.from_numpy(y.astype(np.int64)), classes)


def default_root() -> Path | None:
    """The folder that WARPCERT_DATA names, if it does."""
    return Path(os.environ[ROOT_VARIABLE]) if os.environ.get(ROOT_VARIABLE) else None


def _find(name: str, folder: str, files: list[str], root: Path | None, suffixes: tuple[str, ...] = ("",)) -> list[Path]:
    """The paths of all `files` in root/folder, or an error that says what is missing and where it was looked for."""
    base = root or default_root()
    if base is None:
        raise ValueError(
            f"{name} needs a data folder: set {ROOT_VARIABLE} (or root) to the folder that has {folder}/ in it"
        )
    found = {f: next((p for s in suffixes if (p := base / folder / (f + s)).is_file()), None) for f in files}
    missing = [f for f, p in found.items() if p is None]
    if missing:
        raise ValueError(
            f"{name} needs {', '.join(missing)} in {base / folder}, which is not there; "
            f"set {ROOT_VARIABLE} (or root) to the folder that has {folder}/ in it"
        )
    return [p for p in found.values() if p is not None]


def _idx(name: str, split: str, root: Path | None, folder: str, classes: tuple[str, ...]) -> Dataset:
    stem = "t10k" if split == "test" else "train"
    wanted = [f"{stem}-images-idx3-ubyte", f"{stem}-labels-idx1-ubyte"]
    images, labels = _find(name, f"{folder}/raw", wanted, root, ("", ".gz"))
    return _dataset(name, readers.read_idx(images, 3)[:, None], readers.read_idx(labels, 1), classes)


def _cifar(split: str, root: Path | None) -> Dataset:
    wanted = ["test_batch"] if split == "test" else [f"data_batch_{i}" for i in range(1, 6)]
    batches = [readers.read_cifar(p) for p in _find("cifar10", "cifar-10-batches-py", wanted, root)]
    stack: Callable[[int], NDArray[Any]] = lambda part: np.concatenate([b[part] for b in batches])  # noqa: E731
    return _dataset("cifar10", stack(0), stack(1), THINGS)


def make_mnist500(root: Path, out: Path) -> None:
    """Writes the bundled asset: 500 pictures of MNIST's test set, drawn by numpy's default_rng(0)."""
    test = load("mnist", "test", root)
    index = np.random.default_rng(0).permutation(10_000)[:500]
    x, y = test.images.numpy()[index, 0], test.labels.numpy()[index].astype(np.uint8)
    np.savez_compressed(out, x=x, y=y, index=index)
