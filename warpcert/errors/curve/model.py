"""The pieces of ε(β,γ,x) for one image and a batch of β: T_β as taps, its adjoint, P on the vignette, and a bound of
‖P T_β‖₂.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from warpcert.classifier.defence import Defence
from warpcert.errors.curve.path import Tables, tables
from warpcert.threat import Threat
from warpcert.transforms import Flow, SpatialTransform, grid
from warpcert.transforms.kernels import Kernel, kernel, sample, taps
from warpcert.transforms.preprocess import halving

__all__ = ["Model", "absolute_norm", "model", "operator_norm"]


@dataclass(frozen=True)
class Model:
    """One image x [C,H,W] and B defender's parameters, float64 on one device.

    n = H·W pixels; v = the pixels that P reads, w = those that it returns: without a reduction the same, which the
    vignette keeps. u(γ) = P(T_β T_γ x −
    T_{β+γ} x) is the error without rounding, T_{β+γ} by the reference's kernel.
    """

    x: Tensor
    defence: Defence
    threat: Threat
    transform: SpatialTransform
    beta: Tensor  # [B], the first component
    kept: Tensor  # [v] flat indices of the pixels that P reads
    returned: Tensor  # [w] flat indices of those that it returns, of its own size
    y: Tensor  # [n] centred pixel coordinates
    x_: Tensor
    index: Tensor  # [B, v, K] taps of T_β at the kept pixels
    weight: Tensor
    reader: Tensor  # [B, v·K] the same taps sorted by the pixel they read: the kept pixel that reads it,
    share: Tensor  # [B, v·K] with which weight,
    offset: Tensor  # [B, n] and where the taps of each pixel begin
    band_y: Tensor | None  # the blur along each axis; None: no blur
    band_x: Tensor | None
    half_y: Tensor | None  # the reduction along each axis; None: no reduction
    half_x: Tensor | None
    defender: Kernel
    attacker: Kernel
    reference: Kernel
    attacker_tables: Tables
    reference_tables: Tables
    used: Tensor  # [n] bool: attacked pixels that some T_β reads

    @property
    def flow(self) -> Flow:
        """The transformation, where cells of one parameter are bounded."""
        if not isinstance(self.transform, Flow):
            raise self.transform.unknown("no bound of the paths of pixels is known")
        return self.transform

    @property
    def size(self) -> tuple[int, int]:
        return int(self.x.shape[1]), int(self.x.shape[2])

    @property
    def pixels(self) -> int:
        return self.y.numel()

    @property
    def channels(self) -> int:
        return self.x.shape[0]

    @property
    def trivial(self) -> float:
        """‖ε‖₂ ≤ this whatever γ: what holds before anything was computed.

        Weights sum to 1 and their absolute values to at most 1 + 2o per pixel (o: overshoot), so from values in ½ ± h
        they make values in ½ ± h(1 + 2o). The attacked image has h = ½, or ½ + o_att if it is not clipped; T_β makes
        (½ + o_att)(1 + 2o_def) of that, T_{β+γ} x has ½(1 + 2o_ref): together (1 + o_att)(1 + 2o) per pixel, o the
        larger of o_def and o_ref. P does not enlarge ℓ2 norms.
        """
        attacker = 0.0 if self.threat.quantized else self.attacker.overshoot
        overshoot = max(self.defender.overshoot, self.reference.overshoot)
        return (1 + attacker) * (1 + 2 * overshoot) * math.sqrt(self.channels * self.kept.numel())

    def room(self, elements: int) -> int:
        """How many items of so many float64 elements are computed at once."""
        return max(1, (2**29 if self.x.is_cuda else 2**24) // elements)

    def attack(self, gamma: Tensor) -> Tensor:
        """T_γ x, not rounded: [...] → [..., C, n]."""
        moved = self.transform(self.x, gamma.reshape(-1, 1), self.attacker.name)
        return moved.reshape(*gamma.shape, self.channels, self.pixels)

    def defend(self, theta: Tensor) -> Tensor:
        """T_θ x at the kept pixels, by the reference's kernel: [...] → [..., C, v]."""
        y, x = self.transform.source([theta.reshape(-1, 1)], self.y[self.kept], self.x_[self.kept])
        moved = sample(self.x, y.unsqueeze(1), x.unsqueeze(1), self.reference)
        return moved.reshape(*theta.shape, self.channels, self.kept.numel())

    def pull(self, which: Tensor, images: Tensor, group: Tensor) -> Tensor:
        """T_β[which] z at the kept pixels: task t reads the images [G, F, n] of group[t] → [t, F, v]."""
        groups, count, pixels = images.shape
        index = self.index[which] + (group * pixels)[:, None, None]
        rows = images.transpose(1, 2).reshape(groups * pixels, count)
        taps_per_pixel = index.shape[-1]
        out = embedding_bag(
            index.reshape(-1, taps_per_pixel),
            rows,
            per_sample_weights=self.weight[which].reshape(-1, taps_per_pixel),
            mode="sum",
        )
        return out.reshape(which.numel(), -1, count).transpose(1, 2)

    def push(self, which: Tensor, p: Tensor) -> Tensor:
        """The adjoint of `pull`, T_β[which]ᵀ p: [t, F, v] → [t, F, n]. Its taps are sorted by the pixel they read."""
        tasks, count, kept = p.shape
        every = torch.arange(tasks, device=p.device)[:, None]
        out = embedding_bag(
            (self.reader[which] + every * kept).flatten(),
            p.transpose(1, 2).reshape(tasks * kept, count),
            offsets=(self.offset[which] + every * self.reader.shape[1]).flatten(),
            per_sample_weights=self.share[which].flatten(),
            mode="sum",
        )
        return out.reshape(tasks, self.pixels, count).transpose(1, 2)

    def blur(self, v: Tensor) -> Tensor:
        """P on values at the pixels that it reads: [..., v] → [..., w]. Its entries are nonnegative."""
        if self.half_y is not None and self.half_x is not None:
            full = v.new_zeros(v.numel() // v.shape[-1], self.pixels)
            full.index_copy_(1, self.kept, v.reshape(full.shape[0], -1))
            small = self.half_y @ full.reshape(-1, *self.x.shape[1:]) @ self.half_x.T
            v = small.flatten(1).index_select(1, self.returned).reshape(*v.shape[:-1], -1)
        return self._within(v)

    def adjoint(self, w: Tensor) -> Tensor:
        """Pᵀ: [..., w] → [..., v]. Without a reduction P is symmetric."""
        w = self._within(w)
        if self.half_y is None or self.half_x is None:
            return w
        full = self._spread(w)
        large = self.half_y.T @ full @ self.half_x
        return large.flatten(1).index_select(1, self.kept).reshape(*w.shape[:-1], -1)

    def _within(self, w: Tensor) -> Tensor:
        """V B V at the pixels that P returns: symmetric."""
        if self.band_y is None or self.band_x is None:
            return w
        seen = self.band_y @ self._spread(w) @ self.band_x
        return seen.flatten(1).index_select(1, self.returned).reshape(w.shape)

    def _spread(self, w: Tensor) -> Tensor:
        """[..., w] → pictures [·, H', W'] of the size that P returns, 0 elsewhere."""
        height, width = (side // 2 for side in self.size) if self.half_y is not None else self.size
        full = w.new_zeros(w.numel() // w.shape[-1], height * width)
        return full.index_copy_(1, self.returned, w.reshape(full.shape[0], -1)).reshape(-1, height, width)

    def quantize(self, z: Tensor) -> Tensor:
        return self.transform.quantize(z) if self.threat.quantized else z


def model(x: Tensor, defence: Defence, threat: Threat, beta: Tensor) -> Model:
    """The `Model` of x [C,H,W] and beta [B,d], both float64 on the device that computes."""
    transform = threat.transform
    assert isinstance(transform, SpatialTransform)
    height, width = x.shape[-2:]
    p = defence.preprocess
    masks = p.reads(height, width), p.returns(height, width)
    kept, returned = (mask.flatten().nonzero()[:, 0].to(x.device) for mask in masks)
    y, x_ = grid.points(height, width, x)
    defender, attacker = kernel(defence.interpolation), kernel(threat.interpolation)
    reference = kernel(defence.known.interpolation)
    source_y, source_x = transform.source([b[:, None] for b in beta.unbind(1)], y[kept], x_[kept])
    index, weight = taps(source_y, source_x, height, width, defender)
    used = torch.zeros(height * width, dtype=torch.bool, device=x.device)
    used[index[weight != 0]] = True
    order = torch.argsort(index.flatten(1), stable=True)
    sorted_index = index.flatten(1).gather(1, order)
    every = torch.arange(height * width, device=x.device).expand(beta.shape[0], -1).contiguous()
    blurs, least = p.blur_sigma > 0 and p.blur_size > 1, 2 if p.halved else 1
    band_y, band_x = (p.band(side // least).to(x) if blurs else None for side in (height, width))
    half_y, half_x = (halving(side).to(x) if p.halved else None for side in (height, width))
    return Model(
        x, defence, threat, transform, beta[:, 0], kept, returned, y, x_, index, weight,
        order // index.shape[-1], weight.flatten(1).gather(1, order), torch.searchsorted(sorted_index, every),
        band_y, band_x, half_y, half_x, defender, attacker, reference, tables(x, attacker), tables(x, reference), used,
    )  # fmt: skip


def operator_norm(m: Model) -> Tensor:
    """A bound [B] of ‖P T_β‖₂: ‖K‖₂ ≤ √(‖K‖_1 ‖K‖_∞), the largest column times the largest row sum of |K|, K = P T_β.

    K is formed in float32 (float64 where products may use fewer digits): an entry is a sum of products whose absolute
    values sum, over a row, to at most 4 (Σ|weights| ≤ 1.375² and P's row sums ≤ 1), each with at most 4·side
    roundings; the sums of |entries| round at most n times. That is below 1e-3 up to 64 × 64 pixels; for larger images
    the absolute values |P||T_β| are summed in float64 instead.
    """
    height, width = m.x.shape[1:]
    if m.pixels > grid.SMALL or m.half_y is not None:
        return absolute_norm(m)
    kind = m.x.dtype if m.x.is_cuda or torch.get_float32_matmul_precision() != "highest" else torch.float32
    keep = torch.zeros(m.pixels, device=m.x.device, dtype=kind)
    keep[m.kept] = 1
    out = []
    size = max(1, int((2**27 if m.x.is_cuda else 2**22) / m.pixels**2))
    for index, weight in zip(torch.split(m.index, size), torch.split(m.weight.to(kind), size), strict=True):
        count = index.shape[0]
        k = torch.zeros(count, m.pixels, m.pixels, device=m.x.device, dtype=kind)
        k[:, m.kept] = k[:, m.kept].scatter_add_(2, index, weight)
        if m.band_y is not None and m.band_x is not None:
            k = m.band_y.to(kind) @ k.reshape(count, height, width * m.pixels)
            k = m.band_x.to(kind) @ k.reshape(count * height, width, m.pixels)
        k = k.reshape(count, m.pixels, m.pixels).abs_().mul_(keep[:, None])
        out.append((k.sum(1).amax(1) * k.sum(2).amax(1)).sqrt())
    return torch.cat(out).to(m.x.dtype) + 1e-3


def absolute_norm(m: Model) -> Tensor:
    absolute = m.weight.abs()
    rows = m.blur(absolute.sum(-1)).amax(-1)
    ones = m.adjoint(torch.ones(m.returned.numel(), dtype=m.x.dtype, device=m.x.device))
    share = (absolute * ones[:, None]).flatten(1)
    columns = share.new_zeros(share.shape[0], m.pixels).scatter_add_(1, m.index.flatten(1), share).amax(-1)
    return (rows * columns).sqrt()
