"""The best and the front of rows, against brute force, and against Optuna's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.experiments.experiment import pareto_front
from cutaway.experiments.search.result import Search, best_row

ROWS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), max_size=12)


def rows_of(pairs: list[tuple[int, int]]) -> list[dict[str, Any]]:
    return [{"trial": n, "accuracy": float(score), "macs": macs} for n, (score, macs) in enumerate(pairs)]


@given(pairs=ROWS, higher=st.booleans())
def test_the_front_is_what_no_other_beats(pairs: list[tuple[int, int]], higher: bool) -> None:
    rows, sign = rows_of(pairs), 1 if higher else -1

    def beats(a: dict[str, Any], b: dict[str, Any]) -> bool:
        better, cheaper = sign * (a["accuracy"] - b["accuracy"]), b["macs"] - a["macs"]
        return bool(better >= 0 and cheaper >= 0 and (better > 0 or cheaper > 0))

    expected = {(r["accuracy"], r["macs"]) for r in rows if not any(beats(other, r) for other in rows)}
    found = pareto_front(rows, "macs", "accuracy", higher)
    assert {(r["accuracy"], r["macs"]) for r in found} == expected
    assert len(found) == len(expected), "of equal ones the first"
    assert [r["macs"] for r in found] == sorted(r["macs"] for r in found)


@given(pairs=ROWS, higher=st.booleans())
def test_the_best_is_on_the_front(pairs: list[tuple[int, int]], higher: bool) -> None:
    rows = rows_of(pairs)
    best = best_row(rows, "accuracy", higher)
    if not rows:
        assert best is None
        return
    assert best is not None
    assert best["accuracy"] == (max if higher else min)(row["accuracy"] for row in rows)
    assert pareto_front(rows, "macs", "accuracy", higher)[-1] == best


def test_the_front_of_two_objectives_is_optunas(small: Callable[..., Search]) -> None:
    found = small(sampler="nsga2", population=3, trials=6)
    theirs = {(t.values[0], t.values[1]) for t in found.study.best_trials}
    assert {(row["accuracy"], row["macs"]) for row in found.front} == theirs
    assert found.about["directions"] == ["maximize", "minimize"]


def test_what_decides_the_metric_is_found_important(small: Callable[..., Search]) -> None:
    space = {"lr": "1e-6..1e-1:log", "snapshots": "0..3"}  # copies of the weights change nothing of the training
    found = small(space=space, sampler="random", trials=8)
    fractions = found.importances()
    assert list(fractions) == ["lr", "snapshots"]
    assert fractions["lr"] > 0.7
    assert sum(fractions.values()) == pytest.approx(1)
