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
) -> None:
    """Print rows under dim titles, each column as wide as it must be.

    The columns in `right` are set flush right. Where a terminal has not room for all, the column `yields` goes on
    below; where there is no terminal, a row is a line. With `total`, the last row stands out.
    """
    from .output import console

    out = console()
    widths = [max(map(_length, column)) for column in zip(titles, *rows)]
    below = None  # the column that stands below its row, where beside it there is too little room to read
    if yields and out.is_terminal:
        i = list(titles).index(yields)
        room = out.width - sum(widths) - len(GAP) * (len(widths) - 1) + widths[i]
        below = i if room < min(widths[i], LEAST) else None
        widths[i] = min(widths[i], room if below is None else out.width - len(INDENT))
    for number, row in enumerate([titles, *rows]):
        style = "dim" if number == 0 else "bold" if total and number == len(rows) else None
        beside = [(t, _wrapped(x, w), w) for i, (t, x, w) in enumerate(zip(titles, row, widths)) if i != below]
        for line in zip_longest(*(lines for _, lines, _ in beside), fillvalue=""):
            cells = [_cell(text, width, title in right) for text, (title, _, width) in zip(line, beside)]
            out.print(GAP.join(cells).rstrip(), style=style, markup=False)
        if below is not None:
            for part in _wrapped(row[below], widths[below]):
                out.print(INDENT + part, style=style, markup=False)


def _length(text: str) -> int:
    from rich.cells import cell_len  # which costs more than `cutaway --help` may

    return cell_len(text)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""] if _length(text) > width else [text]


def _cell(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _length(text))  # of letters that take two places there are fewer
    return blanks + text if right else text + blanks
