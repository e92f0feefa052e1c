"""Train the recipes and hold them to their figures: python -m recipes [NAME ...].

A recipe is a TOML file in this folder: a model, data, settings, the published figure, and what the score must be.
Results are kept in docs/results.json and drawn as docs/results.md. Exit status 1 where a score is out of bounds.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import cutaway
from cutaway.commands.train import figure
from cutaway.commands.words import flatten
from cutaway.errors import CutawayError

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "results.json"
PAGE = HERE.parent / "docs" / "results.md"

HEAD = """\
# Results

Every score was obtained by the command beside it, on the date and machine named; a run opens its test part once, at
the end. The interval holds the score of further test examples with 95 % confidence and says nothing of other seeds.
Some settings were chosen after such scores had been seen, which flatters them a little.
`make recipes` trains them again and fails where a score leaves its bounds.

| recipe | command | score | 95 % interval | must be | published | test examples | time | date | machine |
| --- | --- | ---: | ---: | ---: | --- | ---: | ---: | --- | --- |
"""


def main(names: list[str]) -> int:
    """Train what is named, or all that this machine can; keep and draw the results."""
    kept: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    failed = []
    for path in sorted(HERE.glob("*.toml")):
        name = path.stem
        if names and name not in names:
            continue
        recipe = tomllib.loads(path.read_text())
        if recipe.get("device") == "cuda" and not torch.cuda.is_available() and not names:
            print(f"{name}: skipped, it needs a GPU", flush=True)
            continue
        try:
            row = train(recipe)
        except CutawayError as error:
            print(f"{name}: skipped, {error}", flush=True)
            continue
        kept[name] = row
        holds = recipe.get("at_least", -1e30) <= row["value"] <= recipe.get("at_most", 1e30)
        failed += [] if holds else [name]
        print(f"{name}: {line(recipe, row)}{'' if holds else '  OUT OF BOUNDS'}", flush=True)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    recipes = {p.stem: tomllib.loads(p.read_text()) for p in HERE.glob("*.toml")}
    PAGE.write_text(HEAD + "\n".join(line(recipes[n], kept[n]) for n in sorted(kept) if n in recipes) + "\n")
    return int(bool(failed))


def train(recipe: dict[str, Any]) -> dict[str, Any]:
    """One training, as a row of results."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = cutaway.train(recipe["model"], recipe["data"], out=out, **flatten(recipe["settings"]))
        evaluation = json.loads((run.folder / "evaluation.json").read_text())
        about = run.about
        return {
            "command": about["command"],
            **evaluation["measures"][recipe["metric"]],
            "count": evaluation["count"],
            "seconds": about["seconds"],
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": f"{about['machine']['threads']} threads, {about['machine']['device']}, "
            f"PyTorch {about['versions']['torch']}",
        }


def line(recipe: dict[str, Any], row: dict[str, Any]) -> str:
    """A result as a row of the page."""
    metric = recipe["metric"]
    bounds = [
        f"{sign} {figure(metric, recipe[key])}" for key, sign in (("at_least", "≥"), ("at_most", "≤")) if key in recipe
    ]
    cells = (
        recipe["title"],
        f"`{row['command']}`",
        f"{metric} {figure(metric, row['value'])}",
        f"{figure(metric, row['low'])} to {figure(metric, row['high'])}",
        " and ".join(bounds) or "recorded",
        recipe["published"],
        str(row["count"]),
        f"{row['seconds'] / 60:.1f} min" if row["seconds"] >= 60 else f"{row['seconds']:.0f} s",
        row["date"],
        row["machine"],
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
