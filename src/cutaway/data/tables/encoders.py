"""Encoders of single columns as network inputs, fitted on the training rows and saved as JSON.

A column of numbers (or yes/no) gives (v − mean) / scale, or its quantile among the training values on a normal curve. A
date gives its standardised day, and sine and cosine of its position in the year, the week and the day. A category gives
one input per training value. If training had missing cells, they have an additional indicator input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.errors import shorten
from ...core.schema import NUMBER, Tagged, dataclass_schema, from_document
from .column_types import ColumnType, Numbers, decode, natural_order

Inputs = npt.NDArray[np.float32]
Curve = tuple[tuple[float, float], ...]  # points (training quantile, standard normal quantile)

QUANTILES = 1000  # points of the curve that `scale=quantile` maps through
MOST_CATEGORIES = 100  # inputs of one column; rarer values share one
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # in days


@dataclass(frozen=True)
class Numeric:
    """A column of numbers, yes/no or dates."""

    name: str
    kind: str  # number, yes/no or date
    written: str  # of a date its format, of a yes/no its words
    fill: float  # the training median, for missing cells
    missing: bool  # whether missing cells have an indicator input
    mean: float
    scale: float
    curve: Curve = ()  # if not empty, used instead of mean and scale
    cycles: tuple[str, ...] = ()  # of a date: its cyclic features, keys of CYCLES

    @classmethod
    def of(
        cls,
        name: str,
        type: ColumnType,
        fill: float,
        missing: bool,
        mean: float,
        scale: float,
        curve: Curve,
        fractions: bool,
    ) -> Numeric:
        """Build the encoder of a column of this type.

        `fractions` tells whether some of its numbers (for dates, days) are not whole.
        """
        cycles = ("year", "week", *(("day",) if fractions else ())) if type.kind == "date" else ()
        return cls(name, type.kind, type.written, fill, missing, mean, scale, curve, cycles)

    @property
    def type(self) -> ColumnType:
        """The column's type, as `columns` reads it."""
        return ColumnType(self.kind, self.written)

    @property
    def features(self) -> tuple[str, ...]:
        """A name for each of the F inputs."""
        days = f"{self.name} (days)" if self.kind == "date" else self.name
        circles = [f"{self.name} ({wave} of {cycle})" for cycle in self.cycles for wave in ("sin", "cos")]
        return (days, *circles, *([f"{self.name} missing"] if self.missing else []))

    def encode(self, cells: pl.Series) -> Inputs:
        """Return (n, F) inputs. A missing or unreadable cell is replaced by the training median, with all cycles 0."""
        values = decode(cells, self.type)
        gaps = np.isnan(values)
        columns = [self._scaled(np.where(gaps, self.fill, values))]
        for cycle in self.cycles:
            angle = 2 * np.pi * values / CYCLES[cycle]
            columns += [np.where(gaps, 0.0, np.sin(angle)), np.where(gaps, 0.0, np.cos(angle))]
        if self.missing:
            columns.append(gaps.astype(np.float64))
        with np.errstate(over="ignore"):  # the preprocessing rejects infinite values by column name
            return np.stack(columns, axis=1).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    def _scaled(self, values: Numbers) -> Numbers:
        if self.curve:
            quantiles, places = np.array(self.curve).T
            return np.asarray(np.interp(values, quantiles, places))
        return (values - self.mean) / self.scale


@dataclass(frozen=True)
class Category:
    """A column of categories: one input each, one for missing cells, and one for all other values."""

    name: str
    categories: tuple[str, ...]  # the most frequent in training, in natural order
    missing: bool  # whether missing cells have an input of their own
    rare: int  # number of training values without an input
    kind: str = "category"

    @property
    def type(self) -> ColumnType:
        """The column's type, as `columns` reads it."""
        return ColumnType(self.kind)

    @property
    def features(self) -> tuple[str, ...]:
        """A name for each of the F inputs; the last is for unknown values."""
        slots = (*self.categories, *(["(missing)"] if self.missing else []), "(unknown)")
        return tuple(f"{self.name}={slot}" for slot in slots)

    def encode(self, cells: pl.Series) -> Inputs:
        """Return (n, F) inputs, with a single 1 in each row."""
        width = len(self.features)
        hot = np.zeros((len(cells), width), np.float32)
        hot[np.arange(len(cells)), self._slots(cells)] = 1
        return hot

    def unknown(self, cells: pl.Series) -> int:
        """Return the number of cells that are encoded as unknown."""
        return int((self._slots(cells) == len(self.features) - 1).sum())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    def _slots(self, cells: pl.Series) -> npt.NDArray[np.int64]:
        """Return the index of the input (n,) that each cell sets."""
        known = cells.cast(pl.Enum(self.categories), strict=False)  # null for other values
        unknown = len(self.features) - 1
        gap = len(self.categories) if self.missing else unknown
        codes = known.to_physical().cast(pl.Int64).fill_null(unknown).to_numpy()
        return np.where(cells.is_null().to_numpy(), gap, codes)


Encoder = Numeric | Category


def fit_encoder(name: str, type: ColumnType, cells: pl.Series, scale: str) -> Encoder | None:
    """Return the encoder of one column, fitted on its training cells; None if no cell can be read.

    `scale` is standard, quantile or none.
    """
    if type.kind == "category":
        return _fit_category(name, cells) if cells.count() else None
    values = decode(cells, type)
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    mean, std = 0.0, 1.0
    curve: Curve = ()
    if scale == "standard":
        mean, std = mean_and_std(known)
    elif scale == "quantile":
        curve = _normal_curve(known)
    fill, missing = float(np.median(known)), len(known) < len(values)
    return Numeric.of(name, type, fill, missing, mean, std, curve, bool((known % 1).any()))


def mean_and_std(values: Numbers) -> tuple[float, float]:
    """Return mean and standard deviation of finite values; the latter is 1 if all are equal up to rounding."""
    return standard_scale(float(values.mean()), float(values.std()))


def standard_scale(mean: float, std: float) -> tuple[float, float]:
    """Return the shift and scale that standardise a column, from its mean and standard deviation."""
    return mean, std if std > 1e-12 * abs(mean) else 1.0


NUMERIC = dataclass_schema(Numeric, curve=[[NUMBER]], cycles=[str])
ENCODERS = Tagged(
    "kind", {"category": dataclass_schema(Category), **dict.fromkeys(("number", "yes/no", "date"), NUMERIC)}
)


def encoder_from_json(data: Mapping[str, Any]) -> Encoder:
    """Restore the encoder that `to_json` wrote. Raises ValueError if the document is inconsistent."""
    if data["kind"] == "category":
        return from_document(Category, data)
    found = from_document(Numeric, data)
    if any(len(point) != 2 for point in found.curve) or not set(found.cycles) <= set(CYCLES):
        raise ValueError(f"the column {shorten(found.name)} has a curve or cycles that are none")
    if not found.scale > 0:
        raise ValueError(f"the column {shorten(found.name)} has a scale of {found.scale:g}")
    return found


def _fit_category(name: str, cells: pl.Series) -> Category:
    counts = cells.drop_nulls().alias("value").value_counts(name="count")
    return most_frequent(name, counts, cells.null_count() > 0)


def most_frequent(name: str, counts: pl.DataFrame, missing: bool) -> Category:
    """Return the encoder of a column from the counts of its cells, by `value` and `count`."""
    kept = counts.sort(["count", "value"], descending=[True, False])["value"].head(MOST_CATEGORIES)
    return Category(name, tuple(natural_order(kept)), missing, counts.height - len(kept))


def _normal_curve(values: Numbers) -> Curve:
    """Return the curve through up to 1000 quantiles of the values, rising in both; it is clipped beyond its ends.

    Equal quantiles share the middle of their fractions, so that a frequent value maps to one point.
    """
    count = min(QUANTILES, len(values))
    fractions = (np.arange(count) + 0.5) / count
    return quantile_curve(np.quantile(values, fractions, method="hazen"), fractions)


def quantile_curve(quantiles: Numbers, fractions: Numbers) -> Curve:
    """Return the curve through these quantiles, several of which may be equal."""
    quantiles, group = np.unique(quantiles, return_inverse=True)
    middle = np.bincount(group, weights=fractions) / np.bincount(group)
    return tuple((float(q), NormalDist().inv_cdf(p)) for q, p in zip(quantiles, middle))
