"""Of an error one process speaks, in whichever order they come to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from torch.distributed import HashStore

from cutaway.core.errors import CutawayError, FileError, LostProcess
from cutaway.distributed import group

OWN = threading.local()  # the rank of the process that a thread plays


@pytest.fixture
def speaking(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[int, str]]:
    """What is said where each process, by its rank, comes to an error after so many seconds."""
    monkeypatch.setattr(group, "rank", lambda: OWN.rank)
    monkeypatch.setattr(group, "world_size", lambda: 4)
    monkeypatch.setattr(group, "ERROR_TIMEOUT", 0.3)

    def say(errors: dict[int, tuple[float, CutawayError]]) -> dict[int, str]:
        store, said = HashStore(), dict[int, str]()
        begin = threading.Barrier(len(errors))

        def come(rank: int, seconds: float, error: CutawayError) -> None:
            OWN.rank = rank
            begin.wait()
            time.sleep(seconds)
            if group._reports(error, store):
                said[rank] = str(error)

        threads = [threading.Thread(target=come, args=(rank, *one)) for rank, one in errors.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return said

    return say


def lost() -> LostProcess:
    """What a process finds whose neighbor is gone."""
    return LostProcess("one was lost")


def damaged() -> FileError:
    """What a process finds of its own."""
    return FileError("a file is damaged")


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ({0: (0, damaged()), 1: (0, damaged())}, {0: "a file is damaged"}),
        ({0: (0.1, damaged()), 1: (0, damaged()), 2: (0, lost())}, {0: "a file is damaged"}),
        # The first is so slow that another has spoken: it does not say the same again.
        ({0: (0.8, damaged()), 1: (0, damaged())}, {1: "Process 1 of 4: a file is damaged"}),
        # Who only lost that other says nothing, and the first no more than others.
        ({0: (0.5, lost()), 1: (0, damaged()), 2: (0.5, lost())}, {1: "Process 1 of 4: a file is damaged"}),
    ],
    ids=["at once", "the first a little later", "the first too late", "others lose it"],
)
def test_one_speaks(
    speaking: Callable[..., dict[int, str]], errors: dict[int, tuple[float, CutawayError]], expected: dict[int, str]
) -> None:
    assert speaking(errors) == expected


def test_of_several_that_fail_at_once_without_the_first_one_speaks(speaking: Callable[..., dict[int, str]]) -> None:
    for error in (damaged, lost):
        assert len(speaking({rank: (0, error()) for rank in (1, 2, 3)})) == 1


def test_what_all_have_the_first_tells(speaking: Callable[..., dict[int, str]]) -> None:
    errors = {rank: (0.0, damaged()) for rank in range(3)}
    for _, error in errors.values():
        error.shared = True
    assert speaking(errors) == {0: "a file is damaged"}
