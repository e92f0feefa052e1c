"""Column types and encoders: missing cells, the type of a column, and the conversion of its cells to numbers.

Types are inferred from the cells of the training rows. `number`, `yes/no`, `date` and `category` become inputs;
`empty`, `constant`, `id` and `text` columns hold no usable input and are left out.

Encoders of single columns as network inputs, fitted on the training rows and saved as JSON.

A column of numbers (or yes/no) gives (v − mean) / scale, or its quantile among the training values on a normal curve. A
date gives its standardised day, and sine and cosine of its position in the year, the week and the day. A category gives
one input per training value. If training had missing cells, they have an additional indicator input.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.errors import SettingError, shorten, shorten_repr
from ...core.schema import NUMBER, Tagged, dataclass_schema, from_document

Numbers = npt.NDArray[np.float64]

MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-", "nat", "<na>")  # in any case of letters
MOSTLY = 0.9  # from this fraction on a column is of a type, and its other cells are mistakes
FEW = 20  # up to this many distinct strings are categories, even with few rows
LARGEST = float(np.finfo(np.float32).max)

TYPES = ("number", "category", "date", "yes/no")  # what `types=` can ask for
LEFT_OUT = {
    "empty": "every cell is missing",
    "constant": "it is the same in every row",
    "id": "every cell differs, like a key",
    "text": "nearly every cell differs, like free text",
}
YES_NO = (("yes", "no"), ("y", "n"), ("true", "false"), ("t", "f"), ("on", "off"))

# How dates are written (in the notation of strftime), each with an example; of two that fit, the first is taken.
DATES = {
    "%Y-%m-%d": "2020-12-31",
    "%Y-%m-%d %H:%M:%S%.f": "2020-12-31 18:30:00",
    "%Y-%m-%dT%H:%M:%S%.f": "2020-12-31T18:30:00",
    "%Y-%m-%d %H:%M": "2020-12-31 18:30",
    "%Y-%m-%dT%H:%M": "2020-12-31T18:30",
    "%+": "2020-12-31T18:30:00Z",
    "%Y/%m/%d": "2020/12/31",
    "%d.%m.%Y": "31.12.2020",
    "%d.%m.%Y %H:%M": "31.12.2020 18:30",
    "%m/%d/%Y": "12/31/2020",
    "%m/%d/%Y %H:%M": "12/31/2020 18:30",
    "%d/%m/%Y": "31/12/2020",
    "%d/%m/%Y %H:%M": "31/12/2020 18:30",
    "%d-%m-%Y": "31-12-2020",
    "%d %B %Y": "31 Dec 2020",
    "%d-%B-%Y": "31-Dec-2020",
    "%B %d, %Y": "Dec 31, 2020",
    "%B %d %Y": "Dec 31 2020",
}
COMPACT = {"%Y%m%d": "20201231"}  # eight digits, which are a number to most readers
WRITTEN_DATES = {**DATES, **COMPACT}
MICROSECONDS_A_DAY = 86_400_000_000
FIRST_YEAR = -354_285 * MICROSECONDS_A_DAY  # that is a year of four digits, 1000
COMPACT_DATE = r"^(?:18|19|20)\d{6}(?:\.0)?$"  # a data frame writes whole numbers beside missing ones as 20201231.0
SERIAL_DATES = (20_000, 80_000)  # days since 1899-12-30, as spreadsheets count them: 1954 to 2119
SERIAL_NAME = re.compile(r"(?i)(?:^|[_\s-])(?:date|day|datum|dob|time|timestamp|datetime)(?:[_\s-]|$)|date$")
PADDED = 0.01  # from this fraction of digits with leading zeros on, a column holds codes
LONG = 0.5  # likewise of digits that are more than a number of 64 bits keeps

KEY_NAME = re.compile(r"(?i:^(id|index|key|uuid|guid|rowid|row|unnamed: 0)$|[_\s-](id|key)$)|[a-z]I[dD]$")
# Numbers as spreadsheets show them, which are not numbers to a reader of CSV: 1,234.5  1 234  3,5  $12  40 %
SHOWN_NUMBER = r"^[-+]?[$€£¥]?\s?(\d{1,3}(?:[,.'’\s]\d{3})+(?:[.,]\d+)?|\d+,\d+|\d+(?:\.\d+)?)\s?[%$€£¥]?$"


@dataclass(frozen=True)
class ColumnType:
    """The type of a column, and how its cells are written."""

    kind: str  # one of TYPES or of LEFT_OUT
    written: str = ""  # of a date its format; of a yes/no its two words, as yes/no
    doubt: str = ""  # a note for the user on an uncertain choice

    @property
    def learned(self) -> bool:
        """True if the column becomes an input."""
        return self.kind not in LEFT_OUT

    @property
    def ordered(self) -> bool:
        """True if the cells have an order and a range."""
        return self.kind in ("number", "date")


def strip_missing(cells: pl.Series, missing: Sequence[str] = MISSING) -> pl.Series:
    """Strip the cells, and return null for those that are one of the lower-case words `missing`.

    A word that is a number, such as -999, also matches the same number in other digits, such as -999.0, and in columns
    of numbers.
    """
    if isinstance(cells.dtype, pl.Enum):  # few values, already stripped
        values = pl.Series(cells.dtype.categories)
        gone = values.filter(strip_missing(values, missing).is_null())
        return cells.set(cells.is_in(gone.to_list()).fill_null(False), None) if len(gone) else cells
    if cells.dtype.is_numeric():
        numbers = _missing_numbers(missing)
        return cells.set(cells.is_in(numbers).fill_null(False), None) if numbers else cells
    if cells.dtype != pl.String:
        return cells
    return cells.to_frame().select(strip_missing_expr(pl.all(), missing)).to_series()


def _missing_numbers(missing: Sequence[str]) -> list[float]:
    """Return the words for a missing cell that are finite numbers."""
    found = pl.Series(list(missing), dtype=pl.String).cast(pl.Float64, strict=False).drop_nulls()
    return found.filter(found.is_finite()).to_list()


def strip_missing_expr(cells: pl.Expr, missing: Sequence[str] = MISSING) -> pl.Expr:
    """Return the expression of `strip_missing` for any text columns."""
    stripped = cells.str.strip_chars()
    present = ~stripped.str.to_lowercase().is_in(missing)
    if numbers := _missing_numbers(missing):
        present &= ~stripped.cast(pl.Float64, strict=False).is_in(numbers).fill_null(False)
    return pl.when(present).then(stripped)


def infer_type(name: str, cells: pl.Series, rows: int) -> ColumnType:
    """Infer the type of the column `name` from `cells`, its stripped training cells, in a file of `rows` rows."""
    present = cells.drop_nulls()
    if present.is_empty():
        return ColumnType("empty")
    different = present.n_unique()
    if different == 1:
        return ColumnType("category" if cells.null_count() else "constant")  # presence may be informative
    numbers = present.cast(pl.Float64, strict=False).drop_nulls().to_numpy()
    if len(numbers) >= MOSTLY * len(present):
        if (date := _compact_date(name, present)) is not None:
            return date
        codes, doubt = find_codes(name, present)
        if not codes:
            keys = _numbers_are_keys(name, numbers, len(present), rows)
            return ColumnType("id") if keys else ColumnType("number", doubt=doubt or _serial_dates(name, numbers))
        kind = "id" if different == len(present) else "text" if different > max(FEW, len(present) / 2) else "category"
        return ColumnType(kind, doubt=doubt)
    if (words := find_yes_no(present)) is not None:
        return words
    if (date := _date(present)) is not None:
        return date
    if present.str.contains(SHOWN_NUMBER).sum() >= MOSTLY * len(present):
        return ColumnType("number")  # even if none can be read: treating them as categories would hide the mistake
    if different == len(present) and not present.str.contains(r"\s").any():
        return ColumnType("id")
    if different == len(present) or different > max(FEW, len(present) / 2):
        return ColumnType("text")
    return ColumnType("category")


def find_codes(name: str, present: pl.Series) -> tuple[bool, str]:
    """Return whether cells of digits are codes, not numbers, and a note on it.

    Digits are codes where a number does not give them back: 02139, or 18 digits where a float keeps 15.
    """
    if present.dtype != pl.String:
        return False, ""
    padded = present.str.contains(r"^0\d+$")
    if padded.any():
        cells = present.filter(padded)
        if len(cells) >= PADDED * len(present):
            return (
                True,
                (
                    f"cells such as {cells[0]} begin with zeros, which a number would lose, and are read as codes; "
                    f"types={name}:number reads numbers"
                ),
            )
        return (
            False,
            (
                f"{len(cells):,} of {len(present):,} cells begin with zeros ({shorten_repr(cells[0])}) and are read as"
                f" numbers; types={name}:category keeps the zeros"
            ),
        )
    long = present.filter(present.str.contains(r"^[-+]?\d{16,}$"))
    exact = long.cast(pl.Int64, strict=False)
    lost = long.filter((exact.cast(pl.Float64).cast(pl.Int64, strict=False) != exact).fill_null(True))
    if len(long) and len(lost) >= LONG * len(present):
        return (
            True,
            (
                f"cells such as {lost[0]} have more digits than a number keeps, and are read as codes; "
                f"types={name}:number reads numbers"
            ),
        )
    return False, ""


def requested_type(name: str, kind: str, cells: pl.Series) -> ColumnType:
    """Return the type requested by `types=name:kind`. Raises SettingError if the cells cannot be read as that type."""
    present = cells.drop_nulls()
    if present.is_empty() or (present.n_unique() == 1 and not cells.null_count()):
        return ColumnType("constant" if len(present) else "empty")
    if kind == "yes/no":
        found = find_yes_no(present, (*YES_NO, ("1", "0")))
    elif kind == "date":
        found = _date(present) or _compact_date(name, present)
    else:
        found = ColumnType(kind)
    if found is None:
        known = ", ".join(WRITTEN_DATES.values()) if kind == "date" else ", ".join(map("/".join, YES_NO)) + ", 1/0"
        raise SettingError(
            f"Invalid types={name}:{kind}: its cells, such as {present[0]!r}, are not written like {known}."
        )
    return found


def decode(cells: pl.Series, type: ColumnType) -> Numbers:
    """Return the cells as numbers (n,), NaN where a cell is missing or cannot be read as that type.

    Dates count in days since 1970, yes is 1 and no is 0.
    """
    if type.kind == "date":
        return to_moments(cells, type.written).cast(pl.Float64).to_numpy() / MICROSECONDS_A_DAY
    if type.kind == "yes/no":
        yes, no = type.written.split("/")
        words = cells.str.to_lowercase()
        return words.replace_strict({yes: 1.0, no: 0.0}, default=None, return_dtype=pl.Float64).to_numpy()
    plain = cells.cast(pl.String) if isinstance(cells.dtype, pl.Enum) else cells
    values = plain.cast(pl.Float64, strict=False).to_numpy()
    return np.where(np.abs(values) <= LARGEST, values, np.nan)


def to_moments(cells: pl.Series, written: str) -> pl.Series:
    """Return the microseconds (n,) since 1970 of dates in a format of `WRITTEN_DATES`, null where a cell is none."""
    if written in COMPACT:
        cells = cells.set(~cells.str.contains(COMPACT_DATE), None).str.slice(0, 8)
    moments = cells.str.to_datetime(written, time_unit="us", strict=False).cast(pl.Int64)
    return moments.set(moments < FIRST_YEAR, None)  # Nov 2016 would be the 20th of November of the year 16


def format_cell(value: float, type: ColumnType) -> str:
    """Format a number that `decode` could have returned as a user would write the cell."""
    if type.kind == "date":
        return str(np.datetime64(round(value * 86_400), "s")).removesuffix("T00:00:00")
    if type.kind == "yes/no":
        yes, no = type.written.split("/")
        return yes if value >= 0.5 else no
    return f"{value:.6g}"


def unreadable_mask(cells: pl.Series, type: ColumnType) -> npt.NDArray[np.bool_]:
    """Return a mask (n,) of cells that are present but not of their column's type. Any cell can be a category."""
    if type.kind == "category":
        return np.zeros(len(cells), bool)
    bad: npt.NDArray[np.bool_] = np.isnan(decode(cells, type)) & cells.is_not_null().to_numpy()
    return bad


def explain_unreadable(cell: str, type: ColumnType) -> str:
    """Return the reason why a cell is unreadable as that type."""
    if type.kind == "date":
        return f"{shorten_repr(cell)} is not a date written like {WRITTEN_DATES[type.written]}"
    if type.kind == "yes/no":
        return f"{shorten_repr(cell)} is neither of {type.written}"
    with contextlib.suppress(ValueError):
        if not abs(float(cell)) <= LARGEST:
            return f"{shorten_repr(cell)} is infinite, or beyond ±{LARGEST:.1e}"
    if re.search(r"[%$€£¥]", cell):
        return f"{shorten_repr(cell)} is a number with a unit: write the digits alone"
    if re.fullmatch(r"[-+]?\d+,\d+", cell) and not re.fullmatch(r"[-+]?\d{1,3},\d{3}", cell):
        return (
            f"{shorten_repr(cell)} has a decimal comma: write {cell.replace(',', '.')}, or say decimal=, where all"
            " have one"
        )
    if re.match(SHOWN_NUMBER, cell):
        return f"{shorten_repr(cell)} has thousands separators: write digits alone, and a point before decimals"
    return f"{shorten_repr(cell)} is not a number"


def natural_order(names: Iterable[str]) -> list[str]:
    """Sort names naturally: numbers by value (2 before 10), others alphabetically, with embedded numbers by value."""
    names = list(names)
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names, key=lambda name: (_split_digits(name.casefold()), name))


def _split_digits(name: str) -> list[tuple[str, int]]:
    """Split a name into text and numbers: 'row 12b' becomes [('row ', 12), ('b', -1)]."""
    return [(letters, int(digits or -1)) for letters, digits in re.findall(r"([^0-9]*)([0-9]*)", name)]


def _numbers_are_keys(name: str, numbers: Numbers, cells: int, rows: int) -> bool:
    """Return whether all are different whole numbers that count the rows of the file, or are named like keys."""
    if not (numbers == np.floor(numbers)).all() or len(np.unique(numbers)) < cells:
        return False
    counts_rows = rows > FEW and numbers.min() >= 0 and numbers.max() <= rows
    return bool(counts_rows) or KEY_NAME.search(name) is not None


def find_yes_no(present: pl.Series, known: tuple[tuple[str, str], ...] = YES_NO) -> ColumnType | None:
    """Return the type of cells that consist of two opposite words; None for others."""
    words = set(present.str.to_lowercase().unique()) if present.n_unique() <= FEW else set()
    return next((ColumnType("yes/no", f"{yes}/{no}") for yes, no in known if words == {yes, no}), None)


def _date(present: pl.Series) -> ColumnType | None:
    """Return the date type of cells that are mostly dates of one format; None for others."""
    if present.str.contains(r"\d{4}").sum() < MOSTLY * len(present):  # cheap, and rules out most columns
        return None
    likely = [written for written in DATES if _fits(present.head(1000), written)]
    fits = {written: _fits(present, written) for written in likely}
    best = max(fits, key=lambda written: fits[written], default="")  # of equals the first
    if not best or fits[best] < MOSTLY * len(present):
        return None
    swapped = best.replace("%m/%d", "%d/%m")
    if swapped == best or fits.get(swapped) != fits[best]:
        return ColumnType("date", best)
    doubt = (
        f"its dates are read as month/day/year, and {present[0]} could be day/month/year: write 2020-12-31 to be sure"
    )
    return ColumnType("date", best, doubt)


def _compact_date(name: str, present: pl.Series) -> ColumnType | None:
    """Return the type of cells that are mostly dates of eight digits, 20201231; other numbers rarely are by chance."""
    cells = present if present.dtype == pl.String else present.cast(pl.Int64, strict=False).cast(pl.String)
    (written,) = COMPACT
    days = to_moments(cells, written)
    if days.count() < MOSTLY * len(present):
        return None
    i = int(days.is_not_null().arg_max() or 0)
    day = format_cell(days[i] / MICROSECONDS_A_DAY, ColumnType("date", written))
    return ColumnType(
        "date", written, f"{cells[i].removesuffix('.0')} is read as the date {day}; types={name}:number reads a number"
    )


def _serial_dates(name: str, numbers: Numbers) -> str:
    """Return a note on numbers that may be the serial dates of a spreadsheet."""
    low, high = SERIAL_DATES
    if not SERIAL_NAME.search(name) or ((numbers >= low) & (numbers <= high)).mean() < MOSTLY:
        return ""
    first = numbers[(numbers >= low) & (numbers <= high)][0]
    day = np.datetime64("1899-12-30") + int(first)
    return (
        f"{first:.10g} may be a date as spreadsheets count days ({day}), and is read as a number; for dates, format "
        "the column as 2020-12-31 in the spreadsheet and save it again"
    )


def _fits(cells: pl.Series, written: str) -> int:
    """Return the number of cells that are dates in this format."""
    return cells.str.to_datetime(written, time_unit="us", strict=False).count()


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
        """The column's type, as `infer_type` returns it."""
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
        """The column's type, as `infer_type` returns it."""
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


def fit_encoder(
    name: str, type: ColumnType, cells: pl.Series, scale: str, weights: Numbers | None = None
) -> Encoder | None:
    """Return the encoder of one column, fitted on its training cells; None if no cell can be read.

    `scale` is standard, quantile or none. `weights` (n,) weigh the cells in mean, deviation and median.
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
        mean, std = mean_and_std(known, None if weights is None else weights[~np.isnan(values)])
    elif scale == "quantile":
        curve = _normal_curve(known)
    fill = float(np.median(known)) if weights is None else _weighted_median(known, weights[~np.isnan(values)])
    missing = len(known) < len(values)
    return Numeric.of(name, type, fill, missing, mean, std, curve, bool((known % 1).any()))


def _weighted_median(values: Numbers, weights: Numbers) -> float:
    """Return the median of values of which each occurs as often as its weight says."""
    order = np.argsort(values)
    values, below = values[order], np.cumsum(weights[order])
    half = below[-1] / 2
    at = int(np.searchsorted(below, half * (1 - 1e-12)))
    exact = at + 1 < len(values) and abs(below[at] - half) <= 1e-12 * half
    return float((values[at] + values[at + 1]) / 2 if exact else values[at])


def mean_and_std(values: Numbers, weights: Numbers | None = None) -> tuple[float, float]:
    """Return mean and standard deviation of finite values; the latter is 1 if all are equal up to rounding."""
    if weights is not None:
        mean = float(np.average(values, weights=weights))
        return standard_scale(mean, float(np.sqrt(np.average((values - mean) ** 2, weights=weights))))
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
    if (found.kind == "yes/no" and not is_yes_no(found.written)) or (
        found.kind == "date" and found.written not in WRITTEN_DATES
    ):
        raise ValueError(f"the column {shorten(found.name)} has cells written as {shorten(found.written)!r}")
    return found


def is_yes_no(written: str) -> bool:
    """Return whether these are the two words of a yes/no column, as yes/no."""
    return written.count("/") == 1


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
