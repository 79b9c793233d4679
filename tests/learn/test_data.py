"""Readers: right on small files, clear about broken ones, deaf to what a pickle would like to run."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from warpcert.learn.data import Dataset, load

rng = np.random.default_rng(0)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x0800 | array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def mnist(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    x, y = rng.integers(0, 256, (7, 28, 28), dtype=np.uint8), rng.integers(0, 10, 7, dtype=np.uint8)
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(x))
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(y)))
    return tmp_path, x, y


def cifar(folder: Path, name: str, key: type, count: int = 4) -> tuple[np.ndarray, list[int]]:
    x, y = rng.integers(0, 256, (count, 3072), dtype=np.uint8), [int(v) for v in rng.integers(0, 10, count)]
    batch = {(k.encode() if key is bytes else k): v for k, v in (("data", x), ("labels", y), ("batch_label", "b"))}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return x, y


def test_bundled() -> None:
    data = load("mnist500")
    assert data.images.shape == (500, 1, 28, 28) and data.shape == (1, 28, 28) and len(data) == 500
    assert set(data.labels.tolist()) == set(range(10)) and data.classes == tuple("0123456789")
    image = data.image(3)
    assert image.dtype == torch.float32 and image.min() == 0 and 0.9 < image.max() <= 1
    assert torch.equal((image * 255).round().byte(), data.images[3])
    with pytest.raises(ValueError, match="0 … 499; got 500"):
        data.image(500)


def test_idx(mnist: tuple[Path, np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    root, x, y = mnist
    data = load("mnist", "test", str(root))
    assert np.array_equal(data.images[:, 0].numpy(), x) and data.labels.tolist() == y.tolist()
    monkeypatch.setenv("WARPCERT_DATA", str(root))
    assert len(load("mnist")) == 7


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-1], lambda b: b"\0\0\x08\x01" + b[4:], lambda b: b[:6], lambda b: b + b"x"]
)
def test_idx_broken(mnist: tuple[Path, np.ndarray, np.ndarray], spoil) -> None:
    file = mnist[0] / "MNIST" / "raw" / "t10k-images-idx3-ubyte"
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(ValueError, match="t10k-images-idx3-ubyte"):
        load("mnist", "test", mnist[0])


def test_idx_gzip_broken(mnist: tuple[Path, np.ndarray, np.ndarray]) -> None:
    file = mnist[0] / "MNIST" / "raw" / "t10k-labels-idx1-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ValueError, match="not a whole gzip file"):
        load("mnist", "test", mnist[0])


def test_missing(mnist: tuple[Path, np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=f"train-images-idx3-ubyte.*{mnist[0]}/MNIST/raw.*WARPCERT_DATA"):
        load("mnist", "train", mnist[0])
    with pytest.raises(ValueError, match="test_batch"):
        load("cifar10", "test", mnist[0])
    monkeypatch.delenv("WARPCERT_DATA", raising=False)
    with pytest.raises(ValueError, match="set WARPCERT_DATA"):
        load("fashion-mnist")
    with pytest.raises(ValueError, match="mnist500, mnist"):
        load("mnits")
    with pytest.raises(ValueError, match="train or test"):
        load("mnist500", "dev")


@pytest.mark.parametrize("key", [str, bytes])
def test_cifar(tmp_path: Path, key: type) -> None:
    parts = [cifar(tmp_path / "cifar-10-batches-py", f"data_batch_{i}", key) for i in range(1, 6)]
    data = load("cifar10", "train", tmp_path)
    assert data.images.shape == (20, 3, 32, 32) and data.classes[3] == "cat"
    assert np.array_equal(data.images.flatten(1).numpy(), np.concatenate([x for x, _ in parts]))
    assert data.labels.tolist() == [v for _, y in parts for v in y]


class Evil:
    def __init__(self, call, *args) -> None:
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("call", [os.system, eval, getattr, np.load])
def test_cifar_hostile(tmp_path: Path, call, protocol: int) -> None:
    folder, mark = tmp_path / "cifar-10-batches-py", tmp_path / "mark"
    folder.mkdir()
    payload = f"touch {mark}" if call is os.system else f"open({str(mark)!r}, 'w')"
    (folder / "test_batch").write_bytes(pickle.dumps({"data": Evil(call, payload), "labels": []}, protocol))
    with pytest.raises(ValueError, match="which no CIFAR batch needs"):
        load("cifar10", "test", tmp_path)
    assert not mark.exists()


def test_cifar_broken(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    cifar(folder, "test_batch", str)
    whole = (folder / "test_batch").read_bytes()
    for raw in (whole[:-3000], b"", b"not a pickle", pickle.dumps([1]), pickle.dumps({"data": 1, "labels": []})):
        (folder / "test_batch").write_bytes(raw)
        with pytest.raises(ValueError, match="is not a batch of CIFAR-10"):
            load("cifar10", "test", tmp_path)
    (folder / "test_batch").write_bytes(pickle.dumps({"data": np.zeros((1, 3072)), "labels": [0]}, protocol=2))
    with pytest.raises(ValueError, match="hold bytes"):
        load("cifar10", "test", tmp_path)


def test_npz(tmp_path: Path) -> None:
    file = tmp_path / "some.npz"
    x = rng.integers(0, 256, (5, 6, 8, 3), dtype=np.uint8)
    np.savez(file, x_train=x[:3], y_train=np.arange(3), x_test=x[3:], y_test=np.arange(2))
    assert load(file, "train").images.shape == (3, 3, 6, 8)
    assert torch.equal(load(str(file)).image(1), torch.from_numpy(x[4]).movedim(2, 0) / 255)
    np.savez(file, x=x[..., 0], y=np.zeros(5, np.uint8))
    assert load(file).images.shape == (5, 1, 6, 8)
    sound = rng.integers(-32768, 32768, (4, 50)).astype(np.int16)
    np.savez(file, x=sound, y=np.array([0, 1, 1, 0]), words=np.array(["no", "yes"]))
    data = load(file)
    assert data.images.shape == (4, 1, 50) and data.classes == ("no", "yes") and data.image(0).abs().max() <= 1


def test_npz_broken(tmp_path: Path) -> None:
    file = tmp_path / "some.npz"
    np.savez(file, a=np.zeros(3))
    with pytest.raises(ValueError, match="no array x and y"):
        load(file)
    np.savez(file, x=np.zeros((2, 4, 4)), y=np.zeros(2, int))
    with pytest.raises(ValueError, match="got float64"):
        load(file)
    np.savez(file, x=np.zeros((2, 4, 4), np.uint8), y=np.zeros(2))
    with pytest.raises(ValueError, match="labels must be integers"):
        load(file)
    np.savez(file, x=np.zeros((2, 4, 4), np.uint8), y=np.array([0, -1]))
    with pytest.raises(ValueError, match="labels must lie in"):
        load(file)
    np.savez(file, x=np.array([{}], dtype=object), y=np.zeros(1, int))
    with pytest.raises(ValueError, match="pickle"):
        load(file)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match="not a whole"):
        load(file)


def test_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, colour in (("cat", (255, 0, 0)), ("ant", (0, 0, 255))):
        (tmp_path / "train" / name).mkdir(parents=True)
        Image.new("RGB", (6, 4), colour).save(tmp_path / "train" / name / "a.png")
    Image.new("L", (6, 4), 51).save(tmp_path / "train" / "cat" / "b.png")
    data = load(tmp_path, "train")
    assert data.classes == ("ant", "cat") and data.labels.tolist() == [0, 1, 1]
    assert (
        data.images.shape == (3, 3, 4, 6) and data.image(0)[2].min() == 1 and data.images[2].unique().tolist() == [51]
    )
    Image.new("RGB", (5, 4)).save(tmp_path / "train" / "cat" / "odd.png")
    with pytest.raises(ValueError, match=r"odd\.png is 5×4, the first is 6×4"):
        load(tmp_path, "train")
    (tmp_path / "train" / "cat" / "odd.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"odd\.png is not a whole PNG or JPEG"):
        load(tmp_path, "train")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(ValueError, match="far more pixels"):
        load(tmp_path, "train")
    with pytest.raises(ValueError, match="needs sub-folders"):
        load(tmp_path / "train" / "ant")


def test_dataset_checks() -> None:
    images = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    with pytest.raises(ValueError, match="labels must be int64"):
        Dataset("d", images, torch.zeros(3, dtype=torch.int64), ("a",))
    with pytest.raises(ValueError, match="images must be uint8"):
        Dataset("d", images.double(), torch.zeros(2, dtype=torch.int64), ("a",))
    floats = Dataset("d", images.float() + 0.5, torch.zeros(2, dtype=torch.int64), ("a",))
    assert floats.levels == 1 and float(floats.image(1).max()) == 0.5
