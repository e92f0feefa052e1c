"""What `verify` holds by the textbook fails where a layer, a cache or a step is another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.apps.cli.verify_textbook import compare_cached, compare_layers
from cutaway.inspect.gates import STEP_OF
from cutaway.models.registry import preset
from cutaway.nn import attention, kv_cache
from cutaway.verify import compared_config

BOUND = 1e-9


def worst(model: nn.Module, x: Tensor) -> float:
    return max(apart for _, apart in compare_layers(model.double().eval(), (x,)))


def small(name: str) -> tuple[Any, nn.Module]:
    torch.manual_seed(0)
    config = compared_config(name, preset(name).config)
    return config, preset(name).build(config)


def test_layers_are_the_textbooks() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1, groups=1), nn.BatchNorm2d(4), nn.Flatten(2), nn.LayerNorm(16))
    assert worst(layers, torch.randn(2, 3, 8, 8, dtype=torch.float64)) <= BOUND


def test_another_momentum_of_batch_norm_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(nn.BatchNorm1d):
        def forward(self, input: Tensor) -> Tensor:
            self.momentum, kept = 0.01, self.momentum
            y = super().forward(input)
            self.momentum = kept
            return y

    assert worst(Slow(3), torch.randn(5, 3, dtype=torch.float64)) > BOUND


def test_attention_that_is_scaled_otherwise_is_noticed() -> None:
    class Scaled(attention.MultiHeadAttention):
        def textbook(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
            self.scale *= 2
            try:
                return super().textbook(*args, **kwargs)
            finally:
                self.scale /= 2

    torch.manual_seed(0)
    assert worst(attention.MultiHeadAttention(8, 2), torch.randn(2, 5, 8, dtype=torch.float64)) <= BOUND
    assert worst(Scaled(8, 2), torch.randn(2, 5, 8, dtype=torch.float64)) > BOUND


def test_another_step_of_a_cell_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    assert worst(nn.GRU(3, 5, batch_first=True), x) <= BOUND
    step = STEP_OF["GRU"]
    monkeypatch.setitem(STEP_OF, "GRU", lambda *given: {name: 2 * gate for name, gate in step(*given).items()})
    assert worst(nn.GRU(3, 5, batch_first=True), x) > BOUND


@pytest.mark.parametrize("name", ["gpt2", "parallel-transformer", "t5-small", "bart-base", "seq2seq-gru", "rnn", "gru"])
def test_token_after_token_is_all_at_once(name: str) -> None:
    config, model = small(name)
    apart = compare_cached(preset(name), config, model)
    assert apart is not None
    assert apart <= BOUND


@pytest.mark.parametrize("name", ["gpt2", "bart-base"])
def test_a_cache_that_mixes_up_its_tokens_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: kv_cache.LayerCache) -> tuple[Tensor, Tensor]:
        assert self.keys is not None
        assert self.values is not None
        return self.keys[:, :, : self.length], self.values[:, :, : self.length].flip(2)

    config, model = small(name)
    monkeypatch.setattr(kv_cache.LayerCache, "known", wrong)
    apart = compare_cached(preset(name), config, model)
    assert apart is not None
    assert apart > BOUND


def test_a_network_that_makes_no_sequences_has_no_such_claim() -> None:
    assert compare_cached(preset("mlp"), *small("mlp")) is None
