"""cutaway report: the run's page, written again."""

from __future__ import annotations

import argparse

SUMMARY = "write a run's report.html again"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed."""
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(args: argparse.Namespace) -> int:
    """Write the page and print its path."""
    from ..report.writing import report_on
    from ..training.folder import RunInUse, clear_leftovers, locked
    from ..training.run import Run
    from .output import console, note, open_page

    run = Run(args.run)
    try:
        with locked(run.folder):
            clear_leftovers(run.folder)
    except RunInUse as error:
        note(f"note: {error.holder} works on this run: the page shows it as it stands now.")
    path = report_on(run)
    console().print(str(path), markup=False)
    if args.open:
        open_page(path)
    return 0
