"""Products of parts: order, arithmetic, records, words, and what is refused."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest
import torch

import warpcert as wc
from warpcert import certificates, methods, transforms
from warpcert.originals.interval import surviving
from warpcert.transforms import Box, Brightness, Contrast, Power, Product, Rotation, Translation, Volume, product

X = torch.rand(3, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_parts_are_applied_in_their_order_and_clipped_only_at_the_end() -> None:
    gamma = torch.tensor([[0.4, 0.7, -0.6]], dtype=torch.float64)
    made = product(Rotation(), Contrast(), Brightness())
    expected = Brightness()(Contrast()(Rotation()(X, gamma[:, :1]), gamma[:, 1:2]), gamma[:, 2:])
    torch.testing.assert_close(made(X, gamma), expected, rtol=0, atol=0)
    assert bool((expected < 0).any()) and bool((expected > 1).any())  # nothing was clipped
    other = product(Brightness(), Rotation(), Contrast())
    swapped = Contrast()(Rotation()(Brightness()(X, gamma[:, 2:]), gamma[:, :1]), gamma[:, 1:2])
    torch.testing.assert_close(other(X, gamma[:, [2, 0, 1]]), swapped, rtol=0, atol=0)
    assert not torch.allclose(swapped, expected)
    threat = wc.Threat.rotation(30).then(contrast=(0, 0.55), brightness=0.6)
    torch.testing.assert_close(threat.attacked(X, gamma), made.quantize(expected), rtol=0, atol=0)


def test_a_product_is_a_transformation_like_others() -> None:
    made = product(Rotation(), Translation(), Brightness())
    assert made.dim == 4 and made.name == "rotation then translation then brightness" and made.interpolates
    assert made == transforms.get(made.name) == pickle.loads(pickle.dumps(made)) == copy.deepcopy(made)
    assert made != product(Rotation(), Brightness(), Translation()) and product(Rotation()) == Rotation()
    assert product(product(Rotation(), Translation()), Brightness()) == made
    box = made.box(30, 2, 3, 0.1)
    assert [part.name for part, _ in made.shared(box)] == ["rotation", "translation", "brightness"]
    assert made.shared(box)[1][1] == Box((-2.0, -3.0), (2.0, 3.0))
    assert made.span(box) == "±30° × ±2 px × ±3 px × ±0.1 of full scale"
    assert made.to_surface(made.to_internal((10, 1, 2, 0.5))) == pytest.approx([10, 1, 2, 0.5])
    assert repr(made) == "product(Rotation(), Translation(), Brightness())" and isinstance(made, Product)


def test_records_and_words() -> None:
    threat = wc.Threat.rotation(degrees=30, quantized=False).then(brightness=(-0.1, 0.2)).then(l2=0.05)
    stored = threat.to_dict()
    assert stored["transform"] == "rotation then brightness" and stored["l2"] == 0.05
    assert (
        wc.Threat.from_dict(stored)
        == threat
        == wc.Threat.rotation(30, quantized=False).then(brightness=(-0.1, 0.2), l2=0.05)
    )
    said = "rotation within ±30°, then brightness change within -0.1 of full scale … +0.2 of full scale"
    assert threat.within(threat.box) == f"{said}, then any change of ℓ2 norm up to 0.05"
    assert threat.in_words()["the ℓ2 norm added"] == "0.05"
    assert wc.Threat.made_of({"rotation": 30, "brightness": (-0.1, 0.2), "l2": 0.05}, quantized=False) == threat
    assert set(wc.Threat.rotation(30).to_dict()) == {"transform", "box", "interpolation", "quantized"}  # as before
    with pytest.raises(ValueError, match="without an ℓ2 part"):
        wc.Threat.from_dict(wc.Threat.rotation(30).to_dict() | {"l2": 0.0})


def test_what_is_no_product() -> None:
    threat = wc.Threat.rotation(30)
    for bad, why in (
        (lambda: product(), "at least one part"),
        (lambda: wc.Threat.made_of({"l2": 0.1}), "begins with a transformation"),
        (lambda: wc.Threat.made_of({}), "begins with a transformation"),
        (lambda: threat.then(rotation=5), "rotation twice"),
        (lambda: threat.then(brightness=-0.1), "number r ≥ 0"),
        (lambda: threat.then(brightness=(0.1, 0.2)), "must contain 0"),
        (lambda: threat.then(translation=(1, 2, 3)), "1 or 2 numbers"),
        (lambda: threat.then(l2=0), "one norm > 0"),
        (lambda: threat.then(l2=(0.1, 0.2)), "one norm > 0"),
        (lambda: threat.then(l2=0.1).then(brightness=0.1), "comes last"),
        (lambda: threat.then(smoke=1), "not known"),
        (lambda: wc.Threat.brightness(0.1).then(power=0.1), "apply it before brightness"),
        (lambda: product(Rotation(), Volume()), "about pictures"),
        (lambda: product(Rotation(), Brightness()).box(30), "is 2 numbers ≥ 0"),
        (lambda: wc.Threat(Rotation(), Rotation().box(3), l2=-1.0), "ℓ2 norm of a perturbation"),
    ):
        with pytest.raises(ValueError, match=why):
            bad()
    assert product(Power(), Brightness()).parts == (Power(), Brightness())


def test_methods_that_cannot_say_which_can() -> None:
    smoothed = wc.Smoothed(lambda z: z.flatten(1)[:, :2], noise=0.1, over={"rotation": 10})
    threat, more = wc.Threat.rotation(5).then(brightness=0.1), wc.Threat.rotation(5).then(l2=0.1)
    for name in ("dist-x", "dist-d", "dist-d-online", "indiv", "base"):
        method = methods.chosen(smoothed, name)
        why = methods.refusal(method, smoothed, threat)
        assert why.startswith(f"{name} knows one transformation at a time, not rotation then brightness; methods that")
        assert "cover" in why
        assert "knows no ℓ2 part; methods that do: cover" in methods.refusal(method, smoothed, more)
    with pytest.raises(ValueError, match=r"methods that do: .*cover"):
        smoothed.certify(X.float(), threat, method="base")
    assert "smooths over rotation" in methods.refusal(methods.chosen(smoothed, "cover"), smoothed, threat)


def test_what_knows_no_added_norm_refuses_it() -> None:
    threat = wc.Threat.rotation(5).then(l2=0.1)
    with pytest.raises(ValueError, match="no inverse knows an ℓ2 part"):
        surviving(threat.transform.quantize(X), threat, 4)
    smoothed = wc.Smoothed(lambda z: z.flatten(1)[:, :2], noise=0.1, over={"rotation": 10})
    with pytest.raises(ValueError, match="one transformation, without an ℓ2 part"):
        wc.calibrate(smoothed, [X.float()] * 3, threat)
    with pytest.raises(ValueError, match="but the classifier smooths over rotation"):
        wc.calibrate(smoothed, [X.float()] * 3, wc.Threat.rotation(5).then(brightness=0.1))


def test_records_of_other_methods_hold_no_products() -> None:
    f = wc.Smoothed(lambda z: z.flatten(1)[:, :2], noise=0.1, over={"brightness": 0.1})
    made = f.certify(X.float(), wc.Threat.brightness(0.01), method="base", n=200, seed=0)
    threat = made.threat.then(l2=0.1)
    with pytest.raises(ValueError, match="base knows no ℓ2 part"):
        certificates.read(replace(made, threat=threat).to_dict())
    threat = made.threat.then(contrast=0.1)
    body = made.to_dict() | {"threat": threat.to_dict()}
    with pytest.raises(ValueError):
        certificates.read(body, digest=False)
