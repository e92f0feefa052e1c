"""Draw what MAML and a pre-trained network make of ten points, images/learning/sinusoids.svg:
python docs/draw_sinusoids.py.

The curves and errors are those of the recipe maml-sinusoids, as results.json keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutaway.files import write_text

HERE = Path(__file__).parent
PATH = HERE / "images" / "learning" / "sinusoids.svg"
STEPS = (0, 1, 5, 10)
SHOWN = {0: "2 5", 1: "7 4", 10: ""}  # the numbers of steps whose curves are drawn, and how they are dashed
# M. Okabe's and K. Ito's palette, told apart by people with any colour vision; dashes tell them apart besides.
COLOURS = {"MAML": "#0072b2", "pre-trained": "#d55e00"}
INK, FAINT, GRID = "#222222", "#999999", "#e3e3e3"
WIDE, HIGH, LEFT, TOP, GAP = 250, 210, 44, 58, 62

Points = Sequence[tuple[float, float]]


class Panel:
    """A chart from x0 to x1 and from y0 to y1."""

    def __init__(self, place: int, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.left, self.x, self.y = LEFT + place * (WIDE + GAP), x, y
        self.parts: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point is, in pixels."""
        across, up = (x - self.x[0]) / (self.x[1] - self.x[0]), (y - self.y[0]) / (self.y[1] - self.y[0])
        return round(self.left + across * WIDE, 1), round(TOP + (1 - up) * HIGH, 1)

    def axes(self, title: str, xs: Sequence[float], ys: Sequence[float], below: str) -> None:
        """The title, and lines at these places."""
        self.text(self.left, TOP - 18, title, weight="bold", size=15)
        for y in ys:
            a, b = self.at(self.x[0], y), self.at(self.x[1], y)
            self.parts.append(f'<path d="M{a[0]} {a[1]}H{b[0]}" stroke="{GRID}"/>')
            self.text(a[0] - 6, a[1] + 4, f"{y:g}".replace("-", "−"), anchor="end", size=11)
        for x in xs:
            a = self.at(x, self.y[0])
            self.text(a[0], TOP + HIGH + 16, f"{x:g}".replace("-", "−"), anchor="middle", size=11)
        self.text(self.left + WIDE / 2, TOP + HIGH + 33, below, anchor="middle", size=12)

    def text(
        self, x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, weight: str = "normal"
    ) -> None:
        """A line of words."""
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{INK}">'
            f"{words}</text>"
        )

    def curve(self, points: Points, colour: str, dashes: str = "", width: float = 2) -> None:
        """A line through the points, which ends where it leaves the chart."""
        inside = [self.at(x, min(max(y, self.y[0]), self.y[1])) for x, y in points]
        path = "L".join(f"{x} {y}" for x, y in inside)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def mark(self, x: float, y: float, colour: str) -> None:
        """A dot."""
        across, down = self.at(x, y)
        self.parts.append(f'<circle cx="{across}" cy="{down}" r="3.5" fill="{colour}" stroke="#ffffff"/>')


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
    width, height = LEFT + 3 * WIDE + 2 * GAP + 16, TOP + HIGH + 84
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
    parts = "\n".join(part for panel in (*panels, foot) for part in panel.parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" role="img">\n'
        "<title>A sinusoid learned from ten points by MAML and by a pre-trained network</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n{parts}\n</svg>\n'
    )


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    write_text(PATH, picture(json.loads((HERE / "results.json").read_text())["maml-sinusoids"]))
    print(f"wrote {PATH.relative_to(HERE.parent)}")
