"""Folders as people have them: what dominates is the data, and layouts of other programs are recognised."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from cutaway.core.errors import CutawayError, DataError
from cutaway.core.spec import ImageSpec
from cutaway.data import folders
from cutaway.data.folders import dominant_kind, tallies
from cutaway.data.open_data import infer_kind, open_data
from cutaway.data.settings import DataSettings
from cutaway.data.unsupported_formats import describe_labels
from cutaway.models.registry import preset
from cutaway.training.setup import resolve_config
from tests.scripts import DOCS

RNG = np.random.default_rng(0)
VOC = (
    "<annotation><filename>{name}.jpg</filename><size><width>40</width><height>24</height></size><object>"
    "<name>{label}</name><bndbox><xmin>3</xmin><ymin>5</ymin><xmax>20</xmax><ymax>16</ymax></bndbox></object></annotation>"
)


def write_image(path: Path, width: int = 8, height: int = 8) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RNG.integers(0, 255, (height, width, 3), dtype=np.uint8)).save(path)
    return path


def write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_sound(path: Path, samples: int = 800) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.1 * RNG.normal(size=samples), 8000)
    return path


def rejection(source: Path, **settings: object) -> str:
    with pytest.raises(CutawayError) as rejected:
        open_data(source, DataSettings(**settings))  # type: ignore[arg-type]
    return str(rejected.value)


# --- what dominates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["README.txt", "readme_first.txt", "LICENSE.txt", "notes.txt", "SHA256SUMS.txt"])
def test_a_text_beside_many_tables_is_not_the_data(tmp_path: Path, name: str) -> None:
    for i in range(7):
        write_text(tmp_path / f"{i}.csv", f"a,b\n1,{i}\n")
    write_text(tmp_path / name, "word " * 3)
    said = rejection(tmp_path)
    assert "holds 7 .csv files (0.csv, 1.csv, 2.csv, …), and a table is one file. They have the same columns" in said
    assert f"polars.read_csv('{tmp_path}/*.csv', infer_schema=False).write_csv('all.csv')" in said


def test_tables_of_different_columns_are_not_to_be_joined(tmp_path: Path) -> None:
    write_text(tmp_path / "a.csv", "a,b\n1,2\n")
    write_text(tmp_path / "b.csv", "c,b\n1,2\n")
    assert f"Their columns differ. Give one of them: {tmp_path / 'a.csv'}" in rejection(tmp_path)


def test_a_readme_is_not_text_to_learn_from(tmp_path: Path) -> None:
    write_text(tmp_path / "README.txt", "Where it comes from. " * 300)
    for i in range(2):
        write_text(tmp_path / f"book{i}.txt", "the cat sat on the mat. " * 40)
    data = open_data(tmp_path, DataSettings())
    assert data.spec.kind == "text"
    assert "W" not in data.preprocessing.tokenizer.tokens  # type: ignore[attr-defined]
    assert any(f"Not read, because they are no texts (.txt): {tmp_path / 'README.txt'}." in note for note in data.notes)


def test_files_of_two_kinds_that_both_could_be_the_data_are_rejected(tmp_path: Path) -> None:
    write_text(tmp_path / "book.txt", "word " * 9000)
    for i in range(2):
        write_text(tmp_path / f"{i}.csv", "a,b\n1,2\n")
    said = rejection(tmp_path)
    assert "it is not clear which are the data: 3 files (2 .csv, 1 .txt)" in said
    assert f"or give one file: {tmp_path / 'book.txt'}" in said


def test_class_folders_hold_what_dominates_and_a_stray_file_is_named(tmp_path: Path) -> None:
    for name in ("low", "high"):
        for i in range(6):
            write_sound(tmp_path / name / f"{i}.wav")
    stray = write_image(tmp_path / "low" / "spectrum.png")
    assert dominant_kind(tmp_path) == "audio"
    assert any(str(stray) in note for note in open_data(tmp_path, DataSettings()).notes)
    for name in ("low", "high"):
        for i in range(5):
            write_image(tmp_path / name / f"{i}.png")
    assert dominant_kind(tmp_path) is None
    assert "not clear which are the data" in rejection(tmp_path)


def test_few_files_are_looked_at_in_a_large_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in range(9):
        for i in range(5):
            write_image(tmp_path / str(name) / f"{i}.png")
    monkeypatch.setattr(folders, "IN_ALL", 18)
    assert tallies(tmp_path)[1].count == {"image": 18}
    assert dominant_kind(tmp_path) == "image"
    for i in range(30):
        write_text(tmp_path / "flat" / f"{i}.odd", "x")
    assert "It holds at least 18 files (18 .odd)" in rejection(tmp_path / "flat")


def test_annotations_beside_images_do_not_decide(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        for i in range(5):
            write_image(tmp_path / name / f"{i}.png", 40, 40)
            write_text(tmp_path / name / f"{i}.txt", "x")
            write_text(tmp_path / name / f"{i}.json", "{}")
    write_text(tmp_path / "photos.zip", "x" * 100_000)
    assert dominant_kind(tmp_path) == "image"


def test_folders_that_archives_leave_are_no_classes(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        for i in range(10):
            write_image(tmp_path / name / f"{i}.png")
    write_text(tmp_path / "__MACOSX" / "._cat", "x")
    assert open_data(tmp_path, DataSettings()).spec.target.classes == ("cat", "dog")


def test_images_directly_in_split_folders_have_no_classes(tmp_path: Path) -> None:
    for name in ("train", "val"):
        for i in range(5):
            write_image(tmp_path / name / f"{i}.png")
    assert "has train/ and val/ with images directly in them, without a class" in rejection(tmp_path)


# --- formats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".flac", ".ogg", ".mp3"])
def test_class_folders_of_compressed_recordings_are_read(tmp_path: Path, suffix: str) -> None:
    for name in ("low", "high"):
        for i in range(6):
            write_sound(tmp_path / name / f"{i}{suffix}", 4000)
    data = open_data(tmp_path, DataSettings())
    assert data.spec.kind == "audio"
    assert sum(len(split) for split in data.splits.values()) == 12
    file = tmp_path / "low" / f"3{suffix}"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert str(file) in rejection(tmp_path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("t.xlsx", "spreadsheets (.xlsx) are not supported. Save it as CSV"),
        ("t.npz", 'NumPy arrays (.npz) are not supported. From Python: cutaway.train("MODEL", (X, y)) with X, y from'),
        ("t.mat", 'scipy.io.loadmat("t.mat")'),
        ("t.pkl", "Pickles are never opened here"),
        ("t.h5", "HDF5 files (.h5) are not supported"),
        ("t.arff", 'scipy.io.arff.loadarff("t.arff")'),
        ("t.feather", "polars.read_ipc('t.feather').write_parquet"),
        ("t.libsvm", 'load_svmlight_file("t.libsvm")'),
        ("photos.zip", "Unpack it first"),
        ("t.jsonl", "polars.read_ndjson('t.jsonl')"),
        ("cat.png", "is a single image file. Data is a folder with one folder of images for each class"),
        ("train-images-idx3-ubyte.gz", "is an idx file, the form of MNIST"),
    ],
)
def test_formats_are_told_with_the_way_in(tmp_path: Path, name: str, said: str) -> None:
    assert said in rejection(write_text(tmp_path / name, "x"))


def test_a_folder_of_such_files_is_told_too(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "1.npy", "x")
    write_text(tmp_path / "a" / "2.npy", "x")
    said = rejection(tmp_path / "a")
    assert "holds 2 files (2 .npy): NumPy arrays (.npy) are not supported" in said
    write_text(tmp_path / "b" / "1.odd", "x")
    said = rejection(tmp_path / "b")
    assert "holds no kind of data that can be read. It holds 1 file (1 .odd). Give a folder with one folder per" in said
    assert "To be converted first: Pascal VOC" in said


# --- layouts ----------------------------------------------------------------------------------------------------------


def write_voc(images: Path, annotations: Path) -> None:
    for i, label in enumerate(("cat", "dog", "cat", "cat", "dog", "cat")):
        write_image(images / f"{i}.jpg", 40, 24)
        write_text(annotations / f"{i}.xml", VOC.format(name=i, label=label))


@pytest.mark.parametrize(("images", "annotations"), [("JPEGImages", "Annotations"), ("", ""), ("train", "train")])
def test_pascal_voc_is_recognised_and_the_script_of_the_page_converts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: str, annotations: str
) -> None:
    write_voc(tmp_path / "voc" / images, tmp_path / "voc" / annotations)
    said = rejection(tmp_path / "voc")
    assert "holds boxes in Pascal VOC's form (0.xml), which is not read" in said
    assert "docs/detection.md has a script" in said
    page = (DOCS / "detection.md").read_text(encoding="utf-8")
    script = re.search(r"### Pascal VOC\n.*?```python\n(.*?)```", page, re.DOTALL)
    assert script is not None
    monkeypatch.chdir(tmp_path)
    exec(script[1], {})  # of our own page
    data = open_data(tmp_path / "voc", DataSettings())
    assert isinstance(data.spec, ImageSpec)
    assert data.spec.target.names == ("cat", "dog")
    assert sum(len(split) for split in data.splits.values()) == 6
    assert not [note for note in data.notes if "left out" in note or "reach" in note]


def test_layouts_of_flat_folders_are_recognised(tmp_path: Path) -> None:
    for name in ("labelme", "yolo"):
        for i in range(4):
            write_image(tmp_path / name / f"{i}.jpg")
    for i in range(4):
        write_text(tmp_path / "labelme" / f"{i}.json", '{"version": "5", "flags": {}, "shapes": []}')
        write_text(tmp_path / "yolo" / f"{i}.txt", "0 0.5 0.5 0.25 0.5\n")
    assert "holds annotations in labelme's form (0.json)" in rejection(tmp_path / "labelme")
    said = rejection(tmp_path / "yolo")
    assert "holds YOLO's label files next to the images (0.txt)" in said
    assert str(tmp_path / "yolo" / "labels") in said


@pytest.mark.parametrize(("inside", "cell"), [("", "{}.png"), ("images", "{}"), ("", "pics\\{}.png")])
def test_labels_in_a_table_say_which_folders_to_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, cell: str
) -> None:
    for i in range(9):
        write_image(tmp_path / "pics" / inside / f"p{i}.png")
    rows = "".join(f"{cell.format(f'p{i}')},{'cat' if i % 3 else 'dog'}\n" for i in range(9))
    table = write_text(tmp_path / "pics" / "labels.csv", f"file,label\n{rows}")
    said = rejection(tmp_path / "pics")
    assert "is a folder of images whose labels are in labels.csv, which is not read" in said.replace(
        " (columns file, label)", ""
    )
    assert rejection(tmp_path / "pics", target="label") == said
    if "\\" in cell:
        return
    command = re.search(r'python -c "(.*)" and give by_class', said)
    assert command is not None
    monkeypatch.chdir(tmp_path)
    exec(command[1], {})  # what the message gives to be run
    data = open_data(tmp_path / "by_class", DataSettings())
    assert data.spec.target.names == ("cat", "dog")
    assert sum(len(split) for split in data.splits.values()) == 9
    assert len(list(csv.reader(table.open()))) == 10


def test_a_table_of_labels_beside_images_lists_no_models_of_tables(tmp_path: Path) -> None:
    for i in range(9):
        write_image(tmp_path / "pics" / f"p{i}.png")
    rows = [f"p{i}.png,{'cat' if i % 3 else 'dog'}\n" for i in range(9)]
    beside = write_text(tmp_path / "pics" / "labels.csv", "file,label\n" + "".join(rows))
    apart = write_text(tmp_path / "labels.csv", "file,label\n" + "".join(row.replace("p", "q", 1) for row in rows))

    def rejected(table: Path) -> str:
        with pytest.raises(CutawayError) as caught:
            resolve_config(preset("simplecnn"), str(table), {"target": "label"}, False)
        return str(caught.value)

    said = rejected(beside)
    assert said.startswith(f"{beside} is table data, and the model takes image data: {beside.parent} is a folder of ")
    assert "images whose labels are in labels.csv (columns file, label)" in said
    assert "and give by_class" in said
    assert "These models take it" not in said
    assert "mlp" not in said
    assert "These models take it: linear, " in rejected(apart)


def test_a_table_that_is_no_text_names_no_files(tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    table.write_bytes(b"PAR1\x15\x04\ra,b\rc\n\x00\xff\rd\n1,2\n")
    assert describe_labels(table) is None


def test_class_folders_that_are_nested_deeper_are_named(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        for i in range(3):
            write_image(tmp_path / "a" / "photos" / name / f"{i}.png")
            for split in ("train", "test"):
                write_image(tmp_path / "b" / "photos" / split / name / f"{i}.png")
    for outer in ("a", "b"):
        said = rejection(tmp_path / outer)
        assert "holds images deeper than in class folders" in said
        assert said.endswith(f"Give the folder that holds the class folders: {tmp_path / outer / 'photos'}")


def test_data_of_other_tools_is_recognised_by_the_names_in_the_folder(tmp_path: Path) -> None:
    for name, file, said in (
        ("kaldi", "wav.scp", "is a Kaldi data folder"),
        ("lmdb", "data.mdb", "is an LMDB database"),
        ("records", "train.tfrecord-00000-of-00002", "holds TFRecord files"),
        ("mnist", "t10k-labels-idx1-ubyte", "holds idx files, the form of MNIST"),
    ):
        write_text(tmp_path / name / file, "x" * 50)
        write_text(tmp_path / name / "about.txt", "x")
        assert said in rejection(tmp_path / name)


def test_a_text_named_like_a_file_of_tu_graphs_is_text(tmp_path: Path) -> None:
    write_text(tmp_path / "part_A.txt", "the cat sat on the mat. " * 9)
    assert infer_kind(tmp_path, DataSettings()) == "text"
    write_text(tmp_path / "part_graph_indicator.txt", "1\n")
    assert infer_kind(tmp_path, DataSettings()) == "graph"


def test_a_single_parquet_file_beside_class_folders_is_not_the_data(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write_image(tmp_path / name / "1.png")
    write_text(tmp_path / "index.parquet", "x")
    assert infer_kind(tmp_path, DataSettings()) == "image"
    with pytest.raises(DataError):
        infer_kind(tmp_path / "cat" / "nothing", DataSettings())
