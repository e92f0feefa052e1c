"""What all tests share: where the real data is, and one thread so that figures repeat."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data sets, from $CUTAWAY_DATA; the test is skipped by name where it is absent."""
    folder = os.environ.get("CUTAWAY_DATA") or str(Path(__file__).parents[2] / "shared" / "data")
    if not Path(folder).is_dir():
        pytest.skip("needs the real data sets: set CUTAWAY_DATA to their folder")
    return Path(folder)
