"""The Transformer beside PyTorch's own layers, in further configs; `transformer-tiny` is compared whole elsewhere."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from cutaway.models.transformer import PRESETS, Config, Transformer
from cutaway.nn.position import sinusoids
from cutaway.verify import compared_config, oracle_for
from cutaway.verify.compare import compare
from cutaway.verify.transformers import PlainTransformer, plain_transformer

SMALL = compared_config("transformer-base", PRESETS["transformer-base"])


def measured(config: Config) -> bool:
    torch.manual_seed(0)
    return compare(Transformer(config), oracle_for("transformer-base", config), torch.Generator().manual_seed(1)).equal


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize(
    "changes",
    [
        {"joint_vocab": False},
        {"joint_vocab": False, "target_vocab_size": 31},
        {"decoder_layers": 1},
        {"decoder_layers": 3, "heads": 1},
        {"dropout": 0.5, "ffn_dim": 5},
        {"base": 50.0},
    ],
    ids=lambda changes: ",".join(f"{k}={v}" for k, v in changes.items()),
)
def test_it_is_its_oracle_in_other_configs(order: str, changes: dict[str, float]) -> None:
    assert measured(dataclasses.replace(SMALL, order=order, **changes))  # type: ignore[arg-type]  # fields of Config


def test_the_smallest_is_compared_whole_with_its_dropout() -> None:
    tiny = PRESETS["transformer-tiny"]
    assert tiny.dropout > 0
    assert compared_config("transformer-tiny", tiny) == tiny


class BothScaled(PlainTransformer):
    """(embedding + position) · √d, as it is often taught."""

    def _bottom(self, table: Tensor, tokens: Tensor) -> Tensor:
        right = super()._bottom(table, tokens)
        return right + (SMALL.dim**0.5 - 1) * sinusoids(torch.arange(tokens.shape[1]), SMALL.dim, table.dtype)


def test_a_factor_on_the_positions_too_is_another_network() -> None:
    config = dataclasses.replace(SMALL, dropout=0.0)
    wrong = dataclasses.replace(plain_transformer(config), module=BothScaled(config))
    torch.manual_seed(0)
    assert compare(Transformer(config), wrong, torch.Generator().manual_seed(1)).outputs > 0.01
