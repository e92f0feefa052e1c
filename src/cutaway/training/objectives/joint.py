"""Joint training on all tasks of a sequence at once, an upper bound for learning them one after another."""

from __future__ import annotations

from ...core.errors import SettingError
from ...data.dataset_base import DataSet
from ..config import TrainSettings
from .supervised import Supervised


def reject_without_tasks(settings: TrainSettings, data: DataSet, does: str) -> None:
    """Raise SettingError if there is no sequence of tasks; `does` describes the objective in the message."""
    if data.tasks is None:
        raise SettingError(
            f"objective={settings.objective} {does}, and there are no tasks: give tasks=permuted:10 or "
            "tasks=classes:2, or leave it out."
        )


class Joint(Supervised):
    """Loss of the task, with examples of all tasks in every batch."""

    at_once = True

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError if there are no tasks."""
        reject_without_tasks(settings, data, "learns all tasks at once")
