"""What `cutaway check` says of data that make scores lie, on a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from cutaway.apps.cli import plan

FINDINGS = [
    "Possible leakage by duplicates across splits: 5 of 55 rows in val and 2 of 54 rows in test equal one of an "
    "earlier split in every input, for example line 3 of t.csv (val) = line 338 of t.csv (train). Remove the copies.",
    "Column [red]tag[/] alone gives the target away: leave it out.",
]


def test_findings_stand_apart_and_are_set_in(monkeypatch: pytest.MonkeyPatch) -> None:
    said = StringIO()
    out = Console(file=said, force_terminal=True, width=80, color_system=None, highlight=False)
    monkeypatch.setattr("cutaway.apps.cli.output.console", lambda: out)
    plan._print_findings(FINDINGS, 7)
    lines = [line.rstrip() for line in said.getvalue().splitlines()]
    assert lines[1:3] == ["2 findings in the data:", ""]
    assert lines[3].startswith("1  Possible leakage by duplicates across splits: 5 of 55 rows")
    assert all(line.startswith("   ") for line in lines[4:6])
    assert "2  Column [red]tag[/] alone gives the target away: leave it out." in lines
    assert lines[-1] == "--json lists all 7 examples."
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0011, "1.1 ms"), (0.3704, "370 ms"), (0.9996, "1 s"), (4.16, "4.2 s")]
)
def test_the_time_of_a_step_has_no_exponent(seconds: float, said: str) -> None:
    assert plan._format_step_time(seconds) == said
