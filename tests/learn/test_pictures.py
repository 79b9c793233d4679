"""Pictures come in as they are, or not at all: depth, orientation, transparency, palettes, sizes, bombs."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import warpcert as wc
from warpcert.learn import pictures, readers

GREY, COLOUR = (1, 2, 3), (3, 2, 3)
VALUES = np.arange(0, 60, 10, dtype=np.uint8).reshape(2, 3)


def file(raster: Image.Image, kind: str = "PNG", **more: Any) -> bytes:
    out = io.BytesIO()
    raster.save(out, kind, **more)
    return out.getvalue()


def oriented(way: int, values: np.ndarray[Any, Any]) -> bytes:
    exif = Image.Exif()
    exif[pictures.ORIENTATION] = way
    return file(Image.fromarray(values), exif=exif)


def sixteen(channels: int) -> bytes:
    """A PNG of 16 bits per channel, written by hand: Pillow writes none in colour."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    kind = {1: 0, 3: 2}[channels]
    rows = b"".join(b"\0" + struct.pack(f">{3 * channels}H", *[40_000] * 3 * channels) for _ in range(2))
    head = struct.pack(">IIBBBBB", 3, 2, 16, kind, 0, 0, 0)
    return pictures.PNG + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_what_is_exact_is_kept() -> None:
    """Grey, colour, palette, opaque alpha, one bit: the same 8-bit values, whatever the file's dress."""
    grey = Image.fromarray(VALUES)
    wanted = torch.from_numpy(VALUES)[None]
    dressed = [grey, grey.convert("RGB"), grey.convert("P"), grey.convert("LA"), grey.convert("RGBA")]
    for raster in dressed:
        found = pictures.decode(file(raster), GREY)
        assert torch.equal(found.levels, wanted) and found.notes == ()
        assert torch.equal(pictures.decode(file(raster), COLOUR).levels, wanted.expand(3, 2, 3))
    bits = Image.fromarray(VALUES > 20).convert("1")
    assert torch.equal(pictures.decode(file(bits), GREY).levels[0], torch.from_numpy(VALUES > 20) * 255)
    x = torch.arange(256).reshape(1, 16, 16).float() / 255
    assert torch.equal(pictures.decode(pictures.encode(x)).image, x)


@pytest.mark.parametrize("way", range(1, 9))
def test_exif_orientation_is_applied(way: int) -> None:
    """As Pillow's own rule for photographs has it, in size and in values."""
    from PIL import ImageOps

    raw = oriented(way, VALUES)
    wanted = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(raw))))
    found = pictures.decode(raw, (1, *wanted.shape))
    assert torch.equal(found.levels[0], torch.from_numpy(wanted.copy()))
    assert bool(found.notes) == (way > 1)
    if wanted.shape != VALUES.shape:
        with pytest.raises(ValueError, match="is 2×3, but the classifier takes 3×2"):
            pictures.decode(raw, GREY)


see_through = Image.fromarray(np.dstack([VALUES, VALUES, VALUES, np.full_like(VALUES, 128)]), "RGBA")
keyed = file(Image.fromarray(VALUES), transparency=20)


@pytest.mark.parametrize(
    ("raw", "shape", "why"),
    [
        (sixteen(1), GREY, "16 bits per channel: save it with 8"),
        (sixteen(3), COLOUR, "16 bits per channel: save it with 8"),
        (file(Image.fromarray(VALUES.astype(np.uint16) * 257)), GREY, "16 bits per channel"),
        (file(see_through), COLOUR, "transparent in places: put it on a background"),
        (file(see_through.convert("LA")), GREY, "transparent in places"),
        (keyed, GREY, "transparent in places"),
        (file(Image.new("CMYK", (3, 2)), "JPEG"), COLOUR, "mode CMYK"),
        (file(Image.new("RGB", (3, 2), "red")), GREY, "in colour, but the classifier takes grey"),
        (file(Image.new("L", (4, 2))), GREY, "is 4×2, but the classifier takes 3×2"),
        (file(Image.new("L", (3, 2)), "GIF"), GREY, "not a whole PNG or JPEG"),
        (file(Image.fromarray(VALUES))[:-30], GREY, "not a whole PNG or JPEG"),
        (b"", GREY, "not a whole PNG or JPEG"),
    ],
)
def test_what_cannot_be_kept_is_refused(raw: bytes, shape: tuple[int, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        pictures.decode(raw, shape)


@pytest.mark.parametrize(
    ("side", "why"), [(5000, "5000×5000 pixels; at most"), (12_000, "far more"), (60_000, "far more")]
)
def test_a_bomb_is_refused_from_its_header(side: int, why: str, tmp_path: Path) -> None:
    """One sentence, from a file and from a folder, and nothing is unpacked."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    raw = pictures.PNG + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(9000))) + chunk(b"IEND", b"")
    for asked in (pictures.decode, lambda raw: pictures.fitted(raw, GREY)):
        with pytest.raises(ValueError, match=why):
            asked(raw)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "bomb.png").write_bytes(raw)
    with pytest.raises(ValueError, match=why):
        pictures.read_picture(tmp_path / "cat" / "bomb.png")
    with pytest.raises(ValueError, match=why):
        readers.read_folder(tmp_path)


def test_fitting_says_what_it_did() -> None:
    exact = pictures.fitted(file(Image.fromarray(VALUES)), GREY)
    assert torch.equal(exact.levels[0], torch.from_numpy(VALUES)) and exact.notes == ()
    photo = Image.new("RGBA", (300, 100), (200, 0, 0, 255))
    photo.putpixel((0, 0), (255, 255, 255, 0))
    found = pictures.fitted(file(photo), (1, 28, 28))
    assert found.levels.shape == (1, 28, 28) and found.notes == (
        "put on black where it is transparent",
        "made grey",
        "cut and resized from 300×100 to 28×28 pixels",
    )
    assert int(found.levels[0, 14, 14]) == 60  # red, as its brightness
    half = Image.fromarray(np.dstack([VALUES, VALUES, VALUES, np.full_like(VALUES, 128)]), "RGBA")
    levels = pictures.fitted(file(half), COLOUR).levels[0]
    assert int((levels.short() - torch.from_numpy(VALUES // 2).short()).abs().max()) <= 1
    turned = pictures.fitted(oriented(6, VALUES), (1, 3, 2))
    assert torch.equal(turned.levels[0], torch.from_numpy(np.rot90(VALUES, -1).copy())) and len(turned.notes) == 1
    with pytest.raises(ValueError, match="16 bits"):
        pictures.fitted(sixteen(3), COLOUR)


def test_folders_read_the_same_way(tmp_path: Path) -> None:
    for name, raw in (("a.png", oriented(3, VALUES)), ("b.png", file(Image.fromarray(VALUES).convert("RGB")))):
        (tmp_path / "cat").mkdir(exist_ok=True)
        (tmp_path / "cat" / name).write_bytes(raw)
    images, labels, classes = readers.read_folder(tmp_path)
    assert images.shape == (2, 3, 2, 3) and labels.tolist() == [0, 0] and classes == ("cat",)
    assert (images[0] == VALUES[::-1, ::-1]).all()
    (tmp_path / "cat" / "c.png").write_bytes(sixteen(1))
    with pytest.raises(ValueError, match=r"c\.png has 16 bits"):
        readers.read_folder(tmp_path)


def test_channels_that_come_last_are_named() -> None:
    model = wc.Plain(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(28 * 28 * 3, 2)).eval())
    with pytest.raises(ValueError, match=r"rows, columns, channels; channels come first: x\.permute\(2, 0, 1\)"):
        model.certify(torch.zeros(28, 28, 3), wc.Threat.rotation(3))
