"""One video: the same frames from a file, a folder or an array, and every way in which it can be none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cutaway.core.errors import DataError
from cutaway.data.images.image_files import Pixels, as_pixels
from cutaway.data.video.video_files import (
    Video,
    as_video,
    inspect_video,
    inspect_videos,
    missing_bytes,
    read_frames,
    sampled_frame_indices,
    video_paths,
)

from .making import Frames, moving_bar, turn, write_frames, write_video

SUFFIXES = ("avi", "mp4", "m4v", "mov", "mkv")


def all_of(video: Video, count: int, wanted: int = 1000, channels: int = 3) -> Frames:
    def plain(frame: Image.Image) -> Pixels:
        return as_pixels(frame)

    return read_frames(video, count, wanted, plain, channels)


def rejected(video: Path) -> str:
    """Why a video cannot be used, at a look or when it is read."""
    with pytest.raises(DataError) as error:
        all_of(video, inspect_video(video).frames)
    (problem,) = error.value.problems
    assert problem.where.startswith(str(video))
    return problem.what


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_gives_back_its_frames(tmp_path: Path, suffix: str) -> None:
    frames = moving_bar()
    path = write_video(tmp_path / f"a.{suffix}", frames)
    look = inspect_video(path)
    assert (look.frames, look.size, look.grey) == (12, (32, 48), False)
    found = all_of(path, look.frames)
    assert found.shape == frames.shape
    assert np.abs(found.astype(int) - frames).mean() < 8  # the codec loses a little
    order = [int(np.abs(found[t].astype(int) - frames).mean((1, 2, 3)).argmin()) for t in range(12)]
    assert order == list(range(12))
    grey = all_of(path, look.frames, channels=1)
    assert grey.shape == (12, 32, 48, 1)
    assert np.abs(grey.astype(int) - frames[..., :1]).mean() < 8


def test_grey_files_are_known(tmp_path: Path) -> None:
    assert inspect_video(write_video(tmp_path / "a.avi", moving_bar(), "ffv1")).grey


def test_a_folder_gives_back_its_frames_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    frames = moving_bar()
    folder = write_frames(tmp_path / "a", frames)
    (folder / "notes.txt").touch()
    (folder / ".hidden.png").touch()
    look = inspect_video(folder)
    assert (look.frames, look.size, look.grey) == (12, (32, 48), False)
    assert look.left == (str(folder / "notes.txt"),)
    np.testing.assert_array_equal(all_of(folder, 12), frames)
    np.testing.assert_array_equal(all_of(folder, 12, wanted=3), frames[[2, 6, 10]])


def test_an_array_gives_back_its_frames() -> None:
    frames = moving_bar()
    assert (inspect_video(frames).frames, inspect_video(frames).grey) == (12, False)
    assert inspect_video(frames[..., 0]).grey
    np.testing.assert_array_equal(all_of(frames, 12), frames)
    np.testing.assert_array_equal(all_of(frames[..., 0], 12, channels=1), frames[..., :1])
    for bad in (frames[0, 0], frames.astype(float), frames[:0], frames[..., :2]):
        with pytest.raises(DataError, match=r"give \(T, H, W\) or"):
            as_video(bad)


def test_the_content_alone_tells_videos_apart(tmp_path: Path) -> None:
    one, same = (write_frames(tmp_path / name, moving_bar()) for name in "ab")
    other = write_frames(tmp_path / "c", moving_bar(start=1))
    assert inspect_video(one).digest == inspect_video(same).digest != inspect_video(other).digest


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 400), wanted=st.integers(1, 60))
def test_frames_are_chosen_evenly(count: int, wanted: int) -> None:
    found = sampled_frame_indices(count, wanted)
    assert len(found) == min(count, wanted)
    assert all(0 <= i < count for i in found)
    gaps = np.diff(found)
    assert (gaps >= 1).all()
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1
    assert abs(found[0] - (count - 1 - found[-1])) <= 1  # as much is left out before as after


def test_a_head_that_miscounts_is_not_believed(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.avi", moving_bar())
    expected = all_of(path, 12, wanted=4)
    for count in (5, 30):
        np.testing.assert_array_equal(all_of(path, count, wanted=4), expected)


def test_a_video_is_turned_upright(tmp_path: Path) -> None:
    frames = moving_bar()
    path = write_video(tmp_path / "a.mp4", frames)
    plain = all_of(path, 12)
    turn(path)
    assert inspect_video(path).size == (48, 32)
    np.testing.assert_array_equal(all_of(path, 12), np.rot90(plain, -1, axes=(1, 2)))  # clockwise


@settings(max_examples=25, deadline=None)
@given(fraction=st.floats(0, 1, exclude_max=True), suffix=st.sampled_from(SUFFIXES))
def test_no_beginning_of_a_file_passes_for_the_whole(
    tmp_path_factory: pytest.TempPathFactory, fraction: float, suffix: str
) -> None:
    path = write_video(tmp_path_factory.mktemp("cut") / f"a.{suffix}", moving_bar(6))
    data = path.read_bytes()
    path.write_bytes(data[: int(fraction * len(data))])
    assert rejected(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_missing_is_counted(tmp_path: Path, suffix: str) -> None:
    path = write_video(tmp_path / f"a.{suffix}", moving_bar())
    data = path.read_bytes()
    assert missing_bytes(data) == 0
    path.write_bytes(data[:-100])
    assert rejected(path) == f"it is cut short: 100 of {len(data):,} bytes are missing"


def test_heads_that_tell_no_length() -> None:
    assert missing_bytes(b"RIFF\xff\xff\xff\xffAVI ") == 0
    head = b"\x1a\x45\xdf\xa3\x80" + b"\x18\x53\x80\x67"
    assert missing_bytes(head + b"\x01" + b"\xff" * 7) == 0
    assert missing_bytes(head + b"\x83ab") == 1  # a size in one byte: 3
    assert missing_bytes(head) == missing_bytes(b"\x1a\x45\xdf\xa3") == 0
    box = (16).to_bytes(4, "big") + b"ftyp" + b"12345678"
    large = (1).to_bytes(4, "big") + b"mdat" + (20).to_bytes(8, "big")
    assert missing_bytes(box + large + b"1234") == 0
    assert missing_bytes(box + large + b"12") == 2
    assert missing_bytes(box + (0).to_bytes(4, "big") + b"mdat12") == 0
    assert missing_bytes(b"") == missing_bytes(b"GIF89a") == 0


def test_files_that_are_no_videos_are_named(tmp_path: Path) -> None:
    empty, text = tmp_path / "empty.mp4", tmp_path / "text.mp4"
    empty.touch()
    text.write_text("This is no video.\n" * 50)
    assert rejected(empty) == "it is empty (0 bytes)"
    assert "not readable as a video" in rejected(text)
    assert "it cannot be read (No such file" in rejected(tmp_path / "none.mp4")


def test_a_file_without_pictures_is_named(tmp_path: Path) -> None:
    import av

    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert rejected(path) == "it holds no images, only audio or text"


def test_damage_within_a_file_is_named(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", moving_bar(40))
    data = bytearray(path.read_bytes())
    start = data.index(b"mdat") + 200
    data[start : start + 600] = b"\xff" * 600
    path.write_bytes(data)
    assert "it is damaged (Invalid data found" in rejected(path)


def test_frames_that_do_not_belong_together_are_named(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "a", moving_bar(3))
    Image.new("RGB", (20, 10)).save(folder / "2.png")
    assert rejected(folder) == "it has 10×20 pixels, and the frames before it 32×48"
    (folder / "2.png").write_bytes(b"")
    assert rejected(folder) == "it is empty (0 bytes)"
    (tmp_path / "none").mkdir()
    assert rejected(tmp_path / "none") == "it holds no frames"


def test_every_bad_video_is_named_at_once(tmp_path: Path) -> None:
    good = write_video(tmp_path / "0.mp4", moving_bar(3))
    empty = tmp_path / "1.mp4"
    empty.touch()
    damaged = write_frames(tmp_path / "2", moving_bar(3))
    whole = (damaged / "3.png").read_bytes()
    (damaged / "3.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"^2 of 3 videos cannot be used: .* Repair") as error:
        inspect_videos([good, empty, damaged])
    assert [p.where for p in error.value.problems] == [str(empty), str(damaged / "3.png")]


def test_the_videos_of_a_path(tmp_path: Path) -> None:
    file, folder = write_video(tmp_path / "b.avi", moving_bar(2)), write_frames(tmp_path / "a", moving_bar(2))
    assert video_paths(tmp_path) == [folder, file]
    assert video_paths(folder) == [folder]
    assert video_paths(file) == [file]
    with pytest.raises(DataError, match="There is no video"):
        video_paths(tmp_path / "c.avi")
    (tmp_path / "c").mkdir()
    with pytest.raises(DataError, match="nor a folder of frames or of videos"):
        video_paths(tmp_path / "c")
