"""A split of a data set whose examples are videos: held as bytes, or read from their files while training goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from PIL import Image
from torch import Tensor

from ...errors import Problem
from ..images.preprocessing import ImagePreprocessing
from ..images.reading import as_image
from ..lengths import bucketed
from ..sets import Batch, Split
from ..threads import ahead
from ..verifying import Progress, unreadable

SHOWN, ACROSS = 9, 3  # frames at most in the image of a video, and in a row of it

Clips = Callable[[Sequence[int]], Sequence[Tensor]]  # the frames of some examples, each uint8 (T, C, H, W)


class VideoSplit(Split):
    """Videos brought to size, as bytes; a batch is normalised and padded with zeros to its own longest."""

    def __init__(
        self,
        clips: Clips,
        lengths: Tensor,
        target: Tensor | None,
        preprocessing: ImagePreprocessing,
        names: Sequence[str],
        notes: Sequence[str] = (),
        held: int = 0,
    ) -> None:
        """`clips` gives the frames of examples by their numbers, `lengths` (n,) tell how many each has, for the plan
        of batches. `notes` are sentences on these examples that a person should read. So many batches are `held` that
        were read ahead."""
        self.lengths, self.target = lengths, target
        self.notes = list(notes)
        self._held = held
        self._clips, self._names, self._preprocessing = clips, names, preprocessing

    def __len__(self) -> int:
        return len(self._names)

    def plan(self, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:
        """Batches of videos of nearly equal length."""
        return bucketed(self.lengths, batch_size, generator)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Batches (N, T, C, H, W) with masks (N, T). Raises DataError, naming it, for a video that cannot be read."""
        del seed
        return ahead(self._batch, order, self._held)

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Every video that cannot be read, by name."""
        return unreadable(lambda k: self._clips([k]), len(self), progress)

    def _batch(self, index: Tensor) -> Batch:
        clips = self._clips(index.tolist())
        lengths = torch.tensor([len(clip) for clip in clips])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]  # (N, T)
        frames = self._preprocessing.normalise(torch.cat(list(clips)))  # (Σ T, C, H, W)
        x = frames.new_zeros(*mask.shape, *frames.shape[1:])  # (N, T, C, H, W)
        x[mask] = frames
        target = torch.empty(len(index), 0) if self.target is None else self.target[index]
        return Batch((x, mask), target)

    def name(self, i: int) -> str:
        """The video's path."""
        return self._names[i]

    def image(self, i: int) -> Image.Image:
        """The frames that the network sees, nine at most, in rows of three; white where there are no more."""
        (clip,) = self._clips([i])
        frames = clip[:: -(-len(clip) // SHOWN)]
        across = min(ACROSS, len(frames))
        missing = -len(frames) % across
        whole = torch.cat([frames, frames.new_full((missing, *frames.shape[1:]), 255)])
        rows = whole.view(-1, across, *whole.shape[1:]).permute(0, 3, 1, 4, 2)  # (rows, H, across, W, C)
        return as_image(rows.flatten(2, 3).flatten(0, 1).contiguous().numpy())
