"""Preprocessing of whole series, fitted on the training split and saved as JSON with the model.

x = (s − mean) / std,  s the T steps of F variables; mean and standard deviation for each variable
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...core import spec as specs
from ...core.errors import DataError, Problem
from ...core.files import read_bytes
from ...core.schema import NUMBER
from ...core.spec import Classes, SeriesSpec, Views
from ..dataset_base import TensorSplit
from .contrastive_augmentation import SeriesViews


@dataclass(frozen=True)
class SeriesPreprocessing:
    """Preprocessing of a series to a tensor (T, F)."""

    spec: SeriesSpec
    mean: tuple[float, ...]  # per variable, over all steps of the training series
    std: tuple[float, ...]

    SCHEMA: ClassVar[Mapping[str, Any]] = {"spec": specs.SCHEMA, "mean": [NUMBER], "std": [NUMBER]}

    @classmethod
    def fitted(cls, spec: SeriesSpec, series: npt.NDArray[np.float64]) -> SeriesPreprocessing:
        """Fit the preprocessing on training series (n, T, F)."""
        std = series.std((0, 1))
        return cls(spec, tuple(series.mean((0, 1)).tolist()), tuple(np.where(std > 0, std, 1.0).tolist()))

    def prepare(self, series: npt.NDArray[np.float64]) -> Tensor:
        """Standardise series (n, T, F) with training statistics, as float32 of the same shape."""
        return torch.from_numpy((series - np.array(self.mean)) / np.array(self.std)).float()

    def views(self) -> SeriesViews:
        """Return the augmentation that makes two views of each series."""
        return SeriesViews()

    def examples(self, sources: Sequence[Any]) -> TensorSplit:
        """Build a split of series without targets: arrays (T,) or (T, F), or text files with one series per line.

        A line holds T·F numbers, step after step, separated by commas or blanks. Raises DataError that names each line
        or array with another length or non-finite values.
        """
        rows: list[tuple[str, Any]] = []
        for number, source in enumerate(sources):
            is_file = isinstance(source, str | Path)
            rows += _lines(Path(source)) if is_file else [(f"series {number}", np.asarray(source).ravel())]
        return TensorSplit(self._read(rows), None, [name for name, _ in rows])

    def labelled(self, source: str | Path) -> TensorSplit:
        """Load series with targets from a text file with the class first in each line, as in the UCR archive.

        Raises DataError as `examples` does, and for a class that is not in training.
        """
        assert isinstance(self.spec.target, Classes | Views), "what is learned of whole series"
        classes = self.spec.target.names
        rows = _lines(Path(source))
        problems = [
            Problem(name, f"{words[0]!r} is none of the classes {', '.join(classes)}")
            for name, words in rows
            if words[0] not in classes
        ]
        if problems:
            raise DataError(f"{source} has series of unknown classes:", problems, "The class stands first on its line.")
        inputs = self._read([(name, words[1:]) for name, words in rows])
        target = torch.tensor([classes.index(words[0]) for _, words in rows])
        return TensorSplit(inputs, target, [name for name, _ in rows])

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return {
            "kind": "series",
            "form": "signal",
            "spec": specs.to_json(self.spec),
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SeriesPreprocessing:
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        spec = specs.read_spec(data["spec"], SeriesSpec)
        return cls(spec, *specs.validate_scales(data["mean"], data["std"], spec.features))

    def _read(self, rows: Sequence[tuple[str, Any]]) -> Tensor:
        """Parse and standardise named rows of T·F numbers: (n, T, F)."""
        steps, features = self.spec.shape
        series: list[npt.NDArray[np.float64]] = []
        problems: list[Problem] = []
        for name, values in rows:
            try:
                numbers = np.array(values, dtype=np.float64)
            except ValueError as error:
                problems.append(Problem(name, str(error)))
                continue
            if numbers.size != steps * features:
                what = f"it has {numbers.size} numbers, and the model takes {steps} steps of {features}"
                problems.append(Problem(name, what))
            elif not np.isfinite(numbers).all():
                problems.append(Problem(name, "it has numbers that are not finite"))
            else:
                series.append(numbers.reshape(steps, features))
        if problems or not series:
            raise DataError("Series that cannot be read:" if problems else "No series was given.", problems)
        return self.prepare(np.stack(series))


def _lines(path: Path) -> list[tuple[str, list[str]]]:
    """Return the non-empty lines of a text file as words, each with its name."""
    try:
        lines = read_bytes(path).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} could not be read as text: {error}.") from error
    words = [(f"{path}, line {n}", line.replace(",", " ").split()) for n, line in enumerate(lines, 1)]
    return [(name, values) for name, values in words if values]
