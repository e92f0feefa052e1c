"""Tagged text: read as CoNLL has it or line by line, split by sentences, each token with its tag."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import Tags, TextSpec
from cutaway.data.build import DataSource
from cutaway.data.dataset_base import IGNORED, DataSet, SequenceSplit
from cutaway.data.settings import DataSettings
from cutaway.data.text.dataset import open_text
from cutaway.data.text.tagging import TagPreprocessing, tagged_dataset
from cutaway.data.text.text_files import Tagged, read_tagged
from cutaway.data.text.transforms import truncate

from .tokenizer_files import bert_like, gpt2_like

SENTENCES = [["Ann", "saw", "Rome"], ["He", "left"], ["New York", "grew"], ["Ann", "ran", "and", "ran"]]
TAGS = [["PER", "O", "LOC"], ["O", "O"], ["LOC", "O"], ["PER", "O", "O", "O"]]


def conll(tmp_path: Path, between: str = "\t", name: str = "t.conll", times: int = 5) -> Path:
    path = tmp_path / name
    blocks = [
        "".join(f"{token}{between}{tag}\n" for token, tag in zip(words, tags)) for words, tags in zip(SENTENCES, TAGS)
    ]
    path.write_text("-DOCSTART- -X-\n\n# a comment\n" + "\n".join(blocks * times), "utf-8")
    return path


def opened(path: Path, **more: Any) -> DataSet:
    return open_text(path, DataSettings(**more))


def split(data: DataSet, name: str) -> SequenceSplit:
    found = data.splits[name]
    assert isinstance(found, SequenceSplit)
    return found


def test_a_file_is_read_as_it_stands(tmp_path: Path) -> None:
    found, _ = read_tagged(conll(tmp_path, times=1))
    assert found.sentences == SENTENCES
    assert found.tags == TAGS
    assert found.names[:2] == ["line 4 of t.conll", "line 8 of t.conll"]
    assert [note.split(" of ")[0] for note in found.notes] == ["1 line", "1 line"]


def test_every_token_has_its_tag(tmp_path: Path) -> None:
    data = opened(conll(tmp_path), val=0.2, test=0.2)
    assert data.spec.target == Tags(("LOC", "O", "PER"))
    assert {name: len(p) for name, p in data.splits.items()} == {"train": 12, "val": 4, "test": 4}
    train = split(data, "train")
    assert train.target is not None
    assert len(train.target) == len(train.values) == int(train.lengths.sum())
    (batch,) = train.batches([torch.arange(12)])
    (tokens, mask), target = batch.inputs, batch.target
    assert tokens.shape == mask.shape == target.shape == (12, 4)
    assert ((target == IGNORED) == ~mask).all()
    words = data.preprocessing.tokenizer.tokens  # type: ignore[attr-defined]
    known = {w: t for sentence, tags in zip(SENTENCES, TAGS) for w, t in zip(sentence, tags)}
    for i, k in zip(train.values.tolist(), train.target.tolist()):
        assert known[words[i]] == data.spec.target.names[k]
    assert "New York" in words
    row = train.row(0)
    assert row is not None
    assert row["text"] in [" ".join(words) for words in SENTENCES]


@pytest.mark.parametrize("name", ["t.conll", "t.iob"])
def test_columns_between_are_passed_over(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("Ann NNP B-NP B-PER\nran VBD B-VP O\n\n# SYM O O\n# SYM O O\nx NN O O\n", "utf-8")
    found, _ = read_tagged(path)
    assert found.sentences == [["Ann", "ran"], ["#", "#", "x"]]  # their last column is a tag of other lines
    assert found.tags == [["B-PER", "O"], ["O", "O", "O"]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Ann\tPER\nsaw\nRome\tLOC\n", r"t\.conll, line 2: 'saw' has no tag"),
        ("a x\nb\tx\nc y z\nd x\n", r"line 3: 3 columns, 2 in most lines"),
        ("a\n\nb\n", "2 lines of .*line 1: 'a' has no tag"),
        ("a\tx\nb\t\n", r"line 2: 'b' has no tag"),
        ("\tx\nb\ty\n", "its token or its tag is empty"),
        ("\n\n# nothing\n", "holds no sentences"),
        ("", "holds no sentences"),
        ("1\tAnn\tPER\n2\tran\tO\n\n1\tHe\tO\n", r"numbers the tokens, as CoNLL-U.*cut -f"),
        ("a x\nb x\n\nc x\n\nd x\n", "Every token .*'x'"),
    ],
)
def test_bad_files_are_rejected_with_the_line(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "t.conll"
    path.write_text(content, "utf-8")
    with pytest.raises(DataError, match=words):
        opened(path)


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.iob"
    path.write_bytes(b"a\tx\ncaf\xe9\ty\n")
    with pytest.raises(DataError, match=r"t\.iob: it is not UTF-8: byte 7 \(line 2\)"):
        opened(path)


def line_by_line(tmp_path: Path, tags: list[str]) -> Path:
    texts = tmp_path / "s.txt"
    texts.write_text("".join(f"{' '.join(words).replace('New York', 'Oslo')}\n" for words in SENTENCES * 5), "utf-8")
    (tmp_path / "s.tags").write_text("".join(f"{line}\n" for line in tags), "utf-8")
    return texts


def test_two_files_line_by_line(tmp_path: Path) -> None:
    texts = line_by_line(tmp_path, [" ".join(tags) for tags in TAGS * 5])
    data = opened(texts, target="s.tags")
    assert data.spec.target == Tags(("LOC", "O", "PER"))
    other = data.preprocessing.labelled(f"{texts},{tmp_path / 's.tags'}")
    assert other.target is not None
    assert len(other.target) == 5 * sum(map(len, TAGS))


def test_lines_that_do_not_go_together_are_named(tmp_path: Path) -> None:
    tags = [" ".join(tags) for tags in TAGS * 5]
    with pytest.raises(DataError, match=r"s\.txt, line 2: 2 words and 1 tag\."):
        opened(line_by_line(tmp_path, [tags[0], "O", *tags[2:]]), target="s.tags")
    with pytest.raises(DataError, match=r"20 lines and .*s\.tags 19 lines: line 20 of s\.txt"):
        opened(line_by_line(tmp_path, tags[:-1]), target="s.tags")


def test_json_brings_it_back_and_new_text_is_prepared_alike(tmp_path: Path) -> None:
    path = conll(tmp_path)
    data = opened(path, lower=True)
    document = json.loads(json.dumps(data.preprocessing.to_json()))
    assert (document["kind"], document["form"]) == ("text", "tags")
    again = TagPreprocessing.from_json(document)
    assert again.to_json() == data.preprocessing.to_json()
    same = again.labelled(path)
    assert len(same) == 20
    bare = tmp_path / "bare.conll"
    bare.write_text("Ann\nsaw\n\nHe\n", "utf-8")
    lines = tmp_path / "new.txt"
    lines.write_text("Ann saw\n\nHe\n", "utf-8")
    for sources in ([bare], [lines], ["ANN saw", "he"], [{"text": "Ann saw"}, {"text": "He"}]):
        new = again.examples(sources)
        assert new.target is None
        assert new.lengths.tolist() == [2, 1]
        assert new.values.tolist() == again.tokenizer.look_up(["ann", "saw", "he"])
    assert again.examples([""]).values.tolist() == [1]
    assert any("no token" in note for note in again.examples([""]).notes)
    (batch,) = again.examples(["Ann saw", "he"]).batches([torch.tensor([0, 1])])
    assert ((batch.target == IGNORED) == ~batch.inputs[1]).all()  # what was predicted for padding is no answer
    with pytest.raises(DataError, match=r"gone\.conll"):
        again.examples(["gone.conll"])


def test_a_tag_that_training_did_not_have_is_named(tmp_path: Path) -> None:
    pre = opened(conll(tmp_path)).preprocessing
    path = tmp_path / "new.conll"
    path.write_text("Ann ORG\n", "utf-8")
    with pytest.raises(DataError, match=r"line 1 of new\.conll: 'ORG' is not a tag.*LOC, O, PER"):
        pre.labelled(path)
    with pytest.raises(DataError, match="holds no tagged text"):
        pre.labelled(tmp_path / "t.csv")


@pytest.mark.parametrize(
    "more", [{"tokenizer": "characters"}, {"documents": True}, {"text": "a"}, {"target": "a"}, {"group": "a"}]
)
def test_settings_that_cannot_be(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(more))):
        opened(conll(tmp_path), **more)


def test_long_sentences_are_cut_with_their_tags(tmp_path: Path) -> None:
    data = opened(conll(tmp_path), length=2)
    train = split(data, "train")
    assert train.target is not None
    assert len(train.target) == len(train.values)
    assert set(train.lengths.tolist()) == {2}
    assert any("more than 2 tokens and are cut there" in note for note in data.notes)


def test_sentences_of_one_token_have_a_row_of_targets() -> None:
    tagged = Tagged([[word] for word in "abcdefgh"], [[tag] for tag in "xyxyxyxy"], list("abcdefgh"))
    data = tagged_dataset(tagged, DataSource("t", "t", "0"), DataSettings())
    (batch,) = split(data, "train").batches([torch.tensor([0, 1])])
    assert batch.target.shape == (2, 1)


@settings(max_examples=40, deadline=None)
@given(whole=st.lists(st.integers(0, 9), max_size=8), most=st.integers(1, 9))
def test_cutting_keeps_the_beginning_of_each(whole: list[int], most: int) -> None:
    steps = [(i, t) for i, length in enumerate(whole) for t in range(length)]
    place, lengths = truncate(np.array(whole, np.int64), most)
    assert lengths.tolist() == [max(1, min(length, most)) for length in whole]
    left = [steps[p] if p >= 0 else None for p in place.tolist()]
    expected = [(i, t) if t < length else None for i, length in enumerate(whole) for t in range(lengths[i])]
    assert left == expected


# --- pieces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["words", "wordpiece", "bpe", "bert", "gpt2"])
@pytest.mark.parametrize("frame", [True, False])
def test_the_tag_of_a_word_stands_at_its_first_piece(tmp_path: Path, how: str, frame: bool) -> None:
    made = {"bert": bert_like, "gpt2": gpt2_like}
    tokenizer = str(made[how](tmp_path / how)) if how in made else how
    data = opened(conll(tmp_path), val=0.2, test=0.2, tokenizer=tokenizer, special_tokens=frame)
    assert isinstance(data.spec, TextSpec)
    assert isinstance(data.spec.target, Tags)
    preprocessing = data.preprocessing
    assert isinstance(preprocessing, TagPreprocessing)
    of = {" ".join(words): tags for words, tags in zip(SENTENCES, TAGS)}
    train = split(data, "train")
    for i, ((tokens, mask), target) in enumerate(train.batches(torch.arange(len(train)).split(1))):
        text = train.row(i)["text"]  # type: ignore[index]
        marked = target[0] != IGNORED
        assert [data.spec.target.names[k] for k in target[0][marked].tolist()] == of[text]
        inside = tokens[0, 1:-1] if frame else tokens[0]
        if frame:
            assert (tokens[0, 0], tokens[0, -1]) == (data.spec.begin, data.spec.end)
            assert not marked[0]
            assert not marked[-1]
        if how not in ("words", "bert"):  # of BERT's small one all these words are unknown
            assert preprocessing.tokenizer.decode(inside.tolist()).split() == text.split()
        assert mask.all()
    again = TagPreprocessing.from_json(json.loads(json.dumps(preprocessing.to_json())))
    new = again.examples(["Ann grew", "unheard-of Rome"])
    for ((tokens, mask), target), count in zip(new.batches(torch.arange(2).split(1)), (2, 2)):
        assert target.shape == tokens.shape == mask.shape
        assert int((target != IGNORED).sum()) == count  # one answer for each word
    assert any("first subword" in note for note in data.notes) == (how != "words")


def test_pieces_of_a_word_are_told_from_the_next_word(tmp_path: Path) -> None:
    data = opened(conll(tmp_path), tokenizer="wordpiece", vocab_size=40, min_count=9, val=0.2, test=0.2)
    preprocessing = data.preprocessing
    assert isinstance(preprocessing, TagPreprocessing)
    found = preprocessing.encode([["saw", "Rome"], ["left"]])
    begins = [not preprocessing.tokenizer.tokens[i].startswith("##") for i in found.ids.tolist()]
    assert [w >= 0 for w in found.words.tolist()] == begins
    assert [w for w in found.words.tolist() if w >= 0] == [0, 1, 2]
    assert len(found.ids) > 3
    cut_ = TagPreprocessing(preprocessing.spec, preprocessing.tokenizer, 2).encode([["saw", "Rome"], ["left"]])
    assert cut_.lengths.tolist() == [2, 2]
    assert cut_.words.tolist()[2] == 2


def test_a_word_that_is_cut_off_has_no_tag(tmp_path: Path) -> None:
    data = opened(conll(tmp_path), special_tokens=True, length=4, val=0.2, test=0.2)
    train = split(data, "train")
    assert train.target is not None
    assert int(train.lengths.max()) == 4
    assert int((train.target != IGNORED).sum()) == int((train.lengths - 2).sum())
    assert any("have more than 2 tokens and are cut there" in note for note in data.notes)


def test_a_tokenizer_of_characters_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text("t,k\nabc,x\nabd,y\n" * 10, "utf-8")
    run = open_text(tmp_path / "book.csv", DataSettings(text="t", target="k", tokenizer="characters"))
    (tmp_path / "preprocessing.json").write_text(json.dumps(run.preprocessing.to_json()), "utf-8")
    with pytest.raises(SettingError, match="is one of characters"):
        opened(conll(tmp_path), tokenizer=str(tmp_path))
