"""Labels of the positions that attention connects: the text of a token, or the position of a patch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.dataset_base import IGNORED
from ..models.base import SupportsDecoding, as_base_model
from .attention_capture import AttentionCapture
from .common import find_token_grid
from .subject import Subject

FRAME_SECONDS = 0.010  # seconds per frame of a spectrogram


@dataclass(frozen=True)
class TokenPositions:
    """The positions of one side of an attention layer."""

    labels: list[str]
    real: Tensor  # indices in the row of the batch, (n,), without padding
    grid: tuple[int, int] | None = None  # rows and columns of patches, after `before` tokens without a position
    before: int = 0
    step: int = 1  # pixels from one patch to the next

    def distances(self) -> Tensor:
        """Return the distances of positions, (n, n), in tokens, or in pixels between the centres of patches.

        The distance is NaN for tokens without a position.
        """
        place = torch.arange(len(self.labels), dtype=torch.float32)
        if self.grid is None:
            return (place[:, None] - place[None]).abs()
        at = place - self.before
        point = torch.stack([at // self.grid[1], at % self.grid[1]], dim=1) * self.step  # (n, 2)
        apart = torch.cdist(point, point)
        apart[: self.before] = math.nan
        apart[:, : self.before] = math.nan
        return apart


def token_positions(subject: Subject, i: int) -> tuple[TokenPositions, TokenPositions]:
    """Return the positions of example i: those of the input and those of the output sequence.

    Both are the same if there is only one sequence. For a video, they are the patches of a frame, and its frames.
    """
    if subject.kind == "image":
        found = _patches(subject)
        return found, _tokens(subject, i, 1) if isinstance(subject.model, SupportsDecoding) else found
    if subject.kind == "video":
        frames = torch.arange(subject.inputs[0].shape[1])
        real = subject.inputs[1][i].bool().nonzero()[:, 0] if len(subject.inputs) > 1 else frames
        return _patches(subject), TokenPositions([f"frame {t}" for t in real.tolist()], real)
    if subject.kind == "audio":
        return _times(subject, i), _tokens(subject, i, 1)
    patches = as_base_model(subject.model).series_patches()
    if subject.kind == "series" and patches is not None:
        labels = [_span(first, last, patches.seen) for first, last in patches.spans]
        steps = TokenPositions(labels, torch.arange(len(labels)))
        return steps, steps
    source = _tokens(subject, i, 0)
    return source, _tokens(subject, i, 1) if subject.kind == "seq2seq" else source


def query_key_positions(
    look: AttentionCapture, both: tuple[TokenPositions, TokenPositions]
) -> tuple[TokenPositions, TokenPositions]:
    """Return the positions of the queries of an attention layer, and those of its keys."""
    source, target = both
    if look.cross_attends:
        return target, source
    own = target if look.name.startswith("decoder") or look.over_frames else source
    return own, own


def _tokens(subject: Subject, i: int, side: int) -> TokenPositions:
    ids = subject.inputs[0 if side == 0 else -1][i]
    if side == 0:
        mask = subject.inputs[1][i] if len(subject.inputs) > 1 else torch.ones_like(ids, dtype=torch.bool)
        real = mask.nonzero()[:, 0]
    else:
        real = torch.arange(_target_length(subject, ids, i))
    labels = subject.tokens(i, side)
    return TokenPositions(labels[: len(real)] if side else labels, real)


def _times(subject: Subject, i: int) -> TokenPositions:
    """Return the output positions of a network for a recording, labelled by their start time."""
    frames = subject.inputs[1][i].sum()[None]
    places = int(as_base_model(subject.model).output_frames(frames))
    each = int(frames) / places * FRAME_SECONDS
    return TokenPositions([f"{t * each:.2f} s" for t in range(places)], torch.arange(places))


def _span(first: int, last: int, seen: int | None) -> str:
    """Return the label of the steps of a token: "9 to 14", or "9" for one step; "+2" is step 2 of the forecast."""
    if seen is not None and first >= seen:
        return f"+{first - seen + 1}"
    return f"{first + 1}" if first == last else f"{first + 1} to {last + 1}"


def _target_length(subject: Subject, ids: Tensor, i: int) -> int:
    """Return the number of real target tokens: those with a prediction."""
    target = subject.target
    if target is not None and target.ndim == 2 and target.shape[1] == len(ids):
        return max(1, int((target[i] != IGNORED).sum()))
    return len(ids)


def _patches(subject: Subject) -> TokenPositions:
    grid = find_token_grid(subject)
    assert grid is not None, "attention in an image or a frame is over its patches or positions"
    rows, columns, before = grid
    labels = ["class token"] * before + [f"r{r} c{c}" for r in range(rows) for c in range(columns)]  # as cells
    return TokenPositions(
        labels, torch.arange(len(labels)), (rows, columns), before, subject.inputs[0].shape[-2] // rows
    )
