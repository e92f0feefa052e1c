"""What is searched: read as it is typed, written as it is read, and rejected by name where it cannot be."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cutaway.core.errors import CutawayError, SettingError, UnknownName
from cutaway.experiments.search.space import Choice, Range, Space, edge_name, parse_space, sort_settings
from cutaway.models.cellnet import EDGES, parse_cell
from cutaway.models.registry import preset

NUMBERS = st.floats(1e-12, 0.99)


def read(model: str, **typed: Any) -> Space:
    found = preset(model)
    _, searched, fixed = sort_settings(found, typed)
    return parse_space(found, searched, fixed)


@settings(deadline=None)
@given(ends=st.tuples(NUMBERS, NUMBERS), log=st.booleans())
def test_a_range_of_numbers_is_written_as_it_is_read(ends: tuple[float, float], log: bool) -> None:
    low, high = sorted(ends)
    assume(low < high)
    one = Range(low, high, log)
    again = read("mlp", momentum=str(one)).settings["momentum"]
    assert again == one
    assert str(again) == str(one)


@settings(deadline=None)
@given(low=st.integers(1, 10_000), more=st.integers(1, 10_000), log=st.booleans())
def test_a_range_of_whole_numbers_is_written_as_it_is_read(low: int, more: int, log: bool) -> None:
    one = Range(low, low + more, log, whole=True)
    assert read("mlp", batch_size=str(one)).settings["batch_size"] == one
    assert read("mlp", **{"model.hidden_dims": str(one)}).settings["model.hidden_dims"] == one


@settings(deadline=None)
@given(options=st.lists(st.sampled_from(["sgd", "momentum", "adam", "adamw", "muon"]), min_size=2, unique=True))
def test_a_choice_is_written_as_it_is_read(options: list[str]) -> None:
    one = Choice(tuple(options))
    assert read("mlp", optimizer=str(one)).settings["optimizer"] == one
    assert parse_space(preset("mlp"), {"optimizer": options}, {}).settings["optimizer"] == one


def test_a_space_comes_back_from_its_texts() -> None:
    typed = {"lr": "1e-4..1e-1:log", "model.hidden_dims": "64|64,64", "optimizer": "adam,sgd", "seed": "0..9"}
    space = read("mlp", **typed)
    assert parse_space(preset("mlp"), space.texts(), {}) == space
    cells = read("cellnet-small", **{"model.arch": "cells", "lr": "0.01,0.1"})
    assert parse_space(preset("cellnet-small"), cells.texts(), {}) == cells


def test_what_is_neither_range_nor_choice_is_fixed() -> None:
    typed = {
        "trials": "4", "lr": "1e-4..1e-1:log", "epochs": "5", "milestones": "0.5,0.75", "target": "price,usd",
        "weights": "../runs/a..b", "model.hidden_dims": "64,64", "model.activation": "relu,tanh",
    }  # fmt: skip
    how, searched, fixed = sort_settings(preset("mlp"), typed)
    assert list(how) == ["trials"]
    assert list(searched) == ["lr", "model.activation"]
    assert list(fixed) == ["epochs", "milestones", "target", "weights", "model.hidden_dims"]


@settings(deadline=None)
@given(value=st.floats(1e-4, 1e-1))
def test_what_is_drawn_can_be_typed(value: float) -> None:
    drawn = Range(1e-4, 1e-1, log=True).value(value)
    assert float(f"{drawn:g}") == drawn
    assert 1e-4 <= drawn <= 1e-1
    assert drawn == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize(("low", "high"), [(0.0123449, 0.0987651), (1.000049, 2.00085)])
def test_what_is_rounded_stays_in_its_range(low: float, high: float) -> None:
    """To four digits the ends themselves would lie outside."""
    one = Range(low, high)
    assert float(f"{low:.4g}") < low
    assert float(f"{high:.4g}") > high
    assert (one.value(low), one.value(high)) == (low, high)
    assert low < one.value((low + high) / 2) < high


def test_a_cell_is_drawn_edge_by_edge() -> None:
    space = read("cellnet-small", **{"model.arch": "cells"})
    operations = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3", "none")
    drawn = dict(zip(map(edge_name, EDGES), operations))
    assert set(space.parts()) == set(drawn)
    assert parse_cell(space.to_settings(drawn)["model.arch"]) == operations
    assert space.size() == 15_625


def test_a_grid_has_every_combination_once() -> None:
    space = read("mlp", optimizer="adam,sgd", batch_size="3..5")
    grid = list(space.grid())
    want = [{"optimizer": o, "batch_size": n} for o, n in itertools.product(("adam", "sgd"), (3, 4, 5))]
    assert sorted(map(str, grid)) == sorted(map(str, want))
    assert space.size() == len(grid) == 6
    with pytest.raises(SettingError, match=r"lr=0.1..0.2 for sampler=grid: must be a list of values, e.g. lr=0.1,0.2"):
        read("mlp", lr="0.1..0.2").grid()


@pytest.mark.parametrize(
    ("model", "typed", "error", "said"),
    [
        (
            "mlp",
            {"lr": "1e-1..1e-4"},
            SettingError,
            "lr=1e-1..1e-4: empty range. Must be low..high with low below high",
        ),
        ("mlp", {"lr": "0.1..0.1"}, SettingError, "range of a single number"),
        ("mlp", {"lr": "0..1:log"}, SettingError, "with :log both ends must be above 0"),
        ("mlp", {"lr": "0.1.."}, SettingError, "must be low..high"),
        ("mlp", {"lr": "0.1..1:lin"}, SettingError, "must be low..high"),
        ("mlp", {"lr": "0.1..1e999"}, SettingError, "finite"),
        ("mlp", {"lrr": "0.1..1"}, UnknownName, "no setting 'lrr'. Similar: lr"),
        ("mlp", {"model.hidden_dim": "8..9"}, UnknownName, "Similar: hidden_dims"),
        ("mlp", {"grad_clp": "8..9"}, UnknownName, "Similar: grad_clip"),
        ("mlp", {"batch_size": "1.5..3"}, SettingError, "Invalid batch_size=1.5..3: both ends must be integers"),
        ("mlp", {"momentum": "0..2"}, SettingError, "Invalid momentum=2: must be at least 0 and less than 1"),
        ("mlp", {"model.dropout": "0..2"}, SettingError, "Invalid model.dropout=2.0"),
        ("mlp", {"optimizer": "adam,sgdd"}, SettingError, "Invalid optimizer=sgdd"),
        ("mlp", {"optimizer": "adam,adam"}, SettingError, "a single value cannot be searched"),
        ("mlp", {"optimizer": "adam,"}, SettingError, "empty choice"),
        (
            "mlp",
            {"split_seed": "0..9"},
            SettingError,
            "Invalid split_seed=0..9: cannot be searched, because all trials must share",
        ),
        ("mlp", {"lr": "0.1"}, SettingError, "Empty search space"),
        ("mlp", {"model.arch": "cells"}, UnknownName, "no setting of mlp named 'arch'"),
    ],
)
def test_what_cannot_be_searched_is_rejected(model: str, typed: dict[str, str], error: type, said: str) -> None:
    with pytest.raises(error, match=said.replace("(", r"\(")) as raised:
        read(model, **typed)
    assert isinstance(raised.value, CutawayError)


def test_nothing_is_both_searched_and_fixed() -> None:
    with pytest.raises(
        SettingError, match=r"lr is both searched \(lr=0.1..1\) and fixed \(lr=0.1\): leave one of them out"
    ):
        parse_space(preset("mlp"), {"lr": "0.1..1"}, {"lr": 0.1})
