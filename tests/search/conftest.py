"""A small search, and ways to stop it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cutaway.experiments.search.result import Search, SearchProgress
from cutaway.experiments.search.study import search

SPACE = {"lr": "1e-3..1e-1:log", "model.hidden_dims": "4..16", "optimizer": "adam,sgd"}
FIXED = {"epochs": 2, "tensorboard": False, "threads": 1, "pruner": "none"}


class Stop(Exception):
    """What a callback raises."""


class Stopping(SearchProgress):
    """Raises once so many trials have ended, as a fault of ours would."""

    def __init__(self, after: int) -> None:
        super().__init__(shown=False)
        self.after = after

    def trial_done(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count."""
        super().trial_done(rows)
        if len(rows) >= self.after:
            raise Stop


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Search]:
    """A search of a small perceptron on iris in a folder of that name."""

    def run(name: str = "search", progress: SearchProgress | None = None, **given: Any) -> Search:
        settings = {**FIXED, "trials": 4, **given}
        space = settings.pop("space", SPACE)
        progress = progress or SearchProgress(shown=False)
        return search("mlp", "iris", settings, space=space, out=tmp_path / name, progress=progress)

    return run


def alike(found: Search) -> list[dict[str, Any]]:
    """The trials without the time that they took, and without the numbers, which killed ones leave gaps in."""
    return [{k: v for k, v in row.items() if k not in ("seconds", "trial")} for row in found.trials]
