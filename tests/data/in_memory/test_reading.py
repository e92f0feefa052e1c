"""What objects are read as, and what is said of those that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import cutaway
from cutaway.core.errors import CutawayError, DataError
from cutaway.data.in_memory.container import Numbers
from cutaway.data.in_memory.dataset import to_channels_first, to_uint8
from cutaway.data.in_memory.source import InMemorySource, kind_of_array, parse_object, parse_targets

X = np.arange(60.0).reshape(20, 3)
y = np.arange(20) % 2
PIXELS = arrays(np.uint8, array_shapes(min_dims=4, max_dims=4, max_side=4))


@given(PIXELS, st.sampled_from([np.float32, np.float64]))
def test_bytes_are_found_again_and_nothing_else_is_taken_for_them(pixels: Any, dtype: Any) -> None:
    pixels = np.repeat(pixels[:, :1], 3, axis=1)
    divided = pixels.astype(dtype) / dtype(255)
    found = to_uint8(divided)
    assert found is not None
    assert np.array_equal(found, pixels)
    assert np.array_equal(to_uint8(torch.from_numpy(pixels).div(255).numpy()), pixels)  # type: ignore[arg-type]
    assert to_uint8(divided * dtype(0.999) + dtype(0.0005)) is None
    assert to_uint8(divided - 2) is None
    assert to_uint8(np.repeat(pixels, 2, axis=1)) is None  # of six channels


@given(PIXELS.filter(lambda images: images.shape[1] in (1, 3) and images.shape[3] not in (1, 3)))
def test_channels_are_where_they_can_be(images: Any) -> None:
    first, last = Numbers(name="a", values=images), Numbers(name="a", values=images.transpose(0, 2, 3, 1))
    assert np.array_equal(to_channels_first(first), images)
    if images.shape[2] not in (1, 3):
        assert np.array_equal(to_channels_first(last), images)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=30))
def test_targets_are_the_same_in_every_form(values: list[int]) -> None:
    forms = (values, tuple(values), np.array(values), torch.tensor(values), pl.Series(values), np.array([values]).T)
    found = [parse_targets(form, len(values)) for form in forms]
    assert all(series.to_list() == values for series in found)
    assert parse_targets(np.array(values, float), len(values)).to_list() == values
    assert parse_targets([torch.tensor(v) for v in values], len(values)).to_list() == values


@pytest.mark.parametrize(
    ("shape", "dtype", "takes", "kind"),
    [
        ((9, 4), "float64", ("table", "image"), "table"),
        ((9, 4), "float64", ("series",), "series"),
        ((9, 4, 4), "float64", ("series", "text"), "series"),
        ((9, 4, 4), "float64", ("image",), "image"),
        ((9, 4, 4), "uint8", ("image", "series"), "image"),
        ((9, 4, 4), "uint8", ("series",), "series"),
        ((9, 4, 4), "float64", (), "series"),
        ((9, 4, 4, 3), "float64", (), "image"),
    ],
)
def test_an_array_is_of_the_kind_that_the_model_takes(shape: Any, dtype: str, takes: Any, kind: str) -> None:
    assert kind_of_array(Numbers(name="a", values=np.zeros(shape, dtype)), takes) == kind


class NoLength(Dataset[Any]):
    def __getitem__(self, i: int) -> Any:
        return torch.zeros(3), 0


class Broken(Dataset[Any]):
    def __len__(self) -> int:
        return 5

    def __getitem__(self, i: int) -> Any:
        return torch.zeros(3), {2: 1 / 0 if i == 2 else 0}.get(i, 0)


class Triples(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield 1, 2, 3


def without(row: int) -> Any:
    """Targets of which one is missing."""
    targets = y.astype(float)
    targets[row] = np.nan
    return targets


BAD: dict[str, tuple[Any, str]] = {
    "unequal": ((X, y[:15]), r"X holds 20 examples and y 15 targets"),
    "object": ((X.astype(object), y), r"X is an array of objects.*dtype object.*X\.astype\(float\)"),
    "complex": ((X * 1j, y), r"complex numbers"),
    "dates": ((X, np.full(20, "2020-01-01", "datetime64[D]")), r"y is an array of dtype datetime64"),
    "NaN target": ((X, without(3)), r"row 4, column target: the target is missing"),
    "no length": (NoLength(), r"The NoLength has no length.*IterableDataset"),
    "broken": (Broken(), r"Item 3 of the Broken cannot be read: ZeroDivisionError"),
    "triples": (Triples(), r"Item 1 of the Triples holds 3 things"),
    "three tensors": (TensorDataset(*[torch.zeros(3, 2)] * 3), r"items have 3 tensors"),
    "loader": (DataLoader(TensorDataset(torch.zeros(3, 2))), r"DataLoader.*loader\.dataset"),
    "empty": ((X[:0], y[:0]), r"is empty"),
    "empty list": ([], r"is empty"),
    "mixed shapes": (([np.zeros(3), np.zeros(4)], [0, 1]), r"example 1 has \(3,\) where example 2 has \(4,\)"),
    "a list of X and y": ([X, y], r"as a tuple, \(X, y\)"),
    "ragged": (([[1.5, 2], [3]], [0, 1]), r"example 1 has \(2,\) where example 2 has \(1,\)"),
    "ragged ids": (([[1, 2], [3]], [0, 1]), r"mlp takes table.*several lengths, are token ids: rows .* of one length"),
    "negative ids": (([[1, -2], [3]], [0, 1]), r"Example 1 holds the token -2"),
    "mixed kinds": ((["a", 3], [0, 1]), r"mixes str \(example 1\), int \(example 2\)"),
    "numbers": ((X[:, 0], y), r"shape \(20,\).*X\[:, None\]"),
    "five dimensions": ((np.zeros((2, 3, 4, 5, 6)), [0, 1]), r"shape \(2, 3, 4, 5, 6\)"),
    "one-hot": ((X, np.eye(2)[y]), r"shape \(20, 2\).*y\.argmax\(1\)"),
    "objects as targets": ((X, [{}] * 20), r"objects of type dict"),
    "X alone": (X, r"has no targets.*give \(X, y\)"),
    "frame alone": (pl.DataFrame(X), r"Which column of the table is to be predicted"),
    "nested": ([{"a": [1], "b": 2}], r"Row 1 holds a list under 'a'"),
    "columns differ": ([{"a": 1, "b": 2}, {"a": 1}], r"Row 2 and row 1 differ.*'b'"),
    "y and column": ((pl.DataFrame({"target": [1.0] * 20, "x": X[:, 0]}), y), r"has a column 'target'"),
    "graphs and y": (([type("G", (), {"edge_index": np.zeros((2, 0), int), "num_nodes": 2})()], [1]), r"give it alone"),
    "split names": ({"validation": (X, y)}, r"has train among them"),
    "iterator": (iter(X), r"cannot be .*iterator.*once alone.*list\(DATA\)"),
    "three": ((X, y, X), r"a tuple of 3, and \(X, y\) has two.*test=\(X_test, y_test\)"),
    "anything": (object(), r"cannot be an object of type object\. It is the name of a data set, a path, \(X, y\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_learned_from_is_said_in_one_paragraph(name: str) -> None:
    thing, words = BAD[name]
    with pytest.raises(CutawayError, match=words) as found:
        cutaway.train("mlp", thing)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        ({"val": (X[:, :2], y)}, r"train and val differ in the columns they have: 'x2'"),
        ({"val": pl.DataFrame(X)}, r"train is an object of type tuple and val .*DataFrame: give both in one form"),
        ({"test": X}, r"train has targets and test has none"),
        ({"test": (X, y[:3])}, r"In test: X holds 20 examples and y 3"),
        ({"val": (X[:0], y[:0])}, r"In val: The data is empty"),
    ],
)
def test_splits_are_of_the_same_form(splits: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        cutaway.train("mlp", (X, y), **splits)
    with pytest.raises(CutawayError, match="needs data given in Python too"):
        cutaway.train("mlp", "iris", **splits)


def test_bad_images_are_named() -> None:
    nan = np.zeros((20, 1, 8, 8))
    nan[2, 0, 1, 1] = np.nan
    targets = [None if i in (1, 3) else i % 2 for i in range(20)]
    doors: dict[str, tuple[Any, Any]] = {
        r"1 of 20 examples hold NaN.*example 3": (nan, y),
        r"2 of 20 examples have no target\. image 2: .*; image 4: ": (np.zeros((20, 8, 8), np.uint8), targets),
        r"X has no targets": ([Image.new("L", (8, 8))] * 4, None),
    }
    for words, data in doors.items():
        with pytest.raises(DataError, match=words):
            cutaway.train("lenet5-modern", data)


def test_an_index_of_pandas_is_no_column_and_gaps_are_gaps() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.5, None, 2.0], "b": ["x", None, "z"], 3: [True, False, True]})
    frame.index = pandas.Index([7, 8, 9], name="id")
    held = parse_object(frame)
    assert held.frame.to_dicts() == [  # type: ignore[attr-defined]
        {"a": 1.5, "b": "x", "3": True},
        {"a": None, "b": None, "3": False},
        {"a": 2.0, "b": "z", "3": True},
    ]
    with pytest.raises(DataError, match="Two columns of the data frame are named 'a'"):
        parse_object(pandas.DataFrame([[1, 2]], columns=["a", "a"]))


def test_columns_are_texts_and_targets() -> None:
    pandas = pytest.importorskip("pandas")
    for make in (pandas.Series, pl.Series):
        held = parse_object((make(["good", "bad"] * 3), make([1, 0] * 3)))
        assert held.texts == ("good", "bad") * 3  # type: ignore[attr-defined]
        assert held.target is not None
        assert held.target.to_list() == [1, 0] * 3


def test_a_dataset_of_one_graph_is_that_graph() -> None:
    data = pytest.importorskip("torch_geometric.data")

    class One(Dataset[Any]):
        def __init__(self, graphs: int) -> None:
            self.graphs = graphs

        def __len__(self) -> int:
            return self.graphs

        def __getitem__(self, i: int) -> Any:
            edges = torch.tensor([[0, 1], [1, 2]])
            y = torch.tensor([0, 1, 0]) if self.graphs == 1 else torch.tensor([i])
            return data.Data(x=torch.eye(3), edge_index=edges, y=y, pos=torch.zeros(3, 2))

    one, many = parse_object(One(1)), parse_object(One(4))
    assert not one.graphs.many  # type: ignore[attr-defined]
    assert many.graphs.many  # type: ignore[attr-defined]
    assert len(many) == 4
    assert many.graphs.notes == one.graphs.notes == ("pos of the graph is not read.",)  # type: ignore[attr-defined]


def test_one_object_is_read_once_and_two_are_two() -> None:
    first, same, other = InMemorySource((X, y)), InMemorySource((X.copy(), list(y))), InMemorySource((X, 1 - y))
    assert first.fingerprint == same.fingerprint != other.fingerprint
    assert first != same
    assert first.splits is first.splits
