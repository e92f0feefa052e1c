"""Selection of the objective, and of the modules that it adds to the network during training."""

from __future__ import annotations

from torch import nn

from ...core.errors import IncompatibleSettingError
from ...core.spec import Spec
from ...data.dataset_base import DataSet, Split
from ...nn.lora import merge
from ...tasks.task import Task
from ..config import TrainSettings
from ..device import DeviceContext
from ..optim import add_lora
from .continual import EWC, Joint, Rehearsal
from .distillation import Distillation, Teacher
from .few_shot import MAML, Prototypes
from .mae import MAE
from .reinforcement import GRPO, ExpertIteration
from .simclr import SimCLR
from .supervised import AdversarialTraining, Supervised

# By the value of `objective`. Distillation and adversarial training are supervised learning with other settings.
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


def total_epochs(settings: TrainSettings, data: DataSet) -> int:
    """Return the number of epochs of the whole training, summed over tasks that are learned one after another."""
    tasks = None if OBJECTIVES[settings.objective].at_once else data.tasks
    return settings.epochs * (tasks.count if tasks is not None else 1)


def add_training_modules(model: nn.Module, spec: Spec, settings: TrainSettings) -> list[str]:
    """Add modules that are used in training only, which `remove_training_modules` removes, and return notes on LoRA.

    Raises ModelError or SettingError if the model does not support them.
    """
    for name, module in OBJECTIVES[settings.objective].training_modules(model, spec).items():
        model.add_module(name, module)
    return add_lora(model, spec, settings) if settings.lora else []


def remove_training_modules(model: nn.Module, settings: TrainSettings) -> None:
    """Remove the modules that are used in training only from the model, and merge LoRA into its weights."""
    for name in OBJECTIVES[settings.objective].adds:
        delattr(model, name)
    merge(model)


def build_objective(
    model: nn.Module,
    data: DataSet,
    task: Task,
    settings: TrainSettings,
    train: Split,
    place: DeviceContext,
    teacher: Teacher | None,
) -> Supervised:
    """Return the objective that trains `model`, which is on its device, on the split.

    Raises SettingError if it does not support the sample weights of the data.
    """
    if data.weights is not None and (
        teacher is not None or OBJECTIVES[settings.objective] is not Supervised or not hasattr(task, "training_losses")
    ):
        raise IncompatibleSettingError(
            f"Invalid sample_weight: only for supervised learning of classes and numbers, and this is {task.name} with "
            f"objective={settings.objective}{' and a teacher' if teacher is not None else ''}. Leave it out."
        )
    if settings.attack:
        return AdversarialTraining(model, task, settings, train, data)
    if teacher is not None:
        teacher.ready(place)
        return Distillation(model, task, settings, train, data, teacher)
    return OBJECTIVES[settings.objective](model, task, settings, train, data)
