"""Terminal output: results on standard output, progress and notes on standard error; tables.

What a person's files say, a label or a name, is part of these words. No control or escape sequence in it reaches the
terminal: `console`, `note`, `write` and `emit_json` write it out instead, and nothing here prints in another way.
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

from ...core.errors import visible

if TYPE_CHECKING:
    from rich.console import Console

OBEYED = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # what JSON has no need to escape, and terminals obey


@functools.cache
def console() -> Console:
    """The console on standard output, for tables and results."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        """A console on which a person's own words (labels, names of files) steer nothing."""

        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(visible(text), **how)

    return Plain(highlight=False, soft_wrap=not sys.stdout.isatty())


def say(text: str, indent: int = 0) -> None:
    """One line on standard output; what a terminal has no room for goes on below, from the column `indent` on."""
    out = console()
    rows = _rows(text, out.width, indent) if out.is_terminal else [text]
    for row in rows:
        out.print(row, markup=False, soft_wrap=True)


def note(text: str) -> None:
    """One line on standard error; on a terminal it is broken between words."""
    text = visible(text)
    if sys.stderr.isatty():
        text = "\n".join(_rows(text, shutil.get_terminal_size().columns, 2))
    print(text, file=sys.stderr, flush=True)


def _rows(text: str, width: int, indent: int) -> list[str]:
    """The text in lines of this width, those after the first set in; a word that is wider, such as a path, is whole."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return [text]
    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


@contextmanager
def patience(text: str, seconds: float = 5.0) -> Iterator[None]:
    """Note `text` where the block takes longer than that, so that nobody waits without a word."""
    timer = threading.Timer(seconds, note, [text])
    timer.daemon = True  # a second Ctrl-C need not wait for it
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def write(text: str) -> None:
    """Text on standard output as it is, such as what a model wrote, at once."""
    sys.stdout.write(visible(text))
    sys.stdout.flush()


def open_page(path: Path) -> None:
    """Open a page in the browser that the person has; where there is none, say where the page is."""
    import webbrowser

    # Without a screen webbrowser would take one that fills the terminal, and wait for its end.
    screen = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    if not screen or not webbrowser.open(path.resolve().as_uri()):
        note(f"There is no browser here to open the page in. It is {path}")


def emit_json(value: Any) -> None:
    """One JSON document on standard output; values that JSON has not (NaN, infinity) are an error of ours."""
    document = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    print(OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", document))


GAP, INDENT = "  ", "    "  # between columns; before a column that stands below its row
LEAST = 24  # letters to a line of words


def print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    yields: str = "",
    total: bool = False,
    groups: Sequence[str] = (),
) -> None:
    """Print rows under dim titles, each column as wide as it must be.

    The columns in `right` are set flush right. Where a terminal has not room for all, the column `yields` is wrapped,
    or what has no room in it stands below its row; where there is no terminal, a row is a line. With `total`, the last
    row stands out. `groups` has the heading of each row: it stands above the first of those that share it.
    """
    out = console()
    widths = [max(map(_length, column)) for column in zip(titles, *rows)]
    yielding, wraps = list(titles).index(yields) if yields and out.is_terminal else None, True
    if yielding is not None:
        room = out.width - sum(widths) - len(GAP) * (len(widths) - 1) + widths[yielding]
        longest = max(_length(word) for row in rows for word in row[yielding].split() or [""])
        wraps = room >= max(longest, min(widths[yielding], LEAST))  # no word is broken for it
        widths[yielding] = min(widths[yielding], max(room, 0))
    headings = ["", *groups] if groups else [""] * (len(rows) + 1)
    for number, row in enumerate([titles, *rows]):
        if number and headings[number] != headings[number - 1]:
            out.print(f"\n{headings[number]}", style="bold", markup=False)
        style = "dim" if number == 0 else "bold" if total and number == len(rows) else None
        cells, below = [*row], ""
        if yielding is not None and not wraps and _length(cells[yielding]) > widths[yielding]:
            cells[yielding], below = "", cells[yielding]
        columns = [_wrapped(cell, width) for cell, width in zip(cells, widths)]
        for line in zip_longest(*columns, fillvalue=""):
            parts = [_cell(text, width, title in right) for text, width, title in zip(line, widths, titles)]
            out.print(GAP.join(parts).rstrip(), style=style, markup=False)
        for part in _wrapped(below, out.width - len(INDENT)) if below else ():
            out.print(INDENT + part, style=style, markup=False)


def _length(text: str) -> int:
    from rich.cells import cell_len  # which costs more than `cutaway --help` may

    return cell_len(text)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""] if _length(text) > width > 0 else [text]


def _cell(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _length(text))  # of letters that take two places there are fewer
    return blanks + text if right else text + blanks
