"""The door to the named data sets: where one is, and opening it."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ...core.errors import UnknownName
from ...core.spec import ANY_SIZE, ImageSizes, Target
from ..dataset_base import DataSet
from ..settings import DataSettings
from .catalog import NAMED as FIRST
from .catalog import NamedSet, Request
from .download import obtain, roots

__all__ = ["NAMED", "NamedSet", "open_named", "where"]


def _collected() -> tuple[dict[str, NamedSet], dict[str, Callable[[Request], DataSet]]]:
    """The sets and their openers from every module beside this one that has `NAMED` or `OPENERS`: a new set is an entry
    in both dictionaries of one file, and nothing is registered by hand."""
    named = dict(FIRST)
    openers: dict[str, Callable[[Request], DataSet]] = {}
    package = importlib.import_module(__package__)
    for info in pkgutil.iter_modules(package.__path__):
        if info.name != "registry":
            module = importlib.import_module(f"{__package__}.{info.name}")
            named |= getattr(module, "NAMED", {})
            openers |= getattr(module, "OPENERS", {})
    return named, openers


NAMED, OPENERS = _collected()


def where(name: str) -> Path | None:
    """The folder in which a set's files lie: $CUTAWAY_DATA's, or the cache's; None where it must be fetched first.

    For a set without files of its own, the folder of the package that it comes with. Nothing is downloaded.
    """
    named = _named(name)
    if not named.files:
        spec = importlib.util.find_spec("sklearn")  # found, not imported, which would take a second
        return Path(spec.origin).parent if spec is not None and spec.origin else None
    for root in roots():
        if all((root / named.folder / file).is_file() for file in named.needed):
            return root / named.folder
    return None


def open_named(
    name: str,
    settings: DataSettings,
    sizes: ImageSizes = ANY_SIZE,
    targets: tuple[type[Target], ...] = (),
) -> DataSet:
    """The data set of that name, fetched from its public home where it is nowhere here.

    `sizes` are those that the model takes, where it takes images; `targets` those that it learns, where it says so.
    Raises UnknownName; FileError, with the place
    to put it by hand, where it cannot be fetched; DataError where its files are damaged; SettingError.
    """
    named = _named(name)
    if named.kind == "table" and settings.target is None:
        settings = replace(settings, target=named.target)
    place = where(name) or obtain(named.files, named.folder)
    data = OPENERS[name](Request(name, named, place, settings, sizes, targets))
    data.licence = named.licence
    return data


def _named(name: str) -> NamedSet:
    if name not in NAMED:
        raise UnknownName("data set", name, NAMED, "`cutaway data` lists them.")
    return NAMED[name]
