"""Sparsity patterns of matrices in compressed rows (CSR), and in coordinate lists (COO) for export.

In an exported graph entries cannot be sorted, because their values are unknown, and the formats have no sparse
matrices.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor


def row_offsets(sorted_or_not: Tensor, rows: int) -> Tensor:
    """Return the start of each row when entries are sorted by these row numbers, (rows + 1,) int32."""
    counts = torch.bincount(sorted_or_not, minlength=rows)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(torch.int32)


class CSRPattern:
    """The sparsity pattern of a matrix (n, m) in CSR format; values are ordered row by row.

    `starts` (n + 1,) is the start of each row and `columns` (E,) the column of each entry, both int32. For a graph,
    `order` (E,) is the index of the edge of each entry. It is None where self-loops were added.
    """

    def __init__(self, starts: Tensor, columns: Tensor, width: int, order: Tensor | None = None) -> None:
        self.starts, self.columns, self.width, self.order = starts, columns, width, order
        self._kept: dict[Any, Any] = {}

    @property
    def height(self) -> int:
        """The number of rows n."""
        return len(self.starts) - 1

    @functools.cached_property
    def rows(self) -> Tensor:
        """The row of each entry, (E,)."""
        with torch.inference_mode(False):
            numbers = torch.arange(self.height, dtype=torch.int32, device=self.starts.device)
            return numbers.repeat_interleave(self.starts.diff(), output_size=self.columns.shape[0])

    @functools.cached_property
    def transposed(self) -> tuple[CSRPattern, Tensor]:
        """The transpose (m, n), and the index here of each of its entries, (E,)."""
        with torch.inference_mode(False):
            order = self.columns.argsort(stable=True)
            starts = row_offsets(self.columns, self.width)
            return CSRPattern(starts, self.rows[order], self.height), order.to(torch.int32)

    @functools.cached_property
    def incidence(self) -> CSRPattern:
        """The matrix (n, E) with an entry for each entry here, in its row.

        It sums edge features (E, F) over the edges of each node.
        """
        return CSRPattern(self.starts, self.entries, self.columns.shape[0])

    def blocks(self, count: int) -> CSRPattern:
        """Return the block-diagonal pattern of `count` copies: one product for several heads."""
        if count == 1:
            return self
        if count not in self._kept:
            entries, (across, order) = self.columns.shape[0], self.transposed
            with torch.inference_mode(False):
                blocks, turned = self._repeated(count), across._repeated(count)
                turned_order = torch.cat([order + head * entries for head in range(count)])
            blocks.__dict__["transposed"] = (turned, turned_order)  # the same result as sorting all entries again
            self._kept[count] = blocks
        found: CSRPattern = self._kept[count]
        return found

    def degrees(self, dtype: torch.dtype) -> Tensor:
        """Return the number of entries of each row, (n,)."""
        return self.starts.diff().to(dtype)

    def gcn_norm(self, dtype: torch.dtype) -> Tensor:
        """Return 1 / √(d_i d_j) of each entry (i, j), (E,), with d_i the number of entries in row i: D^−½ A D^−½."""
        if dtype not in self._kept:
            with torch.inference_mode(False):
                scale = self.degrees(dtype).rsqrt()
                self._kept[dtype] = scale[self.rows] * scale[self.columns]
        found: Tensor = self._kept[dtype]
        return found

    def ones(self, dtype: torch.dtype) -> Tensor:
        """Return the value 1 for each entry, (E,)."""
        if ("ones", dtype) not in self._kept:
            with torch.inference_mode(False):
                self._kept["ones", dtype] = torch.ones(self.columns.shape[0], dtype=dtype, device=self.columns.device)
        found: Tensor = self._kept["ones", dtype]
        return found

    @functools.cached_property
    def entries(self) -> Tensor:
        """The index of each entry, (E,)."""
        with torch.inference_mode(False):
            return torch.arange(self.columns.shape[0], dtype=torch.int32, device=self.columns.device)

    @functools.cached_property
    def pairs(self) -> Tensor:
        """The edge of each entry, (2, E) int64, sources in the first row: the entry (i, j) is the edge from j to i."""
        with torch.inference_mode(False):
            return torch.stack([self.columns, self.rows]).long()

    def _repeated(self, count: int) -> CSRPattern:
        entries = self.columns.shape[0]
        starts = [self.starts[:1], *(self.starts[1:] + head * entries for head in range(count))]
        columns = [self.columns + head * self.width for head in range(count)]
        return CSRPattern(torch.cat(starts), torch.cat(columns), count * self.width)


class COOPattern(CSRPattern):
    """A sparsity pattern in COO format for export: row and column of each entry (E,) int64, in the order of the edges.

    Computations gather and sum by index, which every export format supports.
    """

    def __init__(self, rows: Tensor, columns: Tensor, height: int, width: int) -> None:
        self.columns, self.width, self._height = columns, width, height
        self.order = torch.arange(columns.shape[0], device=columns.device)
        self.__dict__["rows"] = rows
        self._kept: dict[Any, Any] = {}

    @property
    def height(self) -> int:
        """The number of rows n."""
        return self._height

    @property
    def incidence(self) -> CSRPattern:
        """The matrix (n, E) with an entry for each entry here, in its row."""
        numbers = torch.arange(self.columns.shape[0], device=self.columns.device)
        return COOPattern(self.rows, numbers, self.height, self.columns.shape[0])

    def blocks(self, count: int) -> CSRPattern:
        """Return the block-diagonal pattern of `count` copies."""
        rows = torch.cat([self.rows + head * self.height for head in range(count)])
        columns = torch.cat([self.columns + head * self.width for head in range(count)])
        return COOPattern(rows, columns, count * self.height, count * self.width)

    def degrees(self, dtype: torch.dtype) -> Tensor:
        """Return the number of entries of each row, (n,)."""
        return self.sums(torch.ones_like(self.rows, dtype=dtype))

    def sums(self, values: Tensor) -> Tensor:
        """Return the sum of the values (E, …) in each row, (n, …)."""
        return values.new_zeros(self.height, *values.shape[1:]).index_add(0, self.rows, values)

    def largest(self, values: Tensor) -> Tensor:
        """Return the largest of the values (E,) in each row, (n,); −∞ for an empty row."""
        lowest = values.new_full((self.height,), -torch.inf)
        return lowest.scatter_reduce(0, self.rows, values, "amax")
