"""Commands that train many models: a comparison with significance tests, and a search for hyperparameters."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, cast

from ...core.errors import IncompatibleSettingError, shorten
from .arguments import add_output_options, add_positionals, parse_args
from .settings_help import training_settings
from .train import format_metric

if TYPE_CHECKING:
    from ...experiments.compare.result import Comparison
    from ...experiments.experiment import Row
    from ...experiments.search.result import Search

COMPARE_EXAMPLES = """\
examples:
  cutaway compare mlp,linear houses.csv target=price
  cutaway compare resnet20,vit-tiny/16 photos/ minutes=5 seeds=5
  cutaway compare mlp,softmax wine,iris,titanic epochs=30
  cutaway compare mlp,softmax wine trials=20
  cutaway compare --resume runs/compare-mlp-softmax-wine-1 seeds=10

All models get the same split, the same preprocessing and the same budget:
epochs, max_steps, minutes, or macs (multiply-adds). Baseline models of
scikit-learn are included. Differences are paired over test examples and seeds,
and tested with a correction for the number of pairs. Each training is a run in
the folder of the comparison. Settings of `cutaway train` apply to all models.
"""


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = (
        "cutaway compare MODEL,MODEL,... DATA[,DATA...] [key=value ...]\n"
        "                       [--out DIR] [--open] [--json]\n"
        "       cutaway compare --resume DIR [seeds=N] [--open] [--json]"
    )
    add_positionals(parser, "MODEL,...", "presets, data, settings")
    add_output_options(
        parser,
        "the comparison's folder",
        "compare-MODELS-DATA",
        ("DIR", "resume a comparison; finished trainings are kept"),
    )
    parser.epilog = COMPARE_EXAMPLES


def compare_settings() -> tuple[type, ...]:
    """Return the groups of settings that the command takes."""
    from ...experiments.settings import CompareSettings

    return CompareSettings, *training_settings()


def run_compare(args: argparse.Namespace) -> int:
    """Run the comparison, then print its results and its folder."""
    from rich.markup import escape

    from ...api import compare
    from .output import console, emit_json, open_page

    models, data, given = parse_args(args.words, options=("out", "resume", "open", "json"))
    found = compare(models or "", data or "", out=args.out, resume=args.resume, **given)
    if args.open:
        open_page(found.report)
    if args.json:
        emit_json({"comparison": str(found.folder), "report": str(found.report), **found.about, "ranks": _ranks(found)})
        return 0
    for result in found.results:
        _print_comparison(found, result)
    if found.ranks:
        _print_ranks(found)
    console().print(f"page  {escape(str(found.report))}")
    return 0


def _ranks(found: Comparison) -> dict[str, Any]:
    return {name: vars(rank) for name, rank in found.ranks.items()}


def _print_comparison(found: Comparison, result: dict[str, Any]) -> None:
    """Print the models of one data set, best first, and their significant differences."""
    from rich.markup import escape

    from ...core.metric_names import metric
    from ...experiments.compare.comparison_page import verdict
    from .output import console, print_table

    out, key = console(), result["metric"]
    out.print(f"{result['data_name']}, {result['count']:,} {result['split']} examples", style="bold", markup=False)
    equals = set(found.equals(result))
    titles = ("", metric(key)[0], "95 % interval", "", "seconds", "ms")
    rows = [
        (
            f"{row['name']}{' (baseline)' if row['simple'] else ''}",
            format_metric(key, row["value"]),
            "not known"
            if row["low"] is None
            else f"{format_metric(key, row['low'])} to {format_metric(key, row['high'])}",
            "*" if row["name"] in equals else "",
            f"{row['seconds']:.1f}",
            "" if row["milliseconds"] is None else f"{row['milliseconds']:.2f}",
        )
        for row in result["models"]
    ]
    print_table(titles, rows, right=(metric(key)[0], "95 % interval", "seconds", "ms"))
    out.print(
        "* not significantly different from the best" if len(equals) > 1 else "* significantly better than all others",
        markup=False,
    )
    out.print(escape(verdict(found, result)))
    for one in result["excluded"]:
        named = "" if one["why"].startswith(one["model"]) else f"{one['model']}: "
        out.print(f"skipped: {named}{one['why']}", markup=False)
    for sentence in result["notes"]:
        out.print(sentence, markup=False)
    out.print()


def _print_ranks(found: Comparison) -> None:
    from .output import print_table

    rows = [
        (name, f"{rank.value:.2f}", f"{rank.low:.2f} to {rank.high:.2f}")
        for name, rank in sorted(found.ranks.items(), key=lambda one: one[1].value)
    ]
    print_table(("over all data sets", "mean rank", "95 % interval"), rows, right=("mean rank", "95 % interval"))
    print()


TRIALS_SHOWN = 10  # trials in the table

SEARCH_EXAMPLES = """\
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


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.epilog = SEARCH_EXAMPLES


def search_settings() -> tuple[type, ...]:
    """Return the groups of settings that the command takes."""
    from ...experiments.settings import SearchSettings

    return SearchSettings, *training_settings()


def run_search(args: argparse.Namespace) -> int:
    """Run the search, then print its results and its folder."""
    from ...api import search
    from .output import emit_json, open_page

    _reject_repeated_settings(args.words)
    model, data, given = parse_args(args.words, options=("out", "resume", "open", "json"))
    found = search(cast(Any, model), data, out=args.out, resume=args.resume, **given)
    if args.open:
        open_page(found.report)
    if args.json:
        emit_json(search_summary(found))
        return 0
    _print_search(found)
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
            raise IncompatibleSettingError(
                f"{key} is given twice, {both}: a setting is either searched or fixed. Leave one out."
            )
        values[key] = value


def search_summary(found: Search) -> dict[str, Any]:
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


def _print_search(found: Search) -> None:
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
    for row in rows[:TRIALS_SHOWN]:
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
