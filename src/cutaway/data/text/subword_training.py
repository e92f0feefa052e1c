"""Training of subword tokenizers with the `tokenizers` library: byte-pair encoding and WordPiece."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import DataError, SettingError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

PAD, UNKNOWN = 0, 1
SPECIAL = {"characters": ("<pad>", "<unk>"), "words": ("<pad>", "<unk>"), "bpe": ("<pad>", "<unk>")}
SPECIAL["wordpiece"] = ("[PAD]", "[UNK]")
STRETCH = re.compile(r"\S{1000,}")  # longer than any word, such as DNA or base64
PART = 100  # characters of its pieces for training; also WordPiece's longest word
BYTES = 256  # initial tokens of byte-level byte-pair encoding


def train_bpe(texts: Iterable[str], vocab_size: int, min_count: int, lower: bool) -> Library:
    """Train byte-level byte-pair encoding. Raises DataError if the text has fewer than two different characters."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

    library = Library(models.BPE())
    if lower:
        library.normalizer = normalizers.Lowercase()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        special_tokens=list(SPECIAL["bpe"]),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = list(map(reject_surrogates, texts))
    reject_one("characters", sorted(set().union(*texts)))
    _train(library, texts, trainer)
    return _without_added(library)


def train_wordpiece(texts: Iterable[str], vocab_size: int, min_count: int, lower: bool) -> Library:
    """Train WordPiece. Raises DataError for fewer than two characters, SettingError for too small a vocabulary."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

    library = Library(models.WordPiece(unk_token=SPECIAL["wordpiece"][UNKNOWN]))
    library.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=False)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(cleanup=False)  # cleanup would change "do not" to "don't"
    texts = list(map(reject_surrogates, texts))
    letters: set[str] = set()
    for text in texts:
        letters.update(library.normalizer.normalize_str(text))
    alphabet = sorted(letter for letter in letters if not letter.isspace())
    reject_one("characters", alphabet)
    # Given explicitly, because the trainer's own order of subwords, which decides ties, differs between runs.
    pieces = [*alphabet, *(f"##{letter}" for letter in alphabet)]
    if vocab_size < 2 + len(pieces):
        raise SettingError(
            f"vocab_size={vocab_size} is too small for the {len(alphabet):,} different characters of the training "
            f"text: wordpiece needs two tokens for each, so at least {2 + len(pieces)}."
        )
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        special_tokens=[*SPECIAL["wordpiece"], *pieces],
        show_progress=False,
    )
    _train(library, texts, trainer)
    return _without_added(library)


def _train(library: Library, texts: Iterable[str], trainer: Any) -> None:
    """Train the tokenizer in a separate thread, so that Ctrl-C works: the library does not check for it."""
    pieces = [piece for text in texts for piece in _in_parts(text)]
    failed: list[BaseException] = []

    def fit() -> None:
        try:
            library.train_from_iterator(pieces, trainer)
        except BaseException as error:  # raised in the waiting thread
            failed.append(error)

    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    if failed:
        raise failed[0]


def _in_parts(text: str) -> Iterable[str]:
    """Yield the text, with parts longer than any word split into pieces.

    The cost of fitting a word is its length times the number of subwords to be found.
    """
    end = 0
    for found in STRETCH.finditer(text):
        yield text[end : found.start()]
        yield from (found[0][at : at + PART] for at in range(0, len(found[0]), PART))
        end = found.end()
    yield text[end:] if end else text


def _without_added(library: Library) -> Library:
    """Return the trained tokenizer without added tokens, so that `<pad>` in a text is text."""
    from tokenizers import Tokenizer as Library

    document = json.loads(library.to_str())
    document["added_tokens"] = []
    return Library.from_str(json.dumps(document))


def reject_one(kind: str, kept: Sequence[str]) -> None:
    """Raise DataError if fewer than two different tokens are left."""
    if len(kept) < 2:
        only = f"one only, {kept[0]!r}" if kept else "none"
        raise DataError(
            f"Of different {kind} the training text has {only}: there is nothing to tell apart.",
            fix="Give more text; or a larger vocabulary, or a smaller min_count, where these leave the others out.",
        )


def reject_surrogates(text: str) -> str:
    """Return a text; raise DataError for lone surrogates, which UTF-8 cannot represent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise no_text(text, error.start) from error
    return text


def no_text(text: str, at: int) -> DataError:
    """Return the error for a text with a lone surrogate at a position."""
    return DataError(
        f"The text {text[max(0, at - 20) : at]!r}… goes on with U+{ord(text[at]):04X}, half of a surrogate pair, which "
        "is no character.",
        fix="It comes from bytes that are not UTF-8: convert what they were read from.",
    )
