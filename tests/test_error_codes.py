"""Every error has a code, every code a section of docs/errors.md, and the example of each section gives that code."""

from __future__ import annotations

import ast
import functools
import importlib
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cutaway
from cutaway.apps.cli import main
from cutaway.apps.serve.engine import error_reply
from cutaway.apps.serve.middleware import rejection
from cutaway.core.error_codes import CODES
from cutaway.core.errors import ColumnError, CutawayError, DataError, MemoryLimitError, MissingFileError, TrainingError
from cutaway.distributed.launch import _raise, write_failure

from .scripts import DOCS, load

SOURCE = Path(cutaway.__file__).parent
PAGE = (DOCS / "errors.md").read_text(encoding="utf-8")
QUICK_CODES = ("CUT-203", "CUT-101", "CUT-103", "CUT-201", "CUT-204", "CUT-207", "CUT-401", "CUT-402", "CUT-405")


@pytest.fixture(scope="module")
def page() -> ModuleType:
    """docs/error_page.py, which is no part of the package."""
    return load("docs_error_page", DOCS / "error_page.py")


@pytest.fixture(scope="module")
def kinds() -> Iterator[list[type[CutawayError]]]:
    """All classes of errors."""
    paths = [str(DOCS.parent), str(DOCS)]
    sys.path[:0] = paths
    yield importlib.import_module("extensions.reference.errors").kinds()
    for path in paths:
        sys.path.remove(path)


@functools.cache
def calls() -> list[ast.Call]:
    """All calls in the package that may make an error."""
    trees = [ast.parse(text) for path in SOURCE.rglob("*.py") if "Error" in (text := path.read_text(encoding="utf-8"))]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_every_class_of_errors_has_a_code_and_every_code_is_used(kinds: list[type[CutawayError]]) -> None:
    codes = {kind.__name__: kind.code for kind in kinds if kind is not CutawayError}
    assert {name: code for name, code in codes.items() if code not in CODES} == {}
    passed = {
        keyword.value.value
        for call in calls()
        for keyword in call.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant) and "CUT-" in str(keyword.value.value)
    }
    assert passed
    assert {*codes.values()} | passed == set(CODES)
    assert len(kinds) > 30


def test_no_error_is_of_the_base_class_which_has_no_code() -> None:
    raised = [call for call in calls() if isinstance(call.func, ast.Name) and call.func.id == "CutawayError"]
    assert raised == []


def test_the_page_has_a_section_of_every_code_in_order() -> None:
    assert re.findall(r"^## (.*)$", PAGE, flags=re.MULTILINE) == list(CODES) == sorted(CODES)
    assert re.findall(r"^\| \[(.*?)\]", PAGE, flags=re.MULTILINE) == list(CODES)


@pytest.mark.parametrize("code", QUICK_CODES)
def test_an_example_gives_its_code_and_the_message_of_the_page(page: ModuleType, code: str) -> None:
    check_example(page, code)


@pytest.mark.slow
@pytest.mark.parametrize("code", [code for code in CODES if code not in QUICK_CODES])
def test_a_longer_example_gives_its_code_and_the_message_of_the_page(page: ModuleType, code: str) -> None:
    check_example(page, code)


def check_example(page: ModuleType, code: str) -> None:
    printed = page.message(code)
    last = f'"code":"{code}"}}' if code == "CUT-603" else f"{code}: `cutaway help {code}` explains it."
    assert printed.endswith(last)
    if code in ("CUT-502", "CUT-504"):  # name the memory and the devices of this machine
        return
    assert page.section(code, printed) in PAGE, "python docs/error_page.py writes it anew"


def test_help_explains_a_code(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["help", "cut-203"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("CUT-203: Wrong column\n")
    assert "cutaway train mlp wine.csv target=cultivr" in said
    assert max(map(len, said.splitlines())) <= 80
    assert main(["help", "CUT-999"]) == 2
    assert "There is no error code 'CUT-999'" in capsys.readouterr().err


def test_an_exception_has_its_code_in_python() -> None:
    error = ColumnError("no column 'a'")
    assert (str(error), error.code) == ("no column 'a'", "CUT-203")
    for one in (error, MissingFileError("gone"), MemoryLimitError("much"), DataError("bad", code="CUT-103")):
        again = pickle.loads(pickle.dumps(one))
        assert (type(again), str(again), again.code) == (type(one), str(one), one.code)


def test_a_process_passes_the_code_of_its_error_on(tmp_path: Path) -> None:
    write_failure(tmp_path, ColumnError("no column 'a'"))
    with pytest.raises(TrainingError, match="no column 'a'") as caught:
        _raise(tmp_path, 2, RuntimeError())
    assert caught.value.code == "CUT-203"


def test_a_server_has_the_code_in_its_json() -> None:
    assert error_reply(ColumnError("no column 'a'")) == {"error": "no column 'a'", "code": "CUT-203"}
    assert error_reply(MemoryError())["code"] == "CUT-502"
    assert rejection("/predict", 422, "words", "CUT-603").body == b'{"error":"words","code":"CUT-603"}'
    assert rejection("/predict", 401, "words").body == b'{"error":"words"}'
    assert b'"code":"CUT-603"' in rejection("/v1/completions", 422, "words", "CUT-603").body
    assert b'"code":null' in rejection("/v1/completions", 401, "words").body
