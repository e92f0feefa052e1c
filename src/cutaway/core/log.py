"""Messages of the package, through the logger "cutaway" of Python's logging.

    logging.getLogger("cutaway").setLevel(logging.WARNING)   # no progress lines and no notes
    logging.basicConfig(filename="training.log")             # into your own log

Progress lines and notes have the level INFO, findings about the data the level WARNING. Without a configuration of your
own they are printed on standard error as plain lines. If logging is configured, by handlers of the root logger or of
"cutaway", only these get them. Handlers of the root logger alone get them from its level on.

Warnings are of the class `CutawayWarning`, for the filters of Python's warnings.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NAME = "cutaway"
LOGGER = logging.getLogger(NAME)
Printer = Callable[[logging.LogRecord], None]


class DefaultHandler(logging.Handler):
    """Handler that prints on standard error, unless the program has configured logging itself.

    A progress bar that is shown takes the messages with `redirect`, so that they appear above it.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.printer: Printer = print_record

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message."""
        if not is_configured():
            self.printer(record)


def print_record(record: logging.LogRecord) -> None:
    """Print a message on standard error, which may have been replaced since the import."""
    print(record.getMessage(), file=sys.stderr, flush=True)


def is_configured() -> bool:
    """Return whether the program has its own handlers for these messages."""
    own = [handler for handler in LOGGER.handlers if handler is not HANDLER]
    return bool(own or (LOGGER.propagate and logging.getLogger().handlers))


@contextmanager
def redirect(printer: Printer) -> Iterator[None]:
    """Print messages with this function within the context, unless the program has configured logging."""
    before, HANDLER.printer = HANDLER.printer, printer
    try:
        yield
    finally:
        HANDLER.printer = before


def log(message: str, level: int = logging.INFO, **shown: str) -> None:
    """Log a message; `shown` has forms of it for displays, such as `markup` for a terminal."""
    own = any(handler is not HANDLER for handler in LOGGER.handlers)
    if LOGGER.level == DEFAULT_LEVEL and not own and is_configured() and not logging.getLogger().isEnabledFor(level):
        return
    LOGGER.log(level, "%s", message, extra={"shown": shown})


HANDLER = DefaultHandler()
DEFAULT_LEVEL = logging.INFO - 1  # no level of its own: below INFO, to be distinguished from setLevel(logging.INFO)
if LOGGER.level == logging.NOTSET:
    LOGGER.setLevel(DEFAULT_LEVEL)
LOGGER.addHandler(HANDLER)
