"""Hostile variants of a document and of a file."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

DEEP = "[" * 1000 + "]" * 1000


class Raw(str):
    """A text that stands in a document as it is, though it may be no JSON."""


DELETED = Raw("")
VALUES: tuple[Any, ...] = (
    None, "text", ["text"], {"key": "value"}, [], {}, True, False, 3, 0, -1, -0.5, 1e308, 2**63, 10**12, 10**30, "",
    "x" * 100_000, [1, 2], [[]], [None], [{}], "\ud800", Raw(DEEP), Raw("NaN"), Raw("-Infinity"), Raw("1e999"),
    Raw("1" * 5000), DELETED,
)  # fmt: skip
MARK = "\x00raw\x00"


def places(value: Any, at: tuple[Any, ...] = (), most: int = 3) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a document: every key, and the first few entries of each list."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value[:most]) if isinstance(value, list) else ()
    for key, within in inside:
        yield from places(within, (*at, key), most)


def changed(document: Any, at: tuple[Any, ...], value: Any) -> Any:
    """A copy of the document with another value at a place, or without it."""
    if not at:
        return None if value is DELETED else value
    made = copy.deepcopy(document)
    within = made
    for key in at[:-1]:
        within = within[key]
    if value is DELETED:
        del within[at[-1]]
    else:
        within[at[-1]] = value
    return made


def dumped(document: Any) -> str:
    """The document as text, in which a `Raw` stands as it is."""
    raws: list[str] = []

    def mark(value: Any) -> Any:
        if isinstance(value, Raw):
            raws.append(value)
            return f"{MARK}{len(raws) - 1}{MARK}"
        if isinstance(value, dict):
            return {key: mark(one) for key, one in value.items()}
        return [mark(one) for one in value] if isinstance(value, list) else value

    text = json.dumps(mark(document))
    for i, raw in enumerate(raws):
        text = text.replace(json.dumps(f"{MARK}{i}{MARK}"), raw)
    return text


def document_mutations(document: Any) -> list[tuple[str, Callable[[], bytes]]]:
    """Every value at every place of a document, and what can become of its text: a name and the file's bytes."""
    found: list[tuple[str, Callable[[], bytes]]] = []
    for at in places(document):
        for value in VALUES:
            name = f"{'.'.join(map(str, at)) or 'the document'} {_named(value)}"
            found.append((name, lambda at=at, value=value: dumped(changed(document, at, value)).encode()))  # type: ignore[misc]
    text = json.dumps(document, indent=1).encode()
    return found + text_mutations(text) + [("duplicate keys", lambda: _doubled(document))]


def text_mutations(text: bytes) -> list[tuple[str, Callable[[], bytes]]]:
    """What can become of a file of text as a whole."""
    cuts = [len(text) * k // 7 for k in range(1, 7)] + [len(text) - 2]
    found: list[tuple[str, Callable[[], bytes]]] = [
        (f"cut at byte {cut}", lambda cut=cut: text[: max(cut, 0)])  # type: ignore[misc]
        for cut in cuts
    ]
    return [
        *found,
        ("empty", lambda: b""),
        ("a byte order mark", lambda: b"\xef\xbb\xbf" + text),
        ("UTF-16", lambda: text.decode("utf-8", "replace").encode("utf-16")),
        ("invalid UTF-8", lambda: text[: len(text) // 2] + b"\xff\xfe\xc3" + text[len(text) // 2 :]),
        ("NUL bytes", lambda: text.replace(b" ", b"\0")),
        ("twice", lambda: text + text),
        ("nested 100 000 deep", lambda: b"[" * 100_000),
        ("CR line ends", lambda: text.replace(b"\n", b"\r")),
    ]


def _doubled(document: Any) -> bytes:
    """The document with each of its keys twice, the second time with null."""
    if not isinstance(document, dict):
        return json.dumps([document, document]).encode()
    pairs = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
    pairs += [f"{json.dumps(key)}: null" for key in document]
    return ("{" + ", ".join(pairs) + "}").encode()


def _named(value: Any) -> str:
    if value is DELETED:
        return "deleted"
    text = str(value) if isinstance(value, Raw) else repr(value)
    return f"= {text if len(text) <= 24 else text[:12] + f'… ({len(text)} letters)'}"


# --- bytes ----------------------------------------------------------------------------------------------------------


def corrupt(data: bytes, other: bytes, random: Random) -> tuple[str, bytes]:
    """Damage a file at random: bytes, bits, cuts, pieces that are taken out, doubled, or of another file."""
    ways: list[tuple[str, Callable[[bytes], bytes]]] = [
        ("random bytes", lambda d: _set(d, random, random.choice((1, 4, 32)))),
        ("a damaged head", lambda d: _set(d[:96], random, random.choice((1, 3, 8))) + d[96:]),
        ("flipped bits", lambda d: _flip(d, random, random.choice((1, 8, 64)))),
        ("a cut", lambda d: d[: random.randrange(len(d) + 1)]),
        ("a lost start", lambda d: d[random.randrange(len(d) + 1) :]),
        ("a lost piece", lambda d: _splice(d, random, lambda piece: b"")),
        ("a doubled piece", lambda d: _splice(d, random, lambda piece: piece * 3)),
        ("zeros", lambda d: _splice(d, random, lambda piece: bytes(len(piece)))),
        ("ones", lambda d: _splice(d, random, lambda piece: b"\xff" * len(piece))),
        ("a splice", lambda d: d[: random.randrange(len(d) + 1)] + other[random.randrange(len(other) + 1) :]),
        ("an extreme number", lambda d: _extreme(d, random)),
        ("empty", lambda d: b""),
        ("a tail", lambda d: d + random.randbytes(64)),
        ("another number in the text", lambda d: _renumbered(d, random)),
        ("hostile text", lambda d: _hostile(d, random)),
    ]
    names = []
    for name, way in random.sample(ways, random.choice((1, 1, 2))):
        names.append(name)
        data = way(data)
    return " and ".join(names), data


def _set(data: bytes, random: Random, count: int) -> bytes:
    made = bytearray(data)
    for _ in range(count if made else 0):
        made[random.randrange(len(made))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    return bytes(made)


def _flip(data: bytes, random: Random, count: int) -> bytes:
    made = bytearray(data)
    for _ in range(count if made else 0):
        made[random.randrange(len(made))] ^= 1 << random.randrange(8)
    return bytes(made)


def _splice(data: bytes, random: Random, become: Callable[[bytes], bytes]) -> bytes:
    first = random.randrange(len(data) + 1)
    last = min(len(data), first + random.choice((1, 4, 16, 256, 4096)))
    return data[:first] + become(data[first:last]) + data[last:]


def _extreme(data: bytes, random: Random) -> bytes:
    """Four or eight bytes that make a very large, negative or broken number, wherever they stand."""
    width = random.choice((2, 4, 8))
    number = random.choice((b"\xff", b"\x7f", b"\x80", b"\x00")) + random.choice((b"\xff", b"\x00")) * (width - 1)
    number = number if random.random() < 0.5 else number[::-1]
    at = random.randrange(min(len(data), random.choice((64, 512, len(data) or 1))) or 1)
    return data[:at] + number + data[at + width :]


HOSTILE = (
    "NaN", "inf", "-1e400", "1e308", "9" * 400, "", '"', '""', "'", ",", ",,,,", ";", "\t", "\n", "\r", "\r\n\r\n",
    "\x00", "\ufeff", "\u202e", "é", "=cmd|' /C calc'!A0", "<!DOCTYPE x [<!ENTITY a 'b'>]>", "&a;", "{", "}",
    "[" * 3000,
    "0x10", "1_000", "１２", "-0", "true", "null", "None", "99999-99-99", "a" * 20_000, "../../etc/passwd", "/dev/zero",
)  # fmt: skip


def _hostile(data: bytes, random: Random) -> bytes:
    """A hostile word in place of some word of a text."""
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.choice((0, 1, 8)))
    return data[:at] + random.choice(HOSTILE).encode() + data[end:]


def _renumbered(data: bytes, random: Random) -> bytes:
    """Another number in place of one of the first numbers of a text."""
    starts = [i for i, byte in enumerate(data[:20_000]) if 48 <= byte <= 57]
    if not starts:
        return data
    at = random.choice(starts)
    end = at
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    number = random.choice(("0", "-1", "1e308", "9" * 30, "4294967296", "NaN", "9223372036854775808", "1000000000"))
    return data[:at] + number.encode() + data[end:]
