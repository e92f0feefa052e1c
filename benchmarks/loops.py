"""Our training loop beside a bare one: the same tensors, order, model, optimizer and number of steps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.core.spec import ANY_SIZE, Classes, ImageSizes
from cutaway.data.dataset_base import DataSet, TensorSplit
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.models.registry import create_model
from cutaway.tasks.task import task_for
from cutaway.training.callbacks import Progress
from cutaway.training.config import TrainSettings
from cutaway.training.device import select_device
from cutaway.training.trainer import Trainer

from .pairs import Pair, race


def tensors(name: str) -> tuple[DataSet, Tensor, Tensor]:
    """A data set with nothing to validate on, and its training tensors."""
    data = open_data(name, DataSettings(), ImageSizes(only=32) if name == "mnist" else ANY_SIZE)
    split = data.splits["train"]
    assert isinstance(split, TensorSplit)
    assert split.target is not None
    x, y = split.inputs, split.target
    data.splits = {"train": TensorSplit(x, y)}
    return data, x, y


def build(name: str, data: DataSet) -> nn.Module:
    """The model fitted to the data, always with the same weights."""
    torch.manual_seed(0)
    outputs = data.spec.target.outputs
    if name == "mlp":
        return create_model("mlp", in_features=data.spec.shape[0], num_classes=outputs, hidden_dims=(256, 256))
    return create_model(name, in_channels=1, num_classes=outputs)


def ours(model: nn.Module, data: DataSet, batch_size: int) -> Callable[[], object]:
    """One epoch in our loop, a checkpoint at its end included, each time it is called."""
    settings = TrainSettings(epochs=1, batch_size=batch_size, schedule="constant", save_minutes=1e9)
    task = task_for(data.spec)
    folder = Path(tempfile.mkdtemp())
    place = select_device("cpu", "float32", None, model)
    trainer = Trainer(model, data, task, settings, place, folder, Progress(shown=False))

    def epoch() -> None:
        trainer.state.epoch, trainer.state.stopped = 0, ""
        trainer.fit()

    return epoch


def bare(model: nn.Module, x: Tensor, y: Tensor, batch_size: int, classes: bool) -> Callable[[], object]:
    """One epoch as a tutorial writes it, with the fused optimizer, each time it is called."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def epoch() -> None:
        model.train()
        for index in torch.randperm(len(x)).split(batch_size):
            outputs = model(x[index])
            loss = F.cross_entropy(outputs, y[index]) if classes else F.mse_loss(outputs[:, 0], y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


CASES = {
    "loop: lenet5-modern on MNIST, batch 64": ("lenet5-modern", "mnist", 64, 1.05),
    "loop: mlp 256-256 on California housing, batch 32": ("mlp", "california_housing", 32, 1.15),
}


def sides(case: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Ours and the bare loop of a case, each with a model of its own."""
    model, source, batch_size, _ = CASES[case]
    data, x, y = tensors(source)
    classes = isinstance(data.spec.target, Classes)
    return ours(build(model, data), data, batch_size), bare(build(model, data), x, y, batch_size, classes)


def rows() -> list[tuple[Pair, float]]:
    """Every case with the most that its ratio may be."""
    return [(race(case, *sides(case)), limit) for case, (*_, limit) in CASES.items()]
