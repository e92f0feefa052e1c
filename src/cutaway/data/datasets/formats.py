"""Readers of binary formats of small image data sets: IDX (MNIST) and CIFAR-10 records.

IDX is big-endian: two zero bytes, a byte for the type, a byte for the number of dimensions d, d sizes of four bytes,
then the values in row-major order. CIFAR-10 binary: records of one label byte and 3 072 pixel bytes, the red plane (32
× 32, row by row), then green, then blue.

Safe pickle reader: an interpreter for the instructions that numbers, text, lists and arrays need.

A scipy sparse matrix is read as the dictionary of its arrays (data, indices, indptr and shape), and a defaultdict as a
plain dictionary; neither scipy nor a default factory is needed or called.

A pickle is a program, and Python's own reader runs it, importing and calling any name in the file. Nothing is imported
or called for the file here: an instruction or a name outside the lists below is rejected, by its name. `pickletools`
decodes the instructions and executes nothing.
"""

from __future__ import annotations

import gzip
import math
import pickletools
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ...core.errors import DataError, FolderLayoutError
from ...core.files import open_regular, unreadable_error

IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
DEFLATE_RATIO = 1032  # the largest compression ratio of deflate

CIFAR_SHAPE = (3, 32, 32)
CIFAR_RECORD = 1 + math.prod(CIFAR_SHAPE)

FETCH_AGAIN = "Download the file again."


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
        raise FolderLayoutError(
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
        raise unreadable_error(path, error) from error
    count, rest = divmod(len(data), CIFAR_RECORD)
    if rest or not count:
        raise DataError(
            f"{path} has {len(data):,} bytes, which is not a whole number of records of {CIFAR_RECORD:,} bytes "
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
        raise unreadable_error(path, error) from error


def _read(stream: IO[bytes] | gzip.GzipFile, size: int, path: Path) -> bytes:
    try:
        return stream.read(size)
    except (EOFError, zlib.error, OSError) as error:  # BadGzipFile is an OSError
        raise DataError(
            f"{path} cannot be unpacked: the gzip stream is cut short or damaged ({error}).", fix=FETCH_AGAIN
        ) from error


PUSHED = {  # instructions whose argument is the value
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
MEMORY_IN = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
MEMORY_OUT = {"GET", "BINGET", "LONG_BINGET"}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
ARRAY_KINDS = "biufcSU"  # numpy kinds of plain values, without objects
SPARSE = {"scipy.sparse.csr.csr_matrix", "scipy.sparse._csr.csr_matrix"}  # names in older and newer releases
SPARSE_PARTS = ("data", "indices", "indptr")
NAMED_ONLY = {"numpy.ndarray", "__builtin__.list", "builtins.list"}  # names that are only valid as arguments of a call
_OPEN = object()  # marks a list or dict that is being unwrapped


class RejectedError(ValueError):
    """Error that describes a disallowed operation of the file."""


class _Name:
    """A function or class named in the file, with numpy's renamed modules resolved."""

    def __init__(self, module: str, name: str) -> None:
        self.full = f"{module}.{name}".replace("numpy.core.", "numpy._core.")
        if self.full not in CALLS and self.full not in NAMED_ONLY | SPARSE:
            raise RejectedError(f"it names {module}.{name}, which is neither a number, text, list, dict nor array")


class _Type:
    """An array dtype under construction: a code such as f8, then its byte order."""

    def __init__(self, code: str, align: bool = False, copy: bool = False) -> None:
        del align, copy
        self.code, self.order = code, "="

    def set(self, state: tuple[Any, ...]) -> None:
        self.order = state[1] if state[1] in "<>" else "="

    def dtype(self) -> np.dtype[Any]:
        dtype = np.dtype(str(self.code))
        if dtype.kind not in ARRAY_KINDS:
            raise RejectedError(f"it holds an array of {dtype}, and only arrays of numbers and text are read")
        return dtype.newbyteorder(self.order)  # type: ignore[arg-type]


class _Array:
    """An array under construction: first empty, then with shape, type and bytes."""

    value: np.ndarray[Any, Any] | None = None

    def set(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        self.value = _array(data, dtype, shape, "F" if fortran else "C")


class _Sparse:
    """A sparse matrix under construction: first empty, then with a dictionary of its parts."""

    state: dict[str, Any] | None = None

    def set(self, state: dict[str, Any]) -> None:
        if not isinstance(state, dict):
            raise ValueError("a sparse matrix without parts")
        self.state = state

    def parts(self) -> dict[str, Any]:
        if self.state is None:
            raise ValueError("a sparse matrix without parts")
        return {part: self.state[part] for part in SPARSE_PARTS} | {"shape": self.state["_shape"]}


def read_pickle(path: Path) -> Any:
    """Read None, numbers, text, bytes, tuples, lists, dicts and arrays of numbers or text from a pickle.

    Supports protocols 0 to 5; text of Python 2 is decoded as latin-1. Raises DataError if the file is truncated or
    damaged, or would build or call anything else. None of it is executed.
    """
    try:
        return _unwrap_arrays(_interpret(path.read_bytes()), {})
    except RejectedError as error:
        raise DataError(f"{path} is a pickle that is not read, and nothing of it was run: {error}.") from error
    except OSError as error:
        raise unreadable_error(path, error) from error
    except (ValueError, LookupError, TypeError, AttributeError, MemoryError, RecursionError) as error:
        raise DataError(
            f"{path} is not a complete pickle of numbers, text, lists and arrays: it is cut short or damaged "
            f"({type(error).__name__}: {error}).",
            fix="Download the file again.",
        ) from error


def _interpret(data: bytes) -> Any:
    """Run the instructions on a stack of plain values. Raises RejectedError for other instructions."""
    stack: list[Any] = []
    marked: list[list[Any]] = []  # the stacks saved by MARK
    memory: dict[int, Any] = {}
    argument: Any
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name in PUSHED:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name]())
        elif name in MEMORY_IN:
            memory[len(memory) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in MEMORY_OUT:
            stack.append(memory[argument])
        elif name == "MARK":
            marked.append(stack)
            stack = []
        elif name in {"TUPLE", "LIST", "DICT", "APPENDS", "SETITEMS"}:
            items, stack = stack, marked.pop()
            if name == "TUPLE":
                stack.append(tuple(items))
            elif name == "LIST":
                stack.append(items)
            elif name == "APPENDS":
                stack[-1].extend(items)
            elif name == "SETITEMS":
                stack[-1].update(zip(items[::2], items[1::2]))
            else:
                stack.append(dict(zip(items[::2], items[1::2])))
        elif name in TUPLES:
            items = stack[-TUPLES[name] :]
            stack[-TUPLES[name] :] = [tuple(items)]
        elif name == "APPEND":
            item = stack.pop()
            stack[-1].append(item)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            stack[-1][key] = value
        elif name == "GLOBAL":
            stack.append(_Name(*argument.split(" ")))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(_Name(module, attribute))
        elif name == "REDUCE":
            arguments, called = stack.pop(), stack.pop()
            stack.append(CALLS[called.full](*arguments))
        elif name == "NEWOBJ":
            arguments, called = stack.pop(), stack.pop()
            if called.full not in SPARSE or arguments:
                raise RejectedError(f"it makes an object of {called.full}")
            stack.append(_Sparse())
        elif name == "BUILD":
            state = stack.pop()
            stack[-1].set(state)  # only _Type, _Array and _Sparse have it
        elif name == "STOP":
            return stack.pop()
        elif name not in {"PROTO", "FRAME"}:
            raise RejectedError(f"it has the instruction {name}, which plain values do not need")
    raise ValueError("no end")


def _array(data: bytes | str, dtype: _Type, shape: tuple[int, ...], order: str = "C") -> np.ndarray[Any, Any]:
    """Build an array from bytes, which Python 2 wrote as text."""
    raw = data.encode("latin-1") if isinstance(data, str) else data
    values = np.frombuffer(raw, dtype.dtype())
    return values.reshape(shape, order=order).copy()  # type: ignore[call-overload, no-any-return]


def _scalar(dtype: _Type, data: bytes | str) -> Any:
    return _array(data, dtype, ()).item()


def _encode(text: str, encoding: str) -> bytes:
    """Encode text as protocols 0 to 2 do for non-empty bytes."""
    if encoding not in {"latin1", "latin-1"}:
        raise RejectedError(f"it encodes text as {encoding}")
    return text.encode("latin-1")


CALLS: dict[str, Callable[..., Any]] = {
    "numpy._core.multiarray._reconstruct": lambda *_: _Array(),
    "numpy._core.multiarray.scalar": _scalar,
    "numpy._core.numeric._frombuffer": _array,
    "numpy.dtype": _Type,
    "_codecs.encode": _encode,
    "__builtin__.bytes": lambda: b"",
    "collections.defaultdict": lambda *_: {},
}


def _unwrap_arrays(value: Any, done: dict[int, Any]) -> Any:
    """Unwrap the arrays of a value, shared parts once. Raises RejectedError for a recursive value."""
    if isinstance(value, _Array):
        if value.value is None:
            raise ValueError("an array without values")
        return value.value
    if isinstance(value, _Sparse):
        return _unwrap_arrays(value.parts(), done)
    if isinstance(value, _Name | _Type):
        raise RejectedError("it holds a function or type instead of a value")
    if not isinstance(value, list | tuple | dict):
        return value
    if id(value) not in done:
        done[id(value)] = _OPEN
        if isinstance(value, dict):
            done[id(value)] = {_unwrap_arrays(k, done): _unwrap_arrays(v, done) for k, v in value.items()}
        else:
            done[id(value)] = type(value)(_unwrap_arrays(v, done) for v in value)
    if done[id(value)] is _OPEN:
        raise RejectedError("it holds a list or dict that contains itself")
    return done[id(value)]
