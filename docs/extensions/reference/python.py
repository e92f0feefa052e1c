"""Pages of the Python API, one for each public module, generated from signatures and docstrings.

`MODULES` lists the public modules. The public names of a module are its `__all__`, or else the names without an
underscore that are defined in it, except those in `INTERNAL`.
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
# Names of a module, or of a class and its subclasses, that only other modules of the package use, and that may change.
INTERNAL = {
    "Run": {"reject_other_module", "reject_other", "with_own_tokenizer", "place", "image_sizes"},
    "Edit": {"value", "change"},
    "Preset": {"current_name", "as_now", "parse", "reject_kind", "image_sizes", "described"},
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
    "cutaway.core.spec": {"ImageSizes", "current_kind", "upgrade_spec", "validate_scales", "read_spec"},
    "cutaway.tasks.task": {"target_types"},
}  # fmt: skip
ELSEWHERE = {"estimators", "inspect"}  # names of `cutaway` that are modules with pages of their own

HEAD = """# Python API

The names on these pages are stable, as described in [Versions and compatibility](../policy.md). All other names may
change at any time.

Shapes are written in parentheses. The first dimension N is the number of examples, unless stated otherwise.

An example with the prompt `>>>` runs on its own: it uses the names of its module, `torch`, `np` (NumPy) and `cutaway`.
The other examples run one after another in one session, after this setup:

```python
{setup}```

"""


def pages() -> dict[str, str]:
    """Return the pages by path, including the index page."""
    made, lines = {}, [HEAD.format(setup=SETUP)]
    for title, names in MODULES.items():
        lines += [f"## {title}\n", "| Module | Contents |", "| --- | --- |"]
        for name in names:
            lines.append(f"| [`{name}`](python/{name}.md) | {_first(importlib.import_module(name))} |")
            made[f"reference/python/{name}.md"] = page(name)
        lines.append("")
    toctree = "\n".join(f"python/{name}" for names in MODULES.values() for name in names)
    made["reference/python.md"] = "\n".join(lines) + f"\n```{{toctree}}\n:hidden:\n\n{toctree}\n```\n"
    return made


def page(name: str) -> str:
    """Return the page of a module: its docstring and its public names."""
    module = importlib.import_module(name)
    parts = [f"# {name}\n", f"```{{py:module}} {name}\n```\n", prose(module)]
    for key, one in names_of(module):
        if documented().get(id(one)) != name:
            continue  # on the page of another module
        canonical = f":canonical: {one.__module__}.{one.__qualname__}\n" if one.__module__ != name else ""
        example = _example(f"{name}.{key}")
        if inspect.isroutine(one):
            parts.append(_function(key, one, canonical, example))
        else:
            parts.append(_class(key, one, canonical, name))
    return "\n".join(parts)


@functools.cache
def documented() -> dict[int, str]:
    """Return the module on whose page each object is documented, the first that exports it, by the object's id."""
    found: dict[int, str] = {}
    for name in (name for names in MODULES.values() for name in names):
        for _, one in names_of(importlib.import_module(name)):
            found.setdefault(id(one), name)
    return found


def names_of(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the public functions and classes of a module, in the order of `__all__` or of its source."""
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
    """Yield the public methods and properties of a class: its own, and those of bases that no page describes."""
    internal = {key for base in one.__mro__ for key in INTERNAL.get(base.__name__, ())}
    bases = [
        base
        for base in one.__mro__
        if base.__module__.startswith("cutaway") and (base is one or id(base) not in documented())
    ]
    found = {key: value for base in reversed(bases) for key, value in vars(base).items()}
    for key, descriptor in found.items():
        value = getattr(descriptor, "fn", descriptor)  # the function under scikit-learn's `available_if`
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        attribute = isinstance(plain, property) or type(plain).__name__ == "cached_property"
        public = not key.startswith("_") and key not in internal
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
    """Add a line of a Google section: `name: text` begins an item, further indented lines continue it."""
    item = re.match(r"(\*{0,2}[\w.]+)(?: \([^)]*\))?: (.*)", line)
    if item:
        parts[-1].append(f"- `{item[1]}`: {item[2]}")
    elif line.strip():
        parts[-1].append(("  " if parts[-1] and parts[-1][0].startswith("- ") else "") + line.strip())


def _code(paragraph: str) -> str:
    """Return a paragraph, in a code fence if it is indented."""
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
    kind = "exception" if issubclass(one, BaseException) else "class"
    bases = [f"`{base.__name__}`" for base in one.__bases__ if base is not object]
    text, _, own_example = prose(one).partition("**Example**")
    described = re.search(r"^ *(Args|Attributes):", one.__doc__ or "", re.MULTILINE)
    listed = () if described else _fields(one)
    fields = [f"- `{key}: {hint}`" + (f": {said}" if said else "") for key, hint, said in listed]
    code = getattr(one, "code", "")
    parts = [
        f"Bases: {', '.join(bases)}" if bases else "",
        f"Error code: [{code}](../../errors.md#{code.lower()})" if kind == "exception" and code else "",
        text.strip(),
        "**Fields**\n\n" + "\n".join(fields) if fields else "",
        f"**Example**{own_example}".rstrip() if own_example else "",
        _example(f"{module}.{name}").rstrip(),
        *(_member(key, value, _example(f"{module}.{name}.{key}")).rstrip() for key, value in members_of(one)),
    ]
    signature = "" if issubclass(one, enum.Enum) else _signature(one)
    inside = "\n\n".join(part for part in parts if part)
    return f"::::{{py:{kind}}} {name}{signature}\n{canonical}\n{inside}\n\n::::\n"


def _member(key: str, value: Any, example: str) -> str:
    plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if not inspect.isfunction(plain):
        return f":::{{py:property}} {key}\n\n{prose(plain)}\n{example}:::\n"
    marks = "".join(f":{kind.__name__}:\n" for kind in (classmethod, staticmethod) if isinstance(value, kind))
    signature = _signature(plain, bound=not isinstance(value, staticmethod))
    return f":::{{py:method}} {key}{signature}\n{marks}\n{prose(plain)}\n{example}:::\n"


def _fields(one: type) -> Iterator[tuple[str, str, str]]:
    """Yield each field of a dataclass or named tuple: its name, its type and the comment beside it."""
    if not (dataclasses.is_dataclass(one) or hasattr(one, "_fields")):
        return
    bases = [base for base in one.__mro__ if "__annotations__" in vars(base) and base.__module__.startswith("cutaway")]
    hints: dict[str, str] = {}
    comments: dict[str, str] = {}
    for base in reversed(bases):
        comments |= re.findall(r"^    (\w+)\s*:.*?  # (.*)$", inspect.getsource(base), flags=re.MULTILINE)
        for key, hint in vars(base)["__annotations__"].items():
            constant = str(hint).startswith("ClassVar") and hasattr(one, key)
            hint = getattr(hint, "__forward_arg__", str(hint))
            hints[key] = f"{hint} = {getattr(one, key)!r}" if constant else hint
    yield from ((key, hint, comments.get(key, "")) for key, hint in hints.items() if not key.startswith("_"))


def _signature(one: Any, bound: bool = False) -> str:
    """Return the signature as text on one line."""
    try:
        found = inspect.signature(one)
    except (TypeError, ValueError):
        return "()"
    kept = list(found.parameters.values())[1 if bound else 0 :]
    shown = [p.replace(default=_default(p.default), annotation=_hint(p.annotation)) for p in kept]
    return " ".join(str(found.replace(parameters=shown, return_annotation=_hint(found.return_annotation))).split())


class _Source:
    """An object whose `repr` is the given text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _hint(annotation: Any) -> Any:
    """Return an annotation that `inspect.Signature` prints without quotes."""
    annotation = getattr(annotation, "__forward_arg__", annotation)  # of a named tuple
    return _Source(annotation) if isinstance(annotation, str) else annotation


def _default(value: Any) -> Any:
    """Return a default that `inspect.Signature` prints as in the source; an object is printed without its address."""
    if value is inspect.Parameter.empty:
        return value
    text = getattr(value, "__name__", None) or re.sub(r" at 0x\w+", "", repr(value))
    return _Source(text if re.fullmatch(r"[\w.,()\[\]{}'\"=+\- ]*", text) else "...")


def _first(module: ModuleType) -> str:
    """Return the first paragraph of its docstring on one line."""
    return " ".join((module.__doc__ or "").strip().partition("\n\n")[0].split()).replace("|", "\\|")
