"""What commands that take MODEL DATA key=value have in common: arguments, the settings in --help, what was typed."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

from ..errors import SettingError, short
from .words import sort_words

NO_SETTINGS = {  # options, and how they are typed
    "out": "--out DIR", "overwrite": "--overwrite", "resume": "--resume RUN", "open": "--open", "json": "--json",
}  # fmt: skip


def add_words(parser: argparse.ArgumentParser, model: str = "MODEL", said: str = "a preset, data, settings") -> None:
    """What is typed without dashes."""
    parser.add_argument("words", nargs="*", metavar=f"{model} DATA [key=value ...]", help=said)


def add_folder(parser: argparse.ArgumentParser, folder: str, default: str, resume: tuple[str, str]) -> None:
    """Where what is trained is left, with its default; what is resumed, by how it is called and what that does; and
    how it is told."""
    parser.add_argument("--out", metavar="DIR", help=f"{folder} (default: runs/{default}-N)")
    parser.add_argument("--resume", metavar=resume[0], help=resume[1])
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")


def described(*groups: tuple[type, str]) -> list[str]:
    """The settings of some groups, each with its title, as `--help` prints them."""
    from ..settings import describe

    lines = []
    for group, title in groups:
        lines.append(f"\n  {title}")
        for s in describe(group):
            lines += _wrapped(f"{s.key}={s.default}", s.meaning)
    return lines


def _wrapped(left: str, right: str) -> list[str]:
    gap = " " * 28
    rows = textwrap.wrap(right, width=80 - len(gap), break_on_hyphens=False)
    first = f"    {left:<24}" if len(left) < 24 else f"    {left}\n{gap}"
    return [first + rows[0], *(gap + row for row in rows[1:])]


def typed(
    words: Sequence[str], options: Collection[str] = NO_SETTINGS
) -> tuple[str | None, str | None, dict[str, Any]]:
    """Return the model, the data and the settings. Raises SettingError for one of the command's `options` that is typed
    as a setting."""
    names, given = sort_words(words, names=2)
    for key, value in given.items():
        if key in options:
            raise SettingError(f"{key}={short(value)} is not a setting but an option: type {NO_SETTINGS[key]}.")
        if key in ("model", "data"):
            raise SettingError(f"{key}={short(value)} is not a setting: the two names come first, as in MODEL DATA.")
    model, data = [*names, None, None][:2]
    return model, data, given


def typed_both(command: str, words: Sequence[str]) -> tuple[str, str, dict[str, Any]]:
    """The same of a command that can do nothing without either. Raises SettingError for that too."""
    model, data, given = typed(words, options=("json",))
    if model is None or data is None:
        raise SettingError(
            f"A model and data are needed: cutaway {command} MODEL DATA. `cutaway list` shows the models."
        )
    return model, data, given
