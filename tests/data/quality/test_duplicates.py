"""Duplicates across splits: which they are, and what is said of them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cutaway.data.findings import cross_split_duplicates, duplicate_warning

PARTED = {"train": np.array([0, 1, 2]), "val": np.array([3, 4]), "test": np.array([5, 6])}


@pytest.mark.parametrize("kind", ["str", "bytes", "int", "uint64"])
def test_duplicates_in_different_parts_are_found(kind: str) -> None:
    words = ["a", "b", "a", "c", "b", "b", "d"]
    keys = {
        "str": words,
        "bytes": [w.encode() + b"\0" for w in words],
        "int": [ord(w) for w in words],
        "uint64": np.array([2**63 + ord(w) for w in words], np.uint64),
    }[kind]
    found = cross_split_duplicates(keys, PARTED)
    assert [rows for _, rows in found] == [{"train": [1], "val": [4], "test": [5]}]  # both a are in training
    assert found[0][0] == keys[1]


def test_an_example_that_two_parts_share_is_no_duplicate() -> None:
    same = {"train": np.array([0, 1]), "val": np.array([0, 1])}
    assert cross_split_duplicates(["a", "b"], same) == []
    assert duplicate_warning(["a", "b"], same, str) is None


def test_the_note_counts_duplicates_and_names_examples() -> None:
    note = duplicate_warning(["a", "b", "a", "c", "b", "b", "c"], PARTED, lambda i: f"row {i}", "rows")
    assert note is not None
    assert "1 of 2 rows in val and 2 of 2 rows in test" in note
    assert "row 4 (val) = row 1 (train)" in note
    assert "row 6 (test) = row 3 (val)" in note
    assert duplicate_warning(list("abcdefg"), PARTED, str) is None


def test_duplicates_that_differ_in_what_is_no_input_are_told() -> None:
    keys = ["a", "b", "a", "c", "b", "b", "c"]  # pairs 4 and 1, 5 and 1, 6 and 3

    def told(**columns: list[str | None]) -> str:
        note = duplicate_warning(keys, PARTED, str, aside=pl.DataFrame(columns))
        assert note is not None
        return str(note)

    assert "differ in columns" not in told()
    assert "differ in columns" not in told(site=["x"] * 7)
    said = told(site=["x"] * 7, who=["1", "2", "3", "4", "2", None, "7"])
    assert "in every input (2 differ in columns that are not inputs, who: they may be different cases), for" in said
