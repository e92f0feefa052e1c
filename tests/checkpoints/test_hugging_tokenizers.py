"""What tokenizer_config.json says beside a tokenizer.json: texts have the ids of transformers' AutoTokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cutaway.core.errors import FileError
from cutaway.data.text.tokenizer_files import open_tokenizer
from cutaway.verify import OracleMissing
from cutaway.verify.libraries import transformers_library

tokenizers = pytest.importorskip("tokenizers")

SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
PIECES = ["the", "The", "cat", "Cat", "##s", "é", "e", ",", "sat", "caf", "##é", "##e", "中", "国"]
TEXTS = ["The Cat sats, café", "the cat", "中国 cat", " the", "CAT"]
SAID: list[dict[str, Any]] = [
    {},
    {"do_lower_case": True},
    {"do_lower_case": False},
    {"strip_accents": True},
    {"strip_accents": False},
    {"tokenize_chinese_chars": False},
    {"do_lower_case": False, "strip_accents": True},
]


def wordpiece(lower: bool) -> Any:
    found = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({w: i for i, w in enumerate([*SPECIAL.values(), *PIECES])}, unk_token="[UNK]")
    )
    found.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower)
    found.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    found.add_special_tokens(list(SPECIAL.values()))
    return found


def bytes_of_pairs() -> Any:
    found = tokenizers.Tokenizer(tokenizers.models.BPE())
    found.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet
    )
    found.train_from_iterator(["the cat sat", "a cat, The Cat"] * 5, trainer)
    return found


def same(folder: Path, library: Any, said: dict[str, Any], config: dict[str, Any] | None) -> None:
    """Assert that texts have the same ids on either side."""
    library.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    (folder / "config.json").unlink(missing_ok=True)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    try:
        theirs = transformers_library().AutoTokenizer.from_pretrained(folder)
    except OracleMissing as missing:
        pytest.skip(str(missing))
    ours = open_tokenizer(folder)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], (said, config, text)


@pytest.mark.parametrize("kind", ["BertTokenizer", "DistilBertTokenizerFast", "PreTrainedTokenizerFast", "bert", None])
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "cased"])
def test_case_and_accent_settings_are_those_of_transformers(kind: str | None, lower: bool, tmp_path: Path) -> None:
    by_type = kind is None or kind.islower()
    for said in SAID:
        named = {} if by_type else {"tokenizer_class": kind}
        same(
            tmp_path, wordpiece(lower), {**SPECIAL, **named, **said}, {"model_type": kind} if kind and by_type else None
        )


@pytest.mark.parametrize("kind", ["GPT2Tokenizer", "RobertaTokenizerFast", "PreTrainedTokenizerFast", "bart", None])
def test_the_prefix_space_is_that_of_transformers(kind: str | None, tmp_path: Path) -> None:
    by_type = kind is None or kind.islower()
    for said in ({}, {"add_prefix_space": True}, {"add_prefix_space": False}):
        named = {} if by_type else {"tokenizer_class": kind}
        same(tmp_path, bytes_of_pairs(), {**named, **said}, {"model_type": kind} if kind and by_type else None)


def test_a_setting_that_is_neither_true_nor_false_is_refused(tmp_path: Path) -> None:
    wordpiece(True).save(str(tmp_path / "tokenizer.json"))
    for value in ("yes", 1, None, []):
        said = {"tokenizer_class": "BertTokenizer", "do_lower_case": value}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(said))
        with pytest.raises(
            FileError, match=r"tokenizer_config\.json has do_lower_case=.*, where true or false belongs"
        ):
            open_tokenizer(tmp_path)


def test_a_converted_folder_keeps_what_was_said(tmp_path: Path) -> None:
    wordpiece(True).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    (tmp_path / "config.json").write_text(json.dumps({"preset": "x", "origin": {"config": {"model_type": "bert"}}}))
    assert open_tokenizer(tmp_path).encode("The") == [6]
