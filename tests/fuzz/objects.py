"""Objects in memory: arrays, tensors, data frames, lists, images and graphs with hostile contents."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import torch
from PIL import Image
from torch_geometric.data import Data

import cutaway

from ..data.in_memory.test_unsupported_objects import REFUSED
from .kinds import Case, Kind

ROWS = 12
CELLS = (
    None, 0, -1, 2**53 + 1, 2**63, 10**30, 0.5, float("nan"), float("inf"), 1e308, True, "", " ", "NA", "None", "00501",
    "$1,200", "12 kg", "1,5", "a,b", '"', "\x00", "\ud800", "\u202e", "x" * 5000, b"\xff", (1, 2), [], {}, object(),
    datetime.date(2024, 2, 29), datetime.timedelta(1), np.float16(1), np.datetime64("NaT"), torch.tensor(1.0), 1j,
)  # fmt: skip
NAMES = ("a", "", " y ", "a,b", "a:b", "y", "[x]", "\ud800", "x" * 500, 5, None, ("a", 1))
DTYPES = (
    "float32",
    "float64",
    "float16",
    "int8",
    "int64",
    "uint8",
    "bool",
    "complex64",
    "U3",
    "object",
    "M8[s]",
    "m8[us]",
)
SHAPES = (
    (),
    (0,),
    (ROWS,),
    (ROWS, 0),
    (ROWS, 1),
    (ROWS, 3),
    (0, 3),
    (ROWS, 4, 3),
    (ROWS, 1, 8, 8),
    (ROWS, 0, 8, 8),
    (2, 1, 1, 1, 1),
)
MODELS = ("mlp", "gru", "lenet5-modern", "textcnn", "gpt2", "gcn", "gin")


def prepare(home: Path) -> None:
    """Nothing is written."""


def array(random: Random) -> Any:
    """Return an array of any type and shape, or a tensor."""
    shape, dtype = random.choice(SHAPES), random.choice(DTYPES)
    values = (
        np.zeros(shape).astype(dtype)
        if random.random() < 0.3
        else np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    )
    if random.random() < 0.3 and values.dtype.kind == "f" and values.size:
        values.flat[random.randrange(values.size)] = random.choice((np.nan, np.inf, -np.inf))
    if random.random() < 0.4 and values.dtype.kind in "fiub":
        return torch.from_numpy(values)
    return values


def cells(random: Random, count: int = ROWS) -> list[Any]:
    """Return a column: plain, plain but for a cell, alike in every row, or of anything."""
    found: list[Any] = random.choice((list(range(count)), [i / 7 for i in range(count)], ["r", "s", "t"] * count))[
        :count
    ]
    way = random.random()
    if way < 0.4:
        found[random.randrange(count)] = random.choice(CELLS)
    elif way < 0.5:
        found = [random.choice(CELLS)] * count
    elif way < 0.6:
        found = [random.choice(CELLS) for _ in range(count)]
    return found


def frame(random: Random) -> Any:
    """Return a table as a data frame of pandas or polars, or as a list of dictionaries."""
    columns = {random.choice(NAMES): cells(random) for _ in range(random.randrange(4))}
    columns["y"] = ["a", "b", "a"] * (ROWS // 3) if random.random() < 0.8 else cells(random)
    form = random.random()
    if form < 0.4:
        return pd.DataFrame(columns)
    if form < 0.7:
        return pl.DataFrame({str(name): pl.Series(str(name), own, strict=False) for name, own in columns.items()})
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def nested(random: Random, depth: int = 0) -> Any:
    """Return lists within lists of anything."""
    if depth > 3 or random.random() < 0.4:
        return random.choice(CELLS)
    found = [nested(random, depth + 1) for _ in range(random.randrange(4))]
    if random.random() < 0.05:
        found.append(found)
    return found if random.random() < 0.8 else tuple(found)


def images(random: Random) -> Any:
    """Return images of Pillow of any mode and size with targets."""
    mode = random.choice(("L", "RGB", "RGBA", "1", "P", "I;16", "I", "F", "CMYK", "LA"))
    sizes = [random.choice(((8, 8), (8, 8), (1, 1), (0, 8), (3000, 1), (8, 5))) for _ in range(ROWS)]
    return [Image.new(mode, size) for size in sizes], np.arange(ROWS) % 2


def graph(random: Random) -> Any:
    """Return a graph, or a list of graphs, whose tensors need not fit together."""

    def one() -> Data:
        nodes = random.choice((0, 1, 5, 5, 5))
        edges = random.choice(
            (None, torch.zeros(2, 0, dtype=torch.int64), torch.randint(-1, nodes + 1, (2, 7)), torch.zeros(3, 2))
        )
        x = random.choice((None, torch.randn(nodes, 3), torch.full((nodes, 3), float("nan")), torch.zeros(nodes)))
        y = random.choice((None, torch.arange(nodes) % 2, torch.tensor([1]), torch.randn(nodes, 2)))
        return Data(x=x, edge_index=edges, y=y)

    return one() if random.random() < 0.5 else [one() for _ in range(random.randrange(5))]


def pair(random: Random) -> Any:
    """Return inputs with targets, or a dictionary of splits."""
    x, y = (random.choice((array, cells, nested))(random) for _ in range(2))
    return (x, y) if random.random() < 0.8 else {random.choice(("train", "val", "x")): (x, y)}


MAKERS: tuple[tuple[Callable[[Random], Any], tuple[str, ...]], ...] = (
    (array, MODELS),
    (frame, ("mlp", "mlp", "textcnn", "gru")),
    (frame, ("mlp",)),
    (nested, MODELS),
    (images, ("lenet5-modern",)),
    (graph, ("gcn", "gin")),
    (pair, MODELS),
)


def check(model: str, make: Callable[[], Any]) -> None:
    """Check a model on an object, as `cutaway.check` does."""
    thing = make()
    cutaway.check(model, thing, **({"target": "y"} if isinstance(thing, pd.DataFrame | pl.DataFrame) else {}))


def cases(home: Path, own: Path, random: Random) -> Iterator[Case]:
    """Objects that are known to be refused, then random ones."""
    x = torch.arange(36.0).reshape(ROWS, 3)
    yield Case("nothing hostile", partial(check, "mlp", lambda: (x, torch.arange(ROWS) % 2)))
    while True:
        if random.random() < 0.1:
            name = random.choice(sorted(REFUSED))
            yield Case(name, partial(check, random.choice(MODELS), REFUSED[name][0]))
            continue
        (maker, models), seed = random.choice(MAKERS), random.random()

        def make(maker: Callable[[Random], Any] = maker, seed: float = seed) -> Any:
            try:
                return maker(Random(seed))
            except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):  # not even the library makes it
                return [random.choice(CELLS)]

        yield Case(f"{maker.__name__} {seed}", partial(check, random.choice(models), make))


KINDS = [Kind("objects", prepare, cases, seconds=60, quick=True)]
