"""Findings: problems of data that do not prevent training, but that affect how far a score can be trusted.

A finding is one of the notes of a data set. Purely informative notes (tokenization, imputation) are
plain strings. Named data sets have only notes: their peculiarities are known.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping

import numpy as np
from torch import Tensor

from ..core.spec import Target

ALIKE_AT_MOST = 3  # groups of labels that one finding names
UNSEEN = ("Cf", "Zs", "Cc")  # Unicode categories of invisible characters: zero-width marks, blanks, controls


class Finding(str):
    """A note that reports a problem of the data.

    If the problem is with single examples, the sentence names a few, and `examples` holds the names of all of them;
    examples that belong together share a tuple.
    """

    __slots__ = ("examples",)
    examples: tuple[tuple[str, ...], ...]

    def __new__(cls, said: str, examples: Iterable[tuple[str, ...]] = ()) -> Finding:
        """Create the note `said` about these `examples`."""
        found = super().__new__(cls, said)
        found.examples = tuple(examples)
        return found

    def __getnewargs__(self) -> tuple[str, tuple[tuple[str, ...], ...]]:  # type: ignore[override]  # for copies
        return str(self), self.examples


def missing_class_findings(targets: Mapping[str, Tensor], of: Target) -> list[str]:
    """Return a finding for each split without any example of some class; `targets` are class numbers (n,) by split."""
    found: list[str] = []
    for split, target in targets.items() if of.classes else ():
        counts = np.bincount(target.numpy(), minlength=len(of.classes))
        absent = [name for name, count in zip(of.classes, counts) if not count]
        if absent:
            more = ", …" if len(absent) > 5 else ""
            said = ", ".join(map(repr, absent[:5])) + more
            found.append(Finding(f"No example in {split} has the class {said}: it is not measured there."))
    return found


def similar_class_findings(target: Target) -> list[str]:
    """Return a finding if names of classes look the same to a reader.

    They may differ in case, blanks, invisible characters, the Unicode form, or the way a number is written.
    """
    groups: dict[str, list[str]] = {}
    for name in target.classes:
        groups.setdefault(_normalize_name(name), []).append(name)
    same = [names for names in groups.values() if len(names) > 1]
    if not same:
        return []
    said = "; ".join(" and ".join(_quote_name(name) for name in names) for names in same[:ALIKE_AT_MOST])
    more = f"; and {len(same) - ALIKE_AT_MOST} more" if len(same) > ALIKE_AT_MOST else ""
    return [Finding(f"Classes that read alike are learned apart: {said}{more}. If they are one, write them alike.")]


def similar_name_hint(name: str, known: Iterable[str]) -> str:
    """Return a sentence that names the first known name that looks the same as this one; empty if none exists."""
    other = next((one for one in known if _normalize_name(one) == _normalize_name(name)), None)
    return (
        ""
        if other is None
        else f" {_quote_name(name)} reads like {_quote_name(other)}: if they are one class, write them alike."
    )


def _normalize_name(name: str) -> str:
    """Return a name as a reader perceives it: without invisible characters, in one form and case, a number by its
    value.
    """
    plain = unicodedata.normalize("NFKC", name).casefold()
    plain = "".join(sign for sign in unicodedata.normalize("NFKC", plain) if unicodedata.category(sign) not in UNSEEN)
    try:
        return repr(float(plain) + 0.0)  # -0 is 0
    except ValueError:
        return plain


def _quote_name(name: str) -> str:
    """Quote a name so that differences are visible: non-ASCII characters are also written as escapes."""
    text = repr(name[:60])
    return text if name.isascii() else f"{text} ({ascii(name[:60])[1:-1]})"
