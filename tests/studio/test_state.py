"""The state of a side as words, and what is remembered of training without end."""

from __future__ import annotations

import math

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.apps.studio.setup import Change, format_log, parse_log, parse_number, state_settings, validate_state
from cutaway.apps.studio.trainer import POINTS, SNAPSHOT_BYTES, SNAPSHOTS, Curves, Snapshots
from cutaway.core.errors import CutawayError, SettingError, UnknownName

words = st.text(st.characters(codec="utf-8", exclude_characters=";\n"), max_size=12)
names = st.from_regex(r"[a-z_]+(\.[a-z0-9_]+)*", fullmatch=True)
settings = st.builds(Change, st.integers(0, 10**6), names.filter(lambda n: n != "weight"), words)
weights = st.builds(
    lambda step, name, index, value: Change(step, name, repr(value), tuple(index)),
    st.integers(0, 10**6), names, st.lists(st.integers(0, 99), max_size=4), st.floats(-1e6, 1e6),
)  # fmt: skip


@hypothesis.settings(deadline=None)
@given(st.lists(st.one_of(settings, weights), max_size=6))
def test_a_log_reads_back(changes: list[Change]) -> None:
    changes.sort(key=lambda change: change.step)
    assert parse_log(format_log(changes)) == changes


def test_the_log_of_the_contract() -> None:
    first, second = parse_log("120:lr=0.1;130:weight:hidden.0.linear.weight[0,1]=0.5")
    assert (first.step, first.key, first.value, first.index) == (120, "lr", "0.1", None)
    assert (second.step, second.key, second.value, second.index) == (130, "hidden.0.linear.weight", "0.5", (0, 1))


@pytest.mark.parametrize("log", ["lr=0.1", "x:lr=0.1", "5:lr", "-5:lr=1", "5:weight:a[0=1", "9:lr=1;3:lr=2", "1:a b=2"])
def test_what_is_no_log_is_rejected(log: str) -> None:
    with pytest.raises(SettingError, match="log"):
        parse_log(log)


@pytest.mark.parametrize(
    "state",
    [None, [], "data=moons", {"lr": 0.1}, {"a": None}, dict.fromkeys(map(str, range(200)), "x"), {"lr": "1" * 5000},
     {"x" * 300: "1"}],
    ids=["none", "list", "text", "number", "null", "many", "long value", "long key"],
)  # fmt: skip
def test_what_is_no_state_is_rejected(state: object) -> None:
    with pytest.raises(SettingError):
        validate_state(state)


def test_settings_are_told_from_what_the_page_keeps() -> None:
    state = {"data": "moons", "model": "mlp", "lr": "0.1", "model.hidden_dims": "3", "views": "boundary",
             "example": "2", "hide": "lr", "view.layer": "conv1", "steps": "4", "log": "", "speed": "9",
             "noise": "0.1"}  # fmt: skip
    assert state_settings(state) == {"lr": "0.1", "model.hidden_dims": "3", "noise": "0.1"}


@pytest.mark.parametrize(
    "key", ["weights", "vectors", "tensorboard", "snapshots", "save_minutes", "compile", "workers", "tokenizer"]
)
def test_settings_that_name_files_or_write_are_rejected(key: str) -> None:
    with pytest.raises(SettingError):
        state_settings({key: "/etc/passwd"})


def test_an_unknown_key_is_rejected_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="batch_size"):
        state_settings({"batchsize": "3"})


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1e9", "many"])
def test_numbers_are_bounded(value: str) -> None:
    with pytest.raises(CutawayError):
        parse_number({"steps": value}, "steps", 1e7)


# --- keeping -------------------------------------------------------------------------------------------------------


@hypothesis.settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 500), st.integers(10, 20))
def test_snapshots_are_bounded_and_spread(updates: int, first: int, size: int) -> None:
    kept = Snapshots(2**size)
    for step in range(first, first + updates + 1):
        if step == first or kept.due(step):
            kept.keep(step, lambda: torch.zeros(1))
    assert len(kept.steps) <= SNAPSHOTS
    assert kept.steps[0] == first
    assert kept.nearest(first) == first
    last = first + updates
    assert last - kept.steps[-1] < max(kept.every, 1)
    assert kept.every <= 1 or len(kept.steps) >= SNAPSHOTS // 2 - 1
    gaps = {b - a for a, b in zip(kept.steps[1:], kept.steps[2:])}
    assert gaps <= {kept.every}


def test_snapshots_keep_within_their_memory() -> None:
    kept = Snapshots(SNAPSHOT_BYTES // 10)
    for step in range(1000):
        if kept.due(step):
            kept.keep(step, lambda: torch.zeros(1))
        assert len(kept.steps) <= 10
    none = Snapshots(SNAPSHOT_BYTES)
    assert not none.due(0)
    none.keep(0, lambda: torch.zeros(1))
    assert none.steps == []
    assert none.nearest(3) is None


@hypothesis.settings(deadline=None)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=2000))
def test_curves_are_bounded_and_keep_the_mean(losses: list[float]) -> None:
    curves = Curves()
    for step, loss in enumerate(losses, 1):
        curves.add(loss, 1.0)
        if curves.due(step):
            curves.close(step)
        if step % 3 == 0:
            curves.measured(step, loss)
    columns = curves.to_json()
    assert len(columns["step"]) == len(columns["train"]) == len(columns["val"])
    known = {part: [y for y in columns[part] if y is not None] for part in ("train", "val")}
    assert all(len(part) <= POINTS for part in known.values())
    assert columns["step"] == sorted(set(columns["step"]))
    assert all(min(losses) - 1e-3 <= y <= max(losses) * 1.001 + 1e-3 for y in known["train"])
    at = {step: y for step, y in zip(columns["step"], columns["val"]) if y is not None}
    assert all(math.isclose(y, losses[step - 1], rel_tol=1e-4) for step, y in at.items()), "where it was measured"
    assert max(at, default=0) == len(losses) // 3 * 3, "to the end"


def test_numbers_that_json_has_not_become_null() -> None:
    curves = Curves()
    for step, loss in enumerate((1.0, float("nan"), float("inf")), 1):
        curves.add(loss, 1.0)
        curves.close(step)
    assert curves.to_json()["train"] == [1.0, None, None]
