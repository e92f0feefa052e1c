"""The position of each character in a recording, by connectionist temporal classification."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.spec import Transcript
from ..data.dataset_base import IGNORED
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import number, percent, plural
from ..inference.sequence_decoding import best_path
from ..nn.eval_mode import eval_mode
from ..nn.losses import BLANK, occupancies
from ..nn.recurrent import sequence_lengths
from .common import parse_index
from .json_values import downsample, to_lists
from .subject import Subject
from .token_labels import FRAME_SECONDS

SAYS = "CTC alignment: the character that a speech network emits at each frame, above the spectrogram"
READ = (
    "Columns are output frames, in seconds. The upper map has one row for each character that is likely at any frame, "
    "the blank first; the probabilities of a frame sum to 1. To read the best path, take the darkest cell of each "
    "column from left to right, merge repeats and drop blanks. The map below is the network's input: the mel bands of "
    "the same times. If the reference text is known, the next map shows the frames of each of its characters, given "
    "that the recording contains this text."
)
MISLEADS = (
    "A peak does not mark where a character begins or ends: the loss needs only one frame for each character, and "
    "bidirectional networks often place it late, with blanks between. Durations of sounds cannot be read from it. The "
    "output of a frame depends on all frames before and after it, not on that frame alone. The best path need not give "
    "the most likely text."
)
OPTIONS = {"example": "index of the example, from 0"}

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


def suits(subject: Subject) -> bool:
    """Return whether the network transcribes speech."""
    return Transcript in getattr(type(subject.model), "targets", ())


def view(subject: Subject) -> View:
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
