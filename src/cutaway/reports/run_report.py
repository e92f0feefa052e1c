"""The report of a run: its views in reading order, and the page that contains them.

The views are pure functions from the documents of a run to plain JSON descriptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..checkpoints.match_config import settings_phrase
from ..core.files import write_json, write_text
from ..core.metric_names import metric
from ..draw.description import Drawing, Page, View, table
from ..draw.html_page import render_page
from ..draw.number_format import count, duration, format_value, plural, timestamp_text
from ..inspect.example_inputs import inputs_for
from ..inspect.layers import layer_table
from ..runs.run import Run
from ..runs.summary import warnings
from ..views.network import tree_drawing
from ..views.run.classification import calibration, confusion, discrimination, importance, per_class
from ..views.run.documents import Documents, read_documents
from ..views.run.generated_outputs import least_likely, new_images, samples, translations
from ..views.run.summary import (
    baseline_drawings,
    example_noun,
    figure,
    metrics_rows,
    missing_intervals,
    result_text,
    trust_note,
    worst_mistakes,
)
from ..views.run.task_results import accuracy_over_time, forecast_views, links, masks, residuals, words
from ..views.run.task_results import per_class as boxes_by_class
from ..views.run.training import curves, data, network, reproduction

# Documents that can be missing, and the content that the page lacks without them.
OPTIONAL = {
    "metrics": ("metrics.csv", "loss, metrics and learning rate of every epoch"),
    "evaluation": ("evaluation.json", "metrics with intervals, confusion or residuals, the worst errors"),
    "layers": ("layers.json", "the layer table and the paper that the network comes from"),
}

# Model settings that the data determines, even if the user sets them.
DATA_SETTINGS = ("num_classes", "target_vocab_size", "in_features", "in_channels")


def build_report(documents: Documents) -> Page:
    """Return the description of a run's whole page.

    If a run ended early, one view lists the documents that are missing.
    """
    run, metrics, evaluation, layers = documents.run, documents.metrics, documents.evaluation, documents.layers
    views = [result_head(run, evaluation)]
    absent = [key for key in OPTIONAL if not getattr(documents, key)]
    if absent:
        views.append(missing_documents(run, absent))
    if metrics:
        views.append(curves(run, metrics))
    if evaluation and evaluation.get("tasks"):
        views.append(accuracy_over_time(evaluation["tasks"], evaluation["split"]))
    if evaluation and evaluation.get("classes"):
        views += [confusion(evaluation["classes"]), per_class(evaluation["classes"], evaluation["split"])]
    if evaluation and evaluation.get("masks"):
        views.append(masks(evaluation["masks"], evaluation["split"]))
    if evaluation and evaluation.get("boxes"):
        views.append(boxes_by_class(evaluation["boxes"], evaluation["split"]))
    if evaluation and evaluation.get("links"):
        views.append(links(evaluation["links"], evaluation["split"]))
    if evaluation and evaluation.get("forecast"):
        views += forecast_views(evaluation["forecast"])
    if evaluation and evaluation.get("values"):
        views.append(residuals(evaluation["values"], evaluation["count"]))
    if evaluation:
        views += _optional_views(evaluation)
        views += _worst_views(run, evaluation)
    views.append(data(run))
    if layers:
        views.append(network(layers, documents.folder, documents.inside))
    views.append(reproduction(run, layers.get("config") if layers else None))
    return Page(title=views[0]["title"], views=views, colophon=_colophon(run))


def _optional_views(evaluation: dict[str, Any]) -> list[View]:
    """Return the views of the optional parts of an evaluation."""
    split, total = evaluation["split"], evaluation["count"]
    views = []
    if evaluation.get("discrimination"):
        views.append(discrimination(evaluation["discrimination"], total))
    if evaluation.get("calibration"):
        views.append(calibration(evaluation["calibration"], total))
    if evaluation.get("importance"):
        views.append(importance(evaluation["importance"], split))
    if evaluation.get("samples"):
        views.append(samples(evaluation["samples"], split))
    if evaluation.get("translations"):
        views.append(translations(evaluation["translations"], split))
    if evaluation.get("drawn"):
        views.append(new_images(evaluation["drawn"], split))
    if evaluation.get("words"):
        views.append(words(evaluation["words"], evaluation["worst"], split))
    return views


def _worst_views(run: dict[str, Any], evaluation: dict[str, Any]) -> list[View]:
    """Return the view of the worst mistakes; for image generation, that of the least likely images, if any."""
    if run["task"] != "image generation":
        return [worst_mistakes(run, evaluation)]
    return [least_likely(evaluation)] if evaluation["worst"] else []


def result_head(run: dict[str, Any], evaluation: dict[str, Any] | None) -> View:
    """Return the head of the page: model, data, and the main metric."""
    drawings: list[Drawing] = []
    if evaluation:
        says, summary = f"{_training_summary(run)} {trust_note(run, evaluation)}", result_text(run, evaluation)
        rows = metrics_rows(evaluation)
        if lines := warnings(run, evaluation):
            drawings.append({"kind": "prose", "title": "Not better than a baseline", "sentences": lines})
        drawings += [figure(run, evaluation), *baseline_drawings(run, evaluation), *missing_intervals(evaluation)]
        signatures = evaluation.get("signatures", {})
        if signatures:
            sentences = [f"{metric(key)[0]} was computed by sacrebleu: {how}." for key, how in signatures.items()]
            drawings.append({"kind": "prose", "sentences": sentences})
    else:
        says, summary = f"{_training_summary(run)} It has not been evaluated.", "There are no metrics yet."
        rows = []
        best = run.get("best") or {}
        if best.get("value") is not None:
            name, format = metric(best["metric"])
            value = format_value(best["value"], format)
            summary = f"The best validation {name} so far is {value}, in epoch {count(best['epoch'])}."
            rows = [[f"best validation {name}", value, "", ""]]
    findings = run["data"].get("findings") or []
    if findings and evaluation:
        bears = "bears" if len(findings) == 1 else "bear"
        title = f"{plural(len(findings), 'data quality finding')} {bears} on these metrics"
        drawings.append({"kind": "prose", "title": title, "sentences": findings})
    if run.get("summary"):
        drawings.append({"kind": "prose", "sentences": [run["summary"]]})
    return View(
        id="result",
        title=f"{model_title(run)} on {run['data']['name']}",
        says=says,
        summary=summary,
        table=table({"metric": "text", "value": "written", "95 % from": "written", "to": "written"}, rows),
        drawings=drawings,
    )


def model_title(run: dict[str, Any]) -> str:
    """Return the model's preset with the settings that change the network: "gpt2 with layers=2 and dim=64".

    Settings that follow from the data are left out.
    """
    own = {key: value for key, value in run["model_settings"].items() if key not in DATA_SETTINGS}
    return f"{run['model']}{settings_phrase(own)}"


def missing_documents(run: dict[str, Any], absent: list[str]) -> View:
    """Return a view of the missing documents and how to obtain them; `absent` contains keys of OPTIONAL."""
    names = " and ".join(OPTIONAL[key][0] for key in absent)
    state = run.get("stopped") or run.get("status") or "not finished"
    return View(
        id="missing",
        title="Missing files",
        says=f"Not in the folder of the run: {names}. This page leaves out their contents.",
        summary=f"Training: {state}. `cutaway train --resume RUN` continues it; "
        "`cutaway report RUN` writes this page again.",
        table=table({"document": "text", "would show": "text"}, [list(OPTIONAL[key]) for key in absent]),
        drawings=[],
    )


def _training_summary(run: dict[str, Any]) -> str:
    """Return a summary of the training: 61 706 parameters, learned from 1 077 images in 10 epochs, 12.3 s on cpu."""
    said = f"{count(run['parameters'])} parameters, trained on "
    learned = (
        "caption" if run["task"] == "image captioning" else example_noun(run)
    )  # an image can have several captions
    said += plural(run["data"]["splits"]["train"], learned)
    if run.get("epochs_done") is not None:
        said += f" in {plural(run['epochs_done'], 'epoch')}"
    if run.get("seconds") is not None:
        said += f", {duration(run['seconds'])} on {run['machine']['device']}"
    return f"{said}."


def _colophon(run: dict[str, Any]) -> str:
    date = timestamp_text(run.get("finished") or run["started"])
    return f"Cutaway {run['cutaway']} · {date} · This page is self-contained and loads nothing from the network."


def write_layers_and_report(run: Run) -> Path:
    """Write layers.json and report.html into the run's folder and return the path of the page."""
    if (run.folder / "model").is_dir():
        card = None if run.module is not None else run.preset.card.card.to_json()  # a custom module has no paper
        layers = layer_table(run.model, *inputs_for(run.model, run.spec))
        tree = tree_drawing(layers, run.model)
        write_json(
            run.folder / "layers.json",
            {**layers.to_json(), "tree": tree, "card": card, **run.preset.described(run.model)},
        )
    return write_report(run.folder)


def write_report(run_folder: Path) -> Path:
    """Write report.html into a run's folder from its documents and return its path.

    Raises:
        FileError: If a document is damaged or the page cannot be written.
    """
    path = run_folder / "report.html"
    write_text(path, render_page(build_report(read_documents(run_folder))))
    return path
