"""View 2: loss, metrics and learning rate during the training of a run."""

from __future__ import annotations

from ..draw.description import View
from .run.documents import read_documents
from .run.reproduction import curves
from .subject import Subject

SAYS = "how loss, metrics and learning rate went, epoch by epoch"
READ = (
    "Each curve is one split of the data: training as the mean over an epoch in which the weights still move, "
    "validation at its end. Both should fall together and flatten out. Where training goes on falling and validation "
    "rises, the model has begun to learn its examples by heart. The dashed line is the epoch whose weights were kept."
)
MISLEADS = (
    "Training loss is measured on weights that are older than those of validation, with dropout and augmentation on: "
    "it can lie above validation without anything being wrong. Small validation parts make curves that jump by chance. "
    "A curve that is flat on this scale may still fall on a logarithmic one."
)
OPTIONS: dict[str, str] = {}


def suits(subject: Subject) -> bool:
    """Return whether the subject is a run with at least one finished epoch."""
    return subject.run is not None and bool(read_documents(subject.run.folder).metrics)


def view(subject: Subject) -> View:
    """Return the curves of the run, as in its report."""
    assert subject.run is not None, "curves are those of a run"
    documents = read_documents(subject.run.folder)
    return curves(documents.run, documents.metrics)
