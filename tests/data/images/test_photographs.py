"""Photographs in every form that people's folders hold: read as a person sees them, checked, and learned from.

The forms are those of `cutaway examples photographs`, of drawn images and, where they are at hand, of real ones.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cutaway.apps.cli import main
from cutaway.core.errors import DataError
from cutaway.data.images.dataset import open_folder
from cutaway.data.images.image_files import read_header, read_image
from cutaway.data.settings import DataSettings
from cutaway.data.synthetic import examples


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two drawn images in every form."""
    path = tmp_path_factory.mktemp("drawn") / "photographs"
    examples.write_folder(path, examples.photographs())
    return path


def difference(a: Image.Image, b: Image.Image) -> float:
    """The mean difference in levels."""
    return float(np.abs(np.asarray(a).astype(int) - np.asarray(b).astype(int)).mean())


def assert_seen_as_by_a_person(photo: Image.Image, file: Path) -> None:
    form = examples.FORMS[file.name]
    seen = form.seen(photo)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = read_image(file, file.name)
    assert (read.mode, read.size) == (seen.mode, seen.size)
    assert difference(read, seen) <= form.error
    known = read_header(file.read_bytes(), file.name)
    assert (known.size, known.grey) == (seen.size[::-1], seen.mode == "L")
    assert known.moving == (file.name == "moving.gif")


@pytest.mark.parametrize("form", examples.FORMS)
def test_every_form_of_a_drawn_picture_is_read_as_a_person_sees_it(form: str, folder: Path) -> None:
    for subject, photo in examples.photographs().items():
        assert_seen_as_by_a_person(photo, folder / subject / form)


def test_every_form_of_real_photographs_is_read_as_a_person_sees_it(shared_data: Path, tmp_path: Path) -> None:
    found = examples.photographs(shared_data / "photos")
    photos = {subject: found[subject] for subject in ("chelsea", "coffee")}
    examples.write_folder(tmp_path, photos)
    for subject, photo in photos.items():
        for form in examples.FORMS:
            assert_seen_as_by_a_person(photo, tmp_path / subject / form)


def test_the_forms_are_what_they_say(folder: Path) -> None:
    """A form that a person would see alike in another one would test nothing."""

    def opened(name: str) -> Image.Image:
        image = Image.open(folder / "sunset" / name)
        image.load()
        return image

    assert [opened(f"turned {k}.jpg").getexif().get(0x0112) for k in range(1, 9)] == list(range(1, 9))
    assert opened("progressive.jpg").info["progressive"]
    assert opened("a jpeg in truth.png").format == "JPEG"
    modes = {
        "deep.png": "I;16",
        "deep.tiff": "I;16",
        "cmyk.tiff": "CMYK",
        "palette.png": "P",
        "cut out, grey.png": "LA",
    }
    assert {name: opened(name).mode for name in modes} == modes
    assert opened("deep, 0 is white.tiff").tag_v2[262] == 0  # type: ignore[attr-defined]
    assert "transparency" in opened("palette with a hole.png").info
    assert (opened("cmyk.jpg").info["adobe_transform"], opened("ycck.jpg").info["adobe_transform"]) == (0, 2)
    blackest = np.asarray(opened("cmyk.tiff"))[:, :, 3].max()
    assert blackest > 100
    assert opened("moving.gif").n_frames == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("suffix", ["png", "tiff", "webp", "jpg"])
def test_turned_files_of_one_size_keep_their_proportions(suffix: str, tmp_path: Path) -> None:
    """All have one size, which is the upright one: nothing of them is cropped away."""
    write = examples.orientation_writer(6)
    for i in range(8):
        path = tmp_path / ("high" if i % 2 else "low") / f"{i}.{suffix}"
        path.parent.mkdir(exist_ok=True)
        write(examples.meadow(20, 30 + i // 8), path)
    assert open_folder(tmp_path, DataSettings(val=0.25, test=0.25)).spec.shape == (3, 30, 20)


@pytest.mark.parametrize("form", [name for name in examples.FORMS if name.endswith((".jpg", ".jfif", ".png", ".tiff"))])
def test_a_file_cut_short_is_named(form: str, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / form
    path.write_bytes((folder / "meadow" / form).read_bytes())
    examples.truncate_file(path)
    with pytest.raises(DataError, match="damaged, cut short") as caught:
        read_image(path, str(path))
    assert caught.value.problems[0].where == str(path)


def test_check_and_train_take_the_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", "resnet18", str(folder), "image_size=32", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sum(told["data"]["splits"].values()) == 2 * len(examples.FORMS)
    # The same photographs in other forms: alike, and none the bytes of another.
    assert all("near-duplicates" in note for note in told["data"]["notes"] if "across splits" in note)
    words = ["train", "simplecnn", str(folder), "image_size=32", "epochs=6", "lr=5e-3", "batch_size=8"]
    assert main([*words, "tensorboard=false", "--out", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"]["value"] >= 0.9
    assert main(["predict", "run", str(folder / "meadow" / "ycck.jpg")]) == 0
    assert "meadow" in capsys.readouterr().out


def test_check_names_what_is_damaged(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    examples.write_folder(tmp_path / "damaged", examples.photographs())
    for name in ("progressive.jpg", "plain.png"):
        examples.truncate_file(tmp_path / "damaged" / "sunset" / name)
    for command in ("check", "train"):
        assert main([command, "resnet18", "damaged", "image_size=32"]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "2 of" in said
        assert "sunset/progressive.jpg: it is damaged, cut short" in said
        assert "sunset/plain.png: it is damaged, cut short" in said
