"""Tables for the terminal whose figures are never cut."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

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
    from .output import console

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
