"""Video files, folders of frames and arrays: validation and decoding.

FFmpeg silently reads truncated files, so a file is first checked against the lengths in its header.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...core.errors import DataError, Problem, UnsupportedDataError
from ...core.extras import require
from ...core.files import exists, missing_file_error, open_regular, read_bytes, require_regular_file
from ..findings import REPAIR
from ..folders import IMAGES, VIDEOS, list_entries
from ..images.image_files import Pixels, Size, read_header, read_image
from ..parallel import map_in_threads
from ..streaming.file_index import Stored, UploadedFile
from ..tables.column_types import natural_order

Array = npt.NDArray[Any]
Video = Path | Stored | Array  # an array is (T, H, W) or (T, H, W, 3) of uint8
Result = TypeVar("Result")
Fit = Callable[[Image.Image], Pixels]  # function applied to each frame

AT_ONCE = 16  # videos that the threads hold in memory


@dataclass(frozen=True)
class VideoFileInfo:
    """Properties of one checked video."""

    digest: str  # sha256 of its bytes, or of its frames' names and bytes
    frames: int  # of a file, its number of packets: nearly always its frames, and checked on reading
    size: Size  # after rotation
    grey: bool
    left: tuple[str, ...] = ()  # files in a folder of frames that are not frames


def inspect_videos(videos: Sequence[Video], workers: int | None = None) -> list[VideoFileInfo]:
    """Check every video in `workers` threads. Raises DataError that names every unusable video.

    If a header check fails, the other videos are decoded too, so that one error names all problems.
    """
    looks = list(map_in_threads(lambda video: _result_or_problems(inspect_video, video), videos, workers))
    problems = [p for look in looks if isinstance(look, list) for p in look]
    if problems:
        for video, look in zip(videos, looks):
            read = _result_or_problems(_read_through, video, look.frames) if isinstance(look, VideoFileInfo) else []
            problems += read or []
        raise unusable_videos_error(problems, len(videos))
    return [look for look in looks if isinstance(look, VideoFileInfo)]


def read_videos(
    read: Callable[[Video, int], Result], videos: Sequence[Video], counts: Sequence[int], workers: int | None = None
) -> list[Result]:
    """Apply `read` to each video and its number of frames, in `workers` threads.

    Raises DataError that names every video that cannot be read.
    """
    found = list(
        map_in_threads(lambda item: _result_or_problems(read, *item), list(zip(videos, counts)), workers, AT_ONCE)
    )
    if problems := [p for result in found if isinstance(result, list) for p in result]:
        raise unusable_videos_error(problems, len(videos))
    return [result for result in found if not isinstance(result, list)]


def try_inspect_video(video: Video) -> VideoFileInfo | Problem:
    """Check one video. Returns a Problem if it cannot be used."""
    try:
        return inspect_video(video)
    except DataError as error:
        return error.problems[0]


def pack_video_info(looks: Sequence[VideoFileInfo]) -> dict[str, Array]:
    """Pack file properties into arrays: `digest` (n, 32), `frames`, `height`, `width`, `grey` (n,)."""
    return {
        "digest": np.frombuffer(b"".join(bytes.fromhex(look.digest) for look in looks), np.uint8).reshape(-1, 32),
        "frames": np.array([look.frames for look in looks], np.int32),
        "height": np.array([look.size[0] for look in looks], np.int32),
        "width": np.array([look.size[1] for look in looks], np.int32),
        "grey": np.array([look.grey for look in looks], bool),
    }


def unpack_video_info(arrays: Mapping[str, Array]) -> list[VideoFileInfo]:
    """Unpack the arrays that `packed` returns."""
    columns = (arrays[key].tolist() for key in ("frames", "height", "width", "grey"))
    return [
        VideoFileInfo(digest.tobytes().hex(), frames, (height, width), grey)
        for digest, frames, height, width, grey in zip(arrays["digest"], *columns)
    ]


def _result_or_problems(read: Callable[..., Result], *arguments: Any) -> Result | list[Problem]:
    """Call `read` and return its result, or the problems of the DataError that it raises."""
    try:
        return read(*arguments)
    except DataError as error:
        return error.problems


def check_decodable(video: Video, look: VideoFileInfo) -> Problem | None:
    """Decode all frames. Returns a Problem if that fails."""
    problems = _result_or_problems(_read_through, video, look.frames)
    return problems[0] if problems else None


def _read_through(video: Video, count: int) -> None:
    read_frames(video, count, count, lambda image: np.empty(0, np.uint8), 1)


def inspect_video(video: Video) -> VideoFileInfo:
    """Read the header and the first frame of a video. Raises DataError, with a Problem, if it cannot be used."""
    if isinstance(video, Stored):
        return _inspect_content(video, video.read())
    if not isinstance(video, Path):
        shape = video.shape
        return VideoFileInfo(
            hashlib.sha256(video.tobytes()).hexdigest(), len(video), (shape[1], shape[2]), video.ndim == 3
        )
    try:
        return _inspect_folder(video) if video.is_dir() else _inspect_file(video)
    except OSError as error:
        raise unusable_video_error(video, f"it cannot be read ({error.strerror or error})") from error


def sampled_frame_indices(count: int, wanted: int) -> list[int]:
    """Return the indices of sampled frames: all if `count` ≤ `wanted`, else the middle of `wanted` equal segments."""
    if count <= wanted:
        return list(range(count))
    return [(2 * i + 1) * count // (2 * wanted) for i in range(wanted)]


def read_frames(video: Video, count: int, wanted: int, fit: Fit, channels: int) -> npt.NDArray[np.uint8]:
    """Read the sampled frames of a video with `count` frames, each passed through `fit`: (T, H, W, C), T ≤ wanted.

    `fit` receives upright frames in grey (1 channel) or RGB (3). Raises DataError, with a Problem, if a frame cannot be
    read or there are none.
    """
    if isinstance(video, Stored) or (isinstance(video, Path) and not video.is_dir()):
        return np.stack(_from_file(video, count, wanted, fit, channels))
    sources: Any = _frame_files(video)[0] if isinstance(video, Path) else video
    frames = [sources[i] for i in sampled_frame_indices(len(sources), wanted)]
    return np.stack([fit(read_image(frame, f"frame {i}", channels)) for i, frame in enumerate(frames)])


def as_video(video: Array) -> Array:
    """Return the array if it is a video. Raises DataError otherwise."""
    form = video.ndim == 3 or (video.ndim == 4 and video.shape[3] == 3)
    if not form or video.dtype != np.uint8 or not video.size:
        raise unusable_video_error(
            video,
            f"it is an array of {video.dtype} of shape {video.shape}: give (T, H, W) or (T, H, W, 3) of uint8",
        )
    return video


def video_paths(path: Path) -> list[Path]:
    """Return the video file or folder of frames itself, or the sorted videos directly in a folder.

    Raises DataError if there are none.
    """
    if not exists(path):
        raise missing_file_error(path, "video")
    if VIDEOS.fits(path):
        return [path]
    found = [p for p in list_entries(path) if VIDEOS.fits(p)] if path.is_dir() else []
    if not found:
        raise UnsupportedDataError(
            f"{path} is neither a video file ({', '.join(VIDEOS.suffixes)}) nor a folder of frames or of videos."
        )
    return found


def unusable_video_error(video: Video, what: str) -> DataError:
    """Build the error for one video."""
    return DataError("A video cannot be used:", [Problem(display_name(video), what)], fix=REPAIR)


def display_name(video: Video) -> str:
    """Return the name of a video for messages."""
    return str(video) if isinstance(video, Path | Stored) else "array"


def unusable_videos_error(problems: Sequence[Problem], total: int) -> DataError:
    """Build the error that names these of `total` videos."""
    some = f"{len(problems):,} of {total:,} videos" if total > 1 else "The video"
    return DataError(f"{some} cannot be used:", problems, fix=REPAIR)


def _inspect_file(path: Path) -> VideoFileInfo:
    require_regular_file(path)
    if not path.stat().st_size:
        raise unusable_video_error(path, "it is empty (0 bytes)")
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _inspect_content(path, data)


def _inspect_content(video: Path | Stored, data: Content) -> VideoFileInfo:
    digest = hashlib.sha256(data).hexdigest()
    if missing := missing_bytes(data):
        raise unusable_video_error(video, f"it is cut short: {missing:,} of {missing + len(data):,} bytes are missing")
    count, first = 0, None
    with _open_container(video) as (container, stream):
        for packet in container.demux(stream):
            count += packet.size > 0
            if first is None:
                first = next(iter(packet.decode()), None)
    if first is None:
        raise unusable_video_error(video, "it holds no frames")
    height, width = _pixels(first, "gray").shape
    return VideoFileInfo(digest, count, (height, width), first.format.name.startswith("gray"))


def count_pixels(data: bytes, name: str) -> int:
    """Return the number of pixels in all frames of the file in `data`, from header and packets without decoding.

    Raises DataError, with a Problem, if it cannot be read.
    """
    with _open_container(UploadedFile(name, data)) as (container, stream):
        frames = sum(packet.size > 0 for packet in container.demux(stream))
        return int(frames * stream.width * stream.height)


def _inspect_folder(path: Path) -> VideoFileInfo:
    files, left = _frame_files(path)
    digest, problems = hashlib.sha256(), []
    size: Size | None = None
    grey = True
    for file in files:
        data = read_bytes(file)
        digest.update(f"{file.name} {len(data)}\n".encode(errors="surrogateescape") + data)
        try:
            seen = read_header(data, str(file))
        except DataError as error:
            problems += error.problems
            continue
        size, grey = size or seen.size, grey and seen.grey
        if seen.size != size:
            problems.append(
                Problem(
                    str(file),
                    f"it has {seen.size[0]}×{seen.size[1]} pixels, and the frames before it {size[0]}×{size[1]}",
                )
            )
    if problems or size is None:
        raise DataError("A video cannot be used:", problems or [Problem(str(path), "it holds no frames")], fix=REPAIR)
    return VideoFileInfo(digest.hexdigest(), len(files), size, grey, tuple(str(p) for p in left))


def _frame_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the frames of a folder in natural order (2 before 10), and its other visible files."""
    found = {p.name: p for p in list_entries(folder) if IMAGES.fits(p)}
    left = [p for p in list_entries(folder) if p.name not in found and not p.name.startswith(".")]
    return [found[name] for name in natural_order(found)], left


def _from_file(path: Path | Stored, count: int, wanted: int, fit: Fit, channels: int) -> list[Pixels]:
    """Read the sampled frames of a file, again if its number of frames differs from `count`."""
    form = "gray" if channels == 1 else "rgb24"
    while True:
        wanted_numbers, found, number = set(sampled_frame_indices(count, wanted)), [], 0
        with _open_container(path) as (container, stream):
            size = None
            for frame in container.decode(stream):
                size = size or (frame.width, frame.height)
                if (frame.width, frame.height) != size:
                    change = f"{size[0]}×{size[1]} to {frame.width}×{frame.height} pixels"
                    raise unusable_video_error(path, f"its frames change size, from {change}")
                if number in wanted_numbers:
                    found.append(fit(Image.fromarray(_pixels(frame, form))))
                number += 1
        if not number:
            raise unusable_video_error(path, "it holds no frames")
        if number == count:
            return found
        count = number


@contextlib.contextmanager
def _open_container(path: Path | Stored) -> Iterator[tuple[Any, Any]]:
    """Open a container and its first video stream. Raises DataError, with a Problem, for any FFmpeg error."""
    av = require("av", "Reading videos")  # imported here because it loads the FFmpeg libraries

    try:
        container = av.open(io.BytesIO(path.read()) if isinstance(path, Stored) else str(path))
    except UnicodeError as error:
        raise unusable_video_error(path, "its name is not UTF-8, and FFmpeg takes no other: rename it") from error
    except av.FFmpegError as error:
        raise unusable_video_error(path, f"it is not readable as a video ({error.strerror})") from error
    with container:
        if not container.streams.video:
            raise unusable_video_error(path, "it holds no images, only audio or text")
        try:
            yield container, container.streams.video[0]
        except av.FFmpegError as error:
            raise unusable_video_error(path, f"it is damaged ({error.strerror})") from error


def _pixels(frame: Any, form: str) -> Pixels:
    """Return the pixels of a frame after its rotation: (H, W) in gray, (H, W, 3) in rgb24."""
    pixels: Pixels = frame.to_ndarray(format=form)
    quarters = round(frame.rotation / 90) % 4  # counter-clockwise
    return np.ascontiguousarray(np.rot90(pixels, quarters)) if quarters else pixels


Content = bytes | mmap.mmap  # of a whole file

RIFF = b"RIFF"
MATROSKA, SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"  # EBML header, and segment with all the rest
HEAD = 4096  # bytes in which the segment must start


def missing_bytes(data: Content) -> int:
    """Return the number of bytes that the header declares beyond `data`; 0 if unknown."""
    if data[:4] == RIFF:  # .avi
        size = int.from_bytes(data[4:8], "little")
        return 0 if size >= 0x7FFFF000 else max(0, 8 + size - len(data))
    if data[:4] == MATROSKA:  # .mkv, .webm
        return _missing_in_segment(data)
    if data[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):  # .mp4, .m4v, .mov
        return _missing_in_boxes(data)
    return 0


def _missing_in_segment(data: Content) -> int:
    """Return the missing bytes of Matroska: leading zeros of the segment size's first byte give its length."""
    start = data.find(SEGMENT, 0, HEAD) + len(SEGMENT)
    if start < len(SEGMENT) or start >= len(data) or not data[start]:
        return 0
    length = 9 - data[start].bit_length()
    size = int.from_bytes(data[start : start + length], "big") & ((1 << 7 * length) - 1)
    unknown = size == (1 << 7 * length) - 1  # written live
    return 0 if unknown else max(0, start + length + size - len(data))


def _missing_in_boxes(data: Content) -> int:
    """Return the missing bytes of MP4 and QuickTime: a sequence of boxes that start with their size and name."""
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if size == 1:  # the size follows the name, in eight bytes
            size = int.from_bytes(data[at + 8 : at + 16], "big")
        if size < 8:  # 0: up to the end; otherwise not a box
            return 0
        at += size
    return max(0, at - len(data))
