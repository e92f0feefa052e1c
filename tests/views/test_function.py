"""The function over one number: what the model says, and neurons that add up to it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

import cutaway
from cutaway.core.errors import UnknownName
from cutaway.runs.run import Run
from cutaway.views import learned_function
from cutaway.views.learned_function import line
from cutaway.views.registry import suits
from cutaway.views.subject import Subject, open_model, open_run

from ..small import small

QUICK = {"epochs": 2, "tensorboard": False, "threads": 1, "model.dropout": 0.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One hidden layer after a few steps on the curve."""
    given = {**QUICK, "model.hidden_dims": (5,), "model.activation": "tanh"}
    return cutaway.train("mlp", "wave", out=tmp_path_factory.mktemp("function") / "run", **given)


def opened(run: Run, **options: str) -> Subject:
    return dataclasses.replace(open_run(run), options=options)


def test_the_neurons_add_up_to_what_the_run_predicts(run: Run) -> None:
    found = learned_function.draw_function(opened(run))
    curve, neurons = found["drawings"]
    model = curve["series"][-1]["points"]
    said = [row["y"] for row in run.predict([{"x": x} for x, _ in model])]
    assert [y for _, y in model] == pytest.approx(said, abs=1e-3)
    summed = torch.tensor([[y for _, y in one["points"]] for one in neurons["series"]]).sum(0)
    rest = torch.tensor([y for _, y in model]) - summed  # the bias, and the means of the neurons
    assert len(neurons["series"]) == 5
    assert torch.allclose(rest, rest.mean().expand_as(rest), atol=1e-3)
    assert "5 neurons sum to the curve" in found["summary"]
    assert [series["name"] for series in curve["series"]] == ["training", "test", "model"]
    held_out = run.data().splits["test"]
    assert len(curve["series"][1]["points"]) == len(held_out) == 150


def test_one_feature_is_an_axis_and_the_others_are_held(tmp_path: Path) -> None:
    run = cutaway.train("mlp", "diabetes", out=tmp_path / "run", **QUICK)
    found = learned_function.draw_function(opened(run, feature="bmi"))
    assert len(found["drawings"]) == 1  # two hidden layers: neurons do not simply add up
    assert found["drawings"][0]["x"] == "bmi"
    assert "Fixed: age = " in found["summary"]
    on = line(opened(run, feature="bmi"))
    x, inputs = on.grid(5)
    assert on.axis.values(inputs[:, on.axis.place].double()).tolist() == pytest.approx(x.tolist(), rel=1e-5)
    assert (inputs.std(0) > 0).sum() == 1
    with pytest.raises(UnknownName, match="bmi"):
        learned_function.draw_function(opened(run, feature="bmy"))


def test_networks_that_say_no_number_have_no_such_view(tmp_path: Path) -> None:
    assert not suits("function", opened(cutaway.train("mlp", "moons", out=tmp_path / "run", **QUICK)))
    for name in ("lenet5-modern", "gpt2"):
        model, inputs = small(name)
        assert not suits("function", open_model(model, *inputs))
