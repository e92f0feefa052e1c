"""Filters: the tiles are the layers' own weights."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cutaway
from cutaway.core.errors import SettingError, UnknownName
from cutaway.models.registry import create_model
from cutaway.views.common import convolutions
from cutaway.views.filters import MOST, suits, view
from cutaway.views.subject import Subject, open_model, open_preset, open_run

from ..small import small
from .suited import suited


def opened(name: str, **options: str) -> Subject:
    model, inputs = small(name)
    return dataclasses.replace(open_model(model, *inputs), options=options)


def tiles(found: dict[str, Any], option: int = 0) -> list[dict[str, Any]]:
    drawing = found["drawings"][0]
    drawing = drawing["options"][option]["drawings"][0] if drawing["kind"] == "choice" else drawing
    result: list[dict[str, Any]] = drawing["tiles"]
    return result


@pytest.mark.parametrize("name", suited("filters"))
def test_every_preset_with_filters(name: str) -> None:
    found = view(opened(name))
    assert len(json.dumps(found, allow_nan=False)) < 2_000_000
    for tile in tiles(found):
        assert ("image" in tile) != ("values" in tile)
        assert "norm" not in tile


def test_grey_filters_are_the_weights() -> None:
    model, inputs = small("lenet5-modern")
    found = view(open_model(model, *inputs))
    weight = model.get_submodule("c1").weight
    for k, tile in enumerate(tiles(found)):
        assert torch.allclose(torch.tensor(tile["values"]), weight[k, 0].detach(), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("range_", ["unit", "layer"])
def test_colours_are_the_weights_around_grey(range_: str) -> None:
    model, inputs = small("resnet18")
    found = view(dataclasses.replace(open_model(model, *inputs), options={"range": range_}))
    weight = model.get_submodule("conv1").weight.detach()
    for k, tile in enumerate(tiles(found)[:8]):
        image = Image.open(io.BytesIO(base64.b64decode(tile["image"].partition(",")[2])))
        pixels = torch.from_numpy(np.array(image)).double().movedim(-1, 0) / 255 * 2 - 1  # (3, H, W)
        most = weight.abs().max() if range_ == "layer" else weight[k].abs().max()
        assert torch.allclose(pixels, (weight[k] / most).double(), atol=1 / 254 + 1e-6)


def test_deeper_filters_show_their_strongest_slice() -> None:
    subject = opened("lenet5-modern", layer="c3")
    weight = subject.model.get_submodule("c3").weight.detach()
    for k, tile in enumerate(tiles(view(subject))):
        norms = weight[k].flatten(1).norm(dim=1)
        assert torch.allclose(torch.tensor(tile["values"]), weight[k, norms.argmax()], rtol=1e-3, atol=1e-7)
    slices = tiles(view(opened("lenet5-modern", layer="c3", filter="2")))
    assert [tile["label"] for tile in slices] == [f"2 ← {c}" for c in range(weight.shape[1])]
    assert torch.allclose(torch.tensor([t["values"] for t in slices]), weight[2], rtol=1e-3, atol=1e-7)


def test_connections_that_are_not_there_are_zeros() -> None:
    """LeNet-5's third layer sees some maps only: table I of the paper."""
    weight = convolutions(small("lenet5")[0])["c3"].weight
    assert (weight.flatten(2).abs().sum(2) > 0).sum() == 60


def test_class_templates_are_rows_of_softmax(tmp_path: Path) -> None:
    run = cutaway.train("softmax", "digits", epochs=1, out=tmp_path / "run")
    subject = open_run(run)
    found = tiles(view(subject))
    assert [tile["label"] for tile in found] == [str(k) for k in range(10)]
    weight = run.model.get_submodule("head").weight.detach().view(10, 8, 8)
    assert torch.allclose(torch.tensor([t["values"] for t in found]), weight, rtol=1e-3, atol=1e-7)


def test_signals_and_pictures_of_dense_layers() -> None:
    series = open_model(create_model("mlp", in_features=24, hidden_dims=(5,)), torch.randn(2, 8, 3))
    assert not suits(series)  # nothing says that these inputs are steps of a signal
    assert not suits(opened("mlp"))
    kernels = tiles(view(opened("cnn1d")))
    assert np.shape(kernels[0]["values"]) == (1, 5)


def test_no_more_tiles_than_can_be_looked_at() -> None:
    found = view(open_preset("alexnet", options={"layer": "conv4"}))
    assert len(tiles(found)) == MOST
    assert "64 of 256 filters" in json.dumps(found)


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(UnknownName, match="layer with filters 'conv9'"):
        view(opened("alexnet", layer="conv9"))
    with pytest.raises(SettingError, match="Invalid range=loud: must be one of unit, layer, global"):
        view(opened("alexnet", range="loud"))
    with pytest.raises(SettingError, match="Invalid filter=6"):
        view(opened("lenet5-modern", filter="6"))
