"""Draw the pictures of docs/activations.md: python docs/draw_activations.py.

Every curve is computed: the functions and their derivatives by `nn.activations`, what networks of several widths learn
of a curve by training them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor

import cutaway
from cutaway.core.files import write_text
from cutaway.nn.activations import ACTIVATIONS, formula

IMAGES = Path(__file__).parent / "images"

# Blue and orange of M. Okabe's and K. Ito's palette; the derivative is dashed besides.
FUNCTION, DERIVATIVE, AXIS, INK = "#0072b2", "#d55e00", "#c8c8c8", "#222222"
REACH, LOW, HIGH = 4.0, -1.9, 2.9  # of z to either side, and of what is drawn over it
WIDE, TALL, MARGIN, GAP, COLUMNS = 200, 150, 24, 26, 4
POINTS = 161
SHOWN = [*(name for name in ACTIVATIONS if name != "leaky_relu"), "leaky_relu:0.2"]


def path(z: Tensor, y: Tensor, left: float, top: float) -> str:
    """A curve as the points of an SVG path; where it leaves the picture, or jumps, it begins anew."""
    x = left + (z + REACH) / (2 * REACH) * WIDE
    down = top + (HIGH - y) / (HIGH - LOW) * TALL
    words, pen = [], "M"
    for i in range(len(z)):
        if not LOW <= float(y[i]) <= HIGH or (i and abs(float(y[i] - y[i - 1])) > 0.5):
            pen = "M"
        if LOW <= float(y[i]) <= HIGH:
            words.append(f"{pen}{float(x[i]):.1f} {float(down[i]):.1f}")
            pen = "L"
    return " ".join(words)


def panel(name: str, left: float, top: float) -> list[str]:
    """One activation: its axes, its derivative and itself."""
    function, derivative = formula(name)
    z = torch.linspace(-REACH, REACH, POINTS, dtype=torch.float64)
    middle, zero, one = left + WIDE / 2, top + HIGH / (HIGH - LOW) * TALL, top + (HIGH - 1) / (HIGH - LOW) * TALL
    title = name.replace("_", " ").replace(":0.2", ", slope 0.2")
    return [
        f'<text x="{left}" y="{top - 8}" font-size="15" font-weight="bold" fill="{INK}">{title}</text>',
        f'<path d="M{left} {zero:.1f}H{left + WIDE}M{middle} {top}V{top + TALL}" stroke="{AXIS}" fill="none"/>',
        f'<path d="M{left} {one:.1f}H{left + WIDE}" stroke="{AXIS}" stroke-dasharray="1 4" fill="none"/>',
        f'<text x="{left + WIDE}" y="{zero + 13:.1f}" font-size="11" text-anchor="end" fill="{INK}">z = 4</text>',
        f'<text x="{middle + 4}" y="{one - 3:.1f}" font-size="11" fill="{INK}">1</text>',
        f'<path d="{path(z, derivative(z), left, top)}" stroke="{DERIVATIVE}" stroke-width="2" stroke-dasharray="6 3" '
        'fill="none"/>',
        f'<path d="{path(z, function(z), left, top)}" stroke="{FUNCTION}" stroke-width="2.5" fill="none"/>',
    ]


def activations() -> str:
    """All of them, four in a row."""
    rows = -(-len(SHOWN) // COLUMNS)
    width = 2 * MARGIN + COLUMNS * WIDE + (COLUMNS - 1) * GAP
    height = 2 * MARGIN + rows * (TALL + 20) + (rows - 1) * GAP + 34
    parts = []
    for k, name in enumerate(SHOWN):
        left = MARGIN + (k % COLUMNS) * (WIDE + GAP)
        parts += panel(name, left, MARGIN + 20 + (k // COLUMNS) * (TALL + 20 + GAP))
    foot = height - MARGIN
    parts += [
        f'<path d="M{MARGIN} {foot - 5}h34" stroke="{FUNCTION}" stroke-width="2.5"/>',
        f'<text x="{MARGIN + 42}" y="{foot}" font-size="13" fill="{INK}">g(z)</text>',
        f'<path d="M{MARGIN + 92} {foot - 5}h34" stroke="{DERIVATIVE}" stroke-width="2" stroke-dasharray="6 3"/>',
        f'<text x="{MARGIN + 134}" y="{foot}" font-size="13" fill="{INK}">its derivative g′(z)</text>',
    ]
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" role="img">\n'
        "<title>The activations and their derivatives</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n{lines}\n</svg>\n'
    )


WIDTHS = (1, 2, 4, 16)
LEARNING = {"model.activation": "tanh", "model.dropout": 0.0, "lr": 0.05, "batch_size": 32, "epochs": 60, "threads": 1}


def approximation() -> str:
    """What networks with 1, 2, 4 and 16 hidden neurons learn of `wave`."""
    width, height = 2 * MARGIN + len(WIDTHS) * WIDE + (len(WIDTHS) - 1) * GAP, 2 * MARGIN + TALL + 26
    parts = []
    for k, neurons in enumerate(WIDTHS):
        left, top = MARGIN + k * (WIDE + GAP), MARGIN + 20
        with tempfile.TemporaryDirectory() as folder:
            run = cutaway.train("mlp", "wave", out=Path(folder) / "run", tensorboard=False,
                                **{"model.hidden_dims": (neurons,), **LEARNING})  # fmt: skip
            found = cutaway.look(run.folder, view="function")["function"]
        (dots, *_), curve = found["drawings"][0]["series"], found["drawings"][0]["series"][-1]

        def place(x: float, y: float, left: float = left, top: float = top) -> tuple[float, float]:
            return left + (x + 3) / 6 * WIDE, top + (2.2 - y) / 4.4 * TALL

        line = "L".join("{:.1f} {:.1f}".format(*place(*point)) for point in curve["points"])
        error = run.evaluate()["rmse"].value
        title = f"{neurons} neuron{'s' if neurons > 1 else ''}, RMSE {error:.2f}"
        parts += [
            f'<text x="{left}" y="{top - 8}" font-size="15" font-weight="bold" fill="{INK}">{title}</text>',
            *(
                '<circle cx="{:.1f}" cy="{:.1f}" r="1.5" fill="{}"/>'.format(*place(*point), AXIS)
                for point in dots["points"]
            ),
            f'<path d="M{line}" stroke="{FUNCTION}" stroke-width="2.5" fill="none"/>',
        ]
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" role="img">\n'
        "<title>What networks of one hidden layer learn of a curve, by width</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n{lines}\n</svg>\n'
    )


if __name__ == "__main__":
    write_text(IMAGES / "activations.svg", activations())
    write_text(IMAGES / "approximation.svg", approximation())
    print("wrote docs/images/activations.svg and docs/images/approximation.svg")
