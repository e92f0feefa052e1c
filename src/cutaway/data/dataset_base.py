"""A data set as training sees it: splits with targets, what was fitted on the training split, what to tell a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from PIL.Image import Image
from torch import Tensor

from ..core.spec import Spec
from .bucketing import bucketed
from .findings import Finding

IN_MEMORY = "data given in Python"  # the source of a set that has neither a name nor a path
IGNORED = -100  # a target that is none: padding; the number that PyTorch's cross-entropy passes over
TOGETHER = 1 << 17  # bytes of inputs that are cut out at once, where batches have less: too few for memory to show
LINE = 64  # bytes: where a tensor begins in memory, so that it is added up in the same order


class Batch(NamedTuple):
    """What one step learns from."""

    inputs: tuple[Tensor, ...]  # what the model's forward takes
    # Classes (N,) int64, class probabilities (N, K) float32, values (N,) or (N, H) float32; of sequences that are
    # answered token by token (N, T) int64, IGNORED where there is nothing to learn
    target: Tensor

    @property
    def bare(self) -> Batch:
        """The batch without a mask that is known to hide nothing."""
        return self


class WholeBatch(Batch):
    """A batch of sequences without padding: its mask hides nothing, and each place has a target. To ask a GPU for that
    would wait until it has done what it has to do."""

    __slots__ = ()

    @property
    def bare(self) -> Batch:
        """Without the mask."""
        return Batch(self.inputs[:1], self.target)


class Split(Protocol):
    """One split of a data set: train, val or test; or new examples without targets.

    A split may group its own examples into batches, by a method `plan(batch_size, generator, tokens=0)`: a list of
    example numbers for each batch, every example once, varied by the generator in training; as suits evaluation where
    that is None. With `tokens` a batch holds at most so many of them, padding among them, instead of `batch_size`
    examples. A split whose steps go on where the ones before ended (`carries` is true) must have one.
    """

    target: Tensor | None  # for all examples, in their order: (n,), or token after token; None where there are none

    def __len__(self) -> int: ...

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """The batches whose example numbers are given, in that order. `seed` varies examples (augmentation) where
        the split does that while reading; None reads them as they are. Target is empty where the split has none."""
        ...

    def name(self, i: int) -> str:
        """What a person calls example i: its file, or its row."""
        ...

    def image(self, i: int) -> Image | None:
        """Example i as an image as the person gave it, or None."""
        return None

    def row(self, i: int) -> dict[str, str] | None:
        """Example i as the columns that the person gave, or None."""
        return None


def in_units(split: Split, outputs: Tensor, index: Tensor | slice = slice(None)) -> Tensor:
    """The outputs or targets of these examples on the scale of the spec's target, where the split has scales of its
    own, those of several series."""
    converted: Callable[[Tensor, Tensor | slice], Tensor] | None = getattr(split, "in_units", None)
    return outputs if converted is None else converted(outputs, index)


class Preprocessing(Protocol):
    """What stands between a person's files and the model's tensors, fitted on the training split alone.

    Where a run can be held to a named set that it did not learn from, `adopted(split, theirs)` is that set's split
    prepared anew, with its targets; `theirs` is the preprocessing that made it. Where a task's answer can be drawn over
    an image, `pictured(image, said)` does that; and where an example is best seen beside what was said of it,
    `panels(inputs, target, said)` does.
    """

    @property
    def spec(self) -> Spec:
        """What an example looks like to the model."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values that `preprocessing_from_json` reads back to an equal object."""
        ...

    def examples(self, sources: Sequence[Any]) -> Split:
        """New files (paths, or rows as a table), prepared exactly as the training split was. No targets."""
        ...

    def labelled(self, source: str | Path) -> Split:
        """Other data of the same kind (a table with the target column, class folders), prepared in the same way,
        with targets. Raises DataError where targets are missing or are classes that training did not know."""
        ...


class Tasks(Protocol):
    """Tasks that the examples of every split are divided into, to be learned one after another (`task_sequence`)."""

    @property
    def names(self) -> tuple[str, ...]:
        """What a person calls each."""
        ...

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    def of(self, split: Split) -> Tensor:
        """The task of each example, (n,), from 0."""
        ...

    def original(self, split: Split) -> Tensor:
        """Which example of the data each was made of, (n,): several tasks may have one."""
        ...

    def seen(self, split: Split, task: int) -> Split:
        """The examples of the tasks up to that one."""
        ...


class TensorSplit:
    """A split that lies in memory as one tensor of model-ready inputs."""

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
        """Batches by indexing, several small ones at once; nothing is varied here, the loop augments whole batches."""
        del seed
        inputs, target = self.inputs, self.target
        if target is None:
            target = torch.empty(len(inputs), 0)
        for some in _together(order, inputs.nbytes // max(1, len(inputs))):
            index, sizes = torch.cat(some), [len(one) for one in some]
            for x, y in zip(inputs[index].split(sizes), target[index].split(sizes)):  # type: ignore[no-untyped-call]
                yield Batch((x,), y)

    def name(self, i: int) -> str:
        """The example's name where it was given one, its number otherwise."""
        return self._names[i] if self._names is not None else str(i)

    def image(self, i: int) -> Image | None:
        """The example as an image, where it is one."""
        return self._image(i) if self._image else None

    def row(self, i: int) -> dict[str, str] | None:
        """The example as the columns that the person gave, where it is a row."""
        return self._row(i) if self._row else None


class SequenceSplit(Split):
    """A split whose examples are sequences of different lengths, in memory one after another.

    A batch is padded to its own longest: inputs (N, T, …) and a mask (N, T), True where a step is real.
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
        """`values` (Σ lengths, …) and `lengths` (n,), each at least 1. `target` is (n,), or (n, S) where it is a
        sequence of its own, or, with `by_step`, one for every step, (Σ lengths,). `notes` are sentences on these
        examples that a person should read; `padding` is what stands where there is no step."""
        self.values, self.lengths, self.target = values, lengths, target
        self.starts = lengths.cumsum(0) - lengths
        self.by_step, self.padding = by_step, padding
        self.notes = list(notes)
        self._names, self._row = names, row

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, rows: Tensor) -> SequenceSplit:
        """Some of the examples, by their numbers, with one target each."""
        pieces = torch.split(self.values, self.lengths.tolist())
        target, names = None if self.target is None else self.target[rows], [self.name(i) for i in rows.tolist()]
        values = torch.cat([pieces[i] for i in rows.tolist()])
        return type(self)(values, self.lengths[rows], target, names, padding=self.padding)

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> list[Tensor]:
        """Batches of examples of nearly equal length."""
        return bucketed(self.lengths, batch_size, generator, tokens)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Each batch padded to its longest example."""
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
        """The example's name where it was given one, its number otherwise."""
        return self._names[i] if self._names is not None else str(i)

    def row(self, i: int) -> dict[str, str] | None:
        """The example as the person gave it, where it is words."""
        return self._row(i) if self._row else None


def _together(order: Iterable[Tensor], an_example: int) -> Iterator[list[Tensor]]:
    """The example numbers of batches that are cut out at once, of examples of so many bytes each: each batch begins
    where it would in a tensor of its own."""
    order = iter(order)
    for first in order:
        size, some = len(first) * an_example, [first]
        if size and size % LINE == 0:
            for index in islice(order, TOGETHER // size - 1 if size < TOGETHER else 0):
                some.append(index)
                if len(index) != len(first):
                    break
        yield some


Augment = Callable[[Tensor, Tensor, torch.Generator], tuple[Tensor, Tensor]]


@dataclass
class DataSet:
    """Everything that training, evaluation and the report need to know of the data."""

    name: str  # short, for the run's folder: the set's name or the file's stem
    source: str  # what the person gave
    spec: Spec
    splits: dict[str, Split]  # train, val, test
    preprocessing: Preprocessing
    fingerprint: str  # sha256 of the content that was read
    split_hash: str  # sha256 of which example is in which split
    notes: list[str] = field(default_factory=list)  # sentences a person should read
    columns: list[dict[str, str]] = field(default_factory=list)  # of a table: name, type, role, missing, example
    augment: Augment | None = None  # varies a training batch (inputs, target, generator), where a setting asks for it
    licence: str = ""
    distributions: Callable[[], list[dict[str, Any]]] = list  # how a table's columns are spread; counted when asked for
    tasks: Tasks | None = None  # that the examples are divided into, to be learned one after another

    @property
    def findings(self) -> list[str]:
        """Those of the notes that say what is wrong with the data."""
        return [note for note in self.notes if isinstance(note, Finding)]

    @property
    def evidence(self) -> list[dict[str, Any]]:
        """The findings that are of single examples, each with all of these, as plain JSON values."""
        return [
            {"finding": str(note), "examples": [list(names) for names in note.examples]}
            for note in self.notes
            if isinstance(note, Finding) and note.examples
        ]
