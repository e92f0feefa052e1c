"""The named sets of texts: read as published where they are here; small files in their form elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cutaway.core.errors import DataError
from cutaway.core.spec import ANY_SIZE, Classes, Tags
from cutaway.data.dataset_base import DataSet
from cutaway.data.datasets.catalog import Request
from cutaway.data.datasets.corpora import TEXT_OPENERS, TEXTS, casing
from cutaway.data.open_data import open_named, where
from cutaway.data.settings import DataSettings


def real(name: str) -> DataSet:
    if where(name) is None:
        pytest.skip(f"needs the files of {name}: set CUTAWAY_DATA")
    return open_named(name, DataSettings())


def made(name: str, place: Path, **settings: Any) -> DataSet:
    return TEXT_OPENERS[name](Request(name, TEXTS[name], place, DataSettings(**settings), ANY_SIZE))


def sizes(data: DataSet) -> tuple[int, ...]:
    return tuple(len(data.splits[split]) for split in ("train", "val", "test"))


def text(data: DataSet, split: str, i: int) -> str:
    row = data.splits[split].row(i)
    assert row is not None
    return row["text"]


def test_every_set_is_described() -> None:
    assert set(TEXTS) == set(TEXT_OPENERS)
    for named in TEXTS.values():
        assert all([named.title, named.sizes, named.licence, named.citation, named.folder, named.files])
        assert all(remote.url.startswith("https://raw.githubusercontent.com/") for remote in named.files)
        assert all(len(sum) == 64 for sum in named.sums.values())


def test_sst2() -> None:
    data = real("sst2")
    assert sizes(data) == (6920, 872, 1821)
    assert data.spec.target == Classes(("negative", "positive"), "sentiment")
    assert data.splits["val"].name(0) == "line 1 of dev.tsv"
    assert text(data, "val", 0) == "one long string of cliches"
    assert text(data, "test", 0).startswith("no movement , no yuks")
    assert not any("published" in note for note in data.notes)


def test_sms_spam() -> None:
    data = real("sms_spam")
    assert sum(sizes(data)) == 5574
    target = data.splits["train"].target
    assert target is not None
    assert target.double().mean().item() == pytest.approx(747 / 5574, abs=0.001)
    assert any('"' in text(data, "train", i) for i in range(len(data.splits["train"])))


def test_names() -> None:
    data = real("names")
    assert sum(sizes(data)) == 20_050
    assert isinstance(data.spec.target, Classes)
    assert len(data.spec.target.names) == 18
    assert any(note.startswith("469 of 17,450 different names") for note in data.notes)


def test_truecase() -> None:
    data = real("truecase")
    assert sizes(data) == (2092, 369, 2891)
    assert data.spec.target == Tags(("lower", "other", "Title", "UPPER"), "casing")
    assert data.splits["test"].name(0).endswith("of test.txt")
    assert any("is made here" in note for note in data.notes)


def little_sst2(place: Path) -> None:
    for file, count in (("train.tsv", 20), ("dev.tsv", 4), ("test.tsv", 6)):
        (place / file).write_text("".join(f'a "film {i} <unk>\t{i % 2}\n' for i in range(count)), "utf-8")


def test_a_small_sst2_keeps_its_parts_and_is_told_from_the_published_one(tmp_path: Path) -> None:
    little_sst2(tmp_path)
    data = made("sst2", tmp_path)
    assert sizes(data) == (20, 4, 6)
    target = data.splits["test"].target
    assert target is not None
    assert target.tolist() == [0, 1] * 3
    assert sum("is not the published file" in note for note in data.notes) == 3
    assert text(data, "train", 1) == 'a "film 1 <unk>'


@pytest.mark.parametrize(
    ("line", "words"),
    [("a film", "1 cells, 2 expected"), ("a\tb\t1", "3 cells"), ("a film\t2", "'2' is none of 0, 1")],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    little_sst2(tmp_path)
    with (tmp_path / "dev.tsv").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    with pytest.raises(DataError, match=rf"dev\.tsv, line 5: {words}"):
        made("sst2", tmp_path)


def test_quotes_of_messages_are_characters(tmp_path: Path) -> None:
    rows = [f'{"spam" if i % 2 else "ham"}\t"hello {i}' for i in range(20)]
    (tmp_path / "sms.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    data = made("sms_spam", tmp_path)
    assert sum(sizes(data)) == 20
    assert text(data, "train", 0).startswith('"hello')


def test_names_in_two_languages_are_kept_and_counted(tmp_path: Path) -> None:
    for k, file in enumerate(TEXTS["names"].needed):
        own = [f"{'abcdefghijklmnopqr'[k]}{i}é" for i in range(8)]
        (tmp_path / file).write_text("\n".join([*own, " Shared "] if k < 2 else own), "utf-8")
    data = made("names", tmp_path)
    assert sum(sizes(data)) == 8 * 18 + 2
    assert any(note.startswith("1 of 145 different names") and "Shared." in note for note in data.notes)
    assert "é" in data.preprocessing.tokenizer.tokens  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("word", "how"),
    [
        *[("the", "lower"), (",", "lower"), ("1990", "lower"), ("<unk>", "lower"), ("ß", "lower")],
        *[("The", "Title"), ("I", "Title"), ("Élan", "Title"), ("Well-known", "Title")],
        *[("NASA", "UPPER"), ("B-52", "Title"), ("US$", "UPPER"), ("McCoy", "other"), ("iPod", "other")],
    ],
)
def test_casing(word: str, how: str) -> None:
    assert casing(word) == how


def test_the_casing_of_a_small_text(tmp_path: Path) -> None:
    (tmp_path / "valid.txt").write_text(" \n = The NASA = \n the McCoy ran \n" * 5, "utf-8")
    (tmp_path / "test.txt").write_text(" Rome fell \n\n", "utf-8")
    data = made("truecase", tmp_path)
    assert sum(sizes(data)) == 11
    assert sizes(data)[2] == 1
    assert text(data, "test", 0) == "rome fell"
    target = data.splits["test"].target
    assert target is not None
    assert isinstance(data.spec.target, Tags)
    assert [data.spec.target.names[k] for k in target.tolist()] == ["Title", "lower"]
