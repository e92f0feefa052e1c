"""Convolution by the method that `fast_convolve` takes, beside the other: on both sides of where they cross.

The name of a row says which one was taken. Near the crossing the two are alike, and far from it one is much slower:
the limit says that the choice costs at most a third. The last rows are beside SciPy's, which chooses too.
"""

from __future__ import annotations

import scipy.signal
import torch

from cutaway.draw.words import by
from cutaway.nn.convolution import convolve, fast_convolve, faster_method

from .pairs import Pair, race

LIMIT = 1.33

# Name, shape of x, and the kernels: one for each row.
SIGNAL = ("16 signals of 4 096", (16, 4_096), ((4,), (16,), (64,), (256,), (1_024,)))
LONG = ("signal of 20 000", (20_000,), ((16,), (64,), (256,), (1_024,)))
IMAGE = ("image 512×512", (512, 512), ((3, 3), (5, 5), (9, 9), (15, 15), (31, 31)))
LAYER = ("layer 8×16×64×64", (8, 16, 64, 64), ((16, 16, 3, 3), (16, 16, 9, 9), (16, 16, 21, 21), (16, 16, 41, 41)))


def rows() -> list[tuple[Pair, float]]:
    """Every case with the most that its ratio may be."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for name, shape, kernels in (LONG, SIGNAL, IMAGE, LAYER):
        for size in kernels:
            x, kernel = torch.randn(shape, generator=generator), torch.randn(size, generator=generator)
            taken = faster_method(x, kernel)
            other = "fused" if taken == "fft" else "fft"
            found.append((_race(f"{name} ∗ {by(size)}: {taken}, beside {other}", x, kernel, other), LIMIT))
    for (name, shape, _), size in ((SIGNAL, (256,)), (IMAGE, (31, 31))):
        x, kernel = torch.randn(shape, generator=generator), torch.randn(size, generator=generator)
        found.append((_race_scipy(f"{name} ∗ {by(size)}: beside SciPy", x, kernel), LIMIT))
    return found


def _race(name: str, x: torch.Tensor, kernel: torch.Tensor, other: str) -> Pair:
    return race(name, lambda: fast_convolve(x, kernel), lambda: convolve(x, kernel, method=other))


def _race_scipy(name: str, x: torch.Tensor, kernel: torch.Tensor) -> Pair:
    """`scipy.signal.convolve` takes as many axes in the kernel as in x: of signals one each."""
    theirs = x.numpy(), kernel.numpy().reshape((1,) * (x.ndim - kernel.ndim) + tuple(kernel.shape))
    return race(name, lambda: fast_convolve(x, kernel), lambda: scipy.signal.convolve(*theirs, mode="valid"))
