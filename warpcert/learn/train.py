"""Trains a model by its recipe.

Batches and noise are functions of (seed, step): on one machine's CPU, an interrupted and resumed run ends in the same
weights, bit for bit, as one without a break. Checkpoints are safetensors with JSON, written whole or not at all.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from warpcert.classifier import Classifier
from warpcert.classifier.storage import load
from warpcert.learn.checkpoint import CHECKPOINT, append_log, restore, store, trim_log
from warpcert.learn.data import Dataset
from warpcert.learn.losses import attack, disagreement, hardest, likeness, margin_loss, mixed_loss, repeat
from warpcert.learn.photos.pretrained import CLASSES
from warpcert.learn.photos.restricted import restricted
from warpcert.learn.photos.tuning import Folded, blended, centred, cropped, started, taught
from warpcert.learn.proxy import centers_of, plain_proxy, proxy
from warpcert.learn.recipe import Recipe
from warpcert.learn.views import Views, generator
from warpcert.networks.config import LITES
from warpcert.networks.efficientnet import EfficientNetLite
from warpcert.networks.weights import Network, channels_last, restored, stored

__all__ = ["Recipe", "pace", "proxy", "train"]

CHECKPOINT_SECONDS = 30.0
LOG_ROWS = 50


@final
class _Run:
    """The state of a run and its step. Nothing in `advance` waits for the device."""

    def __init__(self, recipe: Recipe, data: Dataset, device: torch.device) -> None:
        held = recipe.validation
        if not 0 <= held < len(data):
            raise ValueError(f"cannot hold out {held} of {len(data)} items for validation; choose fewer")
        data = (
            data.shuffled() if bool((data.labels.diff() >= 0).all()) else data
        )  # class by class: its end is one class
        if recipe.groups and len(data.classes) > len(recipe.groups):
            data = restricted(data)
        if recipe.start in LITES and not recipe.groups:  # it knows all of ImageNet's classes, of which these are some
            more = range(len(data.classes), CLASSES)
            data = replace(data, classes=(*data.classes, *map(str, more)))
        self.recipe, self.device = recipe, device
        self.kept = data.part(0, len(data) - held)
        self.held = data.part(len(data) - held, len(data))
        if recipe.side:
            self.held = replace(self.held, images=centred(self.held.images, recipe.side))
        self.images, self.labels = self.kept.images.to(device), self.kept.labels.to(device)
        self.batch = min(recipe.batch, len(self.kept))
        self.per_epoch = len(self.kept) // self.batch
        self.steps = recipe.steps or max(1, math.ceil(recipe.epochs * self.per_epoch))
        self.views = Views(recipe, device)
        config = recipe.config(_shape(recipe, data), len(recipe.groups) or len(data.classes))
        self.model = channels_last(started(recipe, config).to(device)).train()
        self.net = Folded(self.model) if isinstance(self.model, EfficientNetLite) else self.model
        self.teacher = taught(recipe, config, device)
        self.average = deepcopy(self.model).eval().requires_grad_(False)
        self.averaged = _floats(self.average), _floats(self.model)
        self.optimizer = _optimizer(recipe, self.model)
        self.loss, self.step, self.order = torch.zeros((), device=device), 0, (-1, torch.empty(0))

    def lr(self) -> float:
        share, warm = (self.step + 0.5) / self.steps, self.recipe.warmup
        if share < warm:
            return self.recipe.lr * share / warm
        return self.recipe.lr * 0.5 * (1 + math.cos(math.pi * (share - warm) / max(1 - warm, 1e-9)))

    def epsilon(self) -> float:
        ramp = self.recipe.adv_warmup * self.steps
        return self.recipe.adv_eps * (min(1.0, self.step / ramp) if ramp else 1.0)

    def next_batch(self) -> tuple[Tensor, Tensor]:
        epoch, place = divmod(self.step, self.per_epoch)
        if self.order[0] != epoch:
            shuffle = generator(torch.device("cpu"), self.recipe.seed, "epoch", epoch)
            self.order = (epoch, torch.randperm(len(self.kept), generator=shuffle).to(self.device))
        index = self.order[1][place * self.batch : (place + 1) * self.batch]
        return self.images[index].float() / self.kept.levels, self.labels[index]

    def faster(self) -> AbstractContextManager[Any]:
        """bfloat16 inside the model, where the recipe has it."""
        amp = self.recipe.amp and self.device.type == "cuda"
        return torch.autocast("cuda", torch.bfloat16) if amp else nullcontext()

    def advance(self) -> None:
        """One step. What networks drop at random is a function of the step as well."""
        recipe, draws = self.recipe, self.recipe.draws
        draw = generator(self.device, recipe.seed, "step", self.step)
        x, labels = self.next_batch()
        if recipe.side:
            x = cropped(x, recipe.side, recipe.crop, draw)
        if recipe.mix:
            x, share, other = blended(x, recipe.mix, draw)
        view = self.views(repeat(x, recipe.worst), draw)
        with self.faster(), torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(draw.initial_seed())
            wanted = None if self.teacher is None else self.teacher(x)
            if recipe.worst > 1:
                view = hardest(self.net, view.reshape(recipe.worst, *x.shape), labels)
            noise = self.views.delta(repeat(view, draws), draw)
            if recipe.adv_steps and (eps := self.epsilon()) > 0:
                view = view + attack(self.net, view, noise, labels, eps, recipe.adv_steps)
            logits = self.net(repeat(view, draws) + noise).float()
        if recipe.mix:
            pair = labels.repeat(draws), labels[other].repeat(draws)
            loss = mixed_loss(logits, *pair, share.repeat(draws), recipe.label_smoothing)
        else:
            loss = margin_loss(logits, labels.repeat(draws), recipe)
        if wanted is not None:
            loss = (1 - recipe.distil) * loss + recipe.distil * likeness(logits, wanted)
        if recipe.consistency:
            loss = loss + recipe.consistency * disagreement(logits, draws)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.step += 1
        decay = min(recipe.ema, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(*self.averaged, 1 - decay)
        self.loss += loss.detach()

    @torch.inference_mode()
    def accuracy(self) -> float | None:
        """Of the averaged model on the held-out items, one view with noise each."""
        right, draw = 0, generator(self.device, self.recipe.seed, "validation")
        for start in range(0, len(self.held), 5000):
            part = self.held.part(start, start + 5000)
            view = self.views(part.images.to(self.device).float() / part.levels, draw)
            with self.faster():
                guess = self.average(view + self.views.delta(view, draw)).argmax(1)
            right += int((guess == part.labels.to(self.device)).sum())
        return right / len(self.held) if len(self.held) else None

    def row(self, lr: float, every: int, seconds: float) -> dict[str, Any]:
        """What the log says of the last steps, at most `every`; their loss is counted anew."""
        loss = float(self.loss) / ((self.step - 1) % every + 1)
        self.loss.zero_()
        where = {"step": self.step, "of": self.steps, "epoch": round(self.step / self.per_epoch, 3)}
        return where | {"loss": loss, "lr": lr, "accuracy": self.accuracy(), "seconds": seconds}

    def modules(self) -> dict[str, torch.nn.Module]:
        return {"model": self.model, "average": self.average}


def _optimizer(recipe: Recipe, model: Network) -> torch.optim.Optimizer:
    """Weight decay is for kernels and matrices, not for biases and normalisations."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    fused = parameters[0].is_cuda
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.lr, fused=fused)
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.momentum > 0, fused=fused)


def _shape(recipe: Recipe, data: Dataset) -> tuple[int, ...]:
    """What the model sees."""
    return (data.shape[0], recipe.side, recipe.side) if recipe.side else data.shape


def _floats(model: Network) -> list[Tensor]:
    return [t.detach() for t in model.state_dict().values() if t.is_floating_point()]


@contextmanager
def _between_steps() -> Iterator[threading.Event]:
    """Holds Ctrl-C back until the step is done, so that a checkpoint never shows half a step."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.signal(signal.SIGINT, lambda *_: asked.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _tuned() -> Iterator[None]:
    """Lets cuDNN measure which convolution is fastest, as all batches have one shape."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def train(
    recipe: Recipe,
    data: Dataset,
    device: torch.device | str,
    out: Path,
    *,
    seconds_limit: float | None = None,
    on_step: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Trains on `data`, a training set; writes model.safetensors, result.json, log.jsonl and checkpoint.safetensors.

    Stops after `seconds_limit` seconds of this call, or at Ctrl-C, with a checkpoint that the next call resumes (see
    `checkpoint.forget`). `on_step` receives each row of the log. Returns what result.json holds; "finished": whether
    all steps were made.
    """
    run = _Run(recipe, data, torch.device(device))
    checkpoint, log, before = out / CHECKPOINT, out / "log.jsonl", 0.0
    if checkpoint.is_file():
        progress = restore(checkpoint, recipe, run.modules(), run.optimizer)
        run.step, before = progress["step"], progress["seconds"]
        run.loss.fill_(progress["loss"])
    out.mkdir(parents=True, exist_ok=True)
    row, every = trim_log(log, run.step), max(1, run.steps // LOG_ROWS)
    began = saved = time.monotonic()

    def keep() -> None:
        progress = {"step": run.step, "seconds": before + time.monotonic() - began, "loss": float(run.loss)}
        store(checkpoint, recipe, run.modules(), run.optimizer, progress)

    with _between_steps() as asked, _tuned():
        while run.step < run.steps:
            lr = run.lr()
            run.advance()
            if run.step % every == 0 or run.step == run.steps:
                row = run.row(lr, every, before + time.monotonic() - began)
                append_log(log, row)
                if on_step:
                    on_step(row)
            now = time.monotonic()
            if asked.is_set():
                keep()
                raise KeyboardInterrupt
            if now - saved > CHECKPOINT_SECONDS:
                keep()
                saved = time.monotonic()
            if seconds_limit is not None and now - began > seconds_limit:
                break
    keep()
    return _finish(run, out, row, before + time.monotonic() - began)


def pace(recipe: Recipe, data: Dataset, device: torch.device | str, steps: int = 20) -> float:
    """Seconds per step, measured on the device; what is learnt meanwhile is thrown away."""
    run = _Run(recipe, data, torch.device(device))
    run.steps, began = 2 * steps + 10, 0.0
    with _tuned():
        for step in range(steps + 5):
            if step == 5:  # by now it has found its convolutions
                float(run.loss)
                began = time.perf_counter()
            run.advance()
        float(run.loss)
    return (time.perf_counter() - began) / steps


def _finish(run: _Run, out: Path, row: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Writes the weights and the result; what is reported of the model is said of the file that was written."""
    recipe, path = run.recipe, out / "model.safetensors"
    network = restored(run.average.config, stored(run.average))
    recipe.classifier(network, run.kept.classes, step=run.step, of=run.steps).save(path)
    deployed = load(path)
    result = {"finished": run.step == run.steps, "step": run.step, "of": run.steps, "seconds": seconds, "last": row}
    result |= {"parameters": sum(p.numel() for p in deployed.parameters()), "fingerprint": deployed.fingerprint}
    result |= {"torch": torch.__version__, "device": run.device.type, "recipe": recipe.to_dict()}
    if run.device.type == "cuda" and len(run.held):
        result["proxy"] = _proxy(recipe, deployed, run.held, run.device)
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _proxy(recipe: Recipe, deployed: Classifier, held: Dataset, device: torch.device) -> dict[str, Any]:
    """A quick look at the classifier as the recipe means it to be deployed."""
    deployed, threat = deployed.to(device), recipe.threat()
    if deployed.noise:
        meant = recipe.defence()
        defence = replace(deployed.defence(threat.transform), reference=meant.reference)
        defence = replace(defence, preprocess=meant.preprocess) if recipe.halved else defence  # of pictures as held
        return proxy(deployed.logits, defence, held, device, 200, centers_of(threat.box))
    return plain_proxy(deployed, threat, held, device)
