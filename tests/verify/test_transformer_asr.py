"""Whisper beside transformers' network: names and configs both ways, and what a folder of theirs holds besides."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.checkpoints.huggingface import from_transformers_names, to_transformers_names
from cutaway.checkpoints.huggingface.encoder_decoders import WHISPER_FAMILY, parse_whisper_config, whisper_settings
from cutaway.checkpoints.huggingface.folders import read_folder, write_folder
from cutaway.core.errors import ModelError
from cutaway.models.transformer_asr import PRESETS, Config, Model
from cutaway.verify import compared_config, oracle_for

pytest.importorskip("transformers")
SMALL = compared_config("whisper-tiny", PRESETS["whisper-tiny"])


@pytest.mark.parametrize("name", PRESETS)
def test_every_name_is_transformers_and_comes_back(name: str) -> None:
    config = dataclasses.replace(PRESETS[name], target_vocab_size=50)
    with torch.device("meta"):
        model, theirs = Model(config), oracle_for(name, config).module.model
    own = model.state_dict()
    there = to_transformers_names(WHISPER_FAMILY, own)
    names = dict(theirs.named_parameters())  # what is tied has one name
    assert {key: tensor.shape for key, tensor in there.items()} == {key: p.shape for key, p in names.items()}
    found, key_map = from_transformers_names(WHISPER_FAMILY, own, there)
    assert {key: tensor.shape for key, tensor in found.items()} == {key: tensor.shape for key, tensor in own.items()}
    assert set(key_map) == set(there)


@pytest.mark.parametrize("config", [*PRESETS.values(), Config(decoder_layers=2, ffn_dim=100)], ids=range(5))
def test_a_config_comes_back_from_transformers(config: Config) -> None:
    from transformers import WhisperConfig

    assert parse_whisper_config(WhisperConfig(**whisper_settings(config)).to_dict()) == dataclasses.replace(
        config, decoder_layers=None if config.decoder_layers == config.layers else config.decoder_layers
    )


@torch.no_grad()
def test_a_folder_of_transformers_and_back_says_the_same(tmp_path: Path) -> None:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    ends = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 0}
    given = {**whisper_settings(SMALL), **ends, "max_source_positions": 10, "begin_suppress_tokens": None}
    theirs = WhisperForConditionalGeneration(WhisperConfig(**given)).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = read_folder(tmp_path / "theirs", "whisper-tiny")
    write_folder(loaded.model, "whisper-tiny", tmp_path / "back")
    back, said = WhisperForConditionalGeneration.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not said["missing_keys"]
    x, tokens = torch.randn(2, 20, SMALL.in_features), torch.randint(1, 40, (2, 4))
    wanted = theirs(input_features=x.mT, decoder_input_ids=tokens).logits
    torch.testing.assert_close(loaded.model(x, None, tokens), wanted)
    torch.testing.assert_close(back.eval()(input_features=x.mT, decoder_input_ids=tokens).logits, wanted)
    table = theirs.model.encoder.embed_positions.weight
    assert torch.equal(back.model.encoder.embed_positions.weight, table)


def test_ends_of_our_own_transcripts_are_written() -> None:
    own = whisper_settings(PRESETS["transformer-asr"])
    assert own["eos_token_id"] == own["decoder_start_token_id"] == 0
    assert "eos_token_id" not in whisper_settings(PRESETS["whisper-base"])


@pytest.mark.parametrize(
    ("field", "value", "known"),
    [
        ("activation_function", "relu", '"gelu"'),
        ("scale_embedding", True, "false"),
        ("attention_dropout", 0.1, "0.0"),
        ("activation_dropout", 0.1, "0.0"),
        ("encoder_layerdrop", 0.1, "0.0"),
        ("tie_word_embeddings", False, "true"),
    ],
)
def test_unknown_values_are_rejected_by_field_and_what_is_known(field: str, value: Any, known: str) -> None:
    with pytest.raises(ModelError, match=f"{field}={json.dumps(value)}.*it knows {known}"):
        parse_whisper_config({field: value})
