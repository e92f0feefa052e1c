"""cutaway evaluate: a run's metrics with their 95 % intervals."""

from __future__ import annotations

import argparse

SUMMARY = "a run's metrics with 95 % intervals, on its test split or other data"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed."""
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("data", metavar="DATA", nargs="?", help="other labelled data of the same kind")
    parser.add_argument("--beams", metavar="N", type=int, help="of pairs: the beginnings that are kept in decoding")
    parser.add_argument(
        "--alpha", metavar="A", type=float, help="of pairs: beams prefer longer answers with a larger one"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Evaluate and print."""
    from ..training.run import Run
    from .output import emit_json
    from .tables import print_table
    from .train import figure

    measures = Run(args.run).evaluate(args.data, beams=args.beams, alpha=args.alpha)
    if args.json:
        emit_json({name: m.to_json() for name, m in measures.items()})
        return 0
    rows = [
        (name.replace("_", " "), *(figure(name, value) for value in m.to_json().values()))
        for name, m in measures.items()
    ]
    print_table(("", "value", "low", "high"), rows, right=("value", "low", "high"))
    return 0
