"""Weights along the way: copies that are kept while a run learns, to look back at what it was."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from .checkpoint import save_weights

FOLDER = "snapshots"  # in the run's folder


def moments(updates: int, count: int) -> frozenset[int]:
    """After which updates weights are kept: `count` times from 0, the beginning, to the last of `updates`, closer to
    each other at the beginning, where most happens: the k-th after updates · (k / (count − 1))²."""
    if count == 0:
        return frozenset()
    return frozenset(round(updates * (k / max(1, count - 1)) ** 2) for k in range(count))


class Snapshots:
    """Keeps weights at some moments, each in a file of its own: RUN/snapshots/step-120.safetensors."""

    def __init__(self, run_folder: Path, at: frozenset[int], writes: bool = True) -> None:
        """`writes`: whether this process, of several, is the one that writes them."""
        self.folder, self.at, self.writes = run_folder / FOLDER, at, writes

    def keep(self, update: int, weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """Write the weights after that update, if they are to be kept. Written again, they are the same."""
        if update in self.at:
            found = dict(weights())
            if self.writes:
                save_weights(self.folder / f"step-{update}.safetensors", found)


def kept(run_folder: Path) -> dict[int, Path]:
    """The files that were kept, by the update after which they were, in order."""
    found = {}
    for path in (run_folder / FOLDER).glob("step-*.safetensors"):
        if match := re.fullmatch(r"step-(\d+)\.safetensors", path.name):
            found[int(match[1])] = path
    return dict(sorted(found.items()))
