"""One of several processes that train: python -m cutaway.training.worker FOLDER, as `distributed.launch` runs it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from ..core.errors import CutawayError
from ..distributed.environment import rank
from ..distributed.launch import AGENT, FOUND, STOPPED, failed, tell
from .train import fit


def main(folder: Path) -> int:
    """Train as the folder asks, and leave the run's folder or what went wrong there."""
    try:
        run = fit(**json.loads((folder / "asked.json").read_text()))
    except CutawayError as error:
        failed(folder, error)
        return 2
    except KeyboardInterrupt as error:
        if rank() == 0 and error.args:
            tell(folder, STOPPED, error.args[0])
        return 130
    if rank() == 0:
        tell(folder, FOUND, run.folder)
    return 0


def stop_without(parent: int) -> None:
    """Ask this process to stop, as SIGTERM does, once the one that started it is gone: killed, that one cannot ask, and
    nobody would know that training goes on."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    stop_without(int((Path(sys.argv[1]) / AGENT).read_text()))
    sys.exit(main(Path(sys.argv[1])))
