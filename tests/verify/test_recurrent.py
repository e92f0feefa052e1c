"""Recurrent networks in every role, against cells that are called by hand for each real step of each sequence."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.models import gru, lstm, rnn
from cutaway.verify.compare import compare
from cutaway.verify.recurrent import step_by_step

FAMILIES = {"rnn": rnn, "lstm": lstm, "gru": gru}
ROLES: dict[str, dict[str, Any]] = {
    "classifier of words": {"vocab_size": 9, "num_classes": 3},
    "classifier of words, embedded in fewer": {"vocab_size": 9, "embedding_dim": 2, "num_classes": 3},
    "tagger": {"vocab_size": 9, "pooling": "every", "bidirectional": True, "num_classes": 4},
    "language model": {"vocab_size": 9, "pooling": "every", "num_classes": 9, "layers": 2},
    "tied language model": {"vocab_size": 9, "pooling": "every", "num_classes": 9, "tie_weights": True},
    "direct forecaster": {"in_features": 3, "horizon": 4, "num_classes": 8, "layers": 2, "relative": False},
    "relative forecaster": {"in_features": 3, "horizon": 4, "num_classes": 8, "relative": True, "bidirectional": True},
    "forecaster that knows": {
        "in_features": 3,
        "horizon": 4,
        "num_classes": 8,
        "known_future": 2,
        "layers": 2,
        "relative": False,
    },
    "relative one that knows": {"in_features": 3, "horizon": 4, "num_classes": 4, "known_future": 2},
    "recursive forecaster": {
        "in_features": 2,
        "horizon": 4,
        "num_classes": 8,
        "recursive": True,
        "layers": 2,
        "relative": False,
    },
    "recursive and relative": {"in_features": 1, "horizon": 3, "num_classes": 3, "recursive": True, "relative": True},
    "recursive one that knows": {
        "in_features": 3,
        "horizon": 4,
        "num_classes": 8,
        "recursive": True,
        "known_future": 1,
        "relative": False,
    },
}


def assert_equal_to_the_cells(family: str, seed: int = 0, **changes: Any) -> None:
    torch.manual_seed(seed)
    config = FAMILIES[family].Config(**{"hidden_dim": 4, **changes})
    measured = compare(FAMILIES[family].Model(config), step_by_step(config), torch.Generator().manual_seed(seed))
    assert measured.equal, measured


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("role", ROLES)
def test_every_role(family: str, role: str) -> None:
    assert_equal_to_the_cells(family, **ROLES[role])


@settings(max_examples=25, deadline=None)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    layers=st.integers(1, 3),
    bidirectional=st.booleans(),
    pooling=st.sampled_from(["last", "mean", "max", "every"]),
    hidden_dim=st.integers(1, 5),
    in_features=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_any_layers_directions_and_lengths(family: str, seed: int, **changes: Any) -> None:
    assert_equal_to_the_cells(family, seed, num_classes=3, **changes)


def test_dropout_before_the_head_drops_what_the_oracle_drops() -> None:
    assert_equal_to_the_cells("lstm", vocab_size=9, dropout=0.4, num_classes=3)


def test_relu_is_another_network() -> None:
    assert_equal_to_the_cells("rnn", activation="relu", num_classes=3)
    relu = rnn.Config(hidden_dim=4, activation="relu", num_classes=3)
    torch.manual_seed(0)
    other = step_by_step(dataclasses.replace(relu, activation="tanh"))
    assert not compare(rnn.Model(relu), other, torch.Generator().manual_seed(0)).equal


class Deaf(gru.Model):
    """Reads padding as if it were real."""

    def forward(self, x: Tensor, beside: Tensor | None = None) -> Tensor:
        return super().forward(x)


def test_a_padded_step_that_is_read_would_be_seen() -> None:
    config = gru.Config(hidden_dim=4, pooling="mean", num_classes=3)
    torch.manual_seed(0)
    assert not compare(Deaf(config), step_by_step(config), torch.Generator().manual_seed(0)).equal
