"""NASNet beside the implementation from a table, in further configs, with drop path; faults that it must notice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from cutaway.models.nasnet import Config, NASNet, NormalCell
from cutaway.verify import oracle_for
from cutaway.verify.compare import Comparison, compare

SMALL = Config(cells=1, width=4, stem="cifar", stem_width=4, dropout=0.3, drop_path_rate=0.3, num_classes=5)


def compared(config: Config, change: Callable[[NASNet], object] = lambda model: None) -> Comparison:
    torch.manual_seed(0)
    model = NASNet(config)
    change(model)
    return compare(model, oracle_for("nasnet-a-small", config), torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"skip_reduction": True, "cells": 2},
        {"in_channels": 1, "drop_path_rate": 0.0},
        {"stem": "imagenet", "skip_reduction": True},
    ],
)
def test_outputs_and_gradients_are_those_of_the_table(changes: Mapping[str, Any]) -> None:
    found = compared(dataclasses.replace(SMALL, **changes))
    assert found.equal, found


def test_a_wrong_rate_of_drop_path_is_noticed() -> None:
    def change(model: NASNet) -> None:
        model.cells[-1].drop_path_rate += 0.01

    assert compared(SMALL, change).outputs > 1e-6


def test_an_exchange_of_two_operations_is_noticed() -> None:
    def change(model: NASNet) -> None:
        cell = model.cells[0]
        assert isinstance(cell, NormalCell)
        cell.sep1_h.forward, cell.sep2_a.forward = cell.sep2_a.forward, cell.sep1_h.forward  # type: ignore[method-assign]

    assert compared(dataclasses.replace(SMALL, drop_path_rate=0.0), change).outputs > 1e-6
