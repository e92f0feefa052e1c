"""Settings as a flat list of `key=value`, each with a type, a default, a range and a help sentence.

A group of settings is a frozen dataclass whose fields are created by `setting(...)`. A `Topic` among the fields is the
heading of the fields below it, and a topic of `--help`. `build` creates a group from strings (the command line) or from
Python values, and rejects invalid values by the name of the setting.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import math
import os
import re
import shlex
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from .errors import CutawayError, SettingError, UnknownName
from .errors import shorten as shorten  # re-exported for modules that quote what was typed

Group = TypeVar("Group")

# Names of settings before 0.7. Typing an old name raises an error with the new one; old runs can still be read.
# To be dropped at 1.0.
RENAMED = {
    "updates": "max_steps",
    "clip": "grad_clip",
    "average": "average_epochs",
    "chunk": "loss_chunk",
    "beams": "num_beams",
    "alpha": "length_penalty",
    "test_flip": "tta",
    "head_epochs": "freeze_epochs",
    "fit": "resize",
    "limit": "max_samples",
    "frame": "special_tokens",
    "carry": "stateful",
    "mask_share": "mask_prob",
    "history": "lookback",
    "season": "season_length",
    "known": "known_future",
    "bands": "n_mels",
    "neighbours": "num_neighbors",
    "vocabulary": "vocab_size",
    "shared": "joint_vocab",
}
VALUES_RENAMED = {  # old names of their values
    "color": {"grey": "gray"},
    "missing": {"refuse": "error"},
    "gaps": {"refuse": "error"},
}


class Topic:
    """A heading among the fields of a group: the settings below it, up to the next topic, belong to it.

    Its name is that of the attribute: `FEW_SHOT = Topic("…")` is what `--help few-shot` prints. Groups may share a
    topic.
    """

    name = ""

    def __init__(self, title: str) -> None:
        self.title = title

    def __set_name__(self, group: type, name: str) -> None:
        """Take the name of the attribute."""
        self.name = name.lower().replace("_", "-")


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] = (),
    common: bool = False,
) -> Any:
    """Create a dataclass field that is a setting, with its default, help sentence and allowed values.

    A `common` setting is one of the few that `--help` prints without a topic.
    """
    return dataclasses.field(
        default=default,
        metadata={"help": help, "low": low, "high": high, "choices": tuple(choices), "common": common},
    )


@dataclasses.dataclass(frozen=True)
class SettingHelp:
    """One setting as `--help` prints it."""

    key: str
    type: str
    default: str
    allowed: str
    help: str
    choices: tuple[str, ...] = ()
    common: bool = False

    @property
    def meaning(self) -> str:
        """The help sentence, followed by the allowed values or the type unless the sentence already names them."""
        return _with_values(self.help, self.allowed or self.type)

    @property
    def summary(self) -> str:
        """The help sentence up to its first semicolon, followed by the choices unless that part already names them."""
        return _with_values(self.help.partition("; ")[0], ", ".join(self.choices))


def _with_values(text: str, values: str) -> str:
    return text if all(word in text for word in values.split(", ")) else f"{text} ({values})"


def describe(group: type) -> list[SettingHelp]:
    """Return the help entry of every setting of a group, in order."""
    hints = typing.get_type_hints(group)
    return [
        SettingHelp(
            f.name,
            _type_name(hints[f.name]),
            as_text(f.default) or "none",
            _allowed(f),
            f.metadata["help"],
            f.metadata["choices"],
            f.metadata["common"],
        )
        for f in dataclasses.fields(group)
    ]


def group_by_topic(*groups: type) -> list[tuple[Topic, list[SettingHelp]]]:
    """Return the topics of these groups, each with the help entries of its settings, in order.

    Settings above the first topic of a group are left out.
    """
    topics: dict[str, tuple[Topic, list[SettingHelp]]] = {}
    for group in groups:
        entries, current = {entry.key: entry for entry in describe(group)}, None
        for name, value in vars(group).items():
            if isinstance(value, Topic):
                current = topics.setdefault(value.name, (value, []))[1]
            elif current is not None and name in entries:
                current.append(entries[name])
    return list(topics.values())


def field_names(*groups: type) -> list[str]:
    """Return the names of all settings of these groups."""
    return [f.name for g in groups for f in dataclasses.fields(g)]


def pick(given: Mapping[str, Any], *groups: type) -> dict[str, Any]:
    """Return those of the given settings that belong to these groups."""
    known = field_names(*groups)
    return {key: value for key, value in given.items() if key in known}


HALVES = ("bfloat16", "float16")  # floating-point formats of 16 bits
OF_MODEL = "model."  # prefix of the model's settings


def split_model_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split settings into those of the model and all others.

    Model settings are given as model.KEY. They are returned without the prefix.
    """
    own = {key.removeprefix(OF_MODEL): value for key, value in given.items() if key.startswith(OF_MODEL)}
    return own, {key: value for key, value in given.items() if not key.startswith(OF_MODEL)}


def unknown_setting(key: str, known: Sequence[str]) -> CutawayError:
    """Return the error for a setting that does not exist, with its new name or the most similar names."""
    if key in RENAMED:
        return SettingError(
            f"{key} is now {RENAMED[key]}: `cutaway train --help {RENAMED[key]}` has its values.", code="CUT-102"
        )
    return UnknownName("setting", key, known, "`cutaway train --help all` lists them.")


def upgrade_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run under their current names.

    An old name may be the name of a different setting today, as `alpha` is. If the run also has the new name, the old
    key is kept as that other setting.
    """
    found = {key if RENAMED.get(key) in settings else RENAMED.get(key, key): value for key, value in settings.items()}
    values = {key: now[str(found[key])] for key, now in VALUES_RENAMED.items() if str(found.get(key)) in now}
    return found | values


def build(group: type[Group], given: Mapping[str, Any]) -> Group:
    """Build a group from settings given as strings or as values of the right type.

    Raises UnknownName (with the most similar names) for an unknown key, and SettingError (with the allowed values or
    the new name) for an invalid value.
    """
    hints = typing.get_type_hints(group)
    fields = {f.name: f for f in dataclasses.fields(group)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, raw in given.items():
        if key not in fields:
            raise unknown_setting(key, list(fields))
        value = parse(key, raw, hints[key])
        _check(fields[key], value)
        values[key] = value
    return group(**values)


def parse(key: str, raw: Any, hint: Any) -> Any:
    """Convert a typed value to the type of the setting; values that already have that type are returned unchanged."""
    optional = _is_optional(hint)
    kinds = [k for k in (typing.get_args(hint) if optional else (hint,)) if k is not type(None)]
    kind = kinds[0]
    if raw is None or (optional and isinstance(raw, str) and raw.lower() in {"none", "auto", ""}):
        if optional:
            return None
        raise SettingError(f"Invalid {key}: must not be empty. Give {_type_name(hint)}.")
    try:
        if kind is bool:
            return _bool(raw)
        if kind is int:
            return _int(raw)
        if kind is float:
            return _float(raw)
        if typing.get_origin(kind) is tuple:
            inner = typing.get_args(kind)[0]
            parts = split_list(raw) if isinstance(raw, str) else raw
            if not isinstance(parts, Sequence) or isinstance(parts, bytes):
                parts = [parts]
            return tuple(parse(key, p, inner) for p in parts)
        return _str(raw)
    except SettingError:
        raise
    except Exception as error:  # an object's own __str__ can raise anything
        wanted = "a finite number" if isinstance(error, _NotFinite) else _type_name(hint)
        wanted += " below 2^63" if isinstance(error, OverflowError) and kind is int else ""
        raise SettingError(f"Invalid {key}={shorten(raw)}: must be {wanted}.") from None


def split_list(raw: str) -> list[str]:
    """Split a comma-separated list by the rules of CSV, so that "a,b" in double quotes is one word.

    Brackets around the whole list are removed.
    """
    raw = raw.strip()
    if raw[:1] + raw[-1:] in ("()", "[]") and not re.search(r"[()\[\]]", raw[1:-1]):
        raw = raw[1:-1]
    words = next(csv.reader([raw.replace("\n", " ")], skipinitialspace=True), [])
    return [word.strip() for word in words if word.strip()]


def _quoted(word: str) -> str:
    """Quote a word of a list so that `split_list` reads it back."""
    if not re.search(r'[,"]|^[(\[]|^\s|\s$', word):
        return word
    return '"' + word.replace('"', '""') + '"'


def as_text(value: Any) -> str:
    """Return a value as a user would type it."""
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(_quoted(as_text(v)) for v in value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def exact_text(value: Any) -> str:
    """Return a value as text that parses back to exactly the same value."""
    if isinstance(value, tuple):
        return ",".join(_quoted(exact_text(v)) for v in value)
    return repr(value) if isinstance(value, float) else as_text(value)


def shell_command(command: str, model: str, data: str, given: Mapping[str, Any], *options: str) -> str:
    """Return the shell command that runs `command` on a model and data with these settings, quoted for the shell."""
    settings = (f"{key}={exact_text(value)}" for key, value in given.items())
    return shlex.join(["cutaway", command, model, data, *settings, *options])


def changed_settings(settings: Mapping[str, Any], *groups: type) -> dict[str, Any]:
    """Return the settings of these groups that differ from their defaults; lists, as JSON has them, become tuples."""
    found = {}
    for group in groups:
        for field in dataclasses.fields(group):
            value = settings.get(field.name, field.default)
            value = tuple(value) if isinstance(value, list) else value
            if value != field.default:
                found[field.name] = value
    return found


class _NotFinite(ValueError):
    """A number that is infinite or NaN."""


def _bool(raw: Any) -> bool:
    """Parse a yes/no value, such as true, on or 1. Raises ValueError for other values."""
    known = {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
    }
    word = str(raw).lower()
    if word not in known:
        raise ValueError(raw)
    return known[word]


def _int(raw: Any) -> int:
    if isinstance(raw, bool):
        raise TypeError(raw)
    with contextlib.suppress(ValueError):
        return _bounded(int(str(raw)))
    number = float(raw)  # 1e5 is a whole number too
    if number != int(number):
        raise ValueError(raw)
    return _bounded(int(number))


def _bounded(number: int) -> int:
    """Return the number if it fits into a 64-bit tensor; raise OverflowError otherwise.

    No setting is larger, and a larger number would overflow elsewhere.
    """
    if not -(2**63) <= number < 2**63:
        raise OverflowError(number)
    return number


def _float(raw: Any) -> float:
    """Convert to a finite float; infinity and NaN would otherwise reach the weights unnoticed."""
    if isinstance(raw, bool):
        raise TypeError(raw)
    number = float(raw)
    if not math.isfinite(number):
        raise _NotFinite(raw)
    return number


def _str(raw: Any) -> str:
    if isinstance(raw, str | os.PathLike | int | float) and not isinstance(raw, bool):
        return os.fspath(raw) if isinstance(raw, os.PathLike) else str(raw)
    raise TypeError(raw)


def _is_optional(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)


def _type_name(hint: Any) -> str:
    if _is_optional(hint):
        return _type_name(next(a for a in typing.get_args(hint) if a is not type(None)))
    if typing.get_origin(hint) is tuple:
        return "list"
    return {bool: "true or false", int: "an integer", float: "a number", str: "text"}.get(hint, "text")


HUGE = 1e9  # upper bounds from here on only prevent overflows, and are not named


def _allowed(field: Any, value: float | None = None) -> str:
    """Return the allowed values of a setting: its choices, or its range in round numbers.

    Upper bounds just below 1 read "less than 1", and those that only prevent overflows are left out. The exact range is
    named for a rejected `value` that lies within the round one.
    """
    meta = field.metadata
    if meta["choices"]:
        return ", ".join(meta["choices"])
    low, high = meta["low"], meta["high"]
    if high is not None and high >= HUGE and (value is None or value < HUGE):
        high = None
    if low is not None and high is not None:
        if 0.9 < high < 1 and (value is None or not high < value < 1):
            return f"at least {low:.15g} and less than 1"
        return f"{low:.15g} to {high:.15g}"
    if low is not None:
        return f"at least {low:.15g}"
    return f"at most {high:.15g}" if high is not None else ""


def _check(field: Any, value: Any) -> None:
    """Raise SettingError for a value outside the choices or the range of the setting."""
    meta = field.metadata
    for one in value if isinstance(value, tuple) else (value,):
        if one is None:
            continue
        if now := VALUES_RENAMED.get(field.name, {}).get(one):
            raise SettingError(f"{field.name}={one} is now {field.name}={now}.")
        if meta["choices"] and one not in meta["choices"]:
            raise SettingError(
                f"Invalid {field.name}={shorten(as_text(one))}: must be one of {', '.join(meta['choices'])}."
            )
        number = isinstance(one, int | float) and not isinstance(one, bool)
        low = meta["low"] if meta["low"] is not None else float("-inf")
        high = meta["high"] if meta["high"] is not None else float("inf")
        if number and not (low <= one <= high):
            raise SettingError(
                f"Invalid {field.name}={shorten(as_text(one))}: must be {_allowed(field, one) or 'a number'}."
            )
