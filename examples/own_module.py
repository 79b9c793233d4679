"""Certify a module of the Hugging Face or timm kind: it normalises outside, and returns an object with `.logits`.

Run it: python examples/own_module.py
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from torch import Tensor, nn

import warpcert as wc
from warpcert.learn import data
from warpcert.networks import resnet as models

MEAN, STD = 0.1307, 0.3081  # what the module's image processor subtracts and divides by


@dataclass
class ImageClassifierOutput:
    logits: Tensor


class DigitsForImageClassification(nn.Module):
    """Stands for a pretrained module; here its weights are those of the embedded model, so nothing is downloaded."""

    def __init__(self) -> None:
        super().__init__()
        weights = resources.files("warpcert") / "assets" / "mnist-rotation.safetensors"
        self.backbone = models.load_weights(str(weights))[0]

    def forward(self, pixel_values: Tensor) -> ImageClassifierOutput:
        return ImageClassifierOutput(self.backbone(pixel_values * STD + MEAN))


class Logits(nn.Module):
    """What warpcert certifies: batches in [0,1] → logits. The normalisation belongs inside: it is part of f."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, z: Tensor) -> Tensor:
        return self.module(pixel_values=(z - MEAN) / STD).logits


def main() -> wc.Certificate:
    model = Logits(DigitsForImageClassification()).eval()
    x = data.load("mnist500").image(0)
    preprocess = wc.Preprocess("circle", 1, 1.5, 7)  # the embedded weights were trained behind this vignette and blur
    defence = wc.Defence.surface("rotation", 30, noise=0.15, preprocess=preprocess)
    threat = wc.Threat.of("rotation", 3)
    certificate = wc.cover(model, x, defence, threat, wc.Sampling(n=2000, seed=0), model=models.fingerprint(model))
    print(certificate)
    return certificate


if __name__ == "__main__":
    main()
