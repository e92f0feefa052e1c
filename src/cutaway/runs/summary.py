"""A run as text for a terminal and as HTML for a notebook: score with interval, learning curves, worst mistakes.

The HTML is made from the documents in the run's folder. It is small, has no scripts and loads nothing, so that it is
also shown in a notebook that is not trusted, on GitHub, and offline.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.metric_names import metric
from ..draw.number_format import UNKNOWN, count, duration, format_value, number, percent, plural
from ..tasks.task import HIGHER_IS_BETTER

Row = Mapping[str, float | str | None]
MISTAKES = 6  # at most
TEXT = 80  # characters of an example's text
IMBALANCED = 1.5  # the largest class has this many times the examples of classes of equal size
SAMPLED_ONE_BY_ONE = ("table", "image")  # kinds of data that sampling=balanced supports
STRONGER = {"linear": "mlp", "logistic": "mlp", "softmax": "mlp", "perceptron": "mlp", "rnn": "lstm"}  # to try next
STRONGER_FOR_IMAGES = {"mlp": "lenet5-modern", "lenet5": "lenet5-modern", "lenet5-modern": "resnet18"}
HIGH_LR = 0.1  # larger learning rates usually prevent learning
WIDTH, HEIGHT, LEFT, BELOW = 250, 130, 46, 18  # pixels of a chart, and of the space for its numbers
COLOURS = {"train": "#7a828c", "val": "#c27a00"}
SOFT = "opacity: 0.7"
CELL = 'style="text-align: left; vertical-align: top"'


def headline(evaluation: Mapping[str, Any]) -> str:
    """Return the key of the main metric: the one that selected the weights, or the first."""
    metrics = evaluation["metrics"]
    watched = [k for k in (evaluation.get("watch"), "accuracy", "rmse") if k in metrics]
    return str((watched or list(metrics))[0])


def score_text(evaluation: Mapping[str, Any]) -> tuple[str, str]:
    """Return the main metric, and in words which it is, with its interval: "97.8 %", "test accuracy (95 % …)"."""
    key = headline(evaluation)
    name, form = metric(key)
    found, baseline = evaluation["metrics"][key], evaluation.get("baseline")
    examples = plural(evaluation["count"], "example")
    sure = found.get("note") or ""
    if found["low"] is not None and found["high"] is not None:
        sure = f"95 % interval {format_value(found['low'], form)} to {format_value(found['high'], form)}"
    said = f"{evaluation['split']} {name} ({', '.join(part for part in (sure, examples) if part)})"
    if baseline:
        said += f"; {baseline['name']}: {format_value(baseline['value'], form)}"
    return format_value(found["value"], form), said


def warnings(about: Mapping[str, Any], evaluation: Mapping[str, Any] | None) -> list[str]:
    """Return the lines that say that a model is no better than a trivial baseline, or below a fitted one."""
    if not evaluation:
        return []
    return [line for line in (baseline_warning(about, evaluation), below_baseline(about, evaluation)) if line]


def baseline_warning(about: Mapping[str, Any], evaluation: Mapping[str, Any]) -> str | None:
    """Return one line if the model is not significantly better than the trivial baseline of its task, else None.

    It has the score, the baseline, and the settings to try next.

    Args:
        about: run.json.
        evaluation: evaluation.json.
    """
    tested, baseline = evaluation.get("baseline_test"), evaluation.get("baseline")
    if not tested or not baseline or tested["better"]:
        return None
    key = headline(evaluation)
    name, form = metric(key)
    own = evaluation["metrics"][key]["value"]
    ahead = own is not None and (own > baseline["value"] if key in HIGHER_IS_BETTER else own < baseline["value"])
    said = f"{'Not significantly' if ahead else 'No'} better than {_with_article(baseline['name'])}: "
    said += f"{evaluation['split']} {name} {format_value(own, form)}, baseline {format_value(baseline['value'], form)}"
    if (balanced := evaluation["metrics"].get("balanced_accuracy")) and key == "accuracy":
        said += f", balanced accuracy {format_value(balanced['value'], 'fraction')}"
    if tested.get("only") is not None:
        said += f"; the model predicts {tested['only']!r} for every example"
    return f"{said}. Try {_join(settings_to_try(about, evaluation))}."


def below_baseline(about: Mapping[str, Any], evaluation: Mapping[str, Any]) -> str | None:
    """Return one line if the best of the fitted baselines has a better score than the model, else None.

    Args:
        about: run.json.
        evaluation: evaluation.json.
    """
    key, simple = headline(evaluation), evaluation.get("simple") or {"metric": "", "models": []}
    if simple["metric"] != key or not simple["models"]:
        return None
    name, form = metric(key)
    own, best = evaluation["metrics"][key], simple["models"][0]
    sign = 1 if key in HIGHER_IS_BETTER else -1
    if best["value"] is None or (own["value"] is not None and sign * own["value"] >= sign * best["value"]):
        return None
    said = f"The model is below the baseline: {evaluation['split']} {name} {format_value(own['value'], form)}, "
    said += f"{best['name']} {format_value(best['value'], form)}"
    ends = [own["low"], own["high"], best.get("low"), best.get("high")]
    if None not in ends and own["low"] <= best["high"] and best["low"] <= own["high"]:
        said += " (the 95 % intervals overlap)"
    model = STRONGER.get(about["model"]) or (
        STRONGER_FOR_IMAGES.get(about["model"]) if about["data"]["kind"] == "image" else None
    )
    return f"{said}. Try {_join([*([f'the model {model}'] if model else []), *settings_to_try(about, evaluation)])}."


def _with_article(name: str) -> str:
    return f"the {name}" if "baseline" in name else f"the baseline ({name})"


def settings_to_try(about: Mapping[str, Any], evaluation: Mapping[str, Any]) -> list[str]:
    """Return settings, as key=value, that may help a model that is not better than a baseline.

    Args:
        about: run.json.
        evaluation: evaluation.json.
    """
    given, found = about["settings"], []
    counts = [one["count"] for one in (evaluation.get("classes") or {}).get("per_class", ()) if one["count"]]
    if counts and max(counts) * len(counts) >= IMBALANCED * sum(counts):
        loss_has_weights = about.get("loss", "cross_entropy") == "cross_entropy"
        even = given.get("class_weights") == "balanced" or given.get("sampling") == "balanced"
        if not even and loss_has_weights and about["task"] == "classification":
            found.append("class_weights=balanced")
        if not even and about["data"]["kind"] in SAMPLED_ONE_BY_ONE:
            found.append("sampling=balanced")
        if given.get("monitor") not in ("balanced_accuracy", "macro_f1") and "val" in about["data"]["splits"]:
            found.append("monitor=balanced_accuracy")
    length = next((key for key in ("minutes", "max_steps") if given.get(key)), "epochs")
    best = (about.get("best") or {}).get("epoch") or 0
    if 2 * best >= (about.get("epochs_done") or 0) and given.get(length):  # the last epochs were still the best
        found.append(f"{length}={3 * given[length]:g}")
    else:
        found.append(f"lr={given['lr'] / 10:g}" if given["lr"] <= HIGH_LR else f"lr={HIGH_LR / 100:g}")
    return found


def _join(names: Sequence[str]) -> str:
    """Join names for a sentence: "a, b or c"."""
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def training_text(about: Mapping[str, Any]) -> str:
    """Return model, data, size and length of the training on one line."""
    said = [f"{about['model']} on {about['data']['name']}", f"{count(about['parameters'])} parameters"]
    if about.get("epochs_done") is not None:
        length = plural(about["epochs_done"], "epoch")
        said.append(f"{length} in {duration(about['seconds'])}" if about.get("seconds") is not None else length)
    if about["status"] != "finished":
        said.append(str(about["status"]))
    return ", ".join(said)


def run_text(folder: str, about: Mapping[str, Any], evaluation: Mapping[str, Any] | None) -> str:
    """Return the run in a few lines: its training, its score, and its folder."""
    score = " ".join(score_text(evaluation)) if evaluation else "not evaluated yet"
    return "\n".join([training_text(about), score, *warnings(about, evaluation), folder])


def run_html(
    folder: str, about: Mapping[str, Any], evaluation: Mapping[str, Any] | None, history: Sequence[Row]
) -> str:
    """Return the run as HTML. `history` has one row for each epoch."""
    value, said = score_text(evaluation) if evaluation else ("", "Not evaluated yet.")
    parts = [
        f"<div>{_escape(training_text(about))}</div>",
        f'<div style="margin: 0.3em 0"><b style="font-size: 1.6em">{_escape(value)}</b> {_escape(said)}</div>',
        *(f"<div><b>{_escape(line)}</b></div>" for line in warnings(about, evaluation)),
        f'<div style="display: flex; flex-wrap: wrap; gap: 1.5em">{"".join(_charts(history))}</div>',
        _mistakes(evaluation["worst"], bool(evaluation.get("values"))) if evaluation else "",
        f'<div style="margin-top: 0.6em; font-size: 0.85em; {SOFT}">{_escape(folder)}/report.html</div>',
    ]
    return f'<div style="line-height: 1.4; font-variant-numeric: tabular-nums">{"".join(parts)}</div>'


def _escape(text: Any) -> str:
    return html.escape(str(text))


# --- learning curves ----------------------------------------------------------------------------------------------


def _charts(history: Sequence[Row]) -> list[str]:
    """Return a chart of the loss, and one of each metric that was validated."""
    columns = list(history[0]) if history else []
    keys = dict.fromkeys(c.partition("_")[2] for c in columns if c.startswith(("train_", "val_")))
    charts = []
    for key in keys:
        series = {
            split: [(float(i + 1), row[f"{split}_{key}"]) for i, row in enumerate(history)]
            for split in COLOURS
            if f"{split}_{key}" in columns
        }
        points = {
            split: [(x, float(y)) for x, y in rows if isinstance(y, float | int) and math.isfinite(y)]
            for split, rows in series.items()
        }
        if any(points.values()):
            charts.append(_chart(*metric(key), {split: rows for split, rows in points.items() if rows}))
    return charts


def _chart(name: str, form: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return a line chart over the epochs as SVG."""
    values = [y for points in series.values() for _, y in points]
    low, high = min(values), max(values)
    last = max(x for points in series.values() for x, _ in points)
    span = high - low or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - 1) / max(last - 1, 1) * (WIDTH - LEFT - 4)
        return round(across, 1), round(4 + (high - y) / span * (HEIGHT - BELOW - 8), 1)

    drawn, names = [], []
    for split, points in series.items():
        colour = COLOURS[split]
        at = " ".join(f"{x},{y}" for x, y in (place(*point) for point in points))
        drawn.append(f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if len(points) == 1:
            x, y = place(*points[0])
            drawn.append(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>')
        final = format_value(points[-1][1], form)
        names.append(f'<span style="color: {colour}">{split} {_escape(final)}</span>')
    bottom = HEIGHT - BELOW
    labels = [
        (LEFT - 5, 12, "end", format_value(high, form)),
        (LEFT - 5, bottom - 2, "end", format_value(low, form) if high > low else ""),
        (LEFT, HEIGHT - 3, "start", "epoch 1"),
        (WIDTH - 4, HEIGHT - 3, "end", count(last) if last > 1 else ""),
    ]
    texts = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="10" fill="currentColor">{_escape(text)}</text>'
        for x, y, anchor, text in labels
    )
    title = _escape(name[:1].upper() + name[1:])
    return (
        f'<figure style="margin: 0"><figcaption><b>{title}</b> {" ".join(names)}</figcaption>'
        f'<svg role="img" aria-label="{title} by epoch" width="{WIDTH}" height="{HEIGHT}">'
        f'<path d="M{LEFT} 4V{bottom}H{WIDTH - 4}" fill="none" stroke="currentColor" stroke-opacity="0.3"/>'
        f"{''.join(drawn)}{texts}</svg></figure>"
    )


# --- mistakes -----------------------------------------------------------------------------------------------------


def _mistakes(worst: Sequence[Mapping[str, Any]], values: bool) -> str:
    """Return a table of the worst mistakes, with their images or columns."""
    if not worst:
        return ""
    heads = ["example", "actual", "predicted", "confidence", "loss"]
    heads = [name for name in heads if name != "confidence" or any(one["confidence"] is not None for one in worst)]
    rows = []
    for one in worst[:MISTAKES]:
        actual, predicted = (_shorten_number(one[key]) if values else one[key] for key in ("actual", "predicted"))
        found = {
            "example": _example(one),
            "actual": _escape(_short(actual)),
            "predicted": _escape(_short(predicted)),
            "confidence": percent(one["confidence"]) if one["confidence"] is not None else "",
            "loss": number(one["loss"]) if one["loss"] is not None else UNKNOWN,
        }
        rows.append("".join(f"<td {CELL}>{found[name]}</td>" for name in heads))
    titles = "".join(f"<th {CELL}>{name}</th>" for name in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        '<div style="margin-top: 0.6em"><b>Worst mistakes</b></div>'
        f'<table style="font-size: 0.9em"><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>'
    )


def _example(one: Mapping[str, Any]) -> str:
    """Return the image of an example, or its name and columns."""
    picture = one.get("picture")
    if isinstance(picture, str) and picture.startswith("data:image/"):
        return f'<img src="{_escape(picture)}" alt="{_escape(one["name"])}" style="height: 48px">'
    cells = ", ".join(f"{key} {_shorten_number(value or '')}" for key, value in (one.get("row") or {}).items())
    return f'{_escape(one["name"])} <span style="{SOFT}">{_escape(_short(cells))}</span>'


def _short(text: str) -> str:
    return textwrap.shorten(text, TEXT, placeholder=" …")


def _shorten_number(text: str) -> str:
    """Return a number with four digits; other text is unchanged."""
    try:
        return number(float(text))
    except ValueError:
        return text
