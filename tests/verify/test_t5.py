"""T5 beside transformers' network: at full size, in further configs, and the configs of files in circulation."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch

from cutaway.checkpoints.huggingface import find_family, from_transformers_names, to_transformers_names
from cutaway.checkpoints.huggingface.encoder_decoders import T5_FAMILY, parse_t5_config, t5_settings
from cutaway.core.errors import ModelError
from cutaway.models.t5 import PRESETS, T5, Config
from cutaway.verify import compared_config, oracle_for
from cutaway.verify.compare import compare

from .whole import differences, filled

pytest.importorskip("transformers")
SMALL = compared_config("t5-small", PRESETS["t5-small"])
# Of google-t5/t5-small, without what its tasks are called.
PUBLISHED = {
    "architectures": ["T5ForConditionalGeneration"],
    "d_ff": 2048,
    "d_kv": 64,
    "d_model": 512,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "t5",
    "n_positions": 512,
    "num_heads": 8,
    "num_layers": 6,
    "output_past": True,
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "vocab_size": 32128,
}


@pytest.mark.slow
def test_t5_small_whole() -> None:
    torch.manual_seed(0)
    config = dataclasses.replace(PRESETS["t5-small"], dropout=0.0)
    model = T5(config).double().eval()
    with torch.device("meta"):
        oracle = oracle_for("t5-small", config)
    inputs = oracle.inputs(torch.Generator().manual_seed(0))
    outputs, gradients = differences(model, filled(oracle, T5_FAMILY, model), inputs, T5_FAMILY)
    assert outputs <= 1e-9
    assert gradients <= 1e-9


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder_layers": 1},
        {"decoder_layers": 4, "heads": 1},
        {"ffn_dim": 5},
        {"num_buckets": 32, "max_distance": 128},
    ],
    ids=lambda changes: ",".join(f"{k}={v}" for k, v in changes.items()),
)
def test_it_is_its_oracle_in_other_sizes(changes: dict[str, int]) -> None:
    config = dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]  # sizes
    torch.manual_seed(0)
    assert compare(T5(config), oracle_for("t5-small", config), torch.Generator().manual_seed(1)).equal


@torch.no_grad()
def test_all_buckets_are_those_of_transformers_in_long_texts() -> None:
    torch.manual_seed(0)
    config = dataclasses.replace(SMALL, num_buckets=32, max_distance=128)
    model = T5(config).double().eval()
    theirs = filled(oracle_for("t5-small", config), T5_FAMILY, model)
    source, target = torch.randint(2, 50, (2, 1, 300)).unbind()
    torch.testing.assert_close(model(source, None, target), theirs(source, None, target), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", PRESETS)
def test_every_name_is_transformers_and_comes_back(name: str) -> None:
    family = find_family(name)
    assert family is T5_FAMILY
    config = dataclasses.replace(PRESETS[name], vocab_size=50)
    with torch.device("meta"):
        model, theirs = T5(config), oracle_for(name, config).module.model
    own = model.state_dict()
    there = to_transformers_names(T5_FAMILY, own)
    names = dict(theirs.named_parameters())  # what is tied has one name
    assert {key: tensor.shape for key, tensor in there.items()} == {key: p.shape for key, p in names.items()}
    found, key_map = from_transformers_names(T5_FAMILY, own, there)
    assert {key: tensor.shape for key, tensor in found.items()} == {key: tensor.shape for key, tensor in own.items()}
    assert set(key_map) == set(there)


@torch.no_grad()
def test_tensors_there_and_back_are_the_same() -> None:
    model = T5(SMALL)
    found, _ = from_transformers_names(
        T5_FAMILY, model.state_dict(), to_transformers_names(T5_FAMILY, model.state_dict())
    )
    assert all(torch.equal(found[key], tensor) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    "config", [*PRESETS.values(), SMALL, Config(decoder_layers=2, ffn_dim=100, tie_weights=False)], ids=range(4)
)
def test_a_config_comes_back_from_transformers(config: Config) -> None:
    from transformers import T5Config

    assert parse_t5_config(T5Config(**t5_settings(config)).to_dict()) == config
    assert parse_t5_config(t5_settings(config)) == config


def test_the_published_config_is_the_preset() -> None:
    assert parse_t5_config(PUBLISHED) == PRESETS["t5-small"]


@pytest.mark.parametrize(
    ("field", "value", "known"),
    [
        ("feed_forward_proj", "gated-gelu", '"relu"'),
        ("is_gated_act", True, "false"),
        ("layer_norm_epsilon", 1e-5, "1e-06"),
        ("is_encoder_decoder", False, "true"),
    ],
)
def test_unknown_values_are_rejected_by_field_and_what_is_known(field: str, value: Any, known: str) -> None:
    with pytest.raises(ModelError, match=f"{field}={json.dumps(value)}.*it knows {known}"):
        parse_t5_config({**PUBLISHED, field: value})


def test_the_config_of_version_1_1_is_rejected() -> None:
    from transformers import T5Config

    later = T5Config(feed_forward_proj="gated-gelu", tie_word_embeddings=False).to_dict()
    with pytest.raises(ModelError, match='feed_forward_proj="gated-gelu"'):
        parse_t5_config(later)
    with pytest.raises(ModelError, match='d_model="512", where a whole number belongs'):
        parse_t5_config({**PUBLISHED, "d_model": "512"})
