"""Words and their contexts: every kept word once, windows within paragraphs, all that is drawn from the seed alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import DataError, FileError, SettingError
from cutaway.core.spec import ANY_SIZE, Context, TextSpec, from_json, to_json
from cutaway.data.build import DataSource
from cutaway.data.dataset_base import DataSet
from cutaway.data.open_data import open_named, where
from cutaway.data.settings import DataSettings
from cutaway.data.text.word2vec_dataset import (
    NOISE,
    STRETCH,
    ContextPreprocessing,
    ContextSplit,
    Word2VecSampler,
    build_alias_table,
    context_dataset,
    open_context,
    paragraphs,
    select_known,
    words_around,
)

TALE = "The king met the queen. The queen met the king!\n\nA dog saw the cat; the cat saw a dog.\n\n" * 40

ONCE = " ".join(f"w{i}" for i in range(200))


def dataset(text: str = TALE, **given_: Any) -> DataSet:
    return context_dataset([text], DataSource("tale", "tale.txt", ""), DataSettings(**given_))


def split_of(data: DataSet, split: str = "train") -> ContextSplit:
    held = data.splits[split]
    assert isinstance(held, ContextSplit)
    return held


def drawn(split: ContextSplit, seed: int | None, size: int = 5) -> list[tuple[Tensor, ...]]:
    order = list(torch.split(torch.arange(len(split)), size))
    return [(*batch.inputs, batch.target) for batch in split.batches(order, seed)]


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    window=st.integers(1, 7),
    subsample=st.sampled_from([0.0, 1e-3, 0.3]),
    seed=st.integers(0, 99),
)
def test_windows_are_what_a_loop_over_the_kept_words_gives(
    lengths: list[int], window: int, subsample: float, seed: int
) -> None:
    total = sum(lengths)
    ids = torch.arange(2, 2 + total)  # each word once, so that a word tells its place
    counts = torch.ones(2 + total, dtype=torch.int64)
    counts[:2] = 0
    counts[2 : 2 + total : 3] = 50
    split = ContextSplit(
        ids, torch.tensor(lengths), Word2VecSampler(counts, window, subsample), [str(i) for i in range(2 + total)]
    )
    paragraph = np.repeat(np.arange(len(lengths)), lengths)
    seen: list[int] = []
    for words, mask, reach, noise, target in drawn(split, seed):
        assert words.shape[1] == reach.shape[1] + 2 * window
        assert torch.equal(mask, words > 0)
        assert noise.shape == (len(words), NOISE)
        assert (counts[noise] > 0).all()
        assert torch.equal(target, reach.sum(2))
        for stretch, far in zip(words.tolist(), reach.tolist()):
            for i, (back, ahead) in enumerate(far, start=window):
                if back or ahead:
                    assert max(back, ahead) <= window
                    around = stretch[i - back : i + ahead + 1]
                    assert len({paragraph[w - 2] for w in around}) == 1
                    assert around == sorted(around)
                    seen.append(stretch[i])
    assert len(seen) == len(set(seen))
    if not subsample:  # all are kept: those that have another word in their paragraph are learned from
        assert sorted(seen) == [i + 2 for i in range(total) if lengths[paragraph[i]] > 1]


def test_how_many_words_stand_before_and_behind_in_a_paragraph() -> None:
    before, after = words_around(torch.tensor([4, 4, 4, 7, 9, 9]))
    assert before.tolist() == [0, 1, 2, 0, 0, 1]
    assert after.tolist() == [2, 1, 0, 0, 1, 0]


def test_words_are_kept_as_often_as_the_formula_says() -> None:
    counts = torch.tensor([0, 0, 900_000, 99_000, 1_000])
    draws = Word2VecSampler(counts, subsample=1e-3)
    f = np.array([0.9, 0.099, 0.001])
    powers = (1e6 * f) ** 0.75
    np.testing.assert_allclose(draws.keep[2:], np.minimum(1, (np.sqrt(f / 1e-3) + 1) * 1e-3 / f), rtol=1e-12)
    np.testing.assert_allclose(draws.noise[2:], powers / powers.sum(), rtol=1e-12)
    assert draws.noise[:2].sum() == 0
    ids = torch.repeat_interleave(torch.arange(2, 4), 20_000)
    split = ContextSplit(ids, torch.tensor([40_000]), draws, list("__abc"))
    kept = torch.cat([words[:, 5:-5][mask[:, 5:-5]] for words, mask, *_ in drawn(split, 1)])
    found = kept.bincount(minlength=4)[2:4] / 20_000
    # Margins are cut off: what is counted twice or not at all is a few words at the ends of stretches.
    spread = (draws.keep[2:4] * (1 - draws.keep[2:4]) / 20_000).sqrt()
    assert ((found - draws.keep[2:4]).abs() < 4 * spread + 0.07 * draws.keep[2:4]).all()


def test_noise_is_drawn_as_the_formula_says() -> None:
    counts = torch.tensor([0, 0, 1, 16, 81])
    split = ContextSplit(
        torch.full((80_000,), 4), torch.tensor([80_000]), Word2VecSampler(counts, subsample=0.0), list("__abc")
    )
    noise = torch.cat([noise for *_, noise, _ in drawn(split, 3)])
    fraction = noise.flatten().bincount(minlength=5) / noise.numel()
    torch.testing.assert_close(fraction, torch.tensor([0, 0, 1, 8, 27]) / 36, atol=0.006, rtol=0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40).filter(any))
def test_the_table_of_noise_holds_its_probabilities(weights: list[int]) -> None:
    probabilities = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    cut, rest = build_alias_table(probabilities)
    held = cut.clone().index_add_(0, rest, 1 - cut) / len(weights)
    torch.testing.assert_close(held, probabilities, atol=1e-12, rtol=1e-9)


def test_what_is_drawn_follows_from_the_seed_whatever_the_order() -> None:
    split = split_of(dataset(val=0.0, test=0.0))
    first, again, other, fixed = drawn(split, 5), drawn(split, 5), drawn(split, 6), drawn(split, None)
    assert all(torch.equal(a, b) for x, y in zip(first, again) for a, b in zip(x, y))
    assert not all(torch.equal(a, b) for x, y in zip(first, other) for a, b in zip(x, y))
    assert all(torch.equal(a, b) for x, y in zip(fixed, drawn(split, None)) for a, b in zip(x, y))
    (alone,) = split.batches([torch.tensor([4, 2])], 5)
    whole = [torch.cat(column) for column in zip(*first)]
    assert all(torch.equal(a, b[[4, 2]]) for a, b in zip([*alone.inputs, alone.target], whole))


def test_a_plan_has_every_stretch_once_and_smaller_batches_where_a_word_is_frequent() -> None:
    split = split_of(dataset(val=0.0, test=0.0))
    plan = split.plan(40, torch.Generator().manual_seed(0))
    assert torch.cat(plan).sort().values.tolist() == list(range(len(split)))
    assert split.shrink == pytest.approx(0.025 / float(split.draws.noise.max()))
    assert max(map(len, plan)) == max(1, int(40 * split.shrink)) < 40
    assert [len(b) for b in split.plan(8, None)][:-1] == [8] * (len(split) // 8)
    even = Word2VecSampler(torch.tensor([0, 0, *[9] * 100]))
    assert ContextSplit(torch.arange(2, 102), torch.tensor([100]), even, []).shrink == 1.0


def test_a_text_becomes_words_without_punctuation_and_rare_words() -> None:
    text = "One two, three. Two ONE!\n\nrare two one 7 — 7\n\n" * 3 + "once\n\n\n\n"
    data = dataset(text, min_count=3, lower=True, val=0.0, test=0.0)
    preprocessing = data.preprocessing
    assert isinstance(preprocessing, ContextPreprocessing)
    assert preprocessing.tokenizer.tokens[2:] == ["one", "two", "7", "rare", "three"]
    split = split_of(data)
    assert " ".join(preprocessing.tokenizer.tokens[i] for i in split.ids[:5]) == "one two three two one"
    assert split.paragraph.bincount().tolist() == [5] * 6
    assert preprocessing.draws.counts.tolist() == [0, 0, 9, 9, 6, 3, 3]
    assert data.spec == TextSpec(7, STRETCH + 10, Context(7, window=5))
    assert from_json(to_json(data.spec)) == data.spec
    told = " ".join(data.notes)
    assert "The context of a word ends at a blank line." in told
    assert "in lower case without punctuation; 5 different ones have vectors" in told
    assert "1 of the 31 words of the training split (3.2 %) occur less than 3 times: they are left out" in told
    limited = " ".join(dataset(text, min_count=3, lower=True, vocab_size=4, val=0.0, test=0.0).notes)
    assert "or are not among the 2 commonest" in limited


def test_contexts_end_at_lines_where_there_are_no_blank_lines() -> None:
    assert paragraphs("a b\nc\n\n d\n \ne") == ["a b\nc", " d", "e"]
    assert paragraphs("a b\nc d\n") == ["a b", "c d", ""]
    assert paragraphs("a b c d\n\n") == ["a b c d", "", ""]
    assert "ends at the end of a line" in dataset("x y\ny x\n" * 9, val=0.0, test=0.0).notes[0]


def test_known_words_keep_their_paragraphs() -> None:
    ids, lengths = select_known(np.array([1, 1, 5, 1, 6, 7, 1]), np.array([2, 2, 0, 3]))
    assert (ids.tolist(), lengths.tolist()) == ([5, 6, 7], [1, 2])


def test_the_vocabulary_is_that_of_the_training_part() -> None:
    data = dataset(TALE + "the king\n\n" * 90 + "the stranger\n\n" * 20, val=0.1, test=0.1, subsample=0.0)
    preprocessing = data.preprocessing
    assert isinstance(preprocessing, ContextPreprocessing)
    assert "stranger" not in preprocessing.tokenizer.tokens
    assert "split by position" in " ".join(data.notes)
    assert int(preprocessing.draws.counts.sum()) == len(split_of(data).ids)


def test_preprocessing_goes_to_json_and_back_and_reads_other_texts(tmp_path: Path) -> None:
    data = dataset(val=0.0, test=0.0)
    assert isinstance(data.preprocessing, ContextPreprocessing)
    again = ContextPreprocessing.from_json(data.preprocessing.to_json())
    assert again.to_json() == data.preprocessing.to_json()
    assert data.preprocessing.to_json()["form"] == "context"
    (tmp_path / "other.txt").write_text("the Stranger saw\n\nthe queen\n", encoding="utf-8")
    split = again.labelled(tmp_path / "other.txt")
    assert [again.tokenizer.tokens[i] for i in split.ids] == ["the", "saw", "the", "queen"]
    assert split.paragraph.tolist() == [0, 0, 1, 1]
    assert torch.equal(again.examples(["the saw\n\nthe queen"]).ids, split.ids)
    with pytest.raises(DataError, match="Of this text 1 words are in the vocabulary"):
        again.examples(["queen and nothing"])
    with pytest.raises(ValueError, match="3 counts of"):
        ContextPreprocessing.from_json({**data.preprocessing.to_json(), "counts": [0, 0, 5]})
    spec = {**to_json(data.spec), "target": {"kind": "classes", "names": ["a"]}}
    with pytest.raises(ValueError, match="for class"):
        ContextPreprocessing.from_json({**data.preprocessing.to_json(), "spec": spec})


def test_a_stretch_has_a_name_and_its_words() -> None:
    split = split_of(dataset(val=0.0, test=0.0))
    assert split.name(1) == "words 16 to 31"
    assert len((split.row(1) or {})["text"].split()) == STRETCH
    assert set((split.row(1) or {})["text"].split()) <= {
        "The",
        "the",
        "king",
        "queen",
        "met",
        "dog",
        "saw",
        "cat",
        "A",
        "a",
    }
    assert split.image(0) is None


def test_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "tale.txt").write_text(TALE, encoding="utf-8")
    data = open_context(tmp_path / "tale.txt", DataSettings(val=0.0, test=0.0))
    assert (data.name, set(data.splits)) == ("tale", {"train"})
    folder = tmp_path / "splits"
    folder.mkdir()
    for name, text in {"train": TALE, "valid": TALE[: len(TALE) // 8]}.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    given_ = open_context(folder, DataSettings(test=0.0))
    assert set(given_.splits) == {"train", "val"}
    assert torch.equal(split_of(given_).ids, split_of(data).ids)
    assert given_.fingerprint != data.fingerprint


def test_limit_takes_the_first_stretches() -> None:
    whole, cut = dataset(val=0.0, test=0.0), dataset(val=0.0, test=0.0, max_samples=3)
    assert torch.equal(split_of(cut).ids, split_of(whole).ids[: 3 * STRETCH])
    assert len(split_of(cut).paragraph) == 3 * STRETCH
    assert "only the first 48 words" in cut.notes[-2] + cut.notes[-1]
    assert cut.split_hash != whole.split_hash


@pytest.mark.parametrize(
    ("text", "given_", "error", "said"),
    [
        ("one one one\n\n", {}, DataError, r"tale.txt cannot be used for training. .*one"),
        ("... !!! ---\n\n", {}, DataError, "0 of its 0 different words"),
        (
            TALE,
            {"min_count": 1000},
            DataError,
            "0 of its 10 different words occur at least 1000 times.*smaller min_count",
        ),
        (TALE, {"stateful": False}, SettingError, "stateful=false means nothing for word vectors"),
        (TALE, {"length": 9}, SettingError, "length=9 means nothing for word vectors"),
        (TALE, {"val": 0.6, "test": 0.5}, SettingError, "leave nothing to train on"),
        (TALE + ONCE, {"val": 0.1, "test": 0.0, "min_count": 2}, DataError, "its val split has fewer than two words"),
    ],
)
def test_what_cannot_be_is_rejected(text: str, given_: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        dataset(text, **given_)


def test_files_that_are_no_text_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"good\n\xff\xe9")
    with pytest.raises(DataError, match=r"bad.txt: it is not UTF-8: byte 5 \(line 2\)"):
        open_context(tmp_path / "bad.txt", DataSettings())
    with pytest.raises(FileError, match="There is no file"):
        open_context(tmp_path / "none.txt", DataSettings())


@pytest.mark.skipif(where("tinyshakespeare") is None, reason="tinyshakespeare is not here")
def test_real_text() -> None:
    data = open_named("tinyshakespeare", DataSettings(min_count=5, lower=True, val=0.1, test=0.0), ANY_SIZE, (Context,))
    preprocessing = data.preprocessing
    assert isinstance(preprocessing, ContextPreprocessing)
    assert preprocessing.tokenizer.tokens[2:6] == ["the", "and", "to", "i"]
    assert set(data.splits) == {"train", "val"}
    kept = sum(int((batch[-1] > 0).sum()) for batch in drawn(split_of(data), 0, 500))
    assert kept == pytest.approx(float(preprocessing.draws.keep[split_of(data).ids].sum()), rel=0.02)
