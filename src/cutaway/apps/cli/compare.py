"""cutaway compare: a comparison of models, with significance."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from .arguments import add_output_options, add_positionals, parse_args
from .settings_help import training_settings
from .train import format_metric

if TYPE_CHECKING:
    from ...experiments.compare.result import Comparison

SUMMARY = "compare models on your data, with significance tests"

EXAMPLES = """\
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


def arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.epilog = EXAMPLES


def settings() -> tuple[type, ...]:
    """Return the groups of settings that the command takes."""
    from ...experiments.settings import CompareSettings

    return CompareSettings, *training_settings()


def run(args: argparse.Namespace) -> int:
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
        _print(found, result)
    if found.ranks:
        _print_ranks(found)
    console().print(f"page  {escape(str(found.report))}")
    return 0


def _ranks(found: Comparison) -> dict[str, Any]:
    return {name: vars(rank) for name, rank in found.ranks.items()}


def _print(found: Comparison, result: dict[str, Any]) -> None:
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
