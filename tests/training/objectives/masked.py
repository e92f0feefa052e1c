"""Masked autoencoding of a network by itself, for tests that need no run."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cutaway.core.config import build
from cutaway.core.spec import ImageSpec
from cutaway.data.dataset_base import DataSet, TensorSplit
from cutaway.tasks.task import task_for
from cutaway.training.config import TrainSettings
from cutaway.training.objectives.mae import MAE


def masking(model: nn.Module, spec: ImageSpec, **given: Any) -> MAE:
    """The objective on that network, to which its decoder is added, for such images."""
    for name, module in MAE.training_modules(model, spec).items():
        model.add_module(name, module)
    settings = build(TrainSettings, {"objective": "mae", **given})
    split = TensorSplit(torch.zeros(1, *spec.shape), torch.zeros(1, dtype=torch.long))
    data = DataSet("toy", "toy", spec, {"train": split}, preprocessing=None, fingerprint="", split_hash="")  # type: ignore[arg-type]
    return MAE(model, task_for(spec), settings, split, data)
