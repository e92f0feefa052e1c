"""Settings as people type them: one flat list of `key=value`, each with a type, a default, a range and a sentence.

A group of settings is a frozen dataclass whose fields are made by `setting(...)`; `build` makes one from what a person
typed (strings) or passed in Python (values), and rejects what cannot be, by name.
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
from .errors import short as short  # for those who say what was typed

Group = TypeVar("Group")

# What settings were called before 0.7: whoever types an old name is told the new one, and runs of that time are read.
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
VALUES_RENAMED = {  # likewise what their values were called
    "color": {"grey": "gray"},
    "missing": {"refuse": "error"},
    "gaps": {"refuse": "error"},
}


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] = (),
) -> Any:
    """A dataclass field that is a setting: its default, one sentence, and the values that it may take."""
    return dataclasses.field(
        default=default, metadata={"help": help, "low": low, "high": high, "choices": tuple(choices)}
    )


@dataclasses.dataclass(frozen=True)
class Described:
    """One setting as `--help` prints it."""

    key: str
    type: str
    default: str
    allowed: str
    help: str

    @property
    def meaning(self) -> str:
        """What it is, with what it takes, unless the words name all of that already."""
        takes = self.allowed or self.type
        named = all(word in self.help for word in takes.split(", "))
        return self.help if named else f"{self.help} ({takes})"


def describe(group: type) -> list[Described]:
    """Every setting of a group, in order, for `--help`."""
    hints = typing.get_type_hints(group)
    return [
        Described(f.name, _type_name(hints[f.name]), as_text(f.default) or "none", _allowed(f), f.metadata["help"])
        for f in dataclasses.fields(group)
    ]


def keys(*groups: type) -> list[str]:
    """The names of all settings of these groups."""
    return [f.name for g in groups for f in dataclasses.fields(g)]


def among(given: Mapping[str, Any], *groups: type) -> dict[str, Any]:
    """Those of the given settings that are in these groups."""
    known = keys(*groups)
    return {key: value for key, value in given.items() if key in known}


OF_MODEL = "model."  # before a setting of the model


def parted(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the model, which are given as model.KEY, by their own names; and all others."""
    own = {key.removeprefix(OF_MODEL): value for key, value in given.items() if key.startswith(OF_MODEL)}
    return own, {key: value for key, value in given.items() if not key.startswith(OF_MODEL)}


def unknown_setting(key: str, known: Sequence[str]) -> CutawayError:
    """What is said of a setting that there is not: its new name where it had another, else the nearest names."""
    if key in RENAMED:
        return SettingError(f"{key} is now {RENAMED[key]}: `cutaway train --help` says what it takes.")
    return UnknownName("setting", key, known, "`cutaway train --help` lists them.")


def as_now(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run as they are called now. An old name may be that of another setting now, as `alpha` is: a
    run that has the new one too means that."""
    found = {key if RENAMED.get(key) in settings else RENAMED.get(key, key): value for key, value in settings.items()}
    values = {key: now[str(found[key])] for key, now in VALUES_RENAMED.items() if str(found.get(key)) in now}
    return found | values


def build(group: type[Group], given: Mapping[str, Any]) -> Group:
    """The group with the given settings, from strings or from values of the right type.

    Raises UnknownName (with the nearest names) and SettingError (with the allowed values, or the name that is new).
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
    """Turn what was typed into the type that the setting has; values that have it already pass through."""
    optional = _is_optional(hint)
    kinds = [k for k in (typing.get_args(hint) if optional else (hint,)) if k is not type(None)]
    kind = kinds[0]
    if raw is None or (optional and isinstance(raw, str) and raw.lower() in {"none", "auto", ""}):
        if optional:
            return None
        raise SettingError(f"{key} cannot be empty: give {_type_name(hint)}.")
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
        raise SettingError(f"{key}={short(raw)} cannot be read: it must be {wanted}.") from None


def split_list(raw: str) -> list[str]:
    """Split a comma-separated list as CSV does, so that "a,b" in double quotes is one word; brackets around the whole
    list are left out."""
    raw = raw.strip()
    if raw[:1] + raw[-1:] in ("()", "[]") and not re.search(r"[()\[\]]", raw[1:-1]):
        raw = raw[1:-1]
    words = next(csv.reader([raw.replace("\n", " ")], skipinitialspace=True), [])
    return [word.strip() for word in words if word.strip()]


def _quoted(word: str) -> str:
    """A word of a list as `split_list` reads it back."""
    if not re.search(r'[,"]|^[(\[]|^\s|\s$', word):
        return word
    return '"' + word.replace('"', '""') + '"'


def as_text(value: Any) -> str:
    """A value as a person would type it."""
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(_quoted(as_text(v)) for v in value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def exact(value: Any) -> str:
    """A value as text that is read back to the same one, digit for digit."""
    if isinstance(value, tuple):
        return ",".join(_quoted(exact(v)) for v in value)
    return repr(value) if isinstance(value, float) else as_text(value)


def command_of(command: str, model: str, data: str, given: Mapping[str, Any], *options: str) -> str:
    """What is typed at a shell for a command of a model and data with these settings, which are its own again then."""
    settings = (f"{key}={exact(value)}" for key, value in given.items())
    return shlex.join(["cutaway", command, model, data, *settings, *options])


class _NotFinite(ValueError):
    """A number that is none to count with: infinity, or NaN."""


def _bool(raw: Any) -> bool:
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
    """The number, where a tensor can hold it: no setting is larger, and what is would end in an overflow elsewhere."""
    if not -(2**63) <= number < 2**63:
        raise OverflowError(number)
    return number


def _float(raw: Any) -> float:
    """A finite number: infinity and NaN would reach the weights before anybody notices."""
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
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}.get(hint, "text")


def _allowed(field: Any) -> str:
    meta = field.metadata
    if meta["choices"]:
        return ", ".join(meta["choices"])
    low, high = meta["low"], meta["high"]
    if low is not None and high is not None:
        return f"{low:.15g} to {high:.15g}"
    if low is not None:
        return f"at least {low:.15g}"
    return f"at most {high:.15g}" if high is not None else ""


def _check(field: Any, value: Any) -> None:
    meta = field.metadata
    for one in value if isinstance(value, tuple) else (value,):
        if one is None:
            continue
        if now := VALUES_RENAMED.get(field.name, {}).get(one):
            raise SettingError(f"{field.name}={one} is now {field.name}={now}.")
        if meta["choices"] and one not in meta["choices"]:
            raise SettingError(
                f"{field.name}={short(as_text(one))} cannot be: choose from {', '.join(meta['choices'])}."
            )
        number = isinstance(one, int | float) and not isinstance(one, bool)
        low = meta["low"] if meta["low"] is not None else float("-inf")
        high = meta["high"] if meta["high"] is not None else float("inf")
        if number and not (low <= one <= high):
            raise SettingError(
                f"{field.name}={short(as_text(one))} cannot be: it must be {_allowed(field) or 'a number'}."
            )
