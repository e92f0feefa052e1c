"""A comparison's folder: compare.json, and of each data set and model the runs, which are runs like any other.

compare.json             what is compared, and what was found
DATA/MODEL/seed-0/       a run
DATA/MODEL/search/       what was tried before, with trials=N
report.html              the page
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..files import write_json
from ..training.folder import about_several, folder_of_several

ABOUT, REPORT = "compare.json", "report.html"


def comparison_folder(out: str | Path | None, name: str) -> Path:
    """The folder of a comparison, as `folder_of_several` says."""
    return folder_of_several(out, "compare", name, ABOUT)


def read_about(folder: str | Path) -> dict[str, Any]:
    """compare.json of a folder. Raises FileError where it is no comparison."""
    return about_several(folder, "compare", ABOUT, ("models", "data", "given", "compare", "results"))


def write_about(folder: Path, about: dict[str, Any]) -> None:
    """Write compare.json, whole or not at all."""
    write_json(folder / ABOUT, about)
