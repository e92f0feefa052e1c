"""Text as it comes: nothing shown is taken back, whole characters, and the end before the first stop string."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import SettingError
from cutaway.inference.text import BROKEN, NONE, TextStreamer, as_text, as_texts

WORDS = ["a", "b", "ab", "ba", "aab", "é", "\n", ""]


def letters(ids: Sequence[int]) -> str:
    """Token i is the i-th of the words."""
    return "".join(WORDS[i] for i in ids)


def single_bytes(ids: Sequence[int]) -> str:
    """Each token is a byte."""
    return bytes(ids).decode(errors="replace")


def cut(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string that is complete; the longest of those that end at the same place."""
    for end in range(1, len(text) + 1):
        ending = [s for s in stop if text[:end].endswith(s)]
        if ending:
            return text[: end - max(map(len, ending))]
    return text


ids_of = st.lists(st.integers(0, len(WORDS) - 1), max_size=25)
stops = st.lists(st.text("abé\n", min_size=1, max_size=4), max_size=3)


@settings(max_examples=300, deadline=None)
@given(ids_of, ids_of, stops)
def test_text_ends_before_the_first_stop_string_wherever_tokens_end(
    before: list[int], ids: list[int], stop: list[str]
) -> None:
    pieces = TextStreamer(letters, before, stop)
    assert "".join(as_text(iter(ids), pieces)) == cut(letters(ids), stop)


@settings(max_examples=100, deadline=None)
@given(ids_of, stops)
def test_nothing_is_held_back_that_is_certain(ids: list[int], stop: list[str]) -> None:
    pieces, shown = TextStreamer(letters, [], stop), ""
    for k, token in enumerate(ids):
        shown += pieces.add(token)
        if pieces.over:
            break
        held = letters(ids[: k + 1])[len(shown) :]
        assert letters(ids[: k + 1]).startswith(shown)
        assert not held or any(s.startswith(held) for s in stop)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20), st.text(max_size=3), st.lists(st.text(min_size=1, max_size=3), max_size=2))
def test_characters_come_whole(text: str, prompt: str, stop: list[str]) -> None:
    text, prompt = (x.encode(errors="ignore").decode().replace(BROKEN, "") for x in (text, prompt))
    pieces = list(as_text(text.encode(), TextStreamer(single_bytes, list(prompt.encode()), stop)))
    assert "".join(pieces) == cut(text, stop)
    assert BROKEN not in "".join(pieces)


def test_bytes_that_are_no_character_are_shown_at_last() -> None:
    assert "".join(as_text([0x61, 0xE2, 0x82], TextStreamer(single_bytes))) == "a" + BROKEN


@settings(max_examples=50, deadline=None)
@given(st.lists(ids_of, min_size=1, max_size=4), stops)
def test_rows_are_written_side_by_side_as_alone(rows: list[list[int]], stop: list[str]) -> None:
    asked = 0

    def drawn() -> itertools.chain[torch.Tensor]:
        nonlocal asked
        for tokens in itertools.zip_longest(*rows, fillvalue=NONE):
            asked += 1
            yield torch.tensor(tokens)

    texts = as_texts(drawn(), [TextStreamer(letters, [], stop) for _ in rows])
    assert texts == [cut(letters(row), stop) for row in rows]
    assert asked <= max(map(len, rows))


def test_no_token_is_asked_for_behind_the_end() -> None:
    tokens = iter([0, 1, 0, 0])
    assert "".join(as_text(tokens, TextStreamer(letters, [], ["b"]))) == "a"
    assert list(tokens) == [0, 0]
    rows = iter(torch.tensor([[1, 0], [0, 1], [0, 0]]))
    assert as_texts(rows, [TextStreamer(letters, [], ["b"]) for _ in range(2)]) == ["", "a"]
    assert len(list(rows)) == 1


def test_an_empty_stop_string_is_rejected() -> None:
    with pytest.raises(SettingError, match="Invalid stop=''"):
        TextStreamer(letters, [], ["a", ""])
