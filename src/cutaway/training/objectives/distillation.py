"""Knowledge distillation: a network is trained on the predictions of another network and on the labels.

After G. Hinton, O. Vinyals, J. Dean, Distilling the knowledge in a neural network, 2015.
<https://arxiv.org/abs/1503.02531>

    L = (1 − α) H(y, softmax(z)) + α T² KL( softmax(v / T) ‖ softmax(z / T) )

z are the student's logits, v the teacher's, (N, K), T the temperature and α `teacher_weight`. The teacher's
probabilities of wrong classes carry information about an example, which T amplifies. T² keeps the gradients of the
second term as large as those of the first when T changes.

The teacher was trained on the same training split, so that neither network has seen the test split. If teacher and
student have the same preprocessing, the teacher is run on each augmented batch. Otherwise, such as with another
tokenizer, it is run once on every training example.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from ...checkpoints.saving import weights_file
from ...core.errors import IncompatibleSettingError
from ...core.spec import Classes
from ...data.dataset_base import DataSet, Split
from ...nn.losses import distillation, expand_binary_logits
from ...tasks.task import Task
from ..config import TrainSettings
from ..device import DeviceContext
from ..evaluation import evaluate_split, evaluation_batch_size
from ..pretrained_weights import sha256_of_weights
from ..trained_run import TrainedRun
from .supervised import BatchLoss, Supervised

TEMPERATURE = 4.0  # default


class Teacher:
    """Trained run that provides logits of training examples."""

    def __init__(self, settings: TrainSettings, data: DataSet, task: Task, mixed: bool) -> None:
        """Open the run of `settings.teacher`. With `mixed`, training blends examples.

        Raises SettingError or FileError for a run that cannot teach this task on this data.
        """
        assert settings.teacher is not None
        said = f"teacher={settings.teacher}"
        if not isinstance(data.spec.target, Classes) or task.loss_name != "cross_entropy":
            raise IncompatibleSettingError(
                f"{said} predicts probabilities of classes, but the target here is {data.spec.target.column} with "
                f"loss={task.loss_name}: leave it out."
            )
        self.run = TrainedRun(settings.teacher)
        about, target = self.run.about, self.run.spec.target
        if not isinstance(target, Classes) or target.names != data.spec.target.names:
            learned = ", ".join(target.classes[:10]) or f"the {target.column}"
            raise IncompatibleSettingError(
                f"{said} learned {learned}, and the classes here are {', '.join(data.spec.target.names[:10])}: give a "
                "run that learned these, in this order."
            )
        if about["loss"] != "cross_entropy":
            raise IncompatibleSettingError(
                f"{said} learned by loss={about['loss']}, and has no probabilities: give another run."
            )
        theirs = about["data"]
        if (theirs["fingerprint"], theirs["split_hash"]) != (data.fingerprint, data.split_hash):
            raise IncompatibleSettingError(
                f"{said} was trained on {theirs['source']}, or on another split of it, and may have been trained on "
                f"test examples: train it on {data.source} with the same val, test, split_seed and max_samples."
            )
        self.like_ours = self.run.preprocessing.to_json() == data.preprocessing.to_json()
        if mixed and not self.like_ours:
            raise IncompatibleSettingError(
                f"mixup blends examples, but {said} takes another form of the data and predicts single examples "
                "only: leave mixup out."
            )
        self.sha256 = sha256_of_weights(weights_file(self.run.folder / "model"))
        self._logits: Tensor | None = None

    @property
    def about(self) -> dict[str, str]:
        """Return the teacher's entry in run.json."""
        return {"path": str(self.run.folder), "model": self.run.about["model"], "sha256": self.sha256}

    def ready(self, place: DeviceContext) -> None:
        """Move the teacher to the device. If its preprocessing differs, compute all its logits now."""
        self.place, self.model = place, place.model(self.run.model, learns=False).eval().requires_grad_(False)
        if self._logits is None and not self.like_ours:
            train = self.run.data().splits["train"]
            self._logits = evaluate_split(
                self.model, train, place, evaluation_batch_size(None, self.run.spec), self.run.task
            ).outputs

    @torch.no_grad()
    def logits(self, inputs: tuple[Tensor, ...], index: Tensor | None) -> Tensor:
        """Return the teacher's logits (N, K) for the examples `index` (N,), whose student inputs are `inputs`."""
        if self._logits is None:
            found: Tensor = self.model(*inputs)
            return found
        assert index is not None, "the loop knows which examples a batch has"
        return self._logits[index].to(inputs[0].device, self.place.dtype)


class Distillation(Supervised):
    """Loss of the task, and the divergence from the teacher's probabilities.

    The loss that is reported is that of the task alone, as in validation.
    """

    def __init__(
        self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet, teacher: Teacher
    ) -> None:
        super().__init__(model, task, settings, train, data)
        self.teacher, self.temperature, self.weight = (
            teacher,
            settings.temperature or TEMPERATURE,
            settings.teacher_weight,
        )

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor, index: Tensor | None, random: Generator) -> BatchLoss:
        """Return the losses of a batch."""
        loss, total, outputs = super().loss(inputs, target, index, random)
        assert outputs is not None, "classes are answered at once"
        beside = distillation(
            expand_binary_logits(outputs), expand_binary_logits(self.teacher.logits(inputs, index)), self.temperature
        ).sum()
        return BatchLoss(loss, (1 - self.weight) * total + self.weight * beside, outputs)
