"""The target of a table: told apart as class or quantity, learned from training rows, rejected where it cannot be."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from cutaway.core.errors import DataError
from cutaway.core.spec import Classes, Value
from cutaway.data.tables.column_roles import (
    check_learnable,
    check_trained_classes,
    complete_rows,
    incomplete_rows,
    read_labels,
    reject_incomplete,
)
from cutaway.data.tables.table_files import Table


def table_of(*targets: object, **more: list[str]) -> Table:
    cells = [None if t is None else str(t) for t in targets]
    frame = pl.DataFrame({"y": pl.Series(cells, dtype=pl.String), **more})
    return Table("some.csv", frame, lines=np.arange(len(cells)) + 2)


def all_rows(table: Table) -> np.ndarray:
    return np.arange(len(table))


@pytest.mark.parametrize(
    ("targets", "kind", "numeric"),
    [
        (range(21), None, True),
        ([*range(20)] * 3, None, False),
        (range(21), "category", False),
        ([1, 2, 3], "number", True),
        ([*range(30), "oops"], None, True),  # one mistake in a column of numbers
        ([*range(21), *"abcdefgh"], None, False),
        ([f"{v}.0" for v in range(5)], None, False),
    ],
)
def test_many_different_numbers_are_a_quantity(targets: list[object], kind: str | None, numeric: bool) -> None:
    assert read_labels(table_of(*targets), "y", kind).numeric is numeric


def test_classes_are_sorted_as_people_do_and_numbered() -> None:
    labels = read_labels(table_of("10", " 9", "10 ", "2"), "y", None)
    target = labels.fit(np.arange(4))
    assert target == Classes(("2", "9", "10"), "y")
    assert labels.tensor(target, np.array([3, 0, 1])).tolist() == [0, 2, 1]
    assert labels.tensor(target, np.array([0])).dtype == torch.int64


def test_quantities_are_standardised_by_the_rows_that_fit() -> None:
    labels = read_labels(table_of(1, 3, 1e6), "y", "number")
    target = labels.fit(np.array([0, 1]))
    assert target == Value("y", mean=2.0, scale=1.0)
    tensor = labels.tensor(target, np.array([1, 2]))
    assert tensor.dtype == torch.float32
    assert tensor.tolist() == [1.0, 999998.0]


def test_a_quantity_that_overflows_is_rejected_by_its_row() -> None:
    labels = read_labels(table_of("1e-3", "2e-3", "1e38"), "y", "number")
    with pytest.raises(DataError, match=r"some\.csv, line 4, column y: too far from the targets of training"):
        labels.tensor(labels.fit(np.array([0, 1])), np.arange(3))


@pytest.mark.parametrize(
    ("targets", "kind", "words"),
    [
        (["a"] * 9, None, ["'y' is 'a' in all 9 rows"]),
        ([*"aaaabbbbc"], None, ["'c' (line 10 of some.csv)", "one example", "at least 3", "take those rows out"]),
        ([*"aaaabbbbcc"], None, ["'c' (line 10 of some.csv)", "fewer than 3 examples"]),
        (range(15), None, ["15 different values in 15 rows", "types=y:number", "and 10 more"]),
        (["a", "b"], None, ["2 usable rows"]),
        ([4.5] * 5, "number", ["'y' is '4.5' in all 5 rows"]),
    ],
)
def test_targets_that_nothing_can_be_learned_from(targets: list[object], kind: str | None, words: list[str]) -> None:
    table = table_of(*targets)
    with pytest.raises(DataError) as rejected:
        check_learnable(read_labels(table, "y", kind), all_rows(table), splits=3)
    for word in words:
        assert word in str(rejected.value)


def test_a_target_without_a_single_value() -> None:
    with pytest.raises(DataError, match=r"'y' is missing in every row of some\.csv"):
        read_labels(table_of("", "NA", None), "y", None)


def test_rows_without_target_or_group_are_named_or_left_out() -> None:
    table = table_of("1.5", "", "oops", "NA", "2.5", g=["a", "a", "a", "a", "-"])
    labels = read_labels(table, "y", "number")
    for missing in ("error", "fill"):  # a target cannot be filled in
        with pytest.raises(DataError, match="missing=drop") as rejected:
            reject_incomplete(table, incomplete_rows(table, labels, "g"), missing)
        assert [str(p) for p in rejected.value.problems] == [
            "some.csv, line 3, column y: the target is missing",
            "some.csv, line 4, column y: 'oops' is not a number",
            "some.csv, line 5, column y: the target is missing, which is what 'NA' stands for",
            "some.csv, line 6, column g: the group is missing",
        ]
    reject_incomplete(table, incomplete_rows(table, labels, "g"), "drop")
    rows, notes = complete_rows(table, incomplete_rows(table, labels, "g"))
    assert rows.tolist() == [0]
    assert "left out 4 of 5 rows (80.0%)" in notes[0]
    rows, _ = complete_rows(table, incomplete_rows(table, labels, None))
    assert rows.tolist() == [0, 4]


def test_classes_that_training_never_sees_are_rejected() -> None:
    labels = read_labels(table_of(*"aabbcc"), "y", None)
    splits = {"train": np.array([0, 1, 2]), "val": np.array([3, 4]), "test": np.array([5])}
    with pytest.raises(DataError, match="found in val and test and not in training: 'c'"):
        check_trained_classes(labels, labels.fit(splits["train"]), splits)
    alone = {"train": np.array([0, 1]), "val": np.array([0])}
    with pytest.raises(DataError, match="one class only, 'a'"):
        check_trained_classes(labels, labels.fit(alone["train"]), alone)


def test_classes_that_a_trained_model_does_not_know_are_problems() -> None:
    labels = read_labels(table_of(*"abx"), "y", "category")
    with pytest.raises(DataError, match="The classes are: a, b") as rejected:
        labels.tensor(Classes(("a", "b"), "y"), np.arange(3))
    assert [p.where for p in rejected.value.problems] == ["some.csv, line 4, column y"]
