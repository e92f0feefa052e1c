"""What stands at each place that attention looks from or at: a token's writing, or a patch's place in the image or the
series."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.dataset_base import IGNORED
from ..models.base import Decodes, contract_of
from .attention_capture import AttentionLook
from .common import patches_of
from .subject import Subject

FRAME_SECONDS = 0.010  # from a frame of a spectrogram to the next


@dataclass(frozen=True)
class Side:
    """The places of one side of a look."""

    labels: list[str]
    real: Tensor  # which places of the batch's row they are, (n,): padding is left out
    grid: tuple[int, int] | None = None  # rows and columns of patches, after `before` tokens with no place
    before: int = 0
    step: int = 1  # pixels from one patch to the next

    def distances(self) -> Tensor:
        """How far apart places are, (n, n): in tokens, or in pixels between the middles of patches. NaN for tokens
        that have no place."""
        place = torch.arange(len(self.labels), dtype=torch.float32)
        if self.grid is None:
            return (place[:, None] - place[None]).abs()
        at = place - self.before
        point = torch.stack([at // self.grid[1], at % self.grid[1]], dim=1) * self.step  # (n, 2)
        apart = torch.cdist(point, point)
        apart[: self.before] = math.nan
        apart[:, : self.before] = math.nan
        return apart


def sides(subject: Subject, i: int) -> tuple[Side, Side]:
    """The places of example i: of what is read, and of the target that is written; the same where there is one. Of a
    video the patches of a frame, and its frames."""
    if subject.kind == "image":
        found = _patches(subject)
        return found, _tokens(subject, i, 1) if isinstance(subject.model, Decodes) else found
    if subject.kind == "video":
        frames = torch.arange(subject.inputs[0].shape[1])
        real = subject.inputs[1][i].bool().nonzero()[:, 0] if len(subject.inputs) > 1 else frames
        return _patches(subject), Side([f"frame {t}" for t in real.tolist()], real)
    if subject.kind == "audio":
        return _times(subject, i), _tokens(subject, i, 1)
    patches = contract_of(subject.model).series_patches()
    if subject.kind == "series" and patches is not None:
        labels = [_span(first, last, patches.seen) for first, last in patches.spans]
        steps = Side(labels, torch.arange(len(labels)))
        return steps, steps
    source = _tokens(subject, i, 0)
    return source, _tokens(subject, i, 1) if subject.kind == "seq2seq" else source


def of(look: AttentionLook, both: tuple[Side, Side]) -> tuple[Side, Side]:
    """Where the queries of a look stand, and where its keys."""
    source, target = both
    if look.cross_attends:
        return target, source
    own = target if look.name.startswith("decoder") or look.over_frames else source
    return own, own


def _tokens(subject: Subject, i: int, side: int) -> Side:
    ids = subject.inputs[0 if side == 0 else -1][i]
    if side == 0:
        mask = subject.inputs[1][i] if len(subject.inputs) > 1 else torch.ones_like(ids, dtype=torch.bool)
        real = mask.nonzero()[:, 0]
    else:
        real = torch.arange(_written(subject, ids, i))
    labels = subject.tokens(i, side)
    return Side(labels[: len(real)] if side else labels, real)


def _times(subject: Subject, i: int) -> Side:
    """The places that a network makes of a recording, by when each begins."""
    frames = subject.inputs[1][i].sum()[None]
    places = int(contract_of(subject.model).output_frames(frames))
    each = int(frames) / places * FRAME_SECONDS
    return Side([f"{t * each:.2f} s" for t in range(places)], torch.arange(places))


def _span(first: int, last: int, seen: int | None) -> str:
    """The steps of a token: 9 to 14, or one step, 9; +2 is the second step after those that are seen."""
    if seen is not None and first >= seen:
        return f"+{first - seen + 1}"
    return f"{first + 1}" if first == last else f"{first + 1} to {last + 1}"


def _written(subject: Subject, ids: Tensor, i: int) -> int:
    """How many tokens of the target so far are real: those before which something is predicted."""
    target = subject.target
    if target is not None and target.ndim == 2 and target.shape[1] == len(ids):
        return max(1, int((target[i] != IGNORED).sum()))
    return len(ids)


def _patches(subject: Subject) -> Side:
    grid = patches_of(subject)
    assert grid is not None, "attention in an image or a frame is over its patches or places"
    rows, columns, before = grid
    labels = ["class token"] * before + [f"r{r} c{c}" for r in range(rows) for c in range(columns)]  # as cells
    return Side(labels, torch.arange(len(labels)), (rows, columns), before, subject.inputs[0].shape[-2] // rows)
