"""Train the recipes and hold them to their scores: python -m recipes [NAME ...] [--more].

A recipe is a TOML file in this folder: a model, data, settings, the published score, and what the score must be; with
`over`, one training for each value of a setting, and the mean of their scores.
Results are kept in docs/results.json and drawn as docs/results.md. With --more a recipe of one's own answers trains the
seeds that its row has not, and joins them with those that it has. Exit status 1 where a score is out of bounds.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import tomllib
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

import cutaway
from cutaway.apps.cli.arguments import flatten
from cutaway.apps.cli.train import format_metric as metric_figure
from cutaway.core.errors import CutawayError
from cutaway.core.metric_names import METRICS
from cutaway.core.metric_names import metric as words_of

from . import (
    distillation,
    drawing,
    minilm,
    pretraining,
    pruning,
    reasoning,
    robustness,
    searching,
    sinusoids,
    spring,
    word_vectors,
)
from .intervals import student

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "results.json"
PAGE = HERE.parent / "docs" / "results.md"

HEAD = """\
# Results

Every score was obtained by the command in its row, on the date and machine named. A run uses its test split once, at
the end. Without a test split, the score is that of the validation split, which is optimistic.

The 95 % confidence interval is for the score on further examples and says nothing about other seeds. For several runs
it is Student's interval of their mean. Some settings were chosen after such scores were known, so these scores are
slightly optimistic. `make recipes` trains all recipes again and fails if a score leaves its bounds.

*recorded* in the column of bounds: no bound is checked.

| recipe | command | score | 95 % interval | bounds | published | parameters | examples | time | date | machine |
| --- | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | --- | --- |
"""


def main(names: list[str]) -> int:
    """Train what is named, or all that this machine can; keep and draw the results."""
    failed, more = [], "--more" in names
    names = [name for name in names if name != "--more"]
    for path in sorted(HERE.glob("*.toml")):
        name = path.stem
        if names and name not in names:
            continue
        recipe = tomllib.loads(path.read_text()) | {"name": name}
        if recipe.get("device") == "cuda" and not torch.cuda.is_available() and not names:
            print(f"{name}: skipped, it needs a GPU", flush=True)
            continue
        if more and recipe.get("kind") != "own answers":
            print(f"{name}: skipped, --more is for recipes of one's own answers", flush=True)
            continue
        recipe |= {"record": results().get(name, {}) if more else {}, "keep": partial(keep, name)}
        try:
            row = KINDS.get(recipe.get("kind", ""), train)(recipe)
        except CutawayError as error:
            print(f"{name}: skipped, {error}", flush=True)
            continue
        keep(name, row)
        holds = recipe.get("at_least", -1e30) <= row["value"] <= recipe.get("at_most", 1e30)
        if "within" in recipe:
            holds &= abs(row["value"] - row["beside"][0][1]) <= recipe["within"]
        failed += [] if holds else [name]
        print(f"{name}: {line(recipe, row)}{'' if holds else '  OUT OF BOUNDS'}", flush=True)
    kept, recipes = results(), {p.stem: tomllib.loads(p.read_text()) for p in HERE.glob("*.toml")}
    PAGE.write_text(HEAD + "\n".join(line(recipes[n], kept[n]) for n in sorted(kept) if n in recipes) + "\n")
    return int(bool(failed))


def results() -> dict[str, Any]:
    """The rows that were obtained so far, by recipe."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def keep(name: str, row: dict[str, Any]) -> None:
    """Write a row beside those that there are by now: other recipes may have been trained meanwhile."""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results() | {name: row}, indent=1, ensure_ascii=False) + "\n")


def train(recipe: dict[str, Any]) -> dict[str, Any]:
    """One training, or one for each value of the setting in `over`, as a row of results."""
    ((key, values),) = recipe.get("over", {"": [None]}).items()
    rows = [once(recipe, {key: value} if key else {}) for value in values]
    if not key:
        return rows[0]
    return {
        **rows[0],
        "command": rows[0]["command"].replace(f"{key}={values[0]}", f"{key}={values[0]}…{values[-1]}"),
        **student([row["value"] for row in rows]),
        "beside": [[name, statistics.mean(dict(row["beside"])[name] for row in rows)] for name, _ in rows[0]["beside"]],
        "runs": len(rows),
        "count": sum(row["count"] for row in rows) if key == "fold" else rows[0]["count"],
        "seconds": sum(row["seconds"] for row in rows),
    }


def once(recipe: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """One training, as a row of results."""
    with tempfile.TemporaryDirectory() as folder:
        settings = minilm.in_place(flatten(recipe["settings"]) | more)
        run = cutaway.train(recipe["model"], recipe["data"], out=Path(folder) / "run", **settings)
        return {"command": minilm.hidden(run.about["command"]), **row_of(recipe, run)}


def row_of(recipe: dict[str, Any], run: cutaway.Run) -> dict[str, Any]:
    """What a run reached as a row of results; with `beams`, what as many hypotheses of beam search do beside it."""
    evaluation = json.loads((run.folder / "evaluation.json").read_text())
    about, metric = run.about, recipe["metric"]
    beams = {width: run.evaluate(num_beams=width)[metric].to_json() for width in recipe.get("beams", ())}
    return {
        **evaluation["metrics"][metric],
        "split": evaluation["split"],
        "count": evaluation["count"],
        "beside": [
            *([also.replace("_", " "), evaluation["metrics"][also]["value"]] for also in recipe.get("also", ())),
            *([b["name"], b[metric]["value"]] for b in evaluation.get("baselines", ()) if metric in b),
            *([f"num_beams={width}", found["value"]] for width, found in beams.items()),
        ],
        **({"beams": beams} if beams else {}),
        "parameters": about["parameters"],
        "seconds": about["seconds"],
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{about['machine']['threads']} threads, {about['machine']['device']}, "
        f"PyTorch {about['versions']['torch']}",
    }


def figure(metric: str, value: float) -> str:
    """A figure as people write it; a gain, which is a difference of fractions, in points."""
    return f"{100 * value:+.1f} points" if metric == "accuracy_gain" else metric_figure(metric, value)


def interval(metric: str, row: dict[str, Any]) -> str:
    """Return the interval of a score as people write it; only the forecast of a short series has none."""
    if row["low"] is None:
        return "none: too few windows"
    return f"{figure(metric, row['low'])} to {figure(metric, row['high'])}"


def machine(row: dict[str, Any]) -> str:
    """Return the machine of a row as people write it: 1 thread."""
    return row["machine"].replace("1 threads", "1 thread")


def duration(seconds: float | None) -> str:
    """Return a time as people write it; nothing where it was not measured."""
    if seconds is None:
        return ""
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def line(recipe: dict[str, Any], row: dict[str, Any]) -> str:
    """A result as a row of the page."""
    metric = recipe["metric"]
    bounds = [
        f"{sign} {figure(metric, recipe[key])}" for key, sign in (("at_least", "≥"), ("at_most", "≤")) if key in recipe
    ]
    if "within" in recipe:
        bounds.append(f"within {recipe['within']:g} of {row['beside'][0][0]}")
    score = f"{words_of(metric)[0]} {figure(metric, row['value'])}"
    if "runs" in row:
        score += f", mean of {row['runs']} runs"
    own = {name: name.replace(" ", "_") for name, *_ in row.get("beside", ())}  # other metrics, or other ways to guess
    beside = "; ".join(
        f"{words_of(own[name])[0] if own[name] in METRICS else name}: "
        f"{figure(of[0] if of else own[name] if own[name] in METRICS else metric, value)}"
        for name, value, *of in row.get("beside", ())
    )
    cells = (
        recipe["title"],
        f"`{row['command']}`",
        f"{score} ({beside})" if beside else score,
        interval(metric, row),
        " and ".join(bounds) or "recorded",
        recipe["published"],
        f"{row['parameters']:,}" if "parameters" in row else "",
        f"{row['count']} {row.get('split', 'test')}",
        duration(row["seconds"]),
        row["date"],
        machine(row),
    )
    return f"| {' | '.join(cells)} |"


KINDS = {
    "word vectors": word_vectors.train,
    "pre-training": pretraining.train,
    "distillation": distillation.train,
    "word in context": spring.train,
    "drawing": drawing.train,
    "robustness": robustness.train,
    "pruning": pruning.curve,
    "lottery ticket": pruning.lottery,
    "architecture search": searching.cells,
    "search": searching.settings,
    "sinusoids": sinusoids.train,
    "addition": reasoning.addition,
    "thoughts": reasoning.thoughts,
    "own answers": reasoning.own_answers,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
