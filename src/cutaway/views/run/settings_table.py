"""The settings of a run: those that differ from the defaults, and a collapsed table of all with their help."""

from __future__ import annotations

import re
import shlex
from typing import Any

from ...core.config import as_text, describe
from ...data.settings import DataSettings
from ...draw.description import Drawing, table
from ...draw.number_format import plural
from ...training.config import TrainSettings

MODEL = "model."


def settings(run: dict[str, Any], config: dict[str, Any] | None) -> list[Drawing]:
    """Return the settings of a run as drawings; `config` is the complete configuration of its model, if known."""
    known = {said.key: said for group in (TrainSettings, DataSettings) for said in describe(group)}
    asked = typed_keys(run["command"])
    rows, chosen = [], []
    for key, value in run["settings"].items():
        usual = known[key].default if key in known else ""
        row = [key, text(value), usual, known[key].help if key in known else ""]
        rows.append(row)
        if row[1] != usual:
            chosen.append([*row[:3], "typed" if key in asked else "suits the model"])
    for key, value in (config or run["model_settings"]).items():
        by = "typed" if MODEL + key in asked or key in run["model_settings"] else ""
        rows.append([MODEL + key, text(value), "", "of the model" + (", typed" if by else "")])
        if by:
            chosen.append([MODEL + key, text(value), "", by])
    drawings: list[Drawing] = []
    if chosen:
        heads = {"setting": "text", "value": "text", "default": "text", "why": "text"}
        drawings.append({"kind": "prose", "title": "Settings that are not the default", "table": table(heads, chosen)})
    heads = {"setting": "text", "value": "text", "default": "text", "what it is": "text"}
    drawings.append({"kind": "prose", "folded": f"All {plural(len(rows), 'setting')}", "table": table(heads, rows)})
    return drawings


def typed_keys(command: str) -> set[str]:
    """Return the names of the settings on a command line."""
    if command.startswith("cutaway.train("):  # a custom module, trained from Python
        return set(re.findall(r", (\w+)=", command))
    return {word.split("=", 1)[0] for word in shlex.split(command)[4:] if "=" in word}


def text(value: Any) -> str:
    """Return a setting as the user would type it; JSON has lists for the tuples of settings."""
    return as_text(tuple(value) if isinstance(value, list) else value)


__all__ = ["settings", "text", "typed_keys"]
