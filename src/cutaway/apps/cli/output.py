"""Terminal output: results on standard output, progress and notes on standard error; tables.

Messages contain text from the user's files, such as labels and names. To keep control and escape sequences in it from
the terminal, `console`, `note`, `write` and `emit_json` escape them; all printing goes through these.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

OBEYED = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # control characters that JSON need not escape


@functools.cache
def console() -> Console:
    """Return the console on standard output, for tables and results."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        """A console on which a person's own words (labels, names of files) steer nothing."""

        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(printable(text), **how)

    return Plain(highlight=False, soft_wrap=not sys.stdout.isatty())


def say(text: str, indent: int = 0) -> None:
    """Print one line on standard output. On a terminal it is wrapped, and further lines are indented by `indent`
    columns."""
    out = console()
    rows = _rows(text, out.width, indent) if out.is_terminal else [text]
    for row in rows:
        out.print(row, markup=False, soft_wrap=True)


def note(text: str) -> None:
    """Print one line on standard error, wrapped between words on a terminal."""
    text = printable(text)
    if sys.stderr.isatty():
        text = "\n".join(_rows(text, shutil.get_terminal_size().columns, 2))
    print(text, file=sys.stderr, flush=True)


def _rows(text: str, width: int, indent: int) -> list[str]:
    """Wrap text to a width, with further lines indented; a word wider than that, such as a path, is not broken."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return [text]
    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


@contextmanager
def note_if_slow(text: str, seconds: float = 5.0) -> Iterator[None]:
    """Print `text` if the block takes longer than `seconds`."""
    timer = threading.Timer(seconds, note, [text])
    timer.daemon = True  # so that a second Ctrl-C does not wait for it
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def note_warnings() -> Iterator[None]:
    """Print the warnings of the block as notes after it."""
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        note(f"note: {warning.message}")


def write(text: str) -> None:
    """Write text unchanged to standard output and flush, for example the text of a model."""
    sys.stdout.write(printable(text))
    sys.stdout.flush()


def open_page(path: Path) -> None:
    """Open a page in the default browser; without one, print its path."""
    import webbrowser

    # Without a display, webbrowser would start a text browser in the terminal and block.
    screen = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    if not screen or not webbrowser.open(path.resolve().as_uri()):
        note(f"No browser found. The page is {path}")


def emit_json(value: Any) -> None:
    """Print one JSON document on standard output. NaN and infinity raise ValueError."""
    document = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    print(OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", document))


GAP, INDENT = "  ", "    "  # between columns; before a cell that is printed below its row
LEAST = 24  # minimum width of a wrapped column


def print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    yields: str = "",
    total: bool = False,
    groups: Sequence[str] = (),
) -> None:
    """Print rows under dim titles, each column as wide as its widest cell.

    Columns in `right` are right-aligned. If a terminal is too narrow, the column `yields` is wrapped, or printed below
    its row; without a terminal, each row is one line. With `total`, the last row is bold. `groups` has the heading of
    each row: it is printed above the first row of each group.
    """
    out = console()
    widths = [max(map(_length, column)) for column in zip(titles, *rows)]
    flexible, wraps = list(titles).index(yields) if yields and out.is_terminal else None, True
    if flexible is not None:
        room = out.width - sum(widths) - len(GAP) * (len(widths) - 1) + widths[flexible]
        longest = max(_length(word) for row in rows for word in row[flexible].split() or [""])
        wraps = room >= max(longest, min(widths[flexible], LEAST))  # no word is broken for it
        widths[flexible] = min(widths[flexible], max(room, 0))
    headings = ["", *groups] if groups else [""] * (len(rows) + 1)
    for number, row in enumerate([titles, *rows]):
        if number and headings[number] != headings[number - 1]:
            out.print(f"\n{headings[number]}", style="bold", markup=False)
        style = "dim" if number == 0 else "bold" if total and number == len(rows) else None
        cells, below = [*row], ""
        if flexible is not None and not wraps and _length(cells[flexible]) > widths[flexible]:
            cells[flexible], below = "", cells[flexible]
        columns = [_wrapped(cell, width) for cell, width in zip(cells, widths)]
        for line in zip_longest(*columns, fillvalue=""):
            parts = [_cell(text, width, title in right) for text, width, title in zip(line, widths, titles)]
            out.print(GAP.join(parts).rstrip(), style=style, markup=False)
        for part in _wrapped(below, out.width - len(INDENT)) if below else ():
            out.print(INDENT + part, style=style, markup=False)


def _length(text: str) -> int:
    from rich.cells import cell_len  # imported here because it is slow, and `cutaway --help` must be fast

    return cell_len(text)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""] if _length(text) > width > 0 else [text]


def _cell(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _length(text))  # wide characters take two columns
    return blanks + text if right else text + blanks
