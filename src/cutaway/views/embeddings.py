"""Words and examples in a model's embedding space, their neighbours, and one word through the layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import SettingError
from ..core.spec import OF_TOKENS, Classes, Value
from ..data.dataset_base import IGNORED
from ..data.graphs.splits import LinkSplit
from ..draw import charts
from ..draw.description import Drawing, Table, View, table
from ..draw.number_format import count, number, percent, plural
from ..inspect.layers import layer_table
from ..inspect.projection import MEASURES, nearest_neighbors, pca, tsne, umap
from ..nn.modules import eval_mode
from .json_values import evenly_spaced, image_url
from .model_layers import find_embedding_table, has_enough_examples, head_input_function, hook_outputs
from .subject import Subject, graph_index, parse_choice

MOST = 4  # most occurrences of the word that are compared
AROUND = 6  # tokens shown on either side of the word


@dataclass(frozen=True)
class Occurrence:
    """One occurrence of the word in the examples."""

    example: int
    place: int  # index in the row of the batch
    before: list[str]
    word: str
    after: list[str]


def text_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks that a text passes through, in order; for an encoder–decoder, those of the encoder."""
    found: Any = getattr(model, "blocks", None) or getattr(model, "encoder", None)
    if not isinstance(found, nn.ModuleList):
        return []
    return list(found)


def strip_space_marks(token: str) -> str:
    """Return a token in lower case, without the signs that some tokenizers add for spaces."""
    return token.strip().strip("Ġ▁").removeprefix("##").removesuffix("</w>").lower()


def occurrences(subject: Subject) -> list[Occurrence]:
    """Return the occurrences of the selected word, or of the first word that occurs twice in the examples.

    The list is empty if no word occurs twice.

    Raises:
        SettingError: If the selected word does not occur twice.
    """
    asked = subject.options.get("word")
    places: dict[str, list[tuple[int, int, int]]] = {}
    texts = [subject.tokens(i) for i in range(len(subject.inputs[0]))]
    mask = subject.inputs[1]
    for i, text in enumerate(texts):
        real = mask[i].nonzero()[:, 0].tolist()
        for k, token in enumerate(text):
            places.setdefault(strip_space_marks(token), []).append((i, k, real[k]))
    if asked is not None:
        found = places.get(strip_space_marks(asked), [])
        if len(found) < 2:
            twice = [word for word, stands in places.items() if len(stands) > 1 and word]
            known = f" Words that do: {', '.join(twice[:12])}." if twice else " No word does."
            raise SettingError(
                f"Invalid word={asked}: occurs {plural(len(found), 'time')} as a single token in the examples; must "
                f"occur at least twice.{known}"
            )
    else:
        repeated = [word for word, stands in places.items() if len(stands) > 1]
        words = [word for word in repeated if word.isalpha() and len(word) > 3]
        words = words or [word for word in repeated if word.isalpha()] or [word for word in repeated if word]
        found = places[words[0]] if words else []
    return [
        Occurrence(i, place, texts[i][max(0, k - AROUND) : k], texts[i][k], texts[i][k + 1 : k + 1 + AROUND])
        for i, k, place in _diversify(found)
    ]


def _diversify(found: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return at most four occurrences, from as many different examples as possible."""
    first: dict[int, tuple[int, int, int]] = {}
    for place in found:
        first.setdefault(place[0], place)
    rest = [place for place in found if place not in first.values()]
    return sorted([*first.values(), *rest][:MOST])


@torch.no_grad()
def word_vectors(subject: Subject, found: Sequence[Occurrence]) -> Tensor:
    """Return the word's vectors before the first block and after each block, (layers + 1, occurrences, dim)."""
    rows = sorted({one.example for one in found})
    at = torch.tensor([rows.index(one.example) for one in found])
    places = torch.tensor([one.place for one in found])
    kept: list[Tensor] = []
    blocks = [name for name, module in subject.model.named_modules() if module in text_blocks(subject.model)]

    def see(name: str, block: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        for x in (output,) if kept else (args[0], output):
            kept.append(x[at, places].clone())

    with eval_mode(subject.model), hook_outputs(subject.model, see, blocks):
        subject.model(*(x[rows] for x in subject.inputs))
    return torch.stack(kept).double()


def word_drawings(subject: Subject) -> tuple[list[Drawing], str, list[list[Any]]]:
    """Return the drawings of one word, a summary, and its table rows; all are empty if no word occurs twice."""
    found = occurrences(subject)
    if not found:
        return [], "", []
    vectors = word_vectors(subject, found)  # (layers + 1, occurrences, dim)
    word = strip_space_marks(found[0].word) or found[0].word
    layers, count, _ = vectors.shape
    pairs = list(combinations(range(count), 2))
    cosines = {(a, b): F.cosine_similarity(vectors[:, a], vectors[:, b], dim=1).tolist() for a, b in pairs}
    series = [
        {"name": f"{a + 1} and {b + 1}", "points": [[k, float(f"{v:.4g}")] for k, v in enumerate(values)]}
        for (a, b), values in cosines.items()
    ]
    plane = pca(vectors.flatten(0, 1))
    points = [
        {
            "label": "in" if layer == 0 else str(layer),
            "group": k,
            "tip": ["before the first block" if layer == 0 else f"after block {layer}"],
        }
        for layer in range(layers)
        for k in range(count)
    ]
    at = [[float(f"{v:.4g}") for v in place] for place in plane.places.tolist()]
    drawn: list[Drawing] = [
        {
            "kind": "tokens",
            "title": f"“{word}” in its contexts",
            "scale": "amount",
            "key": False,
            "items": [
                {
                    "label": f"{k + 1}: {subject.name(one.example)}",
                    "tokens": [*one.before, one.word, *one.after],
                    "values": [*(None for _ in one.before), 1, *(None for _ in one.after)],
                    "warning": None,
                }
                for k, one in enumerate(found)
            ],
        },
        charts.lines(f"Cosine similarity between occurrences of “{word}”, by layer", "blocks", series, zero=False),
        {
            "kind": "scatter",
            "title": f"“{word}” after each block",
            "points": points,
            "groups": [f"{k + 1}: {_context(one)}" for k, one in enumerate(found)],
            "places": [{"name": "PCA", **axis_labels(plane.explained), "at": at}],
            "measures": [],
            "labels": True,
            "paths": [[layer * count + k for layer in range(layers)] for k in range(count)],
            "point": None,
        },
    ]
    least = min(cosines, key=lambda pair: cosines[pair][-1])
    said = (
        f"“{word}” occurs {plural(count, 'time')}. Occurrences {least[0] + 1} and {least[1] + 1} differ most: their "
        f"cosine similarity is {number(cosines[least][0])} before the first block and {number(cosines[least][-1])} "
        "after the last."
    )
    rows = [
        [f"“{word}”", f"{a + 1} and {b + 1}", f"cosine after {k} blocks", value]
        for (a, b), values in cosines.items()
        for k, value in enumerate(values)
    ]
    return drawn, said, rows


def axis_labels(explained: tuple[float, float] | None) -> dict[str, str]:
    """Return the labels of the axes of a plane."""
    if explained is None:
        return {"x": "", "y": ""}
    names = ("1st component", "2nd component")
    return {k: f"{name}, {percent(part)} of the variance" for k, name, part in zip("xy", names, explained)}


def _context(one: Occurrence) -> str:
    return " ".join(token.strip() for token in [*one.before[-2:], one.word, *one.after[:2]])


BETWEEN = "Cluster sizes and distances between clusters mean nothing."  # shown below the drawing

WORDS, EXAMPLES = 500, 500  # most words and examples that are shown
COST = 20e9  # most MACs spent on examples
CHUNK = 32  # examples in one pass
NEAR = 5  # neighbours
NAMED = 100  # nodes up to which all names are shown
SMALL, IMAGES = 28, 700_000  # pixels of an example's image, and most characters of all images
SPECIAL_TOKENS = {"<pad>", "<unk>", "(padding)", "(unknown)", "(begin)", "(end)", "[PAD]", "[UNK]", ""}
BLANKS = "\u0120\u2581"  # signs for a space before a word, in GPT-2's bytes and in SentencePiece


def draw_embeddings(subject: Subject) -> View:
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


# --- words --------------------------------------------------------------------------------------------------------


def _words(subject: Subject) -> Part | None:
    """Return the word embeddings with their nearest neighbors, or None without a table of tokens."""
    found = find_embedding_table(subject.model)
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
    if others is None and not has_enough_examples(subject):
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
            {"name": name, **axis_labels(plane.explained), "at": _round_to_lists(plane.places)}
            | ({"note": BETWEEN} if plane.explained is None else {})
            for name, plane in planes.items()
        ],
        "measures": [
            {"name": name, "of": indices.tolist(), "values": _round_to_lists(values)}
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


def _round_to_lists(values: Tensor) -> list[list[float]]:
    return [[float(f"{value:.3g}") for value in row] for row in values.tolist()]


def _one_word(subject: Subject) -> Part | None:
    """Return one word through the layers of a text Transformer."""
    if subject.family != "transformer" or subject.kind not in OF_TOKENS or not text_blocks(subject.model):
        return None
    return word_drawings(subject)
