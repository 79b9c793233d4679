"""Packs pictures to train on into one archive: `python -m benchmarks.gather OUT.zip SOURCE … [--megabytes 60]`.

A source is a folder of JPEG, PNG or WebP files, with folders in it, or an archive with labels.csv (see
docs/photographs.md). Each picture is scaled to a short side of 256 and its middle 256×256 kept, as WebP. Pictures
without a label get the answer of the network that will teach, so that a recipe with distillation can use all of them.
Sources are taken in their order, each shuffled, until the archive is full.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image

from warpcert.learn.photos.archive import LABELS, SHORT, Archive, square
from warpcert.learn.photos.pretrained import pretrained
from warpcert.learn.photos.tuning import centred
from warpcert.networks.weights import fused

KINDS = {".jpg", ".jpeg", ".png", ".webp"}


def found(source: Path, seed: int) -> Iterator[tuple[torch.Tensor, int | None]]:
    """Pictures [3,256,256] with their labels, where they have one; what cannot be read is passed over."""
    draw = random.Random(seed)
    if source.suffix == ".zip" or (source / LABELS).is_file():
        archive = Archive(source)
        for index in draw.sample(range(len(archive)), len(archive)):
            yield archive.picture(index, SHORT, SHORT), archive.items[index][1]
        return
    files = sorted(p for p in source.rglob("*") if p.suffix.lower() in KINDS)
    if not files:
        raise SystemExit(f"{source} holds neither pictures nor {LABELS}")
    for path in draw.sample(files, len(files)):
        try:
            yield square(path.read_bytes(), SHORT, SHORT), None
        except ValueError as error:
            print(f"{path}: {error}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--megabytes", type=float, default=60)
    parser.add_argument("--quality", type=int, default=75, help="of WebP")
    parser.add_argument("--teacher", default="efficientnet-lite0")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    teacher, rows, size = fused(pretrained(args.teacher)), list[tuple[str, int]](), 0
    with zipfile.ZipFile(args.out, "w") as archive, torch.inference_mode():
        for source in args.sources:
            for pixels, label in found(source, args.seed):
                packed = io.BytesIO()
                Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(packed, "WEBP", quality=args.quality)
                if (size := size + packed.tell() + 200) > args.megabytes * 1e6:
                    break
                if label is None:
                    label = int(teacher(centred(pixels[None], 224).float() / 255).argmax())
                rows.append((f"{len(rows):06d}.webp", label))
                archive.writestr(rows[-1][0], packed.getvalue())
            print(f"{source}: {len(rows)} pictures so far, {size / 1e6:.1f} MB", flush=True)
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([("file", "label"), *rows])
        archive.writestr(LABELS, table.getvalue())


if __name__ == "__main__":
    main()
