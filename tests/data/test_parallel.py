"""Work in threads: in order, each once, whatever their number."""

from __future__ import annotations

import threading

import pytest

from cutaway.data.parallel import map_in_threads


@pytest.mark.parametrize("workers", [0, 1, 3, None])
def test_results_come_in_order(workers: int | None) -> None:
    assert list(map_in_threads(lambda i: i * i, range(25), workers, at_once=4)) == [i * i for i in range(25)]


def test_no_more_are_held_than_asked_for() -> None:
    begun: list[int] = []
    results = map_in_threads(lambda i: begun.append(i), range(100), 2, at_once=5)
    next(results)
    assert len(begun) <= 5
    results.close()  # type: ignore[attr-defined]


def test_none_reads_in_this_thread() -> None:
    here = threading.get_ident()
    assert set(map_in_threads(lambda _: threading.get_ident(), range(4), 0)) == {here}
    assert here not in set(map_in_threads(lambda _: threading.get_ident(), range(4), 2))
