"""Two features of a table as a plane, or one as a line: axes in the data's units, and the inputs of each point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ..core.errors import SettingError, UnknownName
from ..data.dataset_base import Split
from ..data.tables.column_types import Category, Encoder, Numeric, format_cell
from ..data.tables.transforms import TablePreprocessing
from ..draw.number_format import number
from .subject import Subject

MARGIN = 0.08  # margin of the plane, as a fraction of the points' range
POINTS = 200  # most points of each split
MAX_TRAINING = 1000  # training examples that the constants are computed from


SplitPoints = dict[str, tuple[Tensor, Tensor | None]]  # split → coordinates (n, 2) in the data's units, targets (n,)


@dataclass(frozen=True)
class Feature:
    """One axis: a column of the data, or one input of the model."""

    name: str
    place: int  # index of the first of its inputs
    encoder: Numeric | None  # None: the input without scaling

    def inputs(self, values: Tensor) -> Tensor:
        """Return values (n,) in the data's units as model inputs."""
        if self.encoder is None:
            return values
        cells = pl.Series(values.double().tolist(), dtype=pl.Float64)
        return torch.from_numpy(self.encoder.encode(cells)[:, 0].copy()).to(values)

    def values(self, inputs: Tensor) -> Tensor:
        """Return model inputs (n,) in the data's units."""
        if self.encoder is None:
            return inputs
        return torch.from_numpy(_unscaled(self.encoder, inputs.double().numpy())).to(inputs)


@dataclass(frozen=True)
class Plane:
    """A plane on which the model is evaluated, with all inputs but two held constant."""

    axes: tuple[Feature, Feature]
    base: Tensor  # (F,) constant values of the inputs
    held: tuple[str, ...]  # the other columns, each with its value in words
    bounds: tuple[tuple[float, float], tuple[float, float]]  # bounds of x and y
    points: SplitPoints

    def grid(self, size: int) -> Tensor:
        """Return inputs (size², F) at the centres of size × size cells, row by row from the largest y."""
        centres = (torch.arange(size, dtype=torch.float64) + 0.5) / size
        x, y = (low + centres * (high - low) for low, high in self.bounds)
        inputs = self.base.repeat(size, size, 1)  # (size, size, F)
        inputs[:, :, self.axes[0].place] = self.axes[0].inputs(x).to(inputs)
        inputs[:, :, self.axes[1].place] = self.axes[1].inputs(y.flip(0)).to(inputs)[:, None]
        return inputs.flatten(0, 1)


@dataclass(frozen=True)
class Line:
    """A line on which the model is evaluated, with all inputs but one held constant."""

    axis: Feature
    base: Tensor  # (F,) constant values of the inputs
    held: tuple[str, ...]  # the other columns, each with its value in words
    bounds: tuple[float, float]
    points: SplitPoints  # split → coordinates (n, 1), targets (n,)

    def grid(self, size: int) -> tuple[Tensor, Tensor]:
        """Return evenly spaced values (size,) in the data's units, and the inputs (size, F) there."""
        x = torch.linspace(*self.bounds, size, dtype=torch.float64)
        inputs = self.base.repeat(size, 1)
        inputs[:, self.axis.place] = self.axis.inputs(x).to(inputs)
        return x, inputs


def features(subject: Subject) -> list[Feature]:
    """Return the features that can be an axis: numeric columns, or all inputs without a table's preprocessing."""
    given = subject.preprocessing
    if isinstance(given, TablePreprocessing):
        return [
            Feature(e.name, place, e) for place, e in _places(given) if isinstance(e, Numeric) and e.kind == "number"
        ]
    return [Feature(f"x{i + 1}", i, None) for i in range(subject.inputs[0].shape[1])]


def plane(subject: Subject) -> Plane:
    """Return the plane of the two features of `features=A,B`, by default the first two."""
    axes = _selected_axes(features(subject), subject.options)
    training, shown = _load_points(subject, axes)
    base, held = _constants(subject, training, {f.place for f in axes})
    everywhere = torch.cat([at for at, _ in shown.values()]).double()
    low, high = everywhere.amin(0), everywhere.amax(0)
    beyond = MARGIN * (high - low).where(high > low, torch.ones(2, dtype=torch.float64))
    bounds = tuple(zip((low - beyond).tolist(), (high + beyond).tolist(), strict=True))
    return Plane(axes, base, held, (bounds[0], bounds[1]), shown)


def line(subject: Subject) -> Line:
    """Return the line of the feature of `feature=A`, by default the first, over the range of the examples."""
    by_name = {f.name: f for f in features(subject)}
    name = subject.options.get("feature") or next(iter(by_name))
    if name not in by_name:
        raise UnknownName("column of numbers", name, by_name)
    axis = by_name[name]
    training, shown = _load_points(subject, (axis,))
    base, held = _constants(subject, training, {axis.place})
    everywhere = torch.cat([at for at, _ in shown.values()]).double()
    low, high = float(everywhere.min()), float(everywhere.max())
    return Line(axis, base, held, (low, high) if high > low else (low - 1, high + 1), shown)


def _load_points(subject: Subject, axes: tuple[Feature, ...]) -> tuple[Tensor, SplitPoints]:
    """Return the inputs that the constants are computed from, (n, F), and the examples to show."""
    parts = subject.data.splits if subject.data is not None else {}
    if not parts:
        target = subject.target if subject.task is not None else None
        return subject.inputs[0], {"examples": (_coordinates(subject.inputs[0], axes), target)}
    training = _inputs(parts.get("train", next(iter(parts.values()))), MAX_TRAINING)
    return training, {name: _split_points(parts[name], axes) for name in ("train", "test") if name in parts}


def _selected_axes(known: list[Feature], options: Mapping[str, str]) -> tuple[Feature, Feature]:
    by_name = {f.name: f for f in known}
    names = [name.strip() for name in options.get("features", "").split(",") if name.strip()]
    for name in names:
        if name not in by_name:
            raise UnknownName("column of numbers", name, by_name)
    if names and (len(names) != 2 or names[0] == names[1]):
        raise SettingError(f"Invalid features={options['features']}: must be two columns, e.g. features=age,income.")
    first, second = (by_name[name] for name in names) if names else known[:2]
    return first, second


def _places(given: TablePreprocessing) -> list[tuple[int, Encoder]]:
    """Return each column's encoder with the index of its first input."""
    found, place = [], 0
    for encoder in given.encoders:
        found.append((place, encoder))
        place += len(encoder.features)
    return found


def _constants(subject: Subject, training: Tensor, free: set[int]) -> tuple[Tensor, tuple[str, ...]]:
    """Return the constant inputs and their names with values: means of numbers, most frequent values of categories."""
    base = training.mean(0)
    given = subject.preprocessing
    if not isinstance(given, TablePreprocessing):
        words = [f"x{i + 1} = {number(v)}" for i, v in enumerate(base.tolist()) if i not in free]
        return base, tuple(words)
    said = []
    for place, encoder in _places(given):
        block = slice(place, place + len(encoder.features))
        if isinstance(encoder, Category):
            commonest = int(training[:, block].sum(0).argmax())
            base[block] = 0
            base[place + commonest] = 1
            said.append(f"{encoder.features[commonest]}")
            continue
        if encoder.missing:
            base[block.stop - 1] = 0
        if encoder.kind == "yes/no" and place not in free:  # a mean between yes and no has no meaning
            base[place] = training[:, place].median()
        if place not in free:
            value = float(_unscaled(encoder, np.array([float(base[place])]))[0])
            said.append(f"{encoder.name} = {_cell(encoder, value)}")
    return base, tuple(said)


def _cell(encoder: Numeric, value: float) -> str:
    """Return a value as text: a number, a date, or one of two words."""
    return number(value) if encoder.kind == "number" else format_cell(round(value), encoder.type)


def _unscaled(encoder: Numeric, inputs: np.ndarray) -> np.ndarray:
    """Return inputs (n,) in the units of the column."""
    if encoder.curve:
        quantiles, places = np.array(encoder.curve).T
        return np.asarray(np.interp(inputs, places, quantiles))
    return np.asarray(inputs * encoder.scale + encoder.mean)


def _inputs(split: Split, most: int) -> Tensor:
    """Return the inputs of the split's first examples, (n, F)."""
    return next(iter(split.batches([torch.arange(min(most, len(split)))]))).inputs[0]


def _split_points(split: Split, axes: tuple[Feature, ...]) -> tuple[Tensor, Tensor | None]:
    inputs = _inputs(split, POINTS)
    return _coordinates(inputs, axes), None if split.target is None else split.target[: len(inputs)]


def _coordinates(inputs: Tensor, axes: tuple[Feature, ...]) -> Tensor:
    """Return the coordinates of inputs (n, F) in the data's units, (n, 2) or (n, 1)."""
    return torch.stack([f.values(inputs[:, f.place].double()) for f in axes], 1)
