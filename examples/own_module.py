"""Certify a module of the Hugging Face or timm kind: it normalises outside, and returns an object with `.logits`.

Run it: python examples/own_module.py
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

import warpcert as wc
from warpcert.learn import data

MEAN, STD = 0.1307, 0.3081  # what the module's image processor subtracts and divides by


@dataclass
class ImageClassifierOutput:
    logits: Tensor


class DigitsForImageClassification(nn.Module):
    """Stands for a pretrained module. Its weights are those of the bundled model, so that nothing is downloaded."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = wc.load("mnist-rotation-exact").network

    def forward(self, pixel_values: Tensor) -> ImageClassifierOutput:
        return ImageClassifierOutput(self.backbone(pixel_values * STD + MEAN))


class Logits(nn.Module):
    """What warpcert certifies: batches with values in [0,1] → logits. Normalisation is a part of it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, z: Tensor) -> Tensor:
        return self.module(pixel_values=(z - MEAN) / STD).logits


def main() -> wc.Certificate:
    model = Logits(DigitsForImageClassification()).eval()
    net = wc.Levels(model, step=32)  # the weights were trained on such levels
    certificate = net.certify(data.load("mnist500").image(0), wc.Threat.rotation(degrees=20))
    print(certificate)
    return certificate


if __name__ == "__main__":
    main()
