"""Tasks: each turns raw outputs, (N, …) with examples first, into a loss, metrics and predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from ..core.errors import IncompatibleSettingError, SettingError
from ..core.spec import (
    Boxes,
    Classes,
    Context,
    Episodes,
    Horizon,
    Image,
    ImageSpec,
    ImageTokens,
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
from .image_generation import Denoising, LikelihoodBound, TokenLikelihood
from .language import Language, MaskedLanguage
from .link_prediction import LinkPrediction
from .problem_solving import ProblemSolving
from .regression import Regression
from .segmentation import Segmentation
from .sequences import Captioning, SequenceToSequence
from .tagging import Tagging
from .transcription import SpeechRecognition, Spelling
from .word_vectors import WordVectors

# Metrics for which larger is better; for all others (losses and errors) smaller is.
HIGHER_IS_BETTER = frozenset(
    (
        *("accuracy", "balanced_accuracy", "top5_accuracy", "macro_f1", "span_f1", "span_precision", "span_recall"),
        *("knn_accuracy", "r2", "bleu", "rouge_1", "rouge_2", "rouge_l"),
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
    ImageTokens: TokenLikelihood,
    Transcript: SpeechRecognition,
    Spelled: Spelling,
    Boxes: Detection,
    Views: Contrastive,
    Patches: MaskedPatches,
    Episodes: FewShot,
    Links: LinkPrediction,
}


# Targets that an objective (`training/objectives/`) uses in place of the model's usual targets.
LEARNED_BY: dict[str, tuple[type[Target], ...]] = {
    "simclr": (Views,),
    "mae": (Patches,),
    "maml": (Episodes,),
    "prototypes": (Episodes,),
}


class Task(Protocol):
    """Protocol of all tasks. Outputs are the results of the model's forward, (N, outputs).

    A task's class has a `NOUN` for its target, the `LOSSES` that it supports, the default first, and the `OPTIONS` of
    `task_for` that it takes in addition to its target.

    Optional members:

    - `summarize_outputs(outputs, target)` returns what evaluation stores in place of large outputs. The task's metrics,
      details, predictions and example results then receive the stored values, (n, …), padded with NaN, and
      `fast_metrics` returns the loss as well. `summarize_target(target)` does the same for large targets.
    - `headline` names the metric of record where it differs from `default_monitor`.
    - `prediction_rows(kept, split, preprocessing)` returns the rows that `predict` writes in place of `predictions`,
      for tasks with more or fewer than one row per example.
    - `predicted_targets(outputs)` returns the prediction for each image in the form of a target, for the preprocessing
      to draw over the image.
    - `run_model(model, x, target)` returns the predictions for a batch where they are not simply the model's outputs.
    - `training_losses(outputs, target)` and `example_weights(target)` return the training loss and the weight of each
      example, (N,), for tasks that support sample weights.
    - `loss_is_sum` is True if the gradient of the summed loss is not divided by `loss_denominator`.
    """

    name: str
    default_monitor: str  # the default validation metric for selecting the best weights
    monitors: tuple[str, ...]  # the metrics that can select them, from `fast_metrics` or `metrics`
    loss_name: str

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the batch, (); divide by `loss_denominator` for the mean."""
        ...

    def loss_denominator(self, target: Tensor) -> float:
        """Return the denominator of the summed loss: the number of examples, or the sum of their weights."""
        ...

    def fast_metrics(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """Return the metrics to monitor during training."""
        ...

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return the metrics of record, each with its 95 % interval."""
        ...

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the report's data: confusion and per-class metrics, or predicted and actual values."""
        ...

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the score of a trivial baseline: {"name", "value"}, on the scale of `default_monitor`."""
        ...

    def predictions(self, outputs: Tensor) -> list[dict[str, Any]]:
        """Return one row per example, with names and units, for `predict` to write."""
        ...

    def example_results(self, outputs: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return one row per example: actual and predicted as text, confidence, loss and whether it is wrong."""
        ...


def target_types(targets: tuple[type[Target], ...], objective: str) -> tuple[type[Target], ...]:
    """Return the target types of the objective: its own, or else those of the model.

    Args:
        targets: Target types of the model.
        objective: Name of the training objective.

    Returns:
        The target types.
    """
    return LEARNED_BY.get(objective, targets)


def headline_metric(task: Task) -> str:
    """Return the name of the task's metric of record.

    Args:
        task: The task.

    Returns:
        The metric's name.
    """
    return str(getattr(task, "headline", task.default_monitor))


def task_for(
    spec: Spec,
    loss: str | None = None,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
    words: Callable[[list[int]], str] | None = None,
) -> Task:
    """Create the task for the target of a data specification.

    Args:
        spec: Specification of the data.
        loss: Name of the loss. Default: the first that the task supports.
        label_smoothing: Smoothing of the target distribution.
        class_weights: Weights of the classes, shape (K,).
        words: Converts token ids to text, for sequences of tokens.

    Returns:
        The task.

    Raises:
        SettingError: If the task does not support the loss, smoothing or class weights.
    """
    target = spec.target
    captions = isinstance(target, Tokens) and isinstance(spec, ImageSpec)
    kind: Any = Captioning if captions else KINDS[type(target)]
    loss = loss or kind.LOSSES[0]
    if loss not in kind.LOSSES:
        raise SettingError(f"Invalid loss={loss} for {kind.NOUN}: must be one of {', '.join(kind.LOSSES)}.")
    if class_weights is not None and "class_weights" not in kind.OPTIONS:
        raise IncompatibleSettingError(
            f"Invalid class_weights: only for classification, and {target.column} is not a class. Leave it out."
        )
    if label_smoothing and "label_smoothing" not in kind.OPTIONS:
        raise IncompatibleSettingError(
            f"Invalid label_smoothing: only for classes and tokens, not for {kind.NOUN}. Leave it out."
        )
    given = {"loss": loss, "label_smoothing": label_smoothing, "class_weights": class_weights, "words": words}
    given["shape"] = getattr(spec, "shape", ())
    task: Task = kind(target, **{name: given[name] for name in kind.OPTIONS})
    return task
