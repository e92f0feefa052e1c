"""Image GPT with captions beside transformers' GPT-2 on the caption, the start token and the pixels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.models.image_gpt import Config, ImageGPT
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

SMALL = Config(colors=5, sides=(3, 4), dim=12, layers=2, heads=3, class_dropout=0.0, words=7, caption=4)


@pytest.mark.parametrize("changes", [{}, {"caption": 1, "words": 2}, {"classes": 2}, {"words": 0, "caption": 0}])
def test_outputs_and_gradients_are_those_of_one_sequence(changes: Mapping[str, Any]) -> None:
    config = dataclasses.replace(SMALL, **changes)
    torch.manual_seed(0)
    oracle = oracle_for("image-gpt", config)
    (tokens,) = oracle.inputs(torch.Generator().manual_seed(0))
    assert tokens.shape == (3, config.caption + 12)
    words = tokens[:, : config.caption]
    assert bool(((words > config.no_class) & (words < config.vocab_size)).all())
    found = compare(ImageGPT(config), oracle, torch.Generator().manual_seed(0))
    assert found.equal, found


def test_a_shifted_output_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def features(self: ImageGPT, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        hidden: Tensor = self.hidden(tokens, mask)
        return hidden[:, self.config.caption - 1 : -1]  # the outputs of the positions before

    monkeypatch.setattr(ImageGPT, "features", features)
    torch.manual_seed(0)
    found = compare(ImageGPT(SMALL), oracle_for("image-gpt", SMALL), torch.Generator().manual_seed(0))
    assert found.outputs > 1e-3
