"""Arguments and output of commands that compress a run: RUN OUT key=value, and a comparison of the two models."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import SettingError
from .arguments import parse_words

if TYPE_CHECKING:
    from ...deploy.compression import ModelMeasurement
    from ...runs.run import Run


def add_run_and_out(parser: argparse.ArgumentParser) -> None:
    """Add the positional arguments and --json."""
    parser.add_argument("words", nargs="*", metavar="RUN OUT [key=value ...]", help="a run, the new run, settings")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def parse_run_args(example: str, words: Sequence[str]) -> tuple[str, str, dict[str, Any]]:
    """Return the run, the new folder and the settings. Raises SettingError, with an `example`, if one of the first two
    is missing."""
    names, given = parse_words(words, names=2)
    if len(names) < 2:
        raise SettingError(f"Missing run or new folder: {example}.")
    return names[0], names[1], given


def measure_runs(runs: Sequence[Run]) -> list[ModelMeasurement]:
    """Measure score, size and time of runs. Returns an empty list, with a note, if their data is missing or has no
    labels."""
    from ...core.errors import DataError
    from ...deploy.compression import compare_runs
    from .output import note

    try:
        return compare_runs(runs)
    except DataError as error:
        note(f"note: score and time are not measured. {error}")
        return []


def measurements_to_json(both: Sequence[ModelMeasurement]) -> dict[str, Any]:
    """Return the measurements before and after as a JSON document, with null if there are none."""
    return {name: both[i].to_json() if both else None for i, name in enumerate(("before", "after"))}


def print_comparison(
    models: Sequence[ModelMeasurement], more: Mapping[str, Callable[[ModelMeasurement], str]] | None = None
) -> None:
    """Print score and cost of each model, one row each; `more` holds extra columns after the score."""
    from ...core.memory_budget import format_bytes
    from ...core.metric_names import metric
    from .output import print_table
    from .train import format_metric

    watch, more = models[0].metric, more or {}
    sizes = [f"batch {size}" for size in models[0].milliseconds]
    titles = ("", metric(watch)[0], *more, "file", *sizes)
    rows = [
        (
            m.run,
            format_metric(watch, m.score.value),
            *(cell(m) for cell in more.values()),
            format_bytes(m.bytes),
            *(f"{ms:.2f} ms" for ms in m.milliseconds.values()),
        )
        for m in models
    ]
    print_table(titles, rows, right=titles[1:])
