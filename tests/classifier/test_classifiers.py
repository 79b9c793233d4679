"""One object: what decides an answer is a fact, enters the fingerprint, and comes back from a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import warpcert as wc
from warpcert.classifier import About, Classifier
from warpcert.classifier.base import fingerprint_of
from warpcert.classifier.before.rounding import coarsened
from warpcert.classifier.storage import configured, load
from warpcert.networks.config import ModelConfig
from warpcert.networks.weights import Network, build, restored, stored

SHAPE = (1, 12, 12)
RESNET = ModelConfig(SHAPE, 3, width=4, blocks=(1, 1), mean=(0.4914,), std=(0.2471,))
LIPSCHITZ = ModelConfig(SHAPE, 3, width=8, blocks=(1,), head="flatten", family="lipschitz")
CIRCLE = wc.Preprocess("circle", 1, 1.5, 7)


def network(config: ModelConfig = RESNET, seed: int = 0) -> Network:
    return restored(config, stored(build(config, seed)))


def pictures(count: int = 6) -> Tensor:
    return (torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1)) * 255).round() / 255


MAKERS: dict[str, Callable[[], Classifier]] = {
    "plain": lambda: wc.Plain(network(), preprocess=CIRCLE),
    "plain, half": lambda: wc.Plain(network(), precision="half"),
    "lipschitz": lambda: wc.Plain(network(LIPSCHITZ)),
    "levels": lambda: wc.Levels(network(), 16),
    "levels, half": lambda: wc.Levels(network(), 8, precision="half"),
    "mirror": lambda: wc.Levels(network(replace(RESNET, mirror=True)), 8),
    "front": lambda: wc.Plain(network(replace(RESNET, front="standard"))),
    "noise": lambda: wc.Smoothed(network(), 0.1),
    "rotation": lambda: wc.Smoothed(network(), 0.1, {"rotation": 30}, preprocess=CIRCLE, interpolation="bilinear"),
    "translation, half": lambda: wc.Smoothed(network(), 0.1, {"translation": (1, 2)}, precision="half"),
    "nested": lambda: wc.Smoothed(network(LIPSCHITZ), 0.0, {"rotation": 10}, nested=True),
    "training weights": lambda: wc.Plain(full_precision()),
}


def full_precision() -> Network:
    """Weights that half precision does not hold."""
    made = network()
    with torch.no_grad():
        for p in made.parameters():
            p.mul_(1.0001)
    return made


@pytest.mark.parametrize("name", MAKERS)
def test_a_file_gives_the_classifier_back(name: str, tmp_path: Path) -> None:
    made = MAKERS[name]()
    made.about = About("it", ("a", "b", "c"), wc.Threat.rotation(10), settings={"n": 500}, notes={"dataset": "d"})
    made.save(tmp_path / "it.safetensors")
    back = load(tmp_path / "it.safetensors")
    assert type(back) is type(made) and back.facts == made.facts and back.fingerprint == made.fingerprint
    assert back.about == made.about
    assert torch.equal(back.logits(pictures()), made.logits(pictures()))
    if not isinstance(made, wc.Smoothed):
        assert torch.equal(back(pictures()), made(pictures())) and back.predict(pictures()) == made.predict(pictures())


def test_every_fact_is_in_the_fingerprint() -> None:
    """Classifiers that answer differently have different fingerprints; how a fact is spelt does not matter."""
    made = [make() for make in MAKERS.values()]
    changes = [
        wc.Plain(network()),
        wc.Plain(network(seed=1)),
        wc.Plain(network(), slack=1e-3),
        wc.Plain(network(), lipschitz=3.0),
        wc.Plain(network(LIPSCHITZ), lipschitz=3.0),
        wc.Plain(network(replace(RESNET, mirror=True))),
        wc.Plain(network(replace(RESNET, stem_stride=1))),
        wc.Levels(network(), 8),
        wc.Smoothed(network(), 0.2),
        wc.Smoothed(network(), 0.1, {"rotation": 30}, preprocess=CIRCLE),
        wc.Smoothed(network(), 0.1, {"rotation": 31}),
        wc.Smoothed(network(), 0.1, {"scaling": 30}),
        wc.Smoothed(network(), 0.1, {"rotation": 30}, nested=True),
    ]
    prints = [c.fingerprint for c in (*made, *changes)]
    assert len(set(prints)) == len(prints)
    whole = wc.Preprocess("circle", 1.0, 1.5, 7)
    same = wc.Smoothed(network(), 0.1, {"rotation": 30.0}, preprocess=whole, interpolation="bilinear")
    assert same.fingerprint == MAKERS["rotation"]().fingerprint
    assert wc.Levels(network(), 8.0).fingerprint == wc.Levels(network(), 8).fingerprint  # type: ignore[arg-type]
    for c in (*made, *changes):
        assert c.fingerprint == fingerprint_of(c.source, c.facts)
        assert configured(c.network, c.facts).fingerprint == c.fingerprint


def test_front_and_mirror_are_part_of_the_network() -> None:
    """The same weights behind another front are another function."""
    fronts: list[dict[str, object]] = [{}, {"mirror": True}, {"front": "standard"}]
    assert len({wc.Plain(network(replace(RESNET, **c))).source for c in fronts}) == 3  # type: ignore[arg-type]


def test_a_network_that_is_half_already_is_the_same() -> None:
    one, two = wc.Levels(network(), 8, precision="half"), wc.Levels(network().half(), 8, precision="half")
    assert one.fingerprint == two.fingerprint and torch.equal(one(pictures()), two(pictures()))
    assert one.slack == 0.01 and one(pictures()).dtype == torch.float32
    with pytest.raises(ValueError, match="float32"):
        wc.Plain(network(LIPSCHITZ), precision="half")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device")
def test_the_fingerprint_is_the_same_on_every_device() -> None:
    for make in MAKERS.values():
        assert make().to("cuda").fingerprint == make().fingerprint


def test_a_lipschitz_network_brings_its_constant() -> None:
    net = network(LIPSCHITZ)
    made = wc.Plain(net)
    assert made.lipschitz is not None and net.lipschitz <= made.lipschitz <= net.lipschitz * (1 + 1e-5)  # type: ignore[operator]
    assert made.method == "cover" and wc.Plain(net, lipschitz=2.0).lipschitz == 2.0
    with pytest.raises(ValueError, match="at most"):
        wc.Plain(net, lipschitz=1e-9)


def test_training_form_and_foreign_networks_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="training form"):
        wc.Plain(build(RESNET).eval()).save(tmp_path / "x")
    with pytest.raises(ValueError, match="keeps its own file"):
        wc.Plain(nn.Sequential(nn.Flatten(), nn.Linear(144, 3)).eval()).save(tmp_path / "x")


@pytest.mark.parametrize("name", ["plain", "levels", "noise", "rotation"])
def test_batches_and_single_pictures(name: str) -> None:
    made, x = MAKERS[name](), pictures(3)
    assert made(x).shape == (3, 3)
    one, many = made.predict(x[0]), made.predict(x)
    assert isinstance(one, int) and isinstance(many, list) and len(many) == 3
    for bad in (x[0, 0], x[None], (x * 255).to(torch.uint8), x.numpy()):
        with pytest.raises(ValueError):
            made.predict(bad)


@pytest.mark.parametrize("name", ["plain", "rotation", "nested"])
def test_float64_that_float32_changes_is_refused(name: str) -> None:
    made, x = MAKERS[name](), pictures(1)
    assert made(x.double()).shape == (1, 3)
    with pytest.raises(ValueError, match="float32 cannot represent"):
        made(x.double() * (1 - 1e-12))
    with pytest.raises(ValueError, match="float32 cannot represent"):
        made.certify(x[0].double() * (1 - 1e-12), wc.Threat.rotation(5))


def test_levels_take_every_float64_picture() -> None:
    """They round what comes in: 64.4999 levels and 64.5001 are told apart, in float64 too."""
    made, x = MAKERS["levels"](), pictures(1)
    moved = x.double() + 1e-12
    assert torch.equal(made(moved), made(x))
    for step in (1, 2, 4, 8, 16, 32, 64):
        k = torch.arange(256).reshape(1, 1, 16, 16) / 255
        assert torch.equal(coarsened(k.double(), step).float(), coarsened(k.float(), step))


def test_sounds_are_known_by_their_network() -> None:
    config = ModelConfig((1, 400), 2, width=4, blocks=(1,))
    made = wc.Plain(network(config))
    assert made.item_dims == 2 and isinstance(made.predict(torch.zeros(1, 400)), int)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: wc.Plain(network(), precision="quarter"), "precision"),
        (lambda: wc.Plain(3), "needs a network"),
        (lambda: wc.Plain(wc.Plain(network())), "already"),
        (lambda: wc.Plain(network(), slack=-1.0), "slack"),
        (lambda: wc.Levels(network(), 3), "power of two"),
        (lambda: wc.Smoothed(network(), 0.0), "noise"),
        (lambda: wc.Smoothed(network(), 0.1, {"rotation": 0}), "positive"),
        (lambda: wc.Smoothed(network(), 0.1, {"rotation": 1, "scaling": 1}), "one transformation"),
        (lambda: wc.Smoothed(network(), 0.1, nested=True), "nested"),
        (lambda: configured(network(), {"kind": "magic"}), "plain, levels, smoothed"),
        (lambda: configured(network(), {"kind": "levels", "noise": 1}), "not the facts"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_is_refused(make: Callable[[], Classifier], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_fingerprint_follows_its_network() -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3)).eval()
    f = wc.Plain(net)
    before = f.fingerprint
    assert f.fingerprint == before
    with torch.no_grad():
        net[1].weight.add_(1)
    assert f.fingerprint != before
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    other.load_state_dict(net.state_dict())
    assert wc.Plain(other).fingerprint != f.fingerprint, "the same weights in another network"


def test_fronts_are_for_pictures() -> None:
    """Of a batch of sounds [B,C,L] one mean would be taken over all of them."""
    sounds = About(threat=wc.Threat.volume(3))
    with pytest.raises(ValueError, match="a front is for pictures"):
        wc.Smoothed(nn.Identity().eval(), 0.1, front="centred", about=sounds)
    f = wc.Smoothed(nn.Identity().eval(), 0.1, front="standard")
    with pytest.raises(ValueError, match="a front is for pictures"):
        f.certify(torch.rand(1, 100) / 2, wc.Threat.volume(3))
    f.about = sounds
    for x in (torch.rand(1, 100) / 2, torch.rand(3, 1, 100) / 2):
        with pytest.raises(ValueError, match="a front is for pictures"):
            f.predict(x)
