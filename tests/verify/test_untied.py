"""An output matrix W_U of its own: the networks that share it with the embedding, beside their oracles without that."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from cutaway.models.registry import preset
from cutaway.nn.transformer import Unembedding
from cutaway.verify import compared_config, oracle_for
from cutaway.verify.compare import compare

ATTENTION = ("gpt2", "parallel-transformer", "transformer-tiny", "t5-small", "bart-base", "vit-gpt2-small")
ENCODERS = ("bert-base-uncased", "roberta-base", "distilbert-base", "albert-base-v2")
SIZES = {"vocab_size": 30, "target_vocab_size": None, "context_length": 16, "dim": 24, "layers": 2, "decoder_layers": 2}
SIZES |= {"heads": 4, "ffn_dim": 24, "embedding_dim": None, "image_size": 8}


def untied(name: str) -> nn.Module:
    found = preset(name)
    config = compared_config(name, found.config)
    sizes = {k: v for k, v in SIZES.items() if hasattr(config, k)}
    if name.startswith("vit"):
        sizes["target_vocab_size"] = 30
    if name.startswith("albert"):
        sizes["embedding_dim"] = 8
    torch.manual_seed(0)
    return found.build(dataclasses.replace(config, **sizes, tie_weights=False))


@pytest.mark.parametrize("name", ATTENTION + ENCODERS)
def test_outputs_and_gradients_are_the_oracles(name: str) -> None:
    pytest.importorskip("transformers")
    model = untied(name)
    found = compare(model, oracle_for(name, model.config), torch.Generator().manual_seed(0))
    assert found.equal, found


@pytest.mark.parametrize("name", ATTENTION + ENCODERS)
def test_it_is_one_matrix_more_which_the_last_product_is_made_with(name: str) -> None:
    model = untied(name)
    tied = preset(name).build(dataclasses.replace(model.config, tie_weights=True))
    layer = next(module for module in model.modules() if isinstance(module, Unembedding))
    counts = [sum(p.numel() for p in m.parameters()) for m in (model, tied)]
    assert counts[0] - counts[1] == layer.embedding.weight.numel()
    assert model.head.last(torch.zeros(1, model.config.dim))[1] is layer.weight  # which chunks and lenses ask for
    assert layer.weight is not layer.embedding.weight
    assert 0 < float(layer.weight.detach().std()) < 0.5  # drawn, and no larger than the logits can bear
