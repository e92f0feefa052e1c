"""What docs/own_models.md says to type runs as it stands, and reaches what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "own_models.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
SHARED = ("sms_spam", "mnist1d", "cora", "cifar10")  # named sets that are not brought along
FAR = 0.07  # of what the page says: a score of another processor, whose sums are rounded otherwise

FIRST, *SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)
PREAMBLE = re.findall(r"```python\n(.*?)```", FIRST, re.DOTALL)[0]
TITLES = ["The first", *(section.split("\n", 1)[0] for section in SECTIONS)]


def test_the_page_has_all_that_it_promises() -> None:
    assert len(SECTIONS) == 15
    assert all(len(SHOWN.findall(section)) == section.count("```python") for section in SECTIONS)


@pytest.mark.parametrize("title", TITLES)
def test_a_snippet_reaches_what_the_page_says(
    title: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = [FIRST, *SECTIONS][TITLES.index(title)]
    if any(f'"{name}"' in section for name in SHARED):
        request.getfixturevalue("shared_data")
    if "torchvision" in section:
        try:
            import torchvision  # noqa: F401
        except (ImportError, RuntimeError) as error:  # one that was built for another PyTorch
            pytest.skip(f"needs torchvision: {error}")
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "snippet"}
    exec(PREAMBLE, space)
    for code, said in SHOWN.findall(section):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code.replace('"DEFAULT"', "None"), space)
        found = out.getvalue().replace("\u202f", " ")
        assert NUMBER.sub("#", found) == NUMBER.sub("#", said)
        here, there = ([float(number) for number in NUMBER.findall(text)] for text in (found, said))
        assert here == pytest.approx(there, rel=FAR)
