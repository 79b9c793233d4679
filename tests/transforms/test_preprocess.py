"""P is linear, normalised, and its matrix is what it computes."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch

from warpcert.transforms import Preprocess

CASES = [
    Preprocess(),
    Preprocess("circle", 1),
    Preprocess("rectangle", 2, 1.5, 7),
    Preprocess("circle", 0.5, 1, 5),
    Preprocess("none", 0, 2, 9),
]


@pytest.mark.parametrize("p", CASES, ids=str)
@pytest.mark.parametrize("size", [(8, 8), (9, 6), (5, 12)])
def test_matrix_is_the_filter(p: Preprocess, size: tuple[int, int], generator: torch.Generator) -> None:
    x = torch.rand(2, 3, *size, generator=generator, dtype=torch.float64)
    by_matrix = (x.flatten(2) @ p.matrix(*size).T).reshape(x.shape)
    torch.testing.assert_close(p(x), by_matrix, atol=1e-12, rtol=0)


def test_blur_is_the_normalised_gaussian() -> None:
    """Every entry from the formula exp(−(i²+j²)/(2σ²)), normalised over the whole square, not over a quadrant."""
    sigma, size = 1.5, 7
    impulse = torch.zeros(1, 21, 21, dtype=torch.float64)
    impulse[0, 10, 10] = 1
    kernel = Preprocess(blur_sigma=sigma, blur_size=size)(impulse)[0, 7:14, 7:14]
    i = torch.arange(-3, 4, dtype=torch.float64)
    expected = torch.exp(-(i[:, None] ** 2 + i[None, :] ** 2) / (2 * sigma**2))
    torch.testing.assert_close(kernel, expected / expected.sum(), atol=1e-14, rtol=0)
    assert float(kernel.sum()) == pytest.approx(1.0, abs=1e-12)


def test_circle_and_rectangle_cut_what_they_say() -> None:
    circle = Preprocess("circle", 1).mask(28, 28)
    y = torch.arange(28)[:, None] - 13.5
    x = torch.arange(28)[None, :] - 13.5
    assert torch.equal(circle, y**2 + x**2 <= 13**2)
    assert torch.equal(circle, circle.rot90())
    assert Preprocess("rectangle", 2).mask(9, 6).sum() == 5 * 2


def test_bad_settings_are_refused() -> None:
    for bad in (
        {"vignette": "oval"},
        {"margin": -1.0},
        {"blur_sigma": float("nan")},
        {"blur_sigma": 1.0, "blur_size": 4},
        {"blur_sigma": -1.0},
    ):
        with pytest.raises(ValueError):
            Preprocess(**bad)


def test_defaults_are_sensible_and_all_names_work() -> None:
    assert Preprocess(vignette="circle", blur=1.5) == Preprocess("circle", 1, 1.5, 7)
    assert [Preprocess(blur=sigma).blur_size for sigma in (0, 1, 2)] == [1, 5, 9]
    assert Preprocess() == Preprocess("none", 0, 0, 1) and Preprocess().is_identity
    kept = {"vignette": "circle", "margin": 0.5, "blur_sigma": 1.0, "blur_size": 3}
    assert Preprocess(**kept).to_dict() == kept  # type: ignore[arg-type]
    assert replace(Preprocess(**kept), margin=2.0).blur_size == 3  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(Preprocess(blur=1.5))) == Preprocess(blur=1.5)
    with pytest.raises(ValueError, match="two names"):
        Preprocess(blur=1, blur_sigma=1)
