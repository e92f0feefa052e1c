"""The part of the image that a model attended to for each word of its caption."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.spec import Tokens
from ..draw import charts
from ..draw.description import Drawing, Table, View, table
from ..draw.number_format import number, percent, plural
from ..inference.sequence_decoding import decode
from ..models.base import SupportsDecoding
from ..nn.eval_mode import eval_mode
from .attention_capture import AttentionCapture, attention_modules, capture_attention
from .common import evenly_spaced, find_token_grid, get_target, parse_choice, parse_index
from .heads import image_for
from .json_values import thousandths
from .subject import Subject

SAYS = "cross-attention of a captioning model: the image regions that it attends to for each word"
READ = (
    "Each picture shows the image at one word; the shade is the attention weight of each region when the model wrote "
    "that word. The weights of all heads are averaged, and those of a picture sum to 1, so a faint picture means that "
    'the model attends to everything. Words such as "of" and "and" follow from the words before them and need no '
    "attention to the image."
)
MISLEADS = (
    "Attention shows which regions the model reads from, not the causes of the word: with wide convolutions and "
    "position encodings, a region also holds information from its surroundings, and in later layers from other "
    "regions. The region with the largest weight is not a detection. A gate that shuts out the image is not visible "
    "here."
)
OPTIONS: dict[str, str] = {
    "layer": "cross-attention module that is selected first: layer=decoder.1.cross_attention",
    "example": "index of the example, from 0",
}
WORDS, LAYERS = 40, 6  # most words and layers that are drawn


@dataclass(frozen=True)
class CaptionAttention:
    """The attention maps of one layer."""

    name: str
    maps: Tensor  # (words, rows, columns): the mean of its heads
    entropy: list[float]  # bits of each word's attention over all positions


def suits(subject: Subject) -> bool:
    """Return whether the model writes captions of images with attention over image positions."""
    writes = subject.kind == "image" and isinstance(subject.model, SupportsDecoding)
    return writes and any(_attends_to_image(name, module) for name, module in attention_modules(subject.model).items())


def view(subject: Subject) -> View:
    """Return the attention maps for one image.

    Raises:
        UnknownName: If there is no such layer.
        SettingError: If an option is invalid.
    """
    i = parse_index(subject.options, "example", 0, len(subject.inputs[0]))
    names = [name for name, module in attention_modules(subject.model).items() if _attends_to_image(name, module)]
    wanted = parse_choice(subject.options, "layer", names, "layer with cross-attention")
    shown = evenly_spaced(names, LAYERS)
    if wanted is not None and wanted not in shown:
        shown = sorted([*shown[1:], wanted], key=names.index)
    inputs, words = _generate_caption(subject, i)
    grid = find_token_grid(subject)
    assert grid is not None, "a caption model attends to regions of an image"

    def see(look: AttentionCapture) -> CaptionAttention | None:
        if look.name not in names:
            return None
        weights = torch.stack([look.weights(h) for h in range(look.heads)]).mean(0)[: len(words)]  # (words, S)
        bits = -(weights * weights.clamp(min=torch.finfo(weights.dtype).tiny).log2()).sum(1)
        maps = weights[:, grid.before :].reshape(len(words), grid.rows, grid.columns)
        return CaptionAttention(look.name, maps, bits.tolist())

    found = [one for one in capture_attention(subject.model, inputs, see) if one is not None]
    drawn = [one for one in found if one.name in shown]
    image = image_for(subject, i, len(drawn))
    options: list[dict[str, Any]] = [
        {
            "name": one.name,
            "drawings": [
                charts.overlay(
                    "Attention at each word, in order",
                    [
                        {
                            "label": word,
                            "image": None,
                            "values": thousandths(seen),
                            "tip": [f"before “{word}”", f"entropy {number(bits)} bits"],
                            "warning": None,
                        }
                        for word, seen, bits in zip(words, one.maps, one.entropy)
                    ],
                    scale="amount",
                    opacity=0.6,
                    image=image,
                )
            ],
        }
        for one in drawn
    ]
    start = next((k for k, one in enumerate(drawn) if one.name == wanted), len(drawn) - 1)
    return View(
        id="caption",
        title="Attention for each word",
        says="The caption that the model writes for an image, and its attention over the image for each word.",
        summary=_summary(subject, i, words, found[-1], grid.rows * grid.columns + grid.before),
        table=_numbers(words, found),
        drawings=[charts.choice("", "layer", options, start=start)] if len(options) > 1 else _single_layer(options[0]),
    )


def _single_layer(option: dict[str, Any]) -> list[Drawing]:
    """Return the drawings of the only layer."""
    return list(option["drawings"])


def _attends_to_image(name: str, module: torch.nn.Module) -> bool:
    """Return whether an attention module attends from words to the image."""
    return bool(getattr(module, "cross_attends", False)) or not getattr(module, "heads", 0)


def _generate_caption(subject: Subject, i: int) -> tuple[tuple[Tensor, ...], list[str]]:
    """Return the model's inputs, with its own caption as the caption so far, and each word including the end.

    Without a vocabulary, the inputs have the caption of the example.
    """
    images, target = subject.inputs[0][i : i + 1], get_target(subject)
    if not isinstance(target, Tokens):
        so_far = subject.inputs[1][i : i + 1]
        return (images, so_far), [f"token {k}" for k in [*so_far[0, 1:].tolist(), "?"]][:WORDS]
    with torch.no_grad(), eval_mode(subject.model):
        said = decode(subject.model, images, None, target)[0].tolist()[: WORDS - 1]
    so_far = torch.tensor([[target.begin, *said]])
    written = subject.vocabulary(1)
    return (images, so_far), [*(written[k] if k < len(written) else f"token {k}" for k in said), "(end)"]


def _summary(subject: Subject, i: int, words: list[str], last: CaptionAttention, places: int) -> str:
    """Return a summary of the caption and of its words with the sharpest and the broadest attention."""
    sharp = min(range(len(words)), key=lambda k: last.entropy[k])
    broad = max(range(len(words)), key=lambda k: last.entropy[k])
    row, column = divmod(int(last.maps[sharp].argmax()), last.maps.shape[2])
    said = " ".join(words[:-1]) or "(nothing)"
    sure = percent(float(last.maps[sharp].max()))
    return (
        f"Of {subject.name(i)} the model writes: {said}. The sharpest look is the one for “{words[sharp]}”, {sure} of "
        f"it on row {row}, column {column}; the widest the one for “{words[broad]}”, {number(last.entropy[broad])} of "
        f"{number(math.log2(places))} bits, over {plural(places, 'place')}."
    )


def _numbers(words: list[str], found: list[CaptionAttention]) -> Table:
    columns = {
        "layer": "text",
        "word": "text",
        "entropy, bits": "number",
        "most at": "text",
        "of the look": "fraction",
    }
    rows = []
    for one in found:
        for word, seen, bits in zip(words, one.maps, one.entropy):
            row, column = divmod(int(seen.argmax()), seen.shape[1])
            rows.append([one.name, word, bits, f"row {row}, column {column}", float(seen.max())])
    return table(columns, rows)
