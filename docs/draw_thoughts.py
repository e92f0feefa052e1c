"""Draw what chains and trees of thought solve for their tokens, and sums by form, images/reasoning/thoughts.svg:
python docs/draw_thoughts.py.

The figures are those of the recipes game24 and addition, as results.json keeps them.
"""

from __future__ import annotations

import json
import math
import statistics
import tomllib
from pathlib import Path
from typing import Any

from panels import BLUE, FAINT, GREEN, ORANGE, PURPLE, Panel, drawing

from cutaway.core.files import write_text

HERE = Path(__file__).parent
PATH = HERE / "images" / "reasoning" / "thoughts.svg"
COLOURS = {"plain": ORANGE, "reversed": BLUE, "scratchpad": GREEN}
# Where the name of a method stands beside its dot, in pixels, and which end of it.
BESIDE = {
    "answer alone": (8, 4, "start"),
    "chain": (8, 4, "start"),
    "tree, b = 1": (-8, 4, "end"),
    "tree, b = 5": (-8, -4, "end"),
    "likeliest of 20": (0, 26, "middle"),
}


def methods(found: dict[str, dict[str, list[float]]]) -> Panel:
    """The fraction that each method solves over the tokens that it takes, on a scale of doublings."""
    most = max(max(of["tokens"]) for of in found.values())
    panel = Panel(0, (4, math.ceil(math.log2(most))), (0, 1))
    ticks = range(4, math.ceil(math.log2(most)) + 1)
    panel.axes("Game of 24: solved", ticks, (0, 0.25, 0.5, 0.75, 1), "tokens for a puzzle, log₂")
    for name, of in found.items():
        x, y = math.log2(statistics.mean(of["tokens"])), statistics.mean(of["solved"])
        colour = PURPLE if "tree" in name else FAINT if "verified" in name else BLUE
        panel.curve([(x, min(of["solved"])), (x, max(of["solved"]))], colour, width=4)
        panel.mark(x, y, colour)
        across, down, anchor = BESIDE.get(name, (-8, 4, "end"))
        at = panel.at(x, y)
        panel.text(at[0] + across, at[1] + down, name, anchor=anchor, size=11)
    return panel


def sums(scores: dict[str, list[list[float]]], examples: list[int]) -> Panel:
    """The fraction of sums that are right over the number of examples."""
    places = [math.log10(count) for count in examples]
    panel = Panel(1, (places[0], places[-1]), (0, 1))
    panel.axes("Sums of three digits: solved", (), (0, 0.25, 0.5, 0.75, 1), "training examples")
    for count, place in zip(examples, places):
        at = panel.at(place, 0)
        panel.text(at[0], at[1] + 16, f"{count:,}", anchor="middle", size=11)
    for form, rows in scores.items():
        panel.curve([(x, statistics.mean(row)) for x, row in zip(places, rows)], COLOURS[form])
        for x, row in zip(places, rows):
            panel.curve([(x, min(row)), (x, max(row))], COLOURS[form], width=4)
            panel.mark(x, statistics.mean(row), COLOURS[form])
        at = panel.at(places[-1], statistics.mean(rows[-1]))
        panel.text(at[0] - 8, at[1] + (-10 if form == "plain" else 16), form, anchor="end", weight="bold")
    return panel


def picture(results: dict[str, Any]) -> str:
    """Both panels."""
    recipe = tomllib.loads((HERE.parent / "recipes" / "addition.toml").read_text())
    panels = [methods(results["game24"]["methods"]), sums(results["addition"]["scores"], recipe["examples"])]
    return drawing("What chains and trees of thought solve, and sums by form", panels, 2, foot=48)


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    write_text(PATH, picture(json.loads((HERE / "results.json").read_text())))
    print(f"wrote {PATH.relative_to(HERE.parent)}")
