"""Labels that a person reads as the same, classes that a split lacks, and where findings are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cutaway.apps.cli import main
from cutaway.core.spec import Classes, Value
from cutaway.data.findings import (
    BRIEF,
    Finding,
    missing_class_findings,
    near_duplicate_warning,
    shorten_finding,
    similar_class_findings,
    terminal_lines,
)


@pytest.mark.parametrize(
    "names",
    [
        ("Cat", "cat"),
        ("caf\u00e9", "cafe\u0301"),
        ("cat", "ca\u200bt"),
        ("cat", "cat\u00a0"),
        ("1", "1.0"),
        ("stra\u00dfe", "STRASSE"),
        ("New York", "NewYork"),
    ],
)
def test_labels_that_read_alike(names: tuple[str, str]) -> None:
    (finding,) = similar_class_findings(Classes((*names, "dog")))
    assert isinstance(finding, Finding)
    assert "read alike" in finding
    assert "'dog'" not in finding


def test_labels_that_do_not() -> None:
    assert similar_class_findings(Classes(("cat", "cats", "1", "10", "a-b", "a b c"))) == []
    assert similar_class_findings(Value("price", 0.0, 1.0)) == []


def test_classes_that_a_split_lacks() -> None:
    (finding,) = missing_class_findings(
        {"train": torch.tensor([0, 1]), "test": torch.tensor([1, 1])}, Classes(("a", "b"))
    )
    assert finding == "No example in test has the class 'a': it is not measured there."


def test_findings_are_told_before_training_by_check_and_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i / 4},{i % 2},{'yes' if i % 2 else 'no'}\n" for i in range(80))
    Path("t.csv").write_text(f"x,alive,survived\n{rows}")
    ask = ("mlp", "t.csv", "target=survived")
    assert main(["check", *ask]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 finding in the data: Column alive alone gives the target survived in 80 of 80 rows." in said
    assert "No problems found" not in said
    assert main(["check", *ask, "--json"]) == 0
    (finding,) = json.loads(capsys.readouterr().out)["data"]["findings"]
    assert main(["check", *ask, "ignore=alive"]) == 0
    assert "No problems found in the data." in capsys.readouterr().out
    assert main(["train", *ask, "epochs=1", "tensorboard=false", "model.hidden_dims=2", "--out", "r"]) == 0
    assert f"Found in the data: {shorten_finding(finding)}" in capsys.readouterr().err
    assert json.loads(Path("r/run.json").read_text())["data"]["findings"] == [finding]
    assert finding in Path("r/report.html").read_text()


def test_a_finding_is_one_line_with_its_fix_in_a_terminal() -> None:
    found = [
        near_duplicate_warning(
            [("a (val)", "b (train)")] * 9, {"val": 28}, {"val": 226}, "texts", "share words with", True
        ),
        Finding(
            "Rows of one group of column site are in several splits: 40 of 50 groups are in several splits, and rows "
            "of a group are alike (35% of nearest rows, beyond chance), such as a.b: 3 rows; c. A score says little of "
            "new ones: group=site keeps each in one split."
        ),
        Finding(
            "Possible target leakage by column fee: on 900 training rows, it alone explains 99% of price, all others "
            "together 3%. If it is made from the target, or set after the event, leave it out: ignore=fee."
        ),
        Finding("No example in val has the class 'x': it is not measured there."),
        Finding(f"Column {'very_' * 40}long is odd. Leave it out: ignore=fee."),
    ]
    lines = terminal_lines([one for one in found if one is not None])
    assert lines[0] == (
        "Possible leakage: 28 of 226 checked texts of val are near-duplicates of an earlier split. Remove them or set "
        "group=COLUMN."
    )
    assert lines[1].endswith(" group=site keeps each in one split.")
    assert "such as" not in lines[1]
    assert lines[2].endswith("Try ignore=fee.")
    assert lines[3] == "No example in val has the class 'x': it is not measured there."
    assert lines[4].endswith(" … Try ignore=fee.") or lines[4].endswith("Try ignore=fee.")
    assert all(len(line) <= BRIEF and "\n" not in line for line in lines)
    many = terminal_lines([Finding(f"Problem {i}.") for i in range(8)])
    assert many == [*(f"Problem {i}." for i in range(5)), "and 3 more in the report"]
