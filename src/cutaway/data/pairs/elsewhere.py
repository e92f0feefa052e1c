"""A tokenizer that was made elsewhere, for both sides of pairs, and the tokens that its model begins and ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ... import spec as specs
from ...errors import DataError, FileError
from ...files import read_json
from ...spec import PairSpec, Tokens
from ..text.tokenizers import PRETRAINED, Tokenizer

PREPROCESSING = ("preprocessing.json", "model/preprocessing.json")


def tokens_of(tokenizer: Tokenizer, path: Path) -> Tokens:
    """The target of a model with this tokenizer, which stands at `path`: a file, or a folder that holds one.

    A run that learned pairs says what its targets begin and end with, and a config.json beside a tokenizer.json does;
    where neither does, they end with the tokenizer's end, and begin as its texts do, or else with padding, as T5's do.
    Raises DataError where nothing ends them.
    """
    assert tokenizer.kind == PRETRAINED, "those that are fitted here have ids of ours"
    before = _of_a_run(path)
    if before is not None:
        return before
    said = _config(path)
    end = said.get("eos_token_id", tokenizer.end)
    padding = said.get("pad_token_id", tokenizer.padding)
    padding = 0 if padding is None else padding
    usual = tokenizer.begin if tokenizer.begin is not None else padding
    begin = said.get("decoder_start_token_id", usual)
    if end is None:
        raise DataError(
            f"The tokenizer of {path} has no token that ends a text, such as </s>, and a target needs one.",
            fix="Take another tokenizer, or one that is fitted on these pairs (tokenizer=bpe).",
        )
    # A model may have rows for more ids than there are tokens: to multiply by round numbers.
    vocabulary = max(len(tokenizer), said.get("vocab_size", 0))
    if not 0 <= max(begin, end, padding) < vocabulary:
        raise DataError(
            f"config.json beside {path} names the token {max(begin, end, padding):,}, and there are {vocabulary:,}.",
            fix="Is it that of another model?",
        )
    return Tokens(vocabulary, begin, end, 1, padding=padding, unknown=tokenizer.unknown)


def _of_a_run(path: Path) -> Tokens | None:
    """The target of a run that learned pairs, whose folder or preprocessing.json this is; None where it is none."""
    files = [path] if path.is_file() else [path / name for name in PREPROCESSING]
    file = next((file for file in files if file.is_file()), None)
    document = read_json(file) if file is not None else None
    if not isinstance(document, dict) or specs.kind_now(document.get("kind")) != "seq2seq":
        return None
    try:
        spec = specs.from_json(document["spec"])
    except (KeyError, TypeError) as error:
        raise FileError(f"{file} is not complete: {type(error).__name__} {error}. Restore it from a copy.") from error
    return spec.target if isinstance(spec, PairSpec) else None


def _config(path: Path) -> dict[str, int]:
    """The numbers in the config.json beside a tokenizer; none where there is no such file."""
    file = (path if path.is_dir() else path.parent) / "config.json"
    document: Any = read_json(file) if file.is_file() else {}
    return {k: v for k, v in document.items() if type(v) is int} if isinstance(document, dict) else {}
