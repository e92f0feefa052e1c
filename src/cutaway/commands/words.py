"""Telling what was typed apart: names, paths, `key=value` settings and `@settings.toml` files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FileError, SettingError, short
from ..files import exists, read_bytes

SETTINGS_AT_MOST = 1 << 14  # bytes of a file of settings: of a key of 50 000 parts the parser takes a minute
PAIR = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*=")


def sort_words(words: Sequence[str], names: int) -> tuple[list[str], dict[str, Any]]:
    """The first words that are no settings (at most `names` of them), and the settings. What is typed later wins.

    A word that looks like `key=value` but is a file or folder that exists is a name.
    """
    found: list[str] = []
    settings: dict[str, Any] = {}
    for word in words:
        if word.startswith("@"):
            settings |= read_settings(Path(word[1:]))
        elif PAIR.match(word) and not (len(found) < names and exists(word)):
            key, value = word.split("=", 1)
            settings[key] = value
        elif len(found) < names:
            found.append(word)
        else:
            raise SettingError(f"{short(word)!r} is not a setting: settings are key=value, as in epochs=50.")
    return found, settings


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a TOML file; the table [model] holds the model's own. Raises FileError."""
    try:
        return flatten(tomllib.loads(read_bytes(path, SETTINGS_AT_MOST).decode("utf-8")))
    except RecursionError as error:
        raise FileError(f"The settings file {path} nests its tables too deep: [model] is the only one.") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError, and numbers of more digits than Python reads
        raise FileError(f"The settings file {path} is not TOML: {error}. Its lines look like: epochs = 50") from error


def flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys: {"model": {"layers": 4}} is {"model.layers": 4}."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = tuple(value) if isinstance(value, list) else value
    return flat
