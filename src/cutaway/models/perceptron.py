"""Rosenblatt's perceptron: one layer of threshold neurons, trained by the perceptron rule.

F. Rosenblatt, The perceptron: a probabilistic model for information storage and organization in the brain,
Psychological Review 65(6), 1958. <https://doi.org/10.1037/h0042519>

    y = step(w·x + b)            at a mistake:  w ← w + (t − y) x,  b ← b + (t − y)

If a hyperplane separates the classes, the rule finds one after a finite number of mistakes, at most (R/γ)² for examples
of length at most R and a margin γ (A. Novikoff, 1962). If none does, the rule never converges: XOR is the smallest such
case.

Shapes: x (N, F), images and series flattened, to scores w·x + b: (N, 1) for two classes, (N, classes) for more, one
neuron for each class against the rest.

The rule is stochastic gradient descent with a rate of 1 and one example a step, on the criterion max(0, −y (w·x + b))
with y = ±1 (`losses.perceptron`). The card's settings implement exactly this.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from torch import Tensor, nn

from ..core.errors import ModelError
from ..core.spec import ImageSpec, SeriesSpec, Spec, TableSpec, Value
from ..nn.activations import step
from .base import BaseModel, Dense
from .card import Card, Divergence
from .config import ValidatedConfig, min_value, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(4)  # number of features of an example
    num_classes: int = min_value(2, 2)  # two classes share one neuron; with more, each has its own

    @property
    def shares_output(self) -> bool:
        """Return whether two classes have one output, as num_classes=1 gives other models."""
        return True

    @classmethod
    def for_spec(cls, preset: Config, spec: Spec) -> Config:
        """Return the preset with the numbers and classes of `spec`. Raises ModelError if the target is a number."""
        if isinstance(spec.target, Value):
            raise ModelError(
                f"perceptron tells classes apart, and {spec.target.column} is a number: take linear or mlp."
            )
        return dataclasses.replace(preset, in_features=math.prod(spec.shape), num_classes=spec.target.outputs)


class Perceptron(BaseModel):
    """(N, ...) examples to scores, (N, 1) for two classes or (N, classes). Weights are initialized with zero."""

    takes = (TableSpec, ImageSpec, SeriesSpec)
    loss = "perceptron"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.head = nn.Linear(config.in_features, 1 if config.num_classes == 2 else config.num_classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def dense_layers(self) -> list[Dense]:
        """Return the one map."""
        return [Dense("head", "head")]

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the neurons: (N, F)."""
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores before the threshold."""
        scores: Tensor = self.head(self.features(x))
        return scores

    def fires(self, x: Tensor) -> Tensor:
        """Return the outputs of the neurons, 1 or 0, in the shape of the scores.

        With two classes 1 is the second one.
        """
        return step(self.forward(x))


Model = Perceptron

PRESETS = {"perceptron": Config()}

CARD = Card(
    title="The perceptron: a probabilistic model for information storage and organization in the brain",
    authors="F. Rosenblatt",
    year=1958,
    link="https://doi.org/10.1037/h0042519",
    family="dense",
    equation="y = step(w·x + b); at a mistake w ← w + (t − y) x, b ← b + (t − y)",
    oracle="scikit-learn's Perceptron",
    published={},
    divergences=(
        Divergence(
            "learning rule",
            paper="connections that were active gain value when a response is reinforced",
            here="only mistakes are corrected, as in his Principles of neurodynamics of 1962",
            common="the same as here",
        ),
        Divergence(
            "inputs",
            paper="association units, each wired at random to points of a retina",
            here="the features of the example",
        ),
        Divergence(
            "a score of exactly 0",
            paper="a neuron fires above its threshold",
            here="the same; in training 0 is a mistake for either class, so that zero weights change",
            common="the same in scikit-learn",
        ),
        Divergence(
            "more than two classes",
            paper="exclusive responses, each inhibiting the inputs of the others",
            here="one neuron for each class against the rest; the largest score is the answer",
            common="the same in scikit-learn",
        ),
    ),
    settings={
        "perceptron": {
            "optimizer": "sgd",
            "lr": 1.0,
            "batch_size": 1,
            "schedule": "constant",
            "weight_decay": 0.0,
            "epochs": 50,
        }
    },
)
