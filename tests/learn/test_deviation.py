"""By how much logits depend on batch and device: measured rightly, and what is kept is of the models that are here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import warpcert as wc
from benchmarks import deviation
from warpcert.classifier import About
from warpcert.classifier.votes.voting import leads
from warpcert.learn import zoo

ROOT = Path(__file__).parents[2]
KEPT = sorted(ROOT.glob("recipes/*/deviation.json"))


def test_the_unit_is_that_of_the_slack() -> None:
    """Logits that differ by d change a lead by `largest` times their size at most, and by just that for some class."""
    g = torch.Generator().manual_seed(0)
    a = 4 * torch.randn(500, 6, generator=g, dtype=torch.float64)
    b = a + 0.1 * torch.randn(500, 6, generator=g, dtype=torch.float64)
    worst = 0.0
    for i in range(500):
        tally = deviation.Tally()
        tally.add(a[i : i + 1], b[i : i + 1], 1e-4)
        for label in range(6):
            sure = leads(a[i : i + 1], label, tally.largest * (1 + 1e-12)) > 0
            assert not bool(sure) or int(b[i].argmax()) == label
        pairs = (a[i] - b[i])[:, None] - (a[i] - b[i])[None]
        size = torch.minimum(a[i].abs().max(), b[i].abs().max()).clamp_min(1)
        assert tally.largest == pytest.approx(float(pairs.max() / size))
        worst = max(worst, tally.largest)
    whole = deviation.Tally()
    whole.add(a, b, 1e-4)
    assert whole.largest == worst and whole.images == 500
    assert whole.answers == int((a.argmax(1) != b.argmax(1)).sum()) >= whole.certain > 0
    nothing = deviation.Tally()
    nothing.add(a, a, 0.0)
    assert nothing.largest == nothing.answers == 0
    nothing.add(a, a * float("nan"), 0.0)
    assert nothing.largest == float("inf")


class Leaky(nn.Module):
    """Logits that depend on the batch: by `much` in batches other than of 4096."""

    def __init__(self, inside: nn.Module, much: float) -> None:
        super().__init__()
        self.inside, self.much = inside, much
        self.config = inside.config

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.inside(x)
        return z + self.much * torch.eye(z.shape[1])[0] * (len(x) < 20)


def test_what_depends_on_the_batch_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    net = wc.load("mnist-rotation-exact")
    monkeypatch.setattr(deviation, "SIZES", (16, 7))
    plan = deviation.Plan(30, 0, "cpu", compiled=False)
    for much in (0.0, 0.25):
        leaky = wc.Levels(Leaky(net.network, much), 32, about=net.about)  # type: ignore[arg-type]
        monkeypatch.setattr(zoo, "load", lambda _, leaky=leaky: leaky)
        found = deviation.measured("mnist-rotation-exact", plan)
        assert found["compared"]["batches"]["images"] == 30 + 4 and found["items"] == "mnist500, 500 items"
        at_most = 0.25 * (1 + 1e-3)
        assert (0.01 < deviation.largest(found) <= at_most) if much else deviation.largest(found) < 1e-5
        assert found["slack"] == 1e-4 and found["compared"]["exact"]["largest"] < 1e-4


def test_networks_behind_a_front_are_shown_what_it_hands_on() -> None:
    network, g = wc.load("mnist-rotation-exact").network, torch.Generator().manual_seed(0)
    threat = wc.Threat.rotation(5, quantized=False).then(brightness=0.5)
    about = About("behind", tuple("0123456789"), threat, notes={"dataset": "mnist"})
    items = torch.rand(4, 1, 28, 28, generator=g)
    views = deviation.shown(wc.Levels(network, 32, front="grounded", about=about), items, 50, g)
    assert bool((views.amin((1, 2, 3)) == 0).all()) and len(views.mul(255).round().unique()) <= 9
    views = deviation.shown(wc.Smoothed(network, 0.01, front="centred", about=about), items, 50, g)
    assert float(views.mean((1, 2, 3)).abs().max()) < 0.002 and bool((views < -0.3).any())


@pytest.mark.parametrize("name", ["mnist-rotation-exact", "mnist-plain", "mnist-rotation", "mnist-translation"])
def test_networks_are_shown_what_certification_shows_them(name: str) -> None:
    """Of a classifier without noise: what it shows its network of pictures that the attacker can hand over."""
    if not zoo.is_here(name):
        pytest.skip("its weights are not here")
    net = wc.load(name)
    items, source = deviation.originals(net, deviation.Plan(0, 0, "cpu"))
    views = deviation.shown(net, items[:2], 20, torch.Generator().manual_seed(0))
    assert source == "mnist500, 500 items" and views.shape == (20, 1, 28, 28) and views.dtype == torch.float32
    assert len({tuple(v.flatten().tolist()) for v in views}) > 15
    if net.noise:
        assert float(views.min()) < 0  # noisy
    else:
        assert torch.equal(net(views), net.logits(views))  # levels of levels are the same


def test_going_on_and_keeping(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def fake(name: str, plan: deviation.Plan) -> dict[str, object]:
        asked.append(name)
        compared = {"batches": {"images": 9, "largest": 1e-6, "answers": 0, "certain": 0}}
        digest = zoo.manifest()[name].sha256
        return {"name": name, "sha256": digest, "slack": 1e-4, "compared": compared, "failed": {}, "seconds": 0}

    monkeypatch.setattr(deviation, "measured", fake)
    plan, out = deviation.Plan(9, 0, "cpu"), tmp_path / "out.json"
    deviation.run(plan, out, ["mnist-plain"], 1)
    deviation.run(plan, out, ["mnist-plain", "mnist-rotation"], 1)
    assert asked == ["mnist-plain", "mnist-rotation"]
    for name in asked:
        (tmp_path / "recipes" / name).mkdir(parents=True)
    assert deviation.keep([out], tmp_path) == asked
    kept = deviation.listed(tmp_path / "recipes" / "mnist-plain")["deviation"]
    assert kept == {"slack": 1e-4, "largest": 1e-6, "images": 9} and deviation.listed(tmp_path) == {}
    found = json.loads(out.read_text()) | {}
    found["mnist-plain"]["sha256"] = "0"
    out.write_text(json.dumps(found))
    with pytest.raises(ValueError, match="other weights"):
        deviation.keep([out], tmp_path)


def test_what_is_kept_is_of_these_models_and_below_their_slack() -> None:
    assert set(zoo.manifest()) >= {path.parent.name for path in KEPT}
    for path in KEPT:
        found, listing = json.loads(path.read_text(encoding="utf-8")), zoo.manifest()[path.parent.name]
        assert found["sha256"] == listing.sha256 and {"deviation": listing.deviation} == deviation.listed(path.parent)
        assert listing.deviation["images"] >= 1e6 and listing.deviation["largest"] < listing.deviation["slack"]
        assert not any(tally["certain"] for tally in found["compared"].values())
        if "lipschitz" in path.parent.name:  # at both ends of a proof
            assert 2 * found["compared"]["exact"]["largest"] < found["slack"]
