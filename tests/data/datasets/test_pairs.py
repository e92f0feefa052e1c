"""The named sets of pairs: read as published where the files are here, and small ones of their form anywhere."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from cutaway.core.errors import DataError
from cutaway.core.spec import PairSpec, Tokens
from cutaway.data.dataset_base import DataSet
from cutaway.data.open_data import open_named, where
from cutaway.data.settings import DataSettings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of our own."""
    monkeypatch.setenv("CUTAWAY_DATA", str(tmp_path))
    return tmp_path


def opened(name: str, **settings: Any) -> DataSet:
    return open_named(name, DataSettings(**settings))


def told(data: DataSet) -> dict[str, set[str]]:
    """All the answers to each source."""
    found: dict[str, set[str]] = {}
    for split in data.splits.values():
        for i in range(len(split)):
            row = split.row(i)
            assert row
            answers = {data.preprocessing.words(ids) for ids in split.references(i)}  # type: ignore[attr-defined]
            found.setdefault(row["source"], set()).update(answers)
    return found


def dictionary(home: Path, lines: list[str]) -> None:
    (home / "cmudict").mkdir()
    (home / "cmudict" / "cmudict.dict").write_text("\n".join(lines) + "\n")


def test_entries_of_the_dictionary(home: Path) -> None:
    others = [f"ab{a}{b} AE1 B {a.upper()} {b.upper()}" for a in "cdef" for b in "ghij"]
    odd = ["a.m. EY2 EH1 M", "x-ray EH1 K S R EY2", "' AH0"]
    read = ["read R EH1 D", "read(2) R IY1 D # the verb", "read(3) R IY0 D", "d'or D AO1 R # place"]
    dictionary(home, [*read, *odd, *others])
    data = opened("cmudict")
    found = told(data)
    assert len(found) == len(others) + 2
    assert found["read"] <= {"R EH D", "R IY D"}
    assert data.spec.target.column == "pronunciation"
    assert any("3 whose word has other signs" in n and "and 1 that differ" in n for n in data.notes)
    assert any("not the published file" in n for n in data.notes)
    assert {data.splits["train"].name(i) for i in range(len(data.splits["train"]))} <= set(found)


def test_lines_that_are_no_entry_are_named(home: Path) -> None:
    dictionary(home, ["a AH0", "b", "", "c K"])
    with pytest.raises(DataError, match=r"cmudict\.dict, line 2: .*cmudict\.dict, line 3: "):
        opened("cmudict")


def captions(home: Path, short: bool = False) -> None:
    (home / "multi30k").mkdir()
    for stem, count in (("train", 40), ("val", 9), ("test_2016_flickr", 8)):
        for language, words in (("de", "Ein Hund läuft"), ("en", "A dog runs")):
            lines = [f"{words} {i % 4}{stem[:2]} .\n" for i in range(count - (short and language == "en"))]
            (home / "multi30k" / f"{stem}.{language}.gz").write_bytes(gzip.compress("".join(lines).encode()))


def test_captions_have_their_parts(home: Path) -> None:
    captions(home)
    data = opened("multi30k")
    assert [len(p) for p in data.splits.values()] == [40, 9, 8]
    assert data.splits["val"].row(0) == {"source": "Ein Hund läuft 0va .", "target": "A dog runs 0va ."}
    assert data.splits["val"].name(0) == "caption 41"
    assert "hund" in data.preprocessing.to_json()["source"]["tokens"]
    assert any("min_count=2 for this set" in n for n in data.notes)
    assert not any("min_count=2 for this set" in n for n in opened("multi30k", min_count=3).notes)
    assert [len(p) for p in opened("multi30k", max_samples=7).splits.values()] == [7, 9, 8]


def test_captions_may_share_their_pieces(home: Path) -> None:
    captions(home)
    data = opened("multi30k", joint_vocab=True)
    assert isinstance(data.spec, PairSpec)
    assert data.spec.joint_vocab
    assert data.spec.target.sentences
    assert data.spec.target.lower
    assert any("at most vocab_size=10000 for this set" in n for n in data.notes)
    assert any("share a tokenizer: they are cut into byte pairs" in n for n in data.notes)
    assert not any("min_count=2" in n for n in data.notes)
    assert data.preprocessing.to_json()["source"]["kind"] == "bpe"
    assert data.splits["test"].texts(0) == ["A dog runs 0te ."]  # type: ignore[attr-defined]
    small = opened("multi30k", joint_vocab=True, vocab_size=260)
    assert isinstance(small.spec, PairSpec)
    assert small.spec.vocab_size == 262
    words = opened("multi30k", joint_vocab=True, tokenizer="words").preprocessing.to_json()
    assert {"hund", "dog"} <= set(words["source"]["tokens"])


def test_spelling_and_sound_share_nothing(home: Path) -> None:
    dictionary(home, [f"ab{a}{b} AE1 B {a.upper()} {b.upper()}" for a in "cdef" for b in "ghij"])
    data = opened("cmudict", joint_vocab=True)
    assert isinstance(data.spec, PairSpec)
    assert not data.spec.joint_vocab
    assert any("share no tokenizer" in n for n in data.notes)
    assert not opened("cmudict", tokenizer="bpe").spec.target.sentences  # type: ignore[union-attr]


def test_captions_that_do_not_pair_are_rejected(home: Path) -> None:
    captions(home, short=True)
    with pytest.raises(DataError, match="train has 40 lines of German and 39 of English"):
        opened("multi30k")


@pytest.mark.usefixtures("shared_data")
def test_the_real_dictionary() -> None:
    if where("cmudict") is None:
        pytest.skip("needs cmudict")
    data = opened("cmudict", max_samples=2000)
    assert isinstance(data.spec.target, Tokens)
    assert data.spec.target.vocab_size == 39 + 4  # the phonemes of the dictionary
    assert isinstance(data.spec, PairSpec)
    assert data.spec.vocab_size == 26 + 1 + 2
    assert any("Left out of 135,166 entries: 1,19" in n for n in data.notes)
    assert not any("not the published file" in n for n in data.notes)


@pytest.mark.usefixtures("shared_data")
def test_the_real_captions() -> None:
    if where("multi30k") is None:
        pytest.skip("needs multi30k")
    data = opened("multi30k", max_samples=500)
    assert [len(p) for p in data.splits.values()] == [500, 1014, 1000]
    assert not any("not the published file" in n for n in data.notes)
    row = data.splits["test"].row(0)
    assert row
    assert row["target"] == "A man in an orange hat starring at something."
