"""Built-in forecasting series: hourly electricity transformers, monthly air passengers and sunspots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...core.errors import DataError
from ..dataset_base import DataSet
from ..series.dataset import series_dataset
from ..settings import DataSettings
from ..tables.table_files import read_table
from .catalog import NamedSet, Request, remote_files
from .published import published_source

_HOURS = 30 * 24  # a month of the Informer paper
ETT_BORDERS = (12 * _HOURS, 16 * _HOURS, 20 * _HOURS)  # 8 640, 11 520, 14 400
AIRLINE_BORDERS = (96, 120, 144)  # the last two years are the test, the two before them validation
_BROWNLEE = "https://raw.githubusercontent.com/jbrownlee/Datasets/d20fcb6402ae34e653d4513b00f39257bb37ed7f/"


def open_series_file(
    request: Request,
    own: Mapping[str, Any],
    borders: Sequence[int] | None = None,
    notes: Sequence[str] = (),
) -> DataSet:
    """Load a series from one CSV file. `own` are its defaults for settings that the user did not change."""
    (file,) = request.named.needed
    plain = DataSettings()
    given = request.settings
    taken = {key: value for key, value in own.items() if getattr(given, key) == getattr(plain, key)}
    table = read_table(request.place / file)
    if borders is not None and len(table) < borders[-1]:
        raise DataError(
            f"{request.place / file} has {len(table):,} rows, and {borders[-1]:,} are needed.",
            fix="It was cut short or changed: take it from its source again.",
        )
    return series_dataset(table, published_source(request, notes), replace(given, **taken), borders)


NAMED: dict[str, NamedSet] = {
    "ett": NamedSet(
        title="ETTh1: oil temperature of an electricity transformer by the hour",
        kind="series",
        task="forecasting",
        sizes="17 420 hours of 7 variables; 14 400 of them in the fixed split of 12, 4 and 4 months",
        licence="CC BY-ND 4.0",
        citation="H. Zhou et al., Informer: beyond efficient transformer for long sequence time-series forecasting, "
        "AAAI 2021",
        target="OT",
        folder="ett",
        files=remote_files(
            "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/1d16c8f4f943005d613b5bc962e9eeb06058cf07/ETT-small/",
            ("ETTh1.csv", 2_589_657, "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066"),
        ),
    ),
    "airline": NamedSet(
        title="Airline passengers by the month, 1949 to 1960",
        kind="series",
        task="forecasting",
        sizes="144 months; the last two years are the test split, the two before validation",
        licence="none stated where it is fetched from",
        citation="G. E. P. Box, G. M. Jenkins, G. C. Reinsel, Time series analysis: forecasting and control",
        target="Passengers",
        folder="timeseries",
        files=remote_files(
            _BROWNLEE,
            ("airline-passengers.csv", 2_180, "8cb51be753a718d9be5d76d7e238cc224792754676adc21faa59e954b0201621"),
        ),
    ),
    "sunspots": NamedSet(
        title="Sunspots by the month, 1749 to 1983",
        kind="series",
        task="forecasting",
        sizes="2 820 months",
        licence="none stated where it is fetched from",
        citation="SIDC, World Data Center for the Sunspot Index, Royal Observatory of Belgium",
        target="Sunspots",
        folder="timeseries",
        files=remote_files(
            _BROWNLEE,
            ("monthly-sunspots.csv", 45_039, "c4ec8cc57d9f6fb6ecdb3e1f37f25b6f4badd5124c55931052b0cd2fc3bc71f3"),
        ),
    ),
    "temperatures": NamedSet(
        title="Lowest temperature of the day in Melbourne, 1981 to 1990",
        kind="series",
        task="forecasting",
        sizes="3 650 days, and 2 that are missing",
        licence="none stated where it is fetched from",
        citation="Australian Bureau of Meteorology",
        target="Temp",
        folder="timeseries",
        files=remote_files(
            _BROWNLEE,
            ("daily-min-temperatures.csv", 67_921, "8b9de63ed6789492bf497625e7f9beb96a63d367b4b0a21754006f749fa5e5da"),
        ),
    ),
}

OPENERS: dict[str, Callable[[Request], DataSet]] = {
    "ett": partial(
        open_series_file,
        own={"forecast": ("OT",), "horizon": 24},
        borders=ETT_BORDERS,
        notes=[
            "The split is that of the Informer paper: 12 months of 30 days for training, 4 for validation, 4 for the "
            "test; val= and test= change nothing, and the 3,020 hours after it are not used."
        ],
    ),
    "airline": partial(
        open_series_file,
        own={"forecast": ("Passengers",), "horizon": 12, "lookback": 24},
        borders=AIRLINE_BORDERS,
        notes=[
            "The split is fixed: the last two years are the test split, the two before them validation; val= and test= "
            "change nothing."
        ],
    ),
    "sunspots": partial(
        open_series_file,
        own={"forecast": ("Sunspots",), "horizon": 12, "season_length": 1},
        notes=["Sunspots know no calendar, and their cycle of about 11 years has no fixed length: no season is taken."],
    ),
    "temperatures": partial(
        open_series_file,
        own={"forecast": ("Temp",), "horizon": 7, "season_length": 1, "gaps": "fill"},
        notes=["The last days of 1984 and 1988, leap years, are missing: gaps=fill is this set's own setting."],
    ),
}
