"""Sounds: the front end, the inverse of a volume change, and the float slack of quiet samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from warpcert import certificates, methods
from warpcert.classifier import About, Plain, Smoothed
from warpcert.classifier.defence import Defence
from warpcert.classifier.storage import load
from warpcert.errors.float32 import sample_error
from warpcert.errors.proved import Curve
from warpcert.learn.data import Dataset
from warpcert.learn.views import delayed, masked
from warpcert.networks.config import ModelConfig
from warpcert.networks.sound import Mfcc, mel_bands
from warpcert.networks.weights import build, fused
from warpcert.originals.sound import VolumeInverse, clipped
from warpcert.paper.desk import Desk
from warpcert.paper.experiment import run
from warpcert.paper.experiments.audio import AUDIO
from warpcert.paper.journal import read_journal
from warpcert.report.table import Table
from warpcert.threat import Threat

DEFENCE = Defence.surface("volume", 3, noise=0.006)


def sound(loudness: float, seed: int, length: int = 600) -> Tensor:
    """16-bit samples; loud ones reach both ends of the range."""
    x = torch.randn(1, length, generator=torch.Generator().manual_seed(seed)) * loudness
    return DEFENCE.transform.quantize(x)


def test_front_end_sees_the_pitch_and_hardly_the_volume() -> None:
    t = torch.arange(16_000) / 16_000
    low, high = (0.3 * torch.sin(2 * torch.pi * f * t) * (t > 0.5) for f in (300.0, 3000.0))
    front = Mfcc((1, 16_000))
    seen = front(torch.stack((low, low / 1.5, high))[:, None])
    assert seen.shape == (3, *front.shape) == (3, 1, 24, 101)
    assert float((seen[0] - seen[1]).norm()) < 0.2 * float((seen[0] - seen[2]).norm())
    assert float(seen.mean(-1).abs().max()) < 1e-3


def test_mel_bands_are_triangles_side_by_side() -> None:
    bands = mel_bands(40)
    assert bands.shape == (40, 257) and float(bands.min()) == 0
    peaks = bands.argmax(1)
    assert bool((peaks.diff() >= 0).all())
    inside = bands[:, int(peaks[0]) + 1 : int(peaks[-1])].sum(0)
    assert float((inside - 1).abs().max()) < 1e-5


def test_a_model_that_hears_is_saved_with_its_front_end(tmp_path: Path) -> None:
    config = ModelConfig((1, 1600), 3, width=4, blocks=(1, 1), front="mfcc")
    net = Smoothed(fused(build(config, seed=3)), 0.006, {"volume": 3})
    net.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    noisy = Smoothed(net.network, 0.006)  # by noise alone, no threat named: the network says that it hears
    assert noisy.vote(torch.rand(1, 1600) - 0.5, n=20).counts
    x = torch.rand(2, 1, 1600) - 0.5
    assert loaded.network.config == config and loaded.facts == net.facts
    torch.testing.assert_close(loaded.logits(x), net.logits(x), atol=1e-2, rtol=1e-2)
    with pytest.raises(ValueError, match="front"):
        ModelConfig((1, 1600), 3, front="other")
    with pytest.raises(ValueError, match="MFCC"):
        build(ModelConfig((3, 32, 32), 3, front="mfcc"))


def test_delayed_moves_each_sound_by_its_own_time() -> None:
    x = torch.arange(1.0, 6.0).expand(3, 1, 5)
    expected = [[1, 2, 3, 4, 5], [0, 0, 1, 2, 3], [2, 3, 4, 5, 0]]
    assert delayed(x, torch.tensor([0, 2, -1]))[:, 0].tolist() == expected


def test_masked_silences_a_stretch_and_a_band() -> None:
    x = torch.randn(50, 1, 1000, generator=torch.Generator().manual_seed(0))
    heard = masked(x, 400, torch.Generator().manual_seed(1))
    assert heard.shape == x.shape and torch.equal(heard, masked(x, 400, torch.Generator().manual_seed(1)))
    lost = 1 - heard.square().sum((1, 2)) / x.square().sum((1, 2))
    assert float(lost.min()) + 1e-6 >= 0 and 0.2 < float(lost.mean()) < 0.5 and float(lost.max()) < 0.8
    spectrum = torch.fft.rfft(heard[:, 0]).abs() < 1e-3
    assert float(spectrum.float().mean()) == pytest.approx(0.2, abs=0.05)


def test_float32_stays_within_the_allowance_for_sounds() -> None:
    x = sound(0.2, 1, 4000).double()
    theta = (torch.rand(200, 1, dtype=torch.float64) * 2 - 1) * 1.7
    exact = DEFENCE.transform(x, theta)
    rough = DEFENCE.transform(x.float(), theta.float()).double()
    limit = sample_error(DEFENCE.transform, x, 1.7)
    assert bool(((exact - rough).abs() <= limit).all())
    assert float((exact - rough).abs().max()) > 0


@pytest.mark.parametrize("loudness", [1e-4, 0.02, 0.5, 3.0])
@pytest.mark.parametrize("gamma", [1.0, 4.0])
def test_the_original_lies_in_the_inverse_and_its_error_below_the_bound(loudness: float, gamma: float) -> None:
    threat = Threat.of("volume", gamma)
    inverse = VolumeInverse()
    for seed in range(8):
        x = sound(loudness, seed)
        draw = torch.Generator().manual_seed(seed)
        g = threat.box.uniform(1, draw)
        if seed < 2:
            g = torch.tensor([threat.box.upper if seed else threat.box.lower], dtype=torch.float64)
        attacked = threat.attacked(x, g)[0]
        found = inverse.survivors(attacked, threat)
        holds = (found.low[:, 0] <= g[0]) & (g[0] <= found.high[:, 0])
        inside = ((found.lower <= x) & (x <= found.upper)).flatten(1).all(1)
        assert bool((holds & inside).any())
        beta = DEFENCE.draw_beta(20, draw)
        U = inverse.errors(found, DEFENCE, beta)
        views = DEFENCE.view(attacked, beta) - DEFENCE.view(x, beta + g)
        true = views.double().flatten(1).norm(dim=1)
        assert bool((true[:, None] <= U[:, holds]).all())


def test_the_inverse_is_tight_without_clipping_and_wide_with_it() -> None:
    threat = Threat.of("volume", 4)
    beta = DEFENCE.draw_beta(10, torch.Generator().manual_seed(0))
    quiet, loud = sound(0.02, 1), sound(0.02, 1)
    loud[0, 0] = threat.transform.high
    up = torch.tensor([threat.box.upper], dtype=torch.float64)
    bounds = []
    for x in (quiet, loud):
        attacked = threat.attacked(x, up)[0]
        found = VolumeInverse().survivors(attacked, threat)
        U = VolumeInverse().errors(found, DEFENCE, beta)[:, -1]
        true = (DEFENCE.view(attacked, beta) - DEFENCE.view(x, beta + up)).flatten(1).norm(dim=1)
        assert bool((true <= U).all()) and bool((true >= 0.4 * U).all())
        bounds.append(float(U.max()))
    assert int(clipped(attacked, threat).sum()) == 1
    assert bounds[1] > 100 * bounds[0]  # one clipped sample outweighs all rounding


def test_a_loud_peak_excludes_attenuation() -> None:
    threat = Threat.of("volume", 4)
    x = sound(0.02, 1)
    x[0, 0] = 0.95  # before an attenuation by 4 dB it would have been 1.5
    left = VolumeInverse().survivors(x, threat)
    assert 0 < len(left.low) < 16 and float(left.low.min()) > 0.9 * threat.box.lower[0]


def test_the_error_of_a_quiet_sound_is_rounding_alone() -> None:
    threat, x = Threat.of("volume", 3), sound(0.02, 2, 2000)
    beta = DEFENCE.draw_beta(50, torch.Generator().manual_seed(0))
    result = Curve(1.2)(x, DEFENCE, threat, beta)
    half = 0.5 * threat.transform.step * 2000**0.5
    assert float(result.lower.max()) <= float(result.values.max()) <= 1.1 * half * float(beta.exp().max())


def test_every_shift_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that hears whether the first sample is silent: a click at 150 is known up to shifts by 149."""

    def first(z: Tensor) -> Tensor:
        loud = z[:, 0, 0].abs()
        return torch.stack((0.5 - loud, loud), 1)

    clicks = torch.zeros(3, 1, 2000, dtype=torch.int16)
    clicks[0, 0, 150] = clicks[1, 0, 0] = 30_000
    known = Dataset("clicks", clicks, torch.zeros(3, dtype=torch.int64), ("silent", "loud"))
    monkeypatch.setattr(Desk, "dataset", lambda self, name, split="test": known)
    monkeypatch.setattr(Desk, "classifier", lambda self, *names: Plain(first, about=About("first")))
    row = next(r for r in AUDIO.rows if r.name == "shifts")
    list(run(replace(AUDIO, rows=(row,)), Desk(tmp_path, True, torch.device("cpu")), ""))
    reached = [record["value"] for record in read_journal(tmp_path / "audio" / "shifts")]
    assert reached == [149, -1, 1600]
    table = Table.read(tmp_path / "audio")
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["shifts ±25 ms"] == cells["shifts ±100 ms"] == pytest.approx(1 / 3, abs=1e-3)


def _loud(z: Tensor) -> Tensor:
    """A classifier of loudness."""
    loud = z.flatten(1).square().mean(1).sqrt()
    return torch.stack((loud - 0.2, 0.2 - loud), 1)


def test_clipping_does_no_harm_to_a_cover() -> None:
    """A sound of which many samples are cut: certified by a cover, by no method that undoes the change of volume."""
    threat, x = Threat.of("volume", 1), sound(0.45, 3, 200)
    assert int(clipped(threat.attacked(x, threat.box.grid(2)), threat).sum()) > 5
    plain = Smoothed(_loud, 0.05)
    c = methods.certify_with(methods.chosen(plain, "cover", n=2000, target=1.0), plain, x, threat, seed=0)
    foreseen = methods.chosen(plain, "cover", n=2000, target=1.0).foresee(plain, x, threat)
    assert 0.3 * c.passes < foreseen.passes < 3 * c.passes and not foreseen.advice
    assert c.label == 0 and c.covers(threat.box) and certificates.read(c.to_dict()).covers(threat.box)
    deployed = Smoothed(_loud, 0.05, about=About(threat=threat))
    assert deployed.predict(x) == 0 and deployed.predict(torch.stack((x, x))) == [0, 0]
    over = Smoothed(_loud, 0.05, {"volume": 3})
    other = methods.chosen(over, "dist-x", n=2000, windows=1, betas=60)
    assert methods.certify_with(other, over, x, threat, seed=0).abstains


def test_individual_certificates_of_sounds() -> None:
    """Far from the border: certified unless samples are clipped."""
    threat, net = Threat.of("volume", 2), Smoothed(_loud, 0.006, {"volume": 3})
    gamma = torch.tensor([[0.5 * threat.box.upper[0]]], dtype=torch.float64)
    method = methods.chosen(net, "indiv", n=400, windows=1, betas=60, inverse=VolumeInverse())
    x = sound(0.02, 3)
    for spike in (False, True):
        if spike:
            x[0, :3] = threat.transform.high
        c = methods.certify_with(method, net, threat.attacked(x, gamma)[0], threat, seed=0)
        assert c.abstains == spike and (spike or c.label == 1)
    with pytest.raises(ValueError, match="volume changes"):
        VolumeInverse().survivors(torch.rand(1, 5, 5), Threat.of("rotation", 3))
