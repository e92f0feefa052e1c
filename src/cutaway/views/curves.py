"""Loss, metrics and learning rate during the training of a run."""

from __future__ import annotations

from ..draw.description import View
from .run.documents import read_documents
from .run.reproduction import curves
from .subject import Subject

SAYS = "learning curves: loss, metrics and learning rate by epoch"
READ = (
    "Each curve is one split of the data: training as the mean over an epoch while the weights change, validation at "
    "its end. Both should fall together and flatten out. If the training loss keeps falling and the validation loss "
    "rises, the model overfits. The dashed line is the epoch whose weights were kept."
)
MISLEADS = (
    "Training loss is measured on older weights than validation, with dropout and augmentation on: it can be higher "
    "than validation without anything being wrong. Small validation splits give noisy curves. A curve that is flat on "
    "this scale may still fall on a logarithmic one."
)
OPTIONS: dict[str, str] = {}


def suits(subject: Subject) -> bool:
    """Return whether the subject is a run with at least one finished epoch."""
    return subject.run is not None and bool(read_documents(subject.run.folder).metrics)


def view(subject: Subject) -> View:
    """Return the curves of the run, as in its report."""
    assert subject.run is not None, "only runs have curves"
    documents = read_documents(subject.run.folder)
    return curves(documents.run, documents.metrics)
