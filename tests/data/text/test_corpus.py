"""Running text: split by position, fitted on what trains, nothing lost, every bad file named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import CutawayError, DataError, SettingError
from cutaway.core.spec import NextToken, TextSpec
from cutaway.data.build import DataSource
from cutaway.data.dataset_base import DataSet
from cutaway.data.settings import DataSettings
from cutaway.data.splits import split_by_position
from cutaway.data.text.corpus import RunningPreprocessing, open_running, running_dataset
from cutaway.data.text.corpus_transforms import StreamSplit, split_pieces
from cutaway.data.text.tokenizers import UNKNOWN

POEM = "Tiger, tiger, burning bright\nIn the forests of the night,\nWhat immortal hand or eye\n" * 12


def opened(path: Path, **given_: Any) -> DataSet:
    return open_running(path, DataSettings(**given_))


def written(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


def stream_of(data: DataSet, split: str) -> StreamSplit:
    held = data.splits[split]
    assert isinstance(held, StreamSplit)
    return held


def text_of(data: DataSet, split: str) -> str:
    """The whole text of a split, out of its tokens."""
    preprocessing = data.preprocessing
    assert isinstance(preprocessing, RunningPreprocessing)
    return preprocessing.decode(stream_of(data, split).tokens.tolist())


def test_a_file_is_split_by_position(tmp_path: Path) -> None:
    data = opened(written(tmp_path, poem=POEM) / "poem.txt", val=0.2, test=0.1, length=8, stateful=True)
    assert data.name == "poem"
    assert data.spec == TextSpec(data.spec.vocab_size, 8, NextToken(data.spec.vocab_size))  # type: ignore[union-attr]
    texts = [text_of(data, split) for split in ("train", "val", "test")]
    assert "".join(texts) == POEM
    assert [round(len(t) / len(POEM), 2) for t in texts] == [0.7, 0.2, 0.1]
    assert "split by position" in data.notes[0]
    assert all(stream_of(data, split).is_stateful for split in data.splits)
    again = opened(tmp_path / "poem.txt", val=0.2, test=0.1, length=8)
    assert (again.fingerprint, again.split_hash) == (data.fingerprint, data.split_hash)
    other = opened(tmp_path / "poem.txt", val=0.1, test=0.2, length=8)
    assert other.fingerprint == data.fingerprint
    assert other.split_hash != data.split_hash


def test_words_are_not_cut_in_two(tmp_path: Path) -> None:
    data = opened(written(tmp_path, poem=POEM) / "poem.txt", tokenizer="words", val=0.31, test=0.17, length=4)
    words = " ".join(text_of(data, split) for split in ("train", "val", "test"))
    assert words == " ".join(POEM.replace(",", " ,").split())
    assert any("line ends between them are left out" in note for note in data.notes)
    assert data.splits["train"].name(1) == "tokens 4 to 7"


@settings(max_examples=30, deadline=None)
@given(st.text("ab \n", min_size=30, max_size=300), st.sampled_from([0.1, 0.4]), st.floats(0.1, 0.4), st.booleans())
def test_a_split_by_position_loses_nothing(text: str, val: float, test: float, whole_words: bool) -> None:
    splits, _ = split_by_position({"train": text}, DataSettings(val=val, test=test), whole_words=whole_words)
    assert splits["train"] + splits["val"] + splits["test"] == text
    assert all(splits.values())


def test_what_is_fitted_is_fitted_on_what_trains(tmp_path: Path) -> None:
    text = "abcd " * 100 + "ž" * 20 + "q" * 20
    data = opened(written(tmp_path, odd=text) / "odd.txt", val=0.1, test=0.0, length=8)
    preprocessing = data.preprocessing
    assert isinstance(preprocessing, RunningPreprocessing)
    assert preprocessing.tokenizer.tokens[2:] == [" ", "a", "b", "c", "d"]
    assert any(note.startswith("40 of 54 tokens of the val split (74 %) are unknown") for note in data.notes)


def test_defaults(tmp_path: Path) -> None:
    folder = written(tmp_path, poem=POEM, many=" ".join(map(chr, range(0x4E00, 0x4E00 + 2000))) * 3)
    assert opened(folder / "poem.txt").spec.longest == 64  # type: ignore[union-attr]
    assert opened(folder / "poem.txt", tokenizer="words").spec.longest == 35  # type: ignore[union-attr]
    pieces = opened(folder / "many.txt")
    assert any("tokenizer=bpe" in note for note in pieces.notes)
    assert text_of(pieces, "val") in (folder / "many.txt").read_text(encoding="utf-8")
    assert not stream_of(opened(folder / "poem.txt"), "train").is_stateful  # unless a model asks for it


def test_the_limit_keeps_the_first_steps(tmp_path: Path) -> None:
    path = written(tmp_path, poem=POEM) / "poem.txt"
    data = opened(path, max_samples=3, length=10)
    assert len(data.splits["train"]) == 3
    assert text_of(data, "train") == POEM[:31]
    assert len(data.splits["val"]) == len(opened(path, length=10).splits["val"])


# --- folders ------------------------------------------------------------------------------------------------------


def test_a_folder_is_read_in_its_natural_order(tmp_path: Path) -> None:
    folder = written(tmp_path / "book", chapter10="ten ten ten", chapter2="two two two\n", chapter1="one one one")
    data = opened(folder, val=0.3, test=0.0, length=2)
    assert data.name == "book"
    assert "".join(text_of(data, split) for split in ("train", "val")) == "one one one\ntwo two two\nten ten ten"
    assert any("from chapter1.txt to chapter10.txt" in note for note in data.notes)


@pytest.mark.parametrize("as_folders", [True, False])
def test_a_folder_can_say_its_parts(tmp_path: Path, as_folders: bool) -> None:
    texts = {"train": "the first text", "valid": "the second", "test": "the third"}
    if as_folders:
        for name, text in texts.items():
            written(tmp_path / name, a=text)
    else:
        written(tmp_path, **texts)
    data = opened(tmp_path, length=3)
    assert {split: text_of(data, split).replace("\ufffd", "?") for split in data.splits} == {
        "train": "the first text",
        "val": "the se????",
        "test": "the thir?",
    }


def test_parts_that_a_folder_does_not_say_are_cut_from_its_training_text(tmp_path: Path) -> None:
    data = opened(written(tmp_path, train=POEM, test=POEM), val=0.25, test=0.5, length=4)
    assert text_of(data, "train") + text_of(data, "val") == POEM
    assert text_of(data, "test") == POEM


# --- bad input ----------------------------------------------------------------------------------------------------


def test_marks_and_carriage_returns_are_left_out_and_said(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes(b"\xef\xbb\xbf" + b"one\r\ntwo\r\n" * 20)
    data = opened(tmp_path / "old.txt", length=4)
    assert text_of(data, "train").startswith("one\ntwo\n")
    assert set(data.preprocessing.to_json()["tokenizer"]["tokens"][2:]) == set("one\ntw")
    assert "byte order mark" in data.notes[0]
    assert "40 line ends of old.txt" in data.notes[1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "book.txt: it is empty (0 bytes)"),
        (b"\xef\xbb\xbf", "book.txt: it is empty (3 bytes)"),
        (b"good line\nna\xefve\n", "byte 12 (line 2) is 0xEF"),
        (b"text\0text", "byte 4 (line 1) is zero"),
        (b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "at least two are needed"),
        (b"far too short", "its train split has 9 tokens (characters), and at least 65 are needed"),
    ],
)
def test_a_file_that_cannot_be_learned_from_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "book.txt").write_bytes(content)
    with pytest.raises(DataError) as caught:
        opened(tmp_path / "book.txt")
    assert said in str(caught.value)
    assert "book.txt" in str(caught.value)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("val", "test"), "none for train"),
        (("train", "val", "notes"), "files that are for none: notes.txt"),
        (("train", "val", "valid"), "are both for val"),
        ((), "without text files"),
    ],
)
def test_a_folder_that_says_its_parts_badly_is_rejected(tmp_path: Path, names: tuple[str, ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        opened(written(tmp_path, **dict.fromkeys(names, POEM)))


@pytest.mark.parametrize("given_", [{"target": "x"}, {"group": "x"}, {"missing": "drop"}, {"val": 0.6, "test": 0.5}])
def test_settings_that_mean_nothing_here_are_rejected(tmp_path: Path, given_: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(given_))):
        opened(written(tmp_path, poem=POEM) / "poem.txt", **given_)


def test_a_part_that_gets_nothing_is_named() -> None:
    with pytest.raises(DataError, match="The val split gets no text"):
        split_by_position({"train": "abc"}, DataSettings(val=0.1, test=0.3), whole_words=False)
    with pytest.raises(DataError, match="its val split has 1 tokens"):
        running_dataset({"train": POEM, "val": "T"}, DataSource("p", "p", ""), DataSettings())


# --- the preprocessing --------------------------------------------------------------------------------------------


@pytest.fixture
def prepared(tmp_path: Path) -> RunningPreprocessing:
    found = opened(written(tmp_path / "own", poem=POEM) / "poem.txt", length=16).preprocessing
    assert isinstance(found, RunningPreprocessing)
    return found


@pytest.mark.parametrize("kind", ["characters", "words", "bpe", "wordpiece"])
def test_json_gives_an_equal_preprocessing_back(tmp_path: Path, kind: str) -> None:
    data = opened(written(tmp_path, poem=POEM) / "poem.txt", tokenizer=kind, stateful=False, lower=True, length=4)
    document = data.preprocessing.to_json()
    assert (document["kind"], document["form"]) == ("text", "running")
    again = RunningPreprocessing.from_json(document)
    assert again.spec == data.spec
    assert not again.is_stateful
    assert again.to_json() == document
    text = "The hand,\n or the EYE "
    assert torch.equal(again.encode(text), data.preprocessing.encode(text))  # type: ignore[attr-defined]


def test_what_is_told_of_tokens_frames_and_files(tmp_path: Path) -> None:
    poem = written(tmp_path, poem=POEM) / "poem.txt"
    notes = opened(poem, tokenizer="wordpiece", vocab_size=60, length=4).notes
    assert "Tokens are subwords: blanks and line ends between them are left out." in notes
    with pytest.raises(SettingError, match="runs on: leave it out"):
        opened(poem, special_tokens=True)
    notes = opened(written(tmp_path / "two", a=POEM, b=POEM), length=4).notes
    assert "The 2 files are read one after another, from a.txt to b.txt." in notes


def test_texts_and_files_are_scored_each_for_itself(prepared: RunningPreprocessing, tmp_path: Path) -> None:
    folder = written(tmp_path / "new", b="night " * 10, a="the tiger ☃")
    (folder / "b.txt").write_bytes(b"\xef\xbb\xbfnight " * 10)
    split = prepared.examples([folder / "a.txt", str(folder), "burning\nbright", {"text": "eye"}])
    names = [split.name(i) for i in range(len(split))]
    a, b = str(folder / "a.txt"), str(folder / "b.txt")
    assert names[:3] == [a, a, f"{b}, tokens 0 to 15"]
    assert names[-2:] == ["burning bright", "eye"]
    assert split.row(len(split) - 2) == {"text": "burning\nbright"}
    assert split.target is not None
    assert UNKNOWN in split.target
    assert any("tokens are unknown to this model" in note for note in split.notes)
    assert any("byte order mark" in note for note in split.notes)


def test_labelled_text_is_read_as_the_training_text_is(tmp_path: Path) -> None:
    data = opened(written(tmp_path, poem=POEM) / "poem.txt", val=0, test=0, length=16)
    assert isinstance(data.preprocessing, RunningPreprocessing)
    split, train = data.preprocessing.labelled(tmp_path / "poem.txt"), data.splits["train"]
    assert split.target is not None
    assert train.target is not None
    assert torch.equal(split.target, train.target)
    assert split.name(2) == train.name(2)


@pytest.mark.parametrize("source", ["T", "", "missing.txt", 17, Path("nowhere")])
def test_what_cannot_be_scored_is_rejected(prepared: RunningPreprocessing, source: Any) -> None:
    with pytest.raises(CutawayError):
        prepared.examples([source])


def test_nothing_to_score_is_rejected(prepared: RunningPreprocessing) -> None:
    with pytest.raises(DataError, match="No text"):
        prepared.examples([])
    with pytest.raises(DataError, match="no file or folder 'absent'"):
        prepared.labelled("absent")


def test_a_word_for_the_end_of_a_line() -> None:
    text = "= A title =\n\nthe <unk> word\nthe word\n" * 10
    origin, given = DataSource("w", "w", ""), DataSettings(length=4)
    data = running_dataset({"train": text}, origin, given, tokenizer="words", blanks=True, line_end="<eos>")
    preprocessing = RunningPreprocessing.from_json(data.preprocessing.to_json())
    ids = preprocessing.encode("the <unk> word\n")
    assert [preprocessing.tokenizer.tokens[i] for i in ids] == ["the", "<unk>", "word", "<eos>"]
    assert ids[1] == UNKNOWN
    assert preprocessing.decode(ids.tolist()) == "the <unk> word\n"
    assert data.splits["train"].target is not None
    assert len(data.splits["train"].target) == 10 * (4 + 3 + 2 + 4) - 1  # words, and an end for each of four lines
    assert preprocessing.beginning().tolist() == preprocessing.encode("\n").tolist()
    assert preprocessing.unknown("the other\nword") == ["other"]


def test_text_begins_behind_a_line_or_a_full_stop(prepared: RunningPreprocessing) -> None:
    assert prepared.decode(prepared.beginning().tolist()) == "\n"
    for text, wanted in (("a b. c d. ", "."), ("a b c d ", None)):
        data = running_dataset({"train": text * 20}, DataSource("w", "w", ""), DataSettings(tokenizer="words"))
        assert isinstance(data.preprocessing, RunningPreprocessing)
        (first,) = data.preprocessing.beginning().tolist()
        assert data.preprocessing.tokenizer.tokens[first] == (wanted or data.preprocessing.tokenizer.tokens[2])


@settings(max_examples=30, deadline=None)
@given(st.text("ab\n .", max_size=400), st.sampled_from(["words", "bpe", "wordpiece", "characters"]))
def test_text_in_pieces_is_cut_as_the_whole_is(text: str, kind: str) -> None:
    data = running_dataset({"train": POEM + "ab. "}, DataSource("p", "p", ""), DataSettings(tokenizer=kind, length=4))
    assert isinstance(data.preprocessing, RunningPreprocessing)
    tokenizer = data.preprocessing.tokenizer
    pieces = split_pieces(text, 20)
    assert "".join(pieces) == text
    assert [i for ids in tokenizer.encode_many(pieces) for i in ids] == tokenizer.encode(text)
