"""What arrays that are handed over cost beside a bare loop on tensors: reading them, the loop, and all of `train`.

Reading is everything before the first step: checks, splits, findings, encoders, fingerprint. The loop makes the same
updates as the bare one, with its schedule and its weight decay, and validates after each epoch as that does; it also
writes the best weights, checkpoints and rows. `train` looks for leaks before, and judges the model in the end, with
intervals and what each column counts for: seconds that do not grow with the epochs.
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
from torch import Tensor, nn

from cutaway.data.dataset_base import DataSet, Split, TensorSplit
from cutaway.data.in_memory.source import InMemorySource
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.models.registry import create_model
from cutaway.runs.train import train_model
from cutaway.tasks.task import task_for
from cutaway.training.callbacks import Progress
from cutaway.training.config import TrainSettings
from cutaway.training.device import select_device
from cutaway.training.trainer import Trainer

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
    return open_data(InMemorySource(arrays()), DataSettings())


def mlp() -> nn.Module:
    """The model, with other weights each time."""
    return create_model("mlp", in_features=COLUMNS, num_classes=2, hidden_dims=HIDDEN)


def tensors(split: Split) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a split."""
    assert isinstance(split, TensorSplit)
    assert split.target is not None
    return split.inputs, split.target


def bare(data: DataSet) -> Callable[[], object]:
    """All epochs as a tutorial writes them, on tensors that are ready."""
    (x, y), (x_val, y_val) = (tensors(data.splits[name]) for name in ("train", "val"))

    def loop() -> None:
        model = mlp()
        weights, biases = ([p for p in model.parameters() if (p.ndim > 1) == decays] for decays in (True, False))
        groups = [{"params": weights, "weight_decay": 0.01}, {"params": biases, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * -(-len(x) // BATCH))
        for _ in range(EPOCHS):
            model.train()
            total = 0.0
            for index in torch.randperm(len(x)).split(BATCH):
                loss = F.cross_entropy(model(x[index]), y[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.item()
            model.eval()
            with torch.no_grad():
                outputs = torch.cat([model(some) for some in x_val.split(256)])
                F.cross_entropy(outputs, y_val).item()
                (outputs.argmax(1) == y_val).float().mean().item()

    return loop


def loop(data: DataSet) -> None:
    """All epochs in the loop of `train`, with what it writes."""
    model, settings = mlp(), TrainSettings(epochs=EPOCHS, batch_size=BATCH, schedule="cosine")
    place, bar = select_device("cpu", "float32", None, model), Progress(shown=False)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(model, data, task_for(data.spec), settings, place, Path(folder), bar).fit()


def train() -> None:
    """All of `train` but the report."""
    given = {"epochs": EPOCHS, "batch_size": BATCH, "tensorboard": False, "model.hidden_dims": HIDDEN}
    with tempfile.TemporaryDirectory() as folder:
        train_model("mlp", InMemorySource(arrays()), given, out=Path(folder) / "run", progress=Progress(shown=False))


def rows() -> list[tuple[Pair, float]]:
    """Every case with the most that their ratio may be, in time of this process."""
    shape = f"{ROWS:,}×{COLUMNS}, mlp 256-256, {EPOCHS} epochs, batch {BATCH}"
    data = open_data(InMemorySource(arrays()), DataSettings())
    peer, clock = bare(data), time.process_time
    return [
        (race(f"objects: reading (X, y), vs. a bare loop: {shape}", read, peer, 3, 1, clock), 0.03),
        (race(f"objects: the loop, vs. a bare one: {shape}", lambda: loop(data), peer, 5, 1, clock), 1.03),
        (race(f"objects: train on (X, y), vs. a bare loop: {shape}", train, peer, 3, 1, clock), 1.4),
    ]
