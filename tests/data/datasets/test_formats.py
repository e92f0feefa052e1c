"""IDX and CIFAR files: read as published, rejected with file and cause where they are not whole."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cutaway.core.errors import DataError
from cutaway.data.datasets.formats import CIFAR_RECORD, IDX_TYPES, read_cifar, read_idx, read_labelled_idx

CODES = {np.dtype(t): code for code, t in IDX_TYPES.items()}


def idx_bytes(array: np.ndarray) -> bytes:
    """An IDX file, written from its published layout."""
    big = array.astype(array.dtype.newbyteorder(">"))
    head = bytes([0, 0, CODES[big.dtype], array.ndim])
    return head + struct.pack(f">{array.ndim}I", *array.shape) + big.tobytes()


@settings(max_examples=40, deadline=None)
@given(
    array=st.sampled_from(["u1", "i1", "i2", "i4", "f4", "f8"]).flatmap(
        lambda t: hnp.arrays(t, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    ),
    packed=st.booleans(),
)
def test_idx_gives_back_every_type_and_shape(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, packed: bool
) -> None:
    path = tmp_path_factory.mktemp("idx") / "some.idx"
    path.write_bytes(gzip.compress(idx_bytes(array), mtime=0) if packed else idx_bytes(array))
    read = read_idx(path)
    assert read.dtype == array.dtype
    assert read.shape == array.shape
    assert read.tobytes() == array.tobytes()


GOOD = idx_bytes(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "no IDX file"),
        (b"\x89PNG" + GOOD, "no IDX file: it starts with the bytes 89 50 4e 47"),
        (b"\0\0\x07\1" + GOOD[4:], "no IDX file"),
        (GOOD[:7], "within its head of 3 sizes"),
        (GOOD[:-1], "2 × 3 × 4 values, 24 bytes, and only 23 follow"),
        (GOOD + b"x", "24 bytes, and more follow"),
        (b"\0\0\x0e\3" + b"\xff" * 12, "and only 0 follow"),  # promises 2^99 bytes
        (gzip.compress(b"\0\0\x0e\3" + b"\xff" * 12, mtime=0), "and only 0 follow"),
        (gzip.compress(GOOD, mtime=0)[:-12], "cut short or damaged"),
        (gzip.compress(GOOD, mtime=0)[:20] + b"\xff\xff" + gzip.compress(GOOD, mtime=0)[22:], "cut short or damaged"),
    ],
)
def test_idx_that_is_not_whole_is_rejected_by_file_and_cause(tmp_path: Path, data: bytes, cause: str) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)
    assert cause in str(caught.value)


def test_idx_that_is_missing_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no file or folder '.*absent\.gz"):
        read_idx(tmp_path / "absent.gz")


def test_images_and_labels_must_belong_together(tmp_path: Path) -> None:
    images, labels = tmp_path / "images", tmp_path / "labels"
    images.write_bytes(GOOD)
    labels.write_bytes(idx_bytes(np.array([3, 9], np.uint8)))
    pixels, numbers = read_labelled_idx(images, labels, 10)
    assert pixels[1, 2, 3] == 23
    assert numbers.tolist() == [3, 9]
    with pytest.raises(DataError, match="example 1 has label 9, and labels run from 0 to 8"):
        read_labelled_idx(images, labels, 9)
    labels.write_bytes(idx_bytes(np.array([3], np.uint8)))
    with pytest.raises(DataError, match="2 images"):
        read_labelled_idx(images, labels, 10)
    with pytest.raises(DataError, match="1 dimensions"):
        read_labelled_idx(labels, labels, 10)


def test_cifar_planes_are_red_green_blue_row_by_row(tmp_path: Path) -> None:
    path = tmp_path / "data_batch_1.bin"
    first = bytes([7]) + bytes([1]) * 1024 + bytes([2]) * 1024 + bytes([3]) * 1024
    second = bytes([0]) + bytes(i % 256 for i in range(3072))
    path.write_bytes(first + second)
    images, labels = read_cifar(path)
    assert labels.tolist() == [7, 0]
    assert images.shape == (2, 3, 32, 32)
    assert [images[0, c].tolist() == [[c + 1] * 32] * 32 for c in range(3)] == [True] * 3
    assert images[1, 1, 2, 5] == (1024 + 2 * 32 + 5) % 256


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "not a whole number of records"),
        (bytes(CIFAR_RECORD - 1), "0 records and 3,072 bytes over"),
        (bytes(2 * CIFAR_RECORD + 5), "2 records and 5 bytes over"),
        (bytes(CIFAR_RECORD) + b"\x0a" + bytes(CIFAR_RECORD - 1), "example 1 has label 10"),
    ],
)
def test_cifar_that_is_not_whole_is_rejected(tmp_path: Path, data: bytes, cause: str) -> None:
    path = tmp_path / "test_batch.bin"
    path.write_bytes(data)
    with pytest.raises(DataError, match=cause) as caught:
        read_cifar(path)
    assert "test_batch.bin" in str(caught.value)
