"""cnn-attention beside PyTorch's own layers, in further configs."""

from __future__ import annotations

import pytest
import torch

from cutaway.models.cnn_attention import CNNAttention, Config
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare


@pytest.mark.parametrize(
    "config",
    [
        Config(widths=(6,), heads=3, in_channels=1, num_classes=1),
        Config(widths=(4, 8), heads=1, in_channels=2, num_classes=3),
        Config(widths=(4, 4, 6, 6), heads=6, in_channels=3, num_classes=2),
    ],
    ids=["one", "two", "four"],
)
def test_outputs_and_gradients_are_the_oracles(config: Config) -> None:
    assert compare(CNNAttention(config), oracle_for("cnn-attention", config), torch.Generator().manual_seed(1)).equal


def test_another_number_of_heads_of_the_same_weights_is_noticed() -> None:
    ours, theirs = (Config(widths=(4, 8), heads=heads) for heads in (2, 4))
    measured = compare(CNNAttention(ours), oracle_for("cnn-attention", theirs), torch.Generator().manual_seed(1))
    assert measured.outputs > 1e-4
