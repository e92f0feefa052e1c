"""cutaway predict: new files through the run's own preprocessing."""

from __future__ import annotations

import argparse

SUMMARY = "what a trained model says of new files"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed."""
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="images, folders of images, or tables")
    parser.add_argument("--out", metavar="FILE.csv", help="write all rows and columns to this file")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Predict, and print or write one row for each example, in the order given."""
    import warnings

    from ..files import write_csv
    from ..training.run import Run
    from .output import console, emit_json, note

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        rows = Run(args.run).predict(args.inputs)
    for warning in caught:
        note(f"note: {warning.message}")
    if args.out:
        write_csv(args.out, rows)
        note(f"{len(rows)} predictions in {args.out}")
    if args.json:
        emit_json(rows)
    elif not args.out:
        for row in rows:
            name, (said, *more) = row["input"], [v for k, v in row.items() if k != "input"]
            sure = f"  {100 * more[0]:.1f} %" if "probability" in row else ""
            console().print(f"{name}  {said if isinstance(said, str) else f'{said:.6g}'}{sure}", markup=False)
    return 0
