"""Which objective the settings ask for, and what it adds to the network while it learns."""

from __future__ import annotations

from torch import nn

from ...core.errors import SettingError
from ...core.spec import Spec
from ...data.dataset_base import DataSet, Split
from ...nn.lora import merge
from ...tasks.task import Task
from ..adaptation import adapted
from ..config import TrainSettings
from ..device import Placement
from ..task_schedule import reject_for_tasks
from .adversarial import AdversarialTraining
from .distillation import Distillation, Teacher
from .ewc import EWC
from .few_shot import MAML, Prototypes
from .grpo import GRPO
from .joint import Joint
from .mae import MAE
from .rehearsal import Rehearsal
from .simclr import SimCLR
from .star import ExpertIteration
from .supervised import Supervised

# By the name of `objective`; distillation and adversarial training are supervised learning with a setting of their own.
OBJECTIVES: dict[str, type[Supervised]] = {
    "supervised": Supervised,
    "simclr": SimCLR,
    "mae": MAE,
    "ewc": EWC,
    "rehearsal": Rehearsal,
    "joint": Joint,
    "maml": MAML,
    "prototypes": Prototypes,
    "star": ExpertIteration,
    "grpo": GRPO,
}


def reject_for_objective(settings: TrainSettings, data: DataSet) -> None:
    """Raise SettingError for data, or for a setting, that the objective cannot have."""
    objective = OBJECTIVES[settings.objective]
    objective.reject(settings, data)
    reject_for_tasks(settings, data)
    if settings.snapshots and (objective.adds or settings.lora):
        raise SettingError(
            f"snapshots={settings.snapshots} keeps copies of a model as it will be, and objective=simclr, "
            "objective=mae and lora add to it until training ends: leave snapshots out."
        )


def epochs_of(settings: TrainSettings, data: DataSet) -> int:
    """The epochs of the whole training: of tasks that are learned one after another, those of all."""
    tasks = None if OBJECTIVES[settings.objective].at_once else data.tasks
    return settings.epochs * (tasks.count if tasks is not None else 1)


def learning(model: nn.Module, spec: Spec, settings: TrainSettings) -> list[str]:
    """Add to the model what only learning needs, which is there until `learned`; a sentence on it, where it is much.

    Raises ModelError or SettingError where the model has no place for it.
    """
    for name, module in OBJECTIVES[settings.objective].added(model, spec).items():
        model.add_module(name, module)
    return adapted(model, spec, settings) if settings.lora else []


def learned(model: nn.Module, settings: TrainSettings) -> None:
    """Make the model as it was made again, without what only learning needed."""
    for name in OBJECTIVES[settings.objective].adds:
        delattr(model, name)
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
    if settings.attack:
        return AdversarialTraining(model, task, settings, train, data)
    if teacher is not None:
        teacher.ready(place)
        return Distillation(model, task, settings, train, data, teacher)
    return OBJECTIVES[settings.objective](model, task, settings, train, data)
