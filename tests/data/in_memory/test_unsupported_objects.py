"""Objects that are not data, or not whole, are refused with one sentence, before anything is computed."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset
from torch_geometric.data import Data

import cutaway
from cutaway.core.errors import SettingError
from cutaway.data.in_memory.container import as_frame
from cutaway.data.in_memory.source import to_source
from cutaway.data.tables.table_files import frame_table

N = 6
CLASSES = ["a", "b", "a"] * 2
X = torch.arange(3.0 * N).reshape(N, 3)
Y = torch.tensor([0, 1, 0, 0, 1, 1])
RING = torch.tensor([[i, (i + 1) % N] for i in range(N)]).T


class NoText:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Ascii:
    def __str__(self) -> str:
        return "é".encode("ascii").decode()

    __repr__ = __str__


class Long(Dataset[Any]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3), index % 2


def frame(column: Any) -> pl.DataFrame:
    return pl.DataFrame({"b": range(N), "a": column, "y": CLASSES})


def nested() -> list[Any]:
    holds_itself: list[Any] = [1.0, 2.0]
    holds_itself.append(holds_itself)
    return [holds_itself, holds_itself]


def streaming() -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.IterableDataset.from_generator(lambda: iter([{"a": 1.0, "y": "b"}]))


def closed() -> list[Image.Image]:
    image = Image.new("L", (8, 8))
    image.close()
    return [Image.new("L", (8, 8)), image]


def graph(**changes: Any) -> Data:
    return Data(**({"x": X, "edge_index": RING, "y": Y} | changes))


EMPTY = torch.zeros(2, 0, dtype=torch.int64)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "list column": (lambda: frame([[1.0, 2.0]] * N), r"Column 'a' of the table holds values of type List\(Float64\)"),
    "array column": (lambda: frame(np.zeros((N, 2))), "Column 'a' of the table holds values of type Array"),
    "struct column": (lambda: frame([{"q": 1}] * N), "Column 'a' of the table holds values of type Struct"),
    "object column": (
        lambda: frame(pl.Series([NoText()] * N, dtype=pl.Object)),
        "Column 'a' of the table holds Python objects",
    ),
    "bytes column": (lambda: frame([b"\xff"] * N), "Column 'a' of the table holds bytes"),
    "pandas objects": (lambda: pd.DataFrame({"a": [1.0, object()], "y": [0, 1]}), "Row 2 of 'a' holds an object of"),
    "pandas without text": (lambda: pd.DataFrame({"a": [NoText()], "y": [0]}), "Row 1 of 'a' holds .* NoText"),
    "pandas surrogate": (
        lambda: pd.DataFrame({"a": pd.Series(["b", "\ud800"], dtype=object), "y": [0, 1]}),
        r"Row 2 of 'a' cannot be read: U\+D800",
    ),
    "rows without text": (lambda: [{"a": 1}, {"a": NoText()}], "Row 2 of 'a' holds .* NoText"),
    "rows with a surrogate": (lambda: [{"a": "b"}, {"a": "\udcff"}], r"Row 2 of 'a' cannot be read: U\+DCFF"),
    "a name with a surrogate": (lambda: [{"a\ud800": "b"}], r"column name 'a\\ud800' cannot be read"),
    "rows whose text is encoded": (lambda: [{"a": 1}, {"a": Ascii()}], "Row 2 of 'a' holds an object of type Ascii"),
    "a name whose text is encoded": (
        lambda: pd.DataFrame([[1, 2]], columns=pd.Index(["a", Ascii()], dtype=object)),
        "A column name is an object of type Ascii: names are text",
    ),
    "a name without text": (
        lambda: pd.DataFrame([[1, 2]], columns=pd.Index(["a", NoText()], dtype=object)),
        "A column name is an object of type NoText: names are text",
    ),
    "text with a surrogate": (lambda: (["a b", "c \ud800"], [0, 1]), r"'c '… is followed by U\+D800"),
    "class with a surrogate": (lambda: (X[:2], ["a", "\ud800"]), r"U\+D800 is half of a surrogate pair"),
    "list that holds itself": (nested, "are lists of different lengths"),
    "Dataset of a trillion": (lambda: Long(10**12), "1,000,000,000,000 examples, which would take .* GiB"),
    "Dataset of negative length": (lambda: Long(-1), "The length of the Long cannot be read"),
    "streaming Dataset": (streaming, "A streaming dataset has no length"),
    "meta tensor": (lambda: (torch.empty(N, 3, device="meta"), Y), "meta device"),
    "meta targets": (lambda: (X, torch.empty(N, device="meta")), "meta device"),
    "quantized tensor": (lambda: (torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), Y), "tensor.dequantize"),
    "nested tensor": (lambda: (torch.nested.nested_tensor([X[0], X[1, :2]]), Y[:2]), "tensor.unbind"),
    "sparse tensor": (lambda: (X.to_sparse(), Y), "tensor.to_dense"),
    "no columns": (lambda: (np.zeros((N, 0)), Y), r"shape \(6, 0\): each of its examples is empty"),
    "images without sides": (lambda: ([Image.new("L", (8, 8)), Image.new("L", (0, 0))], Y[:2]), "image 2: .*no pixels"),
    "array images without sides": (lambda: (np.zeros((N, 1, 0, 0), np.uint8), Y), "each of its examples is empty"),
    "image of 400 megapixels": (lambda: ([Image.new("1", (20_000, 20_000))], [0]), "image 1: .* 400 megapixels"),
    "closed image": (lambda: (closed(), [0, 1]), "image 2: it cannot be read"),
    "large token": (lambda: ([[1, 2], [3, 4, 2**40]], [0, 1]), "Example 2 holds the token 1099511627776"),
    "one token too many": (lambda: ([[1], [3, 2**22]], [0, 1]), "Example 2 holds the token 4194304"),
    "negative token": (lambda: ([[1], [3, -2]], [0, 1]), "Example 2 holds the token -2"),
    "split that is None": (lambda: {"train": None, "test": (X, Y)}, "The training split is None"),
    "graph without nodes": (lambda: graph(x=torch.zeros(0, 3), edge_index=EMPTY, y=Y[:0]), "The graph has no nodes"),
    "graph without edge_index": (lambda: graph(edge_index=None), "edge_index of the graph is None"),
    "meta graph": (lambda: graph(x=torch.empty(N, 3, device="meta")), "meta device"),
    "a graph of several without nodes": (
        lambda: [graph(y=Y[:1]), graph(x=torch.zeros(0, 3), edge_index=EMPTY, y=Y[:1])],
        "Graph 2 has no nodes",
    ),
    "a graph of several without edge_index": (
        lambda: [graph(y=Y[:1]), graph(edge_index=None, y=Y[:1])],
        "edge_index of graph 2 is None",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_sentence(name: str) -> None:
    make, sentence = REFUSED[name]
    with pytest.raises(cutaway.CutawayError, match=sentence) as error:
        to_source(make())
    assert len(str(error.value)) < 500


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    settings: dict[str, Any] = {"max_steps": 2, "tensorboard": False, "model.hidden_dims": (2,)}
    return cutaway.train("mlp", (X, Y), val=0, test=0, out=tmp_path_factory.mktemp("rejected") / "run", **settings)


@pytest.mark.parametrize("name", ["meta tensor", "nested tensor", "no columns", "Dataset of a trillion"])
def test_a_run_refuses_it_too(run: cutaway.Run, name: str) -> None:
    make, sentence = REFUSED[name]
    for use in (run.evaluate, run.predict):
        with pytest.raises(cutaway.CutawayError, match=sentence):
            use(make())


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        (5, "out must be the path of a folder, not of type int"),
        (b"runs", "not of type bytes"),
        ("a\0b", r"out must be the path of a folder, not .*: embedded null"),
        ("a\ud800", r"out must be the path of a folder, not .*: .*surrogates"),
        ("a" * 5000, "it is too long"),
    ],
)
def test_what_is_no_path_of_a_folder_is_refused(run: cutaway.Run, out: Any, sentence: str) -> None:
    uses: list[Callable[[], Any]] = [
        lambda: cutaway.train("mlp", (X, Y), out=out),
        lambda: cutaway.compare("mlp,softmax", (X, Y), out=out),
        lambda: cutaway.search("mlp", (X, Y), lr="1e-3..1e-2", out=out),
        lambda: cutaway.prune(run, out),
    ]
    for use in uses:
        with pytest.raises(cutaway.CutawayError, match=sentence):
            use()
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("value", [NoText(), object()])
def test_an_object_as_a_setting_is_refused(value: Any) -> None:
    with pytest.raises(SettingError, match=r"epochs=.* must be an integer"):
        cutaway.check("mlp", (X, Y), epochs=value)


def test_durations_are_seconds_and_times_that_are_missing_are_missing() -> None:
    spans = [datetime.timedelta(minutes=1, microseconds=250_000 * i) for i in range(3)]
    for read in (pl.DataFrame({"a": spans}), pd.DataFrame({"a": pd.to_timedelta(spans)})):
        source, _ = to_source(read)
        assert len(source.fingerprint) == 64
        assert frame_table(source.train.frame).frame["a"].to_list() == ["60.0", "60.25", "60.5"]
    absent = as_frame(pd.DataFrame({"a": pd.to_datetime([None, None]), "b": [1, 2]}))
    assert absent is not None
    assert absent["a"].null_count() == 2


def test_tensors_of_every_type_of_number_are_read() -> None:
    conjugate = torch.complex(X, X).conj()
    for x in (X.bfloat16(), X.half(), X.to(torch.float8_e5m2), conjugate.imag, X.requires_grad_()):
        source, _ = to_source((x, Y))
        assert source.train.values.tolist() == x.detach().float().tolist()
        X.requires_grad_(False)


def test_no_data_at_all_is_said() -> None:
    for use in (cutaway.check, cutaway.plan):
        with pytest.raises(cutaway.CutawayError, match="Data is missing"):
            use("mlp", None)
