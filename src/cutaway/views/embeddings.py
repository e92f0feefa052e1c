"""Words and examples in a model's embedding space, their neighbours, and one word by layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..core.spec import OF_TOKENS, Classes, Value
from ..data.dataset_base import IGNORED
from ..data.graphs.splits import LinkSplit
from ..draw.description import Drawing, Table, View, table
from ..draw.number_format import count, number, percent, plural
from ..inspect.layers import layer_table
from ..inspect.projection import MEASURES, nearest_neighbors, pca, tsne, umap
from ..nn.eval_mode import eval_mode
from . import contextual_embedding
from .common import evenly_spaced, graph_index, head_input_function, parse_choice
from .json_values import image_url
from .subject import Subject

SAYS = "embeddings of words and examples: PCA and t-SNE, nearest neighbors, one word through the layers"
READ = (
    "Each mark is a high-dimensional vector, projected to a plane: marks that are close are similar to the model. "
    "Point at a mark to see lines to its nearest neighbors in the full space, which need not be its neighbors in the "
    "plane. PCA keeps the directions of largest variance, and its axes show how much; t-SNE and UMAP (on request) keep "
    "neighborhoods. The last drawings follow one word through the blocks: it starts as one vector and separates by "
    "context."
)
MISLEADS = (
    "In t-SNE, cluster sizes and distances between clusters mean nothing, and clusters can appear in noise "
    "(Wattenberg, Viégas and Johnson 2016, https://doi.org/10.23915/distill.00002). The same holds for UMAP: its "
    "large-scale layout is that of its initialization, here PCA (Kobak and Linderman 2021, "
    "https://doi.org/10.1038/s41587-020-00809-z). PCA shows only the fraction of the variance that its axes name: "
    "marks that are close may be far apart in other directions. The dot product favors long vectors, so frequent words "
    "are neighbors of everything. Transformer embeddings are anisotropic, so any two cosines look similar (Ethayarajh "
    "2019, https://arxiv.org/abs/1909.00512): compare cosines with each other, not with 0."
)
OPTIONS: dict[str, str] = {
    "word": "word to follow through the layers: word=spring",
    "plane": "an additional projection by UMAP, about half a minute, needs the extra cutaway[umap]: plane=umap",
}
BETWEEN = "Cluster sizes and distances between clusters mean nothing."  # shown below the drawing

WORDS, EXAMPLES = 500, 500  # most words and examples that are shown
COST = 20e9  # most MACs spent on examples
CHUNK = 32  # examples in one pass
NEAR = 5  # neighbours
NAMED = 100  # nodes up to which all names are shown
SMALL, IMAGES = 28, 700_000  # pixels of an example's image, and most characters of all images
SPECIAL_TOKENS = {"<pad>", "<unk>", "(padding)", "(unknown)", "(begin)", "(end)", "[PAD]", "[UNK]", ""}
BLANKS = "\u0120\u2581"  # signs for a space before a word, in GPT-2's bytes and in SentencePiece


def suits(subject: Subject) -> bool:
    """Return whether the model has word embeddings, or enough examples to compare."""
    if _embedding_table(subject.model) is not None:
        return True
    known = subject.run is not None or subject.whole is not None
    return head_input_function(subject) is not None and (known or _has_enough_examples(subject))


def view(subject: Subject) -> View:
    """Return the embeddings of examples and words, and one word through the layers.

    Raises:
        SettingError: If the selected word does not occur twice in the examples, or UMAP is selected and not installed.
    """
    parts = [part for part in (_examples(subject), _words(subject), _one_word(subject)) if part is not None]
    drawings = [drawing for drawn, _, _ in parts for drawing in drawn]
    said = " ".join(words for _, words, _ in parts if words)
    if not drawings:
        said = said or "Too few examples: at least three are needed, or the data of the run."
        drawings = [{"kind": "prose", "title": "Nothing to draw", "sentences": [said]}]
    return View(
        id="embeddings",
        title="Embeddings",
        says="Marks that are close are similar to the model; point at one to see its nearest neighbors.",
        summary=said,
        table=_numbers([row for _, _, rows in parts for row in rows]),
        drawings=drawings,
    )


Part = tuple[list[Drawing], str, list[list[Any]]]  # drawings, summary, rows of the table


def _numbers(rows: list[list[Any]]) -> Table:
    return table({"of": "text", "at": "text", "what": "text", "value": "number"}, rows)


def _embedding_table(model: nn.Module) -> nn.Embedding | None:
    """Return the embedding table of the model, or None."""
    found = getattr(model, "embedding", None)
    return found if isinstance(found, nn.Embedding) and found.num_embeddings > 2 else None


def _has_enough_examples(subject: Subject) -> bool:
    """Return whether there are at least three examples; in a single graph the examples are its nodes."""
    if subject.preset.card.card.family == "words" or head_input_function(subject) is None:
        return False
    return len(subject.inputs[0]) >= 3


# --- words --------------------------------------------------------------------------------------------------------


def _words(subject: Subject) -> Part | None:
    found = _embedding_table(subject.model)
    if found is None or subject.kind not in OF_TOKENS:
        return None
    written = subject.vocabulary(0)
    ids = _rank_tokens(subject, written, found.num_embeddings)
    shown = ids[:WORDS]
    vectors = found.weight.detach()[shown]
    labels = [written[i] if i < len(written) else f"token {i}" for i in shown]
    points = [{"label": label, "group": None, "tip": [f"token {i}"]} for label, i in zip(labels, shown)]
    most = f", {count(len(shown))} of {count(len(ids))}: those of the examples, then the first of the vocabulary"
    more = most if len(shown) < len(ids) else ""
    return _part(subject, f"Words{more}", points, [], vectors, labels=True, what="word")


def _rank_tokens(subject: Subject, written: list[str], size: int) -> list[int]:
    """Return the tokens to show, in order.

    The tokens of the opened examples come first, then the vocabulary in its own order, which in nearly all vocabularies
    is the order of frequency. Whole words precede pieces and single letters. Tokens that represent no text, such as
    BERT's [unused7], are left out.
    """
    ids = [i for i in range(size) if i >= len(written) or not _is_special_token(written[i])]
    here = set(subject.inputs[0].flatten().tolist()) if subject.split is not None and subject.rows else set()

    def rank(i: int) -> tuple[bool, bool]:
        word = written[i].lstrip(BLANKS) if i < len(written) else ""
        return i not in here, not (len(word) > 1 and word.isalpha())

    return sorted(ids, key=rank)


def _is_special_token(token: str) -> bool:
    return token in SPECIAL_TOKENS or re.fullmatch(r"\[[A-Za-z]+\d*\]|<[/a-z|]+\d*\|?>", token) is not None


# --- examples -----------------------------------------------------------------------------------------------------


def _examples(subject: Subject) -> Part | None:
    """Return the input of the head for each example, coloured by class."""
    if subject.preset.card.card.family == "words" or head_input_function(subject) is None:
        return None
    if isinstance(subject.split, LinkSplit):
        return _nodes(subject, subject.split)
    known = subject.run is not None or subject.whole is not None
    others = subject.others(_affordable(subject)) if known else None
    many = others or subject
    if others is None and not _has_enough_examples(subject):
        return None
    vectors = _features(many)
    finite = vectors.isfinite().all(1)
    if int(finite.sum()) < 1:
        return [], "The vectors of the examples are not finite and cannot be projected.", []
    which = finite.nonzero()[:, 0].tolist()
    groups, group_of = _groups(many, len(vectors))
    images = _images(many, which)
    points: list[dict[str, Any]] = []
    for i in which:
        point: dict[str, Any] = {"label": _name(many, i), "group": group_of[i]}
        points.append(point | ({"image": images[i]} if i in images else {}))
    what = "node" if many.kind == "graph" and graph_index(many.inputs) is None else "example"
    title = f"{plural(len(points), what)} before the head"
    valued = isinstance(getattr(many.spec, "target", None), Value)
    alike = "in the same third of the values" if valued else "of the same class"
    return _part(subject, title, points, groups, vectors[finite], labels=False, what=what, alike=alike)


def _nodes(subject: Subject, split: LinkSplit) -> Part:
    """Return the embeddings of nodes for link prediction; an even subset if there are many."""
    model: Any = subject.model
    with eval_mode(model), torch.no_grad():
        z: Tensor = model.features(*subject.inputs[:2])
    shown = evenly_spaced(range(len(z)), EXAMPLES)
    names = split.node_names()
    points = [{"label": names[i], "group": None} for i in shown]
    some = f"{plural(len(shown), 'node')}{f' of {count(len(z))}' if len(shown) < len(z) else ''}"
    title = f"{some} before the decoder"
    return _part(subject, title, points, [], z[shown], labels=len(shown) <= NAMED, what="node")


def _affordable(subject: Subject) -> int:
    """Return the number of examples that can be run within about a second."""
    if subject.kind == "graph":
        return EXAMPLES
    costs = layer_table(subject.model, *(x[:1] for x in subject.inputs)).multiply_adds
    return max(16, min(EXAMPLES, int(COST / max(1, costs))))


@torch.no_grad()
def _features(subject: Subject) -> Tensor:
    """Return the input of the head, (n, dim); the mean over real positions if it has a vector for each."""
    features, inputs = head_input_function(subject), subject.inputs
    assert features is not None, "suits() checks for it"
    with eval_mode(subject.model):
        if subject.kind == "graph":
            found = [features(*inputs)]
        else:
            starts = range(0, len(inputs[0]), CHUNK)
            found = [_flat(subject, features(*(x[a : a + CHUNK] for x in inputs)), a) for a in starts]
    return torch.cat(found).flatten(1)


def _flat(subject: Subject, x: Tensor, start: int) -> Tensor:
    """Reduce (n, T, dim) or (n, dim, H, W) to the mean over real positions, (n, dim)."""
    if x.ndim == 4:  # a vector for each position of an image
        return x.mean((2, 3))
    if x.ndim != 3:
        return x.flatten(1)
    size, real = x.shape[:2], None
    for mask in subject.inputs[1:]:
        part = mask[start : start + len(x)]
        if mask.dtype == torch.bool and part.shape == size and subject.kind != "seq2seq":
            real = part
    target = subject.target
    if subject.kind == "seq2seq" and target is not None and target[start : start + len(x)].shape == size:
        real = target[start : start + len(x)] != IGNORED
    if real is None:
        return x.mean(1)
    weights = real.to(x)[..., None]  # (n, T, 1)
    return (x * weights).sum(1) / weights.sum(1).clamp(min=1)


def _groups(subject: Subject, n: int) -> tuple[list[str], list[int | None]]:
    """Return the names of the groups and the group of each example: classes, or thirds of values from low to high."""
    target, aim = subject.target, getattr(subject.spec, "target", None)
    nobody: tuple[list[str], list[int | None]] = ([], [None] * n)
    if target is None or len(target) != n or target.numel() != n:
        return nobody
    flat = target.flatten()
    if isinstance(aim, Classes):
        found = [int(k) for k in flat.tolist()]
        if all(0 <= k < len(aim.names) for k in found):
            return [str(name) for name in aim.names], list(found)
        return nobody
    if isinstance(aim, Value) and n >= 3:
        bounds = flat.double().quantile(torch.tensor([1 / 3, 2 / 3], dtype=torch.float64))
        shown = bounds * aim.scale + aim.mean  # in the target's units
        low, high = (number(float(bound)) for bound in shown)
        thirds = torch.bucketize(flat.double(), bounds).tolist()
        return [f"up to {low}", f"{low} to {high}", f"above {high}"], [int(k) for k in thirds]
    return nobody


def _name(subject: Subject, i: int) -> str:
    if subject.split is None and subject.kind == "graph":
        return f"node {i}"
    return subject.name(i)


def _images(subject: Subject, which: Sequence[int]) -> dict[int, str]:
    """Return small images of the first examples, up to the size limit."""
    found: dict[int, str] = {}
    room = IMAGES
    for i in which:
        given = subject.image(i) if subject.split is not None else None
        if given is None:
            break
        found[i] = image_url(given, SMALL)
        room -= len(found[i])
        if room < 0:
            break
    return found


# --- both ---------------------------------------------------------------------------------------------------------


def _part(
    subject: Subject,
    title: str,
    points: list[dict[str, Any]],
    groups: list[str],
    vectors: Tensor,
    *,
    labels: bool,
    what: str,
    alike: str = "of the same class",
) -> Part:
    """Return a drawing of vectors (n, dim) with the neighbours of each, a summary, and the table rows."""
    flat = pca(vectors)
    found = {"PCA": flat, "t-SNE": tsne(vectors)}
    if parse_choice(subject.options, "plane", ["umap"], "plane"):
        found["UMAP"] = umap(vectors)
    planes = {name: plane for name, plane in found.items() if plane is not None}
    near = {name: nearest_neighbors(vectors, name, NEAR) for name in MEASURES}
    drawing: Drawing = {
        "kind": "scatter",
        "title": title,
        "points": points,
        "groups": groups,
        "places": [
            {"name": name, **contextual_embedding.axis_labels(plane.explained), "at": _rounded(plane.places)}
            | ({"note": BETWEEN} if plane.explained is None else {})
            for name, plane in planes.items()
        ],
        "measures": [
            {"name": name, "of": indices.tolist(), "values": _rounded(values)}
            for name, (indices, values) in near.items()
        ],
        "labels": labels,
        "point": 0,
    }
    assert flat.explained is not None, "PCA has axes"
    kept = sum(flat.explained)
    said = [
        f"{plural(len(points), what)} of {plural(vectors.shape[1], 'number')}; two principal components hold "
        f"{percent(kept)} of the variance ({percent(flat.explained[0])} and {percent(flat.explained[1])})."
    ]
    indices, values = near["cosine"]
    if len(points) > 1:
        best = int(values[:, 0].argmax())
        said.append(
            f"The nearest two by cosine are {_pair(points, best, int(indices[best, 0]), what)}, "
            f"{number(float(values[best, 0]))}."
        )
    if groups and len(points) > 1:
        own = torch.tensor([point["group"] for point in points])
        same = (own[indices] == own[:, None]).double().mean()
        said.append(f"Of the {indices.shape[1]} nearest by cosine {percent(float(same))} are {alike}.")
    rows = [
        [points[i]["label"], points[int(indices[i, 0])]["label"], "cosine of the nearest", float(values[i, 0])]
        for i in range(len(points) if len(points) > 1 else 0)
    ]
    return [drawing], " ".join(said), rows


def _pair(points: list[dict[str, Any]], first: int, second: int, what: str) -> str:
    """Return two points by name; words are quoted, because a word may be a comma."""
    names = [str(points[i]["label"]) for i in (first, second)]
    return " and ".join(repr(name) if what == "word" else name for name in names)


def _rounded(values: Tensor) -> list[list[float]]:
    return [[float(f"{value:.3g}") for value in row] for row in values.tolist()]


def _one_word(subject: Subject) -> Part | None:
    """Return one word through the layers of a text Transformer."""
    if (
        subject.family != "transformer"
        or subject.kind not in OF_TOKENS
        or not contextual_embedding.text_blocks(subject.model)
    ):
        return None
    return contextual_embedding.word_drawings(subject)
