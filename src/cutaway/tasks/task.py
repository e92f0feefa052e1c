"""Tasks, which compute the loss, the metrics and the predictions from the outputs of a model, (N, …)."""

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
    """Protocol of all tasks. Outputs are what the model's `forward` returns, such as logits (N, K) for K classes.

    A task's class has a `NOUN` for its target, the `LOSSES` that it supports, the default first, and the `OPTIONS` of
    `task_for` that its constructor takes in addition to the target.

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

    Attributes:
        name: Name of the task, such as "classification".
        default_monitor: The validation metric that selects the best weights by default.
        monitors: The metrics that can select them, from `fast_metrics` or `metrics`.
        loss_name: Name of the loss.

    Example:
        >>> from cutaway.core.spec import Classes, TableSpec
        >>> task = task_for(TableSpec(("a", "b"), Classes(("no", "yes"))))
        >>> outputs, target = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1, 1])
        >>> round(task.loss(outputs, target).item() / task.loss_denominator(target), 2)
        0.58
        >>> task.fast_metrics(outputs, target)
        {'accuracy': 0.6666666666666666}
        >>> [row["class"] for row in task.predictions(outputs)]
        ['no', 'yes', 'no']
    """

    name: str
    default_monitor: str
    monitors: tuple[str, ...]
    loss_name: str

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the batch, (). Divided by `loss_denominator`, it is the mean.

        Args:
            outputs: Outputs of the model, (N, …).
            target: Targets as the data set gives them, such as classes (N,) or standardized values (N,).
        """
        ...

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of terms in the summed loss: of examples or tokens, or the sum of their weights.

        Args:
            target: Targets, as for `loss`.
        """
        ...

    def fast_metrics(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """Return the metrics that are monitored during training, by name, without intervals.

        Args:
            outputs: Outputs of the model for all examples of a split, (N, …).
            target: Targets, as for `loss`.
        """
        ...

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return the final metrics by name, each with its 95 % confidence interval.

        Args:
            outputs: Outputs of the model for all examples of a split, (N, …).
            target: Targets, as for `loss`.
        """
        ...

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the data of the report: confusion matrix and metrics of each class, or predicted and actual values.

        Args:
            outputs: Outputs of the model for all examples of a split, (N, …).
            target: Targets, as for `loss`.
        """
        ...

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the score of a trivial prediction, such as the majority class, in the metric `default_monitor`.

        Args:
            train_target: Targets of the training split, from which the prediction is derived.
            target: Targets of the split on which it is scored.

        Returns:
            A dictionary with `name`, the description of the baseline, and `value`, its score.
        """
        ...

    def predictions(self, outputs: Tensor) -> list[dict[str, Any]]:
        """Return one row for each example, with the names of classes and the units of values, as `predict` writes it.

        Args:
            outputs: Outputs of the model, (N, …).
        """
        ...

    def example_results(self, outputs: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return the result of each example, for the list of the worst errors in the report.

        Args:
            outputs: Outputs of the model, (N, …).
            target: Targets, as for `loss`.

        Returns:
            One row for each example, with `actual` and `predicted` as text, `confidence` (a probability, or None),
            `loss`, and `wrong`, whether it counts as an error.
        """
        ...


def target_types(targets: tuple[type[Target], ...], objective: str) -> tuple[type[Target], ...]:
    """Return the target types of a training objective: its own, or else those of the model."""
    return LEARNED_BY.get(objective, targets)


def headline_metric(task: Task) -> str:
    """Return the name of the metric by which runs of a task are compared, such as "accuracy".

    Args:
        task: The task.

    Example:
        >>> from cutaway.core.spec import GraphSpec, Links
        >>> task = task_for(GraphSpec(features=5, target=Links()))
        >>> task.default_monitor, headline_metric(task)
        ('loss', 'auc')
    """
    return str(getattr(task, "headline", task.default_monitor))


def task_for(
    spec: Spec,
    loss: str | None = None,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
    words: Callable[[list[int]], str] | None = None,
) -> Task:
    """Create the task for the target of a spec.

    Args:
        spec: Spec of the data, such as `run.spec`.
        loss: Name of the loss. By default, the first one that the task supports.
        label_smoothing: Probability that is spread evenly over all classes or tokens, from 0 (none) to 1.
        class_weights: Weight of each class in the loss, shape (K,). By default, all are 1.
        words: Function from a list of token ids to text, for the predictions of token sequences. By default, the ids.

    Returns:
        The task.

    Raises:
        SettingError: If the task does not support the loss, label smoothing or class weights.

    Example:
        >>> from cutaway.core.spec import TableSpec, Value
        >>> task = task_for(TableSpec(("rooms",), Value("price", mean=200.0, scale=50.0)))
        >>> task.name, task.default_monitor, task.loss_name
        ('regression', 'rmse', 'mse')
        >>> task.predictions(torch.tensor([[1.5]]))  # in the units of the target
        [{'price': 275.0}]
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
