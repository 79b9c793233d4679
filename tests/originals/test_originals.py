"""The inverses by their promise: the original inside, the error never above its bound, and every term needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from warpcert.classifier.defence import Defence
from warpcert.originals import protocol as module
from warpcert.originals.protocol import IntervalInverse, InverseBound, Originals
from warpcert.threat import Threat
from warpcert.transforms import Preprocess

INVERSES: list[InverseBound] = [IntervalInverse(refinements=3, cells=12, finest=0.02, most=64)]
THREATS = {
    "rotation": Threat.of("rotation", 12),
    "translation": Threat.of("translation", 1.2),
    "scaling": Threat.of("scaling", 8),
}
SIGMA = {"rotation": 20.0, "translation": 1.0, "scaling": 10.0}


def picture(kind: str, shape: tuple[int, int, int], g: torch.Generator) -> Tensor:
    """Content up to the border, so that it leaves the frame; saturated, binary and regular ones among them."""
    x = torch.rand(shape, dtype=torch.float64, generator=g)
    if kind == "saturated":
        return (3 * x - 1).clamp(0, 1)
    if kind == "checkerboard":
        return (torch.arange(shape[1])[:, None] + torch.arange(shape[2])).remainder(2).expand(shape).double()
    return x.round() if kind == "binary" else x


def true_errors(x: Tensor, x_attacked: Tensor, gamma: Tensor, defence: Defence, beta: Tensor) -> Tensor:
    """‖P T_β x' − P T_{β+γ} x‖ [n] as deployed: in the precision of x."""
    seen = defence.view(x_attacked.to(x), beta)
    return torch.linalg.vector_norm((seen - defence.view(x, beta + gamma)).flatten(1), dim=1).double()


def holding(found: Originals, x: Tensor, gamma: Tensor) -> Tensor:
    """Cells that hold γ and whose boxes hold x."""
    here = ((found.low <= gamma) & (gamma <= found.high)).all(1)
    return here & ((found.lower <= x) & (x <= found.upper)).flatten(1).all(1)


@settings(max_examples=120)
@given(
    inverse=st.sampled_from(INVERSES),
    transform=st.sampled_from(list(THREATS)),
    defender=st.sampled_from(["bilinear", "bicubic", "bicubic-0.5"]),
    kind=st.sampled_from(["noise", "binary", "saturated", "checkerboard"]),
    shape=st.tuples(st.sampled_from([1, 3]), st.integers(1, 8), st.integers(1, 8)),
    preprocess=st.sampled_from([Preprocess(), Preprocess("none", 0, 1.0, 3), Preprocess("circle", 0, 1.0, 5)]),
    quantized=st.booleans(),
    whole=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_the_original_is_inside_and_its_error_below_the_bound(
    inverse: InverseBound,
    transform: str,
    defender: str,
    kind: str,
    shape: tuple[int, int, int],
    preprocess: Preprocess,
    quantized: bool,
    whole: bool,
    seed: int,
) -> None:
    g = torch.Generator().manual_seed(seed)
    threat = replace(THREATS[transform], quantized=quantized)
    defence = Defence.surface(transform, SIGMA[transform], noise=0.1, interpolation=defender, preprocess=preprocess)
    x, gamma = picture(kind, shape, g), threat.box.uniform(1, g)
    gamma = gamma.round() if whole else gamma  # nothing moves, or by whole pixels
    x_attacked = threat.attacked(x, gamma)[0]
    found = inverse.survivors(x_attacked, threat)
    cells = holding(found, x, gamma)
    assert cells.any()
    beta = defence.draw_beta(5, g)
    beta = torch.cat((beta, -gamma, gamma * 0))
    bound = inverse.errors(found, defence, beta)[:, cells].amin(1)
    others = [x, *_other_originals(x, x_attacked, gamma, threat, g)]
    for z in others:
        assert (true_errors(z, x_attacked, gamma, defence, beta) <= bound).all()
        assert (true_errors(z.float(), x_attacked, gamma, defence, beta) <= bound).all()


def _other_originals(x: Tensor, x_attacked: Tensor, gamma: Tensor, threat: Threat, g: torch.Generator) -> list[Tensor]:
    """Further originals of the same x': pixels that x' does not see are free, and rounding hides small changes."""
    tried = [(x + size * torch.randn(x.shape, dtype=x.dtype, generator=g)).clamp(0, 1) for size in (1e-3, 3e-4)]
    flat = torch.eye(x[0].numel(), dtype=torch.float64).reshape(-1, 1, *x.shape[1:])
    weight = threat.transform(flat, gamma.expand(len(flat), -1), threat.interpolation).flatten(1).sum(1)
    free = (weight == 0).reshape(x.shape[1:])
    tried += [torch.where(free, value, x) for value in (0.0, 1.0)]
    return [z for z in tried if torch.equal(threat.attacked(z, gamma)[0], x_attacked)]


def itself(x: Tensor, threat: Threat) -> Originals:
    """x' = x known to be the original, as nothing was moved."""
    zero, box = torch.zeros(1, threat.box.dim, dtype=torch.float64), x.double()[None]
    return Originals(x, threat, zero, zero, box, box, 1, 0.0)


def without_motion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Near, "_motion", lambda self, at, away, which: 0.0)


def without_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module._Near.__init__

    def init(self: module._Near, *args: object) -> None:
        made(self, *args)  # type: ignore[arg-type]
        self.half = self.half * 0

    monkeypatch.setattr(module._Near, "__init__", init)


def with_signed_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module._Near.__init__

    def init(self: module._Near, *args: object) -> None:
        made(self, *args)  # type: ignore[arg-type]
        self.absolute = self.k

    monkeypatch.setattr(module._Near, "__init__", init)


def with_small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module._Near.__init__

    def init(self: module._Near, *args: object) -> None:
        made(self, *args)  # type: ignore[arg-type]
        self.range = self.range * 0.3

    monkeypatch.setattr(module._Near, "__init__", init)


def moved_to_the_end(inverse: IntervalInverse) -> bool:
    """One bright column, known exactly; γ at the end of a wide cell of translations."""
    x = torch.zeros(1, 7, 9, dtype=torch.float64)
    x[:, :, 4] = 1
    threat, defence = Threat.of("translation", 1), Defence.surface("translation", 1, noise=0.1)
    start, end = (torch.tensor([v], dtype=torch.float64) for v in ([0.0, 0.0], [0.9, 0.0]))
    found = Originals(x, threat, start, end, x[None], x[None], 1, 0.0)
    bound = inverse.errors(found, defence, start)[0]
    return bool(true_errors(x, x, end, defence, start) <= bound)


def worst_in_the_box(inverse: IntervalInverse) -> bool:
    """One pixel of T_β x between four: x anywhere in [0,1], chosen by the signs of the weights."""
    defence = Defence.surface("translation", 1, noise=0.1)
    threat, zero = Threat.of("translation", 1), torch.zeros(1, 2, dtype=torch.float64)
    beta = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    weights = torch.stack(
        [defence.view(e.reshape(1, 7, 7), beta)[0, 0, 3, 3] for e in torch.eye(49, dtype=torch.float64)]
    )
    x = (weights > 0).double().reshape(1, 7, 7)
    other = torch.full_like(x, 0.5)
    found = Originals(other, threat, zero, zero, torch.zeros_like(x)[None], torch.ones_like(x)[None], 1, 0.0)
    only = replace(defence, preprocess=Preprocess("rectangle", 3))
    bound = inverse.errors(found, only, beta)[0]
    return bool(true_errors(x, other, zero, only, beta) <= bound)


@pytest.mark.parametrize(
    ("weaken", "holds"),
    [
        (without_motion, moved_to_the_end),
        (with_small_ranges, moved_to_the_end),
        (without_boxes, worst_in_the_box),
        (with_signed_weights, worst_in_the_box),
    ],
)
def test_every_term_of_the_interval_errors_is_needed(
    monkeypatch: pytest.MonkeyPatch,
    weaken: Callable[[pytest.MonkeyPatch], None],
    holds: Callable[[IntervalInverse], bool],
) -> None:
    assert holds(IntervalInverse())
    weaken(monkeypatch)
    assert not holds(IntervalInverse())


def test_the_float32_slack_is_needed(monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    """x known exactly and γ = 0: what is left of the bound is what the deployed arithmetic may err."""
    x = torch.rand(3, 8, 7, generator=generator)
    defence, threat = Defence.surface("rotation", 30, noise=0.1), Threat.of("rotation", 5)
    beta = defence.draw_beta(50, generator)
    found = itself(x, threat)
    exact = defence.view(x.double(), beta)
    wrong = torch.linalg.vector_norm((defence.view(x, beta).double() - exact).flatten(1), dim=1)
    assert (wrong <= IntervalInverse().errors(found, defence, beta)[:, 0]).all()
    monkeypatch.setattr(module, "inference_slack", lambda *args: 0.0)
    assert not (wrong <= IntervalInverse().errors(found, defence, beta)[:, 0]).any()


def test_chunks_and_progress(monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    """However the pairs are cut, the same bounds; progress ends at the whole."""
    x = torch.rand(1, 6, 6, generator=generator)
    threat, defence = THREATS["rotation"], Defence.surface("rotation", 20, noise=0.1)
    x_attacked = threat.attacked(x, torch.tensor([[0.1]]))[0]
    found = IntervalInverse(finest=1).survivors(x_attacked, threat)
    beta, told = defence.draw_beta(3, generator), []
    whole = IntervalInverse().errors(found, defence, beta, progress=lambda done, total: told.append((done, total)))
    one = [
        IntervalInverse().errors(_cell(found, k), defence, b[None])[0, 0] for b in beta for k in range(len(found.low))
    ]
    assert whole.shape == (3, len(found.low)) and told[-1] == (3, 3)
    torch.testing.assert_close(
        whole.flatten(), torch.stack(one), atol=1e-4, rtol=0
    )  # the float32 slack depends on max|β|


def _cell(found: Originals, k: int) -> Originals:
    parts = {name: getattr(found, name)[k : k + 1] for name in ("low", "high", "lower", "upper")}
    return replace(found, **parts)


def test_more_splitting_and_refining_is_tighter(generator: torch.Generator) -> None:
    x = torch.rand(1, 9, 9, generator=generator)
    threat, defence = THREATS["rotation"], Defence.surface("rotation", 20, noise=0.1)
    x_attacked = threat.attacked(x, torch.tensor([[math.radians(5)]]))[0]
    beta, sizes, left = defence.draw_beta(4, generator), [], []
    for finest, refinements in ((1.0, 0), (0.02, 0), (0.005, 0), (0.005, 10)):
        inverse = IntervalInverse(refinements=refinements, cells=12, finest=finest)
        found = inverse.survivors(x_attacked, threat)
        left.append(float((found.high - found.low).sum()))
        sizes.append(float(inverse.errors(found, defence, beta).max()))
    assert sizes == sorted(sizes, reverse=True) and left == sorted(left, reverse=True)
    assert sizes[-1] < 0.7 * sizes[0] and left[-1] < 0.6 * left[0]


def test_what_it_cannot_bound_is_refused(generator: torch.Generator) -> None:
    x = torch.rand(1, 5, 5, generator=generator)
    for transform, defender in (("rotation", "nearest"), ("brightness", "bilinear")):
        defence = Defence.surface(transform, 1, noise=0.1, interpolation=defender)
        with pytest.raises(ValueError, match="not jump"):
            IntervalInverse().errors(itself(x, THREATS["rotation"]), defence, torch.zeros(1, 1))
