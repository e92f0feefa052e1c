"""Arguments that commands share: MODEL DATA key=value, common options, and their parsing.

A word `@settings.toml` is replaced with the settings in that file.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import FileError, MissingSettingError, SettingError, shorten
from ...core.files import exists, read_bytes
from ...inference.thought_search import METHODS, Method

OUTPUT_OPTIONS = {  # options, and how they are typed
    "out": "--out DIR", "overwrite": "--overwrite", "resume": "--resume RUN", "open": "--open", "json": "--json",
}  # fmt: skip


def add_positionals(
    parser: argparse.ArgumentParser,
    model: str = "MODEL",
    said: str = "a model of `cutaway list`; a file, folder or set of `cutaway data`; settings",
) -> None:
    """Add the positional arguments."""
    parser.add_argument("words", nargs="*", metavar=f"{model} DATA [key=value ...]", help=said)


def add_output_options(parser: argparse.ArgumentParser, folder: str, default: str, resume: tuple[str, str]) -> None:
    """Add --out, --resume, --open and --json.

    `folder` and `default` describe --out; `resume` holds the metavar and the help of --resume.
    """
    parser.add_argument("--out", metavar="DIR", help=f"{folder} (default: runs/{default}-N)")
    parser.add_argument("--resume", metavar=resume[0], help=resume[1])
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")


def parse_args(
    words: Sequence[str], options: Collection[str] = OUTPUT_OPTIONS
) -> tuple[str | None, str | None, dict[str, Any]]:
    """Return the model, the data and the settings; the model is None if the only name is that of data.

    Raises SettingError if one of the command's `options` is typed as a setting.
    """
    names, given = parse_words(words, names=2)
    for key, value in given.items():
        if key in options:
            raise SettingError(f"{key}={shorten(value)} is an option, not a setting: use {OUTPUT_OPTIONS[key]}.")
        if key in ("model", "models", "data"):
            raise SettingError(
                f"{key}={shorten(value)} is not a setting: MODEL and DATA are the first two arguments.", code="CUT-102"
            )
    model, data = [*names, None, None][:2]
    if model is not None and data is None and names_data(model):
        model, data = None, model
    return model, data, given


def names_data(name: str) -> bool:
    """Return whether a name is that of a data set, or of a file or folder, and not of a preset."""
    from ...data.open_data import NAMED
    from ...models.registry import find

    return (name in NAMED or exists(name)) and find(name) is None


def parse_data_args(command: str, words: Sequence[str]) -> tuple[str | None, str, dict[str, Any]]:
    """Return the model, if one is named, the data and the settings of a command. Raises MissingSettingError."""
    model, data, given = parse_args(words, options=("json",))
    if data is None:
        raise MissingSettingError(
            f"Missing model or data: cutaway {command} [MODEL] DATA. `cutaway list` shows the models, `cutaway data` "
            "the data sets."
        )
    return model, data, given


def parse_required_args(command: str, words: Sequence[str]) -> tuple[str, str, dict[str, Any]]:
    """Return the model, the data and the settings of a command that needs a model and data. Raises SettingError."""
    model, data, given = parse_args(words, options=("json",))
    if model is None or data is None:
        raise MissingSettingError(
            f"Missing model or data: cutaway {command} MODEL DATA. `cutaway list` shows the models."
        )
    return model, data, given


def add_beam_search_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of beam search; by default the values of training."""
    parser.add_argument(
        "--num-beams",
        metavar="N",
        type=int,
        help="sequence pairs and speech: beam size; default as in training",
    )
    parser.add_argument(
        "--length-penalty",
        metavar="A",
        type=float,
        help="length penalty of beam search; larger values prefer longer outputs",
    )


THINKING = ("method", "form", "breadth", "proposals", "depth", "threshold", "budget")  # of problems alone
DRAWING = ("samples", "temperature", "seed")  # of problems too


def add_thinking_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of solving problems; the defaults are in `inference.thought_search.Method`."""
    parser.add_argument(
        "--method",
        metavar="METHOD",
        choices=METHODS,
        help="problems: search method. Chain of thought: greedy (default) or sample; over --samples chains: "
        "consistency (majority vote), likelihood, or verifier (the first correct one); tree of thoughts: tree "
        "(breadth-first) or depth-first (with backtracking)",
    )
    parser.add_argument(
        "--form", metavar="FORM", help="problems: form of the solutions, if the run was trained on several"
    )
    for key, kind, what in (
        ("breadth", int, "tree: thoughts kept at each depth (5)"),
        ("proposals", int, "tree, depth-first: thoughts sampled after each thought (8)"),
        ("depth", int, "tree, depth-first: steps (3)"),
        ("threshold", float, "depth-first: thoughts of lower value are not expanded (0.1)"),
        ("budget", int, "depth-first: maximum number of expanded thoughts (100)"),
    ):
        parser.add_argument(f"--{key}", metavar="N" if kind is int else "V", type=kind, help=what)


def selected_method(args: argparse.Namespace) -> Method | None:
    """Return the method that the options select, or None without such options."""
    asked = {key: getattr(args, key) for key in (*THINKING, *DRAWING) if getattr(args, key) is not None}
    return Method(**asked) if asked else None


SETTINGS_AT_MOST = 1 << 14  # bytes of a settings file: tomllib takes a minute for a key of 50 000 parts
KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
PAIR = re.compile(rf"{KEY.pattern}=")


def parse_words(words: Sequence[str], names: int) -> tuple[list[str], dict[str, Any]]:
    """Split words into names (at most `names`) and settings. A later setting overrides an earlier one.

    A word that looks like `key=value` is a name if it is an existing file or folder.
    """
    found: list[str] = []
    settings: dict[str, Any] = {}
    reject_spaces(words)
    for word, before in zip(words, ["", *words]):
        if word.startswith("@"):
            settings |= read_settings(Path(word[1:]))
        elif PAIR.match(word) and not (len(found) < names and exists(word)):
            key, value = word.split("=", 1)
            settings[key] = value
        elif len(found) < names:
            found.append(word)
        else:
            hint = f" If it belongs to the value before it, quote both: '{shorten(f'{before} {word}')}'."
            raise SettingError(
                f"{shorten(word)!r} is not a setting: settings are key=value, e.g. epochs=50."
                f"{hint if PAIR.match(before) else ''}"
            )
    return found, settings


def reject_spaces(words: Sequence[str]) -> None:
    """Raise SettingError for a setting with spaces around its equals sign: `target = churned` or `target= churned`."""
    for i, word in enumerate(words):
        before, after = words[i - 1] if i else "", words[i + 1] if i + 1 < len(words) else ""
        if word.startswith("=") and KEY.fullmatch(before):
            key, value = before, word[1:] or after
        elif PAIR.fullmatch(word) and after and not PAIR.match(after) and not exists(after):
            key, value = word[:-1], after.removeprefix("=")
        else:
            continue
        raise SettingError(f"Settings are written without spaces around the equals sign: {key}={shorten(value)}.")


def take_missing(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the words without the setting missing=, and its value, or None without it."""
    given = [word for word in words if word.startswith("missing=") and not exists(word)]
    return [word for word in words if word not in given], given[-1].partition("=")[2] if given else None


def read_settings(path: Path) -> dict[str, Any]:
    """Read settings from a TOML file; the table [model] holds the model's own. Raises FileError."""
    content = read_bytes(path, SETTINGS_AT_MOST)
    try:
        return flatten(tomllib.loads(content.decode("utf-8")))
    except RecursionError as error:
        raise FileError(f"Invalid settings file {path}: [model] is the only table.") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError, and numbers of more digits than Python reads
        raise FileError(f"Invalid settings file {path}: not TOML ({error}). Example line: epochs = 50") from error


def flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables to dotted keys: {"model": {"layers": 4}} becomes {"model.layers": 4}."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = tuple(value) if isinstance(value, list) else value
    return flat
