"""Photographs with labels: archives, Restricted ImageNet, crops, and training that goes on from a network."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from warpcert.app.cli.case import open_case
from warpcert.app.cli.main import build_parser
from warpcert.classifier import Smoothed, storage
from warpcert.classifier.before.mosaic import Mosaic
from warpcert.learn import data
from warpcert.learn.losses import mixed_loss
from warpcert.learn.photos import pretrained
from warpcert.learn.photos.archive import Archive, square
from warpcert.learn.photos.restricted import GROUPS, restricted
from warpcert.learn.photos.tuning import Folded, blended, centred, cropped
from warpcert.learn.recipe import Recipe
from warpcert.learn.train import pace, train
from warpcert.networks.config import ModelConfig
from warpcert.networks.efficientnet import EfficientNetLite
from warpcert.networks.weights import build, fused
from warpcert.transforms import Preprocess

torch.set_num_threads(1)
CONFIG = ModelConfig((3, 32, 32), 4, family="efficientnet-lite0", mean=(0.5,), std=(0.5,))


def photo(width: int, height: int, seed: int = 0, kind: str = "PNG", orientation: int = 1) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(file, kind, exif=exif)
    return file.getvalue()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("labels.csv", "file,label\nb.png,3\na.jpg,0\nc.webp,151\n")
        file.writestr("some/a.jpg", photo(300, 280, 1, "JPEG"))
        file.writestr("some/b.png", photo(256, 300, 2))
        file.writestr("c.webp", photo(270, 256, 3, "WEBP"))
    return path


@pytest.mark.parametrize("halved", [False, True])
def test_a_classifier_that_halves_is_given_twice_the_side(archive: Path, tmp_path: Path, halved: bool) -> None:
    config = ModelConfig((3, 224, 224), 1000, family="efficientnet-lite0", mean=(0.5,), std=(0.5,))
    network = fused(build(config, 0))
    net = Smoothed(network, noise=0.1, over={"rotation": 30}, preprocess=Preprocess("circle", halved=halved))
    net.save(tmp_path / "net.safetensors")
    words = ["certify", "--model", str(tmp_path / "net.safetensors"), "--data", str(archive), "--count", "2"]
    case = open_case(build_parser().parse_args([*words, "--threat", "rotation=1"]))
    side = 448 if halved else 224
    assert case.dataset.shape == (3, side, side) and case.indices == range(2)
    assert torch.equal(case.dataset.images[1], Archive(archive).picture(1, side * 256 // 224, side))
    assert case.classifier.preprocess(case.image(0)[None]).shape == (1, 3, 224, 224)


def test_a_zip_file_and_its_folder_read_alike(archive: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / "photos")
    zipped, folder, named = data.load(archive), data.load(tmp_path / "photos"), data.load("photos", "test", tmp_path)
    assert zipped.shape == (3, 224, 224) and zipped.labels.tolist() == [3, 0, 151] and len(zipped.classes) == 152
    assert torch.equal(zipped.images, folder.images) and torch.equal(zipped.images, named.images)
    whole = data.load(archive, "train")
    assert whole.shape == (3, 256, 256) and torch.equal(centred(whole.images, 224), zipped.images)


def test_what_needs_no_scaling_is_cut_out_as_it_is() -> None:
    raw = photo(256, 300)
    with Image.open(io.BytesIO(raw)) as opened:
        pixels = torch.from_numpy(np.asarray(opened).copy()).permute(2, 0, 1)
    assert torch.equal(square(raw), pixels[:, 38:262, 16:240])
    assert square(raw, 512, 512).shape == (3, 512, 512)
    turned = photo(256, 300, orientation=6)
    assert torch.equal(square(turned), square(raw).rot90(-1, (1, 2)))


def test_what_a_photograph_would_lose_is_refused() -> None:
    """As for other pictures: 16 bits per channel, and transparency; an opaque fourth channel is none."""
    pixels = np.random.default_rng(0).integers(0, 256, (300, 300, 4), dtype=np.uint8)

    def saved(values: np.ndarray[Any, Any], kind: str = "PNG") -> bytes:
        file = io.BytesIO()
        Image.fromarray(values).save(file, kind, lossless=True)
        return file.getvalue()

    for raw in (saved(pixels), saved(pixels, "WEBP"), saved(pixels[..., [0, 3]])):
        with pytest.raises(ValueError, match="transparent in places"):
            square(raw)
    with pytest.raises(ValueError, match="16 bits per channel"):
        square(saved(pixels[..., 0].astype(np.uint16) * 200))
    solid = pixels.copy()
    solid[..., 3] = 255
    assert torch.equal(square(saved(solid)), square(saved(solid[..., :3].copy())))


def test_broken_archives_are_explained(archive: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "no.zip", "w") as file:
        file.writestr("a.png", photo(4, 4))
    with pytest.raises(ValueError, match=r"holds no labels\.csv"):
        Archive(tmp_path / "no.zip")
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("more/labels.csv", "")
    for lines, why in (("file,label\nx.png,0\n", "lists x.png"), ("picture,label\n", "no picture"), ("", "no picture"),
                       ("a,b\nc,1\n", "file,label"), ("file,label\na.png,one\n", "one"),
                       ("file,label\na.png,-1\n", "negative")):  # fmt: skip
        (tmp_path / "labels.csv").write_text(lines)
        (tmp_path / "a.png").write_bytes(b"no picture")
        with pytest.raises(ValueError, match=why):
            Archive(tmp_path)
    (tmp_path / "labels.csv").write_text("file,label\na.png,0\n")
    with pytest.raises(ValueError, match=r"a\.png is not a whole"):
        data.load(tmp_path)
    with pytest.raises(ValueError, match="must fit"):
        square(photo(4, 4), 3, 4)


def test_restricted_imagenet_keeps_the_classes_of_its_groups() -> None:
    labels = torch.tensor([0, 30, 151, 268, 269, 281, 319, 320, 999])
    images = torch.arange(9, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 3, 2, 2).contiguous()
    kept = restricted(data.Dataset("all", images, labels, tuple(map(str, range(1000)))))
    assert kept.images[:, 0, 0, 0].tolist() == [1, 2, 3, 5, 6]
    assert [kept.classes[i] for i in kept.labels] == ["frog", "dog", "dog", "cat", "insect"]
    assert sum(last - first + 1 for first, last in GROUPS.values()) == 203
    with pytest.raises(ValueError, match="no picture of a class"):
        restricted(data.Dataset("none", images[:1], labels[:1], ("0",)))


def test_crops_are_parts_of_the_picture() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (64, 3, 20, 20), generator=draw).float() / 255
    seen = cropped(x, 12, 0.5, draw)
    parts = x.unfold(2, 12, 1).unfold(3, 12, 1)  # [64,3,9,9,12,12]
    same = [bool(((parts[i] - seen[i][:, None, None]).abs().amax((0, 3, 4)) < 1e-6).any()) for i in range(64)]
    assert 16 < sum(same) < 48  # about half of them are cut out as they are
    assert torch.equal((seen * 255).round() / 255, seen) and float(seen.min()) >= 0 and float(seen.max()) <= 1
    flat = torch.full((4, 3, 20, 20), 0.6)
    assert torch.equal(cropped(flat, 12, 0.1, draw), flat[..., :12, :12])
    with pytest.raises(ValueError, match="no square of 21"):
        centred(x, 21)


def test_blends_are_known_by_their_shares() -> None:
    draw = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (200, 1, 2, 2), generator=draw).float() / 255
    seen, share, other = blended(x, 0.4, draw)
    wanted = share[:, None, None, None] * x + (1 - share[:, None, None, None]) * x[other]
    assert float((seen - wanted).abs().max()) <= 0.5 / 255 + 1e-6
    assert 60 <= int((share < 1).sum()) <= 100 and torch.equal(other.sort().values, torch.arange(200))
    logits, labels = torch.randn(5, 3, generator=draw), torch.tensor([0, 1, 2, 0, 1])
    others, part = labels.roll(1), torch.rand(5, generator=draw)
    soft = part[:, None] * torch.eye(3)[labels] + (1 - part[:, None]) * torch.eye(3)[others]
    plain = torch.nn.functional.cross_entropy(logits, soft)
    torch.testing.assert_close(mixed_loss(logits, labels, others, part, 0.0), plain)


def test_a_folded_network_is_the_network_and_trains_it() -> None:
    model = build(CONFIG, 1)
    assert isinstance(model, EfficientNetLite)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2), module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
            torch.nn.init.uniform_(module.weight, 0.5, 1.5), torch.nn.init.uniform_(module.bias, -0.2, 0.2)
    x, folded = torch.rand(3, 3, 32, 32), Folded(model)
    loss = model.eval()(x).square().sum()
    wanted = torch.autograd.grad(loss, list(model.parameters()))
    found = torch.autograd.grad(folded(x).square().sum(), list(model.parameters()))
    assert torch.allclose(folded(x), model(x), atol=1e-4)
    for a, b in zip(wanted, found, strict=True):
        assert torch.allclose(a, b, rtol=1e-2, atol=1e-3 * float(a.abs().max()))
    deployed = fused(model)
    assert isinstance(deployed, EfficientNetLite)
    assert torch.equal(Folded(deployed)(x), deployed(x))


RECIPE = {
    "name": "tiny", "dataset": "photos", "family": "efficientnet-lite0", "mean": [0.5], "std": [0.5], "side": 32,
    "luma": 2, "levels": 32, "noise": 0, "sigma": [0], "gamma": [32], "attacked": 1.0, "rounded": False, "flip": True,
    "batch": 4, "steps": 2, "validation": 2, "optimizer": "adamw", "lr": 1e-3,
}  # fmt: skip


def test_tuning_starts_from_a_file_learns_from_it_and_keeps_the_stem(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (10, 3, 40, 40), dtype=torch.uint8, generator=draw)
    pictures = data.Dataset("photos", pixels, torch.arange(10) % 3, ("a", "b", "c"))
    train(Recipe.from_dict(RECIPE), pictures, "cpu", tmp_path / "first")
    path = str(tmp_path / "first" / "model.safetensors")
    recipe = Recipe.from_dict(RECIPE | {"start": path, "teacher": path, "distil": 0.7, "mix": 0.5})
    assert pace(recipe, pictures, "cpu", 1) > 0
    train(recipe, pictures, "cpu", tmp_path / "second")
    net = storage.load(tmp_path / "second" / "model.safetensors")
    assert net.facts["sees"]["luma"] == 2 and net.step == 32 and net.usual_method == "exact"
    still = Recipe.from_dict(RECIPE | {"start": path, "lr": 1e-12, "steps": 1, "warmup": 0})
    train(still, pictures, "cpu", tmp_path / "third")
    x = centred(pixels, 32).float() / 255
    assert torch.allclose(storage.load(tmp_path / "third" / "model.safetensors")(x), storage.load(path)(x), atol=1e-3)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"levels": 0}, "a stem or a mosaic"),
        ({"vignette": "circle"}, "a stem or a mosaic"),
        ({"distil": 0.5}, "needs a teacher"),
        ({"mix": 0.5}, "need distillation"),
        ({"family": "resnet", "start": "x.safetensors"}, "only"),
    ],
)
def test_recipes_that_make_no_sense(change: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Recipe.from_dict(RECIPE | change)


def test_the_page_about_photographs_runs(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With weights that nobody trained, and less time."""
    text = (Path(__file__).parents[2] / "docs" / "photographs.md").read_text(encoding="utf-8")
    network = build(pretrained.pretrained_config("efficientnet-lite0"), 0)
    monkeypatch.setattr(pretrained, "pretrained", lambda family: network.eval())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photo.jpg").write_bytes(photo(300, 280, 1, "JPEG"))
    archive.rename(tmp_path / "photographs.zip")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        assert "time_limit=60" in block or "restricted" in block
        exec(compile(block.replace("time_limit=60", "time_limit=1"), "photographs.md", "exec"), names)
    assert names["certificate"].kind.value in capsys.readouterr().out.lower() and names["net"].sees == Mosaic()
    assert names["groups"].labels.tolist() == [0]
