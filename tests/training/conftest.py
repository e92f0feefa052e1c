"""A small data set and a trainer on it, for the tests of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cutaway.core.config import build
from cutaway.core.spec import Classes, TableSpec
from cutaway.data.dataset_base import DataSet, TensorSplit
from cutaway.tasks.task import task_for
from cutaway.training.callbacks import Callback, Interrupted, Progress
from cutaway.training.config import TrainSettings
from cutaway.training.device import select_device
from cutaway.training.trainer import Trainer


def rows(n: int, seed: int) -> TensorSplit:
    """Two classes on either side of a curved line, in 5 numbers."""
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))
    return TensorSplit(x, (x[:, 0] * x[:, 1] + x[:, 2] > 0).long())


@pytest.fixture
def data() -> DataSet:
    """97 training rows (so that a last batch is short), 40 to validate on."""
    spec = TableSpec(columns=tuple("abcde"), target=Classes(("no", "yes")))
    splits = {"train": rows(97, seed=1), "val": rows(40, seed=2), "test": rows(40, seed=3)}
    return DataSet("toy", "toy", spec, splits, preprocessing=None, fingerprint="", split_hash="")  # type: ignore[arg-type]


def stop_behind(trainer: Trainer, update: int) -> None:
    """Let it train, and ask it after that update to stop, as Ctrl-C does: it must."""

    class Asked(Trainer):
        def step(self, group: list, steps: int) -> None:  # type: ignore[type-arg]
            super().step(group, steps)
            self._stop.requested = self.state.update == update

    trainer.__class__ = Asked
    with pytest.raises(Interrupted):
        trainer.fit()


@contextmanager
def stopping(update: int) -> Iterator[None]:
    """Within it whatever is trained is asked behind that update to stop, as Ctrl-C does: it must."""
    once = Trainer.step

    def step(self: Trainer, group: list[Any], steps: int) -> None:
        once(self, group, steps)
        self._stop.requested = self.state.update == update

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", step)
        with pytest.raises(Interrupted):
            yield


def fitted(make: Callable[[], Trainer], stop_at: int = 0) -> Trainer:
    """The trainer that `make` gives, after training; stopped after so many updates, another one takes it up there,
    whatever state torch's random numbers are in by then."""
    trainer = make()
    if stop_at:
        stop_behind(trainer, stop_at)
        torch.manual_seed(12345)
        trainer = make()
        trainer.resume()
    trainer.fit()
    return trainer


def network(dropout: float = 0.0) -> nn.Sequential:
    """A small network, always with the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 2))


@pytest.fixture
def make_trainer(data: DataSet, tmp_path: Path) -> Callable[..., Trainer]:
    """A trainer of the small network: `make_trainer(epochs=3, lr=0.1)`."""

    def make(
        model: nn.Module | None = None,
        folder: Path = tmp_path,
        dropout: float = 0.0,
        callbacks: Sequence[Callback] = (),
        **given: Any,
    ) -> Trainer:
        settings = build(TrainSettings, {"epochs": 3, "batch_size": 16, "weight_decay": 0.0, **given})
        model = model or network(dropout)
        task = task_for(data.spec, settings.loss, settings.label_smoothing)
        place = select_device("cpu", settings.precision, None, model)
        torch.manual_seed(settings.seed)
        return Trainer(model, data, task, settings, place, folder / "checkpoints", Progress(shown=False), callbacks)

    return make
