"""Folders of class folders of videos: held or read anew, the same tensors; what is told and rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cutaway.core.errors import DataError
from cutaway.core.spec import Classes, ImageSizes, VideoSpec
from cutaway.data.dataset_base import DataSet
from cutaway.data.samplers import padding_fraction
from cutaway.data.settings import DataSettings
from cutaway.data.video.dataset import open_videos
from cutaway.data.video.transforms import VideoPreprocessing, VideoSplit

from .making import moving_bar, write_frames, write_video


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Two classes of eight videos of different lengths, files and folders of frames."""
    for i in range(8):
        across, down = moving_bar(3 + i, start=i), moving_bar(10 - i, start=3 * i, down=True)
        write_video(tmp_path / "videos" / "across" / f"{i}.avi", across)
        write_frames(tmp_path / "videos" / "down" / str(i), down)
    return tmp_path / "videos"


def opened(path: Path, sizes: ImageSizes | None = None, **settings: Any) -> DataSet:
    return open_videos(path, DataSettings(**settings), sizes or ImageSizes())


def split(data: DataSet, name: str) -> VideoSplit:
    found = data.splits[name]
    assert isinstance(found, VideoSplit)
    return found


def whole(found: VideoSplit) -> tuple[Tensor, Tensor]:
    (batch,) = found.batches([torch.arange(len(found))])
    x, mask = batch.inputs
    return x, mask


def test_videos_become_normalised_frames(videos: Path) -> None:
    data = opened(videos)
    assert data.name == "videos"
    assert {p: len(found) for p, found in data.splits.items()} == {"train": 11, "val": 3, "test": 2}
    train = split(data, "train")
    assert data.spec == VideoSpec(int(train.lengths.max()), 3, 32, 48, Classes(("across", "down")))
    x, mask = whole(train)
    assert x.dtype == torch.float32
    assert x.shape == (11, *data.spec.shape)
    assert mask.sum(1).tolist() == train.lengths.tolist()
    assert not x[~mask].any()
    assert x[mask].mean((0, 2, 3)).abs().max() < 1e-4
    assert (x[mask].std((0, 2, 3)) - 1).abs().max() < 1e-3
    assert data.notes == []
    for i in range(11):
        assert train.target is not None
        assert train.name(i).split("/")[0] == ("across", "down")[train.target[i]]


def test_a_folder_of_frames_is_read_to_the_pixel(videos: Path) -> None:
    data = opened(videos)
    found = data.preprocessing.examples([videos / "down" / "2"])
    x, mask = whole(found)  # type: ignore[arg-type]
    assert mask.all()
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (data.preprocessing.images.mean, data.preprocessing.images.std))  # type: ignore[attr-defined]
    pixels = ((x[0] * std + mean) * 255).round().permute(0, 2, 3, 1).numpy()
    np.testing.assert_array_equal(pixels, moving_bar(8, start=6, down=True))


@pytest.mark.parametrize("workers", [0, None, 3])
def test_held_or_read_anew_they_are_the_same(videos: Path, workers: int | None) -> None:
    held, streamed = opened(videos, frames=5), opened(videos, frames=5, memory=0, workers=workers)
    assert (held.fingerprint, held.split_hash) == (streamed.fingerprint, streamed.split_hash)
    for name in held.splits:
        (x, mask), (y, other) = whole(split(held, name)), whole(split(streamed, name))
        assert torch.equal(x, y)
        assert torch.equal(mask, other)


def test_batches_hold_videos_of_nearly_one_length(videos: Path) -> None:
    train = split(opened(videos), "train")
    plan = train.plan(3, torch.Generator().manual_seed(0))
    assert sorted(i for batch in plan for i in batch.tolist()) == list(range(11))
    assert padding_fraction(train.lengths, plan) < padding_fraction(train.lengths, [torch.arange(11)]) / 2
    assert train.target is not None
    for order, batch in zip(plan, train.batches(plan)):
        assert batch.inputs[1].sum(1).tolist() == train.lengths[order].tolist()
        assert batch.target.tolist() == train.target[order].tolist()


def test_frames_are_taken_evenly_and_it_is_said(videos: Path) -> None:
    data = opened(videos, frames=4)
    assert data.spec.shape[0] == 4
    (note,) = data.notes
    assert note.startswith("12 of 16 videos have more than 4 frames, and 4 of each are taken, evenly spread")
    x, _ = whole(data.preprocessing.examples([videos / "down" / "0"]))  # type: ignore[arg-type]
    y, _ = whole(opened(videos).preprocessing.examples([videos / "down" / "0"]))  # type: ignore[arg-type]
    torch.testing.assert_close(x[0], y[0, [1, 3, 6, 8]], rtol=0, atol=0.1)  # the means differ by the frames seen


def test_sizes_and_colours_that_are_asked_for(videos: Path) -> None:
    grey = opened(videos, color="gray", image_size=16)
    assert grey.spec.shape == (10, 1, 16, 16)
    assert grey.notes == ["16 of 16 videos are coloured and are read in grey; color=rgb keeps colours."]
    larger = opened(videos, ImageSizes(least=40))
    assert larger.spec.shape[2:] == (40, 48)
    assert "resized to 40×48, the smallest size that the model supports" in larger.notes[0]
    assert opened(videos, ImageSizes(only=24)).spec.shape[2:] == (24, 24)
    write_frames(videos / "down" / "8", moving_bar(4, 20, 20))
    assert opened(videos, ImageSizes(usual=28)).spec.shape[2:] == (28, 28)  # of two sizes: the usual one


def test_grey_frames_stay_grey(tmp_path: Path) -> None:
    for i in range(4):
        write_video(tmp_path / "a" / f"{i}.avi", moving_bar(3, start=i), "ffv1")
        write_video(tmp_path / "b" / f"{i}.avi", moving_bar(3, start=9 + i), "ffv1")
    data = opened(tmp_path, val=0.25, test=0.25)
    assert data.spec.shape == (3, 1, 32, 48)


def test_the_preprocessing_is_json(videos: Path) -> None:
    preprocessing = opened(videos, frames=4).preprocessing
    document = preprocessing.to_json()
    assert document["kind"] == "video"
    again = VideoPreprocessing.from_json(json.loads(json.dumps(document)))
    assert again == preprocessing
    with pytest.raises(KeyError):
        VideoPreprocessing.from_json({k: v for k, v in document.items() if k != "frames"})
    with pytest.raises(ValueError, match="kind image"):
        VideoPreprocessing.from_json({**document, "spec": document["images"]["spec"]})


def test_new_videos_are_prepared_as_training_was(videos: Path) -> None:
    data = opened(videos)
    train = split(data, "train")
    again = data.preprocessing.examples([videos / train.name(i) for i in range(len(train))])
    assert isinstance(again, VideoSplit)
    assert torch.equal(whole(again)[0], whole(train)[0])
    assert again.target is None
    labelled = data.preprocessing.labelled(videos)
    assert labelled.target is not None
    assert labelled.target.tolist() == [0] * 8 + [1] * 8
    assert labelled.name(8) == "down/0"
    assert len(data.preprocessing.examples([videos / "down"])) == 8
    array = moving_bar(5)
    mixed = data.preprocessing.examples([array, array[..., 0], videos / "down" / "0"])
    assert [mixed.name(i) for i in range(3)] == ["video 0", "video 1", str(videos / "down" / "0")]
    x, mask = whole(mixed)  # type: ignore[arg-type]
    assert mask.sum(1).tolist() == [5, 5, 10]
    assert torch.equal(x[0], x[1])  # grey shown in colours
    with pytest.raises(DataError, match="No video was given"):
        data.preprocessing.examples([])


def test_a_video_is_seen_in_rows_of_three_frames(videos: Path) -> None:
    data = opened(videos)
    found = data.preprocessing.examples([videos / "down" / "0", videos / "down" / "4"])
    assert [found.image(i).size for i in range(2)] == [(3 * 48, 2 * 32)] * 2  # type: ignore[union-attr]
    frames, seen = moving_bar(6, start=12, down=True), np.asarray(found.image(1))
    np.testing.assert_array_equal(seen[:32, 48:96], frames[1])
    np.testing.assert_array_equal(seen[32:, 96:], frames[5])
    assert (np.asarray(found.image(0))[32:, 96:] == 255).all()  # of five there is no sixth


def test_bad_videos_are_named(videos: Path, tmp_path: Path) -> None:
    data = opened(videos)
    (videos / "across" / "0.avi").write_bytes(b"")
    broken = videos / "down" / "3" / "2.png"
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(DataError, match=r"^2 of 16 videos cannot be used: .*0\.avi: it is empty .*2\.png: ") as error:
        opened(videos)
    assert len(error.value.problems) == 2
    with pytest.raises(DataError, match=r"The video cannot be used: .*0\.avi"):
        data.preprocessing.examples([videos / "across" / "0.avi"])
    write_frames(tmp_path / "other" / "round" / "1", moving_bar(2))
    with pytest.raises(DataError, match="holds the class 'round', and the model was trained on across, down"):
        data.preprocessing.labelled(tmp_path / "other")
    with pytest.raises(DataError, match="There is no folder"):
        data.preprocessing.labelled(tmp_path / "none")


def test_what_breaks_while_it_is_read_is_named(videos: Path) -> None:
    train = split(opened(videos, memory=0), "train")
    for folder in (videos / "down").iterdir():
        (folder / "1.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"videos cannot be used: .*1\.png"):
        list(train.batches([torch.arange(len(train))]))


def test_limit_thins_out_training_alone(videos: Path) -> None:
    data = opened(videos, max_samples=5)
    assert [len(p) for p in data.splits.values()] == [5, 3, 2]


def test_copies_across_splits_are_told(tmp_path: Path) -> None:
    for i in range(3):
        write_frames(tmp_path / "train" / "a" / str(i), moving_bar(3, start=i))
        write_frames(tmp_path / "train" / "b" / str(i), moving_bar(3, start=i, down=True))
        write_frames(tmp_path / "test" / "a" / str(i), moving_bar(3, start=2 + i))
    copied, absent = sorted(opened(tmp_path, val=0).notes)
    assert copied.startswith(
        "Possible leakage by duplicates across splits: 1 of 3 videos in test equal one of an earlier split"
    )
    assert absent.startswith("The test split has no videos of b")


def test_what_stands_beside_frames_is_told(videos: Path) -> None:
    (videos / "down" / "1" / "notes.txt").touch()
    (note,) = opened(videos).notes
    assert note == f"Not read, because they are not images in folders of frames: {videos / 'down' / '1' / 'notes.txt'}."
