"""Text in shards: the tokens and the batches that text in memory gives, whatever the text and however it was cut."""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from cutaway.api import prepare
from cutaway.core.errors import CutawayError, DataError, FileError, SettingError
from cutaway.core.spec import Masked, NextToken
from cutaway.data import samplers
from cutaway.data.dataset_base import DataSet
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.streaming import text_shards as reading
from cutaway.data.streaming import text_shards as shards
from cutaway.data.streaming.text_shards import Corpus, CorpusIndex, Place
from cutaway.data.text import text_files

POEM = "Tiger, tiger, burning bright\r\nIn the forests of the night,\nWhat immortal hand or eye — ΑΣ Σ\n\n" * 40
KINDS = ("characters", "words", "bpe", "wordpiece")
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, parts and shards of a few bytes, so that a short text has many."""
    monkeypatch.setattr(shards, "MEBIBYTE", 200)
    monkeypatch.setattr(reading, "PART", 700)
    monkeypatch.setattr(reading, "BLOCK", 64)
    monkeypatch.setattr(reading, "PIECE", 50)


def opened(source: Path, targets: tuple[Any, ...] = (NextToken,), **given_: Any) -> DataSet:
    return open_data(str(source), DataSettings(**given_), targets=targets)


def both(source: Path, out: Path, how: dict[str, Any], **given_: Any) -> tuple[DataSet, DataSet]:
    """The data set in memory, and that of the same in shards."""
    prepare(source, out, shard_size=1, held_out=0, sample=10_000, **how)
    return opened(source, **how, **given_), opened(out, **given_)


def tokens_of(data: DataSet, split: str) -> torch.Tensor:
    found = data.splits[split].tokens[:]  # type: ignore[attr-defined]
    assert isinstance(found, torch.Tensor)
    return found


def reject_unlike(memory: DataSet, stored: DataSet) -> None:
    """Tokens, batches in training and in evaluation, and what the report is told: all equal."""
    assert stored.spec == memory.spec
    assert stored.preprocessing.to_json() == memory.preprocessing.to_json()
    assert stored.fingerprint == memory.fingerprint
    assert [*stored.splits] == [*memory.splits]
    for split in memory.splits:
        assert torch.equal(tokens_of(stored, split), tokens_of(memory, split))
        ours, theirs = (data.splits[split] for data in (stored, memory))
        for generator, seed in ((3, 4), (None, None)):
            drawn = [None if generator is None else torch.Generator().manual_seed(generator) for _ in range(2)]
            plan, other = ours.plan(4, drawn[0]), theirs.plan(4, drawn[1])  # type: ignore[attr-defined]
            assert len(plan) == len(other)
            for a, b in islice(zip(ours.batches(plan, seed), theirs.batches(other, seed)), 9):
                assert all(torch.equal(x, y) for x, y in zip((*a.inputs, a.target), (*b.inputs, b.target)))
        assert ours.row(1) == theirs.row(1)
        assert ours.name(1) == theirs.name(1)
        assert theirs.target is not None
        counts = theirs.target.bincount(minlength=stored.spec.vocab_size)  # type: ignore[union-attr]
        known = ours.target_counts  # type: ignore[attr-defined]
        assert torch.equal(known, counts[: len(known)])
        assert not counts[len(known) :].any()  # that hide or frame others


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_and_batches_are_those_of_the_text_in_memory(tmp_path: Path, kind: str, lower: bool) -> None:
    (tmp_path / "poem.txt").write_bytes(POEM.encode("utf-8-sig"))
    how = {"tokenizer": kind, "lower": lower, "vocab_size": 300, "val": 0.2, "test": 0.1}
    memory, stored = both(tmp_path / "poem.txt", tmp_path / "out", how, length=7)
    reject_unlike(memory, stored)
    names = [path.name for path in sorted((tmp_path / "out").iterdir())]
    assert {"test-00000.bin", "train-00000.bin", "train-00008.bin", "val-00002.bin"} <= set(names)


@few
@given(
    st.lists(st.text("aB \n\r\té字𝄞'.1", min_size=1, max_size=300), min_size=1, max_size=4),
    st.sampled_from(KINDS), st.floats(0.1, 0.4), st.integers(0, 10_000),
)  # fmt: skip
def test_any_text_is_cut_as_it_is_in_memory(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], kind: str, val: float, number: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "text").mkdir()
    for k, text in enumerate(texts):
        (folder / "text" / f"{k}.txt").write_bytes(f"ab b\n{text}".encode())
    how = {"tokenizer": kind, "vocab_size": 270, "val": val, "test": 0.0}
    try:
        memory = opened(folder / "text", length=1, **how)
    except DataError:
        return
    prepare(folder / "text", folder / "out", shard_size=1, held_out=0, sample=10_000, **how)
    stored = opened(folder / "out", length=1)
    for split in memory.splits:
        assert torch.equal(tokens_of(stored, split), tokens_of(memory, split))


def test_files_that_are_split_already(tmp_path: Path) -> None:
    for name, text in (("train", POEM), ("valid", POEM[:900] + "Ω"), ("test", POEM[100:990])):
        (tmp_path / "book" / name).mkdir(parents=True)
        for k in range(3):
            (tmp_path / "book" / name / f"{10 - k}.txt").write_text(text[k:], encoding="utf-8", newline="")
    memory, stored = both(tmp_path / "book", tmp_path / "out", {}, length=9)
    reject_unlike(memory, stored)
    assert any(note.startswith("3 of") and "val split" in note for note in stored.notes)
    assert set(stored.notes) >= {note for note in memory.notes if "unknown" in note}


def test_workers_and_kills_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    made = [prepare(tmp_path / "poem.txt", tmp_path / f"out{n}", shard_size=1, workers=n) for n in (0, 2)]
    assert made[0] == made[1]

    class KilledError(Exception):
        pass

    def stop(done: int, of: int) -> None:
        if done == 3:
            raise KilledError

    with pytest.raises(KilledError):
        prepare(tmp_path / "poem.txt", tmp_path / "killed", shard_size=1, progress=stop)
    written = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "killed").glob("*.bin")}
    assert len(written) == 3
    with pytest.raises(DataError, match="not whole"):
        opened(tmp_path / "killed")
    assert prepare(tmp_path / "poem.txt", tmp_path / "killed", shard_size=1, workers=2) == made[0]
    assert {name: (tmp_path / "killed" / name).stat().st_mtime_ns for name in written} == written
    assert prepare(tmp_path / "poem.txt", tmp_path / "killed", shard_size=1) == made[0]  # there is nothing left to do


def test_large_corpora_draw_from_an_order_that_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "HELD", 20)
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    memory, stored = both(tmp_path / "poem.txt", tmp_path / "out", {}, length=7)
    reject_unlike(memory, stored)
    plan = stored.splits["train"].plan(4, torch.Generator().manual_seed(0))  # type: ignore[attr-defined]
    assert torch.cat([*plan]).sort().values.tolist() == list(range(len(stored.splits["train"])))


@pytest.mark.parametrize("carried", [{"stateful": True}, {"max_samples": 12}])
def test_states_are_carried_and_few_samples_taken_as_in_memory(tmp_path: Path, carried: dict[str, Any]) -> None:
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    reject_unlike(*both(tmp_path / "poem.txt", tmp_path / "out", {}, length=7, **carried))


@pytest.mark.parametrize("framed", [True, False])
def test_tokens_are_hidden_as_in_memory(tmp_path: Path, framed: bool) -> None:
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    how = {"tokenizer": "wordpiece", "vocab_size": 200}
    given_ = {"targets": (Masked,), "length": 9, "special_tokens": framed}
    reject_unlike(*both(tmp_path / "poem.txt", tmp_path / "out", how, **given_))


def test_of_a_large_corpus_a_sample_is_fitted_on_and_little_held_out(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    how: dict[str, Any] = {"tokenizer": "bpe", "vocab_size": 300, "sample": 3, "held_out": 1}
    made = prepare(tmp_path / "poem.txt", tmp_path / "out", shard_size=1, **how)
    assert any("fitted on 3 million of the" in note for note in made.notes)
    assert any("held out has 1 MiB of the text" in note for note in made.notes)
    stored = opened(tmp_path / "out", length=3)
    preprocessing: Any = stored.preprocessing
    texts = {split: preprocessing.decode(tokens_of(stored, split).tolist()) for split in stored.splits}
    assert "".join(texts.values()) == POEM.replace("\r\n", "\n")
    assert all(abs(len(texts[split]) - 200) < 20 for split in ("val", "test"))
    given_ = prepare(tmp_path / "poem.txt", tmp_path / "other", val=0.25, test=0, **how)
    assert [*given_.splits] == ["train", "val"]
    assert abs(given_.settings["val"] - 0.25) < 1e-9


def test_a_tokenizer_that_lacks_a_character_is_told_of_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    words = {word: i for i, word in enumerate(sorted({*POEM.split()} - {"Σ"}))}
    library = Library(WordLevel(words, unk_token="none"))
    library.pre_tokenizer = WhitespaceSplit()
    library.save(str(tmp_path / "tokenizer.json"))
    said = r"poem\.txt, from byte [\d,]+ on, near '.*: The tokenizer cannot cut this text"
    with pytest.raises(DataError, match=said):
        prepare(tmp_path / "poem.txt", tmp_path / "out", tokenizer=str(tmp_path / "tokenizer.json"), workers=0)


def test_a_place_is_found_by_its_characters(tmp_path: Path) -> None:
    texts = ["a\r\nbé\rc", "字\n\n", "𝄞x\r"]
    for k, text in enumerate(texts):
        (tmp_path / f"{k}.txt").write_bytes(("\ufeff" * (k == 0) + text).encode())
    corpus = Corpus.from_files(text_files.find_texts(tmp_path)["train"])
    whole = text_files.join_texts([text_files.read_text(path).text for path in corpus.files])
    looked = CorpusIndex.at(corpus, lower=False, workers=0)
    assert looked.characters == len(whole)
    for k in range(len(whole) + 1):
        for end in range(k, len(whole) + 1):
            assert looked.text(k, end) == whole[k:end]
    assert looked.place(len(whole)) == corpus.end == Place(2, 6)
    assert {letter: looked.letters[letter] for letter in whole} == {letter: whole.count(letter) for letter in whole}


# --- what a person can get wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"abc\n" * 100 + b"\xff\n", r"not UTF-8: byte 400 \(line 101\) is 0xFF"),
        ("é".encode() * 90 + b"\xc3", r"byte 180 \(line 1\) is 0xC3, unexpected end"),
        (b"abc\n" * 70 + b"\0", r"byte 280 \(line 71\) is zero"),
        ("abc".encode("utf-16"), "UTF-16"),
        (b"", "is empty"),
        (b"\xef\xbb\xbf", r"is empty \(3 bytes\)"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_named_with_its_place(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "a.txt").write_text(POEM, encoding="utf-8")
    (tmp_path / "book" / "b.txt").write_bytes(data)
    with pytest.raises(DataError, match=rf"b\.txt.*{said}"):
        prepare(tmp_path / "book", tmp_path / "out")
    assert not [*(tmp_path / "out").glob("*")]


def test_a_line_that_never_ends_can_be_cut_by_characters_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FAR", 1000)
    (tmp_path / "dna.txt").write_text("ACGT" * 2000)
    memory, stored = both(tmp_path / "dna.txt", tmp_path / "out", {}, length=7)
    reject_unlike(memory, stored)
    with pytest.raises(
        DataError, match=r"dna\.txt has no line end for 1,000 characters and more.*tokenizer=characters"
    ):
        prepare(tmp_path / "dna.txt", tmp_path / "other", tokenizer="bpe")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (("about", "dtype"), "float64", "about.dtype is 'float64', and must be one of 'uint8'"),
        (("about", "counts", "train"), [1, 2], "about.counts does not have one count for each token"),
        (("about", "tokenizer", "kind"), ["bpe"], "about.tokenizer.kind is ['bpe'], and must be one of"),
        (("about", "tokenizer", "tokens", 3), "long", "about.tokenizer cannot be used: a character 'long'"),
        (("about", "tokenizer", "tokens", 2), "", "about.tokenizer cannot be used: a character ''"),
        (("splits", "train", 0, "count"), 10**12, "is 1,000,000,000,000, which is not what"),
        (("settings", "val"), "much", "Invalid val=much: must be a number"),
    ],
)
def test_a_manifest_that_cannot_be_is_named_by_its_key(
    tmp_path: Path, key: tuple[Any, ...], value: Any, said: str
) -> None:
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    prepare(tmp_path / "poem.txt", tmp_path / "out", tokenizer="characters")
    path = tmp_path / "out" / "manifest.json"
    document = within = json.loads(path.read_text(encoding="utf-8"))
    for one in key[:-1]:
        within = within[one]
    within[key[-1]] = value
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(FileError) as rejection:
        open_data(str(tmp_path / "out"), DataSettings())
    assert str(rejection.value).startswith(f"{path}: ")
    assert said in str(rejection.value)


def test_settings_that_were_settled_are_named(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    out = tmp_path / "out"
    prepare(tmp_path / "poem.txt", out, tokenizer="bpe", vocab_size=280)
    for given_, said in (
        ({"tokenizer": "characters"}, r"another tokenizer \(bpe\) than characters"),
        ({"vocab_size": 300}, "Invalid vocab_size=300: .* was prepared with vocab_size=280"),
        ({"val": 0.3}, "Invalid val=0.3: .* was prepared with val="),
        ({"documents": True}, "documents=true keeps documents apart"),
        ({"image_size": 3}, "image_size=3 is for images"),
    ):
        with pytest.raises(SettingError, match=said):
            opened(out, **given_)
    opened(out, tokenizer="bpe", vocab_size=280, length=5, stateful=True)
    for given_, said in (({"length": 5}, "length=5 is for the training"), ({"documents": True}, "documents=true")):
        with pytest.raises(SettingError, match=said):
            prepare(tmp_path / "poem.txt", tmp_path / "other", **given_)
    with pytest.raises(FileError, match=r"with other settings \(vocab_size\)"):
        prepare(tmp_path / "poem.txt", out, tokenizer="bpe", vocab_size=290)
    (tmp_path / "poem.txt").write_text(POEM + "more", encoding="utf-8")
    with pytest.raises(FileError, match=r"of other data .*\(data\)"):
        prepare(tmp_path / "poem.txt", out, tokenizer="bpe", vocab_size=280)


def test_a_shard_that_is_cut_short_meanwhile_is_named(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    prepare(tmp_path / "poem.txt", tmp_path / "out", shard_size=1)
    data = opened(tmp_path / "out")
    with (tmp_path / "out" / "train-00001.bin").open("r+b") as file:
        file.truncate(50)
    with pytest.raises(DataError, match=r"train-00001\.bin: it ends after 50 bytes, and \d+ were written"):
        tokens_of(data, "train")


def test_a_token_that_is_none_is_named_with_its_shard(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    prepare(tmp_path / "poem.txt", tmp_path / "out", val=0, test=0)
    split: Any = opened(tmp_path / "out", length=5).splits["train"]
    shard = tmp_path / "out" / "train-00000.bin"
    shard.write_bytes(b"\xff" * shard.stat().st_size)
    with pytest.raises(DataError, match=r"train-00000.bin: it holds token 255, of a vocabulary of \d+: it is damaged"):
        next(split.batches([torch.arange(3)], seed=1))


def test_what_the_next_batch_reads_is_asked_for_while_one_is_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    prepare(tmp_path / "poem.txt", tmp_path / "out", val=0, test=0)
    split: Any = opened(tmp_path / "out", length=5).splits["train"]
    asked: list[int] = []
    read: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "posix_fadvise", lambda file, offset, length, advice: asked.append(offset))
    monkeypatch.setattr(os, "pread", lambda file, length, offset: read.append(offset) or pread(file, length, offset))
    batches = split.batches(split.plan(4, torch.Generator().manual_seed(0))[:3], seed=1)
    for k in range(3):
        next(batches)
        assert len(read) == 4 * (k + 1)
        assert len(asked) == 4 * min(2, k + 1)
    assert asked == read[4:]


def test_what_cannot_be_prepared_is_told(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    wrong: list[tuple[Any, str]] = [
        (tmp_path / "table.csv", "is read as a whole, and only Parquet is prepared"),
        (tmp_path / "nothing.txt", "There is no file or folder"),
        ("wikitext2", "is a named data set"),
        (3, "data must be a path, not of type int"),
    ]
    for source, said in wrong:
        with pytest.raises(CutawayError, match=said):
            prepare(source, tmp_path / "out")
    prepare(tmp_path / "poem.txt", tmp_path / "out")
    with pytest.raises(DataError, match="is prepared already"):
        prepare(tmp_path / "out", tmp_path / "again")
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "a.txt").write_text(POEM, encoding="utf-8")
    with pytest.raises(CutawayError, match="stands within"):
        prepare(tmp_path / "book", tmp_path / "book" / "out")
    document = json.loads((tmp_path / "out" / "manifest.json").read_text())
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(document | {"kind": "poems"}))
    with pytest.raises(CutawayError, match="poems"):
        opened(tmp_path / "out")


@pytest.mark.parametrize(("tokens", "dtype"), [
    (3, "uint8"), (256, "uint8"), (257, "uint16"), (65_536, "uint16"), (65_537, "uint32"),
])  # fmt: skip
def test_ids_are_stored_in_the_smallest_type_that_holds_them(tokens: int, dtype: str) -> None:
    assert shards.stored_dtype(tokens) == dtype
    assert np.array([tokens - 1]).astype(dtype)[0] == tokens - 1
