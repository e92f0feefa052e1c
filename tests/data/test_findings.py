"""Labels that a person reads as the same, classes that a split lacks, and where findings are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cutaway.apps.cli import main
from cutaway.core.spec import Classes, Value
from cutaway.data.findings import Finding, missing_class_findings, similar_class_findings


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
    assert f"Found in the data: {finding}" in capsys.readouterr().err
    assert json.loads(Path("r/run.json").read_text())["data"]["findings"] == [finding]
    assert finding in Path("r/report.html").read_text()
