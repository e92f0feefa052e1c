"""LeNet-5 as published: the paper's counts, table, codes and sums. Its oracle is in tests/verify."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.nn.functional as F

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, ImageSpec, Value
from cutaway.models.lenet5 import C3_TABLE, CARD, Config, LeNet5, TableConv2d, class_codes
from cutaway.nn import losses
from cutaway.nn.activations import scaled_tanh

from .contract import assert_keeps_the_contract


def test_parameters_are_the_papers_layer_by_layer() -> None:
    model = create_model("lenet5")
    layers = {name: sum(p.numel() for p in layer.parameters()) for name, layer in model.named_children()}
    assert layers == {"c1": 156, "s2": 12, "c3": 1516, "s4": 32, "c5": 48_120, "f6": 10_164, "output": 0}
    assert sum(layers.values()) == 60_000
    assert model.output.codes.numel() == 840  # fixed


def test_connections_are_the_papers_layer_by_layer() -> None:
    connections = create_model("lenet5").connections()
    assert connections == {
        "C1": 122_304,
        "S2": 5_880,
        "C3": 151_600,
        "S4": 2_000,
        "C5": 48_120,
        "F6": 10_164,
        "RBF": 840,
    }
    assert sum(connections.values()) == 340_908


def test_the_contract() -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(create_model("lenet5"), torch.randn(4, 1, 32, 32), outputs=10)
    assert_keeps_the_contract(
        create_model("lenet5", in_channels=3, num_classes=4), torch.randn(4, 3, 32, 32), outputs=4
    )


def test_an_absent_connection_carries_nothing() -> None:
    torch.manual_seed(0)
    layer = TableConv2d(C3_TABLE, in_channels=6, kernel_size=5)
    torch.nn.init.normal_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    for source in range(6):
        x = torch.zeros(1, 6, 14, 14)
        x[:, source] = torch.randn(14, 14)
        reached = layer(x).abs().amax((0, 2, 3)) > 0  # (16,)
        assert reached.tolist() == [source in row for row in C3_TABLE]


def test_a_table_convolution_is_the_sum_over_its_connections() -> None:
    torch.manual_seed(0)
    layer = TableConv2d([[0], [0, 2], [1, 2]], in_channels=3, kernel_size=2).double()
    for p in layer.parameters():
        torch.nn.init.normal_(p)
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    kernels = iter(layer.weight)
    for out, row in enumerate([[0], [0, 2], [1, 2]]):
        expected = layer.bias[out] + sum(F.conv2d(x[:, [j]], next(kernels)[None, None])[:, 0] for j in row)
        torch.testing.assert_close(layer(x)[:, out], expected)


def test_a_sub_sampling_unit_adds_scales_shifts_and_squashes() -> None:
    layer = create_model("lenet5").s2
    x = torch.arange(6 * 16.0).reshape(1, 6, 4, 4) / 50
    total = x[0, 2, :2, :2].sum()
    expected = scaled_tanh(layer.coefficient[2, 0, 0] * total + layer.bias[2, 0, 0])
    torch.testing.assert_close(layer(x)[0, 2, 0, 0], expected)
    assert layer(x).shape == (1, 6, 2, 2)


def test_outputs_are_minus_squared_distances_to_the_codes() -> None:
    model = create_model("lenet5")
    x = torch.randn(3, 1, 32, 32)
    features = model.features(x)
    assert features.shape == (3, 84)
    assert features.abs().max() <= 1.7159
    expected = torch.cdist(features, model.output.codes) ** 2
    torch.testing.assert_close(model.distances(x), expected, rtol=1e-4, atol=1e-3)
    assert torch.equal(model(x), -model.distances(x))


def test_codes_are_pictures_of_the_digits() -> None:
    codes = class_codes(10)
    assert codes.shape == (10, 84)
    assert set(codes.flatten().tolist()) == {-1.0, 1.0}
    apart = (codes[:, None] - codes).square().sum(2) + 1e9 * torch.eye(10)
    assert apart.min() == 40  # 6 and 8 are the nearest
    one = ["".join(".#"[int(p > 0)] for p in row) for row in codes[1].reshape(12, 7)]
    assert one[1:4] == ["...##..", "..###..", ".####.."]


def test_the_constant_of_the_criterion_is_the_one_that_the_card_names() -> None:
    (said,) = (d.here for d in CARD.divergences if d.what.startswith("constant j"))
    j = inspect.signature(losses.map_criterion).parameters["rubbish"].default
    assert said.split(",")[0] == f"{j:g}"


def test_codes_of_other_classes_repeat_and_leave_torchs_random_state_alone() -> None:
    state = torch.get_rng_state()
    codes = class_codes(26)
    assert torch.equal(codes, class_codes(26))
    assert torch.equal(torch.get_rng_state(), state)
    assert len({tuple(code) for code in codes.tolist()}) == 26


def test_initial_weights_are_within_2_4_over_the_fan_in() -> None:
    torch.manual_seed(0)
    model = create_model("lenet5")
    for layer, inputs in ((model.c1, 25), (model.s2, 4), (model.s4, 4), (model.c5, 400), (model.f6, 120)):
        for p in layer.parameters():
            assert p.abs().max() <= 2.4 / inputs
            assert p.numel() < 100 or p.abs().max() > 0.9 * 2.4 / inputs
    of_full_map = model.c3.weight[model.c3.target == 15]
    of_first_map = model.c3.weight[model.c3.target == 0]
    assert 0.9 * 2.4 / 150 < of_full_map.abs().max() <= 2.4 / 150
    assert 0.9 * 2.4 / 75 < of_first_map.abs().max() <= 2.4 / 75


def test_it_learns_by_its_own_criterion() -> None:
    torch.manual_seed(0)
    model = create_model("lenet5")
    assert model.loss == "map"
    x, y = torch.randn(20, 1, 32, 32), torch.arange(20) % 10
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        optimizer.zero_grad()
        losses.LOSSES[model.loss](model(x), y).mean().backward()
        optimizer.step()
    assert (model(x).argmax(1) == y).float().mean() >= 0.9


def test_images_of_another_size_are_rejected() -> None:
    with pytest.raises(ModelError, match=r"32×32 pixels, and these are 28×28"):
        create_model("lenet5")(torch.randn(1, 1, 28, 28))
    with pytest.raises(ModelError, match=r"Invalid image_size=28: must be 32"):
        create_model("lenet5", image_size=28)


def test_it_fits_itself_to_data_and_rejects_numbers() -> None:
    config = Config.for_spec(Config(), ImageSpec(3, 64, 64, Classes(("a", "b"))))
    assert config == Config(in_channels=3, num_classes=2, image_size=32)
    assert LeNet5(config).output.codes.shape == (2, 84)
    with pytest.raises(ModelError, match="age is a number: take lenet5-modern or simplecnn"):
        Config.for_spec(Config(), ImageSpec(1, 32, 32, Value("age")))
