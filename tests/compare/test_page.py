"""docs/statistics.md: its Python gives what stands below it, and its table is what the simulation writes.

docs/compare.md and the help of the command: what is typed there can be typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.statistics import BEGIN, END, EXAMPLES, HEAD, SETTINGS, Setting, row

from cutaway.apps.cli.arguments import parse_args
from cutaway.apps.cli.experiments import COMPARE_EXAMPLES as EXAMPLES_TYPED
from cutaway.experiments.compare.runner import _new_document
from cutaway.models.registry import preset

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "statistics.md").read_text(encoding="utf-8")
TYPED = re.findall(r"^ *cutaway compare (\S+,\S+ .*)$", (DOCS / "compare.md").read_text("utf-8") + EXAMPLES_TYPED, re.M)
SHOWN = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("at", range(2))
def test_what_is_shown_is_what_happens(at: int, capsys: pytest.CaptureFixture[str]) -> None:
    python, shown = SHOWN[at]
    exec(compile(python, "statistics.md", "exec"), {})
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("words", TYPED)
def test_what_is_typed_in_the_docs_can_be_typed(words: str) -> None:
    words = re.sub(r" --out \S+", "", words)
    models, data, given = parse_args(words.split())
    assert models
    assert data
    planned = _new_document([preset(name) for name in models.split(",")], data.split(","), given)
    assert planned["models"] == models.split(",")


def test_the_table_has_a_row_for_each_setting() -> None:
    table = TEXT.partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    assert table[0] == f"| {' | '.join(HEAD)} |"
    for setting in SETTINGS:
        for examples in EXAMPLES[:2]:  # those of more take a minute each
            assert sum(line.startswith(f"| {setting.words} | {examples:,} |") for line in table) == 1


def test_a_row_is_told_with_what_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.statistics.TRIALS", 40)
    cells = row(Setting("RMSE", (1, 1), 0.3, others=True), 100).split(" | ")
    assert cells[0] == "| RMSE, of other seeds"
    assert len(cells) == len(HEAD)
    assert cells[5].endswith(" low")  # one seed does not hold the truth of others
