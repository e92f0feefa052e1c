"""The boundary view: its maps are the model's answers, its axes the person's units, and it is small."""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import cutaway
from cutaway.core.errors import SettingError, UnknownName
from cutaway.models.registry import create_model
from cutaway.nn.activations import ACTIVATIONS
from cutaway.views.learned_function import LEVELS, SIZE, SMALL, draw_boundary, features, plane
from cutaway.views.registry import suits
from cutaway.views.subject import Subject, open_model, open_run

from ..small import small
from .suited import suited

QUIET = {"model.dropout": 0.0}


def values(level: dict[str, Any], size: int) -> Tensor:
    """A map as numbers, (size, size)."""
    bytes_ = np.frombuffer(base64.b64decode(level["bytes"]), np.uint8).astype(np.float64)
    return torch.from_numpy(level["low"] + bytes_ / LEVELS * (level["high"] - level["low"])).view(size, size)


def step(level: dict[str, Any]) -> float:
    """What one byte stands for."""
    return (level["high"] - level["low"]) / LEVELS


def subject_of(name: str, count: int = 2) -> Subject:
    """A preset, small, with random examples."""
    model, inputs = small(name, count)
    return open_model(model, *inputs)


def test_dense_models_of_tables_alone_have_a_boundary() -> None:
    assert {*suited("boundary")} == {"mlp", "linear", "logistic", "softmax", "perceptron"}
    assert not suits("boundary", open_model(create_model("mlp", in_features=1), torch.randn(2, 1)))
    assert not suits("boundary", open_model(create_model("mlp", in_features=64), torch.randn(2, 1, 8, 8)))


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_any_network_is_drawn(activation: str, norm: str, classes: int) -> None:
    model = create_model(
        "mlp", in_features=2, num_classes=classes, hidden_dims=(5, 3), activation=activation, norm=norm
    )
    subject = open_model(model.double(), torch.randn(3, 2, dtype=torch.float64))
    found = draw_boundary(subject)
    json.dumps(found, allow_nan=False)
    columns = found["drawings"][0]["columns"]
    assert [len(c["neurons"]) for c in columns] == [2, 5, 3, classes]
    assert [np.shape(c["weights"]) for c in columns[1:]] == [(5, 2), (3, 5), (classes, 3)]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), x=st.floats(0, 0.999), y=st.floats(0, 0.999))
def test_the_maps_are_what_the_model_says_there(seed: int, x: float, y: float) -> None:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model: Any = create_model("mlp", in_features=2, num_classes=2, hidden_dims=(4,), activation="tanh").eval()
        subject = open_model(model, torch.randn(20, 2))
    drawing = draw_boundary(subject)["drawings"][0]
    for size, of in ((SIZE, "answer"), (SMALL, "neuron")):
        i, j = int(y * size), int(x * size)
        (left, right), (low, high) = ((axis["low"], axis["high"]) for axis in drawing["axes"])
        place = torch.tensor([[left + (j + 0.5) / size * (right - left), high - (i + 0.5) / size * (high - low)]])
        with torch.no_grad():
            if of == "answer":
                p = model(place).softmax(1)[0, 1]
                assert values(drawing["answer"], size)[i, j].item() == pytest.approx(2 * p.item() - 1, abs=0.012)
                continue
            hidden = model.features(place)[0]
            for neuron, expected in zip(drawing["columns"][1]["neurons"], hidden, strict=True):
                assert values(neuron, size)[i, j].item() == pytest.approx(expected.item(), abs=step(neuron) + 2e-3)


def test_the_zeros_of_signed_maps_are_exact() -> None:
    model = create_model("perceptron", in_features=2).eval()  # its weights begin at zero
    drawing = draw_boundary(open_model(model, torch.randn(5, 2)))["drawings"][0]
    assert values(drawing["answer"], SIZE).abs().max() == 0
    assert drawing["answer"]["kind"] == "score"


def run_of(tmp_path: Path, model: str, data: Any, **settings: Any) -> cutaway.runs.run.Run:
    return cutaway.train(model, data, epochs=1, out=tmp_path / "run", **settings)


@pytest.mark.parametrize(
    ("model", "data", "kind"),
    [
        ("mlp", "moons", "probability"),
        ("mlp", "spirals", "classes"),
        ("perceptron", "moons", "score"),
        ("linear", "diabetes", "value"),
    ],
)
def test_runs_keep_within_the_stream(tmp_path: Path, model: str, data: str, kind: str) -> None:
    deep = {"model.hidden_dims": "8,8", **QUIET} if model == "mlp" else {}
    subject = open_run(run_of(tmp_path, model, data, **deep))
    found = draw_boundary(subject)
    drawing = found["drawings"][0]
    assert len(json.dumps(drawing)) < 60_000
    assert drawing["answer"]["kind"] == kind
    assert [points["split"] for points in drawing["points"]] == ["train", "test"]
    assert all(len(points["at"]) == len(points["is"]) for points in drawing["points"])


@pytest.mark.parametrize("scale", ["standard", "quantile", "none"])
def test_axes_are_in_the_persons_units(tmp_path: Path, scale: str) -> None:
    """Whatever was done to a column before the model: its axis goes over its own values, and so do the points."""
    run = run_of(tmp_path, "mlp", "iris", scale=scale, **QUIET)
    subject = open_run(run, options={"features": "petal length (cm),petal width (cm)"})
    drawing = draw_boundary(subject)["drawings"][0]
    assert [axis["name"] for axis in drawing["axes"]] == ["petal length (cm)", "petal width (cm)"]
    assert 0 < drawing["axes"][0]["low"] <= 1.1
    assert 6.6 <= drawing["axes"][0]["high"] < 7.6
    part = subject.data.splits["test"] if subject.data else None
    assert part is not None
    for (x, y), i in zip(drawing["points"][1]["at"], range(len(part)), strict=False):
        row = part.row(i)
        assert row is not None
        assert x == pytest.approx(float(row["petal length (cm)"]), abs=0.01)
        assert y == pytest.approx(float(row["petal width (cm)"]), abs=0.01)
    assert drawing["note"].startswith("Fixed: sepal length (cm) = 5.")


def test_the_grid_is_the_model_in_its_own_inputs(tmp_path: Path) -> None:
    """A row typed by hand at a place of the plane, with the held values, is answered as the map says."""
    run = run_of(tmp_path, "softmax", "iris")
    subject = open_run(run)
    on = plane(subject)
    cell = on.grid(SIZE)[7 * SIZE + 31]
    (x0, x1), (y0, y1) = on.bounds
    x, y = x0 + 31.5 / SIZE * (x1 - x0), y1 - 7.5 / SIZE * (y1 - y0)
    row = {"sepal length (cm)": x, "sepal width (cm)": y}
    for said in on.held:
        name, value = said.rsplit(" = ", 1)
        row[name] = float(value)
    expected = run.preprocessing.examples([row]).batches([torch.tensor([0])])
    assert torch.allclose(cell, next(iter(expected)).inputs[0][0], atol=2e-3)


def test_categories_are_held_at_the_commonest(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "age": [float(i % 50) for i in range(80)],
            "colour": ["red" if i % 3 else "blue" for i in range(80)],
            "income": [float((7 * i) % 31) for i in range(80)],
            "buys": ["yes please" if (i % 50) + (7 * i) % 31 > 40 else "no" for i in range(80)],
        }
    )
    path = tmp_path / "shop.csv"
    frame.write_csv(path)
    run = run_of(tmp_path, "mlp", str(path), target="buys")
    drawing = draw_boundary(open_run(run))["drawings"][0]
    assert [axis["name"] for axis in drawing["axes"]] == ["age", "income"]
    assert drawing["note"] == "Fixed: colour=red."
    with pytest.raises(UnknownName, match="column of numbers 'colour'"):
        draw_boundary(open_run(run, options={"features": "age,colour"}))
    for wrong in ("age", "age,age", "age,income,age"):
        with pytest.raises(SettingError, match=r"must be two columns, e.g. features=age,income"):
            draw_boundary(open_run(run, options={"features": wrong}))


def test_without_data_the_axes_are_the_inputs() -> None:
    model, inputs = small("mlp")
    subject = open_model(model, *inputs)
    assert [f.name for f in features(subject)][:2] == ["x1", "x2"]
    found = draw_boundary(dataclasses.replace(subject, options={"features": "x5,x2"}))
    drawing = found["drawings"][0]
    assert [axis["name"] for axis in drawing["axes"]] == ["x5", "x2"]
    assert drawing["columns"][1]["sources"] == [4, 1]
    weights = model.get_submodule("hidden.0.linear").weight
    assert drawing["columns"][1]["weights"][0] == pytest.approx(weights[0, [4, 1]].tolist(), rel=1e-3)


def test_one_example_is_enough() -> None:
    for name in ("mlp", "perceptron", "linear"):
        json.dumps(draw_boundary(subject_of(name, count=1)), allow_nan=False)


def test_dates_and_yes_and_no_are_held_at_what_a_cell_can_hold(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    days = [f"2015-03-{1 + i % 28:02}" for i in range(60)]
    table = pl.DataFrame(
        {
            "a": draw.normal(size=60),
            "b": draw.normal(size=60),
            "day": days,
            "member": ["yes" if i % 3 else "no" for i in range(60)],
            "c": ["x" if i % 2 else "y" for i in range(60)],
        }
    )
    table.write_csv(tmp_path / "t.csv")
    run = cutaway.train("mlp", tmp_path / "t.csv", target="c", epochs=1, out=tmp_path / "run", tensorboard=False)
    held = draw_boundary(open_run(run))["drawings"][0]["note"]
    assert "day = 2015-03-" in held
    assert "member = yes" in held
