"""Report of a search: the winner, the Pareto front, the best so far, importances and all trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core.config import shell_command
from ...core.files import write_text
from ...core.metric_names import metric
from ...data.dataset_base import IN_MEMORY
from ...draw import charts
from ...draw.description import Drawing, Page, View, table
from ...draw.html_page import render_page
from ...draw.number_format import capitalize_name, count, duration, format_value, plural
from ...models import cellnet
from ...training.run_folder import read_evaluation
from ...views.run.summary import figure, metrics_rows
from ..experiment import Row, build_page, scatter_chart
from .space import Choice, Range
from .storage import BEST, CELL, CUSTOM_MODEL, DIVERGED, FINISHED, PRUNED, REJECTED

if TYPE_CHECKING:
    from .result import Search

MIN_TRIALS = 3  # minimum finished trials for comparisons
STATES = (FINISHED, PRUNED, DIVERGED, REJECTED)
STATE_TEXTS = {
    FINISHED: "finished",
    PRUNED: "stopped early by the pruner",
    DIVERGED: "the loss became NaN or infinite",
    REJECTED: "not trained: exceeds a limit, or invalid",
}


def write_search_report(found: Search) -> None:
    """Write report.html to the folder of a search."""
    write_text(found.report, render_page(build_report(found)))


def build_report(found: Search) -> Page:
    """Return the whole report of a search that has trials."""
    views = [result_view(found)]
    if len(found.finished) >= MIN_TRIALS:
        views += [pareto_view(found), history_view(found), importance_view(found)]
    views += [cell_weights_view(row) for row in found.finished[-1:] if CELL in row]
    views.append(trials_view(found))
    return build_page(found.about, views, f"Optuna {found.about['optuna']}")


def result_view(found: Search) -> View:
    """Return the view of the winner and the search."""
    about, best, name = found.about, found.best, metric(found.metric)[0]
    states = [row["state"] for row in found.trials]
    said = ", ".join(f"{count(states.count(state))} {state}" for state in STATES if state in states)
    took = duration(sum(row["seconds"] for row in found.trials))
    says = (
        f"{plural(len(states), 'trial')} of {about['model']} on {about['data_name']}, sampled by "
        f"{about['search']['sampler']}: {said}. They took {took} and were compared on the validation split "
        f"({plural(about['splits']['val'], 'example')}) only."
    )
    drawings: list[Drawing] = []
    summary = "No trial has finished yet."
    rows: list[list[str]] = []
    if best:
        summary = (
            f"Trial {best['trial']} is the best: validation {name} {_score_text(found, best)}. The best of many"
            " trials is optimistic; the test split gives an unbiased estimate."
        )
        rows = [[key, _setting_text(best[key])] for key in about["space"]]
        rows += [["MACs per example", _count(best["macs"])], ["parameters", _count(best["parameters"])]]
    path = found.folder / BEST
    evaluation = read_evaluation(path) if (path / "evaluation.json").is_file() else None
    if evaluation and best:
        run = found.run.about
        drawings.append(figure(run, evaluation))
        rows += [[f"{evaluation['split']} {row[0]}", row[1]] for row in metrics_rows(evaluation)[:1]]
        opened = len(about["tested"])
        times = (
            "once, for the winner"
            if opened == 1
            else f"{opened} times, because the search was continued after a winner"
        )
        sentences = [
            f"The best trial was trained again as a run in {BEST}/, which has its report. The test split was "
            f"evaluated {times}."
        ]
        again = run.get("best") or {}
        if again.get("value") is not None and again["value"] != best[found.metric]:
            sentences.append(
                f"In the second training its validation {name} is "
                f"{format_value(again['value'], metric(found.metric)[1])}: training is not deterministic on this "
                "machine."
            )
        drawings.append({"kind": "prose", "sentences": sentences, "command": run["command"]})
    drawings.append({"kind": "prose", "title": "The search", "command": repeat_command(found)})
    return View(
        id="result",
        title=f"{about['model']} on {about['data_name']}, searched",
        says=says,
        summary=summary,
        table=table({"of the best": "text", "value": "text"}, rows),
        drawings=drawings,
    )


def pareto_view(found: Search) -> View:
    """Return the view of the metric over the cost: finished trials and the Pareto front."""
    name, format = metric(found.metric)
    known = [row for row in found.finished if row["macs"] is not None]
    best = found.best or {}
    ends = found.front
    more = "a higher" if found.higher_is_better else "a lower"
    worth = ""
    if len(ends) > 1:
        cheap = ends[0]
        worth = (
            f" From the cheapest to the best trial on the front, {name} goes from {_score_text(found, cheap)} with "
            f"{_count(cheap['macs'])} MACs to {_score_text(found, ends[-1])} with {_count(ends[-1]['macs'])}."
        )

    def drawing(rows: Sequence[Row]) -> Drawing:
        there = {row["trial"] for row in rows}
        return trial_chart(
            f"{capitalize_name(name)} and multiply-adds",
            ("MACs per example", "count", True),
            (f"validation {name}", format),
            [(row["macs"], row[found.metric], row) for row in rows],
            steps=[[row["macs"], row[found.metric]] for row in ends if row["trial"] in there],
            steps_name="Pareto front",
            chosen=next((i for i, row in enumerate(rows) if row["trial"] == best.get("trial")), None),
            name=f"trial {best.get('trial')}",
        )

    better = sorted(known, key=lambda row: row[found.metric], reverse=found.higher_is_better)[: (len(known) + 1) // 2]
    options = [("the better half", better), ("all", known)]
    shown = charts.choice(
        "",
        "trials",
        [{"name": said, "drawings": [drawing(rows)]} for said, rows in options],
        start=int(not has_outliers(found)),
    )
    heads = {"trial": "count", f"validation {name}": format, "MACs": "count", "parameters": "count"}
    return View(
        id="front",
        title=f"{capitalize_name(name)} and cost",
        says=(
            f"Each mark is a finished trial. The steps are the Pareto front: no other trial has {more} {name} with no "
            "more MACs."
        ),
        summary=f"{plural(len(ends), 'trial')} of {plural(len(known), 'finished trial')} on the front.{worth}",
        table=table(heads, [[row["trial"], row[found.metric], row["macs"], row["parameters"]] for row in ends]),
        drawings=[shown] if known else [],
        misleads="Each point of the front is one training: with another seed, neighboring points may swap.",
    )


def history_view(found: Search) -> View:
    """Return the view of the best metric after each trial."""
    name, format = metric(found.metric)
    rows = [row for row in found.trials if row["state"] != REJECTED]
    steps: list[list[float]] = []
    for n, row in enumerate(rows, 1):
        value = _finished_value(found, row)
        if value is not None and (
            not steps or (value > steps[-1][1] if found.higher_is_better else value < steps[-1][1])
        ):
            steps.append([n, value])
    scores = [(n, row[found.metric], row) for n, row in enumerate(rows, 1) if row[found.metric] is not None]
    drawing = trial_chart(
        f"Validation {name} by trial",
        ("trials", "count", False),
        (f"validation {name}", format),
        scores,
        steps=steps,
        steps_name="best so far",
    )
    cost = sum(row["work"] for row in rows)
    return View(
        id="so-far",
        title="Search history",
        says=(
            "Each mark is a trial with its last metric; the steps are the best so far. If they still improve at the "
            "end, run more trials."
        ),
        summary=(
            f"The best was found after {plural(int(steps[-1][0]), 'trial')} of {count(len(rows))}. The forward "
            f"passes of all trainings took {format_value(cost, 'number')} multiply-adds."
        ),
        table=table({"trials": "count", f"best {name} so far": format}, [[int(n), value] for n, value in steps]),
        drawings=[drawing],
    )


def importance_view(found: Search) -> View:
    """Return the view of the importance of each setting, and the metric over each."""
    name = metric(found.metric)[0]
    fractions = found.importances()
    drawings: list[Drawing] = []
    if fractions:
        drawings.append(
            charts.rows(
                "Fraction of the variance that each setting explains alone",
                [charts.bar("importance", "fraction")],
                [
                    {"label": key, "cells": [{"value": value}], "tip": [key, format_value(value, "fraction")]}
                    for key, value in fractions.items()
                ],
            )
        )
    order = list(fractions) or list(found.space.parts())
    options = [{"name": key, "drawings": [_setting_chart(found, key)]} for key in order]
    drawings.append(charts.choice(f"{capitalize_name(name)} by setting", "setting", options))
    first = next(iter(fractions), None)
    return View(
        id="importance",
        title="Hyperparameter importance",
        says=(
            f"Importance of each setting for the {name}, by fANOVA over the finished trials, and the trials by one "
            "setting."
        ),
        summary=(
            f"{first} explains most, {format_value(fractions[first], 'fraction')} of the variance."
            if first
            else "Too few finished trials, or all with equal results: importance cannot be estimated."
        ),
        table=table({"setting": "text", "importance": "fraction"}, [[k, v] for k, v in fractions.items()]),
        drawings=drawings,
        misleads=(
            "Importance holds for this space and these trials: a setting with a narrow range cannot be important, and "
            "an adaptive sampler rarely visits bad regions."
        ),
    )


def _setting_chart(found: Search, key: str) -> Drawing:
    """Return the chart of the metric over one part of the space."""
    name, format = metric(found.metric)
    one = found.space.parts()[key]
    rows = [row for row in found.trials if row[found.metric] is not None and row["state"] in (FINISHED, PRUNED)]
    drawn = {t.number: t.params[key] for t in found.study.get_trials(deepcopy=False) if key in t.params}
    if isinstance(one, Choice):
        places: list[tuple[float, float, Row]]
        places = [(one.options.index(drawn[row["trial"]]), row[found.metric], row) for row in rows]
        categories = [option.removeprefix("nor_") for option in one.options]
        return trial_chart(key, (key, "text", False), (f"validation {name}", format), places, categories=categories)
    assert isinstance(one, Range), "a part is a range or a choice"
    places = [(one.value(drawn[row["trial"]]), row[found.metric], row) for row in rows]
    form = "count" if one.whole else "number"
    return trial_chart(key, (key, form, one.log), (f"validation {name}", format), places)


def cell_weights_view(row: Row) -> View:
    """Return the view of the operation weights that DARTS found."""
    weights = row[CELL]
    operations = list(cellnet.OPERATIONS)
    edges = [one["edge"] for one in weights]
    values = [[one[o] for o in operations] for one in weights]
    idle = sum(not max(operations, key=lambda o: one[o]).startswith("nor_conv") for one in weights)
    return View(
        id="weights",
        title="DARTS architecture weights",
        says="The softmax of α, the weight of each operation on each edge of the cell; each edge uses the largest.",
        summary=(
            f"{idle} of 6 edges use an operation without weights. The cell of trial {row['trial']}: {row['model.arch']}"
        ),
        table=table(
            {"edge": "text", **dict.fromkeys(operations, "number")},
            [[one["edge"], *v] for one, v in zip(weights, values)],
        ),
        drawings=[
            charts.matrix(
                "Weights", values, ("edge", edges), ("operation", operations), scale="amount", format="number"
            )
        ],
    )


def trials_view(found: Search) -> View:
    """Return the view of every trial."""
    name, format = metric(found.metric)
    keys = list(found.about["space"])
    heads = {
        "trial": "count",
        "": "text",
        f"validation {name}": format,
        **{key.removeprefix("model."): "text" for key in keys},
    }
    heads |= {"epochs": "count", "MACs": "count", "parameters": "count", "seconds": "number", "why": "text"}
    sign = -1 if found.higher_is_better else 1

    def rank(row: Row) -> tuple[Any, ...]:
        value = row[found.metric]
        return (STATES.index(row["state"]), value is None, sign * (value or 0.0), row["macs"] or 0, row["trial"])

    rows = [
        [
            *(row["trial"], row["state"], row[found.metric]),
            *(_setting_text(row[key]) for key in keys),
            *(row["epochs"], row["macs"], row["parameters"], row["seconds"]),
            row["why"] if row["state"] in (DIVERGED, REJECTED) else "",
        ]
        for row in sorted(found.trials, key=rank)
    ]
    states = [row["state"] for row in found.trials]
    return View(
        id="trials",
        title="Every trial",
        says="Finished trials, best first; then pruned and untrained trials.",
        summary="; ".join(
            f"{count(states.count(state))} {state}: {STATE_TEXTS[state]}" for state in STATES if state in states
        )
        + ".",
        table=table(heads, rows),
        drawings=[{"kind": "prose", "table": table(heads, rows)}],
    )


def trial_chart(
    title: str,
    x: tuple[str, str, bool],
    y: tuple[str, str],
    places: Sequence[tuple[float, float, Row]],
    **more: Any,
) -> Drawing:
    """Return a chart with a mark for each trial.

    `x` is the name, the format and whether the axis is logarithmic, and `y` the name and the format.
    """
    points = [
        {"x": at, "y": value, "group": STATES.index(row["state"]), "tip": [f"trial {row['trial']}, {row['state']}"]}
        for at, value, row in places
    ]
    return scatter_chart(title, x, y, STATES, points, **more)


def has_outliers(found: Search) -> bool:
    """Return whether one chart of all finished trials would hide the differences within the better half."""
    values = sorted((row[found.metric] for row in found.finished), reverse=found.higher_is_better)
    half = values[: (len(values) + 1) // 2]
    return bool(abs(values[-1] - values[0]) > 3 * abs(half[-1] - half[0]))


def repeat_command(found: Search) -> str:
    """Return the command or Python call of the search."""
    about = found.about
    given = {**about["fixed"], **about["space"], **about["typed"], "trials": about["trials"]}
    if about["data"] == IN_MEMORY or CUSTOM_MODEL in about:
        model = about["model"] if CUSTOM_MODEL in about else repr(about["model"])
        data = "data" if about["data"] == IN_MEMORY else repr(about["data"])
        return f"cutaway.search({model}, {data}, out={str(found.folder)!r}, **{given!r})"
    return shell_command("search", about["model"], about["data"], given, "--out", str(found.folder))


def _score_text(found: Search, row: Row) -> str:
    """Format the metric of a row."""
    return format_value(row[found.metric], metric(found.metric)[1])


def _setting_text(value: Any) -> str:
    """Format a drawn value."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _count(value: int | None) -> str:
    return format_value(value, "count")


def _finished_value(found: Search, row: Row) -> float | None:
    return row[found.metric] if row["state"] == FINISHED else None
