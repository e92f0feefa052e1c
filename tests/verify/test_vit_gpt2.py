"""ViT with GPT-2 beside transformers' VisionEncoderDecoderModel: the same captions, and configs of files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.checkpoints.huggingface.folders import read_folder, write_folder
from cutaway.checkpoints.huggingface.gpt2 import parse_vit_gpt2_config, vit_gpt2_settings
from cutaway.checkpoints.huggingface.tokenizer_files import Vocabulary
from cutaway.core.errors import ModelError
from cutaway.core.spec import Tokens
from cutaway.inference.sequence_decoding import NONE, decode
from cutaway.models.vit_gpt2 import Config, ViTGPT2

transformers = pytest.importorskip("transformers")
SMALL = Config(image_size=12, patch_size=4, dim=16, layers=2, decoder_layers=1, heads=2, target_vocab_size=20)
SMALL = dataclasses.replace(SMALL, context_length=12)
TARGET = Tokens(20, 2, 3, 7)


@torch.no_grad()
def test_the_same_captions_are_written_there(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = ViTGPT2(SMALL).eval()
    for parameter in model.parameters():
        parameter.mul_(6 if parameter.ndim > 1 else 1)  # so that captions differ from image to image
    own = {"pad_token_id": 0, "decoder_start_token_id": 2, "bos_token_id": 2, "eos_token_id": 3}
    write_folder(model, "vit-gpt2", tmp_path / "out", Vocabulary({}, {}, own))
    theirs = transformers.VisionEncoderDecoderModel.from_pretrained(tmp_path / "out").eval()
    images = torch.randn(6, 3, 12, 12)
    said = decode(read_folder(tmp_path / "out").model, images, None, TARGET, 10)
    answers = theirs.generate(pixel_values=images, max_length=11, num_beams=1, do_sample=False, suppress_tokens=[0, 2])
    found = [[t for t in row[1:] if t not in (0, 3)] for row in answers.tolist()]
    assert found == [[t for t in row if t != NONE] for row in said.tolist()]
    assert len(set(map(tuple, found))) > 1


@pytest.mark.parametrize("config", [SMALL, Config(), Config(ffn_dim=96, dim=48, heads=4, eps=1e-12, tie_weights=False)])
def test_a_config_comes_back_from_transformers(config: Config) -> None:
    written = transformers.VisionEncoderDecoderConfig(**vit_gpt2_settings(config)).to_dict()
    assert parse_vit_gpt2_config(written) == config


@pytest.mark.parametrize(
    ("half", "field", "value", "said"),
    [
        ("encoder", "model_type", "beit", 'encoder.model_type="beit"'),
        ("decoder", "model_type", "bert", 'decoder.model_type="bert"'),
        ("encoder", "hidden_size", 32, "an encoder with hidden_size=32 and a decoder with 16"),
        ("encoder", "qkv_bias", False, "qkv_bias=false"),
        ("decoder", "resid_pdrop", 0.2, "resid_pdrop, embd_pdrop and attn_pdrop that differ"),
        ("decoder", "add_cross_attention", False, "add_cross_attention=false"),
        ("decoder", "activation_function", "relu", 'activation_function="relu"'),
    ],
)
def test_another_network_is_rejected_by_the_field(half: str, field: str, value: Any, said: str) -> None:
    theirs = vit_gpt2_settings(SMALL)
    with pytest.raises(ModelError, match=said):
        parse_vit_gpt2_config({**theirs, half: {**theirs[half], field: value}})
    with pytest.raises(ModelError, match=f"{half}.model_type=null"):
        parse_vit_gpt2_config({**theirs, half: None})
