"""Models: the deployed form is the trained function, and a weight file gives back what was saved or says why not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import warpcert as wc
from warpcert.networks.config import ModelConfig
from warpcert.networks.files import read_tensors, write_tensors
from warpcert.networks.resnet import Standard
from warpcert.networks.weights import Network, build, fingerprint, fused, restored, stored

SMALL = ModelConfig((1, 12, 12), 3, width=4, blocks=(1, 1), stem_kernel=3, mean=(0.1,), std=(0.3,))


def save(model: Network, path: Path) -> None:
    write_tensors(stored(model), path, {"format": "test"})


def load(config: ModelConfig, path: Path) -> Network:
    return restored(config, read_tensors(path, "test")[0])


def trained(config: ModelConfig, seed: int = 0):
    """A model with running statistics and scales that are not the initial ones."""
    model = build(config, seed)
    generator = torch.Generator().manual_seed(1)
    for p in model.parameters():
        p.data += 0.1 * torch.randn(p.shape, generator=generator)
    for _ in range(3):
        model(torch.rand(16, *config.shape, generator=generator))
    return model.eval()


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        ModelConfig((3, 9, 14), 5, width=4, blocks=(2, 1, 1), stem_stride=1, head="flatten", mean=(0.1, 0.2, 0.3)),
        ModelConfig((1, 100), 4, width=4, blocks=(1, 1), stem_kernel=9, stem_stride=4),
        ModelConfig((3, 9, 14), 5, width=4, blocks=(0, 2, 1), stem_stride=1),
        replace(SMALL, mirror=True),
        replace(SMALL, front="standard"),
        ModelConfig((1, 100), 4, width=4, blocks=(1, 1), stem_kernel=9, stem_stride=4, front="standard"),
    ],
)
def test_round_trip(config: ModelConfig, tmp_path: Path) -> None:
    model, path = trained(config), tmp_path / "deep" / "m.safetensors"
    x = torch.rand(8, *config.shape, generator=torch.Generator().manual_seed(2))
    plain = (model(x) + model(x.flip(-1))) / 2 if config.mirror else model(x)
    assert plain.shape == (8, config.classes)
    assert torch.allclose(fused(model)(x), plain, atol=1e-5, rtol=1e-4)
    save(model, path)
    loaded = load(config, path)
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config and not loaded.training
    assert torch.allclose(loaded(x), plain, atol=2e-2, rtol=1e-2) and torch.equal(loaded(x), loaded(x))
    assert all(p.dtype == torch.float32 and torch.equal(p, p.half().float()) for p in loaded.parameters())
    save(loaded, path)  # what is loaded is saved unchanged
    assert fingerprint(load(config, path)) == fingerprint(loaded)
    assert not list(path.parent.glob("*.part"))


def test_fingerprint() -> None:
    one = build(SMALL)
    assert fingerprint(one) == fingerprint(build(SMALL)) != fingerprint(build(SMALL, seed=1))
    before = fingerprint(one)
    one.head.bias.data[0] += 1e-6
    assert fingerprint(one) != before


def test_a_mirrored_network_looks_at_both(tmp_path: Path) -> None:
    """Deployed: in training it looks at one."""
    plain, training = build(SMALL).eval(), build(replace(SMALL, mirror=True)).eval()
    both = fused(training)
    x = torch.rand(4, *SMALL.shape, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(training(x), plain(x))
    torch.testing.assert_close(both(x), (plain(x) + plain(x.flip(-1))) / 2)
    assert not torch.allclose(plain(x), plain(x.flip(-1))) and torch.allclose(both(x), both(x.flip(-1)))
    assert fingerprint(both) != fingerprint(plain)
    save(both, tmp_path / "m.safetensors")
    loaded = load(replace(SMALL, mirror=True), tmp_path / "m.safetensors")
    torch.testing.assert_close(loaded(x), both(x), atol=1e-2, rtol=1e-2)
    with pytest.raises(ValueError, match="mirror is for a resnet of images"):
        ModelConfig((1, 100), 4, mirror=True)


@pytest.mark.parametrize("shape", [(1, 12, 12), (3, 9, 14), (1, 100)])
def test_a_standard_network_does_not_see_brightness(shape: tuple[int, ...], tmp_path: Path) -> None:
    plain = replace(SMALL, shape=shape)
    model, seeing = (fused(trained(c)).requires_grad_(False) for c in (replace(plain, front="standard"), plain))
    x = 0.3 + 0.4 * torch.rand(6, *shape, generator=torch.Generator().manual_seed(3))
    flat = x.flatten(1)
    by_hand = (flat - flat.mean(1, keepdim=True)) / (flat.std(1, correction=0, keepdim=True) + 0.05)
    torch.testing.assert_close(model.front(x), by_hand.reshape(x.shape))
    for gamma in (-0.3, -0.1, 0.2):
        torch.testing.assert_close(model(x + gamma), model(x), atol=1e-5, rtol=1e-5)
        assert not torch.allclose(seeing(x + gamma), seeing(x), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(model(x.flip(0)), model(x).flip(0), msg="each item by its own numbers")
    assert fingerprint(build(replace(plain, front="standard"))) != fingerprint(build(plain))
    save(model, tmp_path / "m.safetensors")
    loaded = load(replace(plain, front="standard"), tmp_path / "m.safetensors")
    torch.testing.assert_close(loaded(x + 0.2), model(x), atol=2e-2, rtol=1e-2)
    half = wc.Plain(model, precision="half")
    torch.testing.assert_close(half(x), model(x), atol=2e-2, rtol=2e-2)
    with pytest.raises(ValueError, match="front 'standard' is not known for a lipschitz"):
        ModelConfig((1, 12, 12), 3, family="lipschitz", front="standard")


def test_standard_items_of_any_kind() -> None:
    """float32 at least inside and the given dtype outside; a blank picture has an answer and a gradient."""
    front, g = Standard(), torch.Generator().manual_seed(4)
    x = (900 + 2 * torch.rand(3, 3, 64, 64, generator=g)).half()  # its sum is beyond half precision
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        given = x.to(dtype)
        exact = front(given.double())
        out = front(given)
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), exact, atol=1e-3, rtol=2 * torch.finfo(dtype).eps)
    torch.testing.assert_close(front.half()(x).double(), front(x.double()), atol=1e-2, rtol=1e-2)
    blank = torch.full((2, 1, 4, 4), 0.7, requires_grad=True)
    out = front.float()(blank)
    assert float(out.detach().abs().max()) < 1e-4
    out.square().sum().backward()
    assert blank.grad is not None and bool(blank.grad.isfinite().all())


def test_build_leaves_the_global_generator() -> None:
    state = torch.get_rng_state()
    build(SMALL, 7)
    assert torch.equal(state, torch.get_rng_state())


def test_broken_files(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(ValueError, match="there is no file"):
        wc.load(str(path))
    wc.Plain(fused(build(SMALL))).save(path)
    whole = path.read_bytes()
    for raw in (b"", b"PK\x03\x04 a zip file", whole[:50], whole[:-10]):
        path.write_bytes(raw)
        with pytest.raises(ValueError, match="not a whole safetensors file"):
            wc.load(str(path))
    save_file({"a": torch.zeros(2)}, str(path))
    with pytest.raises(ValueError, match="not written by warpcert"):
        wc.load(str(path))
    path.write_bytes(whole.replace(b'"width\\":4', b'"width\\":5').replace(b'\\"width\\": 4', b'\\"width\\": 5'))
    assert path.read_bytes() != whole
    with pytest.raises(ValueError, match=r"does not hold the classifier(.|\n)*size mismatch"):
        wc.load(str(path))


def test_bad_values(tmp_path: Path) -> None:
    model = build(SMALL)
    model.head.weight.data[0, 0] = 1e6  # beyond half precision
    with pytest.raises(ValueError, match="not finite"):
        save(model, tmp_path / "m.safetensors")
    assert not (tmp_path / "m.safetensors").exists()
    with pytest.raises(ValueError, match=r"takes batches of \[1, 12, 12\]; got \[1, 28, 28\]"):
        model(torch.zeros(2, 1, 28, 28))
    for wrong in (
        {"shape": (1,)},
        {"classes": 1},
        {"stem_kernel": 4},
        {"head": "max"},
        {"std": (0.0,)},
        {"mean": (0.0,) * 2},
    ):
        with pytest.raises(ValueError):
            ModelConfig(**({"shape": (1, 12, 12), "classes": 3} | wrong))


def test_half_precision_is_another_function_close_by() -> None:
    """It answers in float32, differs from the float32 network by rounding only, and leaves it alone."""
    config = ModelConfig((1, 8, 8), 3, width=4)
    model = fused(build(config, 1)).requires_grad_(False)
    before = fingerprint(model)
    x = torch.rand(5, 1, 8, 8)
    exact, rounded = model(x), wc.Plain(model, precision="half")(x)
    assert rounded.dtype == torch.float32
    assert 0 < float((exact - rounded).abs().max()) < 0.01 * max(1.0, float(exact.abs().max()))
    assert fingerprint(model) == before and exact.equal(model(x))
