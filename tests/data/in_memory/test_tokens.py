"""Token ids that a person has already are learned from as they are, in every form that they come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import cutaway
from cutaway.data.in_memory.container import Texts
from cutaway.data.in_memory.source import parse_object
from cutaway.data.settings import DataSettings
from cutaway.data.text.tokenizer_files import tokenizer_from_json
from cutaway.data.text.tokenizers import Ids, fit_ids, format_ids

QUICK: dict[str, Any] = {"epochs": 4, "lr": 0.05, "batch_size": 16, "threads": 1, "tensorboard": False}
rng = np.random.default_rng(0)
Y = np.arange(120) % 2
# Of the one class an example ends with 1, of the other with 2; 0 is nowhere.
RAGGED = [[*rng.integers(3, 30, rng.integers(2, 6)).tolist(), 1 + int(k)] for k in Y]
PADDED = np.zeros((120, 6), np.int64)
for row, ids in zip(PADDED, RAGGED):
    row[: len(ids)] = ids


class Bag(nn.Module):
    """The mean of what tokens stand for."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(vocab_size, 8), nn.Linear(8, 2)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(N, T) and (N, T) to (N, 2)."""
        x = self.embedding(tokens) * mask[..., None]  # (N, T, 8)
        answers: Tensor = self.out(x.sum(1) / mask.sum(1, keepdim=True))
        return answers


class Mean(nn.Module):
    """Likewise, and its forward does not say of what."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(vocab_size, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T) to (N, 2)."""
        answers: Tensor = self.out(self.embedding(x).mean(1))
        return answers


@given(st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=5))
def test_ids_come_back_as_they_were(examples: list[list[int]]) -> None:
    tokenizer = tokenizer_from_json(Ids(100).to_json())
    assert tokenizer.encode_many([format_ids(ids) for ids in examples]) == examples
    assert tokenizer.decode(examples[0]) == format_ids(examples[0])


@pytest.mark.parametrize(
    ("texts", "padding"),
    [(["5 3 0 0", "1 2 3 0"], 0), (["0 5 3", "0 0 1"], 0), (["5 0 3 0"], None), (["5 0", "3"], None)],
)
def test_zeros_at_the_ends_alone_are_padding(texts: list[str], padding: int | None) -> None:
    found = fit_ids(DataSettings(), texts)
    assert found.padding == padding
    assert found.encode(texts[0]) == [int(i) for i in texts[0].split() if padding is None or i != "0"]


def test_every_form_holds_the_same_ids() -> None:
    arrays = np.empty(120, object)
    arrays[:] = RAGGED
    forms: list[Any] = [RAGGED, arrays, [np.array(ids) for ids in RAGGED], [torch.tensor(ids) for ids in RAGGED]]
    held = parse_object((RAGGED, Y))
    assert isinstance(held, Texts)
    assert {parse_object((form, Y)).digest for form in forms} == {held.digest}
    assert held.digest != parse_object((list(held.texts), Y)).digest  # of the same letters as text


def test_padded_and_ragged_ids_are_learned_alike(tmp_path: Path) -> None:
    ragged = cutaway.train("textcnn", (RAGGED, Y), out=tmp_path / "ragged", **QUICK)
    padded = cutaway.train("textcnn", (torch.from_numpy(PADDED), Y), out=tmp_path / "padded", **QUICK)
    assert ragged.predict(RAGGED) == padded.predict(PADDED)
    assert ragged.spec.vocab_size == padded.spec.vocab_size == 30  # type: ignore[union-attr]
    assert cutaway.load(padded.folder).evaluate((PADDED, Y)) == padded.evaluate((torch.from_numpy(PADDED), Y))
    assert "These are the first 8 of 9 examples." in " ".join(cutaway.look(ragged, RAGGED[:9]).notes)
    for other, words in ((["a text"], "learned from token ids"), ([[5, 999]], "vocab_size=1000")):
        with pytest.raises(cutaway.CutawayError, match=words):
            ragged.predict(other)


def test_a_module_of_ones_own_takes_ids_by_the_names_or_by_the_vocabulary(tmp_path: Path) -> None:
    named = cutaway.train(Bag(30), (PADDED, Y), out=tmp_path / "named", **QUICK)
    assert named.evaluate()["accuracy"].value > 0.8
    told = cutaway.train(Mean(40), (PADDED, Y), out=tmp_path / "told", vocab_size=40, **QUICK)
    assert told.spec.vocab_size == 40  # type: ignore[union-attr]
    with pytest.raises(cutaway.CutawayError, match=r"If these are token ids, say how many there are"):
        cutaway.train(Mean(40), (PADDED, Y))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"data": (RAGGED, Y), "vocab_size": 20}, r"not in the vocabulary, of 20 ids from 0.*vocab_size=30"),
        ({"data": (RAGGED, Y), "tokenizer": "words"}, r"these are token ids"),
        ({"data": (PADDED.astype(float), Y)}, r"Token ids are whole numbers: X\.astype\(int\)"),
        ({"data": (RAGGED, Y), "test": (["a b"] * 9, [0] * 9)}, r"one holds token ids and one texts"),
        ({"data": (RAGGED, Y[:5])}, r"X holds 120 examples and y 5 targets"),
        ({"data": ([[], *RAGGED[1:]], Y)}, r"row 1.*the text is empty"),
        ({"data": RAGGED, "model": "gpt2"}, r"token ids without targets"),
    ],
)
def test_what_cannot_be_is_said(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(cutaway.CutawayError, match=words):
        cutaway.train(**{"model": "textcnn", **asked})
