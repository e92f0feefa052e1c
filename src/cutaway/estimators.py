"""Neural networks as scikit-learn estimators, for pipelines, grid searches and cross-validation.

    from cutaway.estimators import Classifier

    Classifier("mlp", epochs=20, lr=1e-2, model__hidden_dims=(64, 64)).fit(X, y).score(X_test, y_test)

The training settings of `cutaway train`, except `alpha`, and many of its data settings are parameters. None means the
default of the model's card. Model settings are written `model__KEY`, as scikit-learn writes nested parameters.
`random_state` is the seed. `fit` trains on all rows by default; `val=0.15` holds some out to choose the best epoch.
Training writes to a temporary folder, which is deleted when `fit` returns, unless `out` names a run folder to keep.
Nothing is printed unless `verbose` is set.

X may be an array (n, F), in which NaN is a missing value; a data frame, whose columns may be categories and dates;
images (n, C, H, W), series (n, T, F), or texts.
"""

from __future__ import annotations

import copy
import inspect
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

from .core.errors import NotEnoughDataError, PythonDataError, UnknownName
from .core.spec import TableSpec, Value
from .data.in_memory.container import as_frame
from .data.in_memory.dataset import prepare_inputs
from .data.in_memory.source import InMemorySource
from .data.settings import DataSettings
from .data.tables.column_types import strip_missing
from .reports.run_report import write_layers_and_report
from .runs.train import train_model
from .tasks.task import task_for
from .training.callbacks import Progress
from .training.config import TrainSettings
from .training.device import select_device
from .training.evaluation import evaluate_split, evaluation_batch_size

MODEL_PREFIX = "model__"
DATA_SETTINGS = (
    "val", "scale", "max_samples", "image_size", "resize", "color", "flip", "crop", "color_jitter", "cutout", "mixup",
    "tokenizer", "vocab_size", "min_count", "lower", "length",
)  # fmt: skip
# `seed` is called random_state here. RMSprop's `alpha` is left out, since in scikit-learn it is a penalty.
SETTINGS = (*(f.name for f in fields(TrainSettings) if f.name not in ("seed", "alpha")), *DATA_SETTINGS)
LARGEST_SEED = 2**31 - 1


class Estimator(BaseEstimator):  # type: ignore[misc]  # of scikit-learn, which has no types
    """Base class of `Classifier` and `Regressor`.

    Args:
        model: Name of a preset, or a torch.nn.Module, which is copied. Default: "mlp".
        out: Folder of the run to keep. Default: none; training writes to a temporary folder.
        random_state: Seed: an integer, a numpy.random.RandomState, or None for 0.
        verbose: Whether to show progress. Default: False.
        callbacks: List of `cutaway.Callback` objects. Default: none.
        **settings: Settings in the signature, as for `cutaway train`, and model settings as `model__KEY`. None is the
            default of the model's card, or else that of `cutaway train`, but 0 for `val`.

    Attributes:
        network_: The trained torch.nn.Module.
        preprocessing_: The fitted preprocessing, which maps rows to tensors.
        task_: The task, as in `cutaway.tasks.task`.
        notes_: Notes about the data, one sentence each.
        n_features_in_: Number of columns of X.
        feature_names_in_: Names of the columns of X, if it was a data frame.
        folder_: Folder of the run, if `out` is set.

    Example:
        >>> classifier = Classifier("mlp", epochs=3, model__hidden_dims=(16,))
        >>> isinstance(classifier, Estimator), classifier.get_params()["model__hidden_dims"]
        (True, (16,))
    """

    target_type: ClassVar[str]
    task_: Any

    def __init__(self, model: Any = "mlp", **settings: Any) -> None:
        own = inspect.signature(type(self).__init__).parameters
        for key, value in {**{key: p.default for key, p in own.items() if key != "self"}, "model": model}.items():
            setattr(self, key, value)
        self.set_params(**settings)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters by name, including model settings as `model__KEY`.

        Args:
            deep: Has no effect, because no parameter is an estimator.
        """
        own = {key: value for key, value in vars(self).items() if key.startswith(MODEL_PREFIX)}
        return {**super().get_params(deep=False), **own}

    def set_params(self, **params: Any) -> Estimator:
        """Set parameters of the estimator.

        Args:
            **params: Parameters by name, as in the constructor.

        Returns:
            The estimator itself.

        Raises:
            UnknownName: If a parameter does not exist. The message lists similar names. Model settings, `model__KEY`,
                are checked by `fit`.
        """
        known = self._get_param_names()
        for key, value in params.items():
            if key not in known and not (key.startswith(MODEL_PREFIX) and key != MODEL_PREFIX):
                raise UnknownName(
                    f"parameter of {type(self).__name__} named", key, known, "A model's own are written model__KEY."
                )
            setattr(self, key, value)
        return self

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Estimator:
        """Train the model on all rows of X; with the parameter `val`, on those that are not held out for validation.

        Args:
            X: Examples: numbers (n, F), series (n, T, F) or images (n, C, H, W) in an array, a data frame, or texts.
            y: Targets, shape (n,): numbers for a regressor, classes of any type for a classifier.
            sample_weight: Weights of the examples in the loss, shape (n,), at least 0. A weight of 2 has the effect of
                the same row twice, and 0 that of no row. Columns and targets are standardized with the weights. By
                default, all are 1.

        Returns:
            The estimator itself.

        Raises:
            DataError: If the data cannot be used. It is also a ValueError.
            ValueError: If scikit-learn rejects X or y: strings in an array of numbers, or infinity.
            SettingError: If a parameter is invalid. It is also a ValueError.
            UnknownName: If the model or one of its settings does not exist.
            ModelError: If the model does not accept such data. It is also a ValueError.
        """
        X = self._validated(X, y)
        weights = None
        if sample_weight is not None:
            X, y, weights = _weighted(X, y, sample_weight)
        target = self._targets(y)
        asked = {key: getattr(self, key) for key in SETTINGS}
        settings = {key: value for key, value in asked.items() if value is not None}
        settings |= {
            f"model.{k.removeprefix(MODEL_PREFIX)}": v for k, v in vars(self).items() if k.startswith(MODEL_PREFIX)
        }
        settings = {"val": 0.0, "test": 0.0, "tensorboard": False, **settings, "seed": self._seed()}
        name = _free_name(X)
        if isinstance(X, pl.DataFrame) or (isinstance(X, np.ndarray) and X.ndim == 2):
            settings["types"] = (f"{name}:{self.target_type}", *_number_columns(X))
        given = InMemorySource((X, target.alias(name)), weights=weights)
        with tempfile.TemporaryDirectory(prefix="cutaway-") as temporary:
            folder = Path(temporary) / "run" if self.out is None else Path(self.out)
            model = self.model if isinstance(self.model, str) else copy.deepcopy(self.model)
            bar, kept = Progress(shown=bool(self.verbose)), self.out is not None
            run = train_model(
                model,
                given,
                settings,
                out=folder,
                progress=bar,
                overwrite=True,
                judged=kept,
                callbacks=self.callbacks or (),
            )
            self.network_, self.preprocessing_ = run.model, run.preprocessing
            self.notes_, self._loss = list(run.about["data"]["notes"]), run.about["loss"]
            if kept:
                write_layers_and_report(run)
                self.folder_ = run.folder
        self.task_ = task_for(self.preprocessing_.spec, self._loss)
        return self

    def _outputs(self, X: Any) -> torch.Tensor:
        """Return the network's outputs for new rows, (n, …).

        Tables are computed in double precision, so that the outputs of a row do not depend on the other rows.
        """
        check_is_fitted(self)
        X = self._validated(X)
        spec = self.preprocessing_.spec
        split = self.preprocessing_.examples(prepare_inputs(X, self.preprocessing_))
        precise = isinstance(spec, TableSpec)
        network = copy.deepcopy(self.network_).double() if precise else self.network_
        place = select_device(self.device or "auto", "float64" if precise else "float32", self.channels_last, network)
        network = place.model(network, learns=False)
        return evaluate_split(network, split, place, evaluation_batch_size(None, spec), self.task_).outputs

    def _validated(self, X: Any, *y: Any) -> Any:
        """Return X as scikit-learn validates it: an array of numbers, or a data frame or texts unchanged."""
        first = bool(y)
        frame = as_frame(X)
        if frame is not None:
            validate_data(self, X, reset=first, skip_check_array=True)
            return frame
        if _are_texts(X):
            return list(X)
        return validate_data(
            self, X, reset=first, dtype="numeric", allow_nd=True, ensure_all_finite="allow-nan",
            ensure_min_samples=2 if first else 1,
        )  # fmt: skip

    def _targets(self, y: Any) -> pl.Series:
        raise NotImplementedError

    def _seed(self) -> int:
        """Return `random_state` as a seed: an integer unchanged, a number drawn from a generator, or 0 for None."""
        state = self.random_state
        if state is None or isinstance(state, int | np.integer):
            return int(state or 0)
        return int(check_random_state(state).randint(LARGEST_SEED))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags


class Classifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """A neural network classifier: `Classifier("mlp", epochs=20).fit(X, y)`.

    `score(X, y)` returns the accuracy.

    Args:
        model: Name of a preset, or a torch.nn.Module, which is copied. Default: "mlp".
        **settings: All other parameters, as for `Estimator`.

    Attributes:
        classes_: The classes, sorted, shape (K,). For the other attributes see `Estimator`.
    """

    target_type = "category"

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """Return the predicted class of each example, shape (n,), one of `classes_`.

        Args:
            X: Examples, in the same form as for `fit`.

        Raises:
            NotFittedError: If the classifier is not fitted.
            ValueError: If X has another number of columns than in training, or cannot be read.
        """
        outputs = self._outputs(X)
        decided = self.task_.decide(outputs).numpy()
        classes: np.ndarray[Any, Any] = self.classes_[self._order[decided]]
        return classes

    def _has_probabilities(self) -> bool:
        """Return whether the model computes probabilities: not for the loss of the perceptron or squared error."""
        return not hasattr(self, "task_") or self.task_.loss_name in ("cross_entropy", "map")

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray[Any, Any]:
        """Return the probability of each class for each example, shape (n, K), in the order of `classes_`.

        A classifier that was trained with a perceptron loss or a squared error does not have this method.

        Args:
            X: Examples, in the same form as for `fit`.

        Raises:
            NotFittedError: If the classifier is not fitted.
            ValueError: If X has another number of columns than in training, or cannot be read.
        """
        outputs = self._outputs(X)
        found: np.ndarray[Any, Any] = np.empty((len(outputs), len(self.classes_)))
        found[:, self._order] = self.task_.probabilities(outputs).numpy()
        return found

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Classifier:
        """Train the model on all rows of X; with the parameter `val`, on those that are not held out for validation.

        Args:
            X: Examples: numbers (n, F), series (n, T, F) or images (n, C, H, W) in an array, a data frame, or texts.
            y: Classes of any type, shape (n,): at least two different ones.
            sample_weight: Weights of the examples, shape (n,), as for `Estimator.fit`. By default, all are 1.

        Returns:
            The classifier itself.

        Raises:
            NotEnoughDataError: If y has only one class. It is also a ValueError.
            CutawayError: As for `Estimator.fit`.
            ValueError: If scikit-learn rejects X or y: strings in an array of numbers, infinity, or y of real numbers.
        """
        super().fit(X, y, sample_weight)
        learned = {name: k for k, name in enumerate(self.preprocessing_.spec.target.classes)}
        self._order = np.array([self._names.index(name) for name in learned])  # of the network's classes, in classes_
        return self

    def _targets(self, y: Any) -> pl.Series:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise NotEnoughDataError(f"y holds one class, {self.classes_[:1].tolist()[0]!r}: at least two are needed.")
        self._names = _class_names(self.classes_)
        return pl.Series([self._names[k] for k in numbers], dtype=pl.String)


class Regressor(RegressorMixin, Estimator):  # type: ignore[misc]
    """A neural network regressor: `Regressor("mlp", epochs=20).fit(X, y)`.

    `score(X, y)` returns R².

    Args:
        model: Name of a preset, or a torch.nn.Module, which is copied. Default: "mlp".
        **settings: All other parameters, as for `Estimator`, whose attributes it has.
    """

    target_type = "number"

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """Return the predicted value of each example, shape (n,), in the units of y.

        Args:
            X: Examples, in the same form as for `fit`.

        Raises:
            NotFittedError: If the regressor is not fitted.
            ValueError: If X has another number of columns than in training, or cannot be read.
        """
        outputs, target = self._outputs(X), self.preprocessing_.spec.target
        assert isinstance(target, Value)
        values: np.ndarray[Any, Any] = outputs.double().flatten().numpy() * target.scale + target.mean
        return values

    def _targets(self, y: Any) -> pl.Series:
        y = np.asarray(column_or_1d(y, warn=True))
        if y.dtype.kind not in "iufb":
            y = y.astype(np.float64)
        if not np.isfinite(y).all():
            raise PythonDataError(
                f"Input y contains {'NaN' if np.isnan(y).any() else 'infinity'}: each row has a number."
            )
        return pl.Series(y.astype(np.float64))


def _weighted(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, np.ndarray[Any, Any]]:
    """Return the rows, targets and weights without those of weight 0."""
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    y, kept = column_or_1d(y, warn=True), np.flatnonzero(weights)
    if len(kept) == len(weights):
        return X, y, weights
    rows = [X[k] for k in kept] if isinstance(X, list) else X[kept]
    return rows, y[kept], weights[kept]


def _class_names(classes: np.ndarray[Any, Any]) -> list[str]:
    """Return the names of the classes in reports: the classes as strings if these are distinct, else their indices."""
    names = [str(name) for name in classes.tolist()]
    read = strip_missing(pl.Series(names)).to_list()
    return names if read == names and len(set(names)) == len(names) else [str(k) for k in range(len(names))]


def _number_columns(X: Any) -> list[str]:
    """Return the `types` setting that declares all columns of an array as numbers."""
    return [] if isinstance(X, pl.DataFrame) else [f"x{k}:number" for k in range(X.shape[1])]


def _free_name(X: Any) -> str:
    """Return a name for the target that no column of X has."""
    name = "target"
    while isinstance(X, pl.DataFrame) and name in X.columns:
        name += "_"
    return name


def _are_texts(X: Any) -> bool:
    """Return whether X is a list or an array (n,) of texts."""
    if isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.kind in "OUT":
        return bool(len(X)) and all(isinstance(text, str) for text in X)
    return isinstance(X, list | tuple) and bool(X) and all(isinstance(text, str) for text in X)


def _signature() -> inspect.Signature:
    """Return the signature that scikit-learn and `help` read: every setting is a parameter with default None."""
    kind = inspect.Parameter.KEYWORD_ONLY
    own: Mapping[str, Any] = {
        "out": None,
        "random_state": None,
        "verbose": False,
        "callbacks": None,
        **dict.fromkeys(SETTINGS),
    }
    return inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD, default="mlp"),
            *(inspect.Parameter(key, kind, default=default) for key, default in own.items()),
        ]
    )


_initialize: Callable[..., None] = Estimator.__init__
_initialize.__signature__ = _signature()  # type: ignore[attr-defined]
assert set(SETTINGS) <= {f.name for group in (TrainSettings, DataSettings) for f in fields(group)}
