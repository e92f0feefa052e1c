"""Entry point for text: selects between texts with one target each, tagged text, and running text."""

from __future__ import annotations

from pathlib import Path

from ...core.errors import DataError, SettingError
from ...core.spec import Target
from ..dataset_base import DataSet
from ..folders import SPLIT_FOLDERS, TEXTS, list_entries, subfolders
from ..modalities import reject_changed
from ..settings import DataSettings
from ..tables.dataset import TABLE_SUFFIXES
from .classification import open_folder, open_lines, open_table
from .tagging import open_tagged
from .text_files import TAGGED, read_pair, tagged_lines

__all__ = ["has_classes", "open_text"]


def open_text(path: Path, settings: DataSettings, targets: tuple[type[Target], ...] = ()) -> DataSet:
    """Build the data set of a table with a text column, of a folder or file of texts, or of a file of tagged text.

    A .txt file with target=FILE is read together with that line-aligned file, which has a class on each line, or a tag
    for each word. Without a target, and in a folder without class folders, it is running text. `targets` are those of
    the model, if it restricts them. Raises FileError, DataError, UnknownName or SettingError.
    """
    if path.suffix.lower() not in TABLE_SUFFIXES:
        reject_changed(
            settings,
            ("separator", "decimal", "encoding", "header", "quoting", "missing_values"),
            f"is for tables, and {path} is none",
        )
    if path.is_dir() and has_classes(path):
        return open_folder(path, settings)
    suffix = path.suffix.lower()
    if suffix in TABLE_SUFFIXES:
        return open_table(path, settings)
    if suffix in TAGGED:
        return open_tagged(path, settings)
    if settings.target is not None and path.is_file():
        return _open_with_labels(path, settings.target, settings)
    for key in ("text", "target", "group"):
        if getattr(settings, key) is not None:
            raise SettingError(f"{key}= is for texts in tables, and {path} is text that runs on: leave it out.")
    from .corpus import open_running

    return open_running(path, settings, targets)


def has_classes(path: Path) -> bool:
    """Return whether a folder holds class folders of .txt files, not running text."""
    folders = subfolders(path)
    splits = [folder for folder in folders if folder.name.lower() in SPLIT_FOLDERS]
    inside = [c for split in splits for c in subfolders(split)]
    classes = [c for c in (*inside, *(f for f in folders if f not in splits)) if any(map(TEXTS.fits, list_entries(c)))]
    if not classes:
        return False
    return bool(len(classes) > 1 or not any(map(TEXTS.fits, list_entries(path))))


def _open_with_labels(path: Path, target: str, settings: DataSettings) -> DataSet:
    """Build the data set of a .txt file and the file of its labels, relative to it or to the working directory."""
    given = Path(target).expanduser()
    labels = next((p for p in (path.parent / given, given) if p.is_file()), None)
    if labels is None:
        raise DataError(
            f"target={target}: for a .txt file it names the file of its labels, and there is no such file "
            "in the folder of "
            f"{path} or in {Path.cwd()}.",
            fix="Leave target= out to learn the language of the text.",
        )
    for key in ("text", "group"):
        if getattr(settings, key) is not None:
            raise SettingError(f"{key}= names a column of a table, and {path} is none: leave it out.")
    lines, beside, digest = read_pair(path, labels)
    tagged = tagged_lines(path, labels, lines, beside)
    if tagged is None:
        return open_lines(path, lines, beside, digest, settings)
    return open_tagged(path, settings, tagged, digest)
