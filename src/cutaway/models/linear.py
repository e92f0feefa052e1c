"""One affine map: linear, logistic and softmax regression.

After T. Hastie, R. Tibshirani, J. Friedman, The elements of statistical learning, 2nd edition, 2009, sections 3.2
and 4.4. <https://hastie.su.domains/ElemStatLearn/>

    linear      ŷ = w·x + b                          least squares
    logistic    P(class 1 | x) = σ(w·x + b)          binary cross-entropy
    softmax     P(class k | x) = softmax(W x + b)_k  cross-entropy

Shapes: x (N, F), images and series flattened, to the raw z = W x + b: (N, 1) for linear and logistic, (N, classes)
for softmax. σ and softmax are in the losses; `probabilities` applies them.

All three losses are convex, so training finds the global solution from any initialization.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from torch import Tensor, nn

from ..core.errors import ModelError, check_value
from ..core.spec import ImageSpec, SeriesSpec, Spec, TableSpec, Value
from ..nn.activations import sigmoid, softmax
from .base import BaseModel, Dense
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, positive

_CLASSES = {"identity": (1, 1), "sigmoid": (2, 2), "softmax": (2, math.inf)}  # fewest and most


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the map."""

    output: str = choice("identity", _CLASSES)  # activation: identity (number), sigmoid (2 classes), softmax
    in_features: int = positive(10)  # number of features of an example
    num_classes: int = positive(1)  # number of classes of softmax; identity has 1, sigmoid 2

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = _CLASSES[self.output]
        allowed = f"{low} with output={self.output}" if low == high else f"at least {low}"
        check_value(low <= self.num_classes <= high, "num_classes", self.num_classes, allowed)

    @property
    def shares_output(self) -> bool:
        """Return whether two classes have one output, as num_classes=1 gives other models."""
        return self.output == "sigmoid"

    @classmethod
    def for_spec(cls, preset: Config, spec: Spec) -> Config:
        """Return the preset with the features and classes of `spec`.

        Raises ModelError if the target does not fit `output`; the message names a model that does.
        """
        target, classes = spec.target, spec.target.outputs
        if isinstance(target, Value) and preset.output != "identity":
            name = "logistic" if preset.output == "sigmoid" else "softmax"
            raise ModelError(f"{name} tells classes apart, and {target.column} is a number: take linear or mlp.")
        if not isinstance(target, Value) and preset.output == "identity":
            take = "logistic" if classes == 2 else "softmax"
            raise ModelError(f"linear predicts a number, and {target.column} is one of {classes} classes: take {take}.")
        if preset.output == "sigmoid" and classes != 2:
            raise ModelError(f"logistic tells two classes apart, and {target.column} has {classes}: take softmax.")
        return dataclasses.replace(preset, in_features=math.prod(spec.shape), num_classes=classes)


class Linear(BaseModel):
    """(N, ...) examples to z = W x + b, (N, 1) or (N, classes)."""

    takes = (TableSpec, ImageSpec, SeriesSpec)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.head = nn.Linear(config.in_features, config.num_classes if config.output == "softmax" else 1)

    def dense_layers(self) -> list[Dense]:
        """Return the one map."""
        return [Dense("head", "head")]

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the map: (N, F)."""
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return z, before the sigmoid or softmax."""
        z: Tensor = self.head(self.features(x))
        return z

    def predict(self, x: Tensor) -> Tensor:
        """Return the prediction of z: the value (N, 1), P(class 1) (N, 1), or P(class) (N, classes)."""
        z = self.forward(x)
        return {"identity": z, "sigmoid": sigmoid(z), "softmax": softmax(z)}[self.config.output]


Model = Linear

# The sizes are those of diabetes, breast_cancer and MNIST-1D; a data set sets its own.
PRESETS = {
    "linear": Config(),
    "logistic": Config(output="sigmoid", in_features=30, num_classes=2),
    "softmax": Config(output="softmax", in_features=40, num_classes=10),
}

_SETTINGS = {"optimizer": "adamw", "lr": 1e-2, "weight_decay": 0.0, "epochs": 100, "batch_size": 64}

CARD = Card(
    title="The elements of statistical learning",
    authors="T. Hastie, R. Tibshirani, J. Friedman",
    year=2009,
    link="https://hastie.su.domains/ElemStatLearn/",
    family="dense",
    equation="z = W x + b; ŷ = z, σ(z) or softmax(z)",
    oracle="scikit-learn's LinearRegression and LogisticRegression",
    published={"softmax": Published(410, 400, (40,), "greydanus/mnist1d, its logistic model")},
    divergences=(
        Divergence(
            "penalty",
            paper="none, or ridge",
            here="none unless weight_decay is set",
            common="scikit-learn's LogisticRegression has an L2 penalty by default",
        ),
        Divergence(
            "rows of softmax",
            paper="K − 1, the last class fixed at 0",
            here="K, one more than necessary: adding a vector to each changes nothing; weight decay makes them sum to "
            "0",
            common="K in scikit-learn too",
        ),
    ),
    results={
        "softmax": (Result("MNIST-1D", {"accuracy": 32.0}, "test set", "greydanus/mnist1d"),),
    },
    settings={"linear": _SETTINGS, "logistic": _SETTINGS, "softmax": _SETTINGS},
)
