"""BART beside transformers' network: at full width, in further configs, and the configs of files in circulation."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch

from cutaway.checkpoints.huggingface import find_family, from_transformers_names, to_transformers_names
from cutaway.checkpoints.huggingface.encoder_decoders import BART_FAMILY, bart_settings, parse_bart_config
from cutaway.core.errors import ModelError
from cutaway.models.bart import PRESETS, Bart, Config
from cutaway.verify import compared_config, oracle_for
from cutaway.verify.compare import compare

from .whole import differences, filled

pytest.importorskip("transformers")
SMALL = compared_config("bart-base", PRESETS["bart-base"])
# Of facebook/bart-base, without what it answers and how it generates.
PUBLISHED = {
    "activation_dropout": 0.1,
    "activation_function": "gelu",
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "architectures": ["BartModel"],
    "attention_dropout": 0.1,
    "bos_token_id": 0,
    "classif_dropout": 0.1,
    "classifier_dropout": 0.0,
    "d_model": 768,
    "decoder_attention_heads": 12,
    "decoder_ffn_dim": 3072,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 6,
    "decoder_start_token_id": 2,
    "dropout": 0.1,
    "encoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 6,
    "eos_token_id": 2,
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "max_position_embeddings": 1024,
    "model_type": "bart",
    "normalize_before": False,
    "normalize_embedding": True,
    "num_hidden_layers": 6,
    "pad_token_id": 1,
    "scale_embedding": False,
    "vocab_size": 50265,
}


@pytest.mark.slow
def test_bart_base_of_the_published_widths() -> None:
    """Two blocks on either side and a thousand words: all blocks and all words are alike."""
    torch.manual_seed(0)
    none = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
    fewer = {"layers": 2, "decoder_layers": 2, "vocab_size": 1000}
    config = dataclasses.replace(PRESETS["bart-base"], **fewer, **none)  # type: ignore[arg-type]
    model = Bart(config).double().eval()
    with torch.device("meta"):
        oracle = oracle_for("bart-base", config)
    inputs = oracle.inputs(torch.Generator().manual_seed(0))
    outputs, gradients = differences(model, filled(oracle, BART_FAMILY, model), inputs, BART_FAMILY)
    assert outputs <= 1e-9
    assert gradients <= 1e-9


@pytest.mark.parametrize(
    "changes",
    [{"decoder_layers": 1}, {"decoder_layers": 3, "heads": 1}, {"ffn_dim": 5}],
    ids=lambda changes: ",".join(f"{k}={v}" for k, v in changes.items()),
)
def test_it_is_its_oracle_in_other_sizes(changes: dict[str, int]) -> None:
    config = dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]  # sizes
    torch.manual_seed(0)
    assert compare(Bart(config), oracle_for("bart-base", config), torch.Generator().manual_seed(1)).equal


@torch.no_grad()
def test_the_constant_of_the_output_is_transformers() -> None:
    torch.manual_seed(0)
    model = Bart(SMALL).double().eval()
    model.head.constant.normal_()
    oracle = oracle_for("bart-base", SMALL)
    inputs = oracle.inputs(torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(*inputs), filled(oracle, BART_FAMILY, model)(*inputs), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", PRESETS)
def test_every_name_is_transformers_and_comes_back(name: str) -> None:
    family = find_family(name)
    assert family is BART_FAMILY
    config = dataclasses.replace(PRESETS[name], vocab_size=50)
    with torch.device("meta"):
        model, theirs = Bart(config), oracle_for(name, config).module.model
    own = model.state_dict()
    there = to_transformers_names(BART_FAMILY, own)
    names = dict([*theirs.named_parameters(), *theirs.named_buffers()])  # what is tied has one name
    assert {key: tensor.shape for key, tensor in there.items()} == {key: p.shape for key, p in names.items()}
    found, key_map = from_transformers_names(BART_FAMILY, own, there)
    assert {key: tensor.shape for key, tensor in found.items()} == {key: tensor.shape for key, tensor in own.items()}
    assert set(key_map) == set(there)


@torch.no_grad()
def test_tensors_there_and_back_are_the_same() -> None:
    model = Bart(SMALL)
    model.head.constant.normal_()
    found, _ = from_transformers_names(
        BART_FAMILY, model.state_dict(), to_transformers_names(BART_FAMILY, model.state_dict())
    )
    assert all(torch.equal(found[key], tensor) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    "config", [*PRESETS.values(), SMALL, Config(decoder_layers=2, ffn_dim=100, tie_weights=False)], ids=range(4)
)
def test_a_config_comes_back_from_transformers(config: Config) -> None:
    from transformers import BartConfig

    assert parse_bart_config(BartConfig(**bart_settings(config)).to_dict()) == config
    assert parse_bart_config(bart_settings(config)) == config


def test_the_published_configs_are_read() -> None:
    assert parse_bart_config(PUBLISHED) == PRESETS["bart-base"]
    halved = {**PUBLISHED, "encoder_layers": 12, "decoder_layers": 6}  # as distilled ones are
    assert parse_bart_config(halved) == dataclasses.replace(PRESETS["bart-base"], layers=12, decoder_layers=6)


@pytest.mark.parametrize(
    ("field", "value", "known"),
    [
        ("activation_function", "relu", '"gelu"'),
        ("scale_embedding", True, "false"),
        ("encoder_layerdrop", 0.1, "0.0"),
        ("decoder_layerdrop", 0.1, "0.0"),
        ("normalize_before", True, "false"),
        ("normalize_embedding", False, "true"),
        ("add_final_layer_norm", True, "false"),
        ("static_position_embeddings", True, "false"),
        ("is_encoder_decoder", False, "true"),
    ],
)
def test_unknown_values_are_rejected_by_field_and_what_is_known(field: str, value: Any, known: str) -> None:
    with pytest.raises(ModelError, match=f"{field}={json.dumps(value)}.*it knows {known}"):
        parse_bart_config({**PUBLISHED, field: value})


@pytest.mark.parametrize("field", ["attention_heads", "ffn_dim"])
def test_stacks_that_differ_are_rejected_by_both_values(field: str) -> None:
    with pytest.raises(
        ModelError,
        match=f"decoder_{field}=8 and encoder_{field}={PUBLISHED[f'encoder_{field}']}, .* one value for both",
    ):
        parse_bart_config({**PUBLISHED, f"decoder_{field}": 8})
