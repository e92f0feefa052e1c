"""Receptive fields: the frame is where gradients can come from, and the map is where they do."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch import nn

import cutaway
from cutaway.core.errors import UnknownName
from cutaway.inspect.receptive_field import effective_field
from cutaway.views.feature_maps import FIELD_LAYERS, _field, _fields, _gradients, _layer_table, draw_field
from cutaway.views.subject import Subject, open_model, open_run

from ..small import small
from .suited import suited


def opened(name: str, **options: str) -> Subject:
    model, inputs = small(name)
    return dataclasses.replace(open_model(model, *inputs), options=options)


@pytest.mark.parametrize("name", suited("field"))
def test_every_preset_of_images(name: str) -> None:
    found = draw_field(opened(name))
    assert len(json.dumps(found, allow_nan=False)) < 2_000_000
    assert 1 <= len(found["drawings"][0]["items"]) <= FIELD_LAYERS
    for _, theoretical, effective, middle in found["table"]["rows"]:
        assert 1 <= effective <= theoretical
        assert 0 <= middle <= 1


@pytest.mark.parametrize("name", ["lenet5-modern", "resnet20", "simplecnn"])
def test_maps_are_those_of_the_probe(name: str) -> None:
    """One pass for all layers gives what a pass for each gives."""
    subject = opened(name)
    x = subject.inputs[0]
    names = list(_fields(subject, _layer_table(subject)))[:4]
    found = _gradients(subject, subject.inputs, names)
    for layer in names:
        assert torch.allclose(found[layer].float(), effective_field(subject.model, x, layer), atol=1e-6)


@pytest.mark.parametrize("name", ["lenet5-modern", "resnet20", "densenet-40-12", "airbench94"])
def test_no_gradient_comes_from_outside_the_frame(name: str) -> None:
    subject = opened(name)
    known = _fields(subject, _layer_table(subject))
    for layer, spread in _gradients(subject, subject.inputs, list(known)).items():
        f = _field(known[layer], spread)
        (top, bottom), (left, right) = f.frame
        assert bottom - top == right - left == known[layer]
        inside = spread[max(0, top) : max(0, bottom), max(0, left) : max(0, right)]
        assert inside.sum().item() == pytest.approx(1, abs=1e-9)


def test_a_field_of_ones_is_as_wide_as_it_is() -> None:
    """With equal weights everywhere the gradient is flat over the field: 95 % of it takes nearly all of it."""
    subject = opened("lenet5-modern")
    layer = subject.model.get_submodule("c1")
    assert isinstance(layer, nn.Conv2d)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    found = _field(5, _gradients(subject, subject.inputs, ["c1"])["c1"])
    assert found.effective == 5
    assert found.map[found.map > 0].max() == pytest.approx(found.map[found.map > 0].min())


def test_tokens_see_the_whole_image() -> None:
    subject = opened("vit-base/16")
    known = _fields(subject, _layer_table(subject))
    assert known["patches"] == 16
    assert known["blocks.0"] == 32
    assert _gradients(subject, subject.inputs, ["blocks.0"])["blocks.0"].gt(0).all()


def test_a_run(tmp_path: Path) -> None:
    run = cutaway.train("lenet5-modern", "digits", epochs=1, out=tmp_path / "run")
    found = draw_field(open_run(run))
    assert found["table"]["rows"][0][:2] == ["c1", 5]
    assert found["table"]["rows"][-1][:2] == ["c3", 14]
    with pytest.raises(UnknownName, match="layer with a receptive field 'f6'"):
        draw_field(open_run(run, options={"layer": "f6"}))


def test_gradients_stay_off_where_they_were() -> None:
    subject = opened("lenet5-modern")
    subject.model.requires_grad_(False)
    with torch.no_grad():
        draw_field(subject)
    assert all(p.grad is None and not p.requires_grad for p in subject.model.parameters())
