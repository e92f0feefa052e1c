"""The layer table of any module, in words."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import cutaway
from cutaway.core.errors import ModelError
from cutaway.core.spec import GraphSpec, Value
from cutaway.inspect.example_inputs import inputs_like
from cutaway.inspect.layers import layer_table
from tests.small import small


def stack() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10))


def test_a_module_is_told_layer_by_layer_for_one_example_of_the_batch() -> None:
    module = stack()
    module.train()
    found = cutaway.describe(module, torch.randn(5, 1, 8, 8))
    assert module.training
    assert found.parameters == 80 + 1290
    assert found.multiply_adds == 8 * 9 * 64 + 1280
    lines = repr(found).splitlines()
    assert lines[0] == "Sequential"
    assert lines[2].split() == ["0", "Conv2d", "8×8×8", "80", "4", "608", "3"]
    assert lines[-3].startswith("in all")
    assert max(map(len, lines)) <= 80


def test_the_table_in_a_notebook_has_the_same_cells() -> None:
    found = cutaway.describe(nn.Sequential(nn.Linear(3, 2)), torch.randn(1, 3))
    page = found._repr_html_()
    assert page.count("<tr>") == 3
    for cell in ("Linear", ">8<", ">6<", "one example of shape 3"):
        assert cell in page
    assert "sees" not in page  # nothing has a receptive field


def test_a_model_of_the_catalog_is_described_as_show_has_it() -> None:
    model, inputs = small("resnet18", count=1)
    assert cutaway.describe(model, inputs[0]).layers == layer_table(model, *inputs)


def test_a_graph_stays_whole() -> None:
    model, _ = small("gcn")
    inputs = inputs_like(GraphSpec(model.config.in_features, Value()))  # type: ignore[union-attr, arg-type]
    assert "a graph of shape 100×" in repr(cutaway.describe(model, inputs))


def test_what_cannot_be_described_is_told() -> None:
    with pytest.raises(ModelError, match=r"Sequential does not accept an example of shape 3×8×8: .*1 channels"):
        cutaway.describe(stack(), torch.randn(2, 3, 8, 8))
    with pytest.raises(ModelError, match="Invalid model of type str"):
        cutaway.describe("lenet5", torch.randn(2, 3))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="Invalid example 'x': must be tensors"):
        cutaway.describe(stack(), ["x"])  # type: ignore[list-item]
