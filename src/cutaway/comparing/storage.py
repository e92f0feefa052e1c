"""A comparison's folder: compare.json, and of each data set and model the runs, which are runs like any other.

compare.json             what is compared, and what was found
DATA/MODEL/seed-0/       a run
DATA/MODEL/search/       what was tried before, with trials=N
report.html              the page
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..files import read_json, reject_address, write_json

ABOUT, REPORT = "compare.json", "report.html"


def comparison_folder(out: str | Path | None, name: str) -> Path:
    """The folder of a comparison: `out`, or the next free runs/compare-NAME-N. Raises FileError where it holds anything
    else than a comparison."""
    if out is None:
        for n in range(1, 1_000_000):
            with contextlib.suppress(FileExistsError):
                folder = Path("runs") / f"compare-{name}-{n}"
                folder.mkdir(parents=True)
                return folder
    folder = Path(out or "")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"{folder} could not be made: {error.strerror}. Give a folder that can be written to."
        ) from error
    if not (folder / ABOUT).is_file() and any(folder.iterdir()):
        raise FileError(
            f"{folder} exists already, is no comparison, and nothing in it is overwritten. Give another --out."
        )
    return folder


def read_about(folder: str | Path) -> dict[str, Any]:
    """compare.json of a folder. Raises FileError where it is no comparison."""
    path = Path(folder) / ABOUT
    if not path.is_file():
        reject_address(folder)
        raise FileError(
            f"{folder} is no comparison: it has no {ABOUT}. `cutaway compare` makes them, and --resume takes such a "
            "folder."
        )
    about = read_json(path)
    if not isinstance(about, dict) or not {"models", "data", "given", "compare", "results"} <= set(about):
        raise FileError(f"{path} is not what a comparison writes: it was edited or cut short. Take it from a copy.")
    return about


def write_about(folder: Path, about: dict[str, Any]) -> None:
    """Write compare.json, whole or not at all."""
    write_json(folder / ABOUT, about)
