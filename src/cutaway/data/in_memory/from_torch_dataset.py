"""Reader of PyTorch Datasets, map style and iterable. They are read into memory once, before training.

An item is (x, y), only x, or a dictionary of cells. x is a tensor, an array, a Pillow image or a text. Random
transforms are therefore applied only once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from ...core.errors import DataError, printable
from ...core.files import READ_AT_MOST, total_memory
from .container import Columns, ExampleContainer
from .from_arrays import parse_targets, read_array
from .from_list import read_list
from .from_pyg import is_graph, read_graphs

MOST = 1_000_000  # maximum examples of an iterable Dataset without a length
MOST_BYTES = 4 << 30  # and their maximum size
OBJECT = 64  # minimum bytes of an example
LARGER = "Larger data is trained on from files (`cutaway prepare`)."
ONCE = "The Dataset is read once, before training: what its transform draws at random is drawn once."


def read_dataset(thing: Any) -> ExampleContainer | None:
    """Read the examples of a Dataset; None if the object is not a Dataset.

    Raises DataError if it has no length or does not end, or for an item of another form.
    """
    if isinstance(thing, DataLoader):
        raise DataError("This is a DataLoader, and data is split and batched here.", fix="Give loader.dataset.")
    if not isinstance(thing, Dataset):
        return None
    name = type(thing).__name__
    if isinstance(thing, TensorDataset):
        items: Any = thing.tensors
        if len(items) > 2:
            raise DataError(f"Its items have {len(items)} tensors: an item is (x, y), or x alone.")
        return _with_targets(read_array(items[0]), items[1] if len(items) == 2 else None, thing, note=False)
    items = list(_items(thing, name))
    if not items:
        raise DataError(f"The {name} holds no example.")
    if all(map(is_graph, items)):
        return read_graphs(items[0] if len(items) == 1 else items)
    pairs = [isinstance(item, tuple | list) and len(item) == 2 for item in items]
    if all(pairs):
        return _with_targets(_inputs([x for x, _ in items], name), [y for _, y in items], thing)
    odd = next((i for i, item in enumerate(items) if isinstance(item, tuple | list)), None)
    if odd is not None:
        raise DataError(f"Item {odd + 1} of the {name} holds {len(items[odd])} things: an item is (x, y), or x alone.")
    return _with_targets(_inputs(items, name), None, thing)


def _inputs(examples: list[Any], name: str) -> ExampleContainer:
    held = read_list([_plain(x) for x in examples])
    if held is None:
        raise DataError(
            f"The inputs of the {name} are of type {type(examples[0]).__name__}: they can be tensors, arrays, images "
            "of Pillow, texts or dictionaries of cells."
        )
    return held


def _plain(x: Any) -> Any:
    """Convert one-element tensors in a dictionary to numbers."""
    if isinstance(x, Mapping):
        return {key: v.item() if isinstance(v, torch.Tensor) and v.numel() == 1 else v for key, v in x.items()}
    return x


def _with_targets(held: ExampleContainer | None, y: Any, dataset: Any, note: bool = True) -> ExampleContainer:
    assert held is not None
    target = None if y is None else parse_targets(y, len(held))
    names = getattr(dataset, "classes", None)
    if target is not None and target.dtype.is_integer() and isinstance(names, list | tuple) and names:
        known = dict(enumerate(map(str, names)))
        if set(target.drop_nulls().unique()) <= set(known):
            target = target.replace_strict(known, default=None)
    notes = (*held.notes, *([ONCE] if note and not isinstance(held, Columns) else ()))
    return replace(held, name="dataset", target=target, notes=notes)


def _items(dataset: Any, name: str) -> Iterator[Any]:
    """Yield every item, in order.

    Raises DataError for a map-style Dataset without a length, for an iterable one that does not end, and for an
    unreadable item.
    """
    has_length = hasattr(dataset, "__len__")
    iterable = isinstance(dataset, IterableDataset)
    if not iterable and not has_length:
        raise DataError(
            f"The {name} has no length, so that nobody knows when it ends.",
            fix="Give it a method __len__; or let it be an IterableDataset, which is read to its end.",
        )
    try:
        count = len(dataset) if has_length else 0
    except Exception as error:  # the Dataset's own __len__
        raise DataError(f"The length of the {name} cannot be read: {printable(str(error))[:200]}.") from error
    each = iter(dataset) if iterable else (dataset[i] for i in range(count))
    bytes_read = 0
    for i in itertools.count():
        try:
            item = next(each)
        except StopIteration:
            return
        except Exception as error:
            raise DataError(
                f"Item {i + 1} of the {name} cannot be read: {type(error).__name__}: {printable(str(error))[:200]}"
            ) from error
        things = item if isinstance(item, tuple | list) else (item,)
        held = sum(thing.nbytes for thing in things if hasattr(thing, "nbytes"))
        if i == 0 and count * max(held, OBJECT) > READ_AT_MOST * total_memory():
            raise DataError(
                f"The {name} has {count:,} examples, which would take {count * max(held, OBJECT) / 2**30:,.0f} GiB: "
                f"data given in Python is held in memory, and {total_memory() / 2**30:.0f} GiB are here.",
                fix=LARGER,
            )
        bytes_read += held
        if iterable and not has_length and (i >= MOST or bytes_read > MOST_BYTES):
            raise DataError(
                f"The {name} has not ended after {i:,} examples, and data given in Python is held in memory.",
                fix=f"Let it end, as by itertools.islice. {LARGER}",
            )
        yield item
