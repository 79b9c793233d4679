"""Windows of several parts that move pixels, one after the other: scaling, then rotation, then shear.

Let T = R ∘ T¹ with T¹ the first part and R the rest, window j = W¹ × Wʳ, and y = T¹_c x the picture at the middle c of
W¹. With E¹ ≥ ‖T¹_γ x − y‖ for γ ∈ W¹ and Eʳ ≥ ‖P R_θ y − P z_j‖ for θ ∈ Wʳ, which covers of one part bound,

    ‖P R_θ T¹_γ x − P z_j‖ ≤ ‖R_θ T¹_γ x − R_θ y‖ + Eʳ ≤ N·E¹ + Eʳ,    z_j = R_{middle of Wʳ} y,

as ‖P‖ ≤ 1 and R_θ is affine, with N the product of what its parts enlarge distances by at most (`enlarges`). Eʳ in turn
is this, if R moves pixels twice. Added to that:

  arithmetic   by how much the attacker's first picture y' errs is in E¹. What R in float32 makes of y' differs from
               R y' by `_arithmetic` at most, for any picture with values in [0,1], which y' has up to roundings.
  rounding     if the attacker rounds at the end, Eʳ is about q(R_θ y), and ‖q(a) − q(b)‖ ≤ ‖a − b‖ + √n/255: clipping
               brings two values no farther apart, and rounding moves each by half a level at most, and by 2u as
               it multiplies and divides by 255 in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from warpcert.errors.float32 import UNIT, value_error
from warpcert.threat import Threat
from warpcert.transforms import Box, Flow, Preprocess, Shift, Tone, product
from warpcert.transforms.kernels import kernel
from warpcert.windows.pieces import FLOAT_SLACK, Scene, distances

__all__ = ["is_chain", "measured", "room"]


def is_chain(threat: Threat) -> bool:
    """Whether a part that moves pixels comes after another part."""
    return any(isinstance(part, Flow | Shift) for part in threat.transform.parts[1:])


def split(threat: Threat) -> tuple[Threat, Threat]:
    """The first part alone, of an attacker who neither rounds nor adds anything, and the rest."""
    parts = threat.transform.shared(threat.box)
    first, rest = (
        replace(
            threat,
            transform=product(*(part for part, _ in some)),
            box=Box(*(tuple(v for _, own in some for v in getattr(own, end)) for end in ("lower", "upper"))),
        )
        for some in (parts[:1], parts[1:])
    )
    return replace(first, quantized=False, l2=0.0), rest


def measured(scene: Scene, lower: Tensor, upper: Tensor) -> Tensor:
    """E [J] ≥ ‖P x' − P z_j‖₂ for all x' that the attacker can hand over with γ in window j [J,d]: see `distances`."""
    if not is_chain(scene.threat):
        return distances(scene, lower, upper)
    if scene.threat.interpolation != "bilinear":
        raise ValueError(f"several parts that move pixels are bounded bilinearly; got {scene.threat.interpolation}")
    (first, rest), x = split(scene.threat), scene.x
    own, enlarged = first.transform.dim, enlarging(rest)
    ends, which = torch.unique(torch.cat((lower[:, :own], upper[:, :own]), 1), dim=0, return_inverse=True)
    near = distances(Scene(x, first, Preprocess(), False), ends[:, :own], ends[:, own:])
    bound = torch.empty_like(lower[:, 0])
    for link, y in enumerate(first.transform(x, (ends[:, :own] + ends[:, own:]) / 2, first.interpolation)):
        mine = which == link
        after = measured(Scene(y, rest, scene.preprocess, False), lower[mine, own:], upper[mine, own:])
        bound[mine] = enlarged * near[link] + after
    return (bound + _added(rest, x)) * (1 + FLOAT_SLACK) + FLOAT_SLACK


def room(threat: Threat, x: Tensor, target: float) -> list[tuple[Threat, float]]:
    """Each part (the last with the tones after it), of an attacker who neither rounds nor adds anything, and how much
    of the target its windows may take: all alike, after what those that follow make of it.
    """
    left, found = threat, list[tuple[Threat, float]]()
    while is_chain(left):
        first, left = split(left)
        target -= _added(left, x)
        found.append((first, enlarging(left)))
    found.append((replace(left, quantized=False, l2=0.0), 1.0))
    each = max((target - threat.l2) / len(found), 1e-3)
    return [(own, each / enlarged) for own, enlarged in found]


def enlarging(threat: Threat) -> float:
    """≥ ‖T_γ z − T_γ w‖₂ / ‖z − w‖₂."""
    return math.prod(part.enlarges(box) for part, box in threat.transform.shared(threat.box))


def _added(rest: Threat, x: Tensor) -> float:
    """What arithmetic and rounding add after the first part."""
    return _arithmetic(rest, x.shape) + (math.sqrt(x.numel()) * (1 / 255 + 4 * UNIT) if rest.quantized else 0.0)


def _arithmetic(threat: Threat, shape: Sequence[int]) -> float:
    """≥ ‖T_γ z in float32 − exact‖₂ for every picture z of this shape with values in [0,1], tones at the end.

    What a part errs by, those after it enlarge. 1 % for values of z that are off [0,1] by roundings.
    """
    error, most, (channels, height, width) = 0.0, 1.0, shape
    for part, box in threat.transform.shared(threat.box):
        extent = max(map(abs, (*box.lower, *box.upper)))
        if isinstance(part, Tone):
            rounding = float(part.rounding(torch.tensor([-most, most], dtype=torch.float64), extent).max())
            own = (1.01 * rounding + 4 * most) * UNIT * math.sqrt(math.prod(shape))
            most = max(1.0, most * part.top(extent))
        else:
            each = value_error(part, kernel(threat.interpolation), height, width, extent)
            own = math.sqrt(channels) * float(each.norm())
        error = part.enlarges(box) * error + own
    return 1.01 * error
