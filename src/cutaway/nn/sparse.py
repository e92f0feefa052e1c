"""Where the entries of a sparse matrix stand, in compressed rows (CSR); or, in a graph that is exported, as they are
listed, for nothing is known there by which they could be sorted and no format has sparse matrices."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor


def starts_of(sorted_or_not: Tensor, rows: int) -> Tensor:
    """Where each row begins when entries stand in the order of these row numbers, (rows + 1,) int32."""
    counts = torch.bincount(sorted_or_not, minlength=rows)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(torch.int32)


class Pattern:
    """Where the entries of a sparse matrix (n, m) stand: row after row, in the order in which their values are given.

    `starts` (n + 1,) is where each row begins and `columns` (E,) the column of each entry, both int32. Of a graph's
    edges, `order` (E,) is the edge that each entry is of, as they are listed; where loops are added there is none.
    """

    def __init__(self, starts: Tensor, columns: Tensor, width: int, order: Tensor | None = None) -> None:
        self.starts, self.columns, self.width, self.order = starts, columns, width, order
        self._kept: dict[Any, Any] = {}

    @property
    def height(self) -> int:
        """n, how many rows it has."""
        return len(self.starts) - 1

    @functools.cached_property
    def rows(self) -> Tensor:
        """The row of each entry, (E,)."""
        with torch.inference_mode(False):
            numbers = torch.arange(self.height, dtype=torch.int32, device=self.starts.device)
            return numbers.repeat_interleave(self.starts.diff(), output_size=self.columns.shape[0])

    @functools.cached_property
    def transposed(self) -> tuple[Pattern, Tensor]:
        """The transpose, (m, n), and which entry here each of its entries is, (E,)."""
        with torch.inference_mode(False):
            order = self.columns.argsort(stable=True)
            starts = starts_of(self.columns, self.width)
            return Pattern(starts, self.rows[order], self.height), order.to(torch.int32)

    @functools.cached_property
    def incidence(self) -> Pattern:
        """The matrix (n, E) that has an entry for each entry here, in its row: it sums over the edges to a node what
        each edge carries (E, F)."""
        return Pattern(self.starts, self.entries, self.columns.shape[0])

    def blocks(self, count: int) -> Pattern:
        """This matrix `count` times along a diagonal: one product for several heads, whose values follow each other."""
        if count == 1:
            return self
        if count not in self._kept:
            entries, (across, order) = self.columns.shape[0], self.transposed
            with torch.inference_mode(False):
                blocks, turned = self._repeated(count), across._repeated(count)
                turned_order = torch.cat([order + head * entries for head in range(count)])
            blocks.__dict__["transposed"] = (turned, turned_order)  # what sorting all of them again would find
            self._kept[count] = blocks
        found: Pattern = self._kept[count]
        return found

    def degrees(self, dtype: torch.dtype) -> Tensor:
        """How many entries each row has, (n,)."""
        return self.starts.diff().to(dtype)

    def normalised(self, dtype: torch.dtype) -> Tensor:
        """1 / √(d_i d_j) of each entry (i, j), (E,), d_i the number of entries in row i: D^−½ A D^−½."""
        if dtype not in self._kept:
            with torch.inference_mode(False):
                scale = self.degrees(dtype).rsqrt()
                self._kept[dtype] = scale[self.rows] * scale[self.columns]
        found: Tensor = self._kept[dtype]
        return found

    def ones(self, dtype: torch.dtype) -> Tensor:
        """The value 1 for each entry, (E,)."""
        if ("ones", dtype) not in self._kept:
            with torch.inference_mode(False):
                self._kept["ones", dtype] = torch.ones(self.columns.shape[0], dtype=dtype, device=self.columns.device)
        found: Tensor = self._kept["ones", dtype]
        return found

    @functools.cached_property
    def entries(self) -> Tensor:
        """The number of each entry, (E,)."""
        with torch.inference_mode(False):
            return torch.arange(self.columns.shape[0], dtype=torch.int32, device=self.columns.device)

    @functools.cached_property
    def pairs(self) -> Tensor:
        """The edge of each entry, (2, E) int64, sources above targets: the entry (i, j) is the edge from j to i."""
        with torch.inference_mode(False):
            return torch.stack([self.columns, self.rows]).long()

    def _repeated(self, count: int) -> Pattern:
        entries = self.columns.shape[0]
        starts = [self.starts[:1], *(self.starts[1:] + head * entries for head in range(count))]
        columns = [self.columns + head * self.width for head in range(count)]
        return Pattern(torch.cat(starts), torch.cat(columns), count * self.width)


class Listed(Pattern):
    """The same where a graph is exported: row and column of each entry (E,) int64, in the order in which they came.
    What is computed with it is gathered and added up by index, which every format has."""

    def __init__(self, rows: Tensor, columns: Tensor, height: int, width: int) -> None:
        self.columns, self.width, self._height = columns, width, height
        self.order = torch.arange(columns.shape[0], device=columns.device)
        self.__dict__["rows"] = rows
        self._kept: dict[Any, Any] = {}

    @property
    def height(self) -> int:
        """n, how many rows it has."""
        return self._height

    @property
    def incidence(self) -> Pattern:
        """As of any pattern."""
        numbers = torch.arange(self.columns.shape[0], device=self.columns.device)
        return Listed(self.rows, numbers, self.height, self.columns.shape[0])

    def blocks(self, count: int) -> Pattern:
        """As of any pattern."""
        rows = torch.cat([self.rows + head * self.height for head in range(count)])
        columns = torch.cat([self.columns + head * self.width for head in range(count)])
        return Listed(rows, columns, count * self.height, count * self.width)

    def degrees(self, dtype: torch.dtype) -> Tensor:
        """How many entries each row has, (n,)."""
        return self.sums(torch.ones_like(self.rows, dtype=dtype))

    def sums(self, values: Tensor) -> Tensor:
        """The sum of the values (E, …) in each row, (n, …)."""
        return values.new_zeros(self.height, *values.shape[1:]).index_add(0, self.rows, values)

    def largest(self, values: Tensor) -> Tensor:
        """The largest of the values (E,) in each row, (n,); −∞ in an empty one."""
        lowest = values.new_full((self.height,), -torch.inf)
        return lowest.scatter_reduce(0, self.rows, values, "amax")
