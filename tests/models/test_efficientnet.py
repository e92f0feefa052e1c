"""EfficientNet: compound scaling, counts, squeeze-and-excitation, stochastic depth, sizes of images."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec
from cutaway.inspect.layers import layer_table
from cutaway.models.efficientnet import (
    ALPHA,
    BETA,
    CARD,
    GAMMA,
    PRESETS,
    Config,
    EfficientNet,
    MBConv,
    SqueezeExcitation,
)
from cutaway.models.registry import preset

from .contract import assert_keeps_the_contract

TINY = Config(width_mult=0.1, depth_mult=0.5, stem="cifar", num_classes=3, dropout=0.0, drop_path_rate=0.0)


@pytest.mark.parametrize(
    ("name", "millions", "billions"),  # the paper's table 2: 5.3 M and 0.39 B, 7.8 M and 0.70 B, 9.2 M and 1.0 B
    [("b0", 5.3, 0.39), ("b1", 7.8, 0.69), ("b2", 9.1, 0.99)],
)
def test_counts_are_the_published_ones(name: str, millions: float, billions: float) -> None:
    name = f"efficientnet-{name}"
    held = CARD.published[name]
    assert held.at == (3, PRESETS[name].resolution, PRESETS[name].resolution)
    layers = layer_table(build_on_meta(preset(name), PRESETS[name]), torch.empty(1, *held.at, device="meta"))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)
    assert (round(layers.parameters / 1e6, 1), round(layers.multiply_adds / 1e9, 2)) == (millions, billions)


@pytest.mark.parametrize(
    ("config", "side", "parameters", "multiply_adds"),  # torchvision's weight metadata of B3 and B4
    [
        (Config(phi=2.0), 300, 12_233_232, 1.827),
        (Config(phi=3.0, width_mult=1.4, depth_mult=1.8), 380, 19_341_616, 4.394),
        (Config(phi=1.0), 288, 9_109_994, 1.088),
    ],
)
def test_larger_networks_of_the_paper_are_settings(
    config: Config, side: int, parameters: int, multiply_adds: float
) -> None:
    with torch.device("meta"):
        layers = layer_table(EfficientNet(config), torch.empty(1, 3, side, side))
    assert layers.multiply_adds is not None
    assert (layers.parameters, round(layers.multiply_adds / 1e9, 3)) == (parameters, multiply_adds)


def test_compound_scaling_gives_the_coefficients_of_the_authors_code() -> None:
    found = [(c.width, c.depth, c.resolution) for c in (Config(phi=phi) for phi in (0.0, 0.5, 1.0, 2.0))]
    assert found == [(1.0, 1.0, 224), (1.0, 1.1, 240), (1.1, 1.2, 260), (1.2, 1.4, 300)]
    step = ALPHA * BETA**2 * GAMMA**2
    assert 1.9 < step < 2.0
    assert [config.phi for config in PRESETS.values()] == [0.0, 0.5, 1.0]
    multiply_adds = [held.multiply_adds or 0 for held in CARD.published.values()]
    assert multiply_adds[2] / multiply_adds[0] > 2  # by more than `step`, since channels and blocks are rounded up


def test_a_multiplier_that_is_given_replaces_that_of_phi() -> None:
    config = Config(phi=1.0, depth_mult=2.0)
    assert (config.width, config.depth) == (1.1, 2.0)
    assert [config.channels(count) for count in (32, 16, 24, 1280)] == [32, 16, 24, 1408]  # 35.2, 17.6, 26.4
    assert [config.blocks(count) for count in (1, 3, 4)] == [2, 6, 8]
    assert [Config(phi=0.5).blocks(count) for count in (1, 2, 3, 4)] == [2, 3, 4, 5]  # rounded up
    with torch.device("meta"):
        assert [len(stage) for stage in EfficientNet(config).stages] == [2, 4, 4, 6, 6, 8, 2]


def test_it_keeps_the_contract() -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(EfficientNet(TINY), torch.randn(4, 3, 16, 24), 3)


def test_excitation_scales_each_channel_by_a_factor_from_the_means_of_all() -> None:
    torch.manual_seed(0)
    module, x = SqueezeExcitation(4, 2).double(), torch.randn(3, 4, 5, 6, dtype=torch.float64)
    with torch.no_grad():
        factors = module(x) / x
        torch.testing.assert_close(factors, factors[..., :1, :1].expand_as(x))
        assert ((factors > 0) & (factors < 1)).all()
        moved = x.clone()
        moved[:, 0] += 1  # one mean changes, and all factors with it
        assert not torch.isclose(module(moved)[:, 1:], module(x)[:, 1:]).any()
        torch.testing.assert_close(module(x.flip(2, 3)), module(x).flip(2, 3))  # the place does not matter


def test_a_block_squeezes_to_a_quarter_of_the_channels_that_enter() -> None:
    block = MBConv(24, 40, 6, 5, 2, 0.0)
    assert block.se.squeeze.weight.shape == (6, 144, 1, 1)
    assert block.depthwise.conv.weight.shape == (144, 1, 5, 5)
    assert block(torch.randn(2, 24, 9, 9)).shape == (2, 40, 5, 5)
    assert not block.residual
    assert MBConv(8, 8, 1, 3, 1, 0.0).expand is None


def test_the_end_of_a_block_is_linear_and_the_input_is_added() -> None:
    block = MBConv(8, 8, 6, 3, 1, 0.0).eval()
    with torch.no_grad():
        for parameter in block.bn.parameters():
            parameter.zero_()  # the branch adds nothing
        x = torch.randn(2, 8, 5, 5)
        assert torch.equal(block(x), x)
        nn.init.constant_(block.bn.bias, -9.0)
        assert torch.equal(block(x), x - 9)  # no SiLU follows


def test_stochastic_depth_rises_from_the_first_block_and_drops_branches_in_training() -> None:
    config = dataclasses.replace(TINY, depth_mult=1.0, drop_path_rate=0.4)
    rates = [module.drop_path_rate for module in EfficientNet(config).modules() if isinstance(module, MBConv)]
    assert rates == pytest.approx([0.4 * i / 16 for i in range(16)])
    torch.manual_seed(0)
    block, x = MBConv(8, 8, 6, 3, 1, 0.4).double().eval(), torch.randn(1, 8, 5, 5, dtype=torch.float64)
    with torch.no_grad():
        branch = block(x) - x
        block.training = True  # its normalization stays in evaluation mode
        found = block(x.expand(2000, -1, -1, -1)) - x
    dropped = found.abs().flatten(1).amax(1) < 1e-12
    torch.testing.assert_close(found[~dropped], (branch / 0.6).expand(int((~dropped).sum()), -1, -1, -1))
    assert abs(float(dropped.double().mean()) - 0.4) < 0.05  # 4.5 standard errors


def test_it_fits_data_and_rejects_small_images() -> None:
    fitted = Config.for_spec(Config(), ImageSpec(1, 64, 64, Classes(("a", "b"))))
    assert (fitted.in_channels, fitted.num_classes) == (1, 2)
    model = EfficientNet(dataclasses.replace(TINY, stem="imagenet")).eval()
    assert model(torch.randn(1, 3, 32, 33)).shape == (1, 3)
    with pytest.raises(ModelError, match=r"at least 32×32 pixels, and these are 31×32"):
        model(torch.randn(1, 3, 31, 32))
    assert EfficientNet(TINY).eval()(torch.randn(1, 3, 8, 8)).shape == (1, 3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("phi", 10.5), ("phi", -11.0), ("phi", float("nan")), ("depth_mult", 0.0), ("width_mult", 0.0)],
        *[("stem", "small"), ("dropout", 1.0), ("drop_path_rate", -0.1), ("in_channels", 0), ("num_classes", 0)],
    ],
)
def test_values_that_cannot_be_are_rejected_by_name(field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        Config(**{field: value})
