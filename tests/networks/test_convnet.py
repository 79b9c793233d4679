"""Networks like the paper's: the one for MNIST, and its recipes; ResNet-18 for the others."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from warpcert.learn.data import Dataset
from warpcert.learn.recipe import Recipe
from warpcert.learn.train import train
from warpcert.networks.config import ModelConfig
from warpcert.networks.convnet import ConvNet
from warpcert.networks.weights import build, fused, restored, stored

RECIPES = Path(__file__).parents[2] / "recipes"


def test_layers_are_the_papers() -> None:
    config = Recipe.read(RECIPES / "mnist-paper" / "recipe.toml").config((1, 28, 28), 10)
    net = build(config)
    assert isinstance(net, ConvNet)
    kernels = [tuple(layer.conv.weight.shape) for layer in net.body]
    assert kernels == [(32, 1, 5, 5), (32, 32, 5, 5), (64, 32, 3, 3), (64, 64, 3, 3), (128, 64, 3, 3), (128, 128, 1, 1)]
    assert all(layer.conv.padding == (0, 0) and isinstance(layer.norm, torch.nn.BatchNorm2d) for layer in net.body)
    assert net.hidden.out_features == 100 and net.hidden.in_features == 128
    with pytest.raises(ValueError, match="28×28"):
        build(ModelConfig((1, 27, 28), 10, family="convnet"))
    with pytest.raises(ValueError, match="batches of"):
        net(torch.rand(2, 1, 32, 32))


@pytest.mark.parametrize(("name", "shape", "classes"), [("fashion", (1, 28, 28), 10), ("cifar", (3, 32, 32), 10),
                                                        ("gtsrb", (3, 32, 32), 43)])  # fmt: skip
def test_resnet_18(name: str, shape: tuple[int, ...], classes: int) -> None:
    """At its own width, 64, and at half of it, which the recipes have."""
    recipe = Recipe.read(RECIPES / f"{name}-paper" / "recipe.toml")
    assert recipe.width == 32
    for width, size in ((64, 11.17e6), (32, 2.80e6)):
        net = build(recipe.override([f"width={width}"]).config(shape, classes))
        convolutions = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d) and m.kernel_size == (3, 3)]
        assert len(convolutions) == 17 and sum(p.numel() for p in net.parameters()) == pytest.approx(size, rel=0.004)
    assert net.eval()(torch.rand(2, *shape)).shape == (2, classes)


def test_the_deployed_form_is_the_same_function() -> None:
    net = build(ModelConfig((2, 30, 28), 3, width=4, family="convnet", mean=(0.2,), std=(0.5,)), seed=1)
    x = torch.rand(8, 2, 30, 28)
    net.train()(x)  # moves the statistics
    assert not torch.equal(net(x), net(x))  # dropped at random
    expected = net.eval()(x)
    torch.testing.assert_close(fused(net)(x), expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(restored(net.config, stored(net))(x), expected, atol=2e-2, rtol=2e-2)


def test_what_is_dropped_is_a_function_of_the_step(tmp_path: Path) -> None:
    images = torch.randint(256, (40, 1, 28, 28), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    dots = Dataset("dots", images, torch.arange(40) % 3, ("a", "b", "c"))
    recipe = Recipe.read(RECIPES / "mnist-paper" / "recipe.toml").override(["validation=4", "batch=8", "steps=6"])
    recipe = recipe.override(["width=4"])
    torch.manual_seed(1)
    whole = train(recipe, dots, "cpu", tmp_path / "whole")
    torch.manual_seed(2)

    def interrupt(row: dict[str, int]) -> None:
        if row["step"] == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(recipe, dots, "cpu", tmp_path / "parts", on_step=interrupt)
    assert train(recipe, dots, "cpu", tmp_path / "parts")["fingerprint"] == whole["fingerprint"]
