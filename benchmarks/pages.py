"""Pages of the documentation that hold measurements between two comments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def replace_section(page: Path, begin: str, end: str, lines: Sequence[str]) -> None:
    """Replace what stands between the first line `begin` of a page and the next line `end`."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n" + "\n".join(lines) + f"\n\n{end}{after}", encoding="utf-8")
