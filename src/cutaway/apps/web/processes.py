"""Start of the servers' worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
from collections.abc import Iterator
from typing import Any

START_METHOD = "forkserver" if sys.platform.startswith("linux") else "spawn"


def process_context(preload: str) -> Any:
    """Return the multiprocessing context of the servers' worker processes.

    A worker is never forked from a server, because the libraries of the server have started threads by then. On Linux,
    workers are forked from one process that has imported the module `preload` and run nothing else, so that the next
    one starts at once. On other systems each worker is spawned.
    """
    context = multiprocessing.get_context(START_METHOD)
    if START_METHOD == "forkserver":
        context.set_forkserver_preload([preload])
    return context


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C within this context and in the processes that are started in it, until they install their own
    handler."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
