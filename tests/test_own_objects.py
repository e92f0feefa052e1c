"""Objects in memory that are not data are rejected in words, at every door, saying what is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from torch import nn

import cutaway

OBJECTS: dict[str, Any] = {
    "Linear": nn.Linear(2, 2),
    "dict": {"a": [1]},
    "list": [1, 2],
    "set": {1, 2},
    "LazyFrame": pl.LazyFrame({"a": [1]}),
    "complex": torch.zeros(3, 2, dtype=torch.complex64),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    settings: dict[str, Any] = {"epochs": 1, "tensorboard": False, "model.hidden_dims": (2,)}
    return cutaway.train("mlp", "iris", out=tmp_path_factory.mktemp("own") / "r", **settings)


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("door", ["train", "plan", "search", "evaluate"])
def test_an_object_is_rejected_in_words(run: cutaway.Run, name: str, door: str) -> None:
    doors: dict[str, Callable[[Any], Any]] = {
        "train": lambda thing: cutaway.train("mlp", thing, target="a"),
        "plan": lambda thing: cutaway.plan("mlp", thing, target="a"),
        "search": lambda thing: cutaway.search("mlp", thing, target="a", lr="1e-3..1e-2"),
        "evaluate": run.evaluate,
    }
    with pytest.raises(cutaway.CutawayError, match=name):
        doors[door](OBJECTS[name])
    assert not Path("runs").exists()


@pytest.mark.parametrize("name", ["Linear", "dict", "list"])
def test_what_is_no_model_and_no_path_is_rejected_in_words(name: str) -> None:
    for door in (lambda thing: cutaway.train(thing, "iris"), cutaway.load):
        with pytest.raises(cutaway.CutawayError, match=name):
            door(OBJECTS[name])


def test_predict_takes_rows_of_the_width_of_training(run: cutaway.Run) -> None:
    with pytest.raises(cutaway.CutawayError, match=r"torch\.Linear"):
        run.predict(OBJECTS["Linear"])
    with pytest.raises(cutaway.CutawayError, match="columns that the table lacks: 'sepal length"):
        run.predict(torch.zeros(3, 4))  # which has no names


def test_predict_takes_one_file_too(run: cutaway.Run, tmp_path: Path) -> None:
    names = [f"{part} {what} (cm)" for part in ("sepal", "petal") for what in ("length", "width")]
    pl.DataFrame([pl.Series(name, [1.0]) for name in names]).write_csv(tmp_path / "new.csv")
    one = run.predict([tmp_path / "new.csv"])
    assert run.predict(str(tmp_path / "new.csv")) == one
    assert run.predict(iter([tmp_path / "new.csv"])) == one  # type: ignore[arg-type]
    assert run.predict(pl.read_csv(tmp_path / "new.csv")) == [{**one[0], "input": "row 1"}]  # type: ignore[arg-type]
