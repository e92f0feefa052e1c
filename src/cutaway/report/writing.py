"""The report of a run: its model's layers are traced, then its page is written."""

from __future__ import annotations

from pathlib import Path

from ..draw.page import page
from ..files import write_json, write_text
from ..inspect.example import inputs_for
from ..inspect.layers import layer_table
from ..training.run import Run
from ..views.network import drawing_of
from ..views.run.documents import read_documents
from .contents import describe


def report_on(run: Run) -> Path:
    """Write layers.json and report.html into the run's folder; the path of the page."""
    if (run.folder / "model").is_dir():
        card = None if run.module is not None else run.preset.card.card.to_json()  # one's own has no paper
        layers = layer_table(run.model, *inputs_for(run.model, run.spec))
        tree = drawing_of(layers, run.model)
        write_json(
            run.folder / "layers.json",
            {**layers.to_json(), "tree": tree, "card": card, **run.preset.described(run.model)},
        )
    return write_report(run.folder)


def write_report(run_folder: Path) -> Path:
    """Write report.html into a run's folder, from the documents there, and give its path.

    Raises FileError where a document is damaged or the page cannot be written.
    """
    path = run_folder / "report.html"
    write_text(path, page(describe(read_documents(run_folder))))
    return path
