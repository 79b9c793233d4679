"""ART's conventions, kept against the real toolbox: one line changes, and its attacks accept the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import warpcert as wc
from warpcert.learn import data

pytest.importorskip("art", reason="the adapter is an extra: pip install 'warpcert[art]'")
pytestmark = pytest.mark.filterwarnings("ignore:::art")

from art.attacks.evasion import FastGradientMethod, SpatialTransformation  # noqa: E402
from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing  # noqa: E402

from warpcert.app.art import PyTorchTransformationSmoothing  # noqa: E402

DIGITS = data.load("mnist500")
X = torch.stack([DIGITS.image(i) for i in range(3)]).numpy()
Y = DIGITS.labels[:3].numpy()
SMOOTH = wc.load("mnist-rotation")
assert isinstance(SMOOTH, wc.Smoothed)
ARTS: dict[str, Any] = {
    "model": SMOOTH.network,
    "loss": torch.nn.CrossEntropyLoss(),
    "input_shape": (1, 28, 28),
    "nb_classes": 10,
    "device_type": "cpu",
    "sample_size": 60,
    "scale": SMOOTH.noise,
    "alpha": 0.05,
}
FAST = {"windows": 1, "betas": 20}


def ours(**more: Any) -> PyTorchTransformationSmoothing:
    usual: dict[str, Any] = {"threat": wc.Threat.rotation(3), "preprocess": SMOOTH.preprocess, "settings": FAST}
    return PyTorchTransformationSmoothing(**ARTS | usual | more)


def cover(**more: Any) -> PyTorchTransformationSmoothing:
    return ours(**{"over": {}, "settings": {}} | more)


@pytest.mark.parametrize("method", ["dist-x", "cover"])
def test_certify_returns_what_art_returns(method: str) -> None:
    """Types and shapes of the real class; the radius is the certificate's, and never more than Γ."""
    art_label, art_radius = PyTorchRandomizedSmoothing(**ARTS).certify(X[:1], n=100)
    smoothed = cover() if method == "cover" else ours(over={"rotation": 10})
    label, radius = smoothed.certify(X, n=300, batch_size=64)
    for mine, theirs in ((label, art_label), (radius, art_radius)):
        assert type(mine) is type(theirs) and mine.dtype == theirs.dtype and mine.shape == (3,)
    assert (label == Y).any() and set(label) <= {-1, *Y.tolist()}
    assert ((radius > 0) == (label >= 0)).all() and (radius <= 3 + 1e-9).all()
    (c,) = smoothed.certificates(X[:1], n=300, batch_size=64)
    assert c.kind is wc.Kind.WITH_CONFIDENCE and c.method == method and c.to_dict()["alpha"] == 0.05
    if label[0] >= 0:
        assert c.covers(c.threat.transform.box(min(radius[0], 2.9)))


def test_no_confidence_means_minus_one_and_zero() -> None:
    class Torn(torch.nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return torch.stack((z[:, 0, 0, 0], z[:, 0, 0, 1]), 1)  # noise against noise

    torn = {"model": Torn(), "nb_classes": 2}
    label, radius = ours(**torn).certify(np.zeros_like(X[:1]), n=300)
    assert label.tolist() == [-1] and radius.tolist() == [0.0]
    assert ours(**torn).predict(np.zeros_like(X[:1])).tolist() == [[0, 0]]  # ART's abstention
    assert ours(**torn).predict(np.zeros_like(X[:1]), is_abstain=False).sum() == 1


def test_with_pixel_noise_alone_it_predicts_as_art_does() -> None:
    """The same classifier in both: no parameter noise, no P. Digits on which the votes are clear."""
    mine = cover(preprocess=wc.Preprocess(), sample_size=200)
    theirs = PyTorchRandomizedSmoothing(**ARTS | {"sample_size": 200})
    a, b = (s._prediction_counts(X[0], n=4000, batch_size=500) / 4000 for s in (mine, theirs))
    assert np.abs(a - b).max() < 0.06  # five standard errors
    a, b = mine.predict(X), theirs.predict(X)
    assert a.shape == b.shape == (3, 10)
    clear = (a.sum(1) == 1) & (b.sum(1) == 1)
    assert clear.any() and (a[clear] == b[clear]).all()


def test_pictures_that_float32_would_change_are_refused() -> None:
    """ART computes in float32. 8-bit pictures may come as k/255 in float64."""
    smoothed, eight_bit = ours(sample_size=20), np.round(X[:1].astype(np.float64) * 255) / 255
    for ask in (lambda x: smoothed.certify(x, n=300), smoothed.predict):
        with pytest.raises(ValueError, match="float32 cannot represent"):
            ask(eight_bit * (1 - 1e-12))
        ask(eight_bit)
    assert smoothed.certificates(eight_bit, n=300)[0].picture == smoothed.certificates(X[:1], n=300)[0].picture


def test_normalisation_by_art_is_part_of_the_classifier() -> None:
    plain = ours()._prediction_counts(X[0], n=300, batch_size=300)
    shifted = ours(model=Shift(SMOOTH.network), preprocessing=(0.5, 1.0))._prediction_counts(X[0], 300, 300)
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
    loss = torch.nn.functional.cross_entropy(SMOOTH.network(SMOOTH.preprocess(x)), torch.from_numpy(Y))
    loss.backward()  # type: ignore[no-untyped-call]
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
    smoothed = ours(model=model, optimizer=optimizer, over={"rotation": 10})
    x = torch.stack([DIGITS.image(i) for i in range(500)]).numpy()
    before = smoothed.compute_loss(x, DIGITS.labels.numpy()).mean()
    smoothed.fit(x, DIGITS.labels.numpy(), batch_size=50, nb_epochs=3)
    assert smoothed.compute_loss(x, DIGITS.labels.numpy()).mean() < 0.7 * before


def test_settings_travel_as_art_wants_them() -> None:
    smoothed = ours(over={"rotation": 7})
    assert smoothed.get_params()["over"] == {"rotation": 7}
    smoothed.set_params(threat=wc.Threat.rotation(4))
    assert smoothed.threat == smoothed.classifier.threat == wc.Threat.rotation(4)
    wrongs: tuple[dict[str, Any], ...] = (
        {"over": {"squeeze": 3}},
        {"over": {"rotation": -1}},
        {"over": {"scaling": 3}},
        {"settings": {"luck": 7}},
        {"interpolation": "sinc"},
    )
    for wrong in wrongs:
        with pytest.raises(ValueError):
            ours(**wrong)


def test_a_classifier_is_taken_as_it_is() -> None:
    """The certified function is the classifier's: its facts, its network's fingerprint, its name, its threat."""
    assert isinstance(SMOOTH, wc.Smoothed)
    smoothed = PyTorchTransformationSmoothing.of(
        SMOOTH, (1, 28, 28), 10, threat=wc.Threat.rotation(3), settings=FAST, sample_size=60, alpha=0.05
    )
    assert smoothed.classifier.facts == SMOOTH.facts and smoothed.classifier.name == "mnist-rotation"
    assert smoothed.classifier.fingerprint == SMOOTH.fingerprint
    z = torch.from_numpy(X)
    assert torch.allclose(smoothed.classifier.logits(z), SMOOTH.logits(z), atol=1e-5)
    (c,) = smoothed.certificates(X[:1], n=300, batch_size=64)
    assert c.classifier.fingerprint == SMOOTH.fingerprint and str(c).find("mnist-rotation") > 0
    assert PyTorchTransformationSmoothing.of(SMOOTH, (1, 28, 28), 10).threat == SMOOTH.threat
    for wrong in (wc.load("mnist-rotation-exact"), wc.Smoothed(lambda v: v, noise=1.0)):
        with pytest.raises(ValueError, match="ART"):
            PyTorchTransformationSmoothing.of(wrong, (1, 28, 28), 10)  # type: ignore[arg-type]


def test_products_and_fronts() -> None:
    """A product has no single radius, and ART leaves no front out."""
    smoothed = cover(threat=wc.Threat.rotation(0.01).then(brightness=0.001), preprocess=wc.Preprocess())
    with pytest.raises(ValueError, match="rotation then brightness has no single radius"):
        smoothed.certify(X[:1], n=300)
    (c,) = smoothed.certificates(X[:1], n=300)
    assert c.abstains or isinstance(c.range, dict)
    with pytest.raises(ValueError, match="dist-x knows one transformation at a time"):
        ours(over={"rotation": 10}, threat=wc.Threat.rotation(1).then(brightness=0.01))
    with pytest.raises(ValueError, match="does not know the front 'centred'"):
        PyTorchTransformationSmoothing.of(wc.Smoothed(SMOOTH.network, noise=0.1, front="centred"), (1, 28, 28), 10)
