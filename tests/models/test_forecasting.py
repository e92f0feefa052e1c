"""Recurrent networks that forecast: what is known in advance, forecasts that are read again, levels of a series."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.core.errors import ModelError

from .test_recurrent import EACH, model_of


@EACH
def test_known_variables_move_the_forecast_from_their_step_on(name: str) -> None:
    for recursive in (False, True):
        model = model_of(name, in_features=3, horizon=4, num_classes=8, known_future=1, recursive=recursive)
        x, future = torch.randn(2, 6, 3, dtype=torch.float64), torch.randn(2, 4, 1, dtype=torch.float64)
        before = model(x, future).view(2, 4, 2)
        other = future.clone()
        other[:, 2] += 1
        moved = (model(x, other).view(2, 4, 2) != before).any(2)
        assert moved.tolist() == [[False, False, True, True]] * 2
        assert model.features(x, future).shape == (2, 4, 5)


@EACH
@pytest.mark.parametrize("changes", [{}, {"known_future": 1}, {"recursive": True, "known_future": 1}], ids=str)
def test_forecasts_start_from_the_last_value_by_default(name: str, changes: dict[str, Any]) -> None:
    model = model_of(name, in_features=3, horizon=4, num_classes=8, **changes)
    x, future = torch.randn(2, 6, 3, dtype=torch.float64), torch.randn(2, 4, 1, dtype=torch.float64)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
    answers = model(x, future) if changes else model(x)
    assert torch.equal(answers, x[:, -1, :2].repeat(1, 4))
    plain = model_of(name, in_features=3, horizon=4, num_classes=8, relative=False, **changes)
    plain.load_state_dict(model.state_dict())
    assert not (plain(x, future) if changes else plain(x)).any()


@pytest.mark.parametrize("changes", [{}, {"known_future": 1}, {"recursive": True, "in_features": 2}])
def test_a_relative_forecast_moves_with_the_level_of_the_series(changes: dict[str, Any]) -> None:
    model = model_of("gru", **{"in_features": 3, "horizon": 4, "num_classes": 8, **changes})
    x, future = torch.randn(2, 6, model.config.in_features, dtype=torch.float64), torch.randn(2, 4, 1).double()
    moved = x.clone()
    moved[..., :2] += torch.tensor([5.0, -3.0], dtype=torch.float64)
    given = (future,) if "known_future" in changes else ()
    shift = torch.tensor([5.0, -3.0], dtype=torch.float64).repeat(4)
    torch.testing.assert_close(model(moved, *given), model(x, *given) + shift)


def test_a_recursive_forecast_reads_its_own_forecasts() -> None:
    settings = {"in_features": 2, "recursive": True, "relative": False}
    long = model_of("lstm", horizon=5, num_classes=10, **settings)
    short = model_of("lstm", horizon=1, num_classes=2, **settings)
    short.load_state_dict(long.state_dict())
    x = torch.randn(3, 6, 2, dtype=torch.float64)
    answers, seen = long(x), x
    for _ in range(5):
        seen = torch.cat([seen, short(seen)[:, None]], dim=1)
    torch.testing.assert_close(answers, seen[:, 6:].flatten(1))


@pytest.mark.parametrize("future", [None, torch.zeros(2, 3, 1), torch.zeros(2, 4, 2)])
def test_what_is_known_in_advance_must_be_given(future: Tensor | None) -> None:
    model = model_of("gru", in_features=3, horizon=4, num_classes=8, known_future=1)
    with pytest.raises(ModelError, match=r"of shape \(2, 4, 1\), as its second argument, and was given"):
        model(torch.zeros(2, 6, 3, dtype=torch.float64), future)


def test_a_forecaster_takes_no_mask() -> None:
    model = model_of("gru", in_features=3, horizon=4, num_classes=8)
    with pytest.raises(ModelError, match="takes one argument"):
        model(torch.zeros(2, 6, 3, dtype=torch.float64), torch.ones(2, 6, dtype=torch.bool))
