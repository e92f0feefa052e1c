"""Video data sets: a folder of class folders of videos, or arrays in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from ...core.spec import ANY_SIZE, Classes, ImageSizes, ImageSpec, VideoSpec
from ..build import DatasetBuilder, DataSource, DuplicateKeys, ExampleClasses
from ..dataset_base import DataSet
from ..findings import Finding, reject_fill
from ..folders import NAMED_AT_MOST, VIDEOS, FolderContents, find_examples, fingerprint_files, missing_class_notes
from ..images.dataset import choose_channels, choose_size
from ..images.image_files import Pixels, Size, as_pixels, resize, size_covering
from ..images.transforms import fit_preprocessing
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import Rows
from ..streaming.file_index import select_items
from ..streaming.webdataset import inspect_files, is_sharded, read_shards
from .transforms import SHARDED, VideoPreprocessing, VideoSplit
from .video_files import Video, VideoFileInfo, inspect_videos, read_frames, read_videos, unpack_video_info

SAMPLE = 64  # training videos used to estimate mean and standard deviation


def open_videos(path: Path, settings: DataSettings, sizes: ImageSizes = ANY_SIZE) -> DataSet:
    """Load a folder of class folders of video files or of folders of frames, or tar shards of video files.

    Raises what `video_dataset` and `read_shards` raise.
    """
    name = path.resolve().name
    if is_sharded(path):
        read = read_shards(path, SHARDED, drop=settings.missing == "drop")
        return video_dataset(read.found, name, str(path), settings, sizes, seen=unpack_video_info(read.looks))
    reject_fill(settings)
    found = find_examples(path, VIDEOS)
    usable = inspect_files(found.files, SHARDED, lambda files: inspect_videos(files, settings.workers), settings)
    found = found.part(usable.rows, usable.notes) if usable.notes else found
    return video_dataset(found, name, str(path), settings, sizes, seen=usable.looks)


def video_dataset(
    found: FolderContents[Video],
    name: str,
    source: str,
    settings: DataSettings,
    sizes: ImageSizes,
    groups: Rows | None = None,
    seen: Sequence[VideoFileInfo] | None = None,
) -> DataSet:
    """Build a data set of video files, folders of frames or arrays.

    Videos with the same entry in `groups` stay in one split. Videos are checked unless their properties are given as
    `seen`. Frames are resized to a size that the model accepts (`sizes`): their original size if all videos have the
    same one of at most 512 pixels. They are kept in memory as bytes if they fit into settings.memory, otherwise they
    are read in every epoch. Raises DataError that names every video that cannot be used, or SettingError.
    """
    if seen is None:
        reject_changed(settings, ("missing",), "is for files, and these videos are in memory")
    looks = inspect_videos(found.files, settings.workers) if seen is None else seen
    origin = DataSource(name, source, fingerprint_files(found.names, [look.digest for look in looks]), found.notes)
    return VideoBuilder(found, looks, origin, settings, sizes, groups).build()


class VideoBuilder(DatasetBuilder[VideoPreprocessing, VideoSplit]):
    """The steps from videos in classes to their data set."""

    noun = "videos"

    def __init__(
        self,
        found: FolderContents[Video],
        looks: Sequence[VideoFileInfo],
        origin: DataSource,
        settings: DataSettings,
        sizes: ImageSizes,
        groups: Rows | None = None,
    ) -> None:
        super().__init__(origin, settings)
        self.found, self.looks, self.sizes = found, looks, sizes
        self.counts = [look.frames for look in looks]
        self.classes = ExampleClasses(found.labels, found.classes, found.splits, groups)

    def fit(self) -> VideoPreprocessing:
        """Choose a size and a length, fit the scale on a sample, and read the videos if they are kept in memory."""
        settings, videos, counts = self.settings, self.found.files, self.counts
        own_sizes, grey = {look.size for look in self.looks}, [look.grey for look in self.looks]
        own_size, (height, width), self.enlarged = choose_size(own_sizes, self.sizes, settings.image_size)
        channels, target = choose_channels(grey, settings.color), Classes(self.found.classes)
        image_spec = ImageSpec(channels, height, width, target)
        sample = self.training_sample(SAMPLE)
        training = _training_frames([videos[i] for i in sample], [counts[i] for i in sample], image_spec, settings)
        images = fit_preprocessing(image_spec, training, settings.resize, own_size)
        frames = min(settings.frames, max(counts[i] for i in self.indices["train"]))
        fitted = VideoPreprocessing(VideoSpec(frames, channels, height, width, target), images, settings.frames)
        self.held: dict[int, Tensor] = {}
        used = self.used
        if self.fits_into_memory(sum(min(counts[i], settings.frames) for i in used) * channels * height * width):
            clips = fitted.clips([videos[i] for i in used], [counts[i] for i in used], settings.workers)
            self.held = dict(zip(used.tolist(), clips))
        return fitted

    def encode(self, split: str, rows: Rows) -> VideoSplit:
        """Return videos in memory, or files to read in every epoch."""
        target, names = torch.from_numpy(self.found.labels[rows]), [self.found.names[i] for i in rows]
        if self.held:
            return self.preprocessing.in_memory_split([self.held[i] for i in rows.tolist()], target, names)
        videos, counts = select_items(self.found.files, rows), [self.counts[i] for i in rows]
        return self.preprocessing.streamed(videos, counts, target, names, self.settings.workers)

    def notes(self) -> list[str | None]:
        """Return notes on how the videos were changed, and on absent classes."""
        found, used = self.found, self.used
        return [
            *_notes([self.looks[i] for i in used], self.settings.frames, self.preprocessing.spec.channels),
            _still_note([found.names[i] for i in used if self.counts[i] == 1], len(used)),
            self.enlarged,
            *missing_class_notes(found.labels, found.classes, self.indices, "no videos"),
        ]

    def duplicate_keys(self) -> DuplicateKeys:
        """Return the digest of each video."""
        return DuplicateKeys([look.digest for look in self.looks], self.found.names.__getitem__)


def _training_frames(
    videos: Sequence[Video], counts: Sequence[int], spec: ImageSpec, settings: DataSettings
) -> Iterator[Tensor]:
    """Yield uint8 (T, C, h, w) of each video, with uncropped frames no larger than the network's input requires."""

    def drawing_size(size: Size) -> Size:
        return min(size, size_covering(size, (spec.height, spec.width)))

    def whole(frame: Image.Image) -> Pixels:
        return as_pixels(resize(frame, drawing_size((frame.height, frame.width))))

    def read(video: Video, count: int) -> Tensor:
        return torch.from_numpy(read_frames(video, count, settings.frames, whole, spec.channels)).permute(0, 3, 1, 2)

    return iter(read_videos(read, videos, counts, settings.workers))


def _still_note(names: Sequence[str], total: int) -> str | None:
    """Return a finding on videos with a single frame."""
    if not names:
        return None
    some = ", ".join(names[:NAMED_AT_MOST]) + (", …" if len(names) > NAMED_AT_MOST else "")
    has, it = ("has", "it") if len(names) == 1 else ("have", "them")
    return Finding(f"{len(names):,} of {total:,} videos {has} a single frame, and nothing moves in {it}: {some}.")


def _notes(looks: Sequence[VideoFileInfo], frames: int, channels: int) -> list[str]:
    """Return notes on how the videos were changed."""
    notes, total = [], f"{len(looks):,} videos"
    longer = sum(look.frames > frames for look in looks)
    if longer:
        notes.append(
            f"{longer:,} of {total} have more than {frames} frames, and {frames} of each are taken, evenly spread over "
            "its length at any frame rate; set frames= for more."
        )
    coloured = sum(not look.grey for look in looks)
    if channels == 1 and coloured:
        notes.append(f"{coloured:,} of {total} are coloured and are read in grey; color=rgb keeps colours.")
    left = [p for look in looks for p in look.left]
    if left:
        more = f" and {len(left) - NAMED_AT_MOST:,} more" if len(left) > NAMED_AT_MOST else ""
        names = ", ".join(left[:NAMED_AT_MOST]) + more
        notes.append(f"Not read, because they are not images in folders of frames: {names}.")
    return notes
