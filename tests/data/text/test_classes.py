"""Texts with one target each: tables, folders, two files; split, cut and encoded, and rejected where they are bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from cutaway.core.errors import DataError, FileError, SettingError, UnknownName
from cutaway.core.spec import Classes, TextSpec, Value
from cutaway.data.build import DataSource
from cutaway.data.dataset_base import DataSet, SequenceSplit
from cutaway.data.settings import DataSettings
from cutaway.data.text.dataset import open_text, text_dataset
from cutaway.data.text.transforms import TextPreprocessing

from .tokenizer_files import bert_like, gpt2_like

GOOD = [f"a fine film number {i} , liked" for i in range(20)]
BAD = [f"a dull film number {i} ." for i in range(20)]


def opened(path: Path, **settings: Any) -> DataSet:
    return open_text(path, DataSettings(**settings))


def reviews(tmp_path: Path, suffix: str = ".csv") -> Path:
    path = tmp_path / f"reviews{suffix}"
    frame = pl.DataFrame({"id": range(40), "review": GOOD + BAD, "mark": ["good"] * 20 + ["bad"] * 20})
    if suffix == ".parquet":
        frame.write_parquet(path)
    else:
        frame.write_csv(path, separator="\t" if suffix == ".tsv" else ",")
    return path


def folder(tmp_path: Path) -> Path:
    root = tmp_path / "films"
    for name, texts in (("good", GOOD), ("bad", BAD)):
        (root / name).mkdir(parents=True)
        for i, text in enumerate(texts):
            (root / name / f"{i}.txt").write_text(text, "utf-8")
    return root


def split(data: DataSet, name: str) -> SequenceSplit:
    found = data.splits[name]
    assert isinstance(found, SequenceSplit)
    return found


def texts_of(data: DataSet, name: str) -> list[str]:
    """The texts of a split, decoded from its tensors."""
    of_split = split(data, name)
    tokenizer = data.preprocessing.tokenizer  # type: ignore[attr-defined]
    return [tokenizer.decode(ids.tolist()) for ids in of_split.values.split(of_split.lengths.tolist())]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_a_table(tmp_path: Path, suffix: str) -> None:
    data = opened(reviews(tmp_path, suffix), text="review", target="mark")
    assert isinstance(data.spec, TextSpec)
    assert data.spec.target == Classes(("bad", "good"), "mark")
    assert {name: len(p) for name, p in data.splits.items()} == {"train": 28, "val": 6, "test": 6}
    assert any("not: id" in note for note in data.notes)
    for name in data.splits:
        for i, text in enumerate(texts_of(data, name)):
            assert ("dull" in text) == (split(data, name).target[i] == 0)  # type: ignore[index]
        assert split(data, name).target.bincount().tolist() == [len(split(data, name)) // 2] * 2  # type: ignore[union-attr]
    row = split(data, "train").row(0)
    assert row is not None
    assert row["text"] in GOOD + BAD
    assert split(data, "train").name(0).split()[0] == ("row" if suffix == ".parquet" else "line")


def test_a_batch_is_padded_to_its_own_longest(tmp_path: Path) -> None:
    data = opened(reviews(tmp_path), text="review", target="mark")
    train = split(data, "train")
    (batch,) = train.batches([torch.tensor([0, 27])])
    tokens, mask = batch.inputs
    assert tokens.dtype == torch.int64
    assert tokens.shape == mask.shape == (2, int(train.lengths[[0, 27]].max()))
    assert (tokens[~mask] == 0).all()
    assert (tokens[mask] > 0).all()
    assert int(train.lengths.max()) <= data.spec.shape[0]


def test_words_of_validation_and_test_are_not_in_the_vocabulary(tmp_path: Path) -> None:
    data = opened(reviews(tmp_path), text="review", target="mark")
    known = data.preprocessing.tokenizer.tokens  # type: ignore[attr-defined]
    trained = {word for text in texts_of(data, "train") for word in text.split()}
    assert set(known[2:]) == trained
    numbers = {str(i) for i in range(20)}
    assert numbers - trained  # some numbers are in no training text
    assert any("<unk>" in text for text in texts_of(data, "val") + texts_of(data, "test"))
    assert any(note.startswith("Unknown tokens: 0.0 % in train") and "min_count=2" in note for note in data.notes)


def test_a_folder_of_class_folders(tmp_path: Path) -> None:
    data = opened(folder(tmp_path))
    assert data.spec.target == Classes(("bad", "good"))
    assert sum(len(p) for p in data.splits.values()) == 40
    assert split(data, "train").name(0).endswith(".txt")
    again = opened(tmp_path / "films")
    assert (again.fingerprint, again.split_hash) == (data.fingerprint, data.split_hash)
    (tmp_path / "films" / "good" / "0.txt").write_text("another", "utf-8")
    assert opened(tmp_path / "films").fingerprint != data.fingerprint


def test_part_folders_are_kept(tmp_path: Path) -> None:
    for part_name, count in (("train", 6), ("test", 2)):
        for name in ("good", "bad"):
            (tmp_path / part_name / name).mkdir(parents=True)
            for i in range(count):
                (tmp_path / part_name / name / f"{i}.txt").write_text(f"{part_name} {name} {i}", "utf-8")
    data = opened(tmp_path, val=0.0)
    assert {name: len(p) for name, p in data.splits.items()} == {"train": 12, "test": 4}
    assert all("unk" in text for text in texts_of(data, "test"))  # the word test
    assert all(text.startswith("train") for text in texts_of(data, "train"))


def test_two_files_line_by_line(tmp_path: Path) -> None:
    texts, labels = tmp_path / "texts.txt", tmp_path / "labels.txt"
    texts.write_text("\n".join(GOOD + BAD) + "\n", "utf-8")
    labels.write_text("good\n" * 20 + "bad\n" * 20, "utf-8")
    data = opened(texts, target="labels.txt")
    assert data.spec.target == Classes(("bad", "good"))
    assert split(data, "train").name(0).endswith("of texts.txt")
    other = data.preprocessing.labelled(f"{texts},{labels}")
    assert len(other) == 40
    assert other.target is not None
    assert other.target.tolist() == [1] * 20 + [0] * 20


def test_a_label_file_that_is_shorter_is_rejected_with_both_counts(tmp_path: Path) -> None:
    texts, labels = tmp_path / "texts.txt", tmp_path / "labels.txt"
    texts.write_text("one\ntwo\nthree\n", "utf-8")
    labels.write_text("a\nb\n", "utf-8")
    with pytest.raises(DataError, match=r"3 lines.*2 lines.*line 3 of texts\.txt"):
        opened(texts, target=str(labels))
    with pytest.raises(DataError, match=r"target=gone\.txt"):
        opened(texts, target="gone.txt")


def test_a_number_is_a_value(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    pl.DataFrame({"words": GOOD + BAD, "price": [i + 0.5 for i in range(40)]}).write_csv(path)
    data = opened(path, text="words", target="price")
    assert isinstance(data.spec.target, Value)
    train = split(data, "train").target
    assert train is not None
    assert train.mean().item() == pytest.approx(0, abs=1e-5)
    other = data.preprocessing.labelled(path).target
    assert other is not None
    assert (other * data.spec.target.scale + data.spec.target.mean).tolist() == pytest.approx(
        [i + 0.5 for i in range(40)], rel=1e-5
    )


def test_groups_stay_together(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    author = [f"author {i % 8}" for i in range(40)]
    pl.DataFrame(
        {"t": [f"{a} wrote {i}" for i, a in enumerate(author)], "k": ["x", "y"] * 20, "who": author}
    ).write_csv(path)
    data = opened(path, text="t", target="k", group="who")
    whole = [{" ".join((p.row(i) or {})["text"].split()[:2]) for i in range(len(p))} for p in data.splits.values()]
    assert sum(map(len, whole)) == len(set().union(*whole)) == 8
    with pytest.raises(DataError, match="2 different values"):
        opened(path, text="t", target="who", group="k")


def test_long_texts_are_cut_and_counted(tmp_path: Path) -> None:
    data = opened(reviews(tmp_path), text="review", target="mark", length=3)
    assert data.spec.shape == (3,)
    assert all(len(text.split()) == 3 for text in texts_of(data, "train"))
    assert any("28 of the train split's texts have more than 3 tokens and are cut there" in note for note in data.notes)
    assert not any("cut there" in note for note in opened(reviews(tmp_path), text="review", target="mark").notes)


def test_duplicates_across_the_split_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    pl.DataFrame({"t": ["the same"] * 20 + BAD, "k": ["x"] * 20 + ["y"] * 20}).write_csv(path)
    assert any("by duplicates across splits" in note for note in opened(path, text="t", target="k").notes)


@pytest.mark.parametrize("kind", ["characters", "words", "bpe", "wordpiece"])
def test_every_tokenizer_and_json_both_ways(tmp_path: Path, kind: str) -> None:
    data = opened(reviews(tmp_path), text="review", target="mark", tokenizer=kind, lower=True)
    document = json.loads(json.dumps(data.preprocessing.to_json()))
    assert (document["kind"], document["form"]) == ("text", "classes")
    again = TextPreprocessing.from_json(document)
    assert again.to_json() == data.preprocessing.to_json()
    assert again.spec == data.spec
    new = ["A FINE film", "unseen ζ words"]
    ours, theirs = again.examples(new), data.preprocessing.examples(new)
    assert isinstance(theirs, SequenceSplit)
    assert torch.equal(ours.values, theirs.values)
    assert torch.equal(ours.lengths, theirs.lengths)
    assert ours.target is None


def test_new_texts_in_every_form(tmp_path: Path) -> None:
    data = opened(reviews(tmp_path), text="review", target="mark")
    pre = data.preprocessing
    films = folder(tmp_path)
    assert [pre.examples(["a fine film"]).name(0), len(pre.examples("a fine film"))] == ["a fine film", 1]
    assert len(pre.examples([films])) == 40
    assert len(pre.examples([films / "good" / "3.txt", "and a text", {"text": "x"}, {"review": "y"}])) == 4
    table = pre.examples([str(reviews(tmp_path))])
    assert [table.name(0), table.row(0)] == ["line 2 of reviews.csv", {"text": GOOD[0]}]
    assert len(pre.examples([pl.DataFrame({"review": ["a", "b"]})])) == 2
    assert len(pre.examples(["word " * 2000])) == 1  # longer than a file's name may be
    with pytest.raises(DataError, match=r"gone\.txt"):
        pre.examples(["gone.txt"])
    with pytest.raises(DataError, match=r"column 'review'.*has no such column"):
        pre.examples([pl.DataFrame({"other": ["a"]})])
    with pytest.raises(DataError, match="No text was given"):
        pre.examples([])


def test_a_text_without_tokens_is_one_unknown_token_and_is_told(tmp_path: Path) -> None:
    pre = opened(reviews(tmp_path), text="review", target="mark").preprocessing
    split = pre.examples(["", "   ", "ζ"])
    assert isinstance(split, SequenceSplit)
    assert split.lengths.tolist() == [1, 1, 1]
    assert split.values.tolist() == [1, 1, 1]
    assert "2 of these texts hold no token: each is read as one unknown token." in split.notes
    (batch,) = split.batches([torch.arange(3)])
    assert batch.inputs[1].all()


def test_unknown_tokens_of_new_texts_are_told(tmp_path: Path) -> None:
    data = opened(reviews(tmp_path), text="review", target="mark")
    found = data.preprocessing.examples(["xyzzy", ""])
    assert found.notes[0] == "1 of these texts holds no token: each is read as one unknown token."
    assert found.notes[1] == "1 of 1 tokens are unknown to this model, and count as one and the same."
    assert not any("unknown to this model" in note for note in split(data, "test").notes)


def test_long_new_texts_are_cut_and_told(tmp_path: Path) -> None:
    pre = opened(reviews(tmp_path), text="review", target="mark", length=4).preprocessing
    split = pre.examples(["a fine film", "a fine film that is long"])
    assert isinstance(split, SequenceSplit)
    assert split.lengths.tolist() == [3, 4]
    assert any("1 of these texts has more than 4 tokens" in note for note in split.notes)


def test_other_labelled_texts(tmp_path: Path) -> None:
    data = opened(reviews(tmp_path), text="review", target="mark")
    path = tmp_path / "new.csv"
    path.write_text("mark,review\nbad,dull\ngood,fine\n", "utf-8")
    target = data.preprocessing.labelled(path).target
    assert target is not None
    assert target.tolist() == [0, 1]
    path.write_text("mark,review\nmiddling,dull\n", "utf-8")
    with pytest.raises(DataError, match=r"new\.csv, line 2, column mark: 'middling'"):
        data.preprocessing.labelled(path)
    assert len(data.preprocessing.labelled(folder(tmp_path))) == 40
    (tmp_path / "films" / "odd").mkdir()
    (tmp_path / "films" / "odd" / "1.txt").write_text("x", "utf-8")
    with pytest.raises(DataError, match="class 'odd'"):
        data.preprocessing.labelled(tmp_path / "films")


def write(tmp_path: Path, content: str | bytes, name: str = "t.tsv") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


ROWS = "".join(f"text {i}\tx\nother {i}\ty\n" for i in range(6))


def test_a_third_column_on_one_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.tsv, line 14: 3 cells, 2 expected") as caught:
        opened(write(tmp_path, f"t\tk\n{ROWS}one\ttwo\tthree\nz\tx\n"), text="t", target="k")
    assert "separator needs quotes" in str(caught.value)


def test_a_stray_quote_is_text_or_named(tmp_path: Path) -> None:
    path = write(tmp_path, f't\tk\n{ROWS}"never closed\tx\nz\ty\n')
    data = opened(path, text="t", target="k", val=0.0, test=0.0)
    assert '" never closed' in texts_of(data, "train")
    assert any("Quotes are text in t.tsv" in note for note in data.notes)
    with pytest.raises(DataError, match=r"t\.tsv, line 14: a quote is opened.*write it twice"):
        opened(path, text="t", target="k", quoting="standard")


def test_two_stray_quotes_that_swallow_the_rows_between_are_named(tmp_path: Path) -> None:
    swallowing = f't\tk\n{ROWS}"ello\tx\nz\ty\nb\tx\n it is"\ty\nlast\tx\n'
    data = opened(write(tmp_path, swallowing), text="t", target="k", val=0.0, test=0.0)
    assert len(data.splits["train"]) == 17
    assert any("lines 14 to 17 would be one row" in note for note in data.notes)
    assert data.preprocessing.to_json()["read"]["quoting"] == "none"
    with pytest.raises(DataError, match=r"t\.tsv, line 14, column t: a quote opens a cell of 4 lines with tabs"):
        opened(write(tmp_path, swallowing), text="t", target="k", quoting="standard")


def test_a_quote_within_a_cell_is_text(tmp_path: Path) -> None:
    data = opened(write(tmp_path, f't\tk\n{ROWS}a 5" disk\tx\nz\ty\n'), text="t", target="k", val=0.0, test=0.0)
    assert 'a 5 " disk' in texts_of(data, "train")


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"text": "t"}, SettingError, "target=COLUMN"),
        ({"text": "tt", "target": "k"}, UnknownName, "'tt'"),
        ({"text": "t", "target": "kk"}, UnknownName, "'kk'"),
        ({"text": "t", "target": "t"}, SettingError, "columns of their own"),
        ({"text": "t", "target": "k", "group": "g"}, UnknownName, "'g'"),
        ({"text": "t", "target": "k", "val": 0.6, "test": 0.6}, SettingError, "val=0.6"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, settings: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        opened(write(tmp_path, f"t\tk\n{ROWS}"), **settings)


def test_empty_texts_are_named_or_dropped(tmp_path: Path) -> None:
    path = write(tmp_path, f"t\tk\n{ROWS}\tx\n  \ty\n")
    with pytest.raises(DataError, match=r"2 rows of 14 hold no text: t\.tsv, line 14, column t.*line 15.*missing=drop"):
        opened(path, text="t", target="k")
    data = opened(path, text="t", target="k", missing="drop")
    assert sum(len(p) for p in data.splits.values()) == 12
    assert any("left out 2 rows without text" in note for note in data.notes)


def test_rows_without_a_target_are_named_or_dropped(tmp_path: Path) -> None:
    path = write(tmp_path, f"t\tk\n{ROWS}lonely\t\n")
    with pytest.raises(DataError, match="line 14, column k: the target is missing"):
        opened(path, text="t", target="k")
    assert sum(len(p) for p in opened(path, text="t", target="k", missing="drop").splits.values()) == 12


def test_files_that_are_empty_or_no_utf_8_are_named(tmp_path: Path) -> None:
    root = folder(tmp_path)
    (root / "good" / "0.txt").write_bytes(b"")
    (root / "bad" / "1.txt").write_bytes(b" \n")
    with pytest.raises(DataError, match=r"bad.1\.txt: it holds no text; good.0\.txt: it is empty"):
        opened(root)
    data = opened(root, missing="drop")
    assert sum(len(p) for p in data.splits.values()) == 38
    assert any("left out 2 files without text" in note for note in data.notes)
    (root / "good" / "2.txt").write_bytes("one\ncafé".encode("latin-1"))
    (root / "good" / "3.txt").write_bytes("UTF-16".encode("utf-16"))
    (root / "good" / "4.txt").write_bytes(b"a\0b")
    with pytest.raises(DataError, match=r"2\.txt: it is not UTF-8: byte 7 \(line 2\) is 0xE9.*missing=drop") as caught:
        opened(root)
    data = opened(root, missing="drop")
    assert sum(len(p) for p in data.splits.values()) == 35
    assert any("left out 5 files" in note and "2.txt: it is not UTF-8" in note for note in data.notes)
    assert [p.where[-5:] for p in caught.value.problems] == ["2.txt", "3.txt", "4.txt"]
    with pytest.raises(SettingError, match="target= names a column"):
        opened(root, target="x")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    root = folder(tmp_path)
    plain = texts_of(opened(root), "train")
    for file in root.rglob("*.txt"):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert texts_of(opened(root), "train") == plain


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    pre = opened(reviews(tmp_path), text="review", target="mark").preprocessing
    with pytest.raises(FileError, match=r"gone\.csv"):
        pre.labelled(tmp_path / "gone.csv")


def test_a_set_in_memory_with_its_own_split() -> None:
    splits = {"train": np.arange(30), "test": np.arange(30, 40)}
    mixed = [text for pair in zip(GOOD, BAD) for text in pair]
    data = text_dataset(
        mixed,
        np.array([1, 0] * 20),
        ("bad", "good"),
        DataSource("films", "films", "0"),
        DataSettings(max_samples=10),
        splits=splits,
        blanks=True,
    )
    assert {name: len(p) for name, p in data.splits.items()} == {"train": 10, "val": 4, "test": 10}
    assert texts_of(data, "test")[0].startswith("a fine film number")
    assert data.splits["test"].name(0) == "text 31"


# --- frames -------------------------------------------------------------------------------------------------------


def framed(tokenizer: Any, begin: int, end: int, texts: list[str]) -> list[list[int]]:
    return [[begin, *tokenizer.encode(text), end] for text in texts]


def rows(found: SequenceSplit) -> list[list[int]]:
    return [ids.tolist() for ids in found.values.split(found.lengths.tolist())]


@pytest.mark.parametrize("kind", ["characters", "words", "bpe", "wordpiece"])
def test_texts_stand_in_a_frame(tmp_path: Path, kind: str) -> None:
    data = opened(reviews(tmp_path), text="review", target="mark", tokenizer=kind, special_tokens=True)
    tokenizer = data.preprocessing.tokenizer  # type: ignore[attr-defined]
    size = len(tokenizer)
    assert isinstance(data.spec, TextSpec)
    assert (data.spec.vocab_size, data.spec.begin, data.spec.end) == (size + 3, size, size + 1)
    train = split(data, "train")
    texts = [train.row(i)["text"] for i in range(len(train))]  # type: ignore[index]
    assert rows(train) == framed(tokenizer, size, size + 1, texts)
    assert data.spec.longest == max(int(p.lengths.max()) for p in (split(data, name) for name in data.splits))
    assert any("is added before each text" in note for note in data.notes)
    again = TextPreprocessing.from_json(json.loads(json.dumps(data.preprocessing.to_json())))
    assert again.spec == data.spec
    assert rows(again.examples(["a fine film"])) == framed(tokenizer, size, size + 1, ["a fine film"])


def test_the_frame_counts_in_the_length(tmp_path: Path) -> None:
    data = opened(reviews(tmp_path), text="review", target="mark", special_tokens=True, length=5)
    tokenizer = data.preprocessing.tokenizer  # type: ignore[attr-defined]
    train = split(data, "train")
    texts = [train.row(i)["text"] for i in range(len(train))]  # type: ignore[index]
    size = len(tokenizer)
    assert rows(train) == [[size, *tokenizer.encode(text)[:3], size + 1] for text in texts]
    assert any("28 of the train split's texts have more than 3 tokens" in note for note in data.notes)
    assert any("length=5 holds these and the frame" in note for note in data.notes)
    with pytest.raises(SettingError, match="length=2 leaves nothing within the frame"):
        opened(reviews(tmp_path), text="review", target="mark", special_tokens=True, length=2)


def test_an_empty_text_is_its_frame_alone(tmp_path: Path) -> None:
    preprocessing = opened(reviews(tmp_path), text="review", target="mark", special_tokens=True).preprocessing
    assert isinstance(preprocessing, TextPreprocessing)
    size = len(preprocessing.tokenizer)
    found = preprocessing.examples(["", "film", " "])
    assert rows(found) == framed(preprocessing.tokenizer, size, size + 1, ["", "film", ""])
    assert any("2 of these texts hold no token: each has only its special tokens" in note for note in found.notes)
    assert rows(preprocessing.examples([""])) == [[size, size + 1]]


def test_a_tokenizer_of_others_frames_by_its_own_tokens(tmp_path: Path) -> None:
    bert = bert_like(tmp_path / "bert")
    data = opened(reviews(tmp_path), text="review", target="mark", tokenizer=str(bert), special_tokens=True)
    tokenizer = data.preprocessing.tokenizer  # type: ignore[attr-defined]
    train = split(data, "train")
    texts = [train.row(i)["text"] for i in range(len(train))]  # type: ignore[index]
    assert isinstance(data.spec, TextSpec)
    assert (data.spec.vocab_size, data.spec.begin, data.spec.end) == (len(tokenizer), 2, 3)
    assert rows(train) == framed(tokenizer, 2, 3, texts)
    assert any("[CLS] is added before each text and [SEP] after it" in note for note in data.notes)
    assert any("as the tokenizer has them that was given" in note for note in data.notes)
    again = TextPreprocessing.from_json(json.loads(json.dumps(data.preprocessing.to_json())))
    assert again.to_json() == data.preprocessing.to_json()


def test_padding_and_the_unknown_are_the_tokenizers(tmp_path: Path) -> None:
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    folder_ = gpt2_like(tmp_path / "roberta", special)
    data = opened(reviews(tmp_path), text="review", target="mark", tokenizer=str(folder_))
    tokenizer = data.preprocessing.tokenizer  # type: ignore[attr-defined]
    (tokens, mask), _ = next(split(data, "train").batches([torch.arange(28)]))
    assert not mask.all()
    assert (tokens[~mask] == tokenizer.padding).all()
    assert tokenizer.padding == len(tokenizer) - 4
    assert rows(data.preprocessing.examples([""])) == [[tokenizer.unknown]]  # type: ignore[arg-type]
    assert not any("Unknown" in note for note in data.notes)


def test_the_tokenizer_of_a_run_gives_the_same_ids(tmp_path: Path) -> None:
    first = opened(reviews(tmp_path), text="review", target="mark", tokenizer="wordpiece", special_tokens=True)
    (tmp_path / "preprocessing.json").write_text(json.dumps(first.preprocessing.to_json()), "utf-8")
    path = tmp_path / "other.csv"
    pl.DataFrame({"t": ["an unseen film ☃", "dull"] * 20, "k": ["x", "y"] * 20}).write_csv(path)
    second = opened(path, text="t", target="k", tokenizer=str(tmp_path), special_tokens=True)
    assert isinstance(first.spec, TextSpec)
    assert isinstance(second.spec, TextSpec)
    for field in ("vocab_size", "begin", "end"):
        assert getattr(second.spec, field) == getattr(first.spec, field)
    one, two = first.preprocessing, second.preprocessing
    assert one.tokenizer.to_json() == two.tokenizer.to_json()  # type: ignore[attr-defined]
    assert any("Unknown tokens" in note and "min_count" not in note for note in second.notes)


@pytest.mark.parametrize("more", [{"documents": True}, {"mask_prob": 0.3}, {"whole_words": True}])
def test_settings_of_running_text_are_rejected(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=f"{next(iter(more))}=.*is for running text"):
        opened(reviews(tmp_path), text="review", target="mark", **more)
