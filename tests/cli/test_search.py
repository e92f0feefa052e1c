"""cutaway search as it is typed: the table, JSON, eighty columns, and what cannot be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cutaway.apps.cli import main

TYPED = [
    "search",
    "mlp",
    "iris",
    "lr=1e-3..1e-1:log",
    "model.hidden_dims=4..16",
    "epochs=2",
    "trials=3",
    "tensorboard=no",
]


def test_the_table_and_the_winner_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TYPED, "--out", str(tmp_path / "s")]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("3 trials: 3 finished. Best trials, on the validation split:\n")
    assert re.search(r"trial +accuracy +MACs +lr +hidden_dims", said.out)
    assert "test accuracy" in said.out
    assert f"run     {tmp_path}/s/best" in said.out
    assert f"search  {tmp_path}/s/report.html" in said.out
    lines = said.err.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["0", "1", "2"]
    assert "lr=" in lines[0]
    assert (tmp_path / "s" / "report.html").is_file()

    assert main(["evaluate", str(tmp_path / "s" / "best")]) == 0
    assert main(["report", str(tmp_path / "s")]) == 0
    assert main(["search", "--resume", str(tmp_path / "s"), "trials=4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out.partition("\n{")[2].join(("{", "")))
    assert len(document["trials"]) == 4
    assert document["metric"] == "accuracy"
    assert document["test"]["accuracy"]["value"] <= 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["search"], "Missing model, data or range"),
        (["search", "mlp", "iris", "lr=1e-2..1e-3"], "empty range"),
        (["search", "mlp", "iris", "lr=1e-3..1e-2", "lr=0.1"], "lr is given twice, lr=1e-3..1e-2 and lr=0.1"),
        (["search", "mlp", "iris", "lrr=1..2"], "Similar: lr"),
        (["search", "mlp", "iris", "lr=0.1..0.2", "val=0"], "Invalid val=0"),
        (["search", "mlp", "iris", "lr=0.1..0.2", "trials=0"], "at least 1"),
        (["search", "mlp", "iris", "lr=0.1..0.2", "out=x"], "use --out DIR"),
        (["search", "mpl", "iris", "lr=0.1..0.2"], "no model 'mpl'"),
        (["search", "mlp", "irs", "lr=0.1..0.2"], "irs"),
        (["search", "--resume", "nowhere"], "There is no search 'nowhere'"),
        (["tune", "mlp"], "use `cutaway search`"),
    ],
)
def test_bad_input_is_a_paragraph(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in " ".join(error.split())
    assert "Traceback" not in error
    assert not (tmp_path / "runs").exists()


def test_every_setting_of_a_search_is_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    from cutaway.core.config import field_names
    from cutaway.experiments.settings import SearchSettings

    assert main(["search", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {key}=" in said for key in field_names(SearchSettings))
    assert all(len(line) <= 80 for line in said.splitlines())
