"""The view of normalizations: sets, means and deviations by hand, for every preset that has one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

import cutaway
from cutaway.core.errors import UnknownName
from cutaway.inspect.captures import capture
from cutaway.views.model_layers import find_normalizations
from cutaway.views.normalization import DARK, _measure_sets, _sets, draw_normalization
from cutaway.views.registry import VIEWS, suits
from cutaway.views.subject import open_model
from tests.small import DIFFERENT, small

WITHOUT = {"lenet5", "mlp", "gcn", "lstm", "textcnn", "vgg11", "alexnet", "linear"}


def options_of(shown: Any) -> list[tuple[str, list[Any]]]:
    """Each layer with its drawings."""
    first = shown["drawings"][0]
    if first["kind"] != "choice":
        return [("", shown["drawings"])]
    return [(o["name"], o["drawings"]) for o in first["options"]]


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_preset_with_a_normalization_shows_it(name: str) -> None:
    model, inputs = small(name)
    subject = open_model(model, *inputs)
    has = any("Norm" in type(m).__name__ for m in model.modules()) or name == "alexnet-2012"
    assert suits("normalization", subject) == has
    assert not (has and name in WITHOUT)
    if not has:
        return
    model.train()
    shown = draw_normalization(subject)
    assert model.training
    assert shown["id"] == "normalization"
    assert len(json.dumps(shown, allow_nan=False)) < 2_000_000
    for _, drawings in options_of(shown):
        assert [d["kind"] for d in drawings] == ["tiles", "lines", "lines", "lines"]
        shades = [value for tile in drawings[0]["tiles"] for row in tile["values"] for value in row]
        assert 0 < shades.count(DARK) <= len(shades)
        for side in drawings[3]["series"]:
            assert sum(share for _, share in side["points"]) == pytest.approx(1, abs=0.01)
    assert not any(m._forward_hooks for m in model.modules())


def test_batch_means_and_deviations_are_those_of_channels() -> None:
    model, (x,) = small("simplecnn")
    nn.init.uniform_(model.bn1.running_mean, -1, 1)
    shown = draw_normalization(open_model(model, x, options={"layer": "bn1"}))
    with capture(model, "features", "conv1", "bn1") as seen, torch.no_grad():
        model(x)
    before, behind = seen["features"]["conv1"], seen["features"]["bn1"]
    tiles, mean, deviation, _ = shown["drawings"]
    lines = {s["name"]: [v for _, v in s["points"]] for s in mean["series"]}
    assert lines["before"] == pytest.approx(before.mean((0, 2, 3)).tolist(), rel=1e-3, abs=1e-6)
    assert lines["after"] == pytest.approx(behind.mean((0, 2, 3)).tolist(), rel=1e-3, abs=1e-6)
    assert lines["running"] == pytest.approx(model.bn1.running_mean.tolist(), rel=1e-3)
    spread = {s["name"]: [v for _, v in s["points"]] for s in deviation["series"]}
    assert spread["before"] == pytest.approx(before.std((0, 2, 3), correction=0).tolist(), rel=1e-3)
    dark = [[value == DARK for value in row] for row in tiles["tiles"][0]["values"]]
    assert sum(all(row) for row in dark) == 1  # one channel whole, at every place
    assert dark == [[value == DARK for value in row] for row in tiles["tiles"][1]["values"]]  # of every example


def test_a_layer_normalization_leaves_each_token_with_mean_0_and_deviation_1() -> None:
    model, inputs = small("gpt2")
    shown = draw_normalization(open_model(model, *inputs, options={"layer": "blocks.0.norm1"}))
    tiles, mean, deviation, _ = shown["drawings"]
    assert [v for _, v in mean["series"][1]["points"]] == pytest.approx([0] * 14, abs=1e-5)
    assert [v for _, v in deviation["series"][1]["points"]] == pytest.approx([1] * 14, abs=0.05)
    first, second = tiles["tiles"]
    assert all(sum(value == DARK for value in row) == 1 for row in first["values"])  # one place of one example
    assert not any(value == DARK for row in second["values"] for value in row)


def test_with_channels_last_each_pixel_has_statistics_of_its_own() -> None:
    model, inputs = small("convnext-micro")
    shown = draw_normalization(open_model(model, *inputs, options={"layer": "stages.0.blocks.0.norm"}))
    assert "all values of the same pixel" in shown["summary"]
    first, second = shown["drawings"][0]["tiles"]
    assert all(sum(value == DARK for value in row) == 1 for row in first["values"])  # one place of one example
    assert not any(value == DARK for row in second["values"] for value in row)


def test_padding_is_in_no_set() -> None:
    model, (tokens, mask) = small("bert-base-uncased")
    mask = mask.clone()
    mask[1, 3:] = False
    shown = draw_normalization(open_model(model, tokens, mask, options={"layer": "norm"}))
    assert len(shown["drawings"][1]["series"][0]["points"]) == 7 + 3


def test_groups_of_channels_and_whole_maps() -> None:
    x = torch.randn(2, 6, 4, 5)
    sets, name = _sets("group", nn.GroupNorm(3, 6), x)
    assert (name, sets.shape) == ("group", (6, 40))
    assert torch.allclose(sets[1], x[0, 2:4].flatten().double())
    sets, name = _sets("layer", nn.LayerNorm((6, 4, 5)), x)
    assert (name, sets.shape) == ("example", (2, 120))
    one = _measure_sets("group", nn.GroupNorm(3, 6), x, x, None)
    assert int((one.block == DARK).sum()) == 2 * 16  # two channels of the first example, the places that are shown
    assert not (one.block[1] == DARK).any()


def test_local_response_looks_at_five_channels_of_a_place_whoever_has_it() -> None:
    model, (x,) = small("alexnet-2012")
    assert find_normalizations(model) == {"norm1": "local response", "norm2": "local response"}
    shown = draw_normalization(open_model(model, x))
    tile = options_of(shown)[0][1][0]["tiles"][0]["values"]
    assert sum(value == DARK for row in tile for value in row) == 5
    before, behind = options_of(shown)[0][1][2]["series"]
    assert all(b[1] <= a[1] for a, b in zip(before["points"], behind["points"]))


def test_tables_and_single_examples() -> None:
    for norm in ("batch", "layer"):
        model = cutaway.create_model("mlp", in_features=4, hidden_dims=(5,), num_classes=2, norm=norm).eval()
        assert draw_normalization(open_model(model, torch.randn(1, 4)))["table"]["rows"][0][1] == norm


def test_a_normalization_that_is_not_there_is_rejected() -> None:
    model, (x,) = small("simplecnn")
    with pytest.raises(UnknownName, match="bn1"):
        draw_normalization(open_model(model, x, options={"layer": "bn_1"}))
    assert "evaluation" in VIEWS["normalization"].misleads
