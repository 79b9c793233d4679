"""What the tests share: one thread (the tensors are small), fixed examples, a seeded generator."""

from __future__ import annotations

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("default", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.load_profile("default")


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
