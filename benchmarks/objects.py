"""What arrays that are handed over cost beside a bare loop on tensors: reading them, and all of `train` on them.

Reading is everything before the first step: checks, splits, findings, encoders, fingerprint. `train` also validates
after each epoch, writes checkpoints, and judges the model in the end, with intervals and what each column counts for.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from cutaway.data.objects.given import Given
from cutaway.data.opening import open_data
from cutaway.data.sets import TensorSplit
from cutaway.data.settings import DataSettings
from cutaway.models.registry import create_model
from cutaway.training.progress import Progress
from cutaway.training.session import fit

from .pairs import Pair, race

ROWS, COLUMNS, EPOCHS, BATCH = 20_640, 8, 20, 64  # as many as California housing has
HIDDEN = (256, 256)


def arrays() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows and the side of a plane that each is on, from a seed."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS))
    return X, (X @ rng.normal(size=COLUMNS) > 0).astype(np.int64)


def read() -> object:
    """The arrays as a data set."""
    return open_data(Given(arrays()), DataSettings())


def bare() -> Callable[[], object]:
    """All epochs as a tutorial writes them, on tensors that are ready."""
    split = open_data(Given(arrays()), DataSettings()).splits["train"]
    assert isinstance(split, TensorSplit)
    assert split.target is not None
    x, y = split.inputs, split.target

    def loop() -> None:
        model = create_model("mlp", in_features=COLUMNS, num_classes=2, hidden_dims=HIDDEN)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        model.train()
        for _ in range(EPOCHS):
            for index in torch.randperm(len(x)).split(BATCH):
                loss = F.cross_entropy(model(x[index]), y[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    return loop


def train() -> None:
    """All of `train` but the report."""
    given = {"epochs": EPOCHS, "batch_size": BATCH, "tensorboard": False, "model.hidden_dims": HIDDEN}
    with tempfile.TemporaryDirectory() as folder:
        fit("mlp", Given(arrays()), given, out=Path(folder) / "run", progress=Progress(shown=False))


def rows() -> list[tuple[Pair, float]]:
    """Both cases with the most that their ratio may be, in time of this process."""
    shape, loop = f"{ROWS:,}×{COLUMNS}, mlp 256-256, {EPOCHS} epochs, batch {BATCH}", bare()
    clock = time.process_time
    return [
        (race(f"objects: reading (X, y) beside a bare loop: {shape}", read, loop, 5, 1, clock), 0.03),
        (race(f"objects: train on (X, y) beside a bare loop: {shape}", train, loop, 5, 1, clock), 1.4),
    ]
