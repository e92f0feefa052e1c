"""TensorBoard's event file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Board:
    """TensorBoard's event file, where it is wanted."""

    def __init__(self, folder: Path, wanted: bool) -> None:
        self.writer = None
        if wanted:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(folder)

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *error: object) -> None:
        if self.writer is not None:
            self.writer.close()

    def write(self, row: Mapping[str, Any]) -> None:
        """One point on every curve."""
        if self.writer is not None:
            for key, value in row.items():
                if key not in ("epoch", "step"):
                    self.writer.add_scalar(key, value, row["step"], time.time())
