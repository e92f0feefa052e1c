"""Tasks: each turns raw outputs, (N, …) with examples first, into a loss, metrics and predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from ..core.errors import SettingError
from ..core.spec import (
    Boxes,
    Classes,
    Context,
    Episodes,
    Horizon,
    Image,
    ImageSpec,
    Links,
    Mask,
    Masked,
    NextToken,
    Noise,
    Patches,
    Solution,
    Spec,
    Spelled,
    Tags,
    Target,
    Tokens,
    Transcript,
    Value,
    Views,
)
from ..statistics.intervals import Metric
from .classification import Classification
from .contrastive import Contrastive, MaskedPatches
from .detection import Detection
from .few_shot import FewShot
from .forecasting import Forecasting
from .image_generation import Denoising, LikelihoodBound
from .language import Language, MaskedLanguage
from .link_prediction import LinkPrediction
from .problem_solving import ProblemSolving
from .regression import Regression
from .segmentation import Segmentation
from .sequences import Captioning, SequenceToSequence
from .tagging import Tagging
from .transcription import SpeechRecognition, Spelling
from .word_vectors import WordVectors

# Metrics of which more is better; of all others, losses and errors, less is.
HIGHER_IS_BETTER = frozenset(
    (
        *("accuracy", "balanced_accuracy", "top5_accuracy", "macro_f1", "span_f1", "span_precision", "span_recall"),
        *("knn_accuracy", "r2", "bleu"),
        *("average_accuracy", "backward_transfer"),
        *("mean_iou", "pixel_accuracy"),
        *("map", "map_50", "map_75"),
        *("auc", "average_precision", "mrr"),
        *("exact_match", "solved", "answer_accuracy", "token_accuracy"),
    )
)


KINDS: dict[type[Target], Any] = {
    Classes: Classification,
    Value: Regression,
    Tags: Tagging,
    Mask: Segmentation,
    NextToken: Language,
    Solution: ProblemSolving,
    Masked: MaskedLanguage,
    Context: WordVectors,
    Tokens: SequenceToSequence,
    Horizon: Forecasting,
    Image: LikelihoodBound,
    Noise: Denoising,
    Transcript: SpeechRecognition,
    Spelled: Spelling,
    Boxes: Detection,
    Views: Contrastive,
    Patches: MaskedPatches,
    Episodes: FewShot,
    Links: LinkPrediction,
}


# What an objective (`training/objectives/`) makes of any data that has it, whatever the model learns otherwise.
LEARNED_BY: dict[str, tuple[type[Target], ...]] = {
    "simclr": (Views,),
    "mae": (Patches,),
    "maml": (Episodes,),
    "prototypes": (Episodes,),
}


class Task(Protocol):
    """The contract of all tasks. Outputs are what the model's forward gives, (N, outputs).

    A task's class says what is learned (`NOUN`), which `LOSSES` it can have, the first unless another is asked for, and
    which `OPTIONS` it takes beside its target, of those of `task_for`.

    A task of sequences has a method `keep(outputs, target)` too: what evaluation keeps of a batch's outputs, which may
    be very many. Its metrics, details, predictions and mistakes are then given what was kept, (n, …), padded with NaN,
    and `quick` gives the loss as well. Where targets are large too, `keep_target(target)` is what is kept of them. One
    whose metric of record is another than `watch` names it as its `headline`. One that says of an example more than
    one row, or less, has `rows(kept, split, preprocessing)`, what `predict` writes in place of `predictions`; and one
    whose answer can be drawn over an image has `answers(outputs)`, the answer for each, for the preprocessing to draw.
    One whose answers are not simply the model's outputs for a batch has `asked(model, x, target)`, which gives them.
    """

    name: str
    watch: str  # the validation metric that decides which weights are best, unless another is asked for
    monitors: tuple[str, ...]  # the metrics that can decide, of `quick` or of `metrics`
    loss_name: str

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The loss summed over the batch: divide by `count` for the mean."""
        ...

    def count(self, target: Tensor) -> float:
        """What the summed loss is to be divided by: examples, or their weights' sum."""
        ...

    def quick(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """The metrics to watch while training."""
        ...

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """The metrics of record, each with its 95 % interval."""
        ...

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """What the report draws: confusion and per-class metrics, or predicted and actual values."""
        ...

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """The score of the simplest guess: {"name", "value"}, on the scale of `watch`."""
        ...

    def predictions(self, outputs: Tensor) -> list[dict[str, Any]]:
        """One row an example, in words and units: what `predict` writes."""
        ...

    def mistakes(self, outputs: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """One row an example: actual and predicted in words, confidence, loss and whether it is wrong."""
        ...


def learned_of(targets: tuple[type[Target], ...], objective: str) -> tuple[type[Target], ...]:
    """What is learned of the data: what the model learns (`targets`), unless the objective asks for something else."""
    return LEARNED_BY.get(objective, targets)


def headline_of(task: Task) -> str:
    """The metric that a result is told by."""
    return str(getattr(task, "headline", task.watch))


def task_for(
    spec: Spec,
    loss: str | None = None,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
    words: Callable[[list[int]], str] | None = None,
) -> Task:
    """The task that the target of `spec` asks for. `words` writes tokens out, where the target is a sequence of them.

    Raises SettingError for a loss, smoothing or class weights that it cannot have.
    """
    target = spec.target
    captions = isinstance(target, Tokens) and isinstance(spec, ImageSpec)
    kind: Any = Captioning if captions else KINDS[type(target)]
    loss = loss or kind.LOSSES[0]
    if loss not in kind.LOSSES:
        raise SettingError(f"loss={loss} is not for {kind.NOUN}: choose from {', '.join(kind.LOSSES)}.")
    if class_weights is not None and "class_weights" not in kind.OPTIONS:
        raise SettingError(f"class_weights are for classes, and {target.column} is none: leave them out.")
    if label_smoothing and "label_smoothing" not in kind.OPTIONS:
        raise SettingError(f"label_smoothing is for classes and tokens, not for {kind.NOUN}: leave it out.")
    given = {"loss": loss, "label_smoothing": label_smoothing, "class_weights": class_weights, "words": words}
    given["shape"] = getattr(spec, "shape", ())
    task: Task = kind(target, **{name: given[name] for name in kind.OPTIONS})
    return task
