"""Readers of binary formats of small image data sets: IDX (MNIST) and CIFAR-10 records.

IDX is big-endian: two zero bytes, a byte for the type, a byte for the number of dimensions d, d sizes of four bytes,
then the values in row-major order. CIFAR-10 binary: records of one label byte and 3 072 pixel bytes, the red plane (32
× 32, row by row), then green, then blue.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from ...core.errors import DataError
from ...core.files import open_regular

IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
DEFLATE_RATIO = 1032  # the largest compression ratio of deflate

CIFAR_SHAPE = (3, 32, 32)
CIFAR_RECORD = 1 + math.prod(CIFAR_SHAPE)

FETCH_AGAIN = "Take the file from its source again."


def read_idx(path: Path) -> npt.NDArray[np.generic]:
    """Read the array in an IDX file, gzipped or not, with the shape and type of its header, in native byte order.

    Raises DataError if the header is not IDX, or the file size does not match it.
    """
    packed = _is_gzip(path)
    with gzip.open(path, "rb") if packed else open_regular(path) as stream:
        head = _read(stream, 4, path)
        if len(head) < 4 or head[0] or head[1] or head[2] not in IDX_TYPES:
            raise DataError(
                f"{path} is no IDX file: it starts with the bytes {head.hex(' ') or '(none)'}, "
                "where two zeros, a type (08, 09, 0b to 0e) and the number of dimensions belong.",
                fix=FETCH_AGAIN,
            )
        dimensions = head[3]
        sizes = _read(stream, 4 * dimensions, path)
        if len(sizes) < 4 * dimensions:
            raise DataError(f"{path} is cut short within its head of {dimensions} sizes.", fix=FETCH_AGAIN)
        shape = struct.unpack(f">{dimensions}I", sizes)
        dtype = np.dtype(IDX_TYPES[head[2]])
        expected = math.prod(shape) * dtype.itemsize
        # A header that declares more than the file can hold is rejected before memory is allocated.
        possible = path.stat().st_size * (DEFLATE_RATIO if packed else 1)
        body = _read(stream, min(expected, possible) + 1, path)
    if len(body) != expected:
        found = f"only {len(body):,}" if len(body) < expected else "more"
        raise DataError(
            f"{path} says that it holds {' × '.join(map(str, shape))} values, {expected:,} bytes, and {found} follow.",
            fix=FETCH_AGAIN,
        )
    return np.frombuffer(body, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def read_labelled_idx(images: Path, labels: Path, classes: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Read images (n, h, w) and labels (n,), both IDX. Raises DataError if they do not match."""
    pixels, numbers = read_idx(images), read_idx(labels)
    if pixels.ndim != 3 or pixels.dtype != np.uint8:
        raise DataError(
            f"{images} holds {pixels.ndim} dimensions of {pixels.dtype}, and images are 3 of uint8.",
            fix=FETCH_AGAIN,
        )
    if numbers.shape != pixels.shape[:1]:
        raise DataError(
            f"{images} holds {len(pixels)} images, and {labels} the shape {numbers.shape} of labels.",
            fix=FETCH_AGAIN,
        )
    return pixels.astype(np.uint8, copy=False), checked_labels(numbers, classes, labels)


def read_cifar(path: Path, classes: int = 10) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Read images (n, 3, 32, 32), red, green, blue, and labels (n,) of one CIFAR-10 binary file.

    Raises DataError if the length is not a whole number of records, or a label is out of range.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} could not be read: {error.strerror or error}.") from error
    count, rest = divmod(len(data), CIFAR_RECORD)
    if rest or not count:
        raise DataError(
            f"{path} has {len(data):,} bytes, which is no whole number of records of {CIFAR_RECORD:,} bytes "
            f"({count:,} records and {rest:,} bytes over): it is cut short or of another form.",
            fix=FETCH_AGAIN,
        )
    records = np.frombuffer(data, np.uint8).reshape(count, CIFAR_RECORD)
    labels = checked_labels(records[:, 0], classes, path)
    return records[:, 1:].reshape(count, *CIFAR_SHAPE).copy(), labels


def checked_labels(labels: npt.NDArray[np.generic], classes: int, path: Path) -> npt.NDArray[np.int64]:
    """Return the labels as int64. Raises DataError unless all are integers from 0 to classes − 1."""
    bad = np.flatnonzero(~np.isin(labels, np.arange(classes)))
    if len(bad):
        raise DataError(
            f"{path}: example {bad[0]} has label {labels[bad[0]]}, and labels run from 0 to {classes - 1} "
            f"({len(bad)} such).",
            fix=FETCH_AGAIN,
        )
    return labels.astype(np.int64)


def _is_gzip(path: Path) -> bool:
    """Return whether the first two bytes are those of gzip, because an extracted file may keep its name."""
    try:
        with open_regular(path) as stream:
            return stream.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise DataError(f"{path} could not be read: {error.strerror or error}.") from error


def _read(stream: IO[bytes] | gzip.GzipFile, size: int, path: Path) -> bytes:
    try:
        return stream.read(size)
    except (EOFError, zlib.error, OSError) as error:  # BadGzipFile is an OSError
        raise DataError(
            f"{path} cannot be unpacked: the gzip stream is cut short or damaged ({error}).", fix=FETCH_AGAIN
        ) from error
