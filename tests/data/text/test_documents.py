"""Documents: told apart by files or blank lines, split whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError, SettingError
from cutaway.data.dataset_base import DataSet
from cutaway.data.settings import DataSettings
from cutaway.data.text.corpus import RunningPreprocessing, open_running
from cutaway.data.text.corpus_transforms import StreamSplit
from cutaway.data.text.text_files import TextFile, split_documents, to_documents


def opened(path: Path, **given_: Any) -> DataSet:
    return open_running(path, DataSettings(documents=True, **given_))


def windows(data: DataSet, split: str, seed: int | None = None) -> list[str]:
    """The text of each step of a split, with the token after it."""
    held = data.splits[split]
    assert isinstance(held, StreamSplit)
    assert isinstance(data.preprocessing, RunningPreprocessing)
    plan = held.plan(3, None if seed is None else torch.Generator().manual_seed(seed))
    found = []
    for (tokens, mask), target in held.batches(plan, seed):
        for ids, real, after in zip(tokens, mask, target):
            found.append(data.preprocessing.decode([*ids[real].tolist(), int(after[real][-1])]))
    return found


@pytest.mark.parametrize("seed", [None, 0, 5])
def test_no_window_reaches_from_one_file_into_another(tmp_path: Path, seed: int | None) -> None:
    for i, letter in enumerate("abcdefgh"):
        (tmp_path / f"{i}.txt").write_text(f"<{letter * (3 + 4 * i)}>", "utf-8")
    data = opened(tmp_path, length=6, val=0.2, test=0.2)
    assert "each file is one (8 in all)" in data.notes[0]
    found = windows(data, "train", seed)
    assert all(len(set(window) - set("<>")) <= 1 for window in found)
    assert {letter for window in found for letter in window} >= set("abcd")
    assert data.splits["train"].name(0).endswith("0.txt")


def test_blank_lines_part_a_single_file(tmp_path: Path) -> None:
    text = "\n\n".join(f"{letter * 12}" for letter in "abcdefghij") + "\n \n"
    (tmp_path / "one.txt").write_text(text, "utf-8")
    data = opened(tmp_path / "one.txt", length=5, val=0.2, test=0.1)
    assert "the text between blank lines is one (10 in all)" in data.notes[0]
    assert [sorted({w[0] for w in windows(data, split)} - {"\n"}) for split in ("train", "val", "test")] == [
        list("abcdefg"),
        ["�"],  # letters that training did not have
        ["�"],
    ]
    assert data.splits["train"].name(0) == "document 1, tokens 0 to 4"
    assert isinstance(data.preprocessing, RunningPreprocessing)
    again = RunningPreprocessing.from_json(data.preprocessing.to_json())
    assert again.documents
    split = again.labelled(tmp_path / "one.txt")
    assert isinstance(split, StreamSplit)
    assert split.target is not None
    assert len(split.target) == 10 * 12  # of twelve letters and the end of the line, the first is predicted by nothing


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 500), min_size=3, max_size=40),
    val=st.floats(0.05, 0.45),
    test=st.floats(0.05, 0.45),
)
def test_a_split_loses_no_document_and_leaves_some_to_each_part(sizes: list[int], val: float, test: float) -> None:
    whole = [TextFile(str(i), "x" * size) for i, size in enumerate(sizes)]
    splits, notes = split_documents({"train": whole}, DataSettings(val=val, test=test))
    assert [read for split in ("train", "val", "test") for read in splits[split]] == whole
    assert all(splits.values())
    assert "split by position" in notes[0]
    if min(map(len, splits.values())) > 1:
        trained = sum(len(read.text) for read in splits["train"])
        assert abs(trained - (1 - val - test) * sum(sizes)) <= max(sizes) / 2 + 1e-6


def test_parts_of_single_files_are_parted_at_blank_lines(tmp_path: Path) -> None:
    for name in ("train", "val"):
        (tmp_path / f"{name}.txt").write_text("one fox\n\ntwo foxes\n\n\nthree", "utf-8")
    data = opened(tmp_path, length=3, test=0)
    assert {
        split: len({held.name(i).split(",")[0] for i in range(len(held))}) for split, held in data.splits.items()
    } == {
        "train": 3,
        "val": 3,
    }


def test_short_documents_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a b c\n\nd\n\ne f g\n\nh i j", "utf-8")
    data = opened(tmp_path / "one.txt", length=2, tokenizer="words", val=0, test=0)
    assert any(note.startswith("1 of 4 documents of the train split have fewer than 2 tokens") for note in data.notes)
    assert windows(data, "train") == ["a b c", "e f g", "h i j"]


def test_the_limit_keeps_the_first_steps(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a b c d\n\ne f g h i\n\nj k l m", "utf-8")
    whole = opened(tmp_path / "one.txt", length=2, tokenizer="words", val=0, test=0)
    cut = opened(tmp_path / "one.txt", length=2, tokenizer="words", val=0, test=0, max_samples=3)
    assert len(whole.splits["train"]) == 6
    assert sorted(windows(cut, "train")) == ["a b c", "c d", "e f g"]
    assert cut.split_hash != whole.split_hash


def test_what_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("all of one piece\n" * 20, "utf-8")
    with pytest.raises(DataError, match="there is 1 document for the splits train, val, test"):
        opened(tmp_path / "one.txt")
    (tmp_path / "two.txt").write_text("a b\n\nc d\n\ne f\n\ng h", "utf-8")
    with pytest.raises(SettingError, match=r"documents=true parts the text, and a state.*add stateful=false"):
        opened(tmp_path / "two.txt", stateful=True)
    with pytest.raises(SettingError, match="together they must be below 1"):
        opened(tmp_path / "two.txt", val=0.6, test=0.6)


def test_what_documents_are() -> None:
    first, second = TextFile("a.txt", "x\n\ny"), TextFile("b.txt", "z")
    found, _ = to_documents({"train": [first, second], "test": [TextFile("t.txt", "p\n\nq")]})
    assert found["train"] == [first, second]
    assert len(found["test"]) == 1  # where files are documents they are so in every split
