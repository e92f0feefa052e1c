"""One word through the layers: its vectors in several contexts, after each block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import SettingError
from ..draw import charts
from ..draw.description import Drawing
from ..draw.number_format import number, percent, plural
from ..inspect.projection import pca
from ..nn.eval_mode import eval_mode
from .common import hook_outputs
from .subject import Subject

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
