"""What the site's reference promises of the Python interface: every public name says what it is, in full."""

from __future__ import annotations

import ast
import contextlib
import doctest
import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import cutaway
from cutaway.core.config import describe
from cutaway.data.settings import DataSettings
from cutaway.training.config import TrainSettings

ROOT = Path(__file__).parents[1]
SHAPE = re.compile(r"\(([A-Za-z…]\w*,[^()]*)\)|shape")  # (N, heads, T, d)
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example")
RAISED = re.compile(r"\w+Error|UnknownName")


@pytest.fixture(scope="module")
def reference() -> Iterator[Any]:
    """docs/extensions/reference, which is no part of the package."""
    paths = [str(ROOT), str(ROOT / "docs")]
    sys.path[:0] = paths
    yield importlib.import_module("extensions.reference.python"), importlib.import_module("extensions.reference.errors")
    for path in paths:
        sys.path.remove(path)


def documented(python: ModuleType) -> Iterator[tuple[str, Any, str]]:
    """Every public name with its object, and what is said around it: of its class, else of its module."""
    for names in python.MODULES.values():
        for module in map(importlib.import_module, names):
            for key, one in python.names_of(module):
                yield f"{module.__name__}.{key}", one, module.__doc__ or ""
                for member, value in python.members_of(one) if inspect.isclass(one) else ():
                    plain = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
                    yield f"{module.__name__}.{key}.{member}", plain, f"{one.__doc__} {module.__doc__}"


def test_every_public_name_says_what_it_is_with_shapes_and_errors(reference: Any) -> None:
    silent, shapeless, raising, count = [], [], [], 0
    for name, one, around in documented(reference[0]):
        count += 1
        said = one.__doc__ or ""
        if not said.strip():
            silent.append(name)
        if not inspect.isfunction(one):
            continue
        signature = inspect.signature(one)
        hints = [str(p.annotation) for p in signature.parameters.values()] + [str(signature.return_annotation)]
        if any("Tensor" in hint for hint in hints) and not SHAPE.search(said + around):
            shapeless.append(name)
        raised = {
            node.exc.func.id
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(one))))
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)
        }
        if any(RAISED.fullmatch(kind) for kind in raised) and "Raise" not in said + around:
            raising.append(name)
    assert (silent, shapeless, raising) == ([], [], [])
    assert count > 300


def test_what_cutaway_offers_is_in_the_reference(reference: Any) -> None:
    python = reference[0]
    names = {key for key, _ in python.names_of(cutaway)} | python.ELSEWHERE
    assert set(cutaway.__all__) <= names
    page = python.page("cutaway")
    assert all(f"{{py:function}} {key}(" in page for key in ("train", "load", "search", "create_model"))
    assert "{py:method} predict_proba(" in python.page("cutaway.estimators")


def test_errors_are_found_by_their_words(reference: Any) -> None:
    pages = reference[1].pages()
    assert "has no model yet: its training was stopped before it finished" in pages["reference/errors/NotARunError.md"]
    assert "There is no setting ‹" in pages["reference/errors/UnknownName.md"]
    assert all(f"reference/errors/{kind.__name__}.md" in pages for kind in reference[1].kinds())
    assert (
        "| [`ColumnError`](errors/ColumnError.md) | [CUT-203](../errors.md#cut-203) |" in pages["reference/errors.md"]
    )


def is_property(owner: str, name: str) -> bool:
    """Return whether a member of a class, named with its module, is a property."""
    module, _, cls = owner.rpartition(".")
    found = inspect.getattr_static(getattr(sys.modules.get(module), cls, None), name, None)
    return isinstance(found, property | functools.cached_property)


def test_public_names_have_arguments_returns_errors_and_an_example(reference: Any) -> None:
    python = reference[0]
    modules = {module: importlib.import_module(module) for names in python.MODULES.values() for module in names}
    shown = {id(one) for name, one, _ in documented(python) if name in python.EXAMPLES}
    missing = []
    for name, one, _ in documented(python):
        owner, _, key = name.rpartition(".")
        said = inspect.getdoc(one) or ""
        is_error = inspect.isclass(one) and issubclass(one, BaseException)
        if inspect.isclass(one):
            said += inspect.getdoc(vars(one).get("__init__")) or ""
            fields = list(python._fields(one))
            arguments = not fields or not all(comment for _, _, comment in fields)
            protocol = getattr(one, "_is_protocol", False)
            arguments = arguments and not is_error and not protocol and not python._signature(one).startswith("()")
            result = raised = False
        elif inspect.isfunction(one):
            signature = inspect.signature(one)
            arguments = bool(set(signature.parameters) - {"self", "cls"})
            result = str(signature.return_annotation) not in ("None", "NoReturn", "<class 'inspect._empty'>")
            result = result and not said.startswith(("Return ", "Yield ", "Iterate ")) and not is_property(owner, key)
            tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
            raised = any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))
        else:
            continue
        has = {section: re.search(rf"^ *{section}:", said, re.MULTILINE) is not None for section in SECTIONS}
        if arguments and not (has["Args"] or has["Attributes"]):
            missing.append(f"{name}: Args")
        if result and not (has["Returns"] or has["Yields"]):
            missing.append(f"{name}: Returns")
        if raised and not has["Raises"]:
            missing.append(f"{name}: Raises")
        if owner in modules and not is_error and not (has["Example"] or id(one) in shown):
            missing.append(f"{name}: Example")
    assert missing == []


def test_examples_in_docstrings_run(reference: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    finder, runner, report = doctest.DocTestFinder(), doctest.DocTestRunner(verbose=False, optionflags=flags), [""]
    for module in (importlib.import_module(name) for names in reference[0].MODULES.values() for name in names):
        names = vars(module) | {"torch": torch, "np": np, "cutaway": cutaway}
        for example in finder.find(module, module.__name__, module=module, globs=names):
            torch.manual_seed(0)
            runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)


@pytest.mark.slow
def test_the_examples_run_one_after_another(reference: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every example, and compare each value with its comment where that is a Python literal."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(reference[0].SETUP, names)
    failed = {}
    compared = 0
    for name, example in reference[0].EXAMPLES.items():
        try:
            exec(example, names)
            for code, shown in re.findall(r"^(\S.*?)  # (.+)$", example, flags=re.MULTILINE):
                with contextlib.suppress(SyntaxError, ValueError):  # a comment in words
                    expected = ast.literal_eval(shown)
                    compared += 1
                    if (value := eval(code, names)) != expected:
                        failed[name] = f"{code}: {value!r}, not {expected!r}"
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    assert failed == {}
    assert compared > 20


def test_the_main_functions_and_classes_have_an_example(reference: Any) -> None:
    python, examples = reference[0], reference[0].EXAMPLES
    main = {
        f"{module}.{key}"
        for module in ("cutaway", "cutaway.inspect")
        for key, _ in python.names_of(importlib.import_module(module))
    }
    assert main - {*examples} == set()
    assert {*examples} - {name for name, _, _ in documented(python)} == set()
    assert "**Example**" in python.page("cutaway")


def test_internal_names_are_not_in_the_reference(reference: Any) -> None:
    public = {name for name, _, _ in documented(reference[0])}
    assert not any(name.endswith((".reject_other_module", ".with_own_tokenizer", "errors.shorten")) for name in public)
    objects = [one for _, one, _ in documented(reference[0]) if inspect.isclass(one)]
    classes = {base.__name__: base for one in objects for base in one.__mro__}
    for owner, names in reference[0].INTERNAL.items():  # each exists, so that the list stays short
        one = classes.get(owner) or importlib.import_module(owner)
        assert all(hasattr(one, name) for name in names)


def test_signatures_have_the_defaults_of_the_source(reference: Any) -> None:
    page = reference[0].page("cutaway.inspect")
    assert "rule: str = 'sgd'" in page
    assert "metric: Metric | None = None" in page
    assert "edit: Callable[..., Edit] = Zero" in page


def test_each_field_has_a_comment(reference: Any) -> None:
    bare = [
        f"{name}.{key}"
        for name, one, _ in documented(reference[0])
        if name.startswith(("cutaway.core", "cutaway.models.card", "cutaway.models.registry"))
        for key, _, comment in (reference[0]._fields(one) if inspect.isclass(one) else ())
        if not comment
    ]
    assert bare == []


def test_each_field_is_listed_once_with_its_comment(reference: Any) -> None:
    page = reference[0].page("cutaway.core.spec")
    part = page[page.index("{py:class} Solution(") : page.index("{py:class} Masked(")]
    assert [part.count(f"- `{name}: ") for name in ("vocab_size", "column", "order", "end")] == [1, 1, 1, 1]
    assert "- `order: ClassVar[str] = ''`: " in part


def test_every_setting_has_a_sentence() -> None:
    for group in (TrainSettings, DataSettings):
        assert all(len(one.help.split()) > 1 for one in describe(group))
