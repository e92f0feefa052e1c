"""What is written down of the presets a second time is whole, and finds what was changed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.apps.cli.verify_textbook import compare_updates
from cutaway.checkpoints.huggingface import find_family
from cutaway.checkpoints.huggingface.bert import ACTIVATIONS
from cutaway.models import bert, gpt2, resnet
from cutaway.models.registry import preset, presets
from cutaway.nn import transformer
from cutaway.training import optim
from cutaway.training.config import TrainSettings
from cutaway.verify import changed, compared_config, oracle_for
from cutaway.verify.compare import compare, dropout_factors, fixed_dropout
from cutaway.verify.initialization import initialization_differences
from cutaway.verify.published import BY_DATA, SETTINGS, published_differences, resolved


@pytest.mark.parametrize("name", presets())
def test_every_setting_of_a_preset_is_written_down(name: str) -> None:
    """A new field of a Config belongs into `published.py`, or to those that the data decides."""
    config = preset(name).config
    assert not published_differences(name, config)
    assert set(resolved(config)) - set(SETTINGS[name]) <= set(BY_DATA)
    assert set(SETTINGS[name]) <= set(resolved(config))


def test_what_differs_is_named() -> None:
    wrong = dataclasses.replace(preset("bert-base-uncased").config, heads=6, ffn_dim=1024)
    assert published_differences("bert-base-uncased", wrong) == [
        "heads=6, published 12",
        "ffn_dim=1024, published 3072",
    ]


def test_only_what_was_asked_for_is_told_to_the_other_library() -> None:
    usual, other = preset("gat").config, dataclasses.replace(preset("gat").config, negative_slope=0.1)
    assert changed(usual, usual, negative_slope="negative_slope") == {}
    assert changed(other, usual, negative_slope="negative_slope") == {"negative_slope": 0.1}


# --- first weights ------------------------------------------------------------------------------------------------


def new(name: str) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = preset(name).build(compared_config(name, preset(name).config))
    return model


def laws_broken(name: str) -> list[str]:
    return initialization_differences(preset(name).module.__name__.rpartition(".")[2], new(name))


OF_EACH_FAMILY = {found.module.__name__: name for name, found in presets().items()}  # the last, which is compared small


@pytest.mark.parametrize("name", OF_EACH_FAMILY.values())
def test_weights_begin_as_published(name: str) -> None:
    assert laws_broken(name) == []


def test_another_way_to_count_in_he_initialization_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = nn.init.kaiming_normal_

    def wrong(weight: Tensor, **settings: Any) -> Tensor:
        return right(weight, **{**settings, "mode": "fan_in"})

    monkeypatch.setattr(resnet.nn.init, "kaiming_normal_", wrong)
    assert laws_broken("resnet20")[0].startswith("conv1.weight has standard deviation")


@pytest.mark.parametrize(
    ("module", "name"), [(bert, "bert-base-uncased"), (gpt2, "gpt2")], ids=["truncation", "positions"]
)
def test_another_deviation_is_noticed(module: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STD", 0.03)
    assert laws_broken(name)


def test_a_bias_that_is_no_zero_and_a_gain_that_is_no_one_are_noticed() -> None:
    model = new("gpt2")
    with torch.no_grad():
        model.get_parameter("blocks.0.mlp.fc1.bias")[3] = 1e-6
        model.get_parameter("norm.weight")[0] = 1.001
    assert initialization_differences("gpt2", model) == ["blocks.0.mlp.fc1.bias is not 0", "norm.weight is not 1"]


# --- dropout ------------------------------------------------------------------------------------------------------


def equal(name: str, model: nn.Module) -> bool:
    pytest.importorskip("transformers")
    return compare(model, oracle_for(name, model.config), torch.Generator().manual_seed(0)).equal


@pytest.mark.parametrize("name", ["bert-base-uncased", "roberta-base", "gpt2", "t5-small", "bart-base"])
def test_dropout_stands_where_the_reference_has_it(name: str) -> None:
    model = new(name)
    assert equal(name, model)
    model.get_submodule("dropout").p = 0.0  # type: ignore[assignment]  # that of the embedding
    assert not equal(name, model)


@pytest.mark.parametrize("part", ["attention", "dropout"], ids=["weights of attention", "what layers add"])
def test_dropout_within_a_block_is_compared(part: str) -> None:
    model = new("gpt2")
    found: Any = model.get_submodule(f"blocks.1.{part}")
    setattr(found, "dropout" if part == "attention" else "p", 0.2)
    assert not equal("gpt2", model)


def test_fixed_dropout_is_no_chance_and_ends() -> None:
    x = torch.ones(2, 3, 5)
    kept = F.dropout, F.scaled_dot_product_attention
    with fixed_dropout():
        first, second = F.dropout(x, 0.3), nn.Dropout(0.3)(x)
        assert torch.equal(first, second)
        assert torch.equal(first, x * dropout_factors(x, 0.3))
        assert not torch.equal(first, x)
        assert torch.equal(F.dropout(x, 0.3, training=False), x)
    assert (F.dropout, F.scaled_dot_product_attention) == kept


@pytest.mark.parametrize("causal", [False, True])
def test_attention_within_fixed_dropout_is_the_kernels(causal: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 5, 4, generator=generator, dtype=torch.float64) for heads in (4, 2, 2))
    ask: Callable[[], Tensor] = functools.partial(
        lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    )
    expected = ask()
    with fixed_dropout():
        assert (ask() - expected).abs().max() <= 1e-12
        assert not torch.equal(F.scaled_dot_product_attention(q, k, v, dropout_p=0.5, enable_gqa=True), ask())


# --- names and forms of transformers ------------------------------------------------------------------------------


def test_gelu_new_is_the_tanh_form() -> None:
    """The name in the config.json of the published ALBERT and GPT-2, and the function of that name there."""
    activations = pytest.importorskip("transformers.activations")
    x = torch.linspace(-4, 4, 101, dtype=torch.float64)
    for theirs, ours in ACTIVATIONS.items():
        if theirs in activations.ACT2FN:
            gap = (activations.ACT2FN[theirs](x) - transformer.ACTIVATIONS[ours](x)).abs().max()
            assert gap <= 1e-12, theirs


@pytest.mark.parametrize("name", ["albert-base-v2", "roberta-base", "bart-large", "t5-base", "gpt2-medium"])
def test_the_published_config_is_read_as_the_preset(name: str) -> None:
    pytest.importorskip("transformers")
    from cutaway.verify.huggingface import reference_config, reference_differences

    family = find_family(name)
    assert family is not None
    assert reference_differences(family, name, preset(name).config) == []
    if name == "roberta-base":  # the first position is that behind padding's row, whichever that is
        theirs = {**reference_config(family, name).to_dict(), "pad_token_id": 3, "max_position_embeddings": 20}
        assert (family.config(theirs).first_position, family.config(theirs).context_length) == (4, 16)


# --- steps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw"])
def test_a_step_is_the_textbooks(optimizer: str) -> None:
    found = compare_updates(TrainSettings(optimizer=optimizer, lr=0.05, weight_decay=0.1))
    assert found is not None
    assert found[1] <= 1e-12


def test_decay_of_a_bias_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim, "_grouped", lambda weights, decay: [
        {"params": [w.parameter for w in weights], "scale": 1.0, "decays": True, "weight_decay": decay}
    ])  # fmt: skip
    found = compare_updates(TrainSettings(optimizer="adamw", lr=0.05, weight_decay=0.1))
    assert found is not None
    assert found[1] > 1e-4
