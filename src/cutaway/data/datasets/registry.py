"""Registry of the built-in data sets: lookup and loading."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ...core.errors import UnknownName
from ...core.spec import ANY_SIZE, ImageSizes, Target
from ..dataset_base import DataSet
from ..settings import DataSettings
from . import corpora, digit_scenes, few_shot, graph_sets, pairs, published, speech, toy_data
from .catalog import NamedSet, Request, data_roots, download_missing

__all__ = ["NAMED", "NamedSet", "open_named", "where"]


# Each module has the entries of its data sets in `NAMED` and their loaders in `OPENERS`.
MODULES = (toy_data, published, speech, digit_scenes, corpora, graph_sets, few_shot, pairs)
NAMED: dict[str, NamedSet] = {name: named for module in MODULES for name, named in module.NAMED.items()}
OPENERS: dict[str, Callable[[Request], DataSet]] = {
    name: opener for module in MODULES for name, opener in module.OPENERS.items()
}


def where(name: str) -> Path | None:
    """Return the folder with a data set's files in $CUTAWAY_DATA or the cache; None if it must be downloaded first.

    For a data set without files, it is the folder of the package that provides it. Nothing is downloaded.
    """
    named = _named(name)
    if not named.files:
        spec = importlib.util.find_spec("sklearn")  # located without an import, which would take a second
        return Path(spec.origin).parent if spec is not None and spec.origin else None
    for root in data_roots():
        if all((root / named.folder / file).is_file() for file in named.needed):
            return root / named.folder
    return None


def open_named(
    name: str,
    settings: DataSettings,
    sizes: ImageSizes = ANY_SIZE,
    targets: tuple[type[Target], ...] = (),
) -> DataSet:
    """Load the data set of this name, after a download if it is not available locally.

    `sizes` are the image sizes that the model accepts, `targets` the target types that it requests, if any. Raises
    UnknownName; FileError, with the folder to put the file into manually, if it cannot be downloaded; DataError if its
    files are damaged; SettingError.
    """
    named = _named(name)
    if named.kind == "table" and settings.target is None:
        settings = replace(settings, target=named.target)
    place = where(name) or download_missing(named.files, named.folder)
    data = OPENERS[name](Request(name, named, place, settings, sizes, targets))
    data.licence = named.licence
    return data


def _named(name: str) -> NamedSet:
    if name not in NAMED:
        raise UnknownName("data set", name, NAMED, "`cutaway data` lists them.")
    return NAMED[name]
