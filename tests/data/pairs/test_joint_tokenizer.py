"""One tokenizer for both sides of pairs: fitted here on both, or made elsewhere with ids of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from cutaway.core.errors import DataError, FileError, SettingError
from cutaway.core.spec import PairSpec, Tokens
from cutaway.data.dataset_base import IGNORED, DataSet
from cutaway.data.open_data import open_data
from cutaway.data.pairs.transforms import BEGIN, END, SHIFT, PairPreprocessing, PairsSplit, detokenize
from cutaway.data.settings import DataSettings
from cutaway.data.text.tokenizer_files import open_tokenizer
from cutaway.data.text.tokenizers import train_tokenizer

GERMAN = ["Der Hund läuft im Park", "Eine Frau liest ein Buch", "Zwei Kinder spielen im Schnee", "Ein Mann im Park"]
ENGLISH = ["The dog runs in the park", "A woman reads a book", "Two children play in the snow", "A man in the park"]


def captions(folder: Path, count: int = 40) -> str:
    """Two files of sentences, as they are given."""
    for name, texts in (("de.txt", GERMAN), ("en.txt", ENGLISH)):
        (folder / name).write_text("".join(f"{texts[i % 4]}, {i}.\n" for i in range(count)), encoding="utf-8")
    return f"{folder}/de.txt,{folder}/en.txt"


def opened(source: str, **given: Any) -> tuple[DataSet, PairPreprocessing, PairSpec]:
    data = open_data(source, DataSettings(pairs=True, **given))
    assert isinstance(data.preprocessing, PairPreprocessing)
    assert isinstance(data.spec, PairSpec)
    return data, data.preprocessing, data.spec


def train(data: DataSet) -> PairsSplit:
    split = data.splits["train"]
    assert isinstance(split, PairsSplit)
    return split


def test_an_id_means_the_same_on_either_side(tmp_path: Path) -> None:
    data, prepared, spec = opened(captions(tmp_path), joint_vocab=True, vocab_size=400)
    assert spec.joint_vocab
    assert spec.vocab_size == spec.target.vocab_size == len(prepared.source_tokenizer) + SHIFT
    assert prepared.source_tokenizer is prepared.target_tokenizer
    assert prepared.source_tokenizer.kind == "bpe"
    assert (spec.target.begin, spec.target.end, spec.target.padding, spec.target.unknown) == (2, 3, 0, 1)
    for text in ("Der Hund", "A woman, 3."):
        source, target = prepared.sources([text])[0].tolist(), prepared.targets([text])[0].tolist()
        assert target == [*source, END]
        assert min(source) > END
        assert prepared.words(source) == text
    split = train(data)
    assert int(split.source[0].min()) > END
    assert any("Both sides share a tokenizer: they are cut into byte pairs" in note for note in data.notes)
    # Both languages were learned from: neither falls into single bytes.
    for text in ("Schnee", "children"):
        assert len(prepared.sources([text])[0]) < len(text)


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=30))
def test_every_text_comes_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    tokenizer = train_tokenizer("bpe", [*GERMAN, *ENGLISH], 300)
    target = Tokens(len(tokenizer) + SHIFT, BEGIN, END, 9, sentences=True)
    prepared = PairPreprocessing(PairSpec(target.vocab_size, 9, target, True), tokenizer, tokenizer)
    ids, lengths = prepared.targets([text])
    assert int(ids[-1]) == END
    assert int(lengths) == len(ids)
    assert prepared.words(ids.tolist()) == (text or tokenizer.decode([1]))


def test_it_comes_back_from_json_and_is_written_once(tmp_path: Path) -> None:
    _, prepared, _ = opened(captions(tmp_path), joint_vocab=True)
    document = json.loads(json.dumps(prepared.to_json()))
    again = PairPreprocessing.from_json(document)
    assert document["target"] is None
    assert again.source_tokenizer is again.target_tokenizer
    assert again.spec == prepared.spec
    assert all(torch.equal(a, b) for a, b in zip(again.sources(GERMAN), prepared.sources(GERMAN)))
    assert all(torch.equal(a, b) for a, b in zip(again.targets(ENGLISH), prepared.targets(ENGLISH)))
    document["spec"]["target"]["vocab_size"] -= 1
    with pytest.raises(ValueError, match="tokenizers of"):
        PairPreprocessing.from_json(document)


def test_sides_that_are_cut_differently_share_nothing(tmp_path: Path) -> None:
    words = ["abba", "cab", "bad", "dab", "add", "dada", "baa", "cabal", "bed", "dead", "face", "fade"] * 3
    pairs = "".join(f"{word}{'ab'[i % 2]}\t{' '.join(word.upper())}\n" for i, word in enumerate(words))
    (tmp_path / "words.tsv").write_text(pairs)
    data, _, spec = opened(str(tmp_path / "words.tsv"), joint_vocab=True)
    assert not spec.joint_vocab
    assert not spec.target.sentences  # the blanks are those of a notation
    assert any("share no tokenizer, as sources are cut into characters" in note for note in data.notes)
    _, prepared, spec = opened(str(tmp_path / "words.tsv"), joint_vocab=True, tokenizer="bpe")
    assert spec.joint_vocab
    assert not spec.target.sentences
    assert prepared.source_tokenizer is prepared.target_tokenizer
    assert opened(str(tmp_path / "words.tsv"))[2].joint_vocab is False


def test_a_kind_that_is_typed_is_that_of_both(tmp_path: Path) -> None:
    for kind in ("words", "characters", "wordpiece"):
        _, prepared, spec = opened(captions(tmp_path), joint_vocab=True, tokenizer=kind)
        assert (prepared.source_tokenizer.kind, spec.joint_vocab) == (kind, True)
        assert prepared.source_tokenizer is prepared.target_tokenizer
        assert spec.target.sentences


def test_sentences_of_words_are_joined_as_they_are_written(tmp_path: Path) -> None:
    for text in ("a dog (brown), a t-shirt and 3 balls: look!", "don't run.", "one 50% sale; two"):
        _, prepared, spec = opened(captions(tmp_path), tokenizer="words")
        tokenizer = train_tokenizer("words", [text, text], 100)
        made = PairPreprocessing(spec, prepared.source_tokenizer, tokenizer)
        assert made.words(made.targets([text])[0].tolist()) == text
    assert detokenize("a , b") == "a, b"
    assert detokenize("nothing to do") == "nothing to do"


# --- made elsewhere -----------------------------------------------------------------------------------------------


def saved(folder: Path, special: list[str], frame: str, config: dict[str, Any] | None = None) -> Library:
    """A byte-level tokenizer.json with these special tokens first, texts framed as in `frame`."""
    library = Library(models.BPE())
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator([*GERMAN, *ENGLISH], trainer)
    framing = [(token, library.token_to_id(token)) for token in special if token in frame]
    library.post_processor = processors.TemplateProcessing(single=frame, special_tokens=framing)
    folder.mkdir(exist_ok=True)
    library.save(str(folder / "tokenizer.json"))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return library


T5 = (["<pad>", "</s>", "<unk>"], "$A </s>", {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0})
BART = (
    ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    "<s> $A </s>",
    {"decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1, "bos_token_id": 0},
)


@pytest.mark.parametrize(
    ("form", "begin", "end", "padding", "unknown"), [(T5, 0, 1, 0, 2), (BART, 2, 2, 1, 3)], ids=["t5", "bart"]
)
def test_a_tokenizer_keeps_its_ids(
    tmp_path: Path, form: tuple[list[str], str, dict[str, Any]], begin: int, end: int, padding: int, unknown: int
) -> None:
    special, frame, config = form
    library = saved(tmp_path / "made", special, frame, {**config, "vocab_size": 384})
    data, prepared, spec = opened(captions(tmp_path), tokenizer=str(tmp_path / "made"))
    target = spec.target
    assert spec.joint_vocab
    assert (target.begin, target.end, target.padding, target.unknown) == (begin, end, padding, unknown)
    assert spec.vocab_size == target.vocab_size == 384  # as many as the model has rows
    framed = library.encode("Der Hund läuft").ids  # by the library's own post-processor
    assert prepared.sources(["Der Hund läuft"])[0].tolist() == framed
    plain = library.encode("The dog", add_special_tokens=False).ids
    assert prepared.targets(["The dog"])[0].tolist() == [*plain, end]
    assert prepared.words([*plain, end, padding]) == "The dog"
    split = train(data)
    (batch,) = split.batches([torch.arange(len(split))])
    source, mask, so_far = batch.inputs
    assert (source[~mask] == padding).all()
    assert (so_far[:, 0] == begin).all()
    real = batch.target != IGNORED
    assert (so_far[~real] == padding).all()
    assert all(int(row[keep][-1]) == end for row, keep in zip(batch.target, real))
    again = PairPreprocessing.from_json(json.loads(json.dumps(prepared.to_json())))
    assert again.spec == spec
    assert torch.equal(again.sources(GERMAN)[0], prepared.sources(GERMAN)[0])


def test_without_a_config_the_tokens_tell(tmp_path: Path) -> None:
    saved(tmp_path / "made", *T5[:2])
    target = opened(captions(tmp_path), tokenizer=str(tmp_path / "made" / "tokenizer.json"))[2].target
    assert (target.begin, target.end, target.padding) == (0, 1, 0)  # no token begins a text: padding does
    saved(tmp_path / "other", *BART[:2])
    target = opened(captions(tmp_path), tokenizer=str(tmp_path / "other"))[2].target
    assert (target.begin, target.end, target.padding) == (0, 2, 1)
    saved(tmp_path / "endless", ["<pad>", "<unk>"], "$A")
    with pytest.raises(DataError, match="no token that ends a text"):
        opened(captions(tmp_path), tokenizer=str(tmp_path / "endless"))


def test_the_tokenizer_of_another_run(tmp_path: Path) -> None:
    _, first, spec = opened(captions(tmp_path), joint_vocab=True)
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "preprocessing.json").write_text(json.dumps(first.to_json()))
    _, second, other = opened(captions(tmp_path, 60), tokenizer=str(tmp_path / "run"))
    assert (other.vocab_size, other.joint_vocab) == (spec.vocab_size, True)
    assert torch.equal(first.sources(GERMAN)[0], second.sources(GERMAN)[0])
    saved(tmp_path / "made", *BART)
    _, third, _ = opened(captions(tmp_path), tokenizer=str(tmp_path / "made"))
    (tmp_path / "run" / "model" / "preprocessing.json").write_text(json.dumps(third.to_json()))
    target = opened(captions(tmp_path), tokenizer=str(tmp_path / "run"))[2].target
    assert (target.begin, target.end, target.padding) == (2, 2, 1)  # config.json is not beside it
    _, apart, _ = opened(captions(tmp_path))
    (tmp_path / "run" / "model" / "preprocessing.json").write_text(json.dumps(apart.to_json()))
    with pytest.raises(FileError, match="two tokenizers"):
        opened(captions(tmp_path), tokenizer=str(tmp_path / "run"))


def test_what_cannot_be_asked_of_it_is_rejected(tmp_path: Path) -> None:
    saved(tmp_path / "made", *BART)
    source, made = captions(tmp_path), str(tmp_path / "made")
    with pytest.raises(SettingError, match="is one for both sides"):
        opened(source, tokenizer=made, joint_vocab=False)
    with pytest.raises(SettingError, match="lower=true"):
        opened(source, tokenizer=made, lower=True)
    with pytest.raises(SettingError, match="Invalid tokenizer=nothing: tokenizer= takes one of auto"):
        opened(source, tokenizer="nothing")
    saved(tmp_path / "made", *BART[:2], {**BART[2], "eos_token_id": 90_000})
    with pytest.raises(DataError, match="names the token 90,000"):
        opened(source, tokenizer=made)


def test_an_empty_line_is_a_source_of_nothing_but_its_frame(tmp_path: Path) -> None:
    saved(tmp_path / "made", *T5)
    _, prepared, _ = opened(captions(tmp_path), tokenizer=str(tmp_path / "made"))
    (tmp_path / "new.txt").write_text("Der Hund\n\n")
    split = prepared.examples([tmp_path / "new.txt"])
    assert split.empty == [1]
    assert split.source[1].tolist() == [len(open_tokenizer(tmp_path / "made").encode("Der Hund")) + 1, 1]
    assert split.notes == ["1 of 2 lines are empty: so are the answers to them."]
