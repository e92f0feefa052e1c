"""LeNet-5 beside the sums of its paper, and the small networks beside hand-built sequences, in further configs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cutaway.models import conv4, lenet5, lenet5_modern, simplecnn
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare
from cutaway.verify.convnets import PaperLeNet5

CASES: list[tuple[str, nn.Module]] = [
    ("lenet5", lenet5.Model(lenet5.Config(in_channels=3, num_classes=4))),
    ("lenet5-modern", lenet5_modern.Model(lenet5_modern.Config(in_channels=3, num_classes=2, image_size=21))),
    ("simplecnn", simplecnn.Model(simplecnn.Config(in_channels=1, num_classes=1, widths=(5, 7)))),
    ("conv4", conv4.Model(conv4.Config(in_channels=3, num_classes=2, width=6))),
    ("conv4-strided", conv4.Model(conv4.Config(in_channels=2, num_classes=1, width=5, downsampling="stride"))),
]


@pytest.mark.parametrize(("name", "model"), CASES, ids=[name for name, _ in CASES])
def test_outputs_and_gradients_are_the_oracles(name: str, model: nn.Module) -> None:
    assert compare(model, oracle_for(name, model.config), torch.Generator().manual_seed(1)).equal


def test_both_tables_are_the_papers() -> None:
    assert PaperLeNet5.table() == [list(row) for row in lenet5.C3_TABLE]


def test_one_connection_more_or_less_is_noticed() -> None:
    model = lenet5.Model(lenet5.Config())
    model.c3.source = model.c3.source.roll(1)
    assert not compare(model, oracle_for("lenet5", model.config), torch.Generator().manual_seed(1)).equal
