"""Which tokens belong to one word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cutaway.data.text.tokenizer_files import open_tokenizer
from cutaway.data.text.tokenizers import Tokenizer, continues_word, marks_blanks, train_tokenizer

from .tokenizer_files import bert_like, gpt2_like

TEXT = "the unbelievable dog, dogs' naïve run-down\nfoxes 42 狐"
WORDS = ["the", "unbelievable", "dog", ",", "dogs", "'", "naïve", "run", "-", "down", "foxes", "42", "狐"]


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    ids = np.array(tokenizer.encode(text), np.int64)
    found: list[list[int]] = []
    for i, goes_on in zip(ids.tolist(), continues_word(tokenizer, ids).tolist()):
        if goes_on:
            found[-1].append(i)
        else:
            found.append([i])
    return [word for ids in found if (word := tokenizer.decode(ids).strip())]


@pytest.mark.parametrize("kind", ["characters", "words", "bpe", "wordpiece"])
def test_the_pieces_of_a_word_belong_together(kind: str) -> None:
    tokenizer = train_tokenizer(kind, [TEXT, "do lie vab fox"], 300)
    assert words(tokenizer, TEXT) == WORDS
    assert marks_blanks(tokenizer) == (kind == "bpe")


def test_those_of_others_too(tmp_path: Path) -> None:
    text = "the unbelievable dogs, and foxes"
    for folder in (bert_like(tmp_path / "bert"), gpt2_like(tmp_path / "gpt2")):
        tokenizer = open_tokenizer(folder)
        assert words(tokenizer, text) == ["the", "unbelievable", "dogs", ",", "and", "foxes"]
        assert len(tokenizer.encode("the unbelievable foxing")) > 3
