"""The door to the named data sets: where one is, and opening it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...errors import UnknownName
from ...spec import ANY_SIZE, ImageSizes
from ..sets import DataSet
from ..settings import DataSettings
from .builtin import open_bunch, open_digits, open_toy, open_xor
from .catalogue import NAMED, NamedSet, Request
from .download import obtain, roots
from .published import DIGITS, GARMENTS, open_cifar10, open_csv, open_idx, open_mnist1d, open_titanic

__all__ = ["NAMED", "NamedSet", "open_named", "where"]

OPENERS: dict[str, Callable[[Request], DataSet]] = {
    "digits": open_digits,
    "iris": open_bunch,
    "wine": open_bunch,
    "breast_cancer": open_bunch,
    "diabetes": open_bunch,
    "xor": open_xor,
    "moons": open_toy,
    "circles": open_toy,
    "spirals": open_toy,
    "mnist": partial(open_idx, classes=DIGITS),
    "fashion_mnist": partial(open_idx, classes=GARMENTS),
    "cifar10": open_cifar10,
    "mnist1d": open_mnist1d,
    "california_housing": open_csv,
    "titanic": open_titanic,
}


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


def open_named(name: str, settings: DataSettings, sizes: ImageSizes = ANY_SIZE) -> DataSet:
    """The data set of that name, fetched from its public home where it is nowhere here.

    `sizes` are those that the model takes, where it takes images. Raises UnknownName; FileError, with the place
    to put it by hand, where it cannot be fetched; DataError where its files are damaged; SettingError.
    """
    named = _named(name)
    if named.kind == "table" and settings.target is None:
        settings = replace(settings, target=named.target)
    place = where(name) or obtain(named.files, named.folder)
    data = OPENERS[name](Request(name, named, place, settings, sizes))
    data.licence = named.licence
    return data


def _named(name: str) -> NamedSet:
    if name not in NAMED:
        raise UnknownName("data set", name, NAMED, "`cutaway data` lists them.")
    return NAMED[name]
