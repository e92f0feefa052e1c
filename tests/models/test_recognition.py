"""How a model that nobody named is called: every preset, and every preset with one setting changed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cutaway.checkpoints.match_config import closest_preset, diff, settings_phrase
from cutaway.core.errors import CutawayError
from cutaway.models.registry import Preset, preset, presets


def kin(of: Preset) -> list[Preset]:
    """The presets that build the same class, in whatever file."""
    return [other for other in presets().values() if other.module.Model is of.module.Model]


def changed(value: Any) -> list[Any]:
    """Other values of a setting, near and farther."""
    if isinstance(value, bool):
        return [not value]
    if value is None:
        return [7]
    if isinstance(value, int):
        return [value + 1, 2 * value]
    if isinstance(value, float):
        return [value + 0.05]
    if isinstance(value, tuple) and value and all(isinstance(x, int) for x in value):
        return [(*value[:-1], value[-1] + 1)]
    return []


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_called_by_its_name_and_one_with_a_setting_changed_by_both(name: str) -> None:
    own = preset(name)
    assert closest_preset(own.config, kin(own)) is own
    assert settings_phrase(diff(own.config, own.config)) == ""
    tried = 0
    for field in dataclasses.fields(own.config):
        for value in changed(getattr(own.config, field.name)):
            try:
                config = dataclasses.replace(own.config, **{field.name: value})
            except CutawayError:  # which cannot be
                continue
            found = closest_preset(config, kin(own))
            if found.config == config:  # vgg11 with batch normalization is vgg11-bn
                continue
            tried += 1
            assert found is own, (field.name, value)
            assert diff(config, found.config) == {field.name: value}
    assert tried


def test_what_tells_families_apart_weighs_more_than_sizes() -> None:
    bert = preset("bert-base-uncased")
    small = dataclasses.replace(bert.config, dim=384, layers=6, heads=6, head="classes", num_classes=3)
    assert closest_preset(small, kin(bert)) is bert  # though DistilBERT has six layers too
    assert settings_phrase(diff(small, bert.config, ("head", "num_classes"))) == (" with dim=384, layers=6 and heads=6")
    assert settings_phrase(diff(small, bert.config)) == (
        " with dim=384, layers=6, heads=6 and 2 more settings of its own"
    )
    roberta = preset("roberta-base")
    assert closest_preset(dataclasses.replace(roberta.config, dim=384, layers=6), kin(bert)) is roberta


def test_a_hidden_size_that_is_left_open_is_four_times_the_other_and_none_at_all_is_none() -> None:
    bert, mlp = preset("bert-base-uncased").config, preset("mlp").config
    assert diff(dataclasses.replace(bert, ffn_dim=4 * bert.dim), dataclasses.replace(bert, ffn_dim=None)) == {}
    assert diff(dataclasses.replace(bert, ffn_dim=5 * bert.dim), bert) == {"ffn_dim": 5 * bert.dim}
    assert diff(dataclasses.replace(mlp, hidden_dims=()), mlp) == {"hidden_dims": ()}


def test_of_settings_that_differ_alike_the_nearer_number_decides() -> None:
    own = preset("resnet34")
    config = dataclasses.replace(own.config, layers=(3, 4, 6, 2))
    assert closest_preset(config, kin(own)) is own
