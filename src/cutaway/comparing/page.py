"""The page of a comparison: who is best and whether that can be told, every pair, what each costs, how it was done."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..draw import make
from ..draw.description import Drawing, Page, View, table
from ..draw.page import page
from ..draw.words import capital, count, duration, moment, plural, written
from ..terms import metric

if TYPE_CHECKING:
    from .result import Comparison

Row = dict[str, Any]
GROUPS = ["networks", "simple models"]


def describe_page(found: Comparison) -> str:
    """The page as one HTML file."""
    return page(describe(found))


def describe(found: Comparison) -> Page:
    """The whole page."""
    several = len(found.results) > 1
    views = [head(found)]
    if found.ranks:
        views.append(ranks(found))
    for number, result in enumerate(found.results):
        end, of = (f"-{number + 1}", f" on {result['data_name']}") if several else ("", "")
        views += [scores(found, result, end, of), pairs(found, result, end, of), costs(result, end, of)]
    views.append(method(found))
    colophon = (
        f"Cutaway {__version__} · {moment(found.about['started'])} · This page holds all that it shows and asks no "
        "network for more."
    )
    return Page(title=views[0]["title"], views=views, colophon=colophon)


def verdict(found: Comparison, result: dict[str, Any]) -> str:
    """Who is best on a data set, whether that can be told, and first of all whether simple models win."""
    rows = result["models"]
    best, name = rows[0], metric(result["metric"])[0]
    equals = found.equals(result)[1:]
    told = f"{_named(best)} has the best {name}, {_value(result, best)}"
    if equals:
        others = "the others" if len(equals) == len(rows) - 1 and len(equals) > 1 else _listed(equals)
        told += f", and cannot be told apart from {others}"
    networks = [row for row in rows if not row["simple"]]
    if best["simple"] and networks:
        pair = found.difference(best["name"], networks[0]["name"], result)
        apart = "" if pair and pair["told_apart"] else ", though not by more than chance"
        return f"A simple model wins{apart}. {told}; the best network is {networks[0]['name']}."
    return f"{told}."


def head(found: Comparison) -> View:
    """What was compared, and what came out."""
    about = found.about
    on = _listed([result["data_name"] for result in found.results])
    summaries = [verdict(found, result) for result in found.results]
    if len(found.results) > 1:
        summaries = [f"{result['data_name']}: {said}" for result, said in zip(found.results, summaries)]
    drawings: list[Drawing] = [{"kind": "prose", "sentences": summaries[1:], "command": command(found)}]
    left_out = [(one, result) for result in found.results for one in result["excluded"]]
    if left_out:
        several = len(found.results) > 1
        sentences = [_left_out(one, f"On {result['data_name']}, " if several else "") for one, result in left_out]
        drawings.append({"kind": "prose", "title": "Left out", "sentences": sentences})
    seeds = about["compare"]["seeds"]
    budgets = _listed(list(dict.fromkeys(result["budget"] for result in found.results)))
    return View(
        id="result",
        title=f"{_listed(about['models'])} on {on}",
        says=f"The same split, preprocessing and budget for all: {budgets}, {plural(seeds, 'seed')} each.",
        summary=summaries[0],
        table=table({"data": "text", "result": "text"}, [[r["data_name"], verdict(found, r)] for r in found.results]),
        drawings=drawings,
    )


def scores(found: Comparison, result: dict[str, Any], end: str, of: str) -> View:
    """Every model's score with its interval, best first."""
    name, format = metric(result["metric"])
    rows = result["models"]
    equals = set(found.equals(result))
    column = {"name": f"{result['split']} {name}, 95 % interval", "format": format, "mark": "dot", "split": "test"}
    drawing = make.rows(
        capital(name),
        [column],
        [
            {
                "label": row["name"],
                "note": "simple" if row["simple"] else "",
                "cells": [{key: row[key] for key in ("value", "low", "high")}],
                "tip": [row["name"], _value(result, row), *([row["explanation"]] if row["explanation"] else [])],
            }
            for row in rows
        ],
    )
    heads = {"model": "text", name: format, "low": format, "high": format, "seeds": "text", "like the best": "text"}
    body = [
        [
            *(row["name"], row["value"], row["low"], row["high"]),
            ", ".join(written(value, format) for value in row["scores"]),
            "yes" if row["name"] in equals else "no",
        ]
        for row in rows
    ]
    notes = [{"kind": "prose", "sentences": result["notes"]}] if result["notes"] else []
    return View(
        id=f"scores{end}",
        title=f"Scores{of}",
        says=f"Dots are means over seeds, bars hold the {name} of other examples and seeds with 95 % "
        f"confidence ({plural(result['count'], 'test example')}).",
        summary=f"{count(len(equals))} of {plural(len(rows), 'model')} may be the best: the first, and those that "
        "cannot be told apart from it."
        if len(equals) > 1
        else f"{_named(rows[0])} is told apart from all others.",
        table=table(heads, body),
        drawings=[drawing, *notes],
        misleads="Bars that overlap do not say that two models are alike: both were asked the same examples, and the "
        "difference is known better than either score. The pairs below say it.",
    )


def pairs(found: Comparison, result: dict[str, Any], end: str, of: str) -> View:
    """Every pair: the difference, the probability that the first is better, whether they can be told apart."""
    name, format = metric(result["metric"])
    rows = result["models"]
    names = [row["name"] for row in rows]
    best = names[0]
    against = [pair for name_ in names[1:] if (pair := found.difference(best, name_, result))]
    drawings: list[Drawing] = [
        make.rows(
            f"{best} less the others",
            [{"name": f"difference in {name}, 95 % interval", "format": format, "mark": "dot", "split": "test"}],
            [
                {
                    "label": pair["b"],
                    "note": "told apart" if pair["told_apart"] else "not told apart",
                    "cells": [{key: pair[key] for key in ("value", "low", "high")}],
                    "tip": [f"{best} less {pair['b']}", said(pair, format)],
                }
                for pair in against
            ],
        )
    ]
    if len(names) > 2:
        values = [[_better(found, result, a, b) for b in names] for a in names]
        drawings.append(
            make.matrix(
                "Probability that the model of the row is better than that of the column",
                values,
                ("better", names),
                ("worse", names),
                scale="amount",
                format="fraction",
            )
        )
    heads = {"pair": "text", "difference": format, "low": format, "high": format, "probability": "fraction"}
    heads |= {"p, corrected": "number", "told apart": "text"}
    every = [
        pair for number, a in enumerate(names) for b in names[number + 1 :] if (pair := found.difference(a, b, result))
    ]
    body = [
        [
            f"{pair['a']} less {pair['b']}",
            *(pair[key] for key in ("value", "low", "high", "probability", "p_corrected")),
            "yes" if pair["told_apart"] else "cannot be told apart",
        ]
        for pair in every
    ]
    apart = sum(pair["told_apart"] for pair in result["differences"])
    drawings.append({"kind": "prose", "title": "Every pair", "table": table(heads, body)})
    return View(
        id=f"pairs{end}",
        title=f"What can be told apart{of}",
        says="Models answered the same examples, so their differences are paired; p-values are corrected for the "
        "number of pairs (Holm), and 0.05 is the bound.",
        summary=f"{apart} of {plural(len(result['differences']), 'pair')} can be told apart.",
        table=table(heads, body),
        drawings=drawings,
        misleads="That two cannot be told apart is no proof that they are alike: more test examples or seeds may tell "
        "them.",
    )


def costs(result: dict[str, Any], end: str, of: str) -> View:
    """What each model costs beside its score, and those that none beats in both."""
    name, format = metric(result["metric"])
    rows = [row for row in result["models"] if row["value"] == row["value"]]
    by = [("training", "seconds", "seconds of training", "number")]
    by.append(("an answer", "milliseconds", "milliseconds for one example", "number"))
    by.append(("parameters", "parameters", "parameters", "count"))
    options = []
    for label, key, axis, kind in by:
        there = [row for row in rows if row.get(key)]
        if len(there) > 1:
            options.append({"name": label, "drawings": [_pareto(result, there, key, axis, kind)]})
    heads = {"model": "text", name: format, "seconds": "number", "ms an example": "number", "parameters": "count"}
    heads |= {"MACs": "count"}
    columns = ["name", "value", "seconds", "milliseconds", "parameters", "macs"]
    for key, head_ in (("memory", "MiB to train"), ("joules", "joules")):
        if any(row.get(key) is not None for row in rows):
            heads[head_] = "number"
            columns.append(key)
    body = [[_cost(row, key) for key in columns] for row in rows]
    fastest = min(rows, key=lambda row: row["seconds"])
    drawings: list[Drawing] = [make.choice(f"{capital(name)} over cost", "cost", options)] if options else []
    return View(
        id=f"costs{end}",
        title=f"What it costs{of}",
        says="On the steps, no model is as good for less. Seconds and memory are means of a model's trainings; "
        "milliseconds are medians of asking all models in turns, on this machine.",
        summary=f"{_named(fastest)} trains fastest, in {duration(fastest['seconds'])}"
        f"{', and is the best' if fastest is rows[0] else ''}.",
        table=table(heads, body),
        drawings=[*drawings, {"kind": "prose", "table": table(heads, body)}],
        misleads="Trainings that ran two at a time, or beside other work, took longer than they would alone. Memory is "
        "what the process held above what it held before. Parameters of simple models are not counted."
        + ("" if "joules" in heads else " Joules are not told: the machine does not say, or trainings ran together."),
    )


def ranks(found: Comparison) -> View:
    """The mean rank over data sets."""
    rows = sorted(found.ranks.items(), key=lambda one: one[1].value)
    drawing = make.rows(
        "Mean rank, 1 is the best",
        [{"name": "rank, 95 % interval", "format": "number", "mark": "dot", "split": "test"}],
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
        says=f"Ranks of the models that took all {len(found.results)} data sets; intervals from resampling data sets.",
        summary=f"{rows[0][0]} ranks best, {rows[0][1].value:.2f} on average.",
        table=table({"model": "text", "mean rank": "number", "low": "number", "high": "number"}, body),
        drawings=[drawing],
        misleads="A few data sets say little of others, and a rank nothing of how large a difference is.",
    )


def method(found: Comparison) -> View:
    """How it was done, with what would repeat it."""
    about = found.about
    rows = [["seeds", f"0 to {about['compare']['seeds'] - 1}"]]
    rows += [["processor threads of a training", str(about["threads"])]]
    if about["compare"]["trials"]:
        trials = f"{about['compare']['trials']} for each model, judged on the validation split"
        rows.append(["trials of settings before", trials])
    if "minutes" in about["given"]:
        said = "of the clock: beside other work fewer steps are made in them. max_steps and epochs repeat exactly"
        rows.append(["minutes", said])
    for result in found.results:
        rows.append([f"budget on {result['data_name']}", result["budget"]])
        rows.append([f"splits of {result['data_name']}", ", ".join(f"{k} {v:,}" for k, v in result["splits"].items())])
        for model, own in result["own_settings"].items():
            rows.append([f"{model}, by its card", ", ".join(f"{key}={value}" for key, value in own.items())])
    rows += [["Cutaway, PyTorch", f"{about['cutaway']}, {about['torch']}"]]
    return View(
        id="method",
        title="How it was done",
        says="All else is as each model's card has it, which `cutaway show MODEL` prints.",
        summary="Weights are those of the best validation epoch; each training opened the test split once, at its end.",
        table=table({"what": "text", "how": "text"}, rows),
        drawings=[{"kind": "prose", "table": table({"what": "text", "how": "text"}, rows), "command": command(found)}],
    )


def command(found: Comparison) -> str:
    """What was typed, or would be."""
    about = found.about
    own = {key: value for key, value in about["compare"].items() if key in ("seeds", "trials", "macs") and value}
    given = {**about["given"], **own}
    words = ["cutaway", "compare", ",".join(about["models"]), ",".join(about["data"])]
    return shlex.join([*words, *(f"{key}={value}" for key, value in given.items())])


def said(pair: Row, format: str) -> str:
    """A difference in words."""
    between = f"{written(pair['low'], format)} to {written(pair['high'], format)}"
    apart = "" if pair["told_apart"] else "; cannot be told apart"
    return f"{written(pair['value'], format)} ({between}), better with probability {pair['probability']:.2f}{apart}"


def _left_out(one: Row, where: str) -> str:
    """Why a model is left out; the reason names it, mostly."""
    named = "" if one["why"].startswith(one["model"]) else f"{one['model']}: "
    said = f"{where}{named}{one['why']}"
    return said if said.endswith(".") else f"{said}."


def _cost(row: Row, key: str) -> Any:
    """A cell of the table of costs: memory in MiB."""
    return row[key] / 2**20 if key == "memory" and row.get(key) is not None else row.get(key)


def _better(found: Comparison, result: dict[str, Any], a: str, b: str) -> float | None:
    pair = found.difference(a, b, result)
    return pair["probability"] if pair else None


def _pareto(result: dict[str, Any], rows: list[Row], key: str, axis: str, kind: str) -> Drawing:
    """Scores over a cost, with the front."""
    name, format = metric(result["metric"])
    sign = -1 if result["higher_is_better"] else 1
    front: list[Row] = []
    for row in sorted(rows, key=lambda row: (row[key], sign * row["value"])):
        if not front or sign * row["value"] < sign * front[-1]["value"]:
            front.append(row)
    return {
        "kind": "dots",
        "title": "",
        "x": axis,
        "x_format": kind,
        "log_x": True,
        "y": name,
        "format": format,
        "groups": GROUPS,
        "dots": [{"x": r[key], "y": r["value"], "group": int(r["simple"]), "tip": [r["name"]]} for r in rows],
        "steps": [[row[key], row["value"]] for row in front],
        "steps_name": "Pareto front",
        "chosen": rows.index(front[-1]),
        "name": front[-1]["name"],
    }


def _named(row: Row) -> str:
    """A model at the beginning of a sentence: a preset's name is written as it is typed."""
    return capital(row["name"]) if row["simple"] else str(row["name"])


def _value(result: dict[str, Any], row: Row) -> str:
    format = metric(result["metric"])[1]
    between = f"{written(row['low'], format)} to {written(row['high'], format)}"
    return f"{written(row['value'], format)} ({between})"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
