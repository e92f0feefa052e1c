"""cutaway report: the page of a run or a search, written again."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "rewrite the report.html of a run or a search"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run or a search")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(args: argparse.Namespace) -> int:
    """Write the page and print its path."""
    from ...experiments.compare.baselines import check_baselines
    from ...reports.run_report import write_layers_and_report
    from ...runs.run import Run
    from ...training.run_folder import RunInUse, clear_leftovers, lock_run
    from .output import console, note, open_page

    if (Path(args.run) / "search.json").is_file():
        path = _write_search_page(args.run)
        console().print(str(path), markup=False)
        if args.open:
            open_page(path)
        return 0
    run = Run(args.run)
    try:
        with lock_run(run.folder):
            clear_leftovers(run.folder)
            check_baselines(run)
    except RunInUse as error:
        note(f"note: {error.holder} is using this run: the page shows its current state.")
    path = write_layers_and_report(run)
    console().print(str(path), markup=False)
    if args.open:
        open_page(path)
    return 0


def _write_search_page(folder: str) -> Path:
    """Write the page of a search, with the trials so far. Raises FileError if no trial has ended."""
    from ...core.errors import FileError
    from ...experiments.settings import require_optuna

    require_optuna()
    from ...experiments.search.result import Search
    from ...experiments.search.search_page import write_search_report

    found = Search(folder)
    if not found.trials:
        raise FileError(f"{folder} has no finished trial to show yet.")
    write_search_report(found)
    return found.report
