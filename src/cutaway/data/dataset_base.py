"""Interfaces of data sets for training: batches, splits, preprocessing, and what to report to the user.

Conversion of PyTorch tensors to NumPy arrays.

Mapping of another data set's targets to those of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from ..core.errors import PythonDataError
from ..core.spec import Spec, Target, Value
from .findings import Finding, similar_name_hint
from .folders import normalize_name
from .samplers import bucket_batches

IN_MEMORY = "data given in Python"  # the source of a set that has neither a name nor a path
IGNORED = -100  # target of padding; the default ignore_index of PyTorch's cross-entropy
TOGETHER = 1 << 17  # bytes of inputs gathered at once if batches are smaller: too few to affect memory use
LINE = 64  # bytes: memory alignment of a tensor, so that sums are computed in the same order


class Batch(NamedTuple):
    """The inputs and targets of one training step."""

    inputs: tuple[Tensor, ...]  # what the model's forward takes
    # Classes (N,) int64, class probabilities (N, K) float32, values (N,) or (N, H) float32; for token-level targets
    # (N, T) int64, IGNORED where there is no target
    target: Tensor

    @property
    def without_mask(self) -> Batch:
        """The batch without a mask that is known to hide nothing."""
        return self


class WholeBatch(Batch):
    """A batch of sequences without padding, in which every position has a target.

    Its mask hides nothing. Checking the mask on a GPU would force a synchronization.
    """

    __slots__ = ()

    @property
    def without_mask(self) -> Batch:
        """The batch without its mask."""
        return Batch(self.inputs[:1], self.target)


class Split(Protocol):
    """One split of a data set (train, val or test), or new examples without targets.

    A split may define its own batches by a method `plan(batch_size, generator, tokens=0)`. It returns a list of example
    numbers for each batch, with every example once, randomized by the generator for training and in a fixed order for
    evaluation if that is None. With `tokens`, a batch holds at most that many tokens, padding included, instead of
    `batch_size` examples. A split whose steps continue where the previous ones ended (`is_stateful` is true) must have
    this method.
    """

    target: Tensor | None  # of all examples, in order: (n,), or token after token; None without targets

    def __len__(self) -> int: ...

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches with these example numbers, in this order.

        `seed` randomizes augmentation where the split augments while reading; None disables it. The target is empty if
        the split has none.
        """
        ...

    def name(self, i: int) -> str:
        """Return the name of example i: its file, or its row."""
        ...

    def image(self, i: int) -> Image | None:
        """Return example i as an image before preprocessing, or None."""
        return None

    def row(self, i: int) -> dict[str, str] | None:
        """Return example i as columns before preprocessing, or None."""
        return None


def inverse_transform(split: Split, outputs: Tensor, index: Tensor | slice = slice(None)) -> Tensor:
    """Convert outputs or targets of these examples to the scale of the spec's target.

    This applies to splits with several series, each of which has its own scale.
    """
    converted: Callable[[Tensor, Tensor | slice], Tensor] | None = getattr(split, "inverse_transform", None)
    return outputs if converted is None else converted(outputs, index)


class Preprocessing(Protocol):
    """Conversion of the user's files to model inputs, fitted on the training split only.

    Optional methods: `adopted(split, theirs)` prepares the split of a named set on which the run was not trained, with
    its targets; `theirs` is the preprocessing that made it. `pictured(image, said)` draws a task's answer over an
    image. `panels(inputs, target, said)` shows an example next to its prediction.
    """

    @property
    def spec(self) -> Spec:
        """The spec of the examples that the model receives."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values from which `preprocessing_from_json` restores an equal object."""
        ...

    def examples(self, sources: Sequence[Any]) -> Split:
        """Prepare new files (paths, or rows as a table) exactly like the training split, without targets."""
        ...

    def labelled(self, source: str | Path) -> Split:
        """Prepare other labelled data of the same kind (a table with the target column, class folders) in the same way.

        Raises DataError if targets are missing or contain classes that were not in the training data.
        """
        ...


class Tasks(Protocol):
    """Division of the examples of every split into tasks that are learned one after another (`task_sequence`)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each task."""
        ...

    @property
    def count(self) -> int:
        """The number of tasks."""
        ...

    def task_ids(self, split: Split) -> Tensor:
        """Return the task of each example, (n,), from 0."""
        ...

    def original(self, split: Split) -> Tensor:
        """Return the number of the original example of each example, (n,); several tasks may share one."""
        ...

    def up_to(self, split: Split, task: int) -> Split:
        """Return the examples of the tasks up to and including `task`."""
        ...


class TensorSplit:
    """A split held in memory as one tensor of model inputs."""

    def __init__(
        self,
        inputs: Tensor,
        target: Tensor | None,
        names: Sequence[str] | None = None,
        image: Callable[[int], Image | None] | None = None,
        row: Callable[[int], dict[str, str] | None] | None = None,
    ) -> None:
        self.inputs = inputs
        self.target = target
        self._names = names
        self._image = image
        self._row = row

    def __len__(self) -> int:
        return len(self.inputs)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches by indexing, several small ones at once. The training loop augments whole batches."""
        del seed
        inputs, target = self.inputs, self.target
        if target is None:
            target = torch.empty(len(inputs), 0)
        for some in _group_batches(order, inputs.nbytes // max(1, len(inputs))):
            index, sizes = torch.cat(some), [len(one) for one in some]
            for x, y in zip(inputs[index].split(sizes), target[index].split(sizes)):  # type: ignore[no-untyped-call]
                yield Batch((x,), y)

    def name(self, i: int) -> str:
        """Return the example's name if it has one, and its number otherwise."""
        return self._names[i] if self._names is not None else str(i)

    def image(self, i: int) -> Image | None:
        """Return the example as an image, if it is one."""
        return self._image(i) if self._image else None

    def row(self, i: int) -> dict[str, str] | None:
        """Return the example as the user's columns, if it is a row."""
        return self._row(i) if self._row else None


class SequenceSplit(Split):
    """A split of sequences of different lengths, concatenated in memory.

    A batch is padded to its longest sequence: inputs (N, T, …) and a mask (N, T), True where a step is real.
    """

    def __init__(
        self,
        values: Tensor,
        lengths: Tensor,
        target: Tensor | None,
        names: Sequence[str] | None = None,
        row: Callable[[int], dict[str, str] | None] | None = None,
        notes: Sequence[str] = (),
        by_step: bool = False,
        padding: int = 0,
    ) -> None:
        """Initialize from `values` (Σ lengths, …) and `lengths` (n,), each at least 1.

        `target` is (n,), or (n, S) if it is a sequence, or, with `by_step`, one per step, (Σ lengths,). `notes` are
        messages about these examples for the user; `padding` is the value of padded steps.
        """
        self.values, self.lengths, self.target = values, lengths, target
        self.starts = lengths.cumsum(0) - lengths
        self.by_step, self.padding = by_step, padding
        self.notes = list(notes)
        self._names, self._row = names, row

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, rows: Tensor) -> SequenceSplit:
        """Return the examples with these numbers, with one target each."""
        pieces = torch.split(self.values, self.lengths.tolist())
        target, names = None if self.target is None else self.target[rows], [self.name(i) for i in rows.tolist()]
        values = torch.cat([pieces[i] for i in rows.tolist()])
        return type(self)(values, self.lengths[rows], target, names, padding=self.padding)

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> list[Tensor]:
        """Return batches of examples of similar length."""
        return bucket_batches(self.lengths, batch_size, generator, tokens)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches, each padded to its longest example."""
        del seed
        for index in order:
            lengths = self.lengths[index]
            step = torch.arange(int(lengths.max()))
            mask = step < lengths[:, None]  # (N, T)
            place = (self.starts[index, None] + step).where(mask, self.starts[index, None])  # (N, T)
            values = self.values[place]  # (N, T, …)
            values[~mask] = self.padding
            if self.target is None:
                target = torch.empty(len(index), 0)
            elif self.by_step:
                target = self.target[place].masked_fill(~mask, IGNORED)  # (N, T)
            else:
                target = self.target[index]
            yield Batch((values, mask), target)

    def name(self, i: int) -> str:
        """Return the example's name if it has one, and its number otherwise."""
        return self._names[i] if self._names is not None else str(i)

    def row(self, i: int) -> dict[str, str] | None:
        """Return the example before preprocessing, if it consists of words."""
        return self._row(i) if self._row else None


def _group_batches(order: Iterable[Tensor], example_bytes: int) -> Iterator[list[Tensor]]:
    """Yield groups of batches that are gathered at once, for examples of `example_bytes` bytes.

    Each batch is aligned in memory as it would be in a tensor of its own.
    """
    order = iter(order)
    for first in order:
        size, some = len(first) * example_bytes, [first]
        if size and size % LINE == 0:
            for index in islice(order, TOGETHER // size - 1 if size < TOGETHER else 0):
                some.append(index)
                if len(index) != len(first):
                    break
        yield some


Augment = Callable[[Tensor, Tensor, torch.Generator], tuple[Tensor, Tensor]]


@dataclass
class DataSet:
    """A data set with everything that training, evaluation and the report need."""

    name: str  # short, for the run's folder: the set's name or the file's stem
    source: str  # as the user gave it
    spec: Spec
    splits: dict[str, Split]  # train, val, test
    preprocessing: Preprocessing
    fingerprint: str  # sha256 of the content that was read
    split_hash: str  # sha256 of which example is in which split
    notes: list[str] = field(default_factory=list)  # messages for the user
    columns: list[dict[str, str]] = field(default_factory=list)  # of a table: name, type, role, missing, example
    augment: Augment | None = None  # augmentation of a training batch (inputs, target, generator), if configured
    licence: str = ""
    distributions: Callable[[], list[dict[str, Any]]] = list  # distributions of a table's columns, computed on demand
    tasks: Tasks | None = None  # division of the examples into tasks for continual learning
    weights: Tensor | None = None  # sample weights of the training split, (n,) float64

    @property
    def findings(self) -> list[str]:
        """The notes that report problems of the data."""
        return [note for note in self.notes if isinstance(note, Finding)]

    @property
    def evidence(self) -> list[dict[str, Any]]:
        """The findings about single examples, with the names of all these examples, as plain JSON values."""
        return [
            {"finding": str(note), "examples": [list(names) for names in note.examples]}
            for note in self.notes
            if isinstance(note, Finding) and note.examples
        ]


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as an array. Raises DataError for a tensor that NumPy cannot represent."""
    if tensor.is_meta:
        raise PythonDataError(
            "A tensor on the meta device has a shape and no numbers.", fix="Give a tensor on the CPU."
        )
    if tensor.is_nested:
        raise PythonDataError("A nested tensor is not read as data.", fix="Give a list of tensors: tensor.unbind().")
    if tensor.is_quantized:
        raise PythonDataError("A quantized tensor is not read as data.", fix="Give tensor.dequantize().")
    if tensor.layout != torch.strided:
        raise PythonDataError("Sparse tensors are not supported.", fix="Give tensor.to_dense().")
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float()  # NumPy has no bfloat16 and no float8
    return tensor.resolve_conj().resolve_neg().numpy()


def remap_targets(target: Tensor, theirs: Target, ours: Target) -> Tensor:
    """Map a `target` from the labels `theirs` to `ours`: classes by name, values to the same scale.

    Raises DataError for a class that was not in the training data.
    """
    if ours.classes:
        return map_class_ids(theirs.classes, ours.classes)[target]
    if isinstance(theirs, Value) and isinstance(ours, Value):
        return (target * theirs.scale + theirs.mean - ours.mean) / ours.scale
    return target


def map_class_ids(theirs: tuple[str, ...], ours: tuple[str, ...]) -> Tensor:
    """Return the index in `ours` of each class in `theirs`, (K,). Raises DataError for an unknown class."""
    number = {normalize_name(name): k for k, name in enumerate(ours)}
    unknown = [name for name in theirs if normalize_name(name) not in number]
    if unknown:
        raise PythonDataError(
            f"That data has classes that this run did not learn: {', '.join(unknown[:5])}. It learned: "
            f"{', '.join(ours[:20])}.{similar_name_hint(unknown[0], ours)}"
        )
    return torch.tensor([number[normalize_name(name)] for name in theirs])
