"""Training: it learns, it repeats itself, and an interruption leaves no trace in the weights."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest
import torch

import warpcert as wc
from warpcert.app.cli import main
from warpcert.classifier.before.rounding import coarsened
from warpcert.learn.checkpoint import forget, restore
from warpcert.learn.data import Dataset
from warpcert.learn.losses import attack, disagreement, hardest
from warpcert.learn.proxy import centers_of, plain_proxy, proxy
from warpcert.learn.recipe import Recipe
from warpcert.learn.train import _proxy, _Run, train
from warpcert.learn.views import Views, generator
from warpcert.networks.weights import build
from warpcert.transforms import ReflectedShifts

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
BASE = {
    "name": "tiny",
    "dataset": "dots",
    "width": 4,
    "blocks": [1],
    "stem_kernel": 3,
    "head": "flatten",
    "sigma": 10,
    "noise": 0.1,
    "vignette": "circle",
    "blur_sigma": 1.0,
    "blur_size": 3,
    "gamma": 20,
    "batch": 32,
    "steps": 40,
    "lr": 0.1,
    "ema": 0.8,
    "validation": 60,
    "adv_steps": 1,
    "adv_eps": 0.2,
}
PLAIN = {"sigma": 0, "noise": 0, "vignette": "none", "blur_sigma": 0, "blur_size": 1, "adv_steps": 0}


def dots(count: int = 300) -> Dataset:
    """A bright disc left, right or in the middle of a dark picture."""
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (count,), generator=g)
    x = torch.arange(12.0)
    centre = (3 + 2.5 * labels)[:, None]
    disc = (-((x[None, :, None] - 5.5) ** 2) / 4 - (x - centre)[:, None, :] ** 2 / 4).exp()
    images = (disc * 200 + 20 * torch.rand(disc.shape, generator=g)).byte()[:, None]
    return Dataset("dots", images, labels, ("left", "middle", "right"))


def rows(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_learns(tmp_path: Path) -> None:
    recipe = Recipe.from_dict(BASE)
    result = train(recipe, dots(), "cpu", tmp_path)
    log = rows(tmp_path)
    assert result["finished"] and result["step"] == 40 and len(log) == 40
    assert log[-1]["loss"] < 0.7 * log[0]["loss"] and log[-1]["accuracy"] > 0.7
    made = wc.load(str(tmp_path / "model.safetensors"))
    assert result["fingerprint"] == made.fingerprint and made.classes == dots().classes
    assert made.about.notes == {"recipe": "tiny", "dataset": "dots", "step": 40, "of": 40}
    assert made.own_defence == recipe.defence() and made.threat == wc.Threat.rotation(20) and made.method == "dist-x"
    votes = proxy(made.logits, recipe.defence(), dots(), CPU, 20, centers_of(recipe.box()))
    assert len(votes["centers"]) == 5 and votes["centers"][2]["center"] == [0.0]
    assert votes["centers"][2]["voted"] > 0.8 and votes["centers"][0]["center"][0] == pytest.approx(-20)
    assert 0 <= votes["worst_reaches"]["0.99"] <= votes["worst_reaches"]["0.5"] <= 1
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "adamw", "lr": 0.01, "draws": 2, "consistency": 1.0, "adv_steps": 2, "worst": 3},
        {"front": "standard", "levels": 8},
    ],
)
def test_resume_is_exact(tmp_path: Path, changes: dict) -> None:
    more = {"steps": 14, "flip": True, "shift": 1, "cutout": 2, "label_smoothing": 0.1}
    recipe = Recipe.from_dict(BASE | more | changes)
    whole = train(recipe, dots(), "cpu", tmp_path / "whole")

    def interrupt(row: dict) -> None:
        if row["step"] in (5, 9):
            signal.raise_signal(signal.SIGINT)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, dots(), "cpu", tmp_path / "parts", on_step=interrupt)
    with (tmp_path / "parts" / "log.jsonl").open("a") as log:  # as after a crash
        log.write('{"step": 12}\n{"step": 13, "lo')
    last = train(recipe, dots(), "cpu", tmp_path / "parts")
    assert last["fingerprint"] == whole["fingerprint"]
    drop = lambda row: {k: v for k, v in row.items() if k != "seconds"}  # noqa: E731
    assert [drop(r) for r in rows(tmp_path / "parts")] == [drop(r) for r in rows(tmp_path / "whole")]
    again = train(recipe, dots(), "cpu", tmp_path / "parts")  # nothing is left to do
    assert again["fingerprint"] == whole["fingerprint"] and again["last"]["step"] == 14


def test_a_restored_state_is_laid_out_like_the_weights(tmp_path: Path) -> None:
    """Fused optimizers, as on CUDA, refuse a momentum whose strides are not those of its weights."""
    recipe = Recipe.from_dict(BASE | {"dataset": "dots"})
    train(recipe.override(["steps=2"]), dots(), "cpu", tmp_path)
    run = _Run(recipe.override(["steps=2"]), dots(), CPU)
    restore(tmp_path / "checkpoint.safetensors", run.recipe, run.modules(), run.optimizer)
    layouts = [(p.stride(), s["momentum_buffer"].stride()) for p, s in run.optimizer.state.items()]
    assert layouts and all(weights == momentum for weights, momentum in layouts)
    assert any(p.dim() == 4 and not p.is_contiguous() for p in run.optimizer.state)


def test_seeds_and_limits(tmp_path: Path) -> None:
    recipe = Recipe.from_dict(BASE | {"steps": 3})
    prints = [
        train(r, dots(), "cpu", tmp_path / str(i))["fingerprint"]
        for i, r in enumerate((recipe, recipe, recipe.override(["seed=1"])))
    ]
    assert prints[0] == prints[1] != prints[2]
    short = train(recipe, dots(), "cpu", tmp_path / "short", seconds_limit=0)
    assert not short["finished"] and short["step"] == 1
    with pytest.raises(ValueError, match="a different seed"):
        train(recipe.override(["seed=5"]), dots(), "cpu", tmp_path / "short")
    forget(tmp_path / "short")
    other = train(recipe.override(["seed=1"]), dots(), "cpu", tmp_path / "short")
    assert other["fingerprint"] == prints[2]
    with pytest.raises(ValueError, match="hold out 60 of 50"):
        train(recipe, dots(50), "cpu", tmp_path / "few")


def test_sorted_sets_are_shuffled_before_items_are_held_out(tmp_path: Path) -> None:
    data = dots()
    order = data.labels.argsort()
    by_class = Dataset("dots", data.images[order], data.labels[order], data.classes)
    run = _Run(Recipe.from_dict(BASE), by_class, CPU)
    assert len(run.held) == 60 and len(run.kept) == 240 and run.held.labels.unique().tolist() == [0, 1, 2]
    plain = _Run(Recipe.from_dict(BASE), data, CPU)
    assert torch.equal(plain.held.images, data.images[240:])


def test_other_threads_may_train(tmp_path: Path) -> None:
    done: list[dict] = []
    recipe = Recipe.from_dict(BASE | {"steps": 1})
    thread = threading.Thread(target=lambda: done.append(train(recipe, dots(), "cpu", tmp_path)))
    thread.start()
    thread.join()
    assert done and done[0]["finished"]


def test_views_are_the_defence() -> None:
    """With σ = 0 noise multiplied away and Γ = {0}, a view is P T_0 x; P is the one of Preprocess."""
    recipe = Recipe.from_dict(BASE | {"gamma": 0, "spread": 1e-12, "attacked": 0.5})
    x = dots(8).images.float() / 255
    views = Views(recipe, CPU)
    expected = recipe.defence().view(x, torch.zeros(8, 1))
    assert torch.allclose(views(x, generator(CPU, 0)), expected, atol=1e-5)
    wide = Views(recipe.override(["gamma=20", "spread=1"]), CPU)
    assert torch.equal(wide(x, generator(CPU, 0)), wide(x, generator(CPU, 0)))
    assert not torch.equal(wide(x, generator(CPU, 0)), wide(x, generator(CPU, 1)))


@pytest.mark.parametrize("changes", [{}, PLAIN | {"attacked": 1}, PLAIN | {"attacked": 0.5}])
def test_views_at_levels_are_what_a_classifier_behind_levels_sees(changes: dict) -> None:
    recipe, x = Recipe.from_dict(BASE | changes), dots(8).images.float() / 255
    plain = Views(recipe, CPU)(x, generator(CPU, 0))
    for step in (1, 16, 64):
        views = Views(recipe.override([f"levels={step}"]), CPU)
        seen = views(x, generator(CPU, 0))
        assert torch.equal(seen, coarsened(plain, step)) and seen.dtype == torch.float32
        assert torch.equal(coarsened(seen, step), seen) and not seen.requires_grad
        assert len((255 * seen).round().unique()) <= 255 // step + 2
        assert torch.equal(views.delta(seen, generator(CPU, 1)), Views(recipe, CPU).delta(plain, generator(CPU, 1)))


def test_views_are_what_an_attacker_can_choose() -> None:
    """Shifts are whole and lie in their disc, whose rim is reached."""
    recipe = Recipe.from_dict(BASE | PLAIN | {"transform": "reflected-shifts", "gamma": 3, "attacked": 1})
    x = dots(1).images.float() / 255
    moved = wc.Threat.shifts(3, "reflected").attacked(x[0], shifts := ReflectedShifts().points(recipe.box()))
    seen = Views(recipe, CPU)(x.expand(400, 1, 12, 12), generator(CPU, 0))
    same = (seen[:, None] == moved).flatten(2).all(2)
    assert bool(same.any(1).all()) and bool(same[:, shifts.norm(dim=1) == 3].any())


def test_views_behind_a_front(tmp_path: Path) -> None:
    """Whatever brightness does last is not seen in training either, and the front is deployed."""
    changes = {"transform": "rotation then brightness", "gamma": (20, 0.3), "before": "grounded", "levels": 8}
    recipe = Recipe.from_dict(BASE | PLAIN | changes | {"attacked": 1, "rounded": False, "steps": 2})
    dark, x = recipe.override(["gamma=[20, 0]"]), dots(8).images.float() / 255
    one, other = (Views(r, CPU)(x, generator(CPU, 0)) for r in (recipe, dark))
    assert float((one - other).abs().max()) <= 8.01 / 255 and float((one != other).float().mean()) < 0.01
    train(recipe, dots(), "cpu", tmp_path)
    made = wc.load(str(tmp_path / "model.safetensors"))
    assert made.front == "grounded" and made.threat == wc.Threat.rotation(20, quantized=False).then(brightness=0.3)
    with pytest.raises(ValueError, match="does not stand before levels"):
        recipe.override(["before=centred"])
    with pytest.raises(ValueError, match="does not stand before noise"):
        recipe.override(["levels=0"])


def test_training_at_levels(tmp_path: Path) -> None:
    """It learns, and the quick look is at the classifier that is deployed, behind levels."""
    recipe = Recipe.from_dict(BASE | PLAIN | {"attacked": 1, "levels": 64})
    result = train(recipe, dots(), "cpu", tmp_path / "levels")
    assert result["last"]["accuracy"] > 0.7 and result["recipe"]["levels"] == 64
    fine = recipe.override(["levels=0"])
    assert train(fine, dots(), "cpu", tmp_path / "fine")["fingerprint"] != result["fingerprint"]
    made, held = wc.load(str(tmp_path / "levels" / "model.safetensors")), dots().part(0, 60)
    assert made.kind == "levels" and made.step == 64
    plain = wc.Plain(made.network)
    recipe, fine = (r.override(["gamma=60"]) for r in (recipe, fine))  # hard enough for margins to fail
    seen, unseen = (plain_proxy(f, recipe.threat(), held, CPU) for f in (wc.Levels(made.network, 64), plain))
    assert _proxy(recipe, made, held, CPU) == seen != unseen == _proxy(fine, plain, held, CPU)


def test_recipes_say_how_their_model_is_deployed() -> None:
    """Training sees one thing and deployment is another where a recipe says so; unknown words are refused."""
    recipe = Recipe.from_dict(BASE | PLAIN)
    assert recipe.facts()["kind"] == "plain" and recipe.threat() == wc.Threat.rotation(20)
    behind = recipe.override(["step=8", "precision=half", "pixels=unrounded", "withstands=10"])
    assert behind.facts() == {"kind": "levels", "step": 8, "precision": "half"}
    assert behind.threat() == wc.Threat.rotation(10, quantized=False)
    assert behind.rounded and behind.levels == 0 and behind.box() == recipe.box()
    smoothed = Recipe.from_dict(BASE | {"turned_by": "bicubic-0.5", "method": "indiv", "settings": {"betas": 50}})
    made = smoothed.classifier(build(smoothed.config((1, 12, 12), 3)), ("a", "b", "c"))
    assert made.interpolation == "bicubic-0.5" != smoothed.defence().interpolation
    assert made.method == "indiv" and made.settings == {"betas": 50}
    for setting, message in (("pixels=8-bit", "rounded, unrounded"), ("step=12", "power of two")):
        with pytest.raises(ValueError, match=message):
            recipe.override([setting])


def test_cutout_blanks_one_square() -> None:
    recipe = Recipe.from_dict(BASE | PLAIN | {"gamma": 0, "attacked": 1, "cutout": 4})
    view = Views(recipe, CPU)(torch.ones(200, 1, 12, 12), generator(CPU, 1))
    blank = view == 0
    rows, columns = blank.any(3).sum((1, 2)), blank.any(2).sum((1, 2))
    assert bool(((view == 0) | (view == 1)).all()) and int(rows.max()) == 4 == int(columns.max())
    assert bool((blank.flatten(1).sum(1) == rows * columns).all()), "one square"
    assert int(rows.min()) < 4, "some cut by the frame"


def test_attack_stays_in_its_ball_and_hurts() -> None:
    model = build(Recipe.from_dict(BASE).config((1, 12, 12), 3))
    x, labels = dots(16).images.float() / 255, dots(16).labels
    noise = 0.1 * torch.randn(32, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    for steps in (1, 4):
        e = attack(model, x, noise, labels, 0.5, steps)
        assert e.flatten(1).norm(dim=1).max() <= 0.5001 and not e.requires_grad and model.training
        model.eval()
        loss = [
            torch.nn.functional.cross_entropy(model((x + d).repeat(2, 1, 1, 1) + noise), labels.repeat(2))
            for d in (0, e)
        ]
        assert loss[1] > loss[0]
        model.train()
    logits = torch.randn(6, 3)
    assert disagreement(logits, 2) > 0 and abs(float(disagreement(logits[:3].repeat(2, 1), 2))) < 1e-6


def test_hardest_picks_the_largest_loss() -> None:
    """Among the views of each picture the one that the model gets most wrong, and the model's mode is kept."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3)).train()
    views, labels = torch.randn(5, 7, 1, 2, 2), torch.randint(0, 3, (7,))
    chosen = hardest(model, views, labels)
    losses = torch.stack([torch.nn.functional.cross_entropy(model(v), labels, reduction="none") for v in views])
    picked = torch.nn.functional.cross_entropy(model(chosen), labels, reduction="none")
    assert model.training
    assert picked.detach().allclose(losses.amax(0).detach())


def test_recipe_reading(tmp_path: Path) -> None:
    shipped = sorted((ROOT / "recipes").glob("*/recipe.toml"))
    assert shipped and all(Recipe.read(p).name == p.parent.name for p in shipped)
    recipe = Recipe.read(ROOT / "recipes" / "mnist-rotation" / "recipe.toml")
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    changed = recipe.override(["lr=1", "blocks=[2, 2]", "sigma=15", "head=average", "amp=false"])
    assert (changed.lr, changed.blocks, changed.sigma, changed.head) == (1.0, (2, 2), (15.0,), "average")
    for setting, message in (
        ("wdith=3", "has no wdith"),
        ("width=3.5", "width must be of type int"),
        ("amp=1", "amp must be of type bool"),
        ("lr", "key=value"),
        ("optimizer=lion", "sgd or adamw"),
        ("consistency=1", "draws"),
        ("transform=squeeze", "squeeze"),
        ("attacked=1.5", "attacked must lie in"),
        ("sigma=[1, 2]", "sigma_param needs 1"),
        ("levels=12", "power of two"),
        ("levels=-1", "power of two"),
    ):
        with pytest.raises(ValueError, match=message):
            recipe.override([setting])
    file = tmp_path / "recipe.toml"
    for text, message in (
        ("lr = ", "not TOML"),
        ("[a]\nlr=1\n[b]\nlr=2\ndataset='mnist'", "gives lr twice"),
        ("lr = 1.0", "needs dataset"),
        ("dataset='mnist'\nepoch=3", "has no epoch"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            Recipe.read(file)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`warpcert train` with fields of the recipe changed, resumed and begun anew."""
    import numpy as np

    data = dots()
    np.savez(tmp_path / "dots.npz", x_train=data.images[:, 0].numpy(), y_train=data.labels.numpy())
    recipe = ROOT / "recipes" / "mnist-rotation" / "recipe.toml"
    settings = ["steps=2", "batch=32", "width=4", "validation=20", f"dataset={tmp_path / 'dots.npz'}"]
    run = ["train", str(recipe), "--out", str(tmp_path / "run"), "--set", *settings]
    assert main(run) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["finished"]
    assert main([*run, "seed=1"]) == 2 and "a different seed" in capsys.readouterr().err
    assert main([*run, "seed=1", "--fresh"]) == 0
    assert main([*run, "dataset=nothing"]) == 2
    assert "dataset 'nothing' is not known" in capsys.readouterr().err
