"""TensorBoard logging."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import FileError
from ..core.files import error_reason, is_unmoved


class TensorBoardWriter:
    """Writer of TensorBoard's event file, which does nothing if it is not `wanted`."""

    def __init__(self, folder: Path, wanted: bool) -> None:
        self.folder = folder
        self.writer: Any = None
        self._new: Any = None
        if wanted:
            from torch.utils.tensorboard import SummaryWriter

            self._new = SummaryWriter

    def __enter__(self) -> TensorBoardWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if self.writer is None:
            return
        try:
            self.writer.close()
        except OSError as failed:
            if error[0] is None:  # do not hide the original error
                raise self._unwritten(failed) from failed

    def write(self, row: Mapping[str, Any]) -> None:
        """Add one point to the curve of every number in the row.

        Points that an earlier session wrote for this step and later ones, before it was killed, are hidden. Raises
        FileError if the file cannot be written.
        """
        try:
            if self._new is not None and not is_unmoved(self.folder):  # TensorBoard would create it again
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if self._new is not None and self.writer is None:
                self.writer = self._new(self.folder, purge_step=row["step"])
            if self.writer is not None:
                for key, value in row.items():
                    if key not in ("epoch", "step"):
                        self.writer.add_scalar(key, value, row["step"], time.time())
        except OSError as failed:
            raise self._unwritten(failed) from failed

    def _unwritten(self, failed: OSError) -> FileError:
        return FileError(
            f"TensorBoard's file in {self.folder} could not be written: {error_reason(failed)}. Free some space, "
            "or leave that file out (tensorboard=false)."
        )
