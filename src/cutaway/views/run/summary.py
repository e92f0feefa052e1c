"""Views of the test results of a run: the main metric, the worst mistakes, and all results together."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from ...core.config import changed_settings, shell_command
from ...core.metric_names import metric
from ...data.dataset_base import IN_MEMORY
from ...data.settings import DataSettings
from ...data.splits import split_hash
from ...draw.description import Drawing, View, table
from ...draw.number_format import capitalize_name, format_value, number, percent, plural
from ...runs.evaluation import IMAGE_SIDE, PANELS
from ...runs.summary import headline
from ...tasks.task import HIGHER_IS_BETTER
from ..subject import Subject
from .classification import confusion, per_class
from .documents import read_documents
from .generated_outputs import least_likely, new_images
from .task_results import accuracy_over_time, forecast_views, links, masks, residuals, words
from .task_results import per_class as boxes_by_class

NOUNS = {
    "image": "image",
    "table": "row",
    "text": "text",
    "seq2seq": "pair",
    "series": "signal",
    "audio": "recording",
    "video": "video",
    "graph": "node",
}
TASK_NOUNS = {
    "link prediction": "pair",
    "language modelling": "window",
    "forecasting": "forecast",
    "tagging": "sentence",
}
SHOWN = 160  # characters of a text in the gallery


def example_noun(run: dict[str, Any]) -> str:
    """Return the noun for one example of the run's data: image, row, signal."""
    if run["data"].get("example"):
        return str(run["data"]["example"])
    return TASK_NOUNS.get(run["task"]) or NOUNS.get(run["data"]["kind"], "example")


# --- the metric -----------------------------------------------------------------------------------------------


def trust_note(run: dict[str, Any], evaluation: dict[str, Any]) -> str:
    """Return a sentence on how far the metrics can be trusted.

    A test split is evaluated once and has no part in training.
    """
    split = evaluation["split"]
    these = f"the {plural(evaluation['count'], f'{split} {example_noun(run)}')}"
    if _same_in_all_splits(run["data"]):
        return f"Evaluated on {these}, which are also the training data: there are no others."
    if split == "test":
        return f"Evaluated once, at the end, on {these}, which were not used in training."
    if split == "val":
        return f"There is no test split: {these} were also used to select the weights, so the metrics are optimistic."
    return f"There is no other split: the model was trained on {these}, so the metrics are optimistic."


def _same_in_all_splits(data: dict[str, Any]) -> bool:
    """Return whether every example is in every split, as for a truth table."""
    sizes = data["splits"]
    if len(sizes) < 2 or len(set(sizes.values())) > 1:  # sizes usually differ, which avoids hashing millions of rows
        return False
    return split_hash({name: np.arange(n) for name, n in sizes.items()}) == data.get("split_hash")


def metric_phrase(run: dict[str, Any], evaluation: dict[str, Any]) -> str:
    """Return the object of the main metric: "of 360 test images right", "RMSE of price, over 90 test rows"."""
    examples = plural(evaluation["count"], f"{evaluation['split']} {example_noun(run)}")
    key = headline(evaluation)
    if key == "accuracy":
        return f"of {'the tokens of ' if run['task'] == 'tagging' else ''}{examples} right"
    values = evaluation.get("values") or {}
    of = f" of {values['column']}" if values else ""
    return f"{values.get('unit') or ''} {metric(key)[0]}{of}, over {examples}".lstrip()


def result_text(run: dict[str, Any], evaluation: dict[str, Any]) -> str:
    """Return the main metric in words, with its interval and its baselines."""
    key = headline(evaluation)
    format = metric(key)[1]
    value, baseline = evaluation["metrics"][key], evaluation.get("baseline")
    said = f"{format_value(value['value'], format)} {metric_phrase(run, evaluation)}"
    if value["low"] is not None and value["high"] is not None:
        said += f"; 95\u202f% interval: {format_value(value['low'], format)} to {format_value(value['high'], format)}"
    elif value.get("note"):
        said += f"; {value['note']}"
    others = [f"{baseline['name']}: {format_value(baseline['value'], format)}"] if baseline else []
    best = best_baseline(evaluation)
    if best:
        others.append(f"{best['name']} (baseline): {format_value(best['value'], format)}")
    if others:
        said += f". For comparison, {'; '.join(others)}"
    return f"{said}."


def best_baseline(evaluation: dict[str, Any]) -> dict[str, Any] | None:
    """Return the best baseline model if there are baselines and their metric is the main one, or None."""
    simple = evaluation.get("simple") or {"metric": "", "models": []}
    return simple["models"][0] if simple["models"] and simple["metric"] == headline(evaluation) else None


def baseline_drawings(run: dict[str, Any], evaluation: dict[str, Any]) -> list[Drawing]:
    """Return the scores of the baseline models, or an empty list without them."""
    best = best_baseline(evaluation)
    if best is None:
        return []
    simple, key = evaluation["simple"], headline(evaluation)
    name, format = metric(key)
    own, other = evaluation["metrics"][key]["value"], best["value"]
    wins = own is None or (other >= own if key in HIGHER_IS_BETTER else other <= own)
    title = (
        f"{capitalize_name(best['name'])}, a simple baseline, is as good or better"
        if wins
        else "Comparison with baselines"
    )
    sentences = [
        f"Each is trained on the same split, with scikit-learn's default settings. To test whether a difference is "
        f"significant, run `{compare_command(run)}`."
    ]
    if simple["left_out"]:
        sentences.append(f"Not fitted, to save time: {', '.join(simple['left_out'])}.")
    rows = [[m["name"], m["value"], m["low"], m["high"]] for m in simple["models"]]
    heads = {"model": "text", name: format, "95 % from": format, "to": format}
    return [{"kind": "prose", "title": title, "sentences": sentences, "table": table(heads, rows)}]


def compare_command(run: dict[str, Any]) -> str:
    """Return the command that compares a model of the run with baselines on the same data, with its data settings.

    For your own module, or data from Python, it is a call in Python.
    """
    given, own = changed_settings(run["settings"], DataSettings), run.get("own")
    if run["data"]["source"] != IN_MEMORY and not own:
        return shell_command("compare", run["model"], run["data"]["source"], given)
    data = "data" if run["data"]["source"] == IN_MEMORY else repr(run["data"]["source"])
    model = f"({run['model']!r}, {run['model']})" if own else repr(run["model"])
    words = [f"[{model}]", data, *(f"{key}={value!r}" for key, value in given.items())]
    return f"cutaway.compare({', '.join(words)})"


def figure(run: dict[str, Any], evaluation: dict[str, Any]) -> Drawing:
    """Return the main metric in large type, with its interval and the baseline on a line."""
    key = headline(evaluation)
    name, format = metric(key)
    return {
        "kind": "figure",
        "title": f"{capitalize_name(name)} on the {evaluation['split']} split",
        "phrase": metric_phrase(run, evaluation),
        "format": format,
        "split": evaluation["split"],
        **{end: evaluation["metrics"][key][end] for end in ("value", "low", "high")},
        "end": 1 if format == "fraction" else None,
        "baseline": evaluation.get("baseline"),
    }


def missing_intervals(evaluation: dict[str, Any]) -> list[Drawing]:
    """Return the reasons for metrics without an interval."""
    notes = [
        f"{capitalize_name(metric(k)[0])}: {m['note']}." for k, m in evaluation["metrics"].items() if m.get("note")
    ]
    return [{"kind": "prose", "title": "Metrics without an interval", "sentences": notes}] if notes else []


def metrics_rows(evaluation: dict[str, Any]) -> list[list[str]]:
    """Return a row for every metric: name, value, low, high, each in its own format."""
    rows = []
    for key, m in evaluation["metrics"].items():
        name, format = metric(key)
        rows.append([name, *(format_value(m[k], format) for k in ("value", "low", "high"))])
    baseline = evaluation.get("baseline")
    if baseline:
        rows.append([baseline["name"], format_value(baseline["value"], metric(headline(evaluation))[1]), "", ""])
    if best := best_baseline(evaluation):
        format = metric(headline(evaluation))[1]
        rows.append([best["name"], *(format_value(best[k], format) for k in ("value", "low", "high"))])
    return rows


# --- mistakes -------------------------------------------------------------------------------------------------


def worst_mistakes(run: dict[str, Any], evaluation: dict[str, Any]) -> View:
    """Return the examples with the largest loss, with their images or columns."""
    mistakes = evaluation["worst"]
    heads = {
        "example": "text",
        "actual": "text",
        "predicted": "text",
        "confidence": "fraction",
        "loss": "number",
    }
    columns = list(
        dict.fromkeys(name for m in [*mistakes, *(evaluation.get("right") or ())] for name in m.get("row") or ())
    )
    # A column of the data may have the same name as one of the table's own columns.
    named = {(f"{c} (data)" if c in heads else c): "text" for c in columns}
    says = f"The {example_noun(run)}s of the {evaluation['split']} split with the largest loss, worst first."
    summary = "All examples are correct."
    if mistakes:
        actual, predicted = _actual_and_predicted(mistakes[0], evaluation)
        summary = f"The worst is {mistakes[0]['name']}: actual {actual}"
        if run["task"] != "word vectors":  # word vectors predict no words
            summary += f", predicted {predicted or 'nothing'}"
        summary += f", {_sure(mistakes[0])}." if _sure(mistakes[0]) else "."
    right = evaluation.get("right") or []
    if evaluation.get("masks"):
        says += " Each row shows the image, the actual mask and the predicted mask."
    if right:
        says += " Some correct examples follow." if _is_right(right) else " The best examples follow."
    if any("boxes" in m for m in mistakes + right):
        says += (
            " Boxes with a thin green line are correct, those with a thick red line are wrong, and those with a dashed "
        )
        says += "yellow line are missed."
    return View(
        id="worst",
        title="Worst mistakes",
        says=says,
        summary=summary,
        table=table(
            heads | named,
            [
                [*(m[k] for k in ("name", "actual", "predicted", "confidence", "loss")), *_cells(m, columns)]
                for m in [*mistakes, *right]
            ],
        ),
        drawings=[
            *([_gallery("Wrong, actual → predicted", mistakes, evaluation)] if mistakes else []),
            *([_gallery("Right" if _is_right(right) else "Smallest loss", right, evaluation)] if right else []),
        ],
    )


def _is_right(examples: list[dict[str, Any]]) -> bool:
    """Return whether all predictions are correct and all boxes were found."""
    found = (box["kind"] == "right" for m in examples for box in m.get("boxes", ()))
    return all(m["actual"] == m["predicted"] for m in examples) and all(found)


def _gallery(title: str, examples: list[dict[str, Any]], evaluation: dict[str, Any]) -> Drawing:
    """Return a gallery of examples with their actual and predicted targets."""
    return {
        "kind": "gallery",
        "title": title,
        **({"size": [PANELS * IMAGE_SIDE, IMAGE_SIDE]} if evaluation.get("masks") else {}),
        "items": [
            {
                "name": m["name"],
                "image": m["picture"],
                **({"boxes": m["boxes"]} if "boxes" in m else {}),
                "words": " → ".join(dict.fromkeys(_actual_and_predicted(m, evaluation))),
                "note": _sure(m),
                "lines": [textwrap.shorten(f"{k} {v}", SHOWN, placeholder=" …") for k, v in _columns(m, evaluation)],
            }
            for m in examples
        ],
    }


def _columns(example: dict[str, Any], evaluation: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the columns of an example, the most important first if importance is known."""
    counts = [column["name"] for column in (evaluation.get("importance") or {}).get("columns", ())]
    rank = {name: place for place, name in enumerate(counts)}
    return sorted((example.get("row") or {}).items(), key=lambda item: rank.get(item[0], len(rank)))


def _actual_and_predicted(mistake: dict[str, Any], evaluation: dict[str, Any]) -> tuple[str, str]:
    """Return actual and predicted as text: classes by name, values with four digits."""
    actual, predicted = mistake["actual"], mistake["predicted"]
    return (_format_number(actual), _format_number(predicted)) if evaluation.get("values") else (actual, predicted)


def _format_number(text: str) -> str:
    """Return a number with four digits; other text is unchanged."""
    try:
        return number(float(text))
    except ValueError:
        return text


def _sure(mistake: dict[str, Any]) -> str:
    return f"{percent(mistake['confidence'])} confidence" if mistake["confidence"] is not None else ""


def _cells(mistake: dict[str, Any], columns: list[str]) -> list[str | None]:
    return [(mistake.get("row") or {}).get(c) for c in columns]


def draw_results(subject: Subject) -> View:
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
