"""Duplicates across splits, and the findings on them.

Each modality provides a key for each example; equal keys are duplicates. Near-duplicates are found in `near_duplicates`
and `text_duplicates`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ..findings import Finding

Pairs = Sequence[tuple[str, str]]  # names of an example and of its duplicate in an earlier split
NAMED = 3  # pairs in a finding


def cross_split_duplicates(
    keys: Sequence[Any] | npt.NDArray[Any], splits: Mapping[str, npt.NDArray[np.int64]]
) -> list[tuple[Any, dict[str, list[int]]]]:
    """Return the keys that occur in several splits, with their rows by split.

    There is one key (str, bytes or int) for each example. A single example that belongs to several overlapping
    predefined splits is not a duplicate.
    """
    column = pl.Series("key", keys)
    placed = pl.concat(
        pl.DataFrame(
            {"key": column.gather(rows), "row": rows.astype(np.int64), "split": pl.repeat(name, len(rows), eager=True)}
        )
        for name, rows in splits.items()
    )
    twice = placed.filter(
        (pl.col("split").n_unique().over("key") > 1) & (pl.col("row").n_unique().over("key") > 1)
    ).sort("row", maintain_order=True)
    found: dict[Any, dict[str, list[int]]] = {}
    for key, row, name in twice.iter_rows():
        found.setdefault(key, {}).setdefault(name, []).append(row)
    return list(found.items())


def duplicate_warning(
    keys: Sequence[Any] | npt.NDArray[Any],
    splits: Mapping[str, npt.NDArray[np.int64]],
    name: Callable[[int], str],
    what: str = "rows",
    aside: pl.DataFrame | None = None,
) -> Finding | None:
    """Return a finding that counts the duplicates across splits and names a few, or None.

    `name` returns the display name of an example, `what` is the plural noun for examples: rows, images. `aside` are
    columns that are not inputs, in which duplicates may differ.
    """
    counts = dict.fromkeys(splits, 0)
    pairs: list[tuple[str, str]] = []
    twins: list[tuple[int, int]] = []
    for _, places in cross_split_duplicates(keys, splits):
        (home, rows), *elsewhere = ((split, places[split]) for split in splits if split in places)
        for split, copies in elsewhere:
            counts[split] += len(copies)
            pairs += [(f"{name(copy)} ({split})", f"{name(rows[0])} ({home})") for copy in copies]
            twins += [(copy, rows[0]) for copy in copies]
    return _build_finding(
        "Duplicates", pairs, _format_counts(counts, {s: len(r) for s, r in splits.items()}, what, "in"),
        f"equal one of an earlier split in every input{_difference_note(twins, aside)}", " = ",
    )  # fmt: skip


def _difference_note(twins: Sequence[tuple[int, int]], aside: pl.DataFrame | None) -> str:
    """Return a note if duplicates differ in columns that are not inputs, else an empty string."""
    if not twins or aside is None or not aside.width:
        return ""
    copies, firsts = (aside[list(rows)] for rows in zip(*twins))
    differ = {c: copies[c].ne_missing(firsts[c]).to_numpy() for c in aside.columns}
    names = [c for c, own in differ.items() if own.any()]
    if not names:
        return ""
    count = int(np.any([differ[c] for c in names], axis=0).sum())
    some = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
    return f" ({count:,} differ in what is no input, {some}: they may be different cases)"


def near_duplicate_warning(
    pairs: Pairs, counts: Mapping[str, int], looked: Mapping[str, int], what: str, how: str, grouped: bool = False
) -> Finding | None:
    """Return a finding on near-duplicates across splits, or None.

    `counts` are the near-duplicates among the `looked` examples of each split. `grouped` says whether a column can keep
    them in one split.
    """
    counted = _format_counts(counts, looked, what, "of") + " that were looked at"
    return _build_finding("Near duplicates", pairs, counted, f"{how} one of an earlier split", " ≈ ", grouped)


def _format_counts(counts: Mapping[str, int], of: Mapping[str, int], what: str, where: str) -> str:
    return " and ".join(f"{k:,} of {of[split]:,} {what} {where} {split}" for split, k in counts.items() if k)


def _build_finding(
    title: str, pairs: Pairs, counted: str, how: str, sign: str, grouped: bool = False
) -> Finding | None:
    if not pairs:
        return None
    some = "; ".join(sign.join(pair) for pair in pairs[:NAMED])
    return Finding(
        f"{title} straddle the split: {counted} {how}, for example {some}. On them a score measures memory: remove the "
        f"copies, or keep them in one split{' (group=COLUMN)' if grouped else ''}.",
        pairs,
    )
