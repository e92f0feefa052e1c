"""Write the types of names and settings from the tables of models, views and settings: python docs/make_types.py."""

from __future__ import annotations

import subprocess
import sys
import types
import typing
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from cutaway.data.settings import DataSettings, ShardSettings
from cutaway.deploy.quantize_config import QuantizeSettings
from cutaway.experiments.settings import CompareSettings, PlanSettings, SearchSettings
from cutaway.models.registry import presets
from cutaway.training.config import TrainSettings
from cutaway.views.registry import VIEWS

PATH = Path(__file__).parents[1] / "src" / "cutaway" / "core" / "typed_names.py"
PARAMETERS = ("val", "test")  # of the functions themselves, which take objects too
OPTIONS: dict[str, tuple[str, str, tuple[type, ...]]] = {  # class: its noun, its base class, and its own groups
    "DataOptions": ("Settings of the data.", "TypedDict", (DataSettings,)),
    "PrepareOptions": ("Settings of `prepare`.", "DataOptions", (ShardSettings,)),
    "TrainOptions": ("Settings of `train`, `check` and `prune`.", "DataOptions", (TrainSettings,)),
    "PlanOptions": ("Settings of `plan`.", "TrainOptions", (PlanSettings,)),
    "CompareOptions": ("Settings of `compare`.", "TrainOptions", (CompareSettings,)),
    "QuantizeOptions": ("Settings of `quantize`.", "TypedDict", (QuantizeSettings,)),
    "SearchOptions": (
        "Settings of `search`, any of which may be a range or choices.",
        "TypedDict",
        (DataSettings, TrainSettings, SearchSettings),
    ),
}

HEAD = '''"""Types of model names, view names and settings, by which type checkers find a typo.

`python docs/make_types.py` writes this file from the tables of models, views and settings.

    cutaway.train("mpl", data)              # error: no such model
    cutaway.train("mlp", data, epoch=2)     # error: no such setting
    cutaway.look(run, view="netwrk")        # error: no such view

Names that are known only when the program runs are wrapped: `cutaway.train(cutaway.AnyName(sys.argv[1]), data)`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, TypedDict


class AnyName(str):
    """Name of a model or view that is known only at run time, where a type checker expects one of the known names."""

    __slots__ = ()


'''


def text() -> str:
    """Return the file, in the project's format."""
    parts = [HEAD, _literal("PresetName", presets()), "\n", _literal("ViewName", VIEWS)]
    for name, (noun, base, groups) in OPTIONS.items():
        parts.append(f'\n\nclass {name}({base}, total=False):\n    """{noun}"""\n\n')
        keys: dict[str, str] = {}
        for group in groups:
            hints = typing.get_type_hints(group)
            for field in fields(group):
                if field.name not in PARAMETERS:
                    searched = name == "SearchOptions"
                    keys[field.name] = "Any" if searched else _annotation(hints[field.name], field.metadata["choices"])
        parts += [f"    {key}: {annotation}\n" for key, annotation in keys.items()]
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(PATH), "-"]
    return subprocess.run(ruff, input="".join(parts), capture_output=True, check=True, encoding="utf-8").stdout


def _literal(name: str, values: Iterable[str]) -> str:
    lines = [f"{name} = Literal["]
    for value in values:
        lines.append(f'    "{value}",')
    return "\n".join([*lines, "]\n"])


def _annotation(hint: Any, choices: tuple[str, ...]) -> str:
    """Return the type of the values that a setting takes in Python."""
    optional = isinstance(hint, types.UnionType)
    kind = next(k for k in (typing.get_args(hint) if optional else (hint,)) if k is not type(None))
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0].__name__
        found = ["Sequence[str]", "str"] if inner == "str" else [f"Sequence[{inner}]", inner, "str"]
    elif choices:
        quoted = [f'"{one}"' for one in (*choices, *(["auto"] if optional else []))]
        found = [f"Literal[{', '.join(quoted)}]"]
    elif kind is str:
        found = ["str", "os.PathLike[str]"]
    else:
        found = [kind.__name__, *(['Literal["auto"]'] if optional else [])]
    return " | ".join([*found, *(["None"] if optional else [])])


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
