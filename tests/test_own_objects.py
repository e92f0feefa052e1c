"""Objects in memory that are not taken today are rejected in words, at every door, saying what is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import cutaway

OBJECTS: dict[str, Any] = {
    "DataFrame": pl.DataFrame({"a": [1]}),
    "ndarray": np.zeros((3, 2)),
    "Tensor": torch.zeros(3, 2),
    "TensorDataset": TensorDataset(torch.zeros(3, 2)),
    "Linear": nn.Linear(2, 2),
    "dict": {"a": [1]},
    "list": [1, 2],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    settings: dict[str, Any] = {"epochs": 1, "tensorboard": False, "model.hidden_dims": (2,)}
    return cutaway.train("mlp", "iris", out=tmp_path_factory.mktemp("own") / "r", **settings)


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("door", ["train", "a model", "evaluate", "load"])
def test_an_object_is_rejected_in_words(run: cutaway.Run, name: str, door: str) -> None:
    doors: dict[str, Callable[[Any], Any]] = {
        "train": lambda thing: cutaway.train("mlp", thing, target="a"),
        "a model": lambda thing: cutaway.train(thing, "iris"),
        "evaluate": run.evaluate,
        "load": cutaway.load,
    }
    with pytest.raises(cutaway.CutawayError, match=name):
        doors[door](OBJECTS[name])
    assert not Path("runs").exists()


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", ["Tensor", "TensorDataset", "Linear"])
def test_predict_takes_no_tensors(run: cutaway.Run, name: str, wrapped: bool) -> None:
    thing = OBJECTS[name]
    with pytest.raises(cutaway.CutawayError, match=f"is a {name}.*run.model" if name != "TensorDataset" else name):
        run.predict([thing] if wrapped else thing)


def test_predict_takes_one_file_too(run: cutaway.Run, tmp_path: Path) -> None:
    names = [f"{part} {what} (cm)" for part in ("sepal", "petal") for what in ("length", "width")]
    pl.DataFrame([pl.Series(name, [1.0]) for name in names]).write_csv(tmp_path / "new.csv")
    one = run.predict([tmp_path / "new.csv"])
    assert run.predict(str(tmp_path / "new.csv")) == one
    assert run.predict(iter([tmp_path / "new.csv"])) == one  # type: ignore[arg-type]
