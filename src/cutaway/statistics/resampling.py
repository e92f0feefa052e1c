"""Bootstrap resamples and random signs of test examples, shared by all models that are compared."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

DRAWS = 9_999  # so that p is a multiple of 1/10 000
MOST = 5_000  # examples that are resampled individually; means of more are nearly normal
CELLS = 1 << 22  # resampled examples in memory as floats at a time


class Resamples:
    """Bootstrap resamples and random signs: `draws` of each, over `examples` examples."""

    def __init__(self, examples: int, seed: int = 0, draws: int = DRAWS) -> None:
        self.examples, self.draws = examples, draws
        self.rng = np.random.default_rng(seed)

    def means(self, rows: Values) -> Values:
        """Return the means of rows (R, n) over each resample, shape (B, R)."""
        found = np.empty((self.draws, len(rows)))
        for some in self._pieces:
            found[some] = self._counts[some] @ rows.T / self.examples
        return found

    def signed(self, columns: Values) -> Values:
        """Return the means of columns (n, P) with random signs, shape (B, P).

        An example has the same sign in all columns.
        """
        if self.examples > MOST:
            spread: Values = np.sqrt(np.square(columns).sum(0)) / self.examples
            return spread * self.rng.standard_normal((self.draws, columns.shape[1]))
        found = np.empty((self.draws, columns.shape[1]))
        for some in self._pieces:
            found[some] = self._signs[some].astype(np.float64) @ columns / self.examples
        return found

    @functools.cached_property
    def _counts(self) -> NDArray[np.uint8]:
        """Return the count of each example in each resample, (B, n)."""
        counts = np.empty((self.draws, self.examples), np.uint8)  # a count over 255 has probability 10⁻⁵⁰⁰
        for some in self._pieces:
            rows = np.arange(some.stop - some.start)[:, None]
            drawn = self.rng.integers(0, self.examples, (len(rows), self.examples)) + rows * self.examples
            found = np.bincount(drawn.ravel(), minlength=len(rows) * self.examples)
            counts[some] = found.reshape(len(rows), self.examples)
        return counts

    @functools.cached_property
    def _signs(self) -> NDArray[np.int8]:
        """Return −1 or 1 for each example, shape (B, n)."""
        return 2 * self.rng.integers(0, 2, (self.draws, self.examples), dtype=np.int8) - 1

    @property
    def _pieces(self) -> list[slice]:
        step = max(1, CELLS // self.examples)
        return [slice(start, min(start + step, self.draws)) for start in range(0, self.draws, step)]
