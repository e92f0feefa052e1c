"""What follows training, for every kind of data, where metrics are undefined and where simple models are compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from torch import nn

import cutaway
from cutaway.training.run_folder import read_evaluation

from .conftest import Answer
from .degenerate_files import CASES, Case

Cli = Callable[..., Answer]
QUICK = ("max_steps=2", "batch_size=8", "tensorboard=false")


def strict(path: Path) -> Any:
    """A JSON document; NaN and Infinity, which Python would read, are errors."""

    def reject(word: str) -> NoReturn:
        raise AssertionError(f"{path} holds {word}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=reject)


@pytest.mark.parametrize("name", CASES)
def test_every_step_after_training_with_undefined_metrics(
    cli: Cli, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cutaway.experiments.compare.baselines.FRACTION", 1e9
    )  # simple models are fitted however short training was
    monkeypatch.setattr("cutaway.experiments.compare.baselines.FIRST", 4)  # and timed on a few examples first
    case: Case = CASES[name]
    case.make(tmp_path)
    trained = cli("train", case.model, *case.words, *QUICK, "--out", "run")
    assert trained.status == 0, trained.err
    assert (tmp_path / "run" / "report.html").is_file()
    for path in (tmp_path / "run").rglob("*.json"):
        strict(path)
    evaluation = read_evaluation(tmp_path / "run")
    assert evaluation is not None
    assert cli("report", "run").status == 0
    again = cli("evaluate", "run", "--json")
    assert again.status == 0, again.err
    assert json.loads(again.out, parse_constant=pytest.fail) == evaluation["metrics"]
    assert cli("evaluate", "run").status == 0
    if case.inputs:
        predicted = cli("predict", "run", *case.inputs, "--json")
        assert predicted.status == 0, predicted.err
        json.loads(predicted.out, parse_constant=pytest.fail)


@pytest.mark.parametrize(("name", "inputs", "given"), [
    ("constant", 24, {"forecast": "load", "horizon": 6, "lookback": 24}),
    ("bits", 2, {"target": "price"}),
])  # fmt: skip
def test_a_comparison_with_undefined_metrics(name: str, inputs: int, given: dict[str, Any], tmp_path: Path) -> None:
    case = CASES[name]
    case.make(tmp_path)

    def linear() -> nn.Module:  # made here, and so trained here: a model by its name is trained in another process
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, given.get("horizon", 1)))

    budget: dict[str, Any] = {"max_steps": 2, "batch_size": 8, "threads": 1, "seeds": 1}
    found = cutaway.compare([("own", linear)], str(tmp_path / case.words[0]), out=tmp_path / "c", **budget, **given)
    strict(tmp_path / "c" / "compare.json")
    assert {"own"} < {row["name"] for row in found.results[0]["models"]}
    assert found.report.is_file()
