"""The one door to data: a named set or a path, told from what it is."""

from __future__ import annotations

from pathlib import Path

from ..errors import DataError, UnknownName, nearest
from ..spec import ANY_SIZE, ImageSizes
from .images.folders import is_image_folder, open_folder
from .named.opening import NAMED, open_named
from .sets import DataSet
from .settings import DataSettings
from .tables.dataset import TABLE_SUFFIXES, open_table


def kind_of(source: str | Path) -> str:
    """What kind of data a name or path stands for: table, image or series. Nothing is read yet.

    Raises UnknownName or DataError where it stands for none.
    """
    if str(source) in NAMED:
        return NAMED[str(source)].kind
    path = Path(source).expanduser()
    if not path.exists():
        if path.suffix or "/" in str(source):
            raise DataError(f"There is no file or folder {str(source)!r} in {Path.cwd()}.", mend=_siblings(path))
        raise UnknownName(
            "data set or path", str(source), NAMED, "`cutaway data` lists the sets; a path names your own files."
        )
    if path.is_dir():
        if is_image_folder(path):
            return "image"
        raise DataError(
            f"{path} is a folder without class folders of images.",
            mend="Give a folder with one folder per class (or train/, val/, test/ of those), "
            f"or a table ({', '.join(TABLE_SUFFIXES)}).",
        )
    if path.suffix.lower() in TABLE_SUFFIXES:
        return "table"
    raise DataError(
        f"{path} is a {path.suffix or 'suffix-less'} file, which is no kind of data that can be read.",
        mend=f"Tables end in {', '.join(TABLE_SUFFIXES)}; images come as a folder of class folders.",
    )


def open_data(source: str | Path, settings: DataSettings, sizes: ImageSizes = ANY_SIZE) -> DataSet:
    """Read `source`, split it, fit the preprocessing on its training part.

    `sizes` are those of images that the model takes.
    Raises UnknownName, DataError (with every bad row or file in `problems`) or SettingError.
    """
    kind = kind_of(source)
    if str(source) in NAMED:
        return open_named(str(source), settings, sizes)
    path = Path(source).expanduser()
    return open_folder(path, settings, sizes) if kind == "image" else open_table(path, settings)


def _siblings(path: Path) -> str:
    """Names like the missing one in the folder where it would be."""
    parent = path.parent
    close = nearest(path.name, [p.name for p in parent.iterdir()]) if parent.is_dir() else []
    return f"Similar there: {', '.join(close)}." if close else ""
