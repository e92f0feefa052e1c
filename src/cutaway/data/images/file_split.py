"""A split of a data set whose images are read from their files while training goes on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ...errors import DataError, Problem
from ...spec import ImageSpec
from ..sets import Batch, Split
from ..verifying import Progress
from ..workers import cores, leave_interrupts_to_the_parent, results
from .files import unusable
from .reading import Pixels, Source, read_image

Item = TypeVar("Item")
Result = TypeVar("Result")

HANDFUL = 64  # files that are sooner read than processes started
AT_ONCE = 64  # images that threads hold at a time


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """`function` of each item, in order; decoding images leaves Python's lock, so that threads work side by side."""
    with ThreadPoolExecutor(cores()) as threads:
        for start in range(0, len(items), AT_ONCE):
            yield from threads.map(function, items[start : start + AT_ONCE])


class Drawn(Protocol):
    """How an image becomes a tensor: the preprocessing, as far as it is needed here."""

    @property
    def spec(self) -> ImageSpec: ...
    def pixels(self, source: Source, name: str) -> Pixels: ...
    def normalise(self, pixels: Tensor) -> Tensor: ...


class FileSplit(Split):
    """Images brought to size in worker processes, as bytes, and normalised here, a batch at a time.

    Nothing is varied in the workers, so their number changes no result. `workers` None takes one for each processor,
    four at most, and none for a handful of files. A daemon process, such as a server's, reads them by itself: it may
    start no others.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        target: Tensor | None,
        preprocessing: Drawn,
        names: Sequence[str] | None = None,
        workers: int | None = None,
    ) -> None:
        self.target = target
        self._names = names if names is not None else [str(s) for s in sources]
        self._preprocessing = preprocessing
        self._reader = _Reader(sources, self._names, preprocessing)
        self._order = _Order()
        if workers is None:
            few = len(sources) <= HANDFUL or torch.multiprocessing.current_process().daemon
            workers = 0 if few else min(4, cores())
        self._workers = workers
        self._loader: DataLoader[Any] | None = None

    def __len__(self) -> int:
        return len(self._names)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Batches (N, C, H, W) in the given order. Raises DataError, naming the file, for one that cannot be read."""
        del seed
        self._order.batches = order
        reads = self._through_workers() if self._workers else (self._reader[numbers] for numbers in self._order)
        for read in reads:
            if isinstance(read, Problem):
                self._loader = None
                reads.close()  # the workers end now, not whenever the error is forgotten
                raise unusable([read], 1)
            numbers, pixels = read
            index = torch.tensor(numbers)
            target = torch.empty(len(index), 0) if self.target is None else self.target[index]
            yield Batch((self._preprocessing.normalise(pixels.permute(0, 3, 1, 2)),), target)

    def name(self, i: int) -> str:
        """The file's path."""
        return self._names[i]

    def image(self, i: int) -> Image.Image:
        """The image as a person would see it, whole and in its own size and colours."""
        return read_image(self._reader.sources[i], self._names[i])

    def peek(self, rows: Tensor) -> Tensor:
        """Some images as they enter the network, (N, C, H, W), read here. Raises DataError for one that cannot be."""
        read = list(in_threads(self._reader.__getitem__, [[i] for i in rows.tolist()]))
        if problems := [one for one in read if isinstance(one, Problem)]:
            raise unusable(problems, len(read))
        pixels = torch.cat([one[1] for one in read if not isinstance(one, Problem)])
        return self._preprocessing.normalise(pixels.permute(0, 3, 1, 2))

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Decode every image as training would; what cannot be decoded, by name."""
        problems: list[Problem] = []
        for done, read in enumerate(in_threads(self._reader.__getitem__, [[i] for i in range(len(self))]), 1):
            if isinstance(read, Problem):
                problems.append(read)
            if progress is not None:
                progress(done, len(self))
        return problems

    def _through_workers(self) -> Generator[Any, None, None]:
        if self._loader is None:
            self._loader = DataLoader(
                self._reader,
                batch_size=None,  # the order holds whole batches
                sampler=self._order,
                num_workers=self._workers,
                persistent_workers=True,
                worker_init_fn=leave_interrupts_to_the_parent,
                generator=torch.Generator(),  # else each epoch would draw from the random state of training
            )
        try:
            yield from results(iter(self._loader), "reads images", "(workers=1) or none (workers=0).")
        except DataError:
            self._loader = None
            raise


class _Order:
    """What the workers are asked for; a new order takes the old one's place at every epoch."""

    batches: Iterable[Tensor] = ()

    def __iter__(self) -> Iterator[list[int]]:
        return (index.tolist() for index in self.batches)


class _Reader(Dataset[Any]):
    """What a worker process holds."""

    def __init__(self, sources: Sequence[Source], names: Sequence[str], preprocessing: Drawn) -> None:
        self.sources, self.names, self.preprocessing = sources, names, preprocessing

    def __getitem__(self, numbers: list[int]) -> tuple[list[int], Tensor] | Problem:
        """The numbers and their pixels, (n, H, W, C); or the file that cannot be read, for the parent to reject."""
        spec = self.preprocessing.spec
        batch = np.empty((len(numbers), spec.height, spec.width, spec.channels), np.uint8)
        try:
            for row, number in enumerate(numbers):
                batch[row] = self.preprocessing.pixels(self.sources[number], self.names[number])
        except DataError as error:
            return error.problems[0]
        return numbers, torch.from_numpy(batch)
