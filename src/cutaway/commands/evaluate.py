"""cutaway evaluate: a run's metrics with their 95 % intervals."""

from __future__ import annotations

import argparse

from .options import beam_search

SUMMARY = "a run's metrics with 95 % intervals, on its test split or other data"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed."""
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("data", metavar="DATA", nargs="?", help="other labelled data of the same kind")
    beam_search(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Evaluate and print."""
    from ..training.run import Run
    from .output import emit_json
    from .tables import print_table
    from .train import figure

    metrics = Run(args.run).evaluate(args.data, num_beams=args.num_beams, length_penalty=args.length_penalty)
    if args.json:
        emit_json({name: m.to_json() for name, m in metrics.items()})
        return 0
    rows = [
        (name.replace("_", " "), *(figure(name, value) for value in m.to_json().values()))
        for name, m in metrics.items()
    ]
    print_table(("", "value", "low", "high"), rows, right=("value", "low", "high"))
    return 0
