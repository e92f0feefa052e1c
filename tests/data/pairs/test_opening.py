"""Pairs as a data set: cutting, splitting, batches, words, and what is said of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import PairSpec, Tokens
from cutaway.data.dataset_base import IGNORED, DataSet
from cutaway.data.open_data import open_data
from cutaway.data.pairs import transforms as pairs_preprocessing
from cutaway.data.pairs.transforms import BEGIN, END, PairPreprocessing, PairsSplit
from cutaway.data.settings import DataSettings

SOUNDS = dict(zip("abcdefgh", ["AH0", "B", "K", "D", "EH1", "F", "G", "HH"]))


def spelled(count: int = 120) -> list[tuple[str, str]]:
    """Words of 2 to 8 letters and their sounds."""
    draw = random.Random(0)
    words = {"".join(draw.choices("abcdefgh", k=draw.randint(2, 8))): None for _ in range(count)}
    return [(word, " ".join(SOUNDS[letter] for letter in word)) for word in words]


def written(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    return path


def opened(path: Path | str, **settings: Any) -> DataSet:
    return open_data(str(path), DataSettings(pairs=True, **settings))


def split(data: DataSet, name: str) -> PairsSplit:
    found = data.splits[name]
    assert isinstance(found, PairsSplit)
    return found


def preprocessing(data: DataSet) -> PairPreprocessing:
    assert isinstance(data.preprocessing, PairPreprocessing)
    return data.preprocessing


def test_letters_to_sounds(tmp_path: Path) -> None:
    pairs = spelled()
    data = opened(written(tmp_path / "words.tsv", pairs))
    assert isinstance(data.spec, PairSpec)
    target = data.spec.target
    assert (data.name, data.spec.vocab_size) == ("words", 2 + 8)
    assert target == Tokens(2 + 2 + 8, BEGIN, END, 9)  # eight sounds and the end
    assert data.spec.shape == (8,)
    assert [len(p) for p in data.splits.values()] == [
        len(pairs) - 2 * len(split(data, "val")),
        *[len(pairs) * 15 // 100] * 2,
    ]
    assert any("Sources are cut into characters, 8 different ones" in n for n in data.notes)
    assert any("targets into words between blanks, 8 different ones" in n for n in data.notes)
    told = {row["source"]: row["target"] for p in data.splits.values() for i in range(len(p)) if (row := p.row(i))}
    assert told == dict(pairs)


def test_batches_hold_what_the_seams_say(tmp_path: Path) -> None:
    data = opened(written(tmp_path / "words.tsv", spelled()))
    train, prepared = split(data, "train"), preprocessing(data)
    index = torch.tensor([4, 0, 9])
    (batch,) = train.batches([index])
    source, mask, so_far = batch.inputs
    assert source.dtype == so_far.dtype == batch.target.dtype == torch.int64
    for n, i in enumerate(index.tolist()):
        row = train.row(i)
        assert row
        letters = source[n][mask[n]].tolist()
        assert prepared.source_tokenizer.decode(letters) == row["source"]
        assert (source[n][~mask[n]] == 0).all()
        right = batch.target[n][batch.target[n] != IGNORED].tolist()
        assert (right[-1], prepared.words(right)) == (END, row["target"])
        assert train.references(i) == [right[:-1]]
        assert so_far[n].tolist() == [BEGIN, *right[:-1], *[0] * (so_far.shape[1] - len(right))]
        assert batch.target[n].tolist()[len(right) :] == [IGNORED] * (so_far.shape[1] - len(right))
    assert train.target is not None
    assert len(train.target) == sum(len(train.references(i)[0]) + 1 for i in range(len(train)))


@pytest.mark.parametrize("seed", [None, 0])
def test_a_plan_holds_every_example_once_and_hardly_pads(tmp_path: Path, seed: int | None) -> None:
    train = split(opened(written(tmp_path / "words.tsv", spelled(600))), "train")
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    plan = train.plan(16, generator)
    assert torch.cat(plan).sort().values.tolist() == list(range(len(train)))
    masks = [batch.inputs[1] for batch in train.batches(plan)]
    assert sum(int((~m).sum()) for m in masks) < 0.05 * sum(m.numel() for m in masks)


def test_a_source_with_several_targets_stays_in_one_part_and_is_asked_once(tmp_path: Path) -> None:
    pairs = spelled()
    again = [(word, f"{sounds} HH") for word, sounds in pairs[::2]]
    data = opened(written(tmp_path / "words.tsv", [*pairs, *again]))
    homes: dict[str, set[str]] = {}
    for name, p in data.splits.items():
        for i in range(len(p)):
            homes.setdefault(p.row(i)["source"], set()).add(name)  # type: ignore[index]
    assert set(map(len, homes.values())) == {1}
    assert len(homes) == len(pairs)
    both = dict(again)
    for name in ("val", "test"):
        p = split(data, name)
        asked = [p.row(i)["source"] for i in range(len(p))]  # type: ignore[index]
        assert len(asked) == len(set(asked))
        for i, word in enumerate(asked):
            answers = [preprocessing(data).words(ids) for ids in p.references(i)]
            assert answers == [dict(pairs)[word], *([both[word]] if word in both else [])]
        repeated = sum(word in both for word in asked)
        assert any(f"In {name}, {repeated} pairs repeat the source" in n for n in data.notes)
    taught = sum(homes[word] == {"train"} for word in [w for w, _ in pairs] + list(both))
    assert len(data.splits["train"]) == taught


def test_tokenizers_know_the_training_part_alone(tmp_path: Path) -> None:
    pairs = [*spelled(), ("ñandú", "NY AH0"), ("über", "UE B"), ("œil", "OE Y")]
    data = opened(written(tmp_path / "words.tsv", pairs))
    seen = {sign for i in range(len(data.splits["train"])) for sign in data.splits["train"].row(i)["source"]}  # type: ignore[index]
    assert set(preprocessing(data).source_tokenizer.tokens[2:]) == seen
    assert not {"ñ", "ü", "œ"} <= seen
    (note,) = [n for n in data.notes if n.startswith("Targets with tokens outside the vocabulary")]
    assert "no answer can give" in note


def test_sentences_become_words_on_both_sides(tmp_path: Path) -> None:
    lines = [(f"Der Hund {i % 7} bellt.", f"The dog {i % 7} barks, {i}.") for i in range(60)]
    (tmp_path / "de.txt").write_text("".join(f"{a}\n" for a, _ in lines))
    (tmp_path / "en.txt").write_text("".join(f"{b}\n" for _, b in lines))
    data = opened(f"{tmp_path}/de.txt,{tmp_path}/en.txt", lower=True, min_count=2)
    assert data.name == "de"
    words = preprocessing(data).target_tokenizer.tokens
    assert {"the", "dog", "barks", ",", "."} <= set(words)
    assert "The" not in words
    assert any("all in lower case" in n for n in data.notes)
    homes = [{p.row(i)["source"] for i in range(len(p))} for p in data.splits.values()]  # type: ignore[index]
    assert not homes[0] & homes[1]
    for kind in ("characters", "bpe"):
        other = preprocessing(opened(f"{tmp_path}/de.txt,{tmp_path}/en.txt", tokenizer=kind))
        ids, lengths = other.targets(["The dog"])
        assert other.words(ids.tolist()) == "The dog"
        assert int(lengths) == len(ids)


def test_long_pairs_are_left_out_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "words.tsv", spelled())
    whole, short = opened(path), opened(path, length=5)
    count = sum(len(whole.splits["train"].row(i)["source"]) > 5 for i in range(len(whole.splits["train"])))  # type: ignore[index]
    assert len(short.splits["train"]) == len(whole.splits["train"]) - count > 0
    assert any(
        f"more than length=5 tokens: {count} of {len(whole.splits['train'])} pairs in train" in n for n in short.notes
    )
    assert short.spec.shape == (5,)
    assert short.split_hash != whole.split_hash
    with pytest.raises(DataError, match="length=1 leaves no pair to the train split"):
        opened(path, length=1)


@pytest.mark.parametrize("side", [0, 1])
def test_a_pair_that_is_too_long_is_named(side: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_preprocessing, "MOST_TOKENS", 8)
    data = opened(written(tmp_path / "words.tsv", spelled()))  # of 8 letters at most
    long = ("a" * 9, "b") if side == 0 else ("a", " ".join("b" * 9))
    path = written(tmp_path / "long.tsv", [*spelled(), long])
    wrong = f"line {len(spelled()) + 1} .*it has 9 tokens, at most 8 are read.*length=8"
    with pytest.raises(DataError, match=wrong):
        opened(path)
    with pytest.raises(DataError, match=wrong):
        preprocessing(data).labelled(path)
    assert len(opened(path, length=8).splits)
    whole = opened(path, length=9)
    assert preprocessing(whole).examples(["a" * 8]).name(0) == "a" * 8
    if side == 0:
        with pytest.raises(DataError, match="aaaaaaaaaa: it has 10 tokens, at most 8"):
            preprocessing(whole).examples(["ab", "a" * 10])


def test_limit_takes_from_training_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "words.tsv", spelled())
    whole, few = opened(path), opened(path, max_samples=10)
    assert len(few.splits["train"]) == 10
    assert [few.splits["test"].name(i) for i in range(3)] == [whole.splits["test"].name(i) for i in range(3)]
    assert opened(path, split_seed=1).split_hash != whole.split_hash == opened(path).split_hash


def test_preprocessing_comes_back_from_json(tmp_path: Path) -> None:
    data = opened(written(tmp_path / "words.tsv", spelled()))
    document = json.loads(json.dumps(data.preprocessing.to_json()))
    again = PairPreprocessing.from_json(document)
    assert again.to_json() == document
    assert (document["kind"], again.spec) == ("seq2seq", data.spec)
    text = ["habe", "fee"]
    assert all(torch.equal(a, b) for a, b in zip(again.sources(text), preprocessing(data).sources(text)))
    assert all(torch.equal(a, b) for a, b in zip(again.targets(["B K"]), preprocessing(data).targets(["B K"])))
    document["spec"]["vocab_size"] += 1
    with pytest.raises(ValueError, match="tokenizers of"):
        PairPreprocessing.from_json(document)


def test_new_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prepared = preprocessing(opened(written(tmp_path / "words.tsv", spelled())))
    (tmp_path / "new.txt").write_text("abba\ncafé\n")
    new = prepared.examples(["new.txt", "deaf", "€"])
    assert [new.name(i) for i in range(len(new))] == ["line 1 of new.txt", "line 2 of new.txt", "deaf", "€"]
    assert new.row(1) == {"source": "café"}
    assert new.references(0) == []
    assert new.target is None
    assert new.notes == ["2 of 4 sources hold tokens that training did not know: read as unknown."]
    (batch,) = new.batches([torch.arange(4)])
    assert batch.inputs[0][3].tolist() == [1, 0, 0, 0]
    assert batch.inputs[2].tolist() == [[BEGIN]] * 4
    assert batch.target.shape == (4, 0)
    (tmp_path / "lines.txt").write_text("abba\n\n \n" + "ab" * 30 + "\n")
    lines = prepared.examples(["lines.txt"])
    assert [lines.name(i) for i in lines.empty] == ["line 2 of lines.txt", "line 3 of lines.txt"]
    assert lines.notes == [
        "1 of 4 sources have more tokens than any in training, 8: their predictions may be worse, or cut off.",
        "2 of 4 lines are empty: so are the answers to them.",
    ]
    for given, said in ((["gone.txt"], r"no file 'gone\.txt'"), ([" "], "it is empty"), ([], "No source was given")):
        with pytest.raises(DataError, match=said):
            prepared.examples(given)
    (tmp_path / "tabs.txt").write_text("abba\tB\n")
    with pytest.raises(DataError, match=r"line 1 of tabs\.txt: it holds a tab"):
        prepared.examples([Path("tabs.txt")])


def test_other_pairs_to_evaluate_on(tmp_path: Path) -> None:
    prepared = preprocessing(opened(written(tmp_path / "words.tsv", spelled())))
    other = written(tmp_path / "other.tsv", [("abba", "B AH0"), ("fee", "F"), ("abba", "AH0 B"), ("abba", "AH0 B")])
    labelled = prepared.labelled(other)
    assert [prepared.words(ids) for ids in labelled.references(0)] == ["B AH0", "AH0 B"]
    assert len(labelled) == 2
    assert "2 pairs repeat the source" in labelled.notes[0]


def test_what_cannot_be_learned_from_is_rejected(tmp_path: Path) -> None:
    path = written(tmp_path / "words.tsv", [(word, "B") for word, _ in spelled()])
    with pytest.raises(DataError, match="The targets of the training split cannot be tokenized"):
        opened(path)
    with pytest.raises(SettingError, match="rate=8000 is for audio"):
        opened(path, rate=8000)
    with pytest.raises(DataError, match="split gets no example"):
        opened(written(tmp_path / "one.tsv", [("ab", "A B")] * 5))
