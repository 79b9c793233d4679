"""Every transformation through its declared protocol, and the spatial ones against independent implementations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import affine_grid, grid_sample

from warpcert import transforms
from warpcert.transforms import (
    Box,
    PointwiseTransform,
    Rotation,
    Scaling,
    SpatialTransform,
    Transform,
    Translation,
    kernels,
)

ALL = list(transforms.TRANSFORMS.values())
SPATIAL = [t for t in ALL if isinstance(t, SpatialTransform)]
SIZES = [(1, 7, 7), (3, 8, 8), (2, 9, 6), (1, 6, 11), (4, 5, 8)]
KERNELS = list(kernels.KERNELS)
EXACT = 1e-10
ids = {"ids": lambda v: v.name if isinstance(v, Transform) else str(v)}


def item(t: Transform, shape: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return x if t.item_dims == 3 else x.flatten(1) * 2 - 1


def some_gamma(t: Transform, count: int, seed: int = 1) -> torch.Tensor:
    gamma = 0.6 * torch.randn(count, t.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return gamma.abs() if t.one_sided else gamma


@pytest.mark.parametrize("shape", SIZES, **ids)
@pytest.mark.parametrize("t", ALL, **ids)
def test_zero_is_the_identity(t: Transform, shape: tuple[int, ...]) -> None:
    """With every kernel that says so; the others do change pictures."""
    x = item(t, shape)
    for name in KERNELS:
        still = t(x, torch.zeros(2, t.dim), name)
        if kernels.kernel(name).interpolates or not isinstance(t, SpatialTransform):
            torch.testing.assert_close(still, x.expand(2, *x.shape), atol=EXACT, rtol=0)
        else:
            assert float((still - x).abs().max()) > 0.01


@pytest.mark.parametrize("t", ALL, **ids)
def test_one_image_for_all_parameters_is_the_batch_of_copies(t: Transform) -> None:
    x, gamma = item(t, (3, 8, 6)), some_gamma(t, 5)
    for name in KERNELS:
        many = t(x, gamma, name)
        assert many.shape == (5, *x.shape)
        torch.testing.assert_close(t(x.expand(5, *x.shape).clone(), gamma, name), many, atol=EXACT, rtol=0)


@pytest.mark.parametrize("t", [t for t in ALL if isinstance(t, PointwiseTransform)], **ids)
def test_pointwise_transformations_compose_exactly(t: Transform) -> None:
    x, a, b = item(t, (3, 8, 6)), some_gamma(t, 4, 1), some_gamma(t, 4, 2)
    torch.testing.assert_close(t(t(x, a), b), t(x, a + b), atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize("t", SPATIAL, **ids)
def test_spatial_transformations_compose_on_points(t: SpatialTransform) -> None:
    """T_β∘T_γ = T_{β+γ}: the value at p is that of the image at source_γ(source_β(p))."""
    y, x = torch.randn(2, 50, dtype=torch.float64) * 10
    beta, gamma = some_gamma(t, 1, 3)[0], some_gamma(t, 1, 4)[0]
    twice = t.source(gamma.unbind(), *t.source(beta.unbind(), y, x))
    once = t.source((beta + gamma).unbind(), y, x)
    torch.testing.assert_close(twice, once, atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize("t", SPATIAL, **ids)
def test_spatial_transformations_nearly_compose_on_smooth_images(t: SpatialTransform) -> None:
    y, x = torch.meshgrid(*2 * [torch.linspace(-3, 3, 41, dtype=torch.float64)], indexing="ij")
    image = torch.exp(-((x - 0.4) ** 2) - (y + 0.3) ** 2)[None]
    a, b = 0.2 * some_gamma(t, 1, 5), 0.2 * some_gamma(t, 1, 6)
    error = (t(t(image, a, "bicubic-0.5")[0], b, "bicubic-0.5") - t(image, a + b, "bicubic-0.5")).abs().max()
    assert error < 5e-3
    assert (t(image, a, "bicubic-0.5") - image).abs().max() > 10 * error  # it does move the picture


@pytest.mark.parametrize("shape", SIZES, **ids)
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_agrees_with_grid_sample(shape: tuple[int, ...], mode: str) -> None:
    """torch's own affine_grid, with its own coordinates; the definition is evaluated literally on our side."""
    x = item(Rotation(), shape)
    _, height, width = shape
    gamma = some_gamma(Rotation(), 6)
    cos, sin = gamma[:, 0].cos(), gamma[:, 0].sin()
    theta = torch.zeros(6, 2, 3, dtype=torch.float64)  # normalised axes are 2/side pixels long
    theta[:, 0, 0], theta[:, 0, 1] = cos, -sin * height / width
    theta[:, 1, 0], theta[:, 1, 1] = sin * width / height, cos
    grid = affine_grid(theta, [6, *shape], align_corners=False)
    theirs = grid_sample(x.expand(6, *shape), grid, mode=mode, padding_mode="zeros", align_corners=False)
    ours = kernels.gather(x, *Rotation().coordinates(gamma, height, width), kernels.kernel(mode))
    torch.testing.assert_close(ours, theirs, atol=EXACT, rtol=0)
    torch.testing.assert_close(Rotation()(x, gamma, mode), theirs, atol=EXACT, rtol=0)


@pytest.mark.parametrize("shape", SIZES, **ids)
def test_rotation_agrees_with_scipy(shape: tuple[int, ...]) -> None:
    x = item(Rotation(), shape)
    for angle in (-0.7, 0.3, 2.0):
        cos, sin = math.cos(angle), math.sin(angle)
        matrix = np.array([[cos, sin], [-sin, cos]])  # output (row, column) → input
        centre = (np.array(shape[1:]) - 1) / 2
        ours = Rotation()(x, torch.tensor([[angle]], dtype=torch.float64))[0]
        for channel in range(shape[0]):
            theirs = scipy.ndimage.affine_transform(
                x[channel].numpy(), matrix, centre - matrix @ centre, order=1, mode="grid-constant"
            )
            np.testing.assert_allclose(ours[channel].numpy(), theirs, atol=EXACT)


def test_translation_agrees_with_scipy() -> None:
    x = item(Translation(), (1, 9, 6))
    ours = Translation()(x, torch.tensor([[1.3, -0.6]], dtype=torch.float64))[0, 0]
    theirs = scipy.ndimage.shift(x[0].numpy(), (-0.6, 1.3), order=1, mode="grid-constant")
    np.testing.assert_allclose(ours.numpy(), theirs, atol=EXACT)


def test_scaling_agrees_with_scipy() -> None:
    x, factor = item(Scaling(), (1, 9, 6)), 1.3
    ours = Scaling()(x, torch.tensor([[math.log(factor)]], dtype=torch.float64))[0, 0]
    centre = np.array([4.0, 2.5])
    theirs = scipy.ndimage.affine_transform(
        x[0].numpy(), np.eye(2) / factor, centre - centre / factor, order=1, mode="grid-constant"
    )
    np.testing.assert_allclose(ours.numpy(), theirs, atol=EXACT)


def test_positive_angles_turn_counter_clockwise() -> None:
    x = torch.zeros(1, 5, 5)
    x[0, 0, 4] = 1  # top right
    turned = Rotation()(x, torch.tensor([[math.pi / 2]]))
    assert turned[0, 0, 0, 0] > 0.999  # top left


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("t", SPATIAL, **ids)
def test_matrix_is_the_transformation(t: SpatialTransform, name: str) -> None:
    x, gamma = item(t, (2, 9, 6)), some_gamma(t, 1)
    matrix = t.matrix(gamma[0].tolist(), 9, 6, name)
    moved = (matrix @ x.flatten(1).T).T.reshape(2, 9, 6)
    torch.testing.assert_close(moved, t(x, gamma, name)[0], atol=EXACT, rtol=0)


@pytest.mark.parametrize("name", ["bilinear", "bicubic", "bicubic-0.5"])
def test_kernels_reproduce_lines_and_their_derivative_is_right(name: str) -> None:
    k = kernels.kernel(name)
    u = torch.linspace(-0.99, 0.99, 101, dtype=torch.float64)
    offsets = torch.arange(-3, 4, dtype=torch.float64)
    weights = k.value(u[:, None] - offsets)
    torch.testing.assert_close(weights.sum(1), torch.ones_like(u), atol=EXACT, rtol=0)
    if name != "bicubic":  # a = −¾ keeps constants only
        torch.testing.assert_close(weights @ offsets, u, atol=EXACT, rtol=0)
    assert k.derivative is not None
    step = 1e-6
    slope = (k.value(u + step) - k.value(u - step)) / (2 * step)
    smooth = (u.abs() - u.abs().round()).abs() > 2 * step
    torch.testing.assert_close(k.derivative(u)[smooth], slope[smooth], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["bilinear", "bicubic", "bicubic-0.5"])
def test_gradient_and_overshoot_constants_hold_and_are_attained(name: str) -> None:
    """The worst image has extreme values by the sign of its weight: the constants are the maxima of these sums."""
    k = kernels.kernel(name)
    assert k.derivative is not None and k.gradient is not None
    u = torch.linspace(0, 1, 401, dtype=torch.float64)
    taps = torch.arange(-2, 4, dtype=torch.float64)
    value, slope = k.value(u[:, None] - taps).abs().sum(1), k.derivative(u[:, None] - taps).abs().sum(1)
    worst_slope = float(slope.max() * value.max() / 2)
    assert k.gradient * 0.999 < worst_slope <= k.gradient + EXACT
    assert float((value.max() ** 2 - 1) / 2) == pytest.approx(k.overshoot, abs=1e-9)


@given(st.floats(-3, 3), st.floats(-3, 3), st.integers(0, 99))
def test_outside_the_frame_is_zero_and_takes_part(angle: float, step: float, seed: int) -> None:
    """T_γ x is continuous in γ, also where pixels leave the frame: a small turn makes a small change."""
    x = item(Rotation(), (1, 6, 7), seed)
    small = 1e-7 * step
    pair = Rotation()(x, torch.tensor([[angle], [angle + small]], dtype=torch.float64))
    assert (pair[0] - pair[1]).abs().max() <= 1e-5


@pytest.mark.parametrize("t", ALL, **ids)
def test_units_go_both_ways_and_grow(t: Transform) -> None:
    for v in (-0.99, -0.2, 0.0, 0.5, 0.9) if t.name == "contrast" else (-20.0, -1.0, 0.0, 0.5, 30.0):
        assert t.surface(t.internal(v)) == pytest.approx(v, abs=1e-12)
    assert t.internal(0.0) == 0.0
    assert t.internal(-0.9) < t.internal(0.0) < t.internal(0.9)


@pytest.mark.parametrize("t", ALL, **ids)
def test_quantize_gives_legal_steps(t: Transform) -> None:
    z = torch.linspace(-1.7, 1.7, 1001, dtype=torch.float64)
    q = t.quantize(z)
    levels = q / t.step
    assert q.min() >= t.low and q.max() <= t.high
    torch.testing.assert_close(levels, levels.round(), atol=1e-6, rtol=0)
    inside = (z >= t.low) & (z <= t.high)
    assert (q - z)[inside].abs().max() <= t.step / 2 + 1e-12
    torch.testing.assert_close(t.quantize(q), q, atol=0, rtol=0)


@pytest.mark.parametrize("t", ALL, **ids)
def test_declares_itself(t: Transform) -> None:
    assert t.unit and t.noun and t.composition and t.natural_vignette in ("none", "circle", "rectangle")
    assert transforms.get(t.name) is t
    with pytest.raises(ValueError, match="shape"):
        t(item(t, (1, 5, 5)), torch.zeros(2, t.dim + 1))
    with pytest.raises(ValueError, match="dimensions"):
        t(torch.zeros(5), torch.zeros(2, t.dim))


def test_float32_stays_float32_and_close() -> None:
    x = item(Rotation(), (1, 28, 28))
    gamma = some_gamma(Rotation(), 4)
    single = Rotation()(x.float(), gamma, "bicubic")
    assert single.dtype == torch.float32
    assert (single.double() - Rotation()(x, gamma, "bicubic")).abs().max() < 1e-4


def test_bad_boxes_are_refused() -> None:
    for lower, upper in (((0.0,), (math.nan,)), ((1.0,), (0.0,)), ((), ()), ((0.0, 0.0), (1.0,))):
        with pytest.raises(ValueError, match="box"):
            Box(lower, upper)
    with pytest.raises(ValueError, match="translation"):
        Translation().box(1, 2, 3)
    with pytest.raises(ValueError, match="not known"):
        transforms.get("squeeze")
    with pytest.raises(ValueError, match="not known"):
        kernels.kernel("lanczos")
    assert Scaling().box(-30, 30).lower[0] == pytest.approx(math.log(0.7))
