"""The front end of networks that hear: a sound becomes a picture of mel-frequency cepstral coefficients."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

__all__ = ["Mfcc"]

RATE = 16_000  # samples per second
FRAME, HOP, SPECTRUM = 400, 160, 512  # 25 ms every 10 ms
LOWEST, HIGHEST = 60.0, 7600.0  # Hz
FLOOR = 1e-5  # of the power in a mel band: about what quiet rooms have


@final
class Mfcc(nn.Module):
    """Sounds [B,1,L] → [B,1,coefficients,frames]: power spectrum, mel bands, logarithm, cosine transform.

    Each coefficient is centred over the sound's time, so that loudness alone changes it only where the floor and the
    noise are felt. It is part of the classifier: pixel noise δ is added to the sound, before it. Our own, in torch
    (no audio library): constants are buffers and travel with the weights.
    """

    window: Tensor
    mel: Tensor
    cosines: Tensor

    def __init__(self, shape: tuple[int, ...], bands: int = 40, coefficients: int = 24) -> None:
        super().__init__()
        if len(shape) != 2 or shape[0] != 1 or shape[1] < FRAME:
            raise ValueError(f"MFCC needs sounds of shape [1, L ≥ {FRAME}]; got {list(shape)}")
        self.shape = (1, coefficients, 1 + shape[1] // HOP)
        self.register_buffer("window", torch.hann_window(FRAME))
        self.register_buffer("mel", mel_bands(bands))
        k, n = torch.arange(coefficients)[:, None], torch.arange(bands)[None, :]
        # The k-th coefficient of speech is about 1/(k+1) of the first: weights k+1 make all matter to the network.
        cosines = (k + 1) * torch.cos(math.pi * k * (n + 0.5) / bands) * math.sqrt(2 / bands)
        self.register_buffer("cosines", cosines)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.stft(x[:, 0], SPECTRUM, HOP, FRAME, self.window, return_complex=True)  # [B, bins, frames]
        power = spectrum.real.square() + spectrum.imag.square()
        cepstrum = self.cosines @ (self.mel @ power / FRAME + FLOOR).log()
        return (cepstrum - cepstrum.mean(-1, keepdim=True))[:, None]


def mel_bands(bands: int) -> Tensor:
    """Triangles [bands, bins], equally spaced in mel, each with its peak at 1 and its feet at its neighbours' peaks."""
    low, high = (2595 * math.log10(1 + f / 700) for f in (LOWEST, HIGHEST))
    mel = torch.linspace(low, high, bands + 2, dtype=torch.float64)
    hertz = 700 * (10 ** (mel / 2595) - 1)
    bins = torch.arange(SPECTRUM // 2 + 1, dtype=torch.float64) * RATE / SPECTRUM
    left, peak, right = hertz[:-2, None], hertz[1:-1, None], hertz[2:, None]
    rising, falling = (bins - left) / (peak - left), (right - bins) / (right - peak)
    return torch.minimum(rising, falling).clamp_min(0).float()
