"""The view of continual learning: the accuracy on each task after each task."""

from __future__ import annotations

from typing import Any

from ...draw import charts
from ...draw.description import Drawing, View, table
from ...draw.number_format import count, percent, plural

CURVES = 10  # most tasks with a separate curve


def accuracy_over_time(found: dict[str, Any], split: str) -> View:
    """Return the matrix of tasks by time and a curve for each task; for joint training, only the final accuracies."""
    names, accuracy = found["names"], found["accuracy"]
    labels = [f"{t + 1}: {name}" for t, name in enumerate(names)]
    if len(accuracy) == 1:
        return _final_view(labels, accuracy[0], split)
    ends = accuracy[-1]
    so_far = [sum(row[: t + 1]) / (t + 1) for t, row in enumerate(accuracy)]
    lost = [accuracy[t][t] - ends[t] for t in range(len(names) - 1)]
    most = max(range(len(lost)), key=lost.__getitem__)
    learned = sum(row[t] for t, row in enumerate(accuracy)) / len(names)
    summary = f"Right after a task was learned its accuracy is {percent(learned)} on average, at the end "
    summary += f"{percent(sum(ends) / len(names))}."
    if lost[most] > 0:
        summary += f" Most is lost of task {labels[most]}: {percent(accuracy[most][most])}, then {percent(ends[most])}."
    return View(
        id="tasks",
        title="Task by task",
        says=f"The accuracy on each task of the {split} split, with the weights after each task was learned. On the "
        "diagonal stands the task that had just been learned; to the right of it is what is left of it, to the left "
        "what was known before. The split was opened once, at the end, with the weights that were kept.",
        summary=summary,
        table=table(
            {"task": "text", **{f"after task {t + 1}": "fraction" for t in range(len(accuracy))}},
            [[label, *(row[j] for row in accuracy)] for j, label in enumerate(labels)],
        ),
        drawings=[_matrix(labels, accuracy), _curves(labels, accuracy, so_far)],
    )


def _matrix(labels: list[str], accuracy: list[list[float]]) -> Drawing:
    return charts.matrix(
        "Accuracy on each task after each task",
        [[row[j] for row in accuracy] for j in range(len(labels))],
        ("task", labels),
        ("after task", [count(t + 1) for t in range(len(accuracy))]),
        scale="amount",
        format="fraction",
        low=0.0,
        high=1.0,
    )


def _curves(labels: list[str], accuracy: list[list[float]], so_far: list[float]) -> Drawing:
    """Return each task's accuracy from the time it was learned, and the mean over the tasks so far."""
    series = [{"name": "mean of the tasks so far", "split": "test", "points": _over(so_far, 0)}]
    if len(labels) <= CURVES:
        series += [
            {"name": f"task {label}", "points": _over([row[j] for row in accuracy[j:]], j)}
            for j, label in enumerate(labels)
        ]
    return charts.lines("What is left of each task", "tasks learned", series, format="fraction", x_format="count")


def _over(values: list[float], first: int) -> list[list[float]]:
    return [[first + t + 1, value] for t, value in enumerate(values)]


def _final_view(labels: list[str], ends: list[float], split: str) -> View:
    least = min(range(len(labels)), key=ends.__getitem__)
    return View(
        id="tasks",
        title="Task by task",
        says=f"The accuracy on each task of the {split} split, at the end.",
        summary=f"Of {plural(len(labels), 'task')} the least accuracy is {percent(ends[least])}, on {labels[least]}.",
        table=table({"task": "text", "accuracy": "fraction"}, [list(pair) for pair in zip(labels, ends)]),
        drawings=[
            charts.rows(
                "Accuracy on each task",
                [charts.bar("accuracy", "fraction")],
                [
                    {"label": label, "cells": [{"value": end}], "tip": [label, percent(end)]}
                    for label, end in zip(labels, ends)
                ],
            )
        ],
    )
