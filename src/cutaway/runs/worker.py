"""Entry point of a training process: python -m cutaway.runs.worker FOLDER, as `distributed.launch` starts it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from ..core.errors import CutawayError
from ..distributed.launch import AGENT, FOUND, STOPPED, rank, write_failure, write_message
from ..training.callbacks import Progress
from .train import train_model


def main(folder: Path) -> int:
    """Train as the folder specifies, and write the run's folder or the error there. Returns the exit status."""
    try:
        asked = json.loads((folder / "asked.json").read_text())
        run = train_model(progress=Progress(shown=asked.pop("shown") and rank() == 0), **asked)
    except CutawayError as error:
        write_failure(folder, error)
        return 2
    except KeyboardInterrupt as error:
        if rank() == 0 and error.args:
            write_message(folder, STOPPED, error.args[0])
        return 130
    if rank() == 0:
        write_message(folder, FOUND, run.folder)
    return 0


def stop_after_parent(parent: int) -> None:
    """Send SIGTERM to this process once its parent has ended.

    A parent that was killed cannot stop its children, which would keep on training unnoticed.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    stop_after_parent(int((Path(sys.argv[1]) / AGENT).read_text()))
    sys.exit(main(Path(sys.argv[1])))
