"""Named running text: read and split as published where the files are here, said plainly where parts are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import Masked
from cutaway.data.dataset_base import IGNORED, DataSet
from cutaway.data.datasets import corpora
from cutaway.data.open_data import open_named, where
from cutaway.data.settings import DataSettings
from cutaway.data.text.corpus import RunningPreprocessing
from cutaway.data.text.corpus_transforms import MaskedPreprocessing
from cutaway.data.text.tokenizers import UNKNOWN


def opened(name: str, **settings: Any) -> DataSet:
    return open_named(name, DataSettings(**settings))


def here(name: str) -> Path:
    """The folder of a set's files; skips the test where they are not here."""
    place = where(name)
    if place is None:
        pytest.skip(f"needs {name}: set CUTAWAY_DATA to the folder of the real data sets")
    return place


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder."""
    monkeypatch.setenv("CUTAWAY_DATA", str(tmp_path))
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path


def put(folder: Path, **texts: str) -> None:
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def preprocessing_of(data: DataSet) -> RunningPreprocessing:
    assert isinstance(data.preprocessing, RunningPreprocessing)
    return data.preprocessing


def test_tiny_shakespeare_is_split_where_its_losses_are_published() -> None:
    here("tinyshakespeare")
    data = opened("tinyshakespeare")
    # nanoGPT: 1 003 854 characters train, 111 540 validate, 65 are different.
    assert {split: len(held.target) for split, held in data.splits.items()} == {"train": 1_003_853, "val": 111_539}  # type: ignore[arg-type]
    assert preprocessing_of(data).tokenizer.vocab_size == 65 + 2
    assert "no split is kept for a test" in " ".join(data.notes)
    assert "not the published file" not in " ".join(data.notes)
    with pytest.raises(SettingError, match=r"val=0\.2 would"):
        opened("tinyshakespeare", val=0.2)


def test_wikitext2_says_that_it_is_the_small_part() -> None:
    if (here("wikitext2") / "train.txt").is_file():
        pytest.skip("the whole of WikiText-2 is here")
    data = opened("wikitext2")
    assert "This is the small part of WikiText-2" in data.notes[0]
    assert "Scores do not compare" in data.notes[0]
    counted = {split: len(held.target) + 1 for split, held in data.splits.items()}  # type: ignore[arg-type]
    assert counted["train"] + counted["val"] == 217_646  # as published, with an end for each line
    assert counted["test"] == 245_569
    tokenizer = preprocessing_of(data).tokenizer
    assert tokenizer.tokens[UNKNOWN] == "<unk>"
    assert tokenizer.tokens.count("<eos>") == 1
    assert not tokenizer.tokens.count("\n")


def test_the_books_stand_without_what_is_put_around_them() -> None:
    here("gutenberg")
    data = opened("gutenberg", tokenizer="characters")
    assert set(data.splits) == {"train", "val", "test"}
    tokens = data.splits["train"].tokens  # type: ignore[attr-defined]
    whole = preprocessing_of(data).decode(tokens.tolist())
    assert "PROJECT GUTENBERG" not in whole
    assert "Call me Ishmael." in whole
    assert whole.index("Monseigneur Bienvenu") < whole.index("Anna Pavlovna") < whole.index("Call me Ishmael.")
    assert len(whole) / 7_600_000 == pytest.approx(0.7, abs=0.02)
    assert any("Each of Les Misérables, War and Peace, Moby Dick is split by position" in note for note in data.notes)


def test_the_whole_of_wikitext2_is_taken_where_it_is(own_data: Path) -> None:
    texts = {"train": " the cat \n", "valid": " the <unk> \n", "test": " a cat \n"}
    put(own_data / "wikitext2_eval", **{name: text * 20 for name, text in texts.items()})
    data = opened("wikitext2", length=4)
    assert {split: len(held.target) for split, held in data.splits.items()} == dict.fromkeys(
        ("train", "val", "test"), 59
    )  # type: ignore[arg-type]
    assert preprocessing_of(data).tokenizer.tokens == ["<pad>", "<unk>", "<eos>", "cat", "the"]
    assert not any("small part" in note for note in data.notes)
    assert sum("is not the published file" in note for note in data.notes) == 2  # there is no sum to hold train.txt to
    with pytest.raises(SettingError, match=r"test=0\.3 would"):
        opened("wikitext2", test=0.3)
    (own_data / "wikitext2_eval" / "train.txt").unlink()
    assert "This is the small part of WikiText-2" in opened("wikitext2", length=4).notes[0]


def test_a_book_without_its_marks_is_rejected(own_data: Path) -> None:
    body = "Chapter 1\nIt was a dark night.\n" * 20
    marks = "*** START OF THIS PROJECT GUTENBERG EBOOK X ***\n{}*** END OF THIS PROJECT GUTENBERG EBOOK X ***\nlicence"
    assert corpora.extract_book(f"head\n{marks.format(body)}", Path("x.txt")) == body
    whole = f"head\n{marks.format(body)}"
    put(own_data / "gutenberg", **{"135": whole, "2600": whole, "2701": whole})
    data = opened("gutenberg", length=4, test=0.0)
    assert "licence" not in preprocessing_of(data).tokenizer.tokens
    assert set(data.splits) == {"train", "val"}
    (own_data / "gutenberg" / "2701.txt").write_text(body, encoding="utf-8")
    with pytest.raises(DataError, match=r"2701\.txt has not the lines"):
        opened("gutenberg")


@pytest.mark.parametrize("name", ["tinyshakespeare", "wikitext2"])
def test_hidden_tokens_are_learned_of_it(name: str) -> None:
    here(name)
    data = open_named(name, DataSettings(length=32, vocab_size=1000, special_tokens=True), targets=(Masked,))
    preprocessing = data.preprocessing
    assert isinstance(preprocessing, MaskedPreprocessing)
    assert isinstance(data.spec.target, Masked)
    assert preprocessing.tokenizer.kind == ("words" if name == "wikitext2" else "wordpiece")
    (tokens, mask), target = next(data.splits["train"].batches([torch.arange(8)], 0))
    assert tokens.shape == mask.shape == target.shape == (8, 32)
    assert ((target != IGNORED).sum(1) == round(0.15 * 30)).all()


def test_documents_are_speeches_articles_and_books() -> None:
    here("tinyshakespeare")
    speeches = opened("tinyshakespeare", documents=True)
    assert set(speeches.splits) == {"train", "val"}
    assert {speeches.splits["train"].name(i).split(",")[0] for i in range(3)} <= {
        "document 1",
        "document 2",
        "document 3",
    }
    assert speeches.splits["train"].row(0)["text"].startswith("First Citizen:\nBefore we proceed")  # type: ignore[index]
    here("wikitext2")
    articles = opened("wikitext2", documents=True)
    assert any("each article is one (" in note for note in articles.notes)
    assert articles.splits["test"].name(0).startswith("Robert <unk>")
    here("gutenberg")
    books = opened("gutenberg", documents=True)
    assert {books.splits[split].name(0).split(",")[0] for split in books.splits} == {"Les Misérables"}
    last = books.splits["test"].name(len(books.splits["test"]) - 1)
    assert last.startswith("Moby Dick, tokens")


def test_articles_begin_with_their_titles() -> None:
    text = " \n = First <unk> = \n \n = = History = = \n a b \n = Second ( song ) = \n c = d = e \n"
    found = corpora.split_articles(text)
    assert [read.name for read in found] == ["First <unk>", "Second ( song )"]
    assert "".join(read.text for read in found) == text[2:]
