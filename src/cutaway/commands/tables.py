"""Tables for the terminal whose figures are never cut."""

from __future__ import annotations

from collections.abc import Sequence

GAP = "  "


def print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    yields: str = "",
    total: bool = False,
) -> None:
    """Print rows under dim titles, each column as wide as it must be.

    The columns in `right` are set flush right. Where a terminal has not room for all, the column `yields` is cut;
    where there is no terminal, nothing is. With `total`, the last row stands out.
    """
    from .output import console

    out = console()
    widths = [max(map(len, column)) for column in zip(titles, *rows)]
    if yields and out.is_terminal:
        i = list(titles).index(yields)
        room = out.width - sum(widths) - len(GAP) * (len(widths) - 1) + widths[i]
        widths[i] = max(min(widths[i], room), len(yields))
    for number, row in enumerate([titles, *rows]):
        cells = [_cell(text, width, title in right) for title, text, width in zip(titles, row, widths)]
        style = "dim" if number == 0 else "bold" if total and number == len(rows) else None
        out.print(GAP.join(cells).rstrip(), style=style, markup=False)


def _cell(text: str, width: int, right: bool) -> str:
    if len(text) > width:
        text = text[: width - 1] + "…"
    return text.rjust(width) if right else text.ljust(width)
