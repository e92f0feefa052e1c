"""The Python in docs/own_models.md and docs/pytorch.md runs as it stands, and reaches what the pages say."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

DOCS = Path(__file__).parents[1] / "docs"
SHOWN = re.compile(r"```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
SHARED = ("sms_spam", "mnist1d", "cora", "cifar10")  # named sets that are not brought along
OTHERS = re.compile(r"^(?:import|from) (torchvision|lightning|accelerate)", re.MULTILINE)  # that may be absent
FAR = 0.07  # of what a page says: a score of another processor, whose sums are rounded otherwise


class Section(NamedTuple):
    """A part of a page: what is imported at its top, and code with what it prints."""

    title: str
    preamble: str
    shown: list[tuple[str, str]]


def sections(page: str) -> list[Section]:
    """Those in which something is shown."""
    first, *others = re.split(r"^## ", (DOCS / f"{page}.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    preamble = re.findall(r"```python\n(.*?)```", first, re.DOTALL)[0]
    parts = [("the first", first), *((part.split("\n", 1)[0], part) for part in others)]
    for _, part in parts[1:]:
        assert len(SHOWN.findall(part)) == part.count("```python"), "what is typed shows what comes of it"
    return [Section(title, preamble, SHOWN.findall(part)) for title, part in parts if SHOWN.search(part)]


PAGES = {page: sections(page) for page in ("own_models", "pytorch")}


def test_the_pages_have_all_that_they_promise() -> None:
    assert len(PAGES["own_models"]) == 1 + 16 + 1
    assert len(PAGES["pytorch"]) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "section", [pytest.param(s, id=f"{page}-{s.title}") for page, those in PAGES.items() for s in those]
)
def test_a_section_reaches_what_the_page_says(
    section: Section, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = "".join(code for code, _ in section.shown)
    if any(f'"{name}"' in typed for name in SHARED):
        request.getfixturevalue("shared_data")
    for name in OTHERS.findall(typed):
        try:
            importlib.import_module(name)
        except (ImportError, RuntimeError) as error:  # absent, or built for another PyTorch
            pytest.skip(f"needs {name}: {error}")
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "section"}
    exec(section.preamble, space)
    for code, said in section.shown:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code.replace('"DEFAULT"', "None"), space)
        found = out.getvalue().replace("\u202f", " ")
        assert NUMBER.sub("#", found) == NUMBER.sub("#", said)
        here, there = ([float(number) for number in NUMBER.findall(text)] for text in (found, said))
        assert here == pytest.approx(there, rel=FAR)
