"""The Python interface: a page for each module whose names are meant to be used, from signatures and docstrings.

`MODULES` says which those are; what is not listed may change without notice. Of a module, its public names are those
without an underscore that are defined in it, or `__all__` where there is one.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from .examples import EXAMPLES, SETUP

MODULES = {
    "Train, load and compare": ("cutaway", "cutaway.estimators", "cutaway.core.errors", "cutaway.core.spec"),
    "Models": (
        "cutaway.models.card",
        "cutaway.models.base",
        "cutaway.models.registry",
    ),
    "Inspection": ("cutaway.inspect",),
    "Layers and losses": (
        "cutaway.nn.activations",
        "cutaway.nn.attention",
        "cutaway.nn.graphs",
        "cutaway.nn.losses",
        "cutaway.nn.masks",
        "cutaway.nn.normalization",
        "cutaway.nn.position",
        "cutaway.nn.recurrent",
        "cutaway.nn.transformer",
        "cutaway.nn.textbook.backprop",
        "cutaway.nn.textbook.convolution",
        "cutaway.nn.textbook.folding",
        "cutaway.nn.textbook.pooling",
    ),
    "Metrics and statistics": (
        "cutaway.tasks.task",
        "cutaway.statistics.comparison",
        "cutaway.statistics.intervals",
    ),
    "Text generation": (
        "cutaway.inference.sampling",
        "cutaway.inference.text",
        "cutaway.inference.thought_search",
    ),
}
INTERNAL = {  # names without an underscore that other modules of the package call, and that may change
    "Run": {"reject_other_module", "reject_other", "with_own_tokenizer", "place", "image_sizes"},
    "cutaway.core.errors": {
        "memory_message", "printable", "shorten", "shorten_repr", "join", "closest_names", "check_value", "code_line",
    },
    "cutaway.nn.textbook.backprop": {"batch_norm_slope"},
    "cutaway.nn.textbook.convolution": {"Windows"},
    "cutaway.statistics.comparison": {"measure_rows", "compare_rows"},
    "cutaway.statistics.intervals": {
        "Resamples", "cached_resamples", "studentised", "block_sums", "plural", "too_few_windows",
    },
    "cutaway.nn.activations": {"Step", "ScaledTanh"},
    "cutaway.nn.attention": {"LinearNoKeyBias"},
    "cutaway.nn.graphs": {
        "attend_in_groups", "build_membership", "count_graphs", "decode_links", "edge_features_in_order", "index_nodes",
        "link_decoder",
    },
    "cutaway.nn.masks": {"rows_not_right_padded"},
    "cutaway.models.base": {"as_base_model", "as_output_tuple"},
    "cutaway.nn.recurrent": {
        "cudnn_backward_guard", "run_bucketed", "bucket_boundaries", "run_scan", "zero_state", "to_torch_state",
        "to_state_tuple", "reject_projections",
    },
    "cutaway.nn.transformer": {"is_block"},
    "cutaway.inference.sampling": {"uniform"},
    "cutaway.inference.text": {"to_generators", "random_numbers"},
}  # fmt: skip
ELSEWHERE = {"estimators", "inspect"}  # names of `cutaway` that are modules with pages of their own

HEAD = """# Python

These names are kept: [what may change, and how](../policy.md). Shapes stand in parentheses, N examples first.

The examples run one after another, after these lines:

```python
{setup}```

"""


def pages() -> dict[str, str]:
    """The pages, by path, with the one that lists them."""
    made, lines = {}, [HEAD.format(setup=SETUP)]
    for title, names in MODULES.items():
        lines += [f"## {title}\n", "| module | contents |", "| --- | --- |"]
        for name in names:
            lines.append(f"| [`{name}`](python/{name}.md) | {_first(importlib.import_module(name))} |")
            made[f"reference/python/{name}.md"] = page(name)
        lines.append("")
    toctree = "\n".join(f"python/{name}" for names in MODULES.values() for name in names)
    made["reference/python.md"] = "\n".join(lines) + f"\n```{{toctree}}\n:hidden:\n\n{toctree}\n```\n"
    return made


def page(name: str) -> str:
    """One module: its docstring, then its names."""
    module = importlib.import_module(name)
    parts = [f"# {name}\n", f"```{{py:module}} {name}\n```\n", prose(module)]
    for key, one in names_of(module):
        if documented().get(id(one)) != name:
            continue  # where it stands first, with all its names
        canonical = f":canonical: {one.__module__}.{one.__qualname__}\n" if one.__module__ != name else ""
        example = _example(f"{name}.{key}")
        if inspect.isroutine(one):
            parts.append(_function(key, one, canonical, example))
        else:
            parts.append(_class(key, one, canonical, name))
    return "\n".join(parts)


@functools.cache
def documented() -> dict[int, str]:
    """Where each object stands: in the first of the modules that offer it."""
    found: dict[int, str] = {}
    for name in (name for names in MODULES.values() for name in names):
        for _, one in names_of(importlib.import_module(name)):
            found.setdefault(id(one), name)
    return found


def names_of(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The functions and classes that a module offers, in the order of its source."""
    listed = getattr(module, "__all__", None)
    for key in listed or vars(module):
        one = getattr(module, key)
        if key.startswith("_") or key in ELSEWHERE or not (inspect.isroutine(one) or inspect.isclass(one)):
            continue
        if key in INTERNAL.get(module.__name__, ()):
            continue
        if listed or getattr(one, "__module__", None) == module.__name__:
            yield key, one


def members_of(one: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties of a class, without underscores: its own, and those of bases without a place here."""
    bases = [
        base
        for base in one.__mro__
        if base.__module__.startswith("cutaway") and (base is one or id(base) not in documented())
    ]
    found = {key: value for base in reversed(bases) for key, value in vars(base).items()}
    for key, value in found.items():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        attribute = isinstance(plain, property) or type(plain).__name__ == "cached_property"
        public = not key.startswith("_") and key not in INTERNAL.get(one.__name__, ())
        if public and (inspect.isfunction(plain) or attribute):
            yield key, value


SECTIONS = ("Args:", "Returns:", "Raises:", "Yields:", "Attributes:", "Example:")


def prose(one: Any) -> str:
    """Return a docstring as Markdown: Google sections become lists, other indented lines code."""
    parts: list[list[str]] = [[]]
    section = ""
    found = []
    for line in inspect.cleandoc(one.__doc__ or "").splitlines():
        if line in SECTIONS or (section and line.strip() and not line.startswith("    ")):
            found += ["\n".join(part).rstrip() for part in parts]
            parts, section = [[]], line if line in SECTIONS else ""
            if section:
                found.append(f"**{section.rstrip(':')}**")
                continue
        if section == "Example:":
            parts[-1].append(line)
            continue
        if section:
            _extend(parts, line[4:])
            continue
        further = line.startswith("    ")
        if line.strip() and parts[-1] and further != parts[-1][0].startswith("    "):
            parts.append([])
        if line.strip() or parts[-1]:
            parts[-1].append(line)
    found += ["\n".join(part).rstrip() for part in parts]
    return "\n\n".join(_code(part) for part in found if part) + "\n"


def _extend(parts: list[list[str]], line: str) -> None:
    """Add a line of a Google section: `name: text` begins an item, deeper lines go on with it."""
    item = re.match(r"(\*{0,2}[\w.]+)(?: \([^)]*\))?: (.*)", line)
    if item:
        parts[-1].append(f"- `{item[1]}`: {item[2]}")
    elif line.strip():
        parts[-1].append(("  " if parts[-1] and parts[-1][0].startswith("- ") else "") + line.strip())


def _code(paragraph: str) -> str:
    """A paragraph, fenced where it is code."""
    if not paragraph.startswith("    "):
        return paragraph
    text = inspect.cleandoc("\n" + paragraph)
    if text.startswith(">>>"):
        return f"```pycon\n{text}\n```"
    try:
        ast.parse(text)
    except SyntaxError:
        return f"```text\n{text}\n```"
    return f"```python\n{text}\n```"


def _example(name: str) -> str:
    """Return the example of a name, as Markdown; empty if it has none."""
    return f"**Example**\n\n```python\n{EXAMPLES[name]}\n```\n" if name in EXAMPLES else ""


def _function(name: str, one: Any, canonical: str, example: str) -> str:
    return f":::{{py:function}} {name}{_signature(one)}\n{canonical}\n{prose(one)}\n{example}:::\n"


def _class(name: str, one: type, canonical: str, module: str) -> str:
    example = _example(f"{module}.{name}")
    fields = [] if re.search(r"^ *(Args|Attributes):", one.__doc__ or "", re.MULTILINE) else list(_fields(one))
    kind = "exception" if issubclass(one, BaseException) else "class"
    bases = [base.__name__ for base in one.__bases__ if base is not object]
    listed = "".join(f"- `{key}: {hint}`" + (f": {said}" if said else "") + "\n" for key, hint, said in fields)
    signature = "" if issubclass(one, enum.Enum) else _signature(one)
    inside = [_member(key, value, _example(f"{module}.{name}.{key}")) for key, value in members_of(one)]
    parts = [f"Bases: {', '.join(f'`{base}`' for base in bases)}\n"] if bases else []
    parts += [part for part in (prose(one), listed, example) if part]
    return f"::::{{py:{kind}}} {name}{signature}\n{canonical}\n" + "\n".join([*parts, *inside]) + "\n::::\n"


def _member(key: str, value: Any, example: str) -> str:
    plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if not inspect.isfunction(plain):
        return f":::{{py:property}} {key}\n\n{prose(plain)}\n{example}:::\n"
    marks = "".join(f":{kind.__name__}:\n" for kind in (classmethod, staticmethod) if isinstance(value, kind))
    signature = _signature(plain, bound=not isinstance(value, staticmethod))
    return f":::{{py:method}} {key}{signature}\n{marks}\n{prose(plain)}\n{example}:::\n"


def _fields(one: type) -> Iterator[tuple[str, str, str]]:
    """The fields of a dataclass or named tuple, with their types and the comments beside them."""
    if not (dataclasses.is_dataclass(one) or hasattr(one, "_fields")):
        return
    bases = [base for base in one.__mro__ if "__annotations__" in vars(base) and base.__module__.startswith("cutaway")]
    for base in reversed(bases):
        said = dict(re.findall(r"^    (\w+)\s*:.*?  # (.*)$", inspect.getsource(base), flags=re.MULTILINE))
        for key, hint in vars(base)["__annotations__"].items():
            if not key.startswith("_"):
                yield key, getattr(hint, "__forward_arg__", str(hint)), said.get(key, "")


def _signature(one: Any, bound: bool = False) -> str:
    """How it is called, on one line."""
    try:
        found = inspect.signature(one)
    except (TypeError, ValueError):
        return "()"
    kept = list(found.parameters.values())[1 if bound else 0 :]
    shown = [
        p.replace(
            default=p.empty if p.default is p.empty else _Shown(p.default),
            annotation=p.empty if p.annotation is p.empty else _Shown(p.annotation, annotation=True),
        )
        for p in kept
    ]
    result = found.return_annotation
    result = result if result is found.empty else _Shown(result, annotation=True)
    return " ".join(str(found.replace(parameters=shown, return_annotation=result)).split())


class _Shown:
    """A default as it is typed, or an annotation as it is written; objects by their name, without their address."""

    def __init__(self, value: Any, annotation: bool = False) -> None:
        value = getattr(value, "__forward_arg__", value)
        if annotation and isinstance(value, str):
            self.text = value.replace("'", "")
        else:
            self.text = getattr(value, "__name__", None) or re.sub(r" at 0x\w+", "", repr(value))
        self.annotation = annotation

    def __repr__(self) -> str:
        return self.text if self.annotation or re.fullmatch(r"[\w.,()\[\]{}'\"=+\- ]*", self.text) else "..."


def _first(module: ModuleType) -> str:
    """The first sentence of its docstring."""
    return " ".join((module.__doc__ or "").strip().partition("\n\n")[0].split()).replace("|", "\\|")
