"""Draw the picture of docs/course/01-the-neuron.md: python docs/draw_neuron.py.

A nerve cell above, and below it, part under part, the neuron of the chapter.
"""

from __future__ import annotations

from pathlib import Path

from panels import BLUE, FAINT, GREEN, INK, ORANGE, PURPLE

from cutaway.core.files import write_text

PATH = Path(__file__).parent / "images" / "neuron.svg"
WIDTH, HEIGHT = 880, 470
CELL, UNIT = 150, 350  # the heights of both rows
COLUMNS = {"dendrites": 130, "nucleus": 330, "axon": 520, "terminals": 740}  # and where each part stands
COLOURS = {"dendrites": BLUE, "nucleus": ORANGE, "axon": GREEN, "terminals": PURPLE}
INPUTS = 3
SPREAD = 56  # pixels between inputs


def text(x: float, y: float, words: str, *, colour: str = INK, size: int = 15, weight: str = "normal") -> str:
    """A line of words, centred."""
    style = f'font-size="{size}" font-weight="{weight}" fill="{colour}" text-anchor="middle"'
    return f'<text x="{x}" y="{y}" {style}>{words}</text>'


def stroke(path: str, colour: str, width: float, more: str = "") -> str:
    """A line with round ends."""
    style = f'stroke="{colour}" stroke-width="{width}" stroke-linecap="round" stroke-linejoin="round"'
    return f'<path d="{path}" fill="none" {style}{more}/>'


def arrow(x1: float, y1: float, x2: float, y2: float, colour: str = INK) -> str:
    """A line with a head."""
    return stroke(f"M{x1} {y1}L{x2} {y2}", colour, 2, ' marker-end="url(#head)"')


def branches(x: float, y: float, direction: int, colour: str) -> list[str]:
    """Three branches that fork once each, from a point to the left (−1) or to the right (1)."""
    parts = []
    for k in range(INPUTS):
        end = y + (k - 1) * SPREAD
        middle, tip = x + direction * 58, x + direction * 112
        parts.append(
            stroke(f"M{x} {y}C{x + direction * 30} {y} {middle - direction * 24} {end} {middle} {end}", colour, 6)
        )
        for fork in (-16, 0, 16):
            parts.append(stroke(f"M{middle} {end}Q{middle + direction * 24} {end} {tip} {end + fork}", colour, 3))
    return parts


def cell() -> list[str]:
    """The nerve cell."""
    left, right = COLUMNS["nucleus"], COLUMNS["terminals"]
    parts = branches(left - 50, CELL, -1, BLUE)
    parts.append(stroke(f"M{left + 46} {CELL}H{right - 60}", GREEN, 8))
    parts += branches(right - 60, CELL, 1, PURPLE)
    for k in range(INPUTS):
        for fork in (-16, 0, 16):
            parts.append(f'<circle cx="{right + 52}" cy="{CELL + (k - 1) * SPREAD + fork}" r="4.5" fill="{PURPLE}"/>')
    points = []
    for k, (dx, dy) in enumerate(((-56, 0), (-30, -44), (14, -42), (52, 0), (14, 42), (-30, 44))):
        points.append(f"{'M' if k == 0 else 'L'}{left + dx} {CELL + dy}")
    body = f'fill="#fbe3d2" stroke="{ORANGE}" stroke-width="3" stroke-linejoin="round"'
    parts.append(f'<path d="{"".join(points)}Z" {body}/>')
    parts.append(f'<circle cx="{left - 4}" cy="{CELL}" r="17" fill="{ORANGE}"/>')
    for name, x, y in (
        ("dendrites", COLUMNS["dendrites"] + 60, CELL - 96),
        ("nucleus", left, CELL - 66),
        ("axon", COLUMNS["axon"], CELL - 18),
        ("terminals", right, CELL - 96),
    ):
        parts.append(text(x, y, name, colour=COLOURS[name], size=17, weight="bold"))
    return parts


def unit() -> list[str]:
    """The neuron of the chapter."""
    total, function, after = COLUMNS["nucleus"], COLUMNS["axon"], COLUMNS["terminals"]
    start = COLUMNS["dendrites"] - 20
    parts = []
    for k in range(INPUTS):
        y = UNIT + (k - 1) * SPREAD
        subscript = ("₁", "₂", "₃")[k]
        parts.append(text(start - 18, y + 5, f"x{subscript}", size=17))
        parts.append(arrow(start, y, total - 34, UNIT + (k - 1) * 14, BLUE))
        x = start + 78
        parts.append(text(x, y + (-9, -9, 20)[k] - (k - 1) * 18, f"w{subscript}", colour=BLUE, size=17, weight="bold"))
    parts += [
        f'<circle cx="{total}" cy="{UNIT}" r="28" fill="#fbe3d2" stroke="{ORANGE}" stroke-width="3"/>',
        text(total, UNIT + 8, "Σ", size=24, weight="bold"),
        arrow(total + 30, UNIT, function - 32, UNIT),
        text((total + function) / 2, UNIT - 10, "z"),
        f'<rect x="{function - 28}" y="{UNIT - 28}" width="56" height="56" rx="6" fill="#d8efe7" stroke="{GREEN}" '
        'stroke-width="3"/>',
        text(function, UNIT + 8, "g", size=22, weight="bold"),
        arrow(function + 30, UNIT, after - 28, UNIT, PURPLE),
        text(after, UNIT + 7, "y", colour=PURPLE, size=22, weight="bold"),
    ]
    under = UNIT + SPREAD + 42
    for x, words in (
        (start + 66, "weights"),
        (total, "weighted sum"),
        (function, "activation"),
        (after, "output"),
    ):
        parts.append(text(x, under, words, size=14))
    return parts


def drawing() -> str:
    """Both, with thin lines from part to part."""
    links = [
        stroke(f"M{x} {top}V{UNIT - low}", FAINT, 1, ' stroke-dasharray="2 5"')
        for x, top, low in (
            (COLUMNS["dendrites"] + 60, CELL + 84, 74),
            (COLUMNS["nucleus"], CELL + 52, 36),
            (COLUMNS["axon"], CELL + 12, 36),
            (COLUMNS["terminals"], CELL + 84, 24),
        )
    ]
    parts = "\n".join([*links, *cell(), *unit()])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" role="img">\n'
        "<title>A nerve cell and, below it, the neuron of the chapter</title>\n"
        '<defs><marker id="head" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L10 5L0 10Z" fill="{INK}"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>\n{parts}\n</svg>\n'
    )


if __name__ == "__main__":
    write_text(PATH, drawing())
    print("wrote docs/images/neuron.svg")
