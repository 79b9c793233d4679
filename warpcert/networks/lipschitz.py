"""Networks whose logit vector is 1-Lipschitz in ℓ2 with respect to the input, proved from the stored weights.

Residual layers (Araujo et al., "A unified algebraic perspective on Lipschitz neural networks", 2023):

    y = x − Kᵀ diag(2/T) relu(K x + b),      K a zero-padded convolution, T > 0 one number per hidden channel.

With v = K(x − x') and s = relu(K x + b) − relu(K x' + b): s_i (v_i − s_i) ≥ 0, so if K Kᵀ ⪯ ratio · diag(T), then
‖y − y'‖² ≤ ‖x − x'‖² + 4 (ratio − 1) Σ s_i²/T_i ≤ ‖x − x'‖² (1 + 4 ratio max(ratio − 1, 0)): the layer's constant is
1, or 2·ratio − 1 where ratio > 1. Rows of K Kᵀ are sums of the kernel's autocorrelation G; a symmetric matrix is below
the diagonal of its rows' weighted absolute sums, so T_c = Σ_d Σ_shift |G_cd| q_d/q_c, any q > 0, gives ratio 1. Zero
padding cuts rows and columns out of K and of K Kᵀ: it can only help.

Between stages 2×2 pixels are folded into channels (an isometry) and a matrix of norm ≤ 1 mixes them. Training computes
T and the norms on the fly in any precision; the deployed form stores them, and `verified` bounds every layer anew from
the stored numbers alone, in float64 with outward slack.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d, pad, pixel_unshuffle, relu

from warpcert.networks.config import ModelConfig

__all__ = ["LipschitzNet", "autocorrelation", "deployed", "verified"]

SLACK = 1e-9  # relative to Σ|a||b| of each dot product: float64 needs 1e-16 times its length, here below 10⁵


def autocorrelation(kernel: Tensor) -> Tensor:
    """G [h,h,2k−1,2k−1] of a kernel [h,c,k,k]: the entries of K Kᵀ, K its convolution without borders. For training."""
    return conv2d(kernel, kernel, padding=kernel.shape[-1] - 1)


def row_sums(kernel: Tensor, log_q: Tensor) -> Tensor:
    """T [h] as above, in the kernel's precision."""
    absolute = autocorrelation(kernel).float().abs().sum((2, 3))
    return (absolute * (log_q[None, :] - log_q[:, None]).exp()).sum(1).clamp_min(1e-12)


def row_sums_above(kernel: Tensor, log_q: Tensor) -> Tensor:
    """Not below T [h], proved: float64, one matrix product per shift, each rounding error covered by SLACK."""
    k64, q, size = kernel.detach().double().cpu(), log_q.detach().double().cpu(), kernel.shape[-1]
    norms = k64.flatten(1).norm(dim=1)
    total = torch.zeros(len(k64), len(k64), dtype=torch.float64)
    for dy in range(1 - size, size):
        for dx in range(1 - size, size):
            a = k64[:, :, max(0, dy) : size + min(0, dy), max(0, dx) : size + min(0, dx)].flatten(1)
            b = k64[:, :, max(0, -dy) : size + min(0, -dy), max(0, -dx) : size + min(0, -dx)].flatten(1)
            total += (a @ b.T).abs()
    total += SLACK * (2 * size - 1) ** 2 * norms[:, None] * norms[None, :]
    return (total * (q[None, :] - q[:, None]).exp()).sum(1) * (1 + SLACK)


def norm_above(weight: Tensor) -> float:
    """Not below the spectral norm of a matrix [m,n], m ≤ n or small: from the eigenvalues of its Gram matrix.

    The computed Gram matrix and its eigenvalues err by less than SLACK·‖weight‖_F² (symmetric eigenvalues are backward
    stable).
    """
    w = weight.detach().double().cpu()
    gram = w @ w.T if len(w) <= w.shape[1] else w.T @ w
    return math.sqrt(float(torch.linalg.eigvalsh(gram)[-1].clamp_min(0)) + SLACK * float(w.square().sum()))


@final
class Residual(nn.Module):
    """y = x − Kᵀ diag(gain) relu(K x + b); gain = 2/T, computed in training and stored in the deployed form."""

    gain: Tensor

    def __init__(self, channels: int, is_fused: bool, size: int = 3) -> None:
        super().__init__()
        kernel = 0.1 * torch.randn(channels, channels, size, size) / math.sqrt(channels * size * size)
        kernel[:, :, size // 2, size // 2] += nn.init.orthogonal_(torch.empty(channels, channels))  # starts with T ≈ 1
        self.kernel = nn.Parameter(kernel)
        self.bias = nn.Parameter(torch.zeros(channels))
        self.log_q = nn.Parameter(torch.zeros(channels))
        self.is_fused = is_fused
        if is_fused:
            self.register_buffer("gain", torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        edge = self.kernel.shape[-1] // 2
        gain = self.gain if self.is_fused else 2 / row_sums(self.kernel, self.log_q)
        hidden = relu(conv2d(x, self.kernel, self.bias, padding=edge)) * gain[:, None, None]
        return x - conv_transpose2d(hidden, self.kernel, padding=edge)

    @torch.no_grad()
    def bound(self) -> float:
        """The layer's Lipschitz constant, from kernel and gain alone; q only has to be positive."""
        if not bool((self.gain >= 0).all() & self.gain.isfinite().all()):
            return math.inf
        ratio = float((row_sums_above(self.kernel, self.log_q) * self.gain.double().cpu() / 2).max())
        return max(1.0, (2 * ratio - 1) * (1 + SLACK)) if math.isfinite(ratio) else math.inf


@final
class Mix(nn.Module):
    """A matrix [out, in] on the channels, or on flattened features, divided by a bound of its norm; and a bias."""

    def __init__(self, inside: int, outside: int, is_fused: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(outside, inside)))
        self.bias = nn.Parameter(torch.zeros(outside))
        self.is_fused = is_fused

    def matrix(self) -> Tensor:
        """Rows over the roots of the Gram matrix's absolute row sums (Prach and Lampert, 2022): norm ≤ 1."""
        if self.is_fused:
            return self.weight
        with torch.autocast(self.weight.device.type, enabled=False):
            sums = (self.weight @ self.weight.T).abs().sum(1, keepdim=True).clamp_min(1e-12)
        return self.weight / sums.sqrt()

    def forward(self, x: Tensor) -> Tensor:
        m = self.matrix()
        return conv2d(x, m[:, :, None, None], self.bias) if x.dim() == 4 else nn.functional.linear(x, m, self.bias)

    def bound(self) -> float:
        return norm_above(self.weight)


@final
class LipschitzNet(nn.Module):
    """[B,C,H,W] → logits [B,classes]; `lipschitz` bounds the constant of the logit vector (nan in training form).

    In the deployed form the logits are divided by the product of the layers' bounds where that exceeds 1.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: ModelConfig, is_fused: bool = False) -> None:
        super().__init__()
        self.config, self.is_fused, self.flatten = config, is_fused, config.head == "flatten"
        self.lipschitz, self.divisor = math.nan, 1.0
        self.register_buffer("mean", torch.tensor(config.mean).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(config.std).reshape(-1, 1, 1))
        folded = config.shape[0] * config.stem_stride**2
        if config.width < folded:
            raise ValueError(
                f"a lipschitz model with stem_stride {config.stem_stride} needs width ≥ {folded}; got {config.width}"
            )
        sides = [-(-side // config.stem_stride) for side in config.shape[1:]]
        layers: list[nn.Module] = []
        for stage, count in enumerate(config.blocks):
            channels = config.width * 2**stage
            if stage:
                layers += [Fold(2), Mix(2 * channels, channels, is_fused)]
                sides = [-(-side // 2) for side in sides]
            layers += [Residual(channels, is_fused) for _ in range(count)]
        self.body = nn.Sequential(Fold(config.stem_stride), *layers)
        self.places = math.prod(sides)
        self.head = Mix(channels * (self.places if self.flatten else 1), config.classes, is_fused)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1:] != self.config.shape:
            raise ValueError(f"this model takes batches of {list(self.config.shape)}; got {list(x.shape[1:])}")
        x = self.body[0]((x - self.mean) / self.std)
        x = self.body[1:](pad(x, (0, 0, 0, 0, 0, self.config.width - x.shape[1])))
        x = x.flatten(1) if self.flatten else x.sum((2, 3)) / math.sqrt(self.places)  # both 1-Lipschitz
        with torch.autocast(x.device.type, enabled=False):  # margins are small beside bfloat16's steps
            logits: Tensor = self.head(x.to(self.head.weight.dtype))
        return logits / self.divisor


@final
class Fold(nn.Module):
    """size × size pixels become channels (the frame is filled up with zeros first): keeps distances."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        height, width = (-side % self.size for side in x.shape[-2:])
        folded = pixel_unshuffle(pad(x, (0, width, 0, height)) if height or width else x, self.size)
        return folded.contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def deployed(model: LipschitzNet) -> LipschitzNet:
    """The same function up to rounding (CPU, float32, eval): parameters rounded to half precision, then T and norms.

    The last matrix is divided by its norm itself, which scales all logits alike.
    """
    source = deepcopy(model).cpu().float()
    if source.is_fused:
        return source.eval()
    result = LipschitzNet(source.config, is_fused=True)
    targets = dict(result.named_modules())
    for name, module in source.named_modules():
        target = targets[name]
        if isinstance(module, Residual) and isinstance(target, Residual):
            for field in ("kernel", "bias", "log_q"):
                getattr(target, field).copy_(getattr(module, field).half())
            target.gain.copy_((2 / row_sums_above(target.kernel, target.log_q)).float() * (1 - 1e-6))
        elif isinstance(module, Mix) and isinstance(target, Mix):
            scale = 1 / norm_above(module.matrix()) if name == "head" else 1.0
            target.weight.copy_((module.matrix() * scale).half())
            target.bias.copy_((module.bias * scale).half())
    return result.eval()


@torch.no_grad()
def verified(model: LipschitzNet) -> LipschitzNet:
    """`model`, a deployed form, with `lipschitz` proved from its numbers: ≤ 1, as logits are divided if need be."""
    layers = [m.bound() for m in model.modules() if isinstance(m, Residual | Mix)]
    total = math.prod(layers) * (1 + SLACK) / max(float(model.std.abs().min()), 1e-300)
    if not math.isfinite(total):
        raise ValueError("weights that are not finite, or a negative gain: no Lipschitz constant can be proved")
    model.divisor = max(1.0, total * (1 + 1e-6))
    model.lipschitz = min(1.0, total)
    return model
