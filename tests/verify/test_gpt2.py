"""GPT-2 beside transformers', in further configs, and with the caches of both."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.checkpoints.huggingface.gpt2 import GPT2_FAMILY
from cutaway.models.gpt2 import GPT2, PRESETS, Config
from cutaway.verify import oracle_for
from cutaway.verify.compare import BOUND, compare, copy_parameters, difference
from cutaway.verify.huggingface import transformers_oracle

from .whole import differences, filled

SMALL = Config(vocab_size=50, context_length=16, dim=24, layers=2, heads=3, dropout=0.0)


@pytest.fixture(autouse=True)
def _library() -> None:
    pytest.importorskip("transformers")


@pytest.mark.parametrize("head", ["next", "classes"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"layers": 4, "heads": 1}, {"ffn_dim": 17, "heads": 12}, {"context_length": 9, "num_classes": 5}],
    ids=str,
)
def test_outputs_and_gradients_are_transformers(head: str, changes: dict[str, Any]) -> None:
    config = dataclasses.replace(SMALL, head=head, **changes)
    measured = compare(GPT2(config), oracle_for("gpt2", config), torch.Generator().manual_seed(1))
    assert measured.outputs <= BOUND
    assert measured.gradients <= BOUND, measured.worst


@pytest.mark.slow
def test_gpt2_whole() -> None:
    torch.manual_seed(0)
    config = dataclasses.replace(PRESETS["gpt2"], dropout=0.0)
    model = GPT2(config).double().eval()
    with torch.device("meta"):
        oracle = oracle_for("gpt2", config)
    tokens, _ = oracle.inputs(torch.Generator().manual_seed(0))
    outputs, gradients = differences(model, filled(oracle, GPT2_FAMILY, model), (tokens,), GPT2_FAMILY)
    assert outputs <= BOUND
    assert gradients <= BOUND


def test_another_gelu_is_noticed() -> None:
    other = transformers_oracle(GPT2_FAMILY, "gpt2", SMALL, pad_token_id=0)
    for block in other.module.model.transformer.h:  # type: ignore[union-attr]
        block.mlp.act = nn.GELU()  # type: ignore[union-attr]
    assert not compare(GPT2(SMALL), other, torch.Generator().manual_seed(1)).equal


def both() -> tuple[GPT2, Any]:
    """Our network and transformers' with the same random weights, in float64 and evaluation mode."""
    torch.manual_seed(0)
    ours = GPT2(SMALL).double().eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    oracle = oracle_for("gpt2", SMALL)
    assert oracle.converted is not None
    copy_parameters(oracle.converted(dict(ours.named_parameters())), oracle.module.double())
    theirs: Any = oracle.module.eval()
    return ours, theirs.model


@pytest.mark.parametrize("pieces", [(12,), (5, 7), (6, 1, 1, 1, 3), (1,) * 12], ids=str)
@torch.no_grad()
def test_caches_give_what_transformers_caches_give(pieces: tuple[int, ...]) -> None:
    ours, theirs = both()
    tokens = torch.randint(2, 50, (3, 12))
    cache, past = None, None
    for piece in tokens.split(pieces, 1):
        logits, cache = ours.extend(piece, None, cache)
        answer = theirs(input_ids=piece, past_key_values=past, use_cache=True)
        past = answer.past_key_values
        assert difference(logits, answer.logits[:, -1]) <= BOUND
    assert cache is not None
    for slot, layer in zip(cache.layers, past.layers):
        for mine, kept in zip(slot.known(), (layer.keys, layer.values)):
            assert difference(mine, kept) <= BOUND


@torch.no_grad()
def test_every_layer_is_transformers() -> None:
    ours, theirs = both()
    tokens = torch.randint(2, 50, (2, 9))
    expected: list[Tensor] = list(theirs(input_ids=tokens, output_hidden_states=True).hidden_states)
    found: list[Tensor] = []
    handles = [block.register_forward_hook(lambda *call: found.append(call[2])) for block in ours.blocks]
    last = ours.hidden(tokens)
    for handle in handles:
        handle.remove()
    found[-1] = last  # theirs is normalized, too
    for mine, kept in zip(found, expected[1:]):
        assert difference(mine, kept) <= BOUND


def test_keys_and_shapes_are_transformers_at_full_size() -> None:
    with torch.device("meta"):
        ours = GPT2(PRESETS["gpt2"])
        oracle = transformers_oracle(GPT2_FAMILY, "gpt2", PRESETS["gpt2"])
        assert oracle.converted is not None
        renamed = oracle.converted(dict(ours.named_parameters()))
    theirs = {name: parameter.shape for name, parameter in oracle.module.named_parameters()}
    assert {name: tensor.shape for name, tensor in renamed.items()} == theirs
