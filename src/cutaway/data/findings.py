"""What is wrong with data that can be learned from all the same: a person should read it before they trust a score.

A finding is a note, and stands among the notes of a data set; what is only told (how text is cut, what was filled in)
is a plain string. Named data sets have notes alone: what is odd about them is known.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping

import numpy as np
from torch import Tensor

from ..core.spec import Target

ALIKE_AT_MOST = 3  # groups of labels that one finding names
UNSEEN = ("Cf", "Zs", "Cc")  # signs that are not seen: zero-width marks and blanks of all kinds


class Finding(str):
    """A note that says what is wrong with the data; where it is so of single examples, the sentence names a few and
    `examples` all that were found: names, those that belong together in one tuple."""

    __slots__ = ("examples",)
    examples: tuple[tuple[str, ...], ...]

    def __new__(cls, said: str, examples: Iterable[tuple[str, ...]] = ()) -> Finding:
        """The note `said`, of these `examples`."""
        found = super().__new__(cls, said)
        found.examples = tuple(examples)
        return found

    def __getnewargs__(self) -> tuple[str, tuple[tuple[str, ...], ...]]:  # type: ignore[override]  # for copies
        return str(self), self.examples


def absent_classes(targets: Mapping[str, Tensor], of: Target) -> list[str]:
    """A finding for each split that has no example of some class; `targets` are class numbers (n,) by split."""
    found: list[str] = []
    for split, target in targets.items() if of.classes else ():
        counts = np.bincount(target.numpy(), minlength=len(of.classes))
        absent = [name for name, count in zip(of.classes, counts) if not count]
        if absent:
            more = ", …" if len(absent) > 5 else ""
            said = ", ".join(map(repr, absent[:5])) + more
            found.append(Finding(f"No example in {split} has the class {said}: it is not measured there."))
    return found


def alike_labels(target: Target) -> list[str]:
    """A finding where classes have names that a person would read as the same: but for capitals, blanks, signs that are
    not seen, the form of Unicode, or the way that a number is written."""
    groups: dict[str, list[str]] = {}
    for name in target.classes:
        groups.setdefault(_read_as(name), []).append(name)
    same = [names for names in groups.values() if len(names) > 1]
    if not same:
        return []
    said = "; ".join(" and ".join(_told(name) for name in names) for names in same[:ALIKE_AT_MOST])
    more = f"; and {len(same) - ALIKE_AT_MOST} more" if len(same) > ALIKE_AT_MOST else ""
    return [Finding(f"Classes that read alike are learned apart: {said}{more}. If they are one, write them alike.")]


def lookalike(name: str, known: Iterable[str]) -> str:
    """Return a sentence on the first known name that a person would read as this one; nothing where there is none."""
    other = next((one for one in known if _read_as(one) == _read_as(name)), None)
    return (
        "" if other is None else f" {_told(name)} reads like {_told(other)}: if they are one class, write them alike."
    )


def _read_as(name: str) -> str:
    """What a person reads: without what is not seen, in one form and case, a number by its value."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    plain = "".join(sign for sign in unicodedata.normalize("NFKC", plain) if unicodedata.category(sign) not in UNSEEN)
    try:
        return repr(float(plain) + 0.0)  # -0 is 0
    except ValueError:
        return plain


def _told(name: str) -> str:
    """A name whose difference can be seen: what is not ASCII is written as its numbers too."""
    text = repr(name[:60])
    return text if name.isascii() else f"{text} ({ascii(name[:60])[1:-1]})"
