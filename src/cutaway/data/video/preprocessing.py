"""From any video to the tensor that the network takes: fitted on the training split, saved as JSON with the model.

Of a video with more than T frames, the middle one of each of T equal stretches is taken, whatever its rate; each frame
is prepared as an image is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ... import spec as specs
from ...errors import DataError
from ...schema import COUNT
from ...spec import VideoSpec
from ..folders import VIDEOS, labelled
from ..images.preprocessing import ImagePreprocessing
from ..images.reading import Pixels
from ..shards.indexing import all_of, labelled_shards
from ..shards.members import Stored
from ..shards.tars import is_sharded
from .reading import Video, as_video, called, look_at_all, read_all, read_frames, video_paths
from .sharded import SHARDED
from .split import VideoSplit

AHEAD = 1  # batches that are read while the one before is learned from


@dataclass(frozen=True)
class VideoPreprocessing:
    """How a video becomes a tensor (T, C, H, W)."""

    spec: VideoSpec
    images: ImagePreprocessing  # how each frame becomes one
    frames: int  # that are taken, where there are more

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA, "images": ImagePreprocessing.SCHEMA, "frames": COUNT,
    }  # fmt: skip

    def clip(self, video: Video, count: int) -> Tensor:
        """The frames of a video that should have `count`, uint8 (T, C, H, W). Raises DataError, naming it, where it
        cannot be read."""

        name = called(video)

        def fit(frame: Image.Image) -> Pixels:
            return self.images.pixels(frame, name)

        frames = read_frames(video, count, self.frames, fit, self.spec.channels)
        return torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous()

    def examples(self, sources: Sequence[Any]) -> VideoSplit:
        """Videos without targets: paths of video files, of folders of frames or of folders of either, video files in
        memory (`Sent`), or arrays.

        Arrays are (T, H, W) or (T, H, W, 3) of uint8. Raises DataError that names every path that is no usable video;
        one that is damaged further on is named when it is read.
        """
        videos: list[Video] = []
        for source in sources:
            if isinstance(source, str | Path):
                path = Path(source).expanduser()
                videos += all_of(path, SHARDED) if is_sharded(path) else video_paths(path)
            else:
                videos.append(source if isinstance(source, Stored) else as_video(np.asarray(source)))
        if not videos:
            raise DataError("No video was given.")
        return self._as_split(
            videos, None, [f"video {i}" if isinstance(v, np.ndarray) else str(v) for i, v in enumerate(videos)]
        )

    def labelled(self, source: str | Path) -> VideoSplit:
        """The videos of a folder of class folders, with targets.

        Raises DataError where it holds none, or a class that training did not know.
        """
        if is_sharded(path := Path(source).expanduser()):
            read = labelled_shards(path, SHARDED, self.spec.target.classes)
            counts = read.looks["frames"].tolist()
            return self.streamed(read.found.files, counts, torch.from_numpy(read.found.labels), read.found.names)
        files, labels, names = labelled(source, VIDEOS, self.spec.target.classes)
        return self._as_split([*files], torch.tensor(labels), names)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {
            "kind": "video",
            "spec": specs.to_json(self.spec),
            "images": self.images.to_json(),
            "frames": self.frames,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> VideoPreprocessing:
        """The object that `to_json` wrote. Raises ValueError where the document, which is as SCHEMA says, cannot be."""
        spec = specs.read_as(data["spec"], VideoSpec)
        return cls(spec, ImagePreprocessing.from_json(data["images"]), int(data["frames"]))

    def _as_split(self, videos: Sequence[Video], target: Tensor | None, names: Sequence[str]) -> VideoSplit:
        return self.streamed(videos, [look.frames for look in look_at_all(videos)], target, names)

    def clips(self, videos: Sequence[Video], counts: Sequence[int], workers: int | None = None) -> list[Tensor]:
        """The clips of these videos. Raises DataError that names every one that cannot be read."""
        return read_all(self.clip, videos, counts, workers)

    def held(self, clips: Sequence[Tensor], target: Tensor | None, names: Sequence[str]) -> VideoSplit:
        """A split whose clips lie in memory."""
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
        """A split whose videos, of `counts` frames, are read when a batch needs them, in `workers` threads."""

        def clips(index: Sequence[int]) -> list[Tensor]:
            return self.clips([videos[i] for i in index], [counts[i] for i in index], workers)

        lengths = torch.tensor(counts).clamp(max=self.frames)
        return VideoSplit(clips, lengths, target, self.images, names, held=0 if workers == 0 else AHEAD)
