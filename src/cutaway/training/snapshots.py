"""Snapshots: copies of the weights during training, to look back at earlier states."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from .checkpoint import save_weights

FOLDER = "snapshots"  # in the run's folder


def snapshot_updates(updates: int, count: int) -> frozenset[int]:
    """Return the updates after which snapshots are written.

    There are `count` of them from 0 to the last of `updates`, denser at the start, where most changes happen: the k-th
    after updates · (k / (count − 1))².
    """
    if count == 0:
        return frozenset()
    return frozenset(round(updates * (k / max(1, count - 1)) ** 2) for k in range(count))


class Snapshots:
    """Writer of snapshots, each in its own file: RUN/snapshots/step-120.safetensors."""

    def __init__(self, run_folder: Path, at: frozenset[int], writes: bool = True) -> None:
        """Initialize the writer. Of several processes, only the one with `writes` writes files."""
        self.folder, self.at, self.writes = run_folder / FOLDER, at, writes

    def keep(self, update: int, weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """Write the weights if a snapshot is due after this update. Writing it again gives the same file."""
        if update in self.at:
            found = dict(weights())
            if self.writes:
                save_weights(self.folder / f"step-{update}.safetensors", found)


def list_snapshots(run_folder: Path) -> dict[int, Path]:
    """Return the snapshot files by update, in order."""
    found = {}
    for path in (run_folder / FOLDER).glob("step-*.safetensors"):
        if match := re.fullmatch(r"step-(\d+)\.safetensors", path.name):
            found[int(match[1])] = path
    return dict(sorted(found.items()))
