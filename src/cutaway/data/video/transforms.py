"""Frame sampling and normalisation of videos, fitted on the training split and saved as JSON with the model.

A video with more than T frames is divided into T equal segments, and the middle frame of each is used, regardless of
the frame rate. Each frame is preprocessed as an image.

A split keeps its videos in memory as bytes, or reads them from files during training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ...core import spec as specs
from ...core.errors import NotEnoughDataError, Problem
from ...core.schema import COUNT
from ...core.spec import VideoSpec
from ..dataset_base import Batch, Split
from ..folders import VIDEOS, find_labelled
from ..images.image_files import Pixels, as_image
from ..images.transforms import ImagePreprocessing
from ..parallel import Progress, find_unreadable, prefetch
from ..samplers import bucket_batches
from ..streaming.file_index import Stored
from ..streaming.webdataset import FileInspector, all_members, is_sharded, labelled_shards
from .video_files import (
    Video,
    as_video,
    check_decodable,
    display_name,
    inspect_videos,
    pack_video_info,
    read_frames,
    read_videos,
    try_inspect_video,
    unusable_videos_error,
    video_paths,
)

AHEAD = 1  # batches read ahead during training


@dataclass(frozen=True)
class VideoPreprocessing:
    """Preprocessing of a video to a tensor (T, C, H, W)."""

    spec: VideoSpec
    images: ImagePreprocessing  # preprocessing of each frame
    frames: int  # maximal number of frames

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA, "images": ImagePreprocessing.SCHEMA, "frames": COUNT,
    }  # fmt: skip

    def clip(self, video: Video, count: int) -> Tensor:
        """Read the sampled frames of a video with `count` frames, uint8 (T, C, H, W).

        Raises DataError, naming it, if it cannot be read.
        """

        name = display_name(video)

        def fit(frame: Image.Image) -> Pixels:
            return self.images.pixels(frame, name)

        frames = read_frames(video, count, self.frames, fit, self.spec.channels)
        return torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous()

    def examples(self, sources: Sequence[Any]) -> VideoSplit:
        """Build a split of videos without targets.

        Accepts paths of video files, of folders of frames or of folders of either, video files in memory
        (`UploadedFile`), or arrays. Arrays are (T, H, W) or (T, H, W, 3) of uint8. Raises DataError that names every
        path that is not a usable video. A video that is damaged later in the file is reported when it is decoded.
        """
        videos: list[Video] = []
        for source in sources:
            if isinstance(source, str | Path):
                path = Path(source).expanduser()
                videos += all_members(path, SHARDED) if is_sharded(path) else video_paths(path)
            else:
                videos.append(source if isinstance(source, Stored) else as_video(np.asarray(source)))
        if not videos:
            raise NotEnoughDataError("No video was given.")
        return self._as_split(
            videos, None, [f"video {i}" if isinstance(v, np.ndarray) else str(v) for i, v in enumerate(videos)]
        )

    def labelled(self, source: str | Path) -> VideoSplit:
        """Load a folder of class folders with targets.

        Raises DataError if it holds no videos, or a class that is not in training.
        """
        if is_sharded(path := Path(source).expanduser()):
            read = labelled_shards(path, SHARDED, self.spec.target.classes)
            counts = read.looks["frames"].tolist()
            return self.streamed(read.found.files, counts, torch.from_numpy(read.found.labels), read.found.names)
        files, labels, names = find_labelled(source, VIDEOS, self.spec.target.classes)
        return self._as_split([*files], torch.tensor(labels), names)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return {
            "kind": "video",
            "spec": specs.to_json(self.spec),
            "images": self.images.to_json(),
            "frames": self.frames,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> VideoPreprocessing:
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        spec = specs.read_spec(data["spec"], VideoSpec)
        return cls(spec, ImagePreprocessing.from_json(data["images"]), int(data["frames"]))

    def _as_split(self, videos: Sequence[Video], target: Tensor | None, names: Sequence[str]) -> VideoSplit:
        return self.streamed(videos, [look.frames for look in inspect_videos(videos)], target, names)

    def clips(self, videos: Sequence[Video], counts: Sequence[int], workers: int | None = None) -> list[Tensor]:
        """Read the clips of these videos. Raises DataError that names every video that cannot be read."""
        return read_videos(self.clip, videos, counts, workers)

    def in_memory_split(self, clips: Sequence[Tensor], target: Tensor | None, names: Sequence[str]) -> VideoSplit:
        """Build a split whose clips are in memory."""
        lengths = torch.tensor([len(clip) for clip in clips])
        return VideoSplit(lambda index: [clips[i] for i in index], lengths, target, self.images, names)

    def streamed(
        self,
        videos: Sequence[Video],
        counts: Sequence[int],
        target: Tensor | None,
        names: Sequence[str],
        workers: int | None = None,
    ) -> VideoSplit:
        """Build a split that reads videos with `counts` frames on demand, in `workers` threads."""

        def clips(index: Sequence[int]) -> list[Tensor]:
            return self.clips([videos[i] for i in index], [counts[i] for i in index], workers)

        lengths = torch.tensor(counts).clamp(max=self.frames)
        return VideoSplit(clips, lengths, target, self.images, names, held=0 if workers == 0 else AHEAD)


SHOWN, ACROSS = 9, 3  # maximal number of frames in the image of a video, and per row

Clips = Callable[[Sequence[int]], Sequence[Tensor]]  # examples → their frames, each uint8 (T, C, H, W)


class VideoSplit(Split):
    """A split of resized videos as bytes; each batch is normalised and padded with zeros to its longest video."""

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
        """Store the function `clips`, which returns the frames of examples by index.

        `lengths` (n,) are the frames per example, for the batch plan. `notes` are shown to the user. `held` is the
        number of batches that are read ahead.
        """
        self.lengths, self.target = lengths, target
        self.notes = list(notes)
        self._held = held
        self._clips, self._names, self._preprocessing = clips, names, preprocessing

    def __len__(self) -> int:
        return len(self._names)

    def plan(self, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:
        """Return batches of videos with nearly equal length."""
        return bucket_batches(self.lengths, batch_size, generator)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches (N, T, C, H, W) with masks (N, T). Raises DataError naming a video that cannot be read."""
        del seed
        return prefetch(self._batch, order, self._held)

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Return a problem for every video that cannot be read."""
        return find_unreadable(lambda k: self._clips([k]), len(self), progress)

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
        """Return the video's path."""
        return self._names[i]

    def image(self, i: int) -> Image.Image:
        """Return at most nine of the network's input frames as a grid with three columns, padded with white."""
        (clip,) = self._clips([i])
        frames = clip[:: -(-len(clip) // SHOWN)]
        across = min(ACROSS, len(frames))
        missing = -len(frames) % across
        whole = torch.cat([frames, frames.new_full((missing, *frames.shape[1:]), 255)])
        rows = whole.view(-1, across, *whole.shape[1:]).permute(0, 3, 1, 4, 2)  # (rows, H, across, W, C)
        return as_image(rows.flatten(2, 3).flatten(0, 1).contiguous().numpy())


SHARDED = FileInspector(VIDEOS, try_inspect_video, pack_video_info, unusable_videos_error, check_decodable)
