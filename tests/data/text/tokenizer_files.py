"""Files of the `tokenizers` library, small, as BERT's and GPT-2's are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Library

TEXTS = ["the fox ran over the lazy dog", "unbelievable foxes ran and ran", "a dog, a fox; dogs and foxes!"]
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def bert_like(folder: Path, **files: Any) -> Path:
    """A WordPiece tokenizer as BERT's, cutting and padding to 8 tokens, in a folder."""
    library = Library(models.WordPiece(unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.train_from_iterator(TEXTS, trainers.WordPieceTrainer(special_tokens=list(BERT), show_progress=False))
    library.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    library.enable_truncation(8)
    library.enable_padding(length=8)
    return saved(library, folder, **files)


def gpt2_like(folder: Path, special: tuple[str, ...] = ("<|endoftext|>",), **files: Any) -> Path:
    """A tokenizer of bytes with its special tokens at the end, as GPT-2's has them."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    library.decoder = decoders.ByteLevel()
    library.train_from_iterator(TEXTS, trainer)
    library.add_special_tokens([AddedToken(token, special=True) for token in special])
    return saved(library, folder, **files)


def saved(library: Library, folder: Path, **files: Any) -> Path:
    """The folder with the tokenizer and these JSON files."""
    folder.mkdir(exist_ok=True)
    library.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
    return folder
