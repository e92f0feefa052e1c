"""Parts that comparisons and searches share: folder and document, resuming, progress, result and report.

A comparison or a search has a folder with a JSON document, which names its models, data and settings, and a
report.html. The same command on the same folder, or `--resume`, continues it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..core.errors import AlreadyExistsError, CutawayError, FileError, NotARunError, ResumeError, printable
from ..core.files import RUN, exists, is_temp_file, missing_file_error, read_json
from ..core.log import log
from ..core.version import __version__
from ..data.dataset_base import DataSet
from ..data.open_data import open_validated
from ..draw.description import Drawing, Page, View
from ..draw.html_page import render_iframe
from ..draw.number_format import timestamp_text
from ..runs.train import absolute_source
from ..training.run_folder import LOCK, create_numbered_folder, make_folder, reject_not_utf8

REPORT = "report.html"
NOUNS = {"search": "search", "compare": "comparison"}  # commands that train several runs, and what they write

Row = dict[str, Any]


class ExperimentInterrupted(KeyboardInterrupt):
    """The user or the system stopped a comparison or a search. Every training that had ended is kept."""

    def __init__(self, folder: Path, command: str) -> None:
        super().__init__(folder)
        self.command = command  # that resumes it


def create_experiment_folder(
    out: str | Path | None, command: str, name: str, document: str, others: Iterable[str] = ()
) -> Path:
    """Return the folder of a search or a comparison: `out`, or the next free runs/COMMAND-NAME-N.

    It may hold the same one already, identified by the file `document`, or only the files `others`. Raises FileError if
    it holds anything else.
    """
    if out is None:
        return create_numbered_folder(f"{command}-{name}")
    folder = Path(out)
    reject_not_utf8(folder)
    make_folder(folder)
    there = {entry.name for entry in folder.iterdir() if not is_temp_file(entry)}
    # A kill before the document was written leaves the lock.
    if not (folder / document).is_file() and there - {LOCK, *others}:
        raise AlreadyExistsError(
            f"{folder} already exists, is not a {NOUNS[command]}, and nothing in it is overwritten. Give another --out."
        )
    return folder


@contextlib.contextmanager
def remove_failed_start(folder: Path, document: str) -> Iterator[None]:
    """Remove the files and the folder of a new search or comparison if an error ends it before the first training."""
    is_new = not (folder / document).is_file()
    try:
        yield
    except CutawayError:
        if is_new and not any(folder.rglob(RUN)):
            (folder / document).unlink(missing_ok=True)
            places = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True)  # inner ones first
            for place in (*places, folder, *([folder.parent] if folder.parent == Path("runs") else [])):
                with contextlib.suppress(OSError):  # not empty
                    place.rmdir()
        raise


def read_experiment(folder: str | Path, command: str, document: str, keys: Iterable[str]) -> dict[str, Any]:
    """Return the document of a folder, which has at least these keys.

    Raises FileError if the file does not exist or is damaged.
    """
    path, what = Path(folder) / document, NOUNS[command]
    if not path.is_file():
        if not exists(folder):
            raise missing_file_error(folder, what)
        raise NotARunError(
            f"{folder} is not a {what}: it has no {document}. Give a folder that `cutaway {command}` wrote."
        )
    found = read_json(path)
    if not isinstance(found, dict) or not set(keys) <= set(found):
        raise FileError(f"{path} is not complete: it needs {', '.join(keys)}. Restore it from a copy.")
    return found


def reject_other_out(folder: Path, out: str | Path | None) -> None:
    """Raise SettingError if another folder than the resumed one is given."""
    if out is not None and Path(out).resolve() != folder.resolve():
        raise ResumeError(f"--resume continues in {folder}: leave --out out.")


def absolute_location(source: str) -> str:
    """Return a source with its absolute path, if it is a path."""
    there = all(exists(Path(one).expanduser()) for one in source.split(","))
    return (absolute_source(source) or source) if there else source  # missing paths are reported as they were typed


class DataCache:
    """Cache of the last opened data set, for trainings with the same data settings."""

    def __init__(self) -> None:
        self._arguments: Any = None
        self._data: DataSet | None = None

    def __call__(self, *arguments: Any) -> DataSet:
        """Return the result of `open_validated`, cached for equal arguments. Its notes and splits can be extended."""
        if self._data is None or self._arguments != arguments:
            self._arguments, self._data = arguments, open_validated(*arguments)
        data = self._data
        return dataclasses.replace(data, notes=list(data.notes), splits=dict(data.splits))


@contextlib.contextmanager
def fixed_threads(count: int | None = None) -> Iterator[None]:
    """Set the number of processor threads within this context, to the current one by default.

    With an explicit number MKL never uses fewer threads, so that all trainings have the same sums.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class ExperimentProgress:
    """Progress of a comparison or a search: lines, which are messages of the logger "cutaway"."""

    def __init__(self, shown: bool = True) -> None:
        self.shown = shown

    def note(self, sentence: str) -> None:
        """Print a note."""
        self._line(f"note: {sentence}")

    def _line(self, text: str, style: str = "") -> None:
        if self.shown:
            log(printable(text), style=style)


class Experiment:
    """Opened folder of a comparison or a search. Its document is `about`."""

    def __init__(self, folder: str | Path, about: dict[str, Any]) -> None:
        self.folder, self.about = Path(folder), about

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    @property
    def report(self) -> Path:
        """Return the path of the report."""
        return self.folder / REPORT

    def _repr_html_(self) -> str:
        """Return the report in a frame, or the repr if there is no report yet."""
        if not self.report.is_file():
            return html.escape(repr(self))
        return render_iframe(repr(self), self.report.read_text(encoding="utf-8"))


def build_page(about: Mapping[str, Any], views: list[View], *versions: str) -> Page:
    """Return the report with these views. `versions` are those of other libraries that its last line names."""
    parts = (f"Cutaway {__version__}", *versions, timestamp_text(about["started"]))
    colophon = f"{' · '.join(parts)} · This page is self-contained and loads nothing from the network."
    return Page(title=views[0]["title"], views=views, colophon=colophon)


def pareto_front(rows: Iterable[Mapping[str, Any]], cost: str, score: str, higher: bool) -> list[Row]:
    """Return the rows on the Pareto front of a score and a cost, cheapest first.

    Of rows that are equal in both the first is kept. Rows with unknown cost are left out.
    """
    sign = -1 if higher else 1
    known = [row for row in rows if row[cost] is not None]
    front: list[Row] = []
    for row in sorted(known, key=lambda row: (row[cost], sign * row[score])):
        if not front or sign * row[score] < sign * front[-1][score]:
            front.append(dict(row))
    return front


def scatter_chart(
    title: str,
    x: tuple[str, str, bool],
    y: tuple[str, str],
    groups: Sequence[str],
    points: Sequence[Mapping[str, Any]],
    **more: Any,
) -> Drawing:
    """Return a chart with a mark for each point, and steps for the best so far or the Pareto front.

    `x` is the name, the format and whether the axis is logarithmic, and `y` the name and the format. A point has x, y,
    the index of its group, and a tip.
    """
    return {
        "kind": "dots",
        "title": title,
        "x": x[0],
        "x_format": x[1],
        "log_x": x[2],
        "y": y[0],
        "format": y[1],
        "groups": list(groups),
        "dots": list(points),
        **more,
    }
