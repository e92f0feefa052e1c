"""A page for each kind of error, with every sentence that it says, from where the source raises it.

What depends on the moment stands as ‹name› in a sentence; a search of the site for the words around it finds the page.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cutaway
from cutaway.core.errors import CutawayError

SOURCE = Path(cutaway.__file__).parent
PARTS = (
    "core.errors",
    "core.config",
    "training.run_folder",
    "training.simulated_step",
    "apps.serve.text_generation",
    "apps.studio.workers",
    "apps.studio.choices",
    "verify",
)
HEAD = """# Error classes and messages

What a person can fix is a `CutawayError`: one paragraph that says what, where, and the way out. On the command line it
ends with exit status 2, in Python it is an exception, and the words are the same. Search this site for the words of
yours, without its names and numbers. Anything else is an internal error: please report it. [Each code](../errors.md)
has its causes and its fix.

| error | code | is also | what it is |
| --- | --- | --- | --- |
"""
CALL = re.compile(r"(?:short|listed|repr|str|as_text|count|by|sorted|len|quoted|visible)\((.*)\)")


def pages() -> dict[str, str]:
    """A page for each kind of error, and the one that lists them."""
    sentences = said()
    made, rows = {}, []
    for kind in kinds():
        name, also = kind.__name__, next(b.__name__ for b in kind.__mro__[1:] if b.__module__ == "builtins")
        about = " ".join(inspect.cleandoc(kind.__doc__ or "").partition("\n\nArgs:")[0].split())
        code = f"[{kind.code}](../errors.md#{kind.code.lower()})" if kind.code else ""
        rows.append(f"| [`{name}`](errors/{name}.md) | {code} | `{also}` | {about.partition('. ')[0].rstrip('.')}. |")
        lines = [f"# {name}\n", about + "\n", f"In Python: `{kind.__module__}.{name}`, also a `{also}`.\n"]
        found = sentences.get(name, [])
        if found:
            lines.append("## What it says\n")
        for part in sorted({part for part, _, _ in found}):
            lines.append(f"### {part}\n")
            once = sorted({(words, path) for of, words, path in found if of == part})
            lines += [f"- {words} ([source](source:{path}))" for words, path in once]
            lines.append("")
        made[f"reference/errors/{name}.md"] = "\n".join(lines)
    toctree = "\n".join(f"errors/{kind.__name__}" for kind in kinds())
    made["reference/errors.md"] = HEAD + "\n".join(rows) + f"\n\n```{{toctree}}\n:hidden:\n\n{toctree}\n```\n"
    return made


def kinds() -> list[type[CutawayError]]:
    """All that derive from CutawayError, the general ones first."""
    for part in PARTS:
        importlib.import_module(f"cutaway.{part}")
    found: list[type[CutawayError]] = [CutawayError]
    for kind in found:
        found += [one for one in kind.__subclasses__() if one.__module__.startswith("cutaway") and one not in found]
    return [one for one in found if not one.__name__.startswith("_")]


@cache
def said() -> dict[str, list[tuple[str, str, str]]]:
    """By the error's name: which part of the package says it, the words as Markdown, and the file."""
    names = {kind.__name__ for kind in kinds()}
    found: dict[str, list[tuple[str, str, str]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        below = path.relative_to(SOURCE)
        part = below.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names):
                continue
            words = " ".join("".join(_words_of(node)).split())
            if sum(sign.isalpha() for sign in re.sub("‹[^›]*›", "", words)) > 12:
                found.setdefault(node.func.id, []).append(
                    (part, words, f"src/cutaway/{below.as_posix()}#L-{node.lineno}")
                )
    return found


def _words_of(call: ast.Call) -> Iterator[str]:
    """What an error is made with, as words."""
    if isinstance(call.func, ast.Name) and call.func.id == "UnknownName" and len(call.args) > 1:
        kind = "".join(_text(call.args[0]))
        yield f"There is no {kind} ‹{_name(call.args[1])}›. Similar: ‹names›. "
        more = [*call.args[3:], *(k.value for k in call.keywords if k.arg == "way_out")]
    else:
        more = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "fix")]
    for one in more:
        yield from _text(one)
        yield " "


def _text(node: ast.expr) -> Iterator[str]:
    """An expression as the text that it gives: constants as they are, what is computed by its name."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield _plain(node.value)
    elif isinstance(node, ast.JoinedStr):
        for value in node.values:
            yield from _text(value.value if isinstance(value, ast.FormattedValue) else value)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _text(node.left)
        yield from _text(node.right)
    elif isinstance(node, ast.IfExp):
        yield from _text(node.body)
    else:
        yield f"‹{_name(node)}›"


def _name(node: ast.expr) -> str:
    """What is computed, in a word or two."""
    text = ast.unparse(node)
    while match := CALL.fullmatch(text):
        text = match[1]
    names = re.findall(r"[A-Za-z_]\w*", text)
    return names[-1].replace("_", " ") if names else "…"


def _plain(text: str) -> str:
    """Text whose signs mean nothing to Markdown, but for the backticks around what is typed."""
    parts = text.split("`")
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([\\*_<>\[\]{}$#|~])", r"\\\1", parts[i])
    return "`".join(parts)
