"""Shell completion of commands, options and file names: `cutaway --print-completion bash`.

The script comes from shtab. It is complete, so that pressing Tab starts no Python.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from ...core.errors import MissingSettingError, UnknownName
from ...core.extras import require
from . import COMMANDS

SHELLS = ("bash", "zsh", "tcsh")


def completion_script(shell: str) -> str:
    """Return the completion script for a shell.

    Args:
        shell: "bash", "zsh" or "tcsh".

    Raises:
        MissingSettingError: If the shell is missing.
        UnknownName: If the shell is another one.
        MissingPackageError: If shtab is not installed.
    """
    if shell not in SHELLS:
        if not shell:
            raise MissingSettingError(f"`cutaway --print-completion SHELL` needs a shell: {', '.join(SHELLS)}.")
        raise UnknownName("shell", shell, SHELLS)
    shtab: Any = require("shtab", "Shell completion")
    root = argparse.ArgumentParser(prog="cutaway", description="Train, verify and inspect neural networks.")
    root.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = root.add_subparsers()
    for name, command in COMMANDS.items():
        parser = commands.add_parser(name, help=command.summary)
        module = import_module(f"{__package__}.{command.module}")
        getattr(module, f"add_{name}_arguments")(parser)
        for action in parser._actions:
            if not action.option_strings and not action.choices:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    script: str = shtab.complete(root, shell=shell)
    return script
