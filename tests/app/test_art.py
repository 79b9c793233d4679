"""ART's conventions, kept against the real toolbox: one line changes, and its attacks accept the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import warpcert as wc
from warpcert.learn import data
from warpcert.learn.foreign import EMBEDDED, open_model

pytest.importorskip("art", reason="the adapter is an extra: pip install 'warpcert[art]'")
pytestmark = pytest.mark.filterwarnings("ignore:::art")

from art.attacks.evasion import FastGradientMethod, SpatialTransformation  # noqa: E402
from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing  # noqa: E402

from warpcert.app.art import PyTorchTransformationSmoothing  # noqa: E402

DIGITS = data.load("mnist500")
X = torch.stack([DIGITS.image(i) for i in range(3)]).numpy()
Y = DIGITS.labels[:3].numpy()
MODEL = open_model(EMBEDDED, (1, 28, 28), torch.device("cpu"))
DEFENCE = wc.Defence.from_dict(MODEL.extra["defence"])
ARTS: dict[str, Any] = {
    "model": MODEL.classifier,
    "loss": torch.nn.CrossEntropyLoss(),
    "input_shape": (1, 28, 28),
    "nb_classes": 10,
    "device_type": "cpu",
    "sample_size": 60,
    "scale": DEFENCE.sigma_noise,
    "alpha": 0.05,
}


def ours(**more: Any) -> PyTorchTransformationSmoothing:
    return PyTorchTransformationSmoothing(**ARTS | {"gamma": 3, "preprocess": DEFENCE.preprocess} | more)


@pytest.mark.parametrize("method", ["dist-x", "cover"])
def test_certify_returns_what_art_returns(method: str) -> None:
    """Types and shapes of the real class; the radius is the certificate's, and never more than Γ."""
    art_label, art_radius = PyTorchRandomizedSmoothing(**ARTS).certify(X[:1], n=100)
    smoothed = ours(method=method, windows=1, betas=20, sigma=10)
    label, radius = smoothed.certify(X, n=300, batch_size=64)
    for mine, theirs in ((label, art_label), (radius, art_radius)):
        assert type(mine) is type(theirs) and mine.dtype == theirs.dtype and mine.shape == (3,)
    assert (label == Y).any() and set(label) <= {-1, *Y.tolist()}
    assert ((radius > 0) == (label >= 0)).all() and (radius <= 3 + 1e-9).all()
    (c,) = smoothed.certificates(X[:1], n=300, batch_size=64)
    assert c.kind is wc.Kind.WITH_CONFIDENCE and c.method == method and c.alpha == 0.05
    if label[0] >= 0:
        assert c.covers(c.threat.transform.box(min(radius[0], 2.9)))


def test_no_confidence_means_minus_one_and_zero() -> None:
    class Torn(torch.nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return torch.stack((z[:, 0, 0, 0], z[:, 0, 0, 1]), 1)  # noise against noise

    torn = {"model": Torn(), "nb_classes": 2}
    label, radius = ours(**torn, windows=1, betas=20).certify(np.zeros_like(X[:1]), n=300)
    assert label.tolist() == [-1] and radius.tolist() == [0.0]
    assert ours(**torn).predict(np.zeros_like(X[:1])).tolist() == [[0, 0]]  # ART's abstention
    assert ours(**torn).predict(np.zeros_like(X[:1]), is_abstain=False).sum() == 1


def test_with_pixel_noise_alone_it_predicts_as_art_does() -> None:
    """The same classifier in both: no parameter noise, no P. Digits on which the votes are clear."""
    mine = ours(method="cover", preprocess=wc.Preprocess(), sample_size=200)
    theirs = PyTorchRandomizedSmoothing(**ARTS | {"sample_size": 200})
    a, b = (s._prediction_counts(X[0], n=4000, batch_size=500) / 4000 for s in (mine, theirs))
    assert np.abs(a - b).max() < 0.06  # five standard errors
    a, b = mine.predict(X), theirs.predict(X)
    assert a.shape == b.shape == (3, 10)
    clear = (a.sum(1) == 1) & (b.sum(1) == 1)
    assert clear.any() and (a[clear] == b[clear]).all()


def test_normalisation_by_art_is_part_of_the_classifier() -> None:
    plain = ours()._prediction_counts(X[0], n=300, batch_size=300)
    shifted = ours(model=Shift(MODEL.classifier), preprocessing=(0.5, 1.0))._prediction_counts(X[0], 300, 300)
    assert np.abs(plain - shifted).max() < 75  # the same distribution: five standard errors
    assert plain.argmax() == shifted.argmax() == Y[0]


class Shift(torch.nn.Module):
    def __init__(self, f: Any) -> None:
        super().__init__()
        self.f = f

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.f(z + 0.5)  # type: ignore[no-any-return]


def test_gradients_pass_through_P() -> None:
    x = torch.from_numpy(X).requires_grad_()
    loss = torch.nn.functional.cross_entropy(MODEL.classifier(DEFENCE.preprocess(x)), torch.from_numpy(Y))
    loss.backward()
    assert x.grad is not None
    mine = ours().loss_gradient(X, np.eye(10)[Y])
    torch.testing.assert_close(torch.from_numpy(mine), x.grad, rtol=1e-3, atol=1e-6)


def test_attacks_of_art_accept_it() -> None:
    smoothed = ours(sample_size=20)
    turned = SpatialTransformation(smoothed, max_translation=0, max_rotation=3, num_rotations=3, verbose=False)
    assert turned.generate(X[:1], Y[:1]).shape == (1, 1, 28, 28)
    moved = FastGradientMethod(smoothed, eps=0.1).generate(X[:1], np.eye(10)[Y[:1]])
    assert 0 < np.abs(moved - X[:1]).max() <= 0.1 + 1e-6


def test_fit_trains_under_the_transformation() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    smoothed = ours(model=model, optimizer=optimizer, sigma=10)
    x = torch.stack([DIGITS.image(i) for i in range(500)]).numpy()
    before = smoothed.compute_loss(x, DIGITS.labels.numpy()).mean()
    smoothed.fit(x, DIGITS.labels.numpy(), batch_size=50, nb_epochs=3)
    assert smoothed.compute_loss(x, DIGITS.labels.numpy()).mean() < 0.7 * before


def test_settings_travel_as_art_wants_them() -> None:
    smoothed = ours(sigma=7)
    assert smoothed.get_params()["sigma"] == 7
    smoothed.set_params(gamma=4)
    assert smoothed.threat == wc.Threat.of("rotation", 4)
    for wrong in ({"method": "base"}, {"transform": "shear"}, {"sigma": -1}, {"attacker": "sinc"}):
        with pytest.raises(ValueError):
            ours(**wrong)
