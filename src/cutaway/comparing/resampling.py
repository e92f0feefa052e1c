"""Resamples of test examples, the same for all models that are compared, and random signs of their differences.

Of more than 5 000 examples the resampled means are not counted out but drawn from the normal curve that they tend to.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

DRAWS = 9_999  # so that p is a multiple of 1/10 000
MOST = 5_000  # examples that are resampled one by one
CELLS = 1 << 22  # resampled examples that are held as floats at a time


class Resamples:
    """So many `draws` of `examples`, with `made_up` ones beside them, of which the first half favours one side and the
    other half the other."""

    def __init__(self, examples: int, made_up: int = 0, seed: int = 0, draws: int = DRAWS) -> None:
        self.examples, self.made_up, self.draws = examples, made_up, draws
        self.rng = np.random.default_rng(seed)

    @property
    def total(self) -> int:
        """The examples, with those that are made up."""
        return self.examples + self.made_up

    def means(self, rows: Values) -> Values:
        """The means of rows (R, n) over each resample, (B, R); the made-up examples add nothing to them, and count."""
        if self.examples > MOST:
            centre = rows.mean(1) * self.examples / self.total
            spread = np.atleast_2d(np.cov(rows, ddof=0)) / self.total
            return self.rng.multivariate_normal(centre, spread, self.draws, method="eigh")
        found = np.empty((self.draws, len(rows)))
        for some in self._pieces:
            found[some] = self._counts[some, : self.examples] @ rows.T / self.total
        return found

    @functools.cached_property
    def favour(self) -> Values:
        """How often the made-up examples of the one half were drawn, and those of the other, (B, 2)."""
        half = self.made_up // 2
        if self.examples > MOST:
            return self.rng.poisson(half, (self.draws, 2)).astype(np.float64)
        counts = self._counts[:, self.examples :].astype(np.float64)
        return np.stack([counts[:, :half].sum(1), counts[:, half:].sum(1)], axis=1)

    def signed(self, columns: Values) -> Values:
        """The means of columns (n, P) whose entries have random signs, an example's the same in all of them: (B, P)."""
        if self.examples > MOST:
            spread: Values = np.sqrt(np.square(columns).sum(0)) / self.examples
            return spread * self.rng.standard_normal((self.draws, columns.shape[1]))
        found = np.empty((self.draws, columns.shape[1]))
        for some in self._pieces:
            found[some] = self._signs[some].astype(np.float64) @ columns / self.examples
        return found

    @functools.cached_property
    def _counts(self) -> NDArray[np.uint8]:
        """How often each resample has each example, (B, n)."""
        counts = np.empty((self.draws, self.total), np.uint8)  # 256 times one of them would be a chance of 10⁻⁵⁰⁰
        for some in self._pieces:
            rows = np.arange(some.stop - some.start)[:, None]
            drawn = self.rng.integers(0, self.total, (len(rows), self.total)) + rows * self.total
            found = np.bincount(drawn.ravel(), minlength=len(rows) * self.total)
            counts[some] = found.reshape(len(rows), self.total)
        return counts

    @functools.cached_property
    def _signs(self) -> NDArray[np.int8]:
        """−1 or 1 for each example, (B, n)."""
        return 2 * self.rng.integers(0, 2, (self.draws, self.examples), dtype=np.int8) - 1

    @property
    def _pieces(self) -> list[slice]:
        step = max(1, CELLS // self.total)
        return [slice(start, min(start + step, self.draws)) for start in range(0, self.draws, step)]
