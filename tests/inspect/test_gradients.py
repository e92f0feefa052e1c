"""The flow of gradients: sizes as computed by hand, and a model that is left as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway import create_model
from cutaway.core.errors import ModelError, SettingError
from cutaway.inspect.gradient_flow import flow
from cutaway.models.base import as_output_tuple
from tests.inspect.test_probes import traces
from tests.small import DIFFERENT, small


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_preset_has_a_flow_and_keeps_its_gradients(name: str) -> None:
    model, inputs = small(name)
    model.train()
    before = copy.deepcopy(model.state_dict())

    def loss() -> Tensor:
        return as_output_tuple(model(*inputs))[0].square().mean()

    layers = flow(model, loss)
    assert not traces(model)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values()))
    assert model.training
    owners = {k for k, m in model.named_modules() if any(True for _ in m.parameters(recurse=False)) and k}
    ran = {layer.name for layer in layers if layer.type != "relu"}
    assert ran <= owners | {""}
    assert ran
    for layer in layers:
        for value in (layer.activation, layer.gradient, layer.weight, layer.update):
            assert value is None or value >= 0
        assert layer.dead is None or 0 <= layer.dead <= 1


@pytest.mark.parametrize("name", ["mlp", "resnet20", "lstm", "gpt2", "gat", "textcnn"])
def test_weights_and_their_gradients_are_autograds(name: str) -> None:
    model, inputs = small(name)
    found = {layer.name: layer for layer in flow(model, lambda: model(*inputs).square().mean(), lr=0.5)}
    model(*inputs).square().mean().backward()
    for key, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if p.grad is not None]
        if own and key in found:
            gradient = torch.cat([p.grad.flatten() for p in own]).norm()
            weight = torch.cat([p.detach().flatten() for p in module.parameters(recurse=False)]).norm()
            assert found[key].weight_gradient == pytest.approx(float(gradient), rel=1e-4)
            assert found[key].weight == pytest.approx(float(weight), rel=1e-4)
            assert found[key].update == pytest.approx(0.5 * float(gradient), rel=1e-4)
            if weight > 0:
                assert found[key].ratio == pytest.approx(0.5 * float(gradient / weight), rel=1e-4)


class Small(nn.Module):
    """Two layers by hand: y = w₂ ReLU(W x + b)."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.first, self.second, self.inplace = nn.Linear(2, 3), nn.Linear(3, 1, bias=False), inplace
        with torch.no_grad():
            self.first.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
            self.first.bias.zero_()
            self.second.weight.copy_(torch.tensor([[2.0, 3.0, 5.0]]))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x), inplace=self.inplace))


@pytest.mark.parametrize("inplace", [False, True])
def test_by_hand(inplace: bool) -> None:
    """x = (1, 2) and (3, 0): W x = (1, 2, −3) and (3, 0, −3); y = 8 and 6; L = Σ y."""
    model, x = Small(inplace), torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    first, second = flow(model, lambda: model(x).sum(), lr=0.1)
    assert (first.name, first.type, second.name) == ("first", "Linear", "second")
    assert first.activation == pytest.approx(((1 + 4 + 9 + 9 + 0 + 9) / 6) ** 0.5)
    # ∂L/∂z is (2, 3, 0) and (2, 0, 0): at 0 the gradient of ReLU is 0
    assert first.gradient == pytest.approx(((4 + 9 + 4) / 6) ** 0.5)
    # ∂L/∂W: (2·1 + 2·3, 2·2), (3·1, 3·2), 0; ∂L/∂b: (4, 3, 0)
    assert first.weight_gradient == pytest.approx((64 + 16 + 9 + 36 + 16 + 9) ** 0.5)
    assert first.weight == pytest.approx(2.0)
    assert first.update == pytest.approx(0.1 * 150**0.5)
    assert first.ratio == pytest.approx(0.05 * 150**0.5)
    assert (first.dead, first.units) == (pytest.approx(1 / 3), 3)
    assert second.gradient == pytest.approx(1.0)
    assert (second.dead, second.units) == (None, None)
    adam, _ = flow(model, lambda: model(x).sum(), lr=0.1, rule="adam")
    assert adam.update == pytest.approx(0.1 * 6**0.5)  # of nine numbers six have a gradient


def test_dead_units_are_channels_of_maps_and_sums_have_their_own_row() -> None:
    torch.manual_seed(0)
    model = create_model("resnet20", layers=(1,), num_classes=3).eval()
    with torch.no_grad():
        model.bn1.bias[:4] = -100.0  # of 16 channels
    found = {layer.name: layer for layer in flow(model, lambda: model(torch.randn(2, 3, 16, 16)).sum())}
    assert found["bn1"].dead == pytest.approx(4 / 16)
    assert found["conv1"].dead is None
    assert found["layer1.0.relu()"].type == "relu"
    assert found["layer1.0.relu()"].weight is None
    assert found["layer1.0.relu()"].ratio is None
    assert found["layer1.0.relu()"].gradient is not None


def test_a_recurrent_layer_whose_last_state_is_read_has_a_gradient() -> None:
    model = create_model("lstm", hidden_dim=4, num_classes=2)
    x = torch.randn(3, 6, 1)
    layer = next(layer for layer in flow(model, lambda: model(x).sum()) if layer.name == "rnn")
    gradient = model.head.weight.detach().sum(0).norm() * 3**0.5
    assert layer.gradient == pytest.approx(float(gradient) / (3 * 6 * 4) ** 0.5, rel=1e-5)


def test_frozen_layers_and_untouched_ones_say_so() -> None:
    model = Small(False)
    model.first.requires_grad_(False)
    first, _ = flow(model, lambda: model(torch.ones(1, 2)).sum())
    assert (first.gradient, first.weight_gradient, first.update, first.ratio) == (None, None, None, None)
    assert first.weight == pytest.approx(2.0)
    model.requires_grad_(False)
    with pytest.raises(ModelError, match="depends on trainable weights"):
        flow(model, lambda: model(torch.ones(1, 2)).sum())


@pytest.mark.parametrize("wrong", [lambda y: y, lambda y: 3.0, lambda y: y.detach().sum()])
def test_a_loss_is_one_number(wrong: Any) -> None:
    model = Small(False)
    with pytest.raises(ModelError, match="must be a scalar"):
        flow(model, lambda: wrong(model(torch.ones(2, 2))))


def test_settings_are_checked() -> None:
    model = Small(False)
    with pytest.raises(SettingError, match="Invalid rule='adagrad': must be sgd or adam"):
        flow(model, lambda: model(torch.ones(1, 2)).sum(), rule="adagrad")
    with pytest.raises(SettingError, match="Invalid lr=0"):
        flow(model, lambda: model(torch.ones(1, 2)).sum(), lr=0)


def test_nothing_is_left_where_the_loss_fails() -> None:
    model = create_model("resnet20", layers=(1,), num_classes=3).train()
    before = model.bn1.running_mean.clone()

    def fails() -> Tensor:
        model(torch.randn(2, 3, 16, 16))
        raise ValueError("no loss")

    with pytest.raises(ValueError, match="no loss"):
        flow(model, fails)
    assert not traces(model)
    assert torch.equal(model.bn1.running_mean, before)


def test_it_takes_inputs_and_a_loss_of_what_the_head_gives() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3)
    whole = flow(model, lambda: model(x).square().mean())
    assert flow(model, x, lambda outputs: outputs.square().mean()) == whole
    assert flow(model, [x], lambda outputs: outputs.square().mean()) == whole
    with pytest.raises(ModelError, match="pass inputs and a function"):
        flow(model, x)
    with pytest.raises(ModelError, match="pass inputs and a function"):
        flow(model, lambda: model(x).sum(), torch.sum)
