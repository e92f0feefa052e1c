"""Write docs/vision.md and its pictures from the model files and their cards: python docs/make.py."""

from __future__ import annotations

import inspect
import math
import re
import textwrap
from html import escape
from pathlib import Path
from types import ModuleType

import torch

from cutaway.commands.show import setting_sentences
from cutaway.inspect.example import example_shape
from cutaway.inspect.layers import LayerTable, Row, layer_table, on_meta
from cutaway.models.card import Card
from cutaway.models.registry import Preset, presets
from cutaway.report.words import by, count
from cutaway.settings import as_text

HERE = Path(__file__).parent
PICTURES = HERE / "images" / "vision"
PAGE = HERE / "vision.md"
BOXES = 20  # blocks of a picture, at most
PASSED_BY = ("BatchNorm2d", "BatchNorm", "LayerNorm", "ReLU", "Identity", "Dropout")  # what changes no shape

HEAD = """\
# Networks that see

Each architecture is one file under [`src/cutaway/models`](../src/cutaway/models); this page is made from those files
and from the networks themselves, counted. `cutaway show NAME` shows any of them layer by layer. What a convolution
and a normalization are stands in [convolution.md](convolution.md).

In the pictures a block is as tall as its map and as deep as it has channels, both on a logarithmic scale, and as
coloured as it is made: {legend}.
"""


def main() -> None:
    """Write the page and a picture for each family."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page = page_text()
    for path, text in {PAGE: page, **pictures()}.items():
        path.write_text(text, encoding="utf-8")


def families() -> dict[ModuleType, list[Preset]]:
    """The files whose models take images alone, oldest paper first, with their presets."""
    found: dict[ModuleType, list[Preset]] = {}
    for preset in presets().values():
        if preset.takes == ("image",):
            found.setdefault(preset.module, []).append(preset)
    return dict(sorted(found.items(), key=lambda item: (item[0].CARD.year, item[0].__name__)))


def page_text() -> str:
    """docs/vision.md."""
    legend = ", ".join(f"{name} {kind}" for kind, (name, _) in COLOURS.items())
    parts = [HEAD.format(legend=legend)]
    parts += [section(module, of_family) for module, of_family in families().items()]
    return "\n".join(parts)


def section(module: ModuleType, of_family: list[Preset]) -> str:
    """One architecture: what it is, its equation, picture, presets, settings and divergences."""
    card: Card = module.CARD
    name = module.__name__.rpartition(".")[2]
    title, *_ = (inspect.getdoc(module) or "").split("\n\n")
    lines = [
        f"## {title.strip().rstrip('.')}",
        f"{card.authors}, [*{card.title}*]({card.link}), {card.year}. "
        f"[`models/{name}.py`](../src/cutaway/models/{name}.py)",
        f"```\n{card.equation}\n```",
        f"![The blocks of {of_family[0].name}](images/vision/{name}.svg)",
        block_diagram(module),
        preset_table(of_family),
        f"Held to: {card.oracle}.",
        setting_list(module),
        divergence_list(card),
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


def block_diagram(module: ModuleType) -> str:
    """The drawing of the blocks in the file's docstring, if there is one, with the heading above it."""
    doc = inspect.getdoc(module) or ""
    for paragraph in re.split(r"\n(?=\S)", doc):
        groups = [g for g in re.split(r"\n\s*\n", paragraph.partition("\n")[2]) if g.strip()]
        drawn = [i for i, group in enumerate(groups) if any(sign in group for sign in "│─▼┐└┌→")]
        if drawn:
            first = drawn[0] - 1 if drawn[0] and "=" not in groups[drawn[0] - 1] else drawn[0]
            text = textwrap.dedent("\n\n".join(groups[first : drawn[-1] + 1]).strip("\n"))
            return f"```\n{text}\n```"
    return ""


def preset_table(of_family: list[Preset]) -> str:
    """The presets with their counts."""
    rows = [
        "| preset | parameters | multiply-adds | for one example of | smallest image |",
        "| --- | ---: | ---: | --- | ---: |",
    ]
    for preset in of_family:
        layers = counted(preset)
        sizes = preset.image_sizes(preset.config)
        least = f"{sizes.only} alone" if sizes.only else str(sizes.enough(1))
        shape = by(layers.input[1:])
        rows.append(
            f"| `{preset.name}` | {count(layers.parameters)} | {count(layers.multiply_adds)} | {shape} | {least} |"
        )
    return "\n".join(rows)


def setting_list(module: ModuleType) -> str:
    """The model's settings with what they mean."""
    said = setting_sentences(module.Config)
    default = next(iter(module.PRESETS.values()))
    lines = [f"- `{key}={as_text(getattr(default, key))}`: {what}" for key, what in said.items() if what]
    return f"Settings, as `model.KEY=value`, with those of `{next(iter(module.PRESETS))}`:\n\n" + "\n".join(lines)


def divergence_list(card: Card) -> str:
    """Where the paper, this file and the checkpoints in circulation are not the same network."""
    if not card.divergences:
        return ""
    rows = ["| where they differ | paper | here | circulating |", "| --- | --- | --- | --- |"]
    rows += [f"| {d.what} | {d.paper} | {d.here} | {d.circulating} |" for d in card.divergences]
    return "\n".join(rows)


def counted(preset: Preset) -> LayerTable:
    """The layer table of a preset, for the example that its published counts are for."""
    shape = example_shape(preset, preset.config)
    return layer_table(on_meta(preset, preset.config), torch.empty(1, *shape, device="meta"))


# --- the pictures ---------------------------------------------------------------------------------------------------

# Told apart by the commonest kinds of colour blindness, and by their labels without any colour (after Okabe and Ito).
COLOURS = {
    "convolution": ("blue", "#7fb2e5"),
    "pooling": ("green", "#8fd0b5"),
    "attention": ("purple", "#c9a2d8"),
    "matrix product": ("orange", "#f2b872"),
    "other": ("grey", "#d0d4d9"),
}
INK, PAPER = "#1c2733", "#ffffff"
GAP, MARGIN, TURN = 18, 26, 38  # pixels between boxes, around all; degrees by which labels are turned


def pictures() -> dict[Path, str]:
    """An SVG for the first preset of each family."""
    return {
        PICTURES / f"{module.__name__.rpartition('.')[2]}.svg": picture(of_family[0])
        for module, of_family in families().items()
    }


def picture(preset: Preset) -> str:
    """The blocks of a preset from left to right, as tall as their maps and as deep as they have channels."""
    layers = counted(preset)
    rows = drawn_rows(layers)
    blocks = [("image", layers.input[1:], "other", PAPER)]
    for row in rows:
        kind = kind_of(row, layers)
        blocks.append((row.name, row.shape[1:], kind, COLOURS[kind][1]))
    highest = max(tall(shape) for _, shape, _, _ in blocks)
    lean = max(skew(shape) for _, shape, _, _ in blocks)
    middle = 48 + lean + highest / 2
    labels = middle + highest / 2 + 16  # where they begin
    longest = 6.8 * max(len(name) for name, *_ in blocks)  # pixels, about
    x, drawn = float(MARGIN), []
    for name, shape, kind, colour in blocks:
        drawn.append(box(x, middle, labels, shape, name, kind, colour))
        x += max(depth(shape[0]), 14) + skew(shape) + GAP
    width = math.ceil(x + longest * math.cos(math.radians(TURN)))
    height = math.ceil(labels + longest * math.sin(math.radians(TURN)) + 30)
    said = ", then ".join(f"{name} {by(shape)}" for name, shape, _, _ in blocks)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(f"{preset.name}: {said}")}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>\n'
        f'<text x="{MARGIN}" y="30" font-size="15" font-weight="600">{escape(preset.name)}</text>\n'
        + "\n".join(drawn)
        + "\n</svg>\n"
    )


def drawn_rows(layers: LayerTable) -> list[Row]:
    """What is drawn: the layers as deep inside as there is room for, without those that change no shape."""
    found: list[Row] = []
    for depth in range(layers.depth, 0, -1):
        found = [r for r in layers.at(depth) if r.shape and r.name != "(model)" and r.type not in PASSED_BY]
        if len(found) <= BOXES:
            break
    return found


def box(x: float, middle: float, labels: float, shape: tuple[int, ...], name: str, kind: str, colour: str) -> str:
    """One block as a cuboid around the height `middle`, its name and the shape of what it gives from `labels` on."""
    high, deep, lean = tall(shape), depth(shape[0]), skew(shape)
    top = middle - high / 2
    front = f"M{x:.1f} {top:.1f}h{deep:.1f}v{high:.1f}h-{deep:.1f}z"
    lid = f"M{x:.1f} {top:.1f}l{lean:.1f} -{lean:.1f}h{deep:.1f}l-{lean:.1f} {lean:.1f}z"
    side = f"M{x + deep:.1f} {top:.1f}l{lean:.1f} -{lean:.1f}v{high:.1f}l-{lean:.1f} {lean:.1f}z"
    return (
        f'<g stroke="{INK}" stroke-width=".8" stroke-linejoin="round" fill="{colour}">'
        f'<path d="{front}"/><path d="{lid}" fill-opacity=".6"/><path d="{side}" fill-opacity=".8"/>'
        f"<title>{escape(f'{name}: {by(shape)}, {kind}')}</title></g>"
        f'<g transform="translate({x:.1f} {labels:.1f}) rotate({TURN})"><text>{escape(name)}</text>'
        f'<text y="14" font-size="11" fill-opacity=".7">{by(shape)}</text></g>'
    )


def tall(shape: tuple[int, ...]) -> float:
    """The height of a box: logarithmic in the map's height; a vector is as tall as a map of one pixel."""
    return 14 + 17 * math.log2(1 + (shape[1] if len(shape) == 3 else 1)) - 17


def depth(channels: int) -> float:
    """The depth of a box, logarithmic in its channels."""
    return 5 + 3.2 * math.log2(1 + channels)


def skew(shape: tuple[int, ...]) -> float:
    """How far the lid leans to the right: with the map's width."""
    return 0.28 * tall(shape)


def kind_of(row: Row, layers: LayerTable) -> str:
    """What a block is mostly made of: the kind of layer in it that multiplies most."""
    inside = [r for r in layers.rows if r.name == row.name or r.name.startswith(f"{row.name}.")] or [row]
    if any("attention" in r.name.lower() or "attention" in r.type.lower() for r in inside):
        return "attention"
    cost = {"convolution": 0, "matrix product": 0}
    for r in inside:
        kind = "convolution" if len(r.shape) == 4 else "matrix product"  # it gives a map, or vectors
        cost[kind] += r.multiply_adds or 0
    if any(cost.values()):
        return max(cost, key=lambda kind: cost[kind])
    return "pooling" if "pool" in row.name.lower() or "Pool" in row.type else "other"


if __name__ == "__main__":
    main()
