"""Streams of tokens in shards: consecutive little-endian integers, read on demand and never kept in memory.

They are read by `pread`, not through a memory map. Pages read through a map count as memory of the process, up to the
whole corpus (3.7 GB after 60 000 windows of a corpus of 6 GB, where `pread` takes none). A shard truncated while mapped
kills the process (SIGBUS), and here raises an error with its name. A batch takes the same time, and the page cache
keeps frequently read pages in both cases.

During a training step the system prefetches the next batch (`prefetch_windows`). For a corpus that is not cached, a
batch of 32 windows then takes 0.4 ms instead of 4.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...core.errors import DataError, Problem
from ...core.files import error_reason, open_regular
from ..parallel import Progress
from .manifest import AGAIN, Manifest, find_damaged

AT_ONCE = 1 << 20  # tokens counted together
OPEN_AT_MOST = 256  # open shards; the oldest is closed first


class ShardTokens:
    """Token ids (n,) with the indexing of a tensor: a slice, or places (N, T) that are consecutive in each row."""

    def __init__(self, folder: Path, manifest: Manifest, split: str, most: int | None = None) -> None:
        """Initialize with the tokens of a split in a folder of shards, or its first `most` tokens."""
        self.folder, self.manifest, self.split = folder, manifest, split
        self.dtype = np.dtype(manifest.about["dtype"]).newbyteorder("<")
        self._shards = manifest.splits[split]
        self._ends = np.cumsum([shard.count for shard in self._shards])
        self._files: dict[int, int] = {}  # shard → descriptor
        self._length = int(self._ends[-1])
        self.counts = torch.tensor(manifest.about["counts"][split])  # (V,) count of each token
        if most is not None and most < self._length:
            self._length = most
            parts = (self[at : at + AT_ONCE] for at in range(0, most, AT_ONCE))
            self.counts = sum((part.bincount(minlength=len(self.counts)) for part in parts), self.counts * 0)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: slice | Tensor) -> Tensor:
        """Return the tokens at these places, int64. Raises DataError that names a shard that cannot be read."""
        if isinstance(place, slice):
            start, end, _ = place.indices(len(self))
            found = self._read(start, end)
            self._reject_strange(found[None], [start])
            return torch.from_numpy(found.astype(np.int64))
        width = min(place.shape[1], len(self))
        starts = place[:, 0].clamp(max=len(self) - width)
        rows = self._rows(starts.tolist(), width)  # (N, width)
        self._reject_strange(rows, starts.tolist())
        within = place - starts[:, None]  # 0, 1, 2, …, except where a row repeats a place at the stream's ends
        return torch.from_numpy(rows.astype(np.int64)).gather(1, within)

    def ask_for(self, starts: Sequence[int], width: int) -> None:
        """Ask the system to prefetch `width` tokens from each start on, without waiting."""
        if not hasattr(os, "posix_fadvise"):
            return
        size, shards = self.dtype.itemsize, np.searchsorted(self._ends, starts, side="right").tolist()
        for start, shard in zip(starts, shards):
            at = (start - int(self._ends[shard]) + self._shards[shard].count) * size
            os.posix_fadvise(self._file(shard), at, width * size, os.POSIX_FADV_WILLNEED)

    def _rows(self, starts: Sequence[int], width: int) -> npt.NDArray[Any]:
        """Return `width` tokens from each start on, (N, width), with one read per row unless it crosses shards."""
        size, shards = self.dtype.itemsize, np.searchsorted(self._ends, starts, side="right").tolist()
        parts = []
        for start, shard in zip(starts, shards):
            if start + width <= self._ends[shard]:
                first = self._ends[shard] - self._shards[shard].count
                parts.append(self._bytes(shard, int(start - first) * size, width * size))
            else:
                parts.append(self._read(start, start + width).tobytes())
        return np.frombuffer(b"".join(parts), self.dtype).reshape(len(starts), width)

    def _read(self, start: int, end: int) -> npt.NDArray[Any]:
        """Return the tokens from `start` to `end`, across shards."""
        size, parts = self.dtype.itemsize, []
        shard = int(np.searchsorted(self._ends, start, side="right"))
        while start < end:
            last = min(end, int(self._ends[shard]))
            first = int(self._ends[shard]) - self._shards[shard].count
            parts.append(self._bytes(shard, (start - first) * size, (last - start) * size))
            start, shard = last, shard + 1
        return np.frombuffer(b"".join(parts), self.dtype)

    def _bytes(self, shard: int, offset: int, count: int) -> bytes:
        try:
            found = os.pread(self._file(shard), count, offset)
        except OSError as error:
            raise self._lost(shard, error_reason(error)) from error
        if len(found) < count:
            written = self._shards[shard].bytes
            raise self._lost(shard, f"it ends after {offset + len(found):,} bytes, and {written:,} were written")
        return found

    def _reject_strange(self, rows: npt.NDArray[Any], starts: Sequence[int]) -> None:
        """Raise DataError that names the shard if the tokens (N, width) from these starts include an invalid id."""
        if rows.size and rows.max() >= len(self.counts):
            row, column = divmod(int(rows.argmax()), rows.shape[1])
            shard = int(np.searchsorted(self._ends, starts[row] + column, side="right"))
            said = f"it holds token {rows[row, column]:,}, of a vocabulary of {len(self.counts):,}: it is damaged"
            raise self._lost(shard, said)

    def _file(self, shard: int) -> int:
        """Return the descriptor of a shard, and open it if necessary."""
        if shard not in self._files:
            if len(self._files) >= OPEN_AT_MOST:
                os.close(self._files.pop(next(iter(self._files))))
            try:
                with open_regular(self.folder / self._shards[shard].name) as file:
                    self._files[shard] = os.dup(file.fileno())
            except OSError as error:
                raise self._lost(shard, error_reason(error)) from error
        return self._files[shard]

    def _lost(self, shard: int, said: str) -> DataError:
        path = self.folder / self._shards[shard].name
        return DataError("A shard cannot be read any more:", [Problem(str(path), said)], AGAIN)

    def __del__(self) -> None:
        for descriptor in self.__dict__.pop("_files", {}).values():
            os.close(descriptor)


def prefetch_windows(
    tokens: Tensor | ShardTokens, order: Iterable[Tensor], grid: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the starts and lengths of the windows of each batch, (N,) each, as computed by `grid`.

    If they are read from shards, the system prefetches those of the next batch.
    """
    batches = map(grid, order)
    if isinstance(tokens, Tensor):
        yield from batches
        return
    found = next(batches, None)
    while found is not None:
        following = next(batches, None)
        if following is not None:
            starts, lengths = following
            tokens.ask_for(starts.tolist(), int(lengths.max()) + 1)
        yield found
        found = following


def concatenate_streams(streams: Sequence[Tensor | ShardTokens]) -> Tensor | ShardTokens:
    """Return the concatenated tokens of streams, (Σ n,); a stream in shards is returned unchanged."""
    (first, *others) = streams
    if isinstance(first, ShardTokens):
        assert not others, "shards hold one stream"
        return first
    return _concatenate([stream for stream in streams if isinstance(stream, Tensor)])


def _concatenate(streams: list[Tensor]) -> Tensor:
    """Concatenate tensors; a single one is not copied."""
    return streams[0] if len(streams) == 1 else torch.cat(streams)


def damaged_token_shards(tokens: Tensor | ShardTokens, progress: Progress | None = None) -> list[Problem]:
    """Return every shard of these tokens whose checksum differs; empty for a tensor."""
    if isinstance(tokens, Tensor):
        return []
    return find_damaged(tokens.folder, tokens.manifest, (tokens.split,), progress)


def stream_targets(streams: Sequence[Tensor | ShardTokens], first: int) -> tuple[Tensor, Tensor | None]:
    """Return the tokens to be predicted: those of each stream from its `first` on, (n,).

    For a stream in shards these are read with each window, so the tensor is empty, (0,), and the count of each token
    among them, (V,), is returned too.
    """
    tokens = concatenate_streams(streams)
    if isinstance(tokens, Tensor):
        return _concatenate([stream[first:] for stream in streams if isinstance(stream, Tensor)]), None
    counts = tokens.counts.clone()
    counts[tokens[:first]] -= 1  # of one token, or none
    return torch.empty(0, dtype=torch.int64), counts
