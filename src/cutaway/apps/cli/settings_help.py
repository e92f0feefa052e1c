"""Help on settings: those used most, a topic, one setting, or all.

Topics, and which settings are used most, are declared where the settings are: `Topic` and `setting` of `core.config`.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...core.config import RENAMED, SettingHelp, Topic, describe, group_by_topic
from ...core.errors import UnknownName, closest_names

ALL = "all"  # the topic of all settings
WIDTH, COLUMN = 80, 28  # of the terminal; where explanations begin


class HelpAction(argparse.Action):
    """`--help`, which takes a topic in commands with `settings`: a function that returns groups of settings."""

    def __init__(self, *, settings: Callable[[], tuple[type, ...]] | None, **options: Any) -> None:
        self.settings = settings
        takes: dict[str, Any] = {"nargs": 0, "help": "show this help message and exit"}
        if self.settings is not None:
            takes = {"nargs": "?", "metavar": "TOPIC", "help": "show this help, or the settings of a topic"}
        super().__init__(**{**options, **takes, "dest": argparse.SUPPRESS, "default": argparse.SUPPRESS})

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Print the help and exit."""
        if self.settings is None:
            text = parser.format_help()
        elif values:
            text = format_topic(parser.prog, values, self.settings())
        else:
            text = f"{parser.format_help()}\n{format_overview(parser.prog, self.settings())}"
        parser._print_message(text, sys.stdout)
        parser.exit()


def training_settings() -> tuple[type, ...]:
    """Return the groups of settings of every command that trains."""
    from ...data.settings import DataSettings
    from ...training.config import TrainSettings

    return TrainSettings, DataSettings


def format_overview(prog: str, groups: Sequence[type]) -> str:
    """Return the settings of a command that need no topic, those used most, and the names of the topics."""
    topics = group_by_topic(*groups)
    lines = _own(prog, groups)
    common = [entry for _, entries in topics for entry in entries if entry.common]
    lines += [f"the {len(common)} settings used most (key=value, or lines of a TOML file: @file.toml):"]
    lines += _rows((entry.key, entry.default, entry.summary) for entry in common)
    lines += ["", f"topics of all settings ({prog} --help TOPIC):"]
    lines += _columns([(topic.name, topic.title) for topic, _ in topics])
    lines += ["", *_wrap(f"{prog} --help {ALL} prints all settings, --help KEY one of them. {MODEL_SETTINGS}")]
    return "\n".join(lines) + "\n"


MODEL_SETTINGS = "A model's own settings are model.KEY=value: `cutaway show MODEL` prints them."


def format_topic(prog: str, name: str, groups: Sequence[type]) -> str:
    """Return the settings of a topic, one setting, or all settings.

    Raises UnknownName with the nearest topics and settings.
    """
    topics = group_by_topic(*groups)
    if name == ALL:
        lines = _own(prog, groups)
        for topic, entries in topics:
            lines += [*_topic(topic, entries), ""]
        return "\n".join([*lines, *_wrap(MODEL_SETTINGS)]) + "\n"
    wanted = name.lower().replace("_", "-")
    for topic, entries in topics:
        if topic.name == wanted:
            return "\n".join(_topic(topic, entries)) + "\n"
    settings = {entry.key: entry for group in groups for entry in describe(group)}
    key = name.partition("=")[0].lower().replace("-", "_")
    if entry := settings.get(key) or settings.get(RENAMED.get(key, "")):
        topic_name = next((topic.name for topic, entries in topics if entry in entries), None)
        more = ["", f"More of {topic_name}: {prog} --help {topic_name}"] if topic_name else []
        return "\n".join([*format_settings([entry]), *more]) + "\n"
    known = [topic.name for topic, _ in topics]
    if not closest_names(wanted, known):
        known += settings
    raise UnknownName("help topic or setting", name, known, f"`{prog} --help` lists the topics.")


def format_settings(entries: Iterable[SettingHelp]) -> list[str]:
    """Return the help of settings: key, default and meaning."""
    return _rows((entry.key, entry.default, entry.meaning) for entry in entries)


def format_group(group: type, title: str) -> str:
    """Return the help of a whole group of settings under a title."""
    return "\n".join([f"{title}:", *format_settings(describe(group))])


def _own(prog: str, groups: Sequence[type]) -> list[str]:
    """Return the settings of groups without topics, which are those of the command itself."""
    own = [entry for group in groups if not group_by_topic(group) for entry in describe(group)]
    return [f"settings of {prog}:", *format_settings(own), ""] if own else []


def _topic(topic: Topic, entries: Sequence[SettingHelp]) -> list[str]:
    return [f"{topic.name}: {topic.title}", *format_settings(entries)]


def _rows(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return lines `key=default  meaning`; a long key has a line of its own."""
    gap, lines = " " * COLUMN, []
    for key, default, meaning in rows:
        left = f"  {key}={default}"
        first, *others = textwrap.wrap(meaning, WIDTH - COLUMN, break_on_hyphens=False)
        if len(left) > COLUMN - 2:
            lines += [left, gap + first]
        else:
            lines += [left.ljust(COLUMN) + first]
        lines += [gap + line for line in others]
    return lines


def _columns(pairs: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in pairs)
    return [f"  {name:<{width}}  {title}" for name, title in pairs]


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)
