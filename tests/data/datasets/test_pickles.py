"""Pickles as data: plain values are read at every protocol, anything else is rejected before it runs."""

from __future__ import annotations

import collections
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError
from cutaway.data.datasets.formats import read_pickle

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> pytest.TempPathFactory:
    """A fresh folder for each example."""
    return tmp_path_factory


@settings(max_examples=60, deadline=None)
@given(value=plain, protocol=st.integers(0, 5))
def test_plain_values_come_back_equal(folders: pytest.TempPathFactory, value: Any, protocol: int) -> None:
    path = folders.mktemp("pickle") / "some.pkl"
    path.write_bytes(pickle.dumps(value, protocol))
    assert read_pickle(path) == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_come_back_equal(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "arrays.pkl"
    whole = np.arange(24)
    value = {
        "float": np.linspace(0, 1, 6).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        "big": np.arange(4, dtype=">i4"),
        "bytes": np.array([250, 3], np.uint8),
        "text": np.array(["ab", "c"]),
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.float32(2.5),
        "shared": [whole, whole],
    }
    path.write_bytes(pickle.dumps(value, protocol))
    read = read_pickle(path)
    for key in ("float", "columns", "big", "bytes", "text", "empty"):
        assert read[key].dtype == value[key].dtype, key
        assert read[key].shape == value[key].shape, key
        assert (read[key] == value[key]).all(), key
    assert read["scalar"] == 2.5
    assert read["shared"][0] is read["shared"][1]
    read["float"][0, 0] = 7  # a copy that can be written to, not a view of the file


class Runs:
    """On unpickling, calls `function(*arguments)`: what a pickle can do to whoever reads it."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", ["mkdir", "system"])
def test_a_malicious_pickle_is_rejected_by_name_and_not_run(tmp_path: Path, protocol: int, name: str) -> None:
    trace = tmp_path / "it_ran"
    argument = str(trace) if name == "mkdir" else f"touch {trace}"
    path = tmp_path / "mnist1d_data.pkl"
    path.write_bytes(pickle.dumps({"x": np.ones(3), "y": Runs(getattr(os, name), argument)}, protocol))
    with pytest.raises(DataError) as caught:
        read_pickle(path)
    assert f"posix.{name}" in str(caught.value) or f"nt.{name}" in str(caught.value)
    assert "mnist1d_data.pkl" in str(caught.value)
    assert not trace.exists()
    pickle.loads(path.read_bytes())  # the file is what it is said to be: Python's own reader runs it
    assert trace.exists()


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (collections.OrderedDict(a=1), "collections.OrderedDict"),
        ({1, 2}, "set|SET"),
        (np.array([None, 3], dtype=object), "array of object"),
        (np.zeros(2, dtype=[("a", "i4")]), "array of"),
        (np.dtype("f8"), "function or type instead of a value"),
        (np.ndarray, "function or type instead of a value"),
        (Runs(eval, "1 + 1"), "builtins.eval"),
    ],
)
def test_other_objects_are_rejected(tmp_path: Path, value: Any, cause: str) -> None:
    path = tmp_path / "object.pkl"
    path.write_bytes(pickle.dumps(value))
    with pytest.raises(DataError, match=cause):
        read_pickle(path)


def test_a_value_that_holds_itself_is_rejected(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)
    path = tmp_path / "loop.pkl"
    path.write_bytes(pickle.dumps(loop))
    with pytest.raises(DataError, match="contains itself"):
        read_pickle(path)


def test_shared_parts_do_not_multiply(tmp_path: Path) -> None:
    value: list[Any] = [1]
    for _ in range(60):
        value = [value, value]  # 2^60 leaves, were each visited
    path = tmp_path / "laughs.pkl"
    path.write_bytes(pickle.dumps(value))
    assert len(read_pickle(path)) == 2


@pytest.mark.parametrize("keep", [0, 1, 10, 100, -1])
def test_a_pickle_cut_short_is_rejected(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "short.pkl"
    path.write_bytes(pickle.dumps({"x": np.arange(50.0), "y": [1, 2]})[:keep])
    with pytest.raises(DataError, match=r"short\.pkl is not a complete pickle"):
        read_pickle(path)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_never_gets_past_the_reader(folders: pytest.TempPathFactory, data: st.DataObject) -> None:
    good = bytearray(pickle.dumps({"x": np.arange(5.0), "y": [1, "two"]}, data.draw(st.integers(0, 5))))
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    path = folders.mktemp("pickle") / "damaged.pkl"
    path.write_bytes(bytes(good))
    try:
        read_pickle(path)
    except DataError as error:
        assert "damaged.pkl" in str(error)  # noqa: PT017 - reading something else is as good an end as rejecting


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_sparse_matrices_and_dictionaries_of_lists_come_as_plain_values(tmp_path: Path, protocol: int) -> None:
    from scipy.sparse import csr_matrix

    dense = np.array([[0.0, 1.5, 0.0], [2.0, 0.0, 0.0]], np.float32)
    graph = collections.defaultdict(list, {0: [1, 2], 1: [0]})
    path = tmp_path / "graph.pkl"
    path.write_bytes(pickle.dumps({"features": csr_matrix(dense), "graph": graph}, protocol))
    read = read_pickle(path)
    assert type(read["graph"]) is dict
    assert read["graph"] == {0: [1, 2], 1: [0]}
    parts = read["features"]
    assert set(parts) == {"data", "indices", "indptr", "shape"}
    assert parts["shape"] == (2, 3)
    again = csr_matrix((parts["data"], parts["indices"], parts["indptr"]), parts["shape"])
    assert (again.toarray() == dense).all()


def test_no_other_object_is_made(tmp_path: Path) -> None:
    from scipy.sparse import csc_matrix

    path = tmp_path / "other.pkl"
    for value in (csc_matrix(np.eye(2)), Path("x"), collections.OrderedDict(a=1), collections.Counter("a"), [list]):
        path.write_bytes(pickle.dumps(value, 2))
        with pytest.raises(DataError, match="nothing of it was run"):
            read_pickle(path)
