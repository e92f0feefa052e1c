"""Tokenizers: what is cut where, what is unknown, what comes back, and what is rejected."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError, SettingError
from cutaway.data.text.tokenizer_files import tokenizer_from_json
from cutaway.data.text.tokenizers import (
    KINDS,
    PAD,
    SPECIAL,
    UNKNOWN,
    Tokenizer,
    Words,
    train_tokenizer,
    words_tokenizer,
)

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "The dog sleeps; the fox doesn't.",
    "שָׁלוֹם עולם",
    "مرحبا بالعالم",
    "cafe\u0301 👩‍👩‍👧‍👦 👍🏽 🇩🇪 🇫🇷 1️⃣",
    "",
]
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def trained(kind: str, texts: list[str] = CORPUS, vocab_size: int = 400, **more: object) -> Tokenizer:
    return train_tokenizer(kind, texts, vocab_size, **more)  # type: ignore[arg-type]


TRAINED = {kind: trained(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_0_is_padding_and_1_is_unknown(kind: str) -> None:
    tokenizer = TRAINED[kind]
    assert tuple(tokenizer.tokens[:2]) == SPECIAL[kind]
    assert len(tokenizer) == tokenizer.vocab_size == len(tokenizer.tokens)
    assert tokenizer.decode([PAD, PAD]) == ""
    for text in (*CORPUS, *SPECIAL[kind], "<pad> [PAD] <unk>"):
        assert PAD not in tokenizer.encode(text)  # what stands in a text is never padding
    assert max(max(tokenizer.encode(text), default=0) for text in CORPUS) < len(tokenizer)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "bpe"])
def test_what_training_did_not_have_is_unknown(kind: str) -> None:
    assert TRAINED[kind].encode("\u4e2d") == [UNKNOWN]
    assert UNKNOWN not in TRAINED[kind].encode(CORPUS[0])


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_text_has_no_tokens(kind: str) -> None:
    assert TRAINED[kind].encode("") == []
    assert TRAINED[kind].decode([]) == ""
    assert TRAINED[kind].encode_many([]) == []
    ids, lengths = TRAINED[kind].encode_flat(["", "fox", ""])
    assert lengths.tolist()[::2] == [0, 0]
    assert len(ids) == lengths.sum() > 0


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(texts=st.lists(ANY, max_size=4))
def test_many_and_flat_are_one_by_one(kind: str, texts: list[str]) -> None:
    tokenizer = TRAINED[kind]
    one_by_one = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_many(texts) == one_by_one
    ids, lengths = tokenizer.encode_flat(texts)
    assert ids.tolist() == [i for of_text in one_by_one for i in of_text]
    assert lengths.tolist() == [len(of_text) for of_text in one_by_one]
    torch.from_numpy(ids)  # int64, as embeddings take it
    assert ids.dtype == lengths.dtype == "int64"


@settings(max_examples=40, deadline=None)
@given(text=ANY)
def test_bpe_brings_back_every_text(text: str) -> None:
    tokenizer = TRAINED["bpe"]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert UNKNOWN not in tokenizer.encode(text)


@settings(max_examples=40, deadline=None)
@given(text=ANY)
def test_characters_are_code_points_and_come_back(text: str) -> None:
    own = train_tokenizer("characters", [text, "ab"], 1000)
    assert own.decode(own.encode(text)) == text
    assert own.tokens[2:] == sorted(set(text) | {"a", "b"})
    some = TRAINED["characters"]
    known = set("".join(CORPUS))
    assert len(some.encode(text)) == len(text)
    assert some.decode(some.encode(text)) == "".join(c if c in known else "\ufffd" for c in text)


@settings(max_examples=40, deadline=None)
@given(text=ANY.map(lambda text: text.translate(dict.fromkeys(range(0x1C, 0x20)))))  # blanks to Python, not to Unicode
def test_words_lose_nothing_but_blanks(text: str) -> None:
    words = words_of(text)
    assert "".join(words) == "".join(text.split())
    assert not any(c.isspace() for word in words for c in word)


def words_of(text: str) -> list[str]:
    """How a text is cut, told by a tokenizer that knows its words."""
    own = train_tokenizer("words", [text, "a b"], 1000)
    return [own.tokens[i] for i in own.encode(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop, it's 3.14 or 1,000!", ["Don't", "stop", ",", "it's", "3.14", "or", "1,000", "!"]),
        ("the rock 'n' roll's end.", ["the", "rock", "'", "n", "'", "roll's", "end", "."]),
        ("e\u0301te\u0301 cafe\u0301", ["e\u0301te\u0301", "cafe\u0301"]),
        ("שָׁלוֹם, עולם! צה״ל", ["שָׁלוֹם", ",", "עולם", "!", "צה״ל"]),
        ("مَرْحَبًا؟ می\u200cخواهم", ["مَرْحَبًا", "؟", "می\u200cخواهم"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("👩‍👩‍👧‍👦👍🏽🇩🇪🇫🇷 1️⃣ 😀😀", ["👩‍👩‍👧‍👦", "👍🏽", "🇩🇪", "🇫🇷", "1️⃣", "😀", "😀"]),
        ("我爱你", ["我", "爱", "你"]),
        ("x\r\n\ty\u00a0z", ["x", "y", "z"]),
        ("1.", ["1", "."]),
    ],
)
def test_where_words_end(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("piece", ["a", "a ", "e\u0301", "👩\u200d", "🇩", "'", "1,", "\u0301", "שָׁ", "\n"])
def test_a_line_of_100_000_characters(kind: str, piece: str) -> None:
    text = piece * (100_000 // len(piece))
    began = time.perf_counter()
    ids = TRAINED[kind].encode(text)
    assert time.perf_counter() - began < 5  # a pattern that looks back to the start each time takes minutes
    assert len(ids) <= 2 * len(text)
    if kind == "characters":
        assert len(ids) == len(text)
    if kind == "bpe":
        assert TRAINED[kind].decode(ids) == text


def test_words_that_were_cut_before_stay_whole() -> None:
    tokenizer = train_tokenizer("words", ["the <unk> , @-@ <pad> the"], 100, blanks=True)
    the, unknown, comma, hyphen, pad = tokenizer.encode("the <unk> , @-@ <pad>")
    assert (unknown, tokenizer.tokens[hyphen], tokenizer.tokens[pad]) == (UNKNOWN, "@-@", "<pad>")
    assert pad != PAD
    assert tokenizer.decode([the, PAD, comma]) == "the ,"
    assert tokenizer_from_json(tokenizer.to_json()).encode("<pad> @-@") == [pad, hyphen]


def test_words_that_are_given_one_by_one() -> None:
    tokenizer = words_tokenizer(["New York", "is", "IS", "<unk>", "<pad>"], 100, lower=True)
    assert isinstance(tokenizer, Words)
    assert [tokenizer.tokens[i] for i in tokenizer.look_up(["new york", "Is", "<pad>"])] == ["new york", "is", "<pad>"]
    assert tokenizer.look_up(["", "York", "<unk>"]) == [UNKNOWN] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_lower_case(kind: str) -> None:
    texts = ["Straße LOUD loud", "LOUD ÉTÉ"]
    cased, lower = trained(kind, texts), trained(kind, texts, lower=True)
    assert lower.encode("LOUD ÉTÉ") == lower.encode("loud été")
    assert cased.encode("LOUD ÉTÉ") != cased.encode("loud été")
    assert lower.decode(lower.encode("LOUD")) == "loud"


def test_the_commonest_are_kept_and_equals_by_the_alphabet() -> None:
    texts = ["d c b b a a a", "c d e"]
    assert train_tokenizer("words", texts, 5).tokens[2:] == ["a", "b", "c"]
    assert train_tokenizer("words", texts, 100, min_count=2).tokens[2:] == ["a", "b", "c", "d"]
    assert train_tokenizer("characters", ["ddccbbbaaaa"], 5).tokens[2:] == ["a", "b", "c"]
    assert train_tokenizer("characters", ["bbbaaaac"], 100, min_count=3).tokens[2:] == ["a", "b"]
    assert len(train_tokenizer("bpe", CORPUS, 270)) == 270
    assert len(train_tokenizer("wordpiece", CORPUS, 140)) <= 140


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_of_one_is_rejected(kind: str) -> None:
    for texts in (["a", "a a" if kind == "words" else "aa"], [], [""]):
        with pytest.raises(DataError, match="at least two are needed"):
            trained(kind, texts)


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_a_vocabulary_of_one_by_the_settings_is_rejected(kind: str) -> None:
    for more in ({"vocab_size": 3}, {"min_count": 2}):
        with pytest.raises(DataError, match=r"one only, 'a'.*min_count"):
            trained(kind, ["a a b"] if kind == "words" else ["aab"], **more)


@pytest.mark.parametrize(
    ("kind", "vocab_size", "min_count", "words"),
    [
        ("bpe", 257, 1, "vocab_size=257.*258"),
        ("words", 2, 1, "vocab_size=2"),
        ("words", 9, 0, "min_count=0"),
        ("letters", 9, 1, "letters.*characters, words"),
        ("wordpiece", 10, 1, "vocab_size=10 is too small.*two tokens for each"),
    ],
)
def test_settings_that_cannot_be(kind: str, vocab_size: int, min_count: int, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        train_tokenizer(kind, CORPUS, vocab_size, min_count)
    with pytest.raises(SettingError, match="blanks"):
        train_tokenizer("bpe", CORPUS, 300, blanks=True)


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_character_is_rejected(kind: str) -> None:
    for use in (TRAINED[kind].encode, lambda text: TRAINED[kind].encode_flat(["fine", text])):
        with pytest.raises(DataError, match=r"U\+D83D"):
            use("broken \ud83d text")
    with pytest.raises(DataError, match=r"U\+D83D"):
        trained(kind, ["a b", "\ud83d"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lower", [False, True])
def test_json_brings_it_back(kind: str, lower: bool) -> None:
    tokenizer = trained(kind, lower=lower)
    again = tokenizer_from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert again.to_json() == tokenizer.to_json()
    assert again.tokens == tokenizer.tokens
    for text in (*CORPUS, "THE unseen ζ <pad>"):
        assert again.encode(text) == tokenizer.encode(text)
        assert again.decode(again.encode(text)) == tokenizer.decode(tokenizer.encode(text))


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"kind": "letters", "lower": False},
        {"kind": "words", "lower": False, "blanks": False, "tokens": []},
        {"kind": "characters", "lower": False, "tokens": ["<pad>", "<unk>", "ab"]},
        {"kind": "words", "lower": False, "blanks": False, "tokens": ["<pad>", "<unk>", 3]},
        {"kind": ["words"], "lower": False},
        {"kind": "ids", "lower": False, "vocab_size": 10**12, "padding": None},
        {"kind": "ids", "lower": False, "vocab_size": 5, "padding": 10**12},
        {"kind": "bpe", "lower": False, "library": "{}"},
        {"kind": "bpe", "lower": False, "library": 7},
        {"kind": "wordpiece", "lower": False, "library": trained("bpe").to_json()["library"]},
    ],
)
def test_a_document_that_is_none_is_rejected(document: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # whoever reads the file names it
        tokenizer_from_json(document)


def test_equal_texts_give_equal_tokenizers_in_every_process() -> None:
    program = (
        "import hashlib, json\n"
        "from cutaway.data.text.tokenizers import KINDS, train_tokenizer\n"
        "texts = ['a fox ran and a dog ran too', 'the zebra and the yak'] * 3\n"
        "made = [train_tokenizer(k, texts, 300).to_json() for k in KINDS]\n"
        "print(hashlib.sha256(json.dumps(made).encode()).hexdigest())"
    )
    found = {subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout for _ in range(3)}
    assert len(found) == 1


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_half_of_a_surrogate_pair_is_no_token(kind: str) -> None:
    document = {"kind": kind, "lower": False, "blanks": False, "tokens": ["<pad>", "<unk>", "a", "\ud800"]}
    with pytest.raises(ValueError, match=r"a token holds U\+D800, half of a surrogate pair"):
        tokenizer_from_json(document)
