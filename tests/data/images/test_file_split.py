"""Splits that are read while training goes on: what happens to the processes that read."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cutaway.core.errors import DataError
from cutaway.core.spec import Classes, ImageSpec
from cutaway.data.images.transforms import HANDFUL, FileSplit, ImagePreprocessing, map_in_threads, num_cpus

SPEC = ImageSpec(3, 6, 6, Classes(("a", "b")))
PREPROCESSING = ImagePreprocessing(SPEC, (0.5,) * 3, (0.2,) * 3, "crop", (6, 6), (0, 0, 0))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Twelve images whose colour is their number."""
    found = []
    for i in range(12):
        found.append(tmp_path / f"{i}.png")
        Image.new("RGB", (9, 6), (i, i, i)).save(found[-1])
    return found


def numbers(split: FileSplit, order: list[torch.Tensor]) -> list[list[int]]:
    """The colours of the images in each batch."""
    levels = (batch.inputs[0][:, 0, 0, 0] * 0.2 + 0.5 for batch in split.batches(order))
    return [(255 * level).round().int().tolist() for level in levels]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_come_in_the_order_asked_for(files: list[Path], workers: int) -> None:
    split = FileSplit(files, torch.arange(12), PREPROCESSING, workers=workers)
    assert numbers(split, [torch.tensor([11, 0, 5]), torch.tensor([3]), torch.tensor([2, 2])]) == [
        [11, 0, 5],
        [3],
        [2, 2],
    ]
    assert numbers(split, []) == []
    orders = [torch.randperm(12, generator=torch.Generator().manual_seed(e)).split(5) for e in range(3)]
    assert [numbers(split, list(o)) for o in orders] == [[b.tolist() for b in o] for o in orders]
    (batch,) = split.batches([torch.tensor([7, 1])])
    assert batch.inputs[0].shape == (2, 3, 6, 6)
    assert batch.inputs[0].is_contiguous(memory_format=torch.channels_last)
    assert batch.target.tolist() == [7, 1]


def test_a_reading_process_that_dies_is_told(files: list[Path]) -> None:
    split = FileSplit(files, None, PREPROCESSING, workers=1)

    def order() -> Iterator[torch.Tensor]:
        yield from [torch.tensor([0])] * 3
        os.kill(split._loader._iterator._workers[0].pid, signal.SIGKILL)  # type: ignore[union-attr]
        time.sleep(0.3)  # until this process has been told
        yield torch.tensor([0])

    with pytest.raises(DataError, match=r"A process that reads images died.*workers=0"):
        list(split.batches(order()))
    assert numbers(split, [torch.tensor([4])]) == [[4]]  # a new one is started


def test_reading_processes_leave_interrupts_to_the_parent(files: list[Path]) -> None:
    split = FileSplit(files, None, PREPROCESSING, workers=1)
    assert numbers(split, [torch.tensor([0])]) == [[0]]
    os.kill(split._loader._iterator._workers[0].pid, signal.SIGINT)  # type: ignore[union-attr]
    assert numbers(split, [torch.tensor([9])]) == [[9]]


def test_the_order_may_fail_for_reasons_of_its_own(files: list[Path]) -> None:
    def order() -> Iterator[torch.Tensor]:
        yield torch.tensor([0])
        raise RuntimeError("not the workers' fault")

    for workers in (0, 1):
        with pytest.raises(RuntimeError, match="not the workers' fault"):
            list(FileSplit(files, None, PREPROCESSING, workers=workers).batches(order()))


def test_a_handful_of_files_starts_no_processes(files: list[Path]) -> None:
    assert FileSplit(files, None, PREPROCESSING)._workers == 0
    assert FileSplit(files * (1 + HANDFUL // 12), None, PREPROCESSING)._workers == min(4, num_cpus())


def test_threads_keep_the_order() -> None:
    assert list(map_in_threads(lambda i: i * i, list(range(200)))) == [i * i for i in range(200)]


def test_a_picture_is_whole_and_in_its_own_size(files: list[Path]) -> None:
    split = FileSplit(files, None, PREPROCESSING)
    assert split.image(3).size == (9, 6)
    assert np.asarray(split.image(3)).max() == 3
    assert split.name(3) == str(files[3])
    assert split.row(3) is None
