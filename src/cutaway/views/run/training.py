"""Views of the training of a run: learning curves, data, network, settings, and everything needed to repeat it."""

from __future__ import annotations

import itertools
import re
import shlex
from typing import Any

from ...core.config import as_text, describe
from ...core.metric_names import column_name, metric
from ...data.settings import DataSettings
from ...draw import charts
from ...draw.description import Drawing, View, table
from ...draw.number_format import (
    UNKNOWN,
    capitalize_name,
    count,
    duration,
    format_value,
    percent,
    plural,
    timestamp_text,
)
from ...training.config import TrainSettings
from ...training.run_folder import Cell
from ..subject import Subject
from .documents import INSIDE, read_documents

LOG_FROM = 20.0  # ratio of the largest to the smallest value above which a metric has a log scale
CURVES = {"train_": "train", "val_": "val"}  # prefix of a column → its split


# --- curves ---------------------------------------------------------------------------------------------------


def curves(run: dict[str, Any], metrics: list[dict[str, Cell]]) -> View:
    """Return loss, metrics and learning rate by epoch."""
    names = list(metrics[0])
    epochs = _epochs(metrics)
    tasks = run["settings"].get("tasks")  # continual learning keeps the last weights, not the best
    best = None if tasks else (run.get("best") or {}).get("epoch")
    drawings: list[Drawing] = []
    for key in dict.fromkeys(n.split("_", 1)[1] for n in names if n.startswith(tuple(CURVES))):
        name, format = metric(key)
        splits = {
            split: _points(metrics, epochs, prefix + key) for prefix, split in CURVES.items() if prefix + key in names
        }
        values = [y for points in splits.values() for _, y in points if y is not None]
        log = format == "number" and min(values, default=0.0) > 0 and max(values) >= LOG_FROM * min(values)
        drawings.append(_lines(name, format, splits, best, log=log))
    summary = " ".join(_first_to_last(d) for d in drawings)
    if "lr" in names:
        drawings.append(_lines("learning rate", "number", {"": _points(metrics, epochs, "lr")}, None, zero=True))
    says = "Training loss is the mean over an epoch while the weights change; validation is at its end."
    if not all(float(epoch).is_integer() for epoch in epochs):
        says = "Training loss is the mean since the previous point, while the weights change; validation uses the "
        says += "weights at that moment."
    if tasks:
        says += " Validation is on the tasks so far. The weights after the last task were kept."
    elif best:
        mean = run.get("average")
        kept = f"the mean after epochs {count(mean['first'])} to {count(mean['last'])} was kept" if mean else ""
        says += f" The dashed line is epoch {count(best)}{f'; {kept}' if kept else ', whose weights were kept'}."
    return View(
        id="curves",
        title="Learning curves",
        says=says,
        summary=summary,
        table=table({column_name(n): _format(n) for n in names}, [[row[n] for n in names] for row in metrics]),
        drawings=drawings,
    )


def _lines(
    name: str,
    format: str,
    splits: dict[str, list[list[Any]]],
    best: int | None,
    log: bool = False,
    zero: bool = False,
) -> Drawing:
    """Return a line chart of one quantity by epoch, with the epoch whose weights were kept."""
    return charts.lines(
        capitalize_name(name),
        "epoch",
        [{"name": split, "split": split, "points": points} for split, points in splits.items()],
        format=format,
        log=log,
        zero=zero,
        mark={"x": best, "label": f"best, epoch {count(best)}"} if best else None,
    )


def _points(metrics: list[dict[str, Cell]], epochs: list[Any], name: str) -> list[list[Any]]:
    """Return [x, y] of every row with this metric.

    y is None, and the line is broken, if the value is not finite or an epoch ended without a value.
    """
    rows = [(x, row[name]) for x, row in zip(epochs, metrics) if row[name] is not None or float(x).is_integer()]
    return [[x, y if isinstance(y, float) else None] for x, y in rows]


def _epochs(metrics: list[dict[str, Cell]]) -> list[float]:
    """Return the fractional epoch of each row (`training/callbacks.py` documents the rows).

    The last row of an epoch is its end. The other rows have a fraction of the epoch according to their step.
    """
    found: list[float] = []
    begin = 0.0
    for epoch, group in itertools.groupby(enumerate(metrics), key=lambda at: _number(at[1], "epoch") or at[0] + 1.0):
        steps = [_number(row, "step") for _, row in group]
        found += [epoch - (steps[-1] - step) / max(steps[-1] - begin, 1.0) for step in steps]
        begin = steps[-1]
    return found


def _number(row: dict[str, Cell], key: str) -> float:
    value = row.get(key)
    return value if isinstance(value, float) else 0.0


def _first_to_last(drawing: Drawing) -> str:
    """Return the first and last values of a metric: "Loss: train 2.1 to 0.03, val 1.2 to 0.08."."""
    said = []
    for series in drawing["series"]:
        known = [format_value(y, drawing["format"]) for _, y in series["points"] if y is not None]
        if known:
            said.append(f"{series['name']} {' to '.join(dict.fromkeys((known[0], known[-1])))}")
    return f"{drawing['title']}: {', '.join(said)}." if said else ""


def _format(column: str) -> str:
    if column in ("epoch", "step"):
        return "count"
    prefix = next((p for p in CURVES if column.startswith(p)), None)
    return metric(column.removeprefix(prefix))[1] if prefix else "number"


# --- data -----------------------------------------------------------------------------------------------------


def data(run: dict[str, Any]) -> View:
    """Return the training data: its splits, its columns, and its findings."""
    about = run["data"]
    splits = about["splits"]
    total = sum(splits.values()) or 1
    drawings: list[Drawing] = [
        {
            "kind": "fractions",
            "title": "Examples in each split",
            "parts": [{"name": name, "value": n} for name, n in splits.items()],
        }
    ]
    if about.get("distributions"):
        drawings.append(_histograms(about["distributions"], splits["train"]))
    findings = about.get("findings") or []
    if findings:
        drawings.append({"kind": "prose", "title": "Data quality", "sentences": findings})
    notes = [note for note in about.get("notes") or () if note not in findings]
    notes += (run.get("weights") or {}).get("notes") or ()
    if notes:
        drawings.append({"kind": "prose", "sentences": notes})
    licence = about.get("licence") or "not stated"
    drawings.append({"kind": "prose", "facts": [["source", about["source"]], ["licence", licence]]})
    columns = about.get("columns")
    if columns:
        heads = list(dict.fromkeys(name for column in columns for name in column))
        rows = [[column.get(h) for h in heads] for column in columns]
        drawings.append({"kind": "prose", "title": "Columns", "table": table(dict.fromkeys(heads, "text"), rows)})
    each = ", ".join(f"{count(n)} {name} ({percent(n / total)})" for name, n in splits.items())
    return View(
        id="data",
        title="Data",
        says="The train split is for training, val selects the best epoch, test is evaluated once, at the end.",
        summary=f"{plural(sum(splits.values()), 'example')} of {about['name']}: {each}.",
        table=table(
            {"split": "text", "examples": "count", "fraction": "fraction"},
            [[name, n, n / total] for name, n in splits.items()],
        ),
        drawings=drawings,
    )


def _histograms(columns: list[dict[str, Any]], rows: int) -> Drawing:
    """Return a small histogram of each column."""
    items = []
    for column in columns:
        gaps = f"{percent(column['missing'] / max(rows, 1))} missing" if column["missing"] else ""
        different = f", {plural(column['different'], 'value')}" if "different" in column else ""
        keys = ("name", "counts", "ends", "labels", "missing")
        shown = {key: column[key] for key in keys if key in column}
        items.append({**shown, "note": f"{column['type']}{different}", "gaps": gaps})
    return {"kind": "columns", "title": "Columns in the training split", "items": items}


# --- network --------------------------------------------------------------------------------------------------


def network(layers: dict[str, Any], folder: str = "", inside: bool = False) -> View:
    """Return the blocks with bars for output, size and cost, the paper of the network, and a link to its inspection.

    The link is the command, and the page in the run's folder if it exists. Documents of earlier versions have only the
    layers.
    """
    rows = layers["rows"]
    tree: Drawing | None = layers.get("tree")
    drawing: Drawing = tree or charts.rows(
        "Parameters and MACs of each layer",
        [charts.bar("parameters"), charts.bar("MACs")],
        [
            {
                "label": row["name"],
                "note": _shape(row["shape"]),
                "cells": [{"value": row["parameters"]}, {"value": row["multiply_adds"]}],
                "tip": _costs(row),
            }
            for row in rows
        ],
    )
    multiply_adds = f"{format_value(layers['multiply_adds'], 'count')} MACs (multiply-adds)"
    if not layers.get("complete", True):
        multiply_adds = f"at least {multiply_adds} (those of some layers are unknown)"
    return View(
        id="network",
        title="Network",
        says=f"Output shape and cost of each {'block' if tree else 'layer'}, for one example of shape "
        f"{_shape(layers['input'])}{'; click a block to open it, down to its products' if tree else ''}.",
        summary=f"{format_value(layers['parameters'], 'count')} parameters; {multiply_adds} for one example.",
        table=table(
            {
                "layer": "text",
                "type": "text",
                "output": "text",
                "parameters": "count",
                "MACs": "count",
                "receptive field": "count",
            },
            [
                [
                    row["name"],
                    row["type"],
                    _shape(row["shape"]),
                    row["parameters"],
                    row["multiply_adds"],
                    row.get("receptive_field"),
                ]
                for row in rows
            ],
        ),
        drawings=[drawing, *_inspect_links(folder, inside), *_card(layers.get("card"))],
    )


def _costs(row: dict[str, Any]) -> list[str]:
    said = [
        f"{row['name']}, {row['type']}",
        f"output {_shape(row['shape'])}",
        f"{format_value(row['parameters'], 'count')} parameters",
        f"{format_value(row['multiply_adds'], 'count')} MACs",
    ]
    field, frames = row.get("receptive_field"), row.get("frames")
    over = f"{plural(frames, 'frame')}, " if frames else ""
    return [*said, f"receptive field {over}{count(field)} × {count(field)}"] if field else said


def _inspect_links(folder: str, inside: bool) -> list[Drawing]:
    """Return how to inspect this run's model."""
    if not folder:
        return []
    command = shlex.join(["cutaway", "inspect", folder])
    drawings: list[Drawing] = [{"kind": "prose", "title": "Look inside", "command": command}]
    if inside:
        page = {"words": "the inspection page in this folder", "link": INSIDE}
        drawings[0]["facts"] = [["seen already", page]]
    return drawings


def _card(card: dict[str, Any] | None) -> list[Drawing]:
    """Return the paper, its equation, and the differences between paper, code and common implementations."""
    if not card:
        return []
    paper = {"words": f"{card['authors']}, {card['title']}, {card['year']}", "link": card["link"]}
    drawings: list[Drawing] = [{"kind": "prose", "facts": [["paper", paper], ["equation", card["equation"]]]}]
    if card.get("divergences"):
        heads = {"what": "what", "paper": "in the paper", "here": "here", "common": "in common implementations"}
        rows = [[d.get(key, "") for key in heads] for d in card["divergences"]]
        shown = table(dict.fromkeys(heads.values(), "text"), rows)
        drawings.append({"kind": "prose", "title": "Differences from the paper", "table": shown})
    return drawings


def _shape(shape: list[int] | None) -> str:
    """Return the text of a shape: 6 × 28 × 28."""
    return " × ".join(count(n) for n in shape) if shape else UNKNOWN


# --- repeat ---------------------------------------------------------------------------------------------------


def reproduction(run: dict[str, Any], config: dict[str, Any] | None = None) -> View:
    """Return everything needed to repeat the run; `config` is the complete configuration of the model."""
    about, machine = run["data"], run["machine"]
    groups = {
        "setting": run["settings"],
        "model setting": run["model_settings"],
        "version": run["versions"],
        "machine": machine,
        "sha256": {"data": about["fingerprint"], "split": about["split_hash"]},
    }
    facts = [
        ["seed", str(run["seed"])],
        ["started", timestamp_text(run["started"])],
        ["finished", timestamp_text(run.get("finished"))],
        ["took", _duration(run)],
        ["stopped", run.get("stopped") or UNKNOWN],
        ["device", " · ".join(str(machine[k]) for k in ("device", "cpu", "platform") if machine.get(k))],
        ["versions", " · ".join(f"{name} {version}" for name, version in run["versions"].items())],
        ["data", about["fingerprint"]],
        ["split", about["split_hash"]],
    ]
    return View(
        id="repeat",
        title="Reproduction",
        says="The same command, seed, data and versions on the same kind of machine give the same weights.",
        summary="Data and split are SHA-256 hashes: of the content that was read, and of the split of each example.",
        table=table(
            {"kind": "text", "name": "text", "value": "text"},
            [[kind, name, text(value)] for kind, group in groups.items() for name, value in group.items()],
        ),
        drawings=[
            {"kind": "prose", "command": run["command"]},
            *settings(run, config),
            {"kind": "prose", "facts": facts},
        ],
    )


def _duration(run: dict[str, Any]) -> str:
    """Return the duration of the training: 12.3 s for 20 epochs; resumed 2 times."""
    if run.get("seconds") is None:
        return UNKNOWN
    again = f"; resumed {plural(run['resumed'], 'time')}" if run.get("resumed") else ""
    return f"{duration(run['seconds'])} for {plural(run.get('epochs_done') or 0, 'epoch')}{again}"


MODEL = "model."


def settings(run: dict[str, Any], config: dict[str, Any] | None) -> list[Drawing]:
    """Return the settings of a run as drawings; `config` is the complete configuration of its model, if known."""
    known = {said.key: said for group in (TrainSettings, DataSettings) for said in describe(group)}
    asked = typed_keys(run["command"])
    rows, chosen = [], []
    for key, value in run["settings"].items():
        usual = known[key].default if key in known else ""
        row = [key, text(value), usual, known[key].help if key in known else ""]
        rows.append(row)
        if row[1] != usual:
            chosen.append([*row[:3], "set by the user" if key in asked else "preset of the model"])
    for key, value in (config or run["model_settings"]).items():
        by = "typed" if MODEL + key in asked or key in run["model_settings"] else ""
        rows.append([MODEL + key, text(value), "", "of the model" + (", typed" if by else "")])
        if by:
            chosen.append([MODEL + key, text(value), "", by])
    drawings: list[Drawing] = []
    if chosen:
        heads = {"setting": "text", "value": "text", "default": "text", "why": "text"}
        drawings.append(
            {"kind": "prose", "title": "Settings that differ from the default", "table": table(heads, chosen)}
        )
    heads = {"setting": "text", "value": "text", "default": "text", "what it is": "text"}
    drawings.append({"kind": "prose", "folded": f"All {plural(len(rows), 'setting')}", "table": table(heads, rows)})
    return drawings


def typed_keys(command: str) -> set[str]:
    """Return the names of the settings on a command line."""
    if command.startswith("cutaway.train("):  # a custom module, trained from Python
        return set(re.findall(r", (\w+)=", command))
    return {word.split("=", 1)[0] for word in shlex.split(command)[4:] if "=" in word}


def text(value: Any) -> str:
    """Return a setting as the user would type it; JSON has lists for the tuples of settings."""
    return as_text(tuple(value) if isinstance(value, list) else value)


def draw_curves(subject: Subject) -> View:
    """Return the curves of the run, as in its report."""
    assert subject.run is not None, "only runs have curves"
    documents = read_documents(subject.run.folder)
    return curves(documents.run, documents.metrics)
