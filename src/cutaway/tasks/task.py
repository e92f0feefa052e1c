"""What is learned: a task turns raw outputs into a loss, into metrics and into words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from ..errors import SettingError
from ..spec import Classes, Context, Horizon, Masked, NextToken, Spec, Tags, Target, Tokens, Value
from .classification import Classification
from .forecasting import Forecasting
from .language import Language
from .masked import MaskedLanguage
from .metrics import Metric
from .regression import Regression
from .tagging import Tagging
from .transduction import Transduction
from .word_vectors import WordVectors

KINDS: dict[type[Target], Any] = {
    Classes: Classification,
    Value: Regression,
    Tags: Tagging,
    NextToken: Language,
    Masked: MaskedLanguage,
    Context: WordVectors,
    Tokens: Transduction,
    Horizon: Forecasting,
}
NOUNS: dict[type[Target], str] = {
    Classes: "classes",
    Value: "numbers",
    Tags: "tags",
    NextToken: "the next token",
    Masked: "masked tokens",
    Context: "word vectors",
    Tokens: "sequences",
    Horizon: "forecasts",
}


class Task(Protocol):
    """The contract of all tasks. Outputs are what the model's forward gives, (N, outputs).

    A task of sequences has a method `keep(outputs, target)` too: what evaluation keeps of a batch's outputs, which may
    be very many. Its metrics, details, predictions and mistakes are then given what was kept, (n, …), padded with NaN,
    and `quick` gives the loss as well.
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
    kind = KINDS[type(target)]
    losses = getattr(kind, "LOSSES", ("cross_entropy",))
    loss = loss or losses[0]
    if loss not in losses:
        raise SettingError(f"loss={loss} is not for {NOUNS[type(target)]}: choose from {', '.join(losses)}.")
    if class_weights is not None and not isinstance(target, Classes):
        raise SettingError(f"class_weights are for classes, and {target.column} is none: leave them out.")
    if label_smoothing and not isinstance(target, Classes | NextToken | Masked | Tokens):
        raise SettingError(f"label_smoothing is for classes and tokens, not for {NOUNS[type(target)]}: leave it out.")
    if isinstance(target, Classes):
        return Classification(target, loss, label_smoothing, class_weights)
    if isinstance(target, Value):
        return Regression(target, loss)
    if isinstance(target, NextToken):
        return Language(target, label_smoothing)
    if isinstance(target, Tokens):
        return Transduction(target, label_smoothing, words)
    if isinstance(target, Tags):
        return Tagging(target)
    if isinstance(target, Masked):
        return MaskedLanguage(target, label_smoothing)
    return Forecasting(target, loss) if isinstance(target, Horizon) else WordVectors(target)
