"""Draw what MAML and a pre-trained network make of ten points, images/learning/sinusoids.svg:
python docs/draw_sinusoids.py.

The curves and errors are those of the recipe maml-sinusoids, as results.json keeps them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from panels import BLUE, FAINT, HIGH, INK, LEFT, ORANGE, TOP, Panel, drawing

from cutaway.core.files import write_text

HERE = Path(__file__).parent
PATH = HERE / "images" / "learning" / "sinusoids.svg"
STEPS = (0, 1, 5, 10)
SHOWN = {0: "2 5", 1: "7 4", 10: ""}  # the numbers of steps whose curves are drawn, and how they are dashed
COLOURS = {"MAML": BLUE, "pre-trained": ORANGE}  # dashes tell them apart besides


def answers(place: int, name: str, drawn: dict[str, Any]) -> Panel:
    """What one network says of one sinusoid."""
    panel = Panel(place, (-5, 5), (-5, 5))
    panel.axes(name, (-5, 0, 5), (-4, -2, 0, 2, 4), "x")
    panel.curve(list(zip(drawn["x"], drawn["true"])), FAINT, width=5)
    for steps, dashes in SHOWN.items():
        panel.curve(list(zip(drawn["x"], drawn["said"][name][STEPS.index(steps)])), COLOURS[name], dashes)
    for x, y in drawn["points"]:
        panel.mark(x, y, INK)
    return panel


def errors(place: int, found: dict[str, list[dict[str, float]]]) -> Panel:
    """The squared error after each number of steps, with its interval."""
    most = max(metric["high"] for metrics in found.values() for metric in metrics)
    panel = Panel(place, (0, 10), (0, most))
    panel.axes("Squared error", STEPS, range(int(most) + 1), "gradient steps")
    for name, metrics in found.items():
        panel.curve([(s, m["value"]) for s, m in zip(STEPS, metrics)], COLOURS[name])
        for s, m in zip(STEPS, metrics):
            panel.curve([(s, m["low"]), (s, m["high"])], COLOURS[name], width=4)
            panel.mark(s, m["value"], COLOURS[name])
        x, y = panel.at(10, metrics[-1]["value"])
        panel.text(x - 4, y - 16, name, anchor="end", weight="bold")
    return panel


def picture(row: dict[str, Any]) -> str:
    """The three panels and what the lines are."""
    panels = [answers(k, name, row["drawn"]) for k, name in enumerate(COLOURS)] + [errors(2, row["errors"])]
    foot = Panel(0, (0, 1), (0, 1))
    x, y = LEFT, TOP + HIGH + 62
    foot.parts.append(f'<path d="M{x} {y - 4}h26" stroke="{FAINT}" stroke-width="5"/>')
    foot.text(x + 32, y, "the sinusoid")
    foot.parts.append(f'<circle cx="{x + 132}" cy="{y - 4}" r="3.5" fill="{INK}"/>')
    foot.text(x + 142, y, "its ten points")
    for k, (steps, dashes) in enumerate(SHOWN.items()):
        start = x + 250 + 150 * k
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        foot.parts.append(f'<path d="M{start} {y - 4}h30" stroke="{INK}" stroke-width="2"{dashed}/>')
        foot.text(start + 36, y, f"after {steps} step{'s' if steps != 1 else ''}")
    return drawing("A sinusoid learned from ten points by MAML and by a pre-trained network", [*panels, foot], 3)


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    write_text(PATH, picture(json.loads((HERE / "results.json").read_text())["maml-sinusoids"]))
    print(f"wrote {PATH.relative_to(HERE.parent)}")
