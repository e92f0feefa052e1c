"""What docs/export.md says of every preset is what was found, and still is of a few."""

from __future__ import annotations

import pytest

from cutaway.models.registry import presets

from . import presets as table

pytest.importorskip("onnxscript")
FEW = ("rnn",)  # scanned over time; test_exported.py has one that is not


def test_the_page_has_the_table_that_was_made() -> None:
    text = table.PAGE.read_text(encoding="utf-8")
    assert table.page(text, table.kept()) == text, "python -m tests.deploy.presets writes it anew"


def test_every_kind_of_preset_is_in_the_table() -> None:
    assert list(table.kept()["found"]) == list(table.DIFFERENT)
    assert set(table.kept()["found"]) <= set(presets())


@pytest.mark.parametrize("name", FEW)
def test_a_few_are_as_the_table_says(name: str) -> None:
    said, found = table.kept()["found"][name], table.outcome(name)
    for key in table.FORMATS:
        assert found[key].split()[0] == said[key].split()[0], key
