"""Back-propagation by numbers equals autograd, for every network of dense layers that can be built."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import cutaway
from cutaway.core.errors import SettingError
from cutaway.core.spec import Classes, TableSpec
from cutaway.models.registry import create_model
from cutaway.nn.activations import ACTIVATIONS
from cutaway.tasks.task import task_for
from cutaway.views.backprop import SHOWN, draw_backprop, propagate
from cutaway.views.registry import suits
from cutaway.views.subject import Subject, open_model, open_run

from ..small import small


def opened(model: nn.Module, x: torch.Tensor, target: torch.Tensor | None = None) -> Subject:
    """A model with examples and, with a target, the task of telling three classes apart."""
    subject = open_model(model, x)
    if target is None:
        return subject
    spec = TableSpec(tuple(f"c{i}" for i in range(x.shape[1])), Classes(("a", "b", "c")))
    return dataclasses.replace(subject, task=task_for(spec), target=target)


def randomized(model: nn.Module, seed: int) -> nn.Module:
    """The model with all numbers drawn anew, statistics too: none is where it began."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, values in [*model.named_parameters(), *model.named_buffers()]:
            if values.is_floating_point():
                drawn = torch.randn(values.shape, generator=generator, dtype=values.dtype)
                values.copy_(drawn.square() + 0.1 if name.endswith("running_var") else drawn)
    return model


@settings(max_examples=60, deadline=None)
@given(
    hidden=st.lists(st.integers(1, 6), max_size=3),
    activation=st.sampled_from([name for name in ACTIVATIONS if name != "step"]),
    norm=st.sampled_from(["none", "batch", "layer"]),
    bias=st.booleans(),
    inputs=st.integers(1, 5),
    seed=st.integers(0, 10_000),
    known=st.booleans(),
)
def test_numbers_equal_autograd(
    hidden: list[int], activation: str, norm: str, bias: bool, inputs: int, seed: int, known: bool
) -> None:
    model: Any = create_model(
        "mlp", in_features=inputs, num_classes=3, hidden_dims=tuple(hidden), activation=activation, norm=norm, bias=bias
    )
    randomized(model.double(), seed).eval()
    x = torch.randn(1, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    one = opened(model, x, torch.tensor([seed % 3]) if known else None)
    layers, loss = propagate(one)

    sums: dict[str, torch.Tensor] = {}
    names = {layer.name for layer in layers}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: torch.Tensor) -> None:
            output.retain_grad()
            sums[name] = output

        return hook

    handles = [m.register_forward_hook(keep(n)) for n, m in model.named_modules() if n in names]
    expected = one.loss()
    expected.backward()
    for handle in handles:
        handle.remove()

    assert loss == pytest.approx(expected.item(), rel=1e-9)
    for layer in layers:
        linear: Any = model.get_submodule(layer.name)
        close = {"rtol": 1e-6, "atol": 1e-9}
        assert torch.allclose(layer.z, sums[layer.name][0], **close)
        assert torch.allclose(layer.delta, sums[layer.name].grad[0], **close)
        assert torch.allclose(layer.weight_gradient, linear.weight.grad, **close)
        if linear.bias is not None:  # which batch normalization would take off again
            assert torch.allclose(layer.delta, linear.bias.grad, **close)


@pytest.mark.parametrize("name", ["mlp", "linear", "logistic", "softmax", "perceptron"])
def test_presets_unfold(name: str) -> None:
    model, inputs = small(name)
    subject = open_model(model, *inputs)
    assert suits("backprop", subject)
    found = draw_backprop(subject)
    json.dumps(found, allow_nan=False)
    for layer in found["drawings"][0]["layers"]:
        assert len(layer["neurons"]) <= SHOWN


def test_sums_add_up_though_only_some_are_shown() -> None:
    """Of a wide layer what is not shown is one term, so that every sum can be followed to the end."""
    model: Any = create_model("mlp", in_features=20, num_classes=12, hidden_dims=(30, 15), dropout=0.0).double()
    subject = open_model(model, torch.randn(1, 20, dtype=torch.float64))
    layers = draw_backprop(subject)["drawings"][0]["layers"]
    for before, layer in itertools.pairwise(layers):
        for row, neuron in zip(layer["weights"], layer["neurons"], strict=True):
            products = [w * n["a"] for w, n in zip(row, before["neurons"], strict=True)]
            assert sum(products) + neuron["rest"] + neuron["bias"] == pytest.approx(neuron["z"], abs=2e-3)
    for layer, behind in itertools.pairwise(layers[1:]):
        for j, neuron in enumerate(layer["neurons"]):
            blame = [row[j] * n["delta"] for row, n in zip(behind["weights"], behind["neurons"], strict=True)]
            assert sum(blame) + neuron["back_rest"] == pytest.approx(neuron["back"], abs=2e-3)
            assert neuron["back"] * neuron["slope"] == pytest.approx(neuron["delta"], abs=2e-3)


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_sums_are_normalized_only_where_the_model_normalizes(norm: str) -> None:
    model = create_model("mlp", in_features=4, num_classes=2, hidden_dims=(3,), norm=norm)
    _, hidden, output = draw_backprop(open_model(model, torch.randn(1, 4)))["drawings"][0]["layers"]
    assert all(("normalized" in neuron) == (norm != "none") for neuron in hidden["neurons"])
    assert not any("normalized" in neuron for neuron in output["neurons"])


def test_a_gradient_is_delta_times_what_came_in() -> None:
    model, inputs = small("mlp")
    layers = draw_backprop(open_model(model, *inputs))["drawings"][0]["layers"]
    for before, layer in itertools.pairwise(layers):
        for row, neuron in zip(layer["gradients"], layer["neurons"], strict=True):
            for gradient, source in zip(row, before["neurons"], strict=True):
                assert gradient == pytest.approx(neuron["delta"] * source["a"], rel=2e-3, abs=1e-6)


def test_a_run_says_what_the_example_is(tmp_path: Path) -> None:
    settings_ = {"model.hidden_dims": "3", "model.dropout": 0.0}
    run = cutaway.train("mlp", "moons", epochs=1, out=tmp_path / "run", **settings_)
    found = draw_backprop(open_run(run, options={"example": "2"}))
    assert "softmax(z) − t" in found["summary"]
    layers = found["drawings"][0]["layers"]
    assert [n["name"] for n in layers[0]["neurons"]] == ["x1", "x2"]
    assert layers[-1]["neurons"][0]["how"].endswith((" − 0", " − 1"))
    with pytest.raises(SettingError, match="Invalid example=99: must be an integer from 0 to 7"):
        draw_backprop(open_run(run, options={"example": "99"}))


def test_the_error_of_a_network_that_is_all_but_sure_is_not_rounded_away() -> None:
    model = create_model("mlp", in_features=2, num_classes=3, hidden_dims=(2,))
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([20.0, 0.0, 0.0]))
    summary = draw_backprop(opened(model, torch.ones(1, 2), torch.tensor([0])))["summary"]
    assert summary.startswith("The loss is 4.12×10⁻⁹, ")  # 2 e⁻²⁰; in float32 it is 0


def test_gradients_of_the_model_are_not_touched() -> None:
    model, inputs = small("mlp")
    model.train()
    draw_backprop(open_model(model, *inputs))
    assert all(p.grad is None for p in model.parameters())
