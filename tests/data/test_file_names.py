"""Names that differ in the form of Unicode, in the separator of paths or in capitals alone."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from cutaway.core.errors import DataError
from cutaway.core.spec import Mask
from cutaway.data.dataset_base import map_class_ids
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings

NFC, NFD = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
RNG = np.random.default_rng(0)


def write_images(folder: Path, *names: str, size: int = 8) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        Image.fromarray(RNG.integers(0, 255, (size, size, 3), dtype=np.uint8)).save(folder / name)


NAMES = tuple(f"{i}.png" for i in range(6))


def test_a_class_folder_is_one_class_in_either_form_of_unicode(tmp_path: Path) -> None:
    for split, name, count in (("train", NFD, 6), ("test", NFC, 3), ("train", "dog", 5), ("test", "dog", 4)):
        write_images(tmp_path / split / name, *NAMES[:count])
    data = open_data(tmp_path, DataSettings(val=0))
    assert data.spec.target.names == (NFC, "dog")
    assert np.bincount(data.splits["test"].target).tolist() == [3, 4]  # type: ignore[arg-type]
    evaluated = data.preprocessing.labelled(tmp_path / "train")  # type: ignore[attr-defined]
    assert np.bincount(evaluated.target).tolist() == [6, 5]


def test_a_run_that_learned_the_other_form_is_evaluated_too() -> None:
    assert map_class_ids((NFC, "dog"), ("dog", NFD)).tolist() == [1, 0]
    with pytest.raises(DataError, match="'Dog' reads like 'dog': if they are one class, write them alike"):
        map_class_ids(("Dog",), ("cat", "dog"))


def test_two_folders_of_one_name_in_both_forms_are_one_class(tmp_path: Path) -> None:
    write_images(tmp_path / NFC, *NAMES)
    write_images(tmp_path / NFD, *NAMES[:4])
    write_images(tmp_path / "dog", *NAMES[:5])
    data = open_data(tmp_path, DataSettings(val=0, test=0))
    assert np.bincount(data.splits["train"].target).tolist() == [10, 5]  # type: ignore[arg-type]


def test_class_folders_that_differ_in_capitals_alone_are_said_to_read_alike(tmp_path: Path) -> None:
    for split, name in (("train", "Cat"), ("train", "dog"), ("test", "cat"), ("test", "dog")):
        write_images(tmp_path / split / name, *NAMES)
    with pytest.raises(DataError, match=r"there is no .*cat\. 'cat' reads like 'Cat': if they are one class, write"):
        open_data(tmp_path, DataSettings())
    (tmp_path / "test" / "cat").rename(tmp_path / "test" / "Cat")
    data = open_data(tmp_path, DataSettings())
    (tmp_path / "test" / "Cat").rename(tmp_path / "test" / "CAT")
    with pytest.raises(DataError, match="'CAT' reads like 'Cat'"):
        data.preprocessing.labelled(tmp_path / "test")  # type: ignore[attr-defined]


def test_classes_of_a_table_that_read_alike_are_named_in_new_rows(tmp_path: Path) -> None:
    rows = "".join(f"{i % 7},{NFC if i % 3 else 'tea'}\n" for i in range(30))
    (tmp_path / "t.csv").write_text(f"x,y\n{rows}", encoding="utf-8")
    (tmp_path / "new.csv").write_text(f"x,y\n1,{NFD}\n", encoding="utf-8")
    data = open_data(tmp_path / "t.csv", DataSettings(target="y"))
    with pytest.raises(DataError, match=r"'café' \(caf\\xe9\): if they are one class, write them alike"):
        data.preprocessing.labelled(tmp_path / "new.csv")  # type: ignore[attr-defined]


@pytest.mark.parametrize("written", [f"images\\{NFD}.png", f"images/{NFC}.png", f"{NFC}.png", f"c:\\photos\\{NFC}.png"])
@pytest.mark.parametrize("learned", [(), (Mask,)])
def test_coco_files_are_found_however_their_path_is_written(
    tmp_path: Path, written: str, learned: tuple[type[Mask], ...]
) -> None:
    write_images(tmp_path / "images", *NAMES, f"{NFD}.png", size=16)
    names = [*(f"images/{name}" for name in NAMES), written]
    shape = {"bbox": [2, 2, 8, 8], "segmentation": [[2, 2, 10, 2, 10, 10]], "category_id": 7}
    document = {
        "images": [{"id": i, "file_name": name, "height": 16, "width": 16} for i, name in enumerate(names)],
        "categories": [{"id": 7, "name": "cup"}],
        "annotations": [{"id": i, "image_id": i, **shape} for i in range(7)],
    }
    (tmp_path / "annotations.json").write_text(json.dumps(document), encoding="utf-8")
    data = open_data(tmp_path, DataSettings(val=0, test=0), targets=learned)
    assert len(data.splits["train"]) == 7
    assert data.splits["train"].name(6) == f"images/{NFD}.png"


def test_masks_and_yolo_labels_belong_to_images_in_either_form(tmp_path: Path) -> None:
    for folder in ("m", "y"):
        write_images(tmp_path / folder / "images", *NAMES, f"{NFC}.png", size=16)
    (tmp_path / "m" / "masks").mkdir()
    (tmp_path / "y" / "labels").mkdir()
    (tmp_path / "y" / "classes.txt").write_text("cup\n")
    for name in (*NAMES, f"{NFD}.png"):
        Image.fromarray(np.repeat(np.uint8([[0], [1]]), 8, 0).repeat(16, 1)).save(tmp_path / "m" / "masks" / name)
        (tmp_path / "y" / "labels" / name).with_suffix(".txt").write_text("0 0.5 0.5 0.5 0.5\n")
    assert sum(map(len, open_data(tmp_path / "m", DataSettings()).splits.values())) == 7
    data = open_data(tmp_path / "y", DataSettings())
    assert sum(map(len, data.splits.values())) == 7
    assert not [note for note in data.notes if "no label file" in note]


def test_tables_of_transcripts_and_captions_name_files_in_either_form(tmp_path: Path) -> None:
    for i in range(6):
        (tmp_path / "calls" / "parts").mkdir(parents=True, exist_ok=True)
        soundfile.write(tmp_path / "calls" / "parts" / f"{i}{NFD}.wav", 0.1 * RNG.normal(size=4000), 8000)
    lines = "".join(f"parts\\{i}{NFC}.wav\thello\n" for i in range(6))
    (tmp_path / "calls" / "transcripts.tsv").write_text(lines, encoding="utf-8")
    assert sum(map(len, open_data(tmp_path / "calls", DataSettings()).splits.values())) == 6
    write_images(tmp_path / "photos" / "parts", *(f"{i}{NFD}.png" for i in range(6)))
    lines = "".join(f"parts\\{i}{NFC}.png\ta cup\n" for i in range(6))
    (tmp_path / "photos" / "captions.tsv").write_text(lines, encoding="utf-8")
    assert sum(map(len, open_data(tmp_path / "photos", DataSettings()).splits.values())) == 6
