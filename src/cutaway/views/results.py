"""The correct and wrong predictions of a run on its test split."""

from __future__ import annotations

from ..draw.description import Drawing, View, table
from .run.classes import confusion, per_class
from .run.documents import read_documents
from .run.forecast import forecast_views
from .run.generated_images import least_likely, new_images
from .run.outcome import metrics_rows, result_text, worst_mistakes
from .run.task_results import accuracy_over_time, links, masks, residuals, words
from .run.task_results import per_class as boxes_by_class
from .subject import Subject

SAYS = "test results: confusion matrix or residuals, and the examples with the largest loss"
READ = (
    "Rows of the matrix are actual classes, columns are predictions: correct predictions are on the diagonal, and a "
    "dark cell off the diagonal is a frequent confusion. For regression, each dot is an example, and a dot on the line "
    "was predicted exactly. Below are the examples with the largest loss: confident and wrong. Check them first, since "
    "many are labeling errors."
)
MISLEADS = (
    "Shades are fractions of a row: a class with three examples looks as important as one with three thousand, so read "
    "the counts. The intervals hold for data from the same distribution only. The worst examples are the tail of the "
    "distribution, not typical."
)
OPTIONS: dict[str, str] = {}


def suits(subject: Subject) -> bool:
    """Return whether the subject is a run with an evaluation."""
    return subject.run is not None and (subject.run.folder / "evaluation.json").is_file()


def view(subject: Subject) -> View:
    """Return the report's views of the results, merged into one."""
    assert subject.run is not None, "only runs have results"
    documents = read_documents(subject.run.folder)
    evaluation = documents.evaluation
    assert evaluation is not None, "suits() checks that the run was evaluated"
    parts: list[View] = []
    if evaluation.get("tasks"):
        parts.append(accuracy_over_time(evaluation["tasks"], evaluation["split"]))
    if evaluation.get("classes"):
        parts += [confusion(evaluation["classes"]), per_class(evaluation["classes"], evaluation["split"])]
    if evaluation.get("masks"):
        parts.append(masks(evaluation["masks"], evaluation["split"]))
    if evaluation.get("boxes"):
        parts.append(boxes_by_class(evaluation["boxes"], evaluation["split"]))
    if evaluation.get("links"):
        parts.append(links(evaluation["links"], evaluation["split"]))
    if evaluation.get("forecast"):
        parts += forecast_views(evaluation["forecast"])
    if evaluation.get("values"):
        parts.append(residuals(evaluation["values"], evaluation["count"]))
    if evaluation.get("words"):
        parts.append(words(evaluation["words"], evaluation["worst"], evaluation["split"]))
    if evaluation.get("drawn"):
        parts.append(new_images(evaluation["drawn"], evaluation["split"]))
    if documents.run["task"] != "image generation":
        parts.append(worst_mistakes(documents.run, evaluation))
    elif evaluation["worst"]:
        parts.append(least_likely(evaluation))
    drawings: list[Drawing] = [drawing for part in parts for drawing in part["drawings"]]
    return View(
        id="results",
        title="Test results",
        says=parts[0]["says"],
        summary=" ".join([result_text(documents.run, evaluation), *(part["summary"] for part in parts)]),
        table=table(
            {"metric": "text", "value": "written", "95 % from": "written", "to": "written"}, metrics_rows(evaluation)
        ),
        drawings=drawings,
    )
