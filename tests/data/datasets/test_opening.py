"""The named sets: read as published where the files are here, told what is missing where they are not."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import datasets

from cutaway.core.errors import DataError, FileError, UnknownName
from cutaway.core.spec import (
    KINDS,
    Boxes,
    Classes,
    Horizon,
    ImageSizes,
    Mask,
    NextToken,
    SeriesSpec,
    Solution,
    TableSpec,
    Tags,
    Tokens,
    Transcript,
    Value,
)
from cutaway.data import open_data as named_module
from cutaway.data.dataset_base import Batch, DataSet
from cutaway.data.datasets.formats import read_labelled_idx
from cutaway.data.datasets.toy_data import TOY_POINTS
from cutaway.data.open_data import NAMED, OPENERS, open_named, where
from cutaway.data.settings import DataSettings

BUILT_IN = [name for name, named in NAMED.items() if not named.files]


TASKS = {
    "semantic segmentation": Mask,
    "problem solving": Solution,
    "classification": Classes,
    "regression": Value,
    "tagging": Tags,
    "language modelling": NextToken,
    "sequence-to-sequence": Tokens,
    "forecasting": Horizon,
    "object detection": Boxes,
    "image captioning": Tokens,
    "speech recognition": Transcript,
}


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder and an empty cache, and no way to fetch anything."""

    def reject(*_: object) -> Path:
        raise FileError("no network in tests")

    monkeypatch.setenv("CUTAWAY_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(named_module, "download_missing", reject)
    return tmp_path / "data"


@pytest.fixture
def shared(shared_data: Path, nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real data sets, and nothing else."""
    monkeypatch.setenv("CUTAWAY_DATA", str(shared_data))
    return shared_data


def opened(name: str, image_size: int | None = None, **settings: Any) -> DataSet:
    return open_named(name, DataSettings(**settings), ImageSizes(only=image_size))


def sizes(data: DataSet) -> tuple[int, ...]:
    return tuple(len(data.splits[split]) for split in ("train", "val", "test"))


def classes(data: DataSet) -> tuple[str, ...]:
    assert isinstance(data.spec.target, Classes)
    return data.spec.target.names


def idx(array: np.ndarray) -> bytes:
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


def little_mnist(folder: Path) -> None:
    """Forty training and twenty test images in MNIST's form."""
    folder.mkdir(parents=True)
    for kind, count in (("train", 40), ("t10k", 20)):
        pixels = np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
        (folder / f"{kind}-images-idx3-ubyte.gz").write_bytes(idx(pixels))
        (folder / f"{kind}-labels-idx1-ubyte.gz").write_bytes(idx((np.arange(count) % 10).astype(np.uint8)))


def test_every_set_is_described_and_can_be_opened() -> None:
    assert set(OPENERS) == set(NAMED)
    for name, named in NAMED.items():
        assert all([named.title, named.sizes, named.licence, named.citation, named.target]), name
        assert named.kind in KINDS
        assert named.task in TASKS
        assert set(named.needed) <= set(named.sums)
        for remote in named.files:
            assert remote.size > 0
            assert all(len(sha256) == 64 for _, sha256 in [*remote.contents, ("", remote.sha256)])
            assert remote.url.endswith(remote.name)


def answer_shape(data: DataSet, batch: Batch) -> tuple[int, ...]:
    """The shape of the target of one example: a mask as large as its image, four boxes, the words of a caption."""
    target = data.spec.target
    if isinstance(target, Mask):
        return batch.inputs[0].shape[2:]
    if isinstance(target, Boxes):
        return (4, 5)
    return batch.inputs[-1].shape[1:] if isinstance(target, Tokens | Solution) else ()


@pytest.mark.parametrize("name", BUILT_IN)
def test_sets_without_files_are_always_there(name: str, nowhere: Path) -> None:
    assert where(name) is not None
    data = opened(name)
    assert data.name == data.source == name
    assert data.spec.kind == NAMED[name].kind
    assert isinstance(data.spec.target, TASKS[NAMED[name].task])
    assert data.licence == NAMED[name].licence
    again = opened(name)
    assert (data.fingerprint, data.split_hash) == (again.fingerprint, again.split_hash)
    # The four rows of xor are every split, sinusoids are drawn, a scene's digits say which split it is in, and problems
    # that are tested on are always the same.
    same = ("xor", "sinusoids", "digit_boxes_small", "digit_captions_small")
    if NAMED[name].task != "problem solving" and name not in same:
        assert opened(name, split_seed=1).split_hash != data.split_hash
    for split in data.splits.values():
        count = min(len(split), 20_000)
        (batch,) = split.batches([torch.arange(count)])
        if data.spec.kind in ("table", "image"):
            assert batch.inputs[0].shape == (count, *data.spec.shape)
        assert torch.isfinite(batch.inputs[0]).all()
        assert batch.target.shape == (count, *answer_shape(data, batch))


@pytest.mark.parametrize(
    ("name", "examples", "columns", "names"),
    [
        ("iris", 150, 4, ("setosa", "versicolor", "virginica")),
        ("wine", 178, 13, ("class_0", "class_1", "class_2")),
        ("breast_cancer", 569, 30, ("benign", "malignant")),
        ("moons", TOY_POINTS, 2, ("0", "1")),
        ("spirals", TOY_POINTS, 2, ("0", "1", "2")),
    ],
)
def test_tables_have_their_columns_and_classes(name: str, examples: int, columns: int, names: tuple[str, ...]) -> None:
    data = opened(name)
    assert sum(sizes(data)) == examples
    assert isinstance(data.spec, TableSpec)
    assert len(data.spec.columns) == columns
    assert tuple(sorted(classes(data))) == names


def test_diabetes_is_in_its_own_units() -> None:
    data = opened("diabetes", scale="none", val=0.01, test=0.01)
    (batch,) = data.splits["train"].batches([torch.arange(sizes(data)[0])])
    ages = batch.inputs[0][:, data.spec.columns.index("age")]  # type: ignore[union-attr]
    assert ages.min() >= 19
    assert ages.max() <= 79
    assert data.spec.target.column == "progression"


def test_xor_is_in_every_part_and_says_so() -> None:
    data = opened("xor")
    assert sizes(data) == (4, 4, 4)
    (note,) = data.notes
    assert "training, validation and test split alike" in note
    (batch,) = data.splits["test"].batches([torch.arange(4)])
    assert torch.unique(batch.inputs[0], dim=0).shape == (4, 2)
    assert (batch.inputs[0].prod(1) < 0).long().tolist() == batch.target.tolist()  # signs differ: true


def test_digits_are_scikit_learns() -> None:
    data = opened("digits")
    assert data.spec.shape == (1, 8, 8)
    assert classes(data) == tuple("0123456789")
    assert sum(sizes(data)) == 1797
    bunch = datasets.load_digits()
    for split in data.splits.values():
        assert split.target is not None
        for i in (0, 5):
            number = int(split.name(i).split()[1])
            shown = split.image(i)
            assert shown is not None
            assert np.array_equal(np.round(np.asarray(shown) / 255 * 16), bunch.images[number])
            assert split.target[i] == bunch.target[number]
    assert opened("digits", 32).spec.shape == (1, 32, 32)


def test_a_digit_saved_as_an_image_gives_the_tensor_that_training_had(tmp_path: Path) -> None:
    data = opened("digits", 32)
    shown = data.splits["train"].image(3)
    assert shown is not None
    shown.save(tmp_path / "digit.png")
    (new,) = data.preprocessing.examples([tmp_path / "digit.png"]).batches([torch.tensor([0])])
    (old,) = data.splits["train"].batches([torch.tensor([3])])
    assert torch.equal(new.inputs[0], old.inputs[0])


def test_unknown_names_are_rejected(nowhere: Path) -> None:
    with pytest.raises(UnknownName, match=r"no data set 'mnst'\. Similar: .*mnist"):
        where("mnst")
    with pytest.raises(UnknownName):
        opened("mnst")


def test_what_is_nowhere_is_fetched(nowhere: Path) -> None:
    for name, named in NAMED.items():
        if named.files:
            assert where(name) is None
            with pytest.raises(FileError, match="no network in tests"):
                opened(name)


def test_files_are_found_in_the_data_folder_then_in_the_cache(nowhere: Path, tmp_path: Path) -> None:
    little_mnist(tmp_path / "cache" / "fashion_mnist")
    assert where("fashion_mnist") == tmp_path / "cache" / "fashion_mnist"
    little_mnist(nowhere / "fashion_mnist")
    assert where("fashion_mnist") == nowhere / "fashion_mnist"
    data = opened("fashion_mnist", 32)
    assert classes(data)[0] == "T-shirt/top"
    assert data.spec.shape == (1, 32, 32)
    assert sizes(data) == (30, 10, 20)  # one of each class at least, in validation too
    unpublished = [note for note in data.notes if "is not the published file" in note]
    assert len(unpublished) == 4
    (nowhere / "fashion_mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert where("fashion_mnist") == tmp_path / "cache" / "fashion_mnist"


def test_a_damaged_file_is_named(nowhere: Path) -> None:
    little_mnist(nowhere / "mnist")
    path = nowhere / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz cannot be unpacked"):
        opened("mnist")


def test_mnist1d_without_its_arrays_is_rejected(nowhere: Path) -> None:
    (nowhere / "mnist1d").mkdir(parents=True)
    path = nowhere / "mnist1d" / "mnist1d_data.pkl"
    path.write_bytes(pickle.dumps({"x": np.zeros((4, 40))}))
    with pytest.raises(DataError, match=r"mnist1d_data\.pkl does not hold the arrays"):
        opened("mnist1d")
    path.write_bytes(
        pickle.dumps({"x": np.zeros((4, 40)), "y": np.zeros(3), "x_test": np.zeros((4, 40)), "y_test": [0]})
    )
    with pytest.raises(DataError, match="8 series and 4 labels"):
        opened("mnist1d")
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(DataError, match="does not hold the arrays"):
        opened("mnist1d")


def test_cifar_whole_or_in_part(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = nowhere / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for file in NAMED["cifar10"].sums:
        records = rng.integers(0, 256, (40, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(40) % 10
        (nowhere / "cifar10" / file).write_bytes(records.tobytes())
    data = opened("cifar10", val=0.1)
    assert sizes(data) == (180, 20, 40)
    assert any("This is a part of CIFAR-10: 200 of 50,000 training images and 40 of 10,000" in n for n in data.notes)
    monkeypatch.setattr("cutaway.data.datasets.published.CIFAR_FILE", 40)
    assert not any("a part of CIFAR-10" in n for n in opened("cifar10").notes)
    assert sum("is not the published file" in n for n in opened("cifar10").notes) == 6
    (folder / "data_batch_3.bin").unlink()
    assert any("(not there: data_batch_3.bin)" in n for n in opened("cifar10").notes)


def test_mnist_is_read_right(shared: Path) -> None:
    files = [shared / "mnist" / name for name in NAMED["mnist"].needed]
    pixels, labels = read_labelled_idx(files[0], files[1], 10)
    assert pixels.shape == (60_000, 28, 28)
    assert np.bincount(labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert pixels.mean() / 255 == pytest.approx(0.1307, abs=5e-5)
    assert pixels.std() / 255 == pytest.approx(0.3081, abs=5e-5)
    pixels, labels = read_labelled_idx(files[2], files[3], 10)
    assert pixels.shape == (10_000, 28, 28)
    assert np.bincount(labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    data = opened("mnist", 32, max_samples=500)
    assert sizes(data) == (500, 9000, 10_000)
    assert data.notes == []
    (batch,) = data.splits["test"].batches([torch.arange(10)])
    assert batch.target.tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    border = batch.inputs[0].clone()
    border[:, :, 2:30, 2:30] = border.min()
    assert (border == border.min()).all()


def test_the_part_of_cifar_at_hand_is_told(shared: Path) -> None:
    data = opened("cifar10")
    assert classes(data)[:3] == ("airplane", "automobile", "bird")
    assert data.splits["test"].target is not None
    assert data.splits["test"].target[:4].tolist() == [3, 8, 8, 0]
    (note,) = (n for n in data.notes if "a part of CIFAR-10" in n)
    assert "10,000 of 50,000 training images and 1,000 of 10,000 test images" in note
    assert "(not there: data_batch_2.bin, data_batch_3.bin, data_batch_4.bin, data_batch_5.bin)" in note
    assert not any("not the published" in n for n in data.notes)


def test_mnist1d_is_read_right(shared: Path) -> None:
    data = opened("mnist1d")
    assert data.spec == SeriesSpec(40, 1, Classes(tuple("0123456789")))
    assert sizes(data) == (3400, 600, 1000)
    (batch,) = data.splits["train"].batches([torch.arange(3400)])
    assert batch.inputs[0].shape == (3400, 40, 1)
    assert abs(float(batch.inputs[0].mean())) < 1e-5
    assert data.splits["test"].name(0) == "series 4000"
    assert data.notes == []


def test_california_housing_is_read_right(shared: Path) -> None:
    data = opened("california_housing")
    assert sum(sizes(data)) == 20_640
    assert isinstance(data.spec.target, Value)
    assert data.spec.target.column == "median_house_value"


def test_titanic_leaves_out_what_repeats(shared: Path) -> None:
    data = opened("titanic")
    assert data.spec.target.column == "survived"
    columns = {column.split("=")[0] for column in data.spec.columns}  # type: ignore[union-attr]
    assert not columns & {"alive", "class", "embark_town", "who", "adult_male", "alone"}
    assert {"sex", "age", "fare"} <= columns
    assert any("Left out: alive, class" in n for n in data.notes)
    other = opened("titanic", target="alive", ignore=("deck",))
    columns = {column.split("=")[0] for column in other.spec.columns}  # type: ignore[union-attr]
    assert not columns & {"survived", "deck"}


def test_sums_are_those_of_the_real_files(shared: Path) -> None:
    for name in ("mnist", "mnist1d", "california_housing", "titanic"):
        assert not any("not the published file" in n for n in opened(name, max_samples=100).notes), name


def test_asking_again_finds_what_was_fetched(nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def fetch(remotes: object, folder: str) -> Path:
        del remotes
        fetched.append(folder)
        little_mnist(tmp_path / "cache" / folder)
        return tmp_path / "cache" / folder

    monkeypatch.setattr(named_module, "download_missing", fetch)
    first, second = opened("mnist"), opened("mnist")
    assert fetched == ["mnist"]
    assert first.fingerprint == second.fingerprint
