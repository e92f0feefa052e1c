"""Tokenizers: characters, words, byte-pair encoding, WordPiece, and pretrained ones.

For the kinds that are fitted here, id 0 is padding and id 1 the unknown token. A tokenizer is fitted on the texts of
the training split; equal texts give equal tokenizers. It is saved as JSON values.

- characters: a token is a Unicode code point. Known text is restored exactly.
- words: a token is a word with its combining marks, its apostrophes and its joiners (Don't, שָׁלוֹם, 3.14); a Chinese
  character; or one sign as a reader sees it: a punctuation mark, an emoji with its modifiers, a flag. Scripts without
  blanks other than Chinese (Thai, Japanese kana) are split only at signs. `blanks` splits at blanks instead, for text
  that is already tokenized: `<unk>` is then the unknown token.
- bpe: byte-level byte-pair encoding (R. Sennrich et al., 2016, https://arxiv.org/abs/1508.07909; on bytes as in GPT-2).
  Nothing is unknown, and every text is restored exactly.
- wordpiece: the longest subwords from the left of each word, as in BERT (J. Devlin et al., 2018,
  https://arxiv.org/abs/1810.04805), with accents kept. A word with a character that is not in the training split is
  unknown as a whole, and so is one of more than 100 characters.
- pretrained: a tokenizer.json of the `tokenizers` library, with its own ids (tokenizer_files.py).

A tokenizer for text that is already tokenized: "12 7 431" is the tokens 12, 7 and 431.

Detection of tokens that continue the word of the previous token.

In WordPiece these begin with ##. In other tokenizers they begin with a letter or digit, without a blank before it, and
follow a token that ends with one. So the subwords of a word belong together, and signs are separate.

Training of subword tokenizers with the `tokenizers` library: byte-pair encoding and WordPiece.
"""

from __future__ import annotations

import functools
import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ...core.errors import (
    DataError,
    DataMismatchError,
    IncompatibleSettingError,
    NotEnoughDataError,
    Problem,
    SettingError,
    check_value,
    shorten,
)
from ..modalities import reject_changed
from ..settings import DataSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

__all__ = [
    "KINDS",
    "PAD",
    "PRETRAINED",
    "SPECIAL",
    "UNKNOWN",
    "Characters",
    "DefaultSpecialIds",
    "LibraryTokenizer",
    "Subwords",
]
__all__ += ["Tokenizer", "Words", "library_from", "train_tokenizer"]
__all__ += ["characters_tokenizer", "words_tokenizer"]

KINDS = ("characters", "words", "bpe", "wordpiece")  # kinds that are fitted here
PRETRAINED = "pretrained"  # the kind of all others
PAD, UNKNOWN = 0, 1
SPECIAL = {"characters": ("<pad>", "<unk>"), "words": ("<pad>", "<unk>"), "bpe": ("<pad>", "<unk>")}
IDS = "ids"  # the kind of this tokenizer
HOW_CUT = ("tokenizer", "min_count", "lower", "special_tokens")  # settings of tokenization
CODE_POINTS = 0x110000
# Letters with their marks are in class W; the joiners U+200C and U+200D occur inside words of many scripts.
_W = r"[\p{L}\p{M}\p{Nd}_\x{200C}\x{200D}]&&[^\p{Han}]"
_LETTER = r"[\p{L}\p{M}]&&[^\p{Han}]"
WORDS = (
    r"\p{Han}\p{M}*"
    r"|[\x{1F1E6}-\x{1F1FF}]{2}"  # a flag; \X alone would count them from the start of the line each time
    rf"|[{_W}]+(?:['’\x{{05F3}}\x{{05F4}}][{_LETTER}]+|(?<=\p{{Nd}})[.,](?=\p{{Nd}})[{_W}]+)*"
    r"|(?=\S)\X"
)


class Tokenizer(Protocol):
    """Conversion of text to token ids and back."""

    kind: str  # characters, words, bpe, wordpiece or pretrained
    lower: bool  # whether text is converted to lower case first, by a setting
    padding: int | None  # the ids of special tokens, if it has them: padding
    unknown: int | None  # unknown text
    begin: int | None  # the token before a text
    end: int | None  # the token after a text
    mask: int | None  # the mask token

    @property
    def tokens(self) -> list[str]:
        """The tokens by id; for bpe in its notation of bytes."""
        ...

    def __len__(self) -> int:
        """Return the number of ids, including padding and unknown."""
        ...

    @property
    def vocab_size(self) -> int:
        """The number of ids, including padding and unknown."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of the tokens of a text; empty for an empty text."""
        ...

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each of the texts, faster than one by one."""
        ...

    def encode_flat(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the concatenated ids of all texts, and the number of each: (Σ lengths,), (n,)."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of tokens, without padding. Words are separated by blanks."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values for `tokenizer_from_json`."""
        ...


def train_tokenizer(
    kind: str, texts: Iterable[str], vocab_size: int, min_count: int = 1, lower: bool = False, *, blanks: bool = False
) -> Tokenizer:
    """Fit a tokenizer of one of the four kinds on `texts`.

    It has at most `vocab_size` tokens, the most frequent ones (in a tie the first alphabetically), including padding
    and unknown. Tokens that occur less than `min_count` times are unknown; for bpe and wordpiece, pairs must occur that
    often, and at least twice, to be merged. `lower` converts text to lower case first. `blanks` splits words at blanks.

    Raises SettingError for invalid settings, and DataError if fewer than two different tokens are left.
    """
    check_value(kind in KINDS, "tokenizer", kind, f"one of {', '.join(KINDS)}", SettingError)
    check_value(min_count >= 1, "min_count", min_count, "at least 1", SettingError)
    check_value(
        kind != "bpe" or vocab_size >= BYTES + 2, "vocab_size", vocab_size, "at least 258 for bpe", SettingError
    )
    check_value(vocab_size >= 3, "vocab_size", vocab_size, "at least 3", SettingError)
    if blanks and kind != "words":
        raise SettingError(f"Text that is cut at blanks has words, not {kind}: take tokenizer=words.")
    if kind == "characters":
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(reject_surrogates(text.lower() if lower else text))
        return characters_tokenizer(counts, vocab_size, min_count, lower)
    if kind == "words":
        return _build_words(_count_words(texts, lower, blanks), vocab_size, min_count, lower, blanks)
    if kind == "bpe":
        return Subwords(kind, train_bpe(texts, vocab_size, max(2, min_count), lower), lower)
    return Subwords(kind, train_wordpiece(texts, vocab_size, max(2, min_count), lower), lower)


def characters_tokenizer(
    counts: Mapping[str, int], vocab_size: int, min_count: int = 1, lower: bool = False
) -> Characters:
    """Build a tokenizer of characters from their counts. Raises as `train_tokenizer`."""
    kept = sorted(_most_frequent(counts, vocab_size - 2, min_count))
    reject_one("characters", kept)
    return Characters([*SPECIAL["characters"], *kept], lower)


def words_tokenizer(words: Iterable[str], vocab_size: int, min_count: int = 1, lower: bool = False) -> Words:
    """Fit a tokenizer on words that are already split; `look_up` returns their ids. Raises as `train_tokenizer`."""
    check_value(min_count >= 1, "min_count", min_count, "at least 1", SettingError)
    check_value(vocab_size >= 3, "vocab_size", vocab_size, "at least 3", SettingError)
    counts = Counter(reject_surrogates(word).lower() if lower else reject_surrogates(word) for word in words)
    return _build_words(counts, vocab_size, min_count, lower, blanks=True)


MOST_RULES = 1000
MOST_GROWTH = 16  # maximum growth of a text by rules; Unicode's own forms (NFKC) expand one character to 18


def library_from(document: str, kind: str) -> Library:
    """Load the library's tokenizer from its JSON.

    Raises TypeError or ValueError if it is invalid, or if its rules multiply the length of texts.
    """
    from tokenizers import Tokenizer as Library

    parsed = json.loads(document)
    if not isinstance(parsed, dict):
        raise ValueError(f"a {kind} tokenizer that is no JSON object")
    for part in ("normalizer", "decoder"):
        _reject_growth(part, _rules(parsed.get(part)))
    try:
        return Library.from_str(document)
    except TypeError:
        raise
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises nothing narrower, and its panics are not Exceptions
        raise ValueError(f"a {kind} tokenizer that cannot be read: {error}") from error


def _rules(part: Any) -> list[tuple[str, str]]:
    """Return the pattern and content of each Replace rule in order; "" as the pattern of a regular expression or a
    prefix.
    """
    if isinstance(part, list):
        return [rule for one in part for rule in _rules(one)]
    if not isinstance(part, dict):
        return []
    if part.get("type") == "Prepend":
        return [("", str(part.get("prepend", "")))]
    if part.get("type") == "Replace":
        pattern = part.get("pattern")
        found = pattern.get("String", "") if isinstance(pattern, dict) else pattern
        return [(str(found or ""), str(part.get("content", "")))]
    return [rule for one in part.values() if isinstance(one, list | dict) for rule in _rules(one)]


def _reject_growth(part: str, rules: Sequence[tuple[str, str]]) -> None:
    """Raise ValueError if the rules multiply the length of a text, for example if each doubles the output of the
    previous.

    They are tested on each pattern and content, and on a letter for regular expressions.
    """
    if len(rules) > MOST_RULES:
        raise ValueError(f"its {part} has {len(rules):,} rules, at most {MOST_RULES:,} are allowed")
    for start in dict.fromkeys(["a", *(side for rule in rules for side in rule if side)]):
        text, growth = start, 1.0
        for pattern, content in rules:
            count = text.count(pattern) if pattern else len(text)
            growth *= max(1.0, 1 + count * (len(content) - max(1, len(pattern))) / len(text))
            if growth <= MOST_GROWTH:
                text = (text.replace(pattern, content) if pattern else text) or start
            else:
                raise ValueError(
                    f"the rules of its {part} make a text {growth:,.0f} times as long, at most {MOST_GROWTH} times is "
                    f"allowed: take out the Replace rule that writes {shorten(repr(content))}"
                )


def _library_error(error: BaseException) -> BaseException:
    """Return the error to raise if the library cannot tokenize a text, for example without an unknown token."""
    if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError | TypeError):
        return error
    return DataError(
        f"The tokenizer cannot cut this text: {error}.",
        fix="It may have no unknown token, or a rule that never ends: use another tokenizer.",
    )


class DefaultSpecialIds:
    """Ids of special tokens, for every kind that is fitted here."""

    padding: int | None = PAD
    unknown: int | None = UNKNOWN
    begin: int | None = None
    end: int | None = None
    mask: int | None = None


class Characters(DefaultSpecialIds):
    """A tokenizer of Unicode code points, with a lookup table of all of them for speed."""

    kind = "characters"

    def __init__(self, tokens: list[str], lower: bool = False) -> None:
        """Initialize with `tokens` by id: padding, unknown, then one character each."""
        _check(tokens)
        if (wrong := next((token for token in tokens[2:] if len(token) != 1), None)) is not None:
            raise ValueError(f"a character {shorten(wrong)!r}")
        self.tokens, self.lower = tokens, lower
        self._ids = np.full(CODE_POINTS, UNKNOWN, np.int32)
        self._ids[[ord(token) for token in tokens[2:]]] = np.arange(2, len(tokens))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the characters of a text."""
        ids: list[int] = self._encode(text).tolist()
        return ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each of the texts."""
        return [self.encode(text) for text in texts]

    def encode_flat(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the concatenated ids of all texts, and the number of each."""
        if self.lower:
            texts = [text.lower() for text in texts]
        lengths = np.fromiter(map(len, texts), np.int64, count=len(texts))
        return self._look_up("".join(texts)).astype(np.int64), lengths

    def decode(self, ids: Iterable[int]) -> str:
        """Return the characters; U+FFFD for unknown ones, nothing for padding."""
        shown = ["", "\ufffd", *self.tokens[2:]]
        return "".join(shown[i] for i in ids)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values for `tokenizer_from_json`."""
        return {"kind": self.kind, "lower": self.lower, "tokens": self.tokens}

    def _encode(self, text: str) -> npt.NDArray[np.int32]:
        return self._look_up(text.lower() if self.lower else text)

    def _look_up(self, text: str) -> npt.NDArray[np.int32]:
        try:
            return self._ids[np.frombuffer(text.encode("utf-32-le"), np.uint32)]
        except UnicodeEncodeError as error:
            raise no_text(error.object, error.start) from error


class LibraryTokenizer:
    """Base class of tokenizers based on the `tokenizers` library."""

    kind: str
    tokens: list[str]
    lower: bool
    _library: Library

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the tokens of a text."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each of the texts, in one call of the library."""
        try:
            return [found.ids for found in self._library.encode_batch_fast(list(texts), add_special_tokens=False)]
        except BaseException as error:  # a panic of the library is not an Exception
            for text in texts:
                reject_surrogates(text)
            raise _library_error(error) from error

    def encode_flat(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the concatenated ids of all texts, and the number of each."""
        ids = self.encode_many(texts)
        lengths = np.fromiter(map(len, ids), np.int64, count=len(ids))
        flat = np.empty(lengths.sum(), np.int64)
        end = 0
        for of_text, length in zip(ids, lengths.tolist()):
            flat[end : end + length] = of_text
            end += length
        return flat, lengths


class Words(DefaultSpecialIds, LibraryTokenizer):
    """A tokenizer of words and signs, or of text split at blanks."""

    kind = "words"

    def __init__(self, tokens: list[str], lower: bool = False, blanks: bool = False) -> None:
        """Initialize with `tokens` by id: padding, unknown, then words."""
        from tokenizers import Tokenizer as Library
        from tokenizers import models

        _check(tokens)
        self.tokens, self.lower, self.blanks = tokens, lower, blanks
        ids = {token: i for i, token in enumerate(tokens)}
        # Text split at blanks may contain "<pad>"; the empty word, which never occurs, takes its id 0.
        if ids[tokens[PAD]] == PAD:
            del ids[tokens[PAD]]
        self._ids = ids
        self._library = Library(models.WordLevel({"": PAD, **ids}, unk_token=tokens[UNKNOWN]))
        _configure_splitting(self._library, lower, blanks)

    def look_up(self, words: Iterable[str]) -> list[int]:
        """Return the ids of words that are already split, one each."""
        known = self._ids.get
        return [known(word.lower() if self.lower else word, UNKNOWN) for word in words]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the words separated by single blanks, without padding."""
        return " ".join(self.tokens[i] for i in ids if i != PAD)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values for `tokenizer_from_json`."""
        return {"kind": self.kind, "lower": self.lower, "blanks": self.blanks, "tokens": self.tokens}


class Subwords(DefaultSpecialIds, LibraryTokenizer):
    """A tokenizer of subwords: byte-pair encoding or WordPiece."""

    def __init__(self, kind: str, library: Library, lower: bool = False) -> None:
        self.kind, self.lower, self._library = kind, lower, library
        ids = library.get_vocab(with_added_tokens=True)
        self.tokens = sorted(ids, key=ids.__getitem__)
        if sorted(ids.values()) != list(range(len(ids))) or tuple(self.tokens[:2]) != SPECIAL[kind]:
            raise ValueError(f"a {kind} tokenizer whose ids do not begin with padding and unknown")

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text without padding."""
        return self._library.decode([i for i in ids if i != PAD], skip_special_tokens=False)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values for `tokenizer_from_json`."""
        return {"kind": self.kind, "lower": self.lower, "library": self._library.to_str()}


def _most_frequent(counts: Mapping[str, int], most: int, min_count: int) -> list[str]:
    """Return at most `most` tokens with at least `min_count` occurrences, by frequency, then alphabetically."""
    ranked = sorted((token for token, n in counts.items() if n >= min_count), key=lambda token: (-counts[token], token))
    return ranked[:most]


def _build_words(counts: Counter[str], vocab_size: int, min_count: int, lower: bool, blanks: bool) -> Words:
    """Build the tokenizer of the most frequent words. Raises DataError if there are fewer than two."""
    special = SPECIAL["words"]
    counts.pop(special[UNKNOWN], None)
    kept = _most_frequent(counts, vocab_size - 2, min_count)
    reject_one("words", kept)
    return Words([*special, *kept], lower, blanks)


def _configure_splitting(library: Library, lower: bool, blanks: bool) -> None:
    """Configure how the library splits text into words."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    if lower:
        library.normalizer = normalizers.Lowercase()
    split = pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True)
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit() if blanks else split


def _count_words(texts: Iterable[str], lower: bool, blanks: bool) -> Counter[str]:
    """Count the occurrences of each word with the library."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models

    library = Library(models.WordLevel({}, unk_token=""))
    _configure_splitting(library, lower, blanks)
    counts: Counter[str] = Counter()
    for text in texts:
        reject_surrogates(text)
        if library.normalizer is not None:
            text = library.normalizer.normalize_str(text)
        counts.update(word for word, _ in library.pre_tokenizer.pre_tokenize_str(text))
    return counts


def _check(tokens: Sequence[str]) -> None:
    if len(tokens) < 3 or not all(isinstance(token, str) for token in tokens):
        raise ValueError("a tokenizer needs padding, unknown and at least one token")
    try:
        "".join(tokens).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a token holds U+{ord(error.object[error.start]):04X}, half of a surrogate pair") from error


Numbers = npt.NDArray[np.int64]


class Ids:
    """Given ids below `vocab_size`; if `padding` is 0, zeros at the ends of an example are padding.

    There are no unknown, begin or end ids, because the text was tokenized elsewhere.
    """

    kind: str = IDS
    lower: bool = False
    unknown: int | None = None
    begin: int | None = None
    end: int | None = None
    mask: int | None = None

    def __init__(self, vocab_size: int, padding: int | None = None) -> None:
        self.vocab_size, self.padding = vocab_size, padding

    @functools.cached_property
    def tokens(self) -> list[str]:
        """Each id as text."""
        return [str(i) for i in range(self.vocab_size)]

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str) -> list[int]:
        """Parse the ids in a text, separated by blanks."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each of the texts."""
        flat, lengths = self.encode_flat(texts)
        return [ids.tolist() for ids in np.split(flat, lengths.cumsum()[:-1])]

    def encode_flat(self, texts: Sequence[str]) -> tuple[Numbers, Numbers]:
        """Return the concatenated ids of all texts, and the number of each.

        Raises DataError for anything but an id below `vocab_size`.
        """
        examples = [_written(text) for text in texts]
        beyond = {i: int(ids.max()) for i, ids in enumerate(examples) if len(ids) and ids.max() >= self.vocab_size}
        if beyond:
            first = next(iter(beyond))
            raise DataError(
                f"{len(beyond):,} of {len(texts):,} examples hold ids that are not in the vocabulary, of "
                f"{self.vocab_size:,} ids from 0. The first of them is example {first + 1}, with {beyond[first]}.",
                fix=f"Train with vocab_size={max(beyond.values()) + 1} or more: unless it is said, it is as large as "
                "the ids of the training split ask for.",
            )
        if self.padding == 0:
            examples = [np.trim_zeros(ids) for ids in examples]
        lengths = np.fromiter(map(len, examples), np.int64, count=len(examples))
        return np.concatenate([np.empty(0, np.int64), *examples]), lengths

    def decode(self, ids: Iterable[int]) -> str:
        """Return the ids separated by blanks, without padding."""
        return " ".join(str(i) for i in ids if i != self.padding)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values for `tokenizer_from_json`."""
        return {"kind": self.kind, "lower": self.lower, "vocab_size": self.vocab_size, "padding": self.padding}


def fit_ids(settings: DataSettings, texts: Iterable[str]) -> Ids:
    """Return the vocabulary of ids: of the configured size, or up to the largest id of the training split.

    0 is padding if all examples have the same length and zeros occur only at their ends. Raises SettingError for
    settings of tokenization.
    """
    reject_changed(settings, HOW_CUT, "says how texts are cut, and these are token ids")
    examples = [_written(text) for text in texts]
    one_length = len({len(ids) for ids in examples}) == 1
    within = any((np.trim_zeros(ids) == 0).any() for ids in examples)
    padded = one_length and not within and any((ids == 0).any() for ids in examples)
    asked = settings.vocab_size != DataSettings().vocab_size
    largest = max((int(ids.max()) for ids in examples if len(ids)), default=0)
    return Ids(settings.vocab_size if asked else largest + 1, 0 if padded else None)


def format_ids(ids: Sequence[int]) -> str:
    """Return ids as blank-separated text."""
    return " ".join(map(str, ids))


def _written(text: str) -> Numbers:
    try:
        return np.array(text.split(), np.int64)
    except (ValueError, OverflowError):
        raise DataMismatchError(
            "This is a text, and the run learned from token ids.",
            [Problem(repr(text[:60]), "it is not a token id")],
            "Give lists of ids, as in [[3, 17, 5]].",
        ) from None


Flags = npt.NDArray[np.bool_]


def continues_word(tokenizer: Tokenizer, ids: npt.NDArray[np.int64]) -> Flags:
    """Return a mask (n,) of tokens that continue the word of the previous one, for consecutive ids (n,)."""
    prefix, by_bytes = _token_notation(tokenizer)
    if tokenizer.kind == "words":
        return np.zeros(len(ids), np.bool_)
    if prefix:
        return np.array([t.startswith(prefix) and t != prefix for t in tokenizer.tokens], np.bool_)[ids]
    opens = np.array([bool(t) and _in_word(t[0], by_bytes) for t in tokenizer.tokens], np.bool_)[ids]
    closes = np.array([bool(t) and _in_word(t[-1], by_bytes) for t in tokenizer.tokens], np.bool_)[ids]
    found = np.zeros(len(ids), np.bool_)
    found[1:] = opens[1:] & closes[:-1]
    return found


def marks_blanks(tokenizer: Tokenizer) -> bool:
    """Return whether the first subword of a word includes the blank before it, so that an isolated word is split
    differently.
    """
    return _token_notation(tokenizer)[1]


def _token_notation(tokenizer: Tokenizer) -> tuple[str, bool]:
    """Return the prefix of continuing subwords, or empty; and whether tokens are bytes."""
    document: Any = tokenizer.to_json().get("library")
    if document is None:
        return "", False
    library = json.loads(document)
    prefix = (library["model"].get("continuing_subword_prefix") or "") if library["model"] else ""
    return prefix, "ByteLevel" in json.dumps([library.get("pre_tokenizer"), library.get("decoder")])


def _in_word(letter: str, by_bytes: bool) -> bool:
    """Return whether it is a letter or digit; for bytes, also whether it is part of a character beyond ASCII."""
    code = ord(letter)
    if not by_bytes or code < 127:
        return letter.isalnum()
    # GPT-2 writes a printable byte as the character with its number, and the others from U+0100 on, in order: the first
    # 34 of these are blanks and control characters, the rest parts of characters beyond ASCII.
    return code < 256 or code - 256 >= 34


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
        raise IncompatibleSettingError(
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
        raise NotEnoughDataError(
            f"The training text has too few different {kind}, {only}: at least two are needed.",
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
        f"The text {text[max(0, at - 20) : at]!r}… is followed by U+{ord(text[at]):04X}, half of a "
        "surrogate pair, which "
        "is not a character.",
        fix="It comes from bytes that are not UTF-8: convert the source to UTF-8.",
    )
