"""cutaway report: the run's page, written again."""

from __future__ import annotations

import argparse

SUMMARY = "write a run's report.html again"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed."""
    parser.add_argument("run", metavar="RUN", help="a run's folder")


def run(args: argparse.Namespace) -> int:
    """Write the page and print its path."""
    from ..report.run_report import report_on
    from ..training.run import Run
    from .output import console

    console().print(str(report_on(Run(args.run))), markup=False)
    return 0
