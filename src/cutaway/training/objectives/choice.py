"""Which objective the settings ask for, and what it adds to the network while it learns."""

from __future__ import annotations

from torch import nn

from ...data.sets import DataSet, Split
from ...nn.lora import merge
from ...spec import Spec
from ...tasks.task import Task
from ..adaptation import adapted
from ..layers import PROJECTION
from ..placement import Placement
from ..settings import TrainSettings
from .adversarial import AdversarialTraining
from .distillation import Distillation, Teacher
from .simclr import SimCLR, projection
from .supervised import Supervised


def learning(model: nn.Module, spec: Spec, settings: TrainSettings) -> list[str]:
    """Add to the model what only learning needs, which is there until `learned`; a sentence on it, where it is much.

    Raises ModelError or SettingError where the model has no place for it.
    """
    if settings.objective == "simclr":
        model.add_module(PROJECTION, projection(model))
    return adapted(model, spec, settings) if settings.lora else []


def learned(model: nn.Module) -> None:
    """Make the model as it was made again, without what only learning needed."""
    if hasattr(model, PROJECTION):
        delattr(model, PROJECTION)
    merge(model)


def objective_for(
    model: nn.Module,
    data: DataSet,
    task: Task,
    settings: TrainSettings,
    train: Split,
    place: Placement,
    teacher: Teacher | None,
) -> Supervised:
    """How `model`, which is at its place, learns the task from the split."""
    if settings.objective == "simclr":
        return SimCLR(model, task, settings, train, data)
    if settings.attack:
        return AdversarialTraining(model, task, settings, train, data)
    if teacher is not None:
        teacher.ready(place)
        return Distillation(model, task, settings, train, teacher)
    return Supervised(model, task, settings, train)
