"""The defender's eye: P T_θ as matrices, and how much of an image passes through it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.originals.chords import corner_taps
from warpcert.transforms import Flow, Preprocess, Shift, SpatialTransform
from warpcert.transforms.kernels import Kernel, kernel

__all__ = ["Lens", "lens", "norm"]

STRIDE = 0.07  # px between the nodes of θ
ENTRY = 1e-13  # of the weights of T_θ in float64, source points off by 1e-14 px
POWERS = 4  # squarings in `norm`
CHUNK = 2**22  # window entries of `spread` at once


def norm(m: Tensor) -> Tensor:
    """Upper bounds [...] of the spectral norms of m [..., r, r]: ‖m‖₂² = ‖mmᵀ‖₂, four times, then ≤ ‖·‖_F; nearly
    sharp.

    Every power is scaled to ‖·‖_F = 1, so that ‖·‖₂² ≥ 1/r, and a product errs by less than r·u: by r²u of its norm,
    of which all the roots together keep no more than r²u; four times that is added.
    """
    total, share = m.new_zeros(m.shape[:-2]), 1.0
    for _ in range(POWERS):
        size = torch.linalg.matrix_norm(m).clamp_min(1e-300)
        total, share = total + share * size.log(), share / 2
        m = m / size[..., None, None]
        m = m @ m.mT
    size = torch.linalg.matrix_norm(m).clamp_min(1e-300)
    bound: Tensor = (total + share * size.log()).exp() * (1 + 1e-9 + 4 * m.shape[-1] ** 2 * 2.0**-53)
    return bound


@dataclass(frozen=True, eq=False)
class Lens:
    """P T_θ on images of height × width, v pixels inside the vignette.

    `blurred` is P; blur [v,v] is P as a matrix, made when it is asked for. It lets few directions through: with F the
    first r rows of factor [v,v], ‖P z‖² ≤ ‖F z‖² + tail(r)·‖z‖². dims [v] is about what tail will be, falling.
    """

    transform: SpatialTransform
    kernel: Kernel
    height: int
    width: int
    mask: Tensor
    preprocess: Preprocess

    @property
    def blur(self) -> Tensor:
        return _low_pass(self.preprocess, self.height, self.width, self.mask.device)[0]

    @property
    def factor(self) -> Tensor:
        return _low_pass(self.preprocess, self.height, self.width, self.mask.device)[1]

    @property
    def dims(self) -> Tensor:
        return _low_pass(self.preprocess, self.height, self.width, self.mask.device)[2]

    def blurred(self, z: Tensor) -> Tensor:
        """P z for z [..., v]: separable, in far fewer operations than the matrix takes."""
        frame = z.new_zeros(*z.shape[:-1], self.height * self.width)
        frame[..., self.mask] = z
        seen: Tensor = self.preprocess(frame.reshape(*z.shape[:-1], self.height, self.width))
        return seen.flatten(-2)[..., self.mask]

    @property
    def stride(self) -> float:
        """The distance of nodes of θ: no pixel that is seen moves by more than STRIDE px from one to the next."""
        if not isinstance(self.transform, Flow):
            return STRIDE
        seen = self.mask.reshape(self.height, self.width).nonzero().double()
        center = seen.new_tensor([(self.height - 1) / 2, (self.width - 1) / 2])
        return STRIDE / max(1.0, self.transform.speed * float((seen - center).norm(dim=1).max()))

    def tail(self, rank: int) -> float:
        return _tail(self.preprocess, self.height, self.width, self.mask.device, rank)

    def line(self, theta: Tensor, axis: int) -> Tensor:
        """T_θ of a shift along one axis (0: rows, 1: columns) as matrices [n, side, side]: T_θ = rows ⊗ columns."""
        side = (self.height, self.width)[axis]
        source = self.transform.coordinates(theta, *((side, 1), (1, side))[axis])[axis].flatten(1) + (side - 1) / 2
        return self.kernel.value(source[..., None] - torch.arange(side, device=theta.device))

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """(a, b, pair) with row k of `factor` = a[pair[k,0]] ⊗ b[pair[k,1]] on the whole frame, a [·,H], b [·,W]; None
        unless the transformation is a shift and the vignette a rectangle.
        """
        if not isinstance(self.transform, Shift) or self.preprocess.vignette == "circle":
            return None
        return _both_low_passes(self.preprocess, self.height, self.width, self.mask.device)[:3]

    def passed(self, theta: Tensor, rank: int) -> Tensor:
        """F T_θ [n,r,N] for θ [n,d]."""
        factor = self.factor[:rank]
        index, weight = corner_taps(self.transform, theta, self.height, self.width, self.kernel)
        index, weight, size = index[:, self.mask], weight[:, self.mask], self.height * self.width
        if index.is_cuda:
            return factor @ weight.new_zeros(*index.shape[:2], size).scatter_add_(2, index, weight)
        count, kept, taps = index.shape
        start, wide = torch.arange(kept + 1).mul(taps).numpy(), factor.mT.contiguous().numpy()
        out = weight.new_empty(count, rank, size)
        for i in range(count):
            sparse = csr_matrix((weight[i].flatten().numpy(), index[i].flatten().numpy(), start), (kept, size))
            out[i] = torch.from_numpy(sparse.T @ wide).mT
        return out

    def spread(self, theta: Tensor, coefficient: Tensor) -> Tensor:
        """Δ [N] with ‖R e‖² ≤ Σ Δ_j e_j² for every e and each of the n matrices R = Σ_l coefficient_l T_θl, rows inside
        the vignette; θ [n,l,d], coefficient [n,l].

        ‖Re‖² ≤ Σ_p (Σ_j |R_pj|)(Σ_j |R_pj| e_j²) by Cauchy–Schwarz: Δ_j = Σ_p |R_pj| Σ_i |R_pi|, the largest over the
        n. The entries of a row lie in a small window, where the T_θl are added before the absolute values.
        """
        room = max(1, CHUNK // (coefficient.shape[1] * int(self.mask.sum()) * 4 * (self.kernel.reach + 1) ** 2))
        parts = zip(torch.split(theta, room), torch.split(coefficient, room), strict=True)
        return torch.stack([self._spread(a, b) for a, b in parts]).amax(0)

    def _spread(self, theta: Tensor, coefficient: Tensor) -> Tensor:
        """A shift moves all pixels alike: the window of one, whose entries sum to S, serves all (the frame only takes
        entries away), and Δ_j ≤ S² wherever a pixel may be read.
        """
        if isinstance(self.transform, Shift):
            return self._evenly(theta, coefficient)
        count = len(coefficient)
        index, entries = self._windows(theta, coefficient, self.mask)
        share = (entries * entries.sum((2, 3), keepdim=True)).flatten(1)
        return share.new_zeros(count, self.height * self.width).scatter_add_(1, index.flatten(1), share).amax(0)

    def _evenly(self, theta: Tensor, coefficient: Tensor) -> Tensor:
        one = torch.zeros_like(self.mask)
        one[(self.height // 2) * self.width + self.width // 2] = True
        total = self._windows(theta, coefficient, one, framed=False)[1].sum((1, 2, 3)).square().amax()
        frame = self.mask.reshape(self.height, self.width)
        read = []
        for axis, lines in enumerate((frame.any(1), frame.any(0))):
            moved = self.transform.coordinates(theta.flatten(0, 1), 1, 1)[axis].flatten()
            first, last = float(moved.min()) - self.kernel.reach, float(moved.max()) + self.kernel.reach
            seen = lines.nonzero()[:, 0]
            number = torch.arange(len(lines), device=lines.device)
            read.append((number >= int(seen[0]) + first - 1e-9) & (number <= int(seen[-1]) + last + 1e-9))
        inside: Tensor = total * (read[0][:, None] & read[1]).flatten()
        return inside

    def _windows(
        self, theta: Tensor, coefficient: Tensor, rows: Tensor, *, framed: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Pixels [n,v,S,S] and absolute values of the entries of R in these rows (a mask); framed: inside the frame."""
        count, terms = coefficient.shape
        points = self.transform.coordinates(theta.flatten(0, 1), self.height, self.width)
        place, weight = [], []
        for s, side in zip(points, (self.height, self.width), strict=True):
            u = s.flatten(1)[:, rows].reshape(count, terms, -1) + (side - 1) / 2  # [n,l,v]
            first = (u.amin(1) - 1e-9).floor() + 1 - self.kernel.reach
            last = (u.amax(1) + 1e-9).floor() + self.kernel.reach
            at = first[..., None] + torch.arange(int((last - first).max()) + 1, device=u.device)  # [n,v,S]
            inside = ((at >= 0) & (at < side)) | (not framed)
            place.append(at.clamp(0, side - 1).long())
            weight.append(self.kernel.value(u[..., None] - at[:, None]) * inside[:, None])  # [n,l,v,S]
        y, x = (w.permute(0, 2, 3, 1) for w in weight)
        entries = ((y * coefficient[:, None, None]) @ x.mT).abs() + ENTRY * coefficient.abs().sum(1).max()
        return place[0][..., None] * self.width + place[1][..., None, :], entries


def lens(defence: Defence, height: int, width: int, device: torch.device) -> Lens:
    """The `Lens` of this defence."""
    transform, p = defence.transform, defence.preprocess
    assert isinstance(transform, SpatialTransform)
    mask = p.mask(height, width).flatten().to(device)
    return Lens(transform, kernel(defence.interpolation), height, width, mask, p)


@lru_cache(maxsize=8)
def _low_pass(p: Preprocess, height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """P, its eigenvectors times eigenvalues in falling order as rows, and the squares of the eigenvalues."""
    mask = p.mask(height, width).flatten()
    blur = p.matrix(height, width)[mask][:, mask]
    if p.vignette != "circle":
        a, b, pair, value = _both_low_passes(p, height, width, torch.device("cpu"))
        whole = (a[pair[:, 0], :, None] * b[pair[:, 1], None, :]).flatten(1)
        return blur.to(device), whole[:, mask].contiguous().to(device), value.to(device)
    value, vector = torch.linalg.eigh(blur @ blur)
    value, vector = value.flip(0).clamp_min(0), vector.flip(1)
    factor = (vector * value.sqrt()).mT.contiguous()
    return blur.to(device), factor.to(device), value.to(device)


@lru_cache(maxsize=8)
def _both_low_passes(
    p: Preprocess, height: int, width: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same where V is a rectangle, P = P_H ⊗ P_W: eigenvectors times eigenvalues of both axes [·,side] on the whole
    frame, the pairs [v,2] in falling order, and the squares of their eigenvalues.
    """
    frame, factors, values = p.mask(height, width), [], []
    for side, inside in ((height, frame.any(1)), (width, frame.any(0))):
        band = p.band(side) if p.blur_sigma > 0 and p.blur_size > 1 else torch.eye(side).double()
        value, vector = (t.flip(-1) for t in torch.linalg.eigh(band[inside][:, inside]))
        factor = vector.new_zeros(len(value), side)
        factor[:, inside] = (vector * value).mT
        factors.append(factor)
        values.append(value.square())
    product = (values[0][:, None] * values[1]).flatten()
    value, order = product.sort(descending=True)
    pair = torch.stack((order // len(values[1]), order % len(values[1])), 1)
    return factors[0].to(device), factors[1].to(device), pair.to(device), value.to(device)


@lru_cache(maxsize=64)
def _tail(p: Preprocess, height: int, width: int, device: torch.device, rank: int) -> float:
    """≥ ‖P² − FᵀF‖₂, computed for the F at hand, with 1e-12 for the rounding of both products: nobody relies on F being
    made of eigenvectors.
    """
    blur, factor, _ = _low_pass(p, height, width, device)
    return float(norm(blur @ blur - factor[:rank].mT @ factor[:rank])) + 1e-12
