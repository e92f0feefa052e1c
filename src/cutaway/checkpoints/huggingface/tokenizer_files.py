"""Tokenizer of a Hugging Face folder: tokenizer.json and its companion files.

A tokenizer from transformers is copied. One that was fitted here can be converted if it consists of pieces (bpe,
wordpiece). The special tokens around a text, which are not pieces here, become tokens of it there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.spec import Masked, Spec, TextSpec, Tokens
from ...data.text.tokenizer_files import open_tokenizer
from ...data.text.tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"
COMPANION_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)
SPECIAL_TOKENS = {"wordpiece": ("[CLS]", "[SEP]", "[MASK]"), "bpe": ("<s>", "</s>", "<mask>")}
PRETRAINED = "pretrained"


@dataclass(frozen=True)
class Vocabulary:
    """Tokenizer files and the ids of special tokens."""

    files: Mapping[str, str]  # name → content
    ids: Mapping[str, int | None]  # fields of config.json → id, if the family has no defaults
    own: Mapping[str, int] = field(default_factory=dict)  # the same, overriding the family's defaults


def read_vocabulary(path: Path) -> Vocabulary | None:
    """Return the tokenizer of a folder, or None if it has no tokenizer.json. Raises FileError for an invalid one."""
    if not (path / TOKENIZER).is_file():
        return None
    tokenizer = open_tokenizer(path / TOKENIZER)
    names = [name for name in (TOKENIZER, *COMPANION_FILES) if (path / name).is_file()]
    files = {name: (path / name).read_text(encoding="utf-8") for name in names}
    return Vocabulary(files, _ids(tokenizer.padding, tokenizer.begin, tokenizer.end))


def vocabulary_for_targets(tokenizer: Tokenizer, target: Tokens, longest: int | None = None) -> Vocabulary:
    """Return the special tokens of targets, and the tokenizer if it keeps its ids.

    A tokenizer that was fitted here has other ids in pairs and captions, and cannot be converted.
    """
    kept = to_vocabulary(tokenizer, None, longest) if tokenizer.kind == PRETRAINED else None
    own = {
        "pad_token_id": target.padding,
        "bos_token_id": target.begin,
        "eos_token_id": target.end,
        "forced_eos_token_id": target.end,
        "decoder_start_token_id": target.begin,
    }
    return Vocabulary(kept.files if kept else {}, {}, own)


def to_vocabulary(tokenizer: Tokenizer, spec: Spec | None, longest: int | None = None) -> Vocabulary | None:
    """Convert the tokenizer of texts of `spec`; None if it cannot be converted.

    A pretrained tokenizer does not need `spec`. `longest` is the maximum number of tokens of the model.
    """
    document = tokenizer.to_json().get("library")
    if document is None:
        return None
    begin, end, mask = tokenizer.begin, tokenizer.end, tokenizer.mask
    if tokenizer.kind != PRETRAINED:
        begin, end, mask = _frame(spec, len(tokenizer))
        framed = _with_frame(document, SPECIAL_TOKENS[tokenizer.kind], (begin, end, mask))
        if framed is None:
            return None
        document, tokens = framed
    else:
        tokens = tokenizer.tokens
    padding = tokenizer.padding
    named = {
        "pad_token": padding if padding is not None else end,
        "unk_token": tokenizer.unknown,
        "cls_token": begin,
        "sep_token": end,
        "bos_token": begin,
        "eos_token": end,
        "mask_token": mask,
    }
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    config |= {key: tokens[i] for key, i in named.items() if i is not None}
    if longest is not None:
        config["model_max_length"] = longest
    files = {TOKENIZER: document, "tokenizer_config.json": json.dumps(config, indent=1, ensure_ascii=False) + "\n"}
    return Vocabulary(files, _ids(padding, begin, end))


def _ids(padding: int | None, begin: int | None, end: int | None) -> dict[str, int | None]:
    """Return the special tokens of config.json. Without a padding token, the end token is used."""
    return {"pad_token_id": padding if padding is not None else end, "bos_token_id": begin, "eos_token_id": end}


def _frame(spec: Spec | None, count: int) -> tuple[int | None, int | None, int | None]:
    """Return the ids of begin, end and mask of texts of `spec`, which follow the `count` tokens of our tokenizer."""
    if not isinstance(spec, TextSpec) or spec.begin is None or spec.end is None:
        return None, None, None
    mask = spec.target.mask if isinstance(spec.target, Masked) else count + 2
    return spec.begin, spec.end, mask


def _with_frame(
    document: str, names: tuple[str, str, str], ids: tuple[int | None, int | None, int | None]
) -> tuple[str, list[str]] | None:
    """Return the tokenizer document with the special tokens, and its tokens by id; None if their ids would change."""
    from tokenizers import Tokenizer as Library
    from tokenizers.processors import TemplateProcessing

    library = Library.from_str(document)
    begin, end, _ = ids
    if begin is not None and end is not None:
        library.add_special_tokens(list(names))
        if tuple(map(library.token_to_id, names)) != ids:
            return None
        around = f"{names[0]} $A {names[1]}"
        library.post_processor = TemplateProcessing(
            single=around, pair=f"{around} $B:1 {names[1]}:1", special_tokens=[(names[0], begin), (names[1], end)]
        )
    found = library.get_vocab(with_added_tokens=True)
    return library.to_str(), sorted(found, key=found.__getitem__)
