"""cutaway search: hyperparameter and architecture search."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ...core.errors import SettingError, shorten
from .arguments import add_output_options, add_positionals, parse_args
from .settings_help import training_settings
from .train import format_metric

if TYPE_CHECKING:
    from ...experiments.experiment import Row
    from ...experiments.search.result import Search

SUMMARY = "hyperparameter and architecture search by validation score"
SHOWN = 10  # trials in the table

EXAMPLES = """\
examples:
  cutaway search mlp houses.csv target=price lr=1e-4..1e-1:log trials=40
  cutaway search mlp digits 'model.hidden_dims=32|64,64' optimizer=adam,nesterov
  cutaway search resnet20 photos/ model.width=8..32 max_macs=20e6 sampler=nsga2
  cutaway search cellnet-small digits model.arch=cells sampler=evolution
  cutaway search --resume runs/search-mlp-digits-1 trials=80

A searched setting is a range, low..high or low..high:log, or a choice, A,B;
for settings that are lists, 64|64,64. All other settings are fixed, as in
`cutaway train`. Trials are compared on the validation split. The best one is
trained again as a run in DIR/best, and only that run is tested. Several
processes can search in one folder: run the same command with the same --out,
or --resume DIR.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = (
        "cutaway search MODEL DATA KEY=LOW..HIGH ... [key=value ...]\n"
        "                      [--out DIR] [--open] [--json]\n"
        "       cutaway search --resume DIR [trials=N] [--open] [--json]"
    )
    add_positionals(parser)
    add_output_options(
        parser,
        "folder of the search",
        "search-MODEL-DATA",
        ("DIR", "resume or join a search"),
    )
    parser.epilog = EXAMPLES


def settings() -> tuple[type, ...]:
    """Return the groups of settings that the command takes."""
    from ...experiments.settings import SearchSettings

    return SearchSettings, *training_settings()


def run(args: argparse.Namespace) -> int:
    """Run the search, then print its results and its folder."""
    from ...api import search
    from .output import emit_json, open_page

    _reject_repeated_settings(args.words)
    model, data, given = parse_args(args.words, options=("out", "resume", "open", "json"))
    found = search(model, data, out=args.out, resume=args.resume, **given)
    if args.open:
        open_page(found.report)
    if args.json:
        emit_json(summary(found))
        return 0
    _print(found)
    return 0


def _reject_repeated_settings(words: list[str]) -> None:
    """Raise SettingError for a setting that is typed twice with different values."""
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or word.startswith("@"):
            continue
        if key in values and values[key] != value:
            both = f"{key}={shorten(values[key])} and {key}={shorten(value)}"
            raise SettingError(f"{key} is given twice, {both}: a setting is either searched or fixed. Leave one out.")
        values[key] = value


def summary(found: Search) -> dict[str, Any]:
    """Return the result of a search as one JSON document."""
    from ...training.run_folder import read_evaluation

    best = found.folder / "best"
    evaluation = read_evaluation(best) if (best / "evaluation.json").is_file() else None
    return {
        "search": str(found.folder),
        "report": str(found.report),
        "metric": found.metric,
        "best": found.best,
        "front": found.front,
        "trials": found.trials,
        "importance": found.importances(),
        "run": str(best) if evaluation else None,
        "test": evaluation["metrics"] if evaluation else None,
    }


def _print(found: Search) -> None:
    """Print the best trials as a table, and the best run."""
    from rich.markup import escape
    from rich.table import Table

    from ...core.metric_names import metric
    from ...draw.number_format import plural
    from .output import console
    from .train import result_lines

    out, name = console(), found.metric
    rows = rank_trials(found)
    states = [row["state"] for row in found.trials]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    out.print(f"{plural(len(states), 'trial')}: {counted}. Best trials, on the validation split:")
    keys = list(found.about["space"])
    front = {row["trial"] for row in found.front}
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("trial", justify="right")
    table.add_column(metric(name)[0], justify="right")
    table.add_column("MACs", justify="right")
    for key in keys:
        table.add_column(key.removeprefix("model."), overflow="fold")
    for row in rows[:SHOWN]:
        mark = "*" if row["trial"] in front else ""
        macs = "" if row["macs"] is None else f"{row['macs']:,}{mark}"
        cells = [escape(_format_value(row[key])) for key in keys]
        table.add_row(str(row["trial"]), format_metric(name, row[name]), macs, *cells)
    out.print(table)
    if front:
        out.print("* on the Pareto front of metric and MACs", markup=False)
    if (found.folder / "best" / "evaluation.json").is_file():
        out.print()
        for line in result_lines(found.run):
            out.print(line)
    out.print(f"search  {escape(str(found.report))}")


def rank_trials(found: Search) -> list[Row]:
    """Return the finished trials, best first."""
    sign = -1 if found.higher_is_better else 1
    return sorted(found.finished, key=lambda row: (sign * row[found.metric], row["macs"] or 0, row["trial"]))


def _format_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
