"""What the defender computes: the law of the random views that a smoothed classifier votes on."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, final

import torch
from torch import Tensor

from warpcert import transforms
from warpcert.classifier.before.front import BEFORE_NOISE, Front
from warpcert.transforms import Preprocess, Transform, kernels

__all__ = ["Defence"]


@final
@dataclass(frozen=True)
class Defence:
    """The defender classifies P T_β z + δ with β ~ N(0, diag(sigma_param²)) and δ ~ N(0, sigma_noise²), in internal
    units.

    sigma_param of zeros means that T is not applied at all: P z + δ. sigma_noise 0 means no pixel noise.

    `reference` is the kernel R with which certification turns a known original (None: the same as `interpolation`). It
    changes nothing at deployment: errors are P(T_β q(T_γ x) − T^R_{β+γ} x), and the votes are counted at P T^R_{β+γ} x
    + δ. A bilinear attacker smooths pictures, except at γ = 0; an R that smooths half as much lies between the two.
    """

    transform: Transform
    sigma_param: tuple[float, ...]
    sigma_noise: float
    interpolation: str = "bicubic"
    preprocess: Preprocess = Preprocess()
    reference: str | None = None
    front: str = "none"  # before P and noise, see `Front`; only without parameter noise

    def __post_init__(self) -> None:
        if Front(self.front).name != "none" and (any(self.sigma_param) or not self.preprocess.is_identity):
            raise ValueError("a front stands before pixel noise alone: leave vignette, blur and parameter noise out")
        if Front(self.front).name != "none" and self.transform.item_dims != 3:
            raise ValueError(f"a front is for pictures, and {self.transform.name} is of sounds: leave it out")
        if self.preprocess.limit is not None and self.transform.item_dims != 2:
            raise ValueError(f"a limiter is for sounds; got one for a {self.transform.noun} of pictures")
        if self.front not in BEFORE_NOISE:
            raise ValueError(
                f"the front {self.front!r} stands before levels; before noise take one of {', '.join(BEFORE_NOISE)}"
            )
        kernels.kernel(self.interpolation)
        kernels.kernel(self.reference or self.interpolation)
        if self.reference == self.interpolation:
            object.__setattr__(self, "reference", None)
        if len(self.sigma_param) != self.transform.dim:
            raise ValueError(
                f"sigma_param needs {self.transform.dim} value(s) for {self.transform.name}; got {self.sigma_param}"
            )
        if any(not math.isfinite(s) or s < 0 for s in (*self.sigma_param, self.sigma_noise)):
            raise ValueError(f"σ must be finite and not negative; got {self.sigma_param} and {self.sigma_noise}")
        if any(s == 0 for s in self.sigma_param) and any(s > 0 for s in self.sigma_param):
            raise ValueError(
                f"sigma_param must be positive on every axis, or zero on every axis; got {self.sigma_param}"
            )

    @classmethod
    def surface(
        cls,
        transform: str,
        *sigma: float,
        noise: float,
        interpolation: str = "bicubic",
        preprocess: Preprocess | None = None,
        reference: str | None = None,
    ) -> Defence:
        """In surface units: Defence.surface("rotation", 30, noise=0.15) smooths with σ_γ = 30° and σ_δ = 0.15."""
        t = transforms.get(transform)
        values = sigma * t.dim if len(sigma) == 1 else sigma
        p = preprocess or Preprocess()
        return cls(t, tuple(t.internal(s) for s in values), noise, interpolation, p, reference)

    def view(self, z: Tensor, beta: Tensor) -> Tensor:
        """P T_β z for parameters [B,d], without noise: [C,...] or [B,C,...] → [B,C,...]."""
        if not any(self.sigma_param):
            return self.preprocess(Front(self.front)(z)).expand(len(beta), *z.shape[-self.transform.item_dims :])
        return self.preprocess(self.transform(z, beta, self.interpolation))

    @property
    def known(self) -> Defence:
        """What certification samples at a known original: the same with R for its interpolation."""
        return replace(self, interpolation=self.reference or self.interpolation, reference=None)

    def draw_beta(self, count: int, generator: torch.Generator, center: tuple[float, ...] | None = None) -> Tensor:
        """β ~ N(center, diag(sigma_param²)) [count, d], float64, on the generator's device."""
        beta = torch.randn(count, self.transform.dim, generator=generator, device=generator.device, dtype=torch.float64)
        beta *= torch.tensor(self.sigma_param, dtype=torch.float64, device=beta.device)
        return beta if center is None else beta + torch.tensor(center, dtype=torch.float64, device=beta.device)

    def without_parameter_noise(self, noise: float) -> Defence:
        """The same P with pixel noise alone: what a cover (noise > 0) or the plain classifier (0) computes."""
        return replace(self, sigma_param=(0.0,) * self.transform.dim, sigma_noise=noise, reference=None)

    def in_words(self) -> dict[str, str]:
        """Its settings, for people."""
        p = self.preprocess
        return {
            "σ of the parameter": " × ".join(self.transform.to_text(s) for s in self.sigma_param),
            "σ of the pixel noise": f"{self.sigma_noise:g}",
            "the classifier's interpolation": self.interpolation,
            "the reference of originals": self.known.interpolation,
            **({} if self.front == "none" else {"the front": self.front}),
            **({} if p.limit is None else {"the limiter": f"±{p.limit:g} of full scale"}),
            "the vignette": f"{p.vignette} with margin {p.margin:g} px",
            "the blur": f"σ {p.blur_sigma:g} px, size {p.blur_size}",
            **({"the reduction": "to half the size, before vignette and blur"} if p.halved else {}),
        }

    def to_dict(self) -> dict[str, Any]:
        d = asdict(self) | {"transform": self.transform.name, "preprocess": self.preprocess.to_dict()}
        if self.reference is None:
            del d["reference"]
        if self.front == "none":
            del d["front"]
        return d

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Defence:
        if unknown := set(d) - {f.name for f in fields(cls)}:
            raise ValueError(f"a defence has no {', '.join(sorted(unknown))}: was it written by a later version?")
        return cls(
            transforms.get(d["transform"]),
            tuple(d["sigma_param"]),
            d["sigma_noise"],
            d["interpolation"],
            Preprocess(**d["preprocess"]),
            d.get("reference"),
            d.get("front", "none"),
        )
