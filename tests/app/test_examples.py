"""The programs in examples/ run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import warpcert as wc
from warpcert import transforms
from warpcert.certificates import Individual, Voted

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def load(name: str) -> ModuleType:
    path = next(p for p in EXAMPLES if p.stem == name)
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_they_are_small() -> None:
    assert {p.stem for p in EXAMPLES} == {"own_module", "online", "new_transformation"}
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 60, path.name


def test_own_module() -> None:
    certificate = load("own_module").main()
    assert certificate.kind is wc.Kind.PROVED and certificate.label == 2 and certificate.range == (-20, 20)


def test_online() -> None:
    module = load("online")
    module.PICTURES = 3
    certificates = module.main()
    calibrated, alone = certificates[::2], certificates[1::2]
    assert [c.label for c in calibrated] == [2, 4]
    assert all(c.label in (wc.ABSTAIN, label) for c, label in zip(alone, (2, 4), strict=True))
    assert {type(c) for c in calibrated} == {Voted} and {type(c) for c in alone} == {Individual}
    assert all(c.kind is wc.Kind.WITH_CONFIDENCE and c.unseen for c in certificates)


def test_new_transformation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transforms, "TRANSFORMS", transforms.TRANSFORMS.copy())
    certificate = load("new_transformation").main()
    assert certificate.kind is wc.Kind.PROVED and certificate.label == 2
    assert certificate.threat.transform.name == "slant" and certificate.unit == "pixels per pixel"
