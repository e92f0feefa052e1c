"""Report of a comparison: the best model, significance of every pair, costs and method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core.config import as_text, shell_command
from ...core.metric_names import metric
from ...draw import charts
from ...draw.description import Drawing, Page, View, table
from ...draw.html_page import render_page
from ...draw.number_format import capitalize_name, count, duration, format_value, plural
from ..experiment import Row, build_page, pareto_front, scatter_chart

if TYPE_CHECKING:
    from .result import Comparison

GROUPS = ["networks", "simple models"]
COST_AXES = (  # x axes of the cost chart: button, key of the row, axis label, number format
    ("training", "seconds", "seconds of training", "number"),
    ("inference", "milliseconds", "milliseconds per example", "number"),
    ("memory", "memory", "MiB of memory to train", "number"),
    ("joules", "joules", "joules of training", "number"),
    ("parameters", "parameters", "parameters", "count"),
)


def render_report(found: Comparison) -> str:
    """Return the report as one HTML file."""
    return render_page(build_report(found))


def build_report(found: Comparison) -> Page:
    """Return the whole report."""
    several = len(found.results) > 1
    views = [result_view(found)]
    if found.ranks:
        views.append(ranks_view(found))
    for number, result in enumerate(found.results):
        end, of = (f"-{number + 1}", f" on {result['data_name']}") if several else ("", "")
        views += [
            scores_view(found, result, end, of),
            pairs_view(found, result, end, of),
            costs_view(found, result, end, of),
        ]
    views.append(method_view(found))
    return build_page(found.about, views)


def verdict(found: Comparison, result: dict[str, Any]) -> str:
    """Return a sentence on the best model of a data set and its significance.

    If a baseline model wins, the text begins with it and ends with the best network.
    """
    rows = result["models"]
    best, name = rows[0], metric(result["metric"])[0]
    equals = found.equals(result)[1:]
    told = f"{_display_name(best)} has the best {name}, {_score_text(result, best)}"
    if equals:
        others = "the others" if len(equals) == len(rows) - 1 and len(equals) > 1 else _join(equals)
        told += f"; not significantly different from {others}"
    networks = [row for row in rows if not row["simple"]]
    if best["simple"] and networks:
        pair = found.difference(best["name"], networks[0]["name"], result)
        apart = "" if pair and pair["told_apart"] else ", but not significantly"
        return f"A baseline model is best{apart}. {told}; the best network is {networks[0]['name']}."
    return f"{told}."


def rank_verdict(found: Comparison) -> str:
    """Return a sentence on the best rank over several data sets. It begins with simple models if they win."""
    best = min(found.ranks.values(), key=lambda rank: rank.value)
    names = [name for name, rank in found.ranks.items() if rank.value == best.value]
    simple = {row["name"] for row in found.results[0]["models"] if row["simple"]}
    wins = (
        "" if set(names) - simple else "A baseline model is best. " if len(names) == 1 else "Baseline models are best. "
    )
    told = capitalize_name(_join(names)) if names[0] in simple else _join(names)
    ranks = f"{'ranks' if len(names) == 1 else 'rank'} best over {count(len(found.results))} data sets"
    return f"{wins}{told} {ranks}, {best.value:.2f} on average ({best.low:.2f} to {best.high:.2f})."


def result_view(found: Comparison) -> View:
    """Return the view with the setup and the result."""
    about = found.about
    on = _join([result["data_name"] for result in found.results])
    summaries = [verdict(found, result) for result in found.results]
    if len(found.results) > 1:
        summaries = [f"{result['data_name']}: {text}" for result, text in zip(found.results, summaries)]
    if found.ranks:
        summaries.insert(0, rank_verdict(found))
    drawings: list[Drawing] = [{"kind": "prose", "sentences": summaries[1:], "command": repeat_command(found)}]
    left_out = [(one, result) for result in found.results for one in result["excluded"]]
    if left_out:
        several = len(found.results) > 1
        sentences = [_exclusion_text(one, f"On {result['data_name']}, " if several else "") for one, result in left_out]
        drawings.append({"kind": "prose", "title": "Left out", "sentences": sentences})
    seeds = about["compare"]["seeds"]
    budgets = _join(list(dict.fromkeys(result["budget"] for result in found.results)))
    return View(
        id="result",
        title=f"{_join(about['models'])} on {on}",
        says=f"The same split, preprocessing and budget for all: {budgets}, {plural(seeds, 'seed')} each.",
        summary=summaries[0],
        table=table({"data": "text", "result": "text"}, [[r["data_name"], verdict(found, r)] for r in found.results]),
        drawings=drawings,
    )


def scores_view(found: Comparison, result: dict[str, Any], end: str, of: str) -> View:
    """Return the view of all scores with their intervals, best first."""
    name, format = metric(result["metric"])
    rows = result["models"]
    equals = set(found.equals(result))
    drawing = charts.rows(
        capitalize_name(name),
        [_interval_column(f"{result['split']} {name}, 95 % interval", format, rows)],
        [
            {
                "label": row["name"],
                "note": "simple" if row["simple"] else "",
                "cells": [{key: row[key] for key in ("value", "low", "high")}],
                "tip": [row["name"], _score_text(result, row), *([row["explanation"]] if row["explanation"] else [])],
            }
            for row in rows
        ],
    )
    heads = {"model": "text", name: format, "low": format, "high": format, "seeds": "text", "like the best": "text"}
    body = [
        [
            *(row["name"], row["value"], row["low"], row["high"]),
            ", ".join(format_value(value, format) for value in row["scores"]),
            "yes" if row["name"] in equals else "no",
        ]
        for row in rows
    ]
    notes = [{"kind": "prose", "sentences": result["notes"]}] if result["notes"] else []
    return View(
        id=f"scores{end}",
        title=f"Scores{of}",
        says=(
            f"Dots are means over seeds; bars are 95 % confidence intervals over examples and seeds "
            f"({plural(result['count'], 'test example')})."
        ),
        summary=(
            f"{count(len(equals))} of {plural(len(rows), 'model')} may be the best: the first, and those that "
            "are not significantly different from it."
            if len(equals) > 1
            else f"{_display_name(rows[0])} is significantly better than all others."
        ),
        table=table(heads, body),
        drawings=[drawing, *notes],
        misleads=(
            "Overlapping intervals do not mean that two models are equal: both were evaluated on the same examples, so "
            "their difference is estimated more precisely than either score. See the pairs below."
        ),
    )


def pairs_view(found: Comparison, result: dict[str, Any], end: str, of: str) -> View:
    """Return the view of every pair: difference, probability that the first is better, and significance."""
    name, format = metric(result["metric"])
    rows = result["models"]
    names = [row["name"] for row in rows]
    best = names[0]
    against = [pair for name_ in names[1:] if (pair := found.difference(best, name_, result))]
    drawings: list[Drawing] = [
        charts.rows(
            f"{best} minus the others",
            [_interval_column(f"difference in {name}, 95 % interval", format, against, 0.0)],
            [
                {
                    "label": pair["b"],
                    "note": "significant" if pair["told_apart"] else "not significant",
                    "cells": [{key: pair[key] for key in ("value", "low", "high")}],
                    "tip": [f"{best} minus {pair['b']}", difference_text(pair, format)],
                }
                for pair in against
            ],
        )
    ]
    if len(names) > 2:
        values = [[_probability_better(found, result, a, b) for b in names] for a in names]
        drawings.append(
            charts.matrix(
                "Probability that the model of the row is better than that of the column",
                values,
                ("better", names),
                ("worse", names),
                scale="amount",
                format="fraction",
            )
        )
    heads = {"pair": "text", "difference": format, "low": format, "high": format, "probability": "fraction"}
    heads |= {"p, corrected": "number", "significance": "text"}
    every = [
        pair for number, a in enumerate(names) for b in names[number + 1 :] if (pair := found.difference(a, b, result))
    ]
    body = [
        [
            f"{pair['a']} minus {pair['b']}",
            *(pair[key] for key in ("value", "low", "high")),
            min(max(pair["probability"], 1e-4), 1 - 1e-4),  # the tail of the distribution overstates certainty
            pair["p_corrected"],
            "significant" if pair["told_apart"] else "not significant",
        ]
        for pair in every
    ]
    apart = sum(pair["told_apart"] for pair in result["differences"])
    drawings.append({"kind": "prose", "title": "Every pair", "table": table(heads, body)})
    return View(
        id=f"pairs{end}",
        title=f"Significance of differences{of}",
        says=(
            "All models are evaluated on the same examples, so differences are paired; p-values are corrected for the "
            "number of pairs (Holm), at a significance level of 0.05."
        ),
        summary=f"{apart} of {plural(len(result['differences']), 'pair')} differ significantly.",
        table=table(heads, body),
        drawings=drawings,
        misleads=(
            "No significant difference does not mean that two models are equal: more test examples or seeds may show "
            "one."
        ),
    )


def costs_view(found: Comparison, result: dict[str, Any], end: str, of: str) -> View:
    """Return the view of the costs of each model, with the Pareto front of score and cost."""
    name, format = metric(result["metric"])
    rows = [row for row in result["models"] if row["value"] == row["value"]]
    options = []
    for label, key, axis, kind in COST_AXES:
        there = [row for row in rows if row.get(key)]
        if len(there) > 1:
            options.append({"name": label, "drawings": [_pareto_chart(result, there, key, axis, kind)]})
    heads = {"model": "text", name: format, "seconds": "number", "ms per example": "number", "parameters": "count"}
    heads |= {"MACs": "count", "MiB to train": "number"}
    columns = ["name", "value", "seconds", "milliseconds", "parameters", "macs", "memory"]
    if any(row["joules"] is not None for row in rows):
        heads["joules"] = "number"
        columns.append("joules")
    body = [[_cost_cell(row, key) for key in columns] for row in rows]
    equals = found.equals(result)
    fastest = min((row for row in rows if row["name"] in equals), key=lambda row: row["seconds"])
    drawings: list[Drawing] = [charts.choice(f"{capitalize_name(name)} over cost", "cost", options)] if options else []
    return View(
        id=f"costs{end}",
        title=f"Cost{of}",
        says=(
            "The steps are the Pareto front. Seconds are means over a model's trainings, memory is the maximum over "
            "them; milliseconds are medians with the models alternating, on this machine."
        ),
        summary=(
            f"{_display_name(fastest)} has the best {name} and trains in {_time_text(fastest['seconds'])}."
            if fastest is rows[0]
            else f"Of the possibly best models, {fastest['name']} trains fastest, in {_time_text(fastest['seconds'])}."
        ),
        table=table(heads, body),
        drawings=[*drawings, {"kind": "prose", "sentences": [_energy_note(result)], "table": table(heads, body)}],
        misleads=(
            "Trainings that ran two at a time or with other load on the machine took longer than they would alone. "
            "Memory is the increase of the process's memory during training. Parameters of baseline models are not "
            "counted."
        ),
    )


def _energy_note(result: dict[str, Any]) -> str:
    """Return a sentence on the energy, or on why it is unknown."""
    if not result["tells_joules"]:
        return "Energy: not available on this machine."
    if result["jobs"] > 1:
        return f"Energy of networks: not available for {result['jobs']} trainings at a time. Set jobs=1 to measure it."
    return "Joules are those of the processors and their memory during training, including all other load."


def ranks_view(found: Comparison) -> View:
    """Return the view of mean ranks over data sets."""
    rows = sorted(found.ranks.items(), key=lambda one: one[1].value)
    drawing = charts.rows(
        "Mean rank, 1 is best",
        [_interval_column("rank, 95 % interval", "number", [vars(rank) for _, rank in rows])],
        [
            {
                "label": name,
                "cells": [{"value": rank.value, "low": rank.low, "high": rank.high}],
                "tip": [name, f"mean rank {rank.value:.2f}, {rank.low:.2f} to {rank.high:.2f}"],
            }
            for name, rank in rows
        ],
    )
    body = [[name, rank.value, rank.low, rank.high] for name, rank in rows]
    return View(
        id="ranks",
        title="Over all data sets",
        says=f"Ranks of the models that were trained on all {len(found.results)} data sets; intervals by resampling "
        "data sets.",
        summary=rank_verdict(found),
        table=table({"model": "text", "mean rank": "number", "low": "number", "high": "number"}, body),
        drawings=[drawing],
        misleads="Few data sets do not generalize to others, and a rank does not show the size of a difference.",
    )


def method_view(found: Comparison) -> View:
    """Return the view of the method, with the command that repeats the comparison."""
    about = found.about
    rows = [["seeds", f"0 to {about['compare']['seeds'] - 1}"]]
    rows += [["processor threads of a training", str(about["threads"])]]
    if about["compare"]["trials"]:
        trials = f"{about['compare']['trials']} for each model, on the validation split"
        rows.append(["hyperparameter trials", trials])
    if "minutes" in about["given"]:
        text = (
            "wall-clock time: other load on the machine reduces the number of steps. max_steps and epochs are "
            "reproducible"
        )
        rows.append(["minutes", text])
    for result in found.results:
        rows.append([f"budget on {result['data_name']}", result["budget"]])
        rows.append([f"splits of {result['data_name']}", ", ".join(f"{k} {v:,}" for k, v in result["splits"].items())])
        for settings, by in ((result["own_settings"], "its card"), (result["chosen"], "its trials")):
            for model, own in settings.items():
                rows.append([f"{model}, by {by}", ", ".join(f"{k}={as_text(v)}" for k, v in own.items()) or "default"])
    rows += [["Cutaway, PyTorch", f"{about['cutaway']}, {about['torch']}"]]
    return View(
        id="method",
        title="Method",
        says="All other settings are the defaults of each model's card; `cutaway show MODEL` prints them.",
        summary="Weights are those of the best validation epoch; the test split is evaluated once per training, at "
        "its end.",
        table=table({"what": "text", "how": "text"}, rows),
        drawings=[
            {"kind": "prose", "table": table({"what": "text", "how": "text"}, rows), "command": repeat_command(found)}
        ],
    )


def repeat_command(found: Comparison) -> str:
    """Return the command or Python call of the comparison."""
    about = found.about
    how = {key: value for key, value in about["compare"].items() if key in ("seeds", "trials", "macs") and value}
    given, own = {**about["given"], **how}, about.get("own", {})
    if own or about["in_memory"]:
        made = {name: path.rpartition(".")[2].replace("<lambda>", "make") for name, path in own.items()}
        models = ", ".join(f'("{name}", {made[name]})' if name in made else f'"{name}"' for name in about["models"])
        data = ", ".join(name if name in about["in_memory"] else f'"{name}"' for name in about["data"])
        return f"cutaway.compare([{models}], {data if len(about['data']) == 1 else f'[{data}]'}, **{given})"
    return shell_command("compare", ",".join(about["models"]), ",".join(about["data"]), given)


def difference_text(pair: Row, format: str) -> str:
    """Return a difference in words."""
    between = f"{format_value(pair['low'], format)} to {format_value(pair['high'], format)}"
    apart = "" if pair["told_apart"] else "; not significantly different"
    return (
        f"{format_value(pair['value'], format)} ({between}), better with probability {pair['probability']:.2f}{apart}"
    )


def _interval_column(name: str, format: str, cells: Sequence[Row], *more: float) -> dict[str, Any]:
    """Return a column of dots with intervals, on a scale that covers all of them and the values of `more`."""
    ends = [end for cell in cells for end in (cell["value"], cell["low"], cell["high"]) if end is not None]
    ends += more
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    domain = [low, high] if low < high else [low - 0.5, high + 0.5]
    return {"name": name, "format": format, "mark": "dot", "split": "test", "domain": domain}


def _exclusion_text(one: Row, where: str) -> str:
    """Return a sentence on why a model is left out. Most reasons name the model already."""
    named = "" if one["why"].startswith(one["model"]) else f"{one['model']}: "
    sentence = f"{where}{named}{one['why']}"
    return sentence if sentence.endswith(".") else f"{sentence}."


def _cost_cell(row: Row, key: str) -> Any:
    """Return a cell of the table of costs. Memory is in MiB."""
    return row[key] / 2**20 if key == "memory" and row[key] is not None else row[key]


def _probability_better(found: Comparison, result: dict[str, Any], a: str, b: str) -> float | None:
    pair = found.difference(a, b, result)
    return pair["probability"] if pair else None


def _pareto_chart(result: dict[str, Any], rows: list[Row], key: str, axis: str, kind: str) -> Drawing:
    """Return the chart of scores over a cost, with the Pareto front."""
    name, format = metric(result["metric"])
    front = pareto_front(rows, key, "value", result["higher_is_better"])
    points = [
        {"x": _cost_cell(r, key), "y": r["value"], "group": int(r["simple"]), "tip": [r["name"]], "name": r["name"]}
        for r in rows
    ]
    return scatter_chart(
        "",
        (axis, kind, True),
        (name, format),
        GROUPS,
        points,
        steps=[[_cost_cell(row, key), row["value"]] for row in front],
        steps_name="Pareto front",
        chosen=rows.index(front[-1]),
    )


def _time_text(seconds: float) -> str:
    return f"{1000 * seconds:.2g} ms" if seconds < 0.1 else duration(seconds)


def _display_name(row: Row) -> str:
    """Return the name of a model at the beginning of a sentence. Names of presets keep their case."""
    return capitalize_name(row["name"]) if row["simple"] else str(row["name"])


def _score_text(result: dict[str, Any], row: Row) -> str:
    format = metric(result["metric"])[1]
    if row["low"] is None:
        return format_value(row["value"], format)
    return (
        f"{format_value(row['value'], format)} ({format_value(row['low'], format)} to"
        f" {format_value(row['high'], format)})"
    )


def _join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
