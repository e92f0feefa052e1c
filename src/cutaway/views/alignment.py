"""The alignment of output tokens with the input: characters with frames of a recording, words with image regions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.spec import Tokens, Transcript
from ..data.dataset_base import IGNORED
from ..draw import charts
from ..draw.description import Drawing, Table, View, table
from ..draw.number_format import number, percent, plural
from ..inference.sequence_decoding import best_path, decode
from ..nn.losses import BLANK, occupancies
from ..nn.modules import eval_mode
from ..nn.recurrent import sequence_lengths
from .attention import image_for
from .attention_capture import FRAME_SECONDS, AttentionCapture, capture_attention
from .json_values import downsample, evenly_spaced, thousandths, to_lists
from .model_layers import find_image_attention, find_token_grid
from .subject import Subject, get_target, parse_choice, parse_index

FRAMES = 160  # frames that are drawn
ROWS = 40  # most characters in a map
BANDS = 64  # bands of the spectrogram that are drawn
MIN_PROBABILITY = 0.05  # a character is shown if its probability reaches this in some frame
SPACE = "␣"  # the sign drawn for a space between words


@dataclass(frozen=True)
class CTCOutput:
    """The network's output for one recording."""

    frames: Tensor  # (T, F), spectrogram
    log_probs: Tensor  # (T', K)
    names: list[str]  # of the K tokens
    target: Tensor | None  # (S,), the reference text, if known
    stride: float  # spectrogram frames per output frame

    def seconds(self, t: int) -> str:
        """Return the time at which an output frame begins."""
        return f"{t * self.stride * FRAME_SECONDS:.2f} s"


def draw_alignment(subject: Subject) -> View:
    """Return the characters of one recording over time."""
    example = parse_index(subject.options, "example", 0, len(subject.inputs[0]))
    heard = transcribe(subject, example)
    spoken = _path(heard)
    text = "".join(heard.names[k] for k, _ in spoken).replace(SPACE, " ")
    rows = [[heard.names[k], heard.seconds(t), float(heard.log_probs[t, k].exp())] for k, t in spoken]
    return View(
        id="alignment",
        title="CTC alignment",
        says=f"The probability of each character at each frame of {subject.name(example)}, the input at the same "
        "times, and the best path.",
        summary=_summary(heard, text, spoken),
        table=table({"character": "text", "from": "text", "probability": "fraction"}, rows),
        drawings=_drawings(heard),
    )


def transcribe(subject: Subject, example: int) -> CTCOutput:
    """Return the network's output for one example on its own."""
    inputs = [x[example : example + 1] for x in subject.inputs]
    lengths = sequence_lengths(inputs[1], inputs[0].shape[1]) if len(inputs) > 1 else None
    count = inputs[0].shape[1] if lengths is None else int(lengths)
    with eval_mode(subject.model), torch.no_grad():
        outputs = subject.model(inputs[0][:, :count])[0]  # (T', K)
    known = subject.spec.target if subject.spec is not None else None
    characters = known.alphabet if isinstance(known, Transcript) else [f"[{k}]" for k in range(1, outputs.shape[1])]
    target = None if subject.target is None else subject.target[example]
    return CTCOutput(
        inputs[0][0, :count],
        outputs.double().log_softmax(1),
        ["blank", *(SPACE if c == " " else c for c in characters)],
        None if target is None else target[target != IGNORED],
        count / len(outputs),
    )


def _path(heard: CTCOutput) -> list[tuple[int, int]]:
    """Return the characters of the best path, each with the index of its first frame."""
    path = heard.log_probs.argmax(1).tolist()
    found = [(k, t) for t, k in enumerate(path) if k != BLANK and (t == 0 or path[t - 1] != k)]
    assert [k for k, _ in found] == best_path(heard.log_probs[None])[0].tolist(), (
        "both decoders give the same best path"
    )
    return found


def _drawings(heard: CTCOutput) -> list[Drawing]:
    """Return the character probabilities, the spectrogram and, with a reference text, its alignment."""
    shown = slice(0, FRAMES)
    times = [heard.seconds(t) for t in range(len(heard.log_probs[shown]))]
    likely = heard.log_probs[shown].exp()  # (t, K)
    rows = [k for k in range(likely.shape[1]) if k == BLANK or float(likely[:, k].max()) >= MIN_PROBABILITY][:ROWS]
    drawings = [
        charts.matrix(
            "Probability of each character",
            to_lists(likely[:, rows].T),
            ("character", [heard.names[k] for k in rows]),
            ("time", times),
            scale="amount",
            format="fraction",
        )
    ]
    if heard.target is not None and len(heard.target):
        drawings.append(_reference_alignment(heard, times))
    last = round(len(times) * heard.stride)
    bands = downsample(heard.frames[:last].T[None], max(len(times), BANDS))[0]  # (bands, t)
    if bands.shape[1] > len(times):
        bands = torch.nn.functional.adaptive_avg_pool2d(bands[None], (bands.shape[0], len(times)))[0]
    names = [f"band {b}" for b in range(len(bands), 0, -1)]
    drawings.append(charts.matrix("Input", to_lists(bands.flip(0)), ("mel band", names), ("time", times)))
    return drawings


def _reference_alignment(heard: CTCOutput, times: list[str]) -> Drawing:
    """Return the position of each character of the reference text, given that it was spoken."""
    assert heard.target is not None, "the reference text is known"
    where = occupancies(heard.log_probs, heard.target)[: len(times), 1::2]  # (t, S): without the blanks between
    shown = heard.target[:ROWS].tolist()
    return charts.matrix(
        "Frames of each character of the reference text",
        to_lists(where[:, : len(shown)].T),
        ("character", [f"{i + 1}: {heard.names[k]}" for i, k in enumerate(shown)]),
        ("time", times),
        scale="amount",
        format="fraction",
    )


def _summary(heard: CTCOutput, text: str, spoken: list[tuple[int, int]]) -> str:
    """Return a summary in words."""
    likely = heard.log_probs.exp()
    blank = float((likely.argmax(1) == BLANK).double().mean())
    reads = f"The best path gives “{text}”" if spoken else "The best path gives no text"
    said = f"{reads}; {percent(blank)} of {plural(len(likely), 'frame')} are blank."
    if spoken:
        least = min(float(likely[t, k]) for k, t in spoken)
        said += f" Its least likely character has the probability {number(least)}."
    if len(likely) > FRAMES:
        said += f" The first {plural(FRAMES, 'frame')} are shown."
    return said


WORDS, LAYERS = 40, 6  # most words and layers that are drawn


@dataclass(frozen=True)
class CaptionAttention:
    """The attention maps of one layer."""

    name: str
    maps: Tensor  # (words, rows, columns): the mean of its heads
    entropy: list[float]  # bits of each word's attention over all positions


def draw_caption(subject: Subject) -> View:
    """Return the attention maps for one image.

    Raises:
        UnknownName: If there is no such layer.
        SettingError: If an option is invalid.
    """
    i = parse_index(subject.options, "example", 0, len(subject.inputs[0]))
    names = find_image_attention(subject.model)
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
        summary=_caption_summary(subject, i, words, found[-1], grid.rows * grid.columns + grid.before),
        table=_numbers(words, found),
        drawings=[charts.choice("", "layer", options, start=start)] if len(options) > 1 else _single_layer(options[0]),
    )


def _single_layer(option: dict[str, Any]) -> list[Drawing]:
    """Return the drawings of the only layer."""
    return list(option["drawings"])


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


def _caption_summary(subject: Subject, i: int, words: list[str], last: CaptionAttention, places: int) -> str:
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
    """Return a table of the words with the entropy of their attention."""
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
