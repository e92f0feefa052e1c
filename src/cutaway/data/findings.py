"""Problems of data: findings, unusable examples, and duplicates across splits.

Findings are problems that do not prevent training, but that affect how far a score can be trusted.

A finding is one of the notes of a data set. Purely informative notes (tokenization, imputation) are
plain strings. Named data sets have only notes: their peculiarities are known.

Unusable examples: an error that names them, or, with missing=drop, a note that counts them.

All kinds of data use it: damaged images, recordings and videos, texts that cannot be decoded, masks that do not fit,
invalid molecules, edges to missing nodes, and single series.

Duplicates across splits, and the findings on them.

Each modality provides a key for each example; equal keys are duplicates. Near-duplicates are found in
`quality.near_duplicates`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from torch import Tensor

from ..core.errors import DataError, IncompatibleSettingError, NotEnoughDataError, Problem
from ..core.spec import Target
from .settings import DataSettings

BRIEF = 140  # characters of a finding in a terminal
SHOWN_AT_MOST = 5  # findings in a terminal
EXAMPLES = re.compile(r",? (?:for example|such as) .*?(?=\. [A-Z]|\.?$)", re.DOTALL)
SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")
SETTING = re.compile(r"\b[a-z_]+=[^\s,;:()]+")
ALIKE_AT_MOST = 3  # groups of labels that one finding names
UNSEEN = ("Cf", "Zs", "Cc")  # Unicode categories of invisible characters: zero-width marks, blanks, controls


class Finding(str):
    """A note that reports a problem of the data.

    If the problem is with single examples, the sentence names a few, and `examples` holds the names of all of them;
    examples that belong together share a tuple. `brief` is the problem and its fix in one line of a terminal.
    """

    __slots__ = ("brief", "examples")
    examples: tuple[tuple[str, ...], ...]
    brief: str

    def __new__(cls, said: str, examples: Iterable[tuple[str, ...]] = (), brief: str = "") -> Finding:
        """Create the note `said` about these `examples`. By default `brief` is shortened from the note."""
        found = super().__new__(cls, said)
        found.examples = tuple(examples)
        found.brief = shorten_finding(brief or said)
        return found

    def __getnewargs__(self) -> tuple[str, tuple[tuple[str, ...], ...], str]:  # type: ignore[override]  # for copies
        return str(self), self.examples, self.brief


def shorten_finding(said: str, width: int = BRIEF) -> str:
    """Return a finding in one line: its first sentence without examples, and its fix, which stands at the end.

    A first sentence that is too long is cut, so that the fix is kept if it fits at all.
    """
    if len(said) <= width:
        return said
    sentences = SENTENCE_END.split(EXAMPLES.sub("", said))
    first, last = sentences[0].rstrip("."), sentences[-1].rstrip(".")
    fix = last.rpartition(": ")[2] if len(sentences) > 1 or SETTING.search(last.rpartition(": ")[2]) else ""
    if fix and first.endswith(fix):
        first = first[: -len(fix)].rstrip(": ")
    if fix:
        fix = f". {'Try ' if SETTING.match(fix) and ' ' not in fix else ''}{fix}"
        fix = fix[:2] + fix[2:3].upper() + fix[3:] if not SETTING.match(fix[2:]) else fix
    if len(fix) > width // 2:
        settings = SETTING.findall(fix)
        fix = f". Try {settings[-1]}" if settings else ""
    room = width - len(fix) - 1
    if len(first) <= room:
        return f"{first}{fix}."
    cut = first[: room - 2].rsplit(" ", 1)[0].rstrip(",:;")
    return f"{cut} …{fix[1:]}{'.' if fix else ''}"


def terminal_lines(findings: Sequence[str]) -> list[str]:
    """Return one line for each of the first findings, and one that counts the others, which the report has."""
    lines = [one.brief if isinstance(one, Finding) else shorten_finding(one) for one in findings[:SHOWN_AT_MOST]]
    more = len(findings) - SHOWN_AT_MOST
    return [*lines, *([f"and {more} more in the report"] if more > 0 else [])]


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


LARGE_DROP = 0.05  # share of examples: leaving out more is a problem of the data


def count_dropped(count: int, total: int, noun: str) -> str:
    """Format how many of all examples are left out: 3 rows; of more than LARGE_DROP, 18 of 200 rows (9.0%)."""
    if count <= LARGE_DROP * total:
        return f"{count:,} {noun}{'' if count == 1 else 's'}"
    return f"{count:,} of {total:,} {noun}s ({count / total:.1%})"


def dropped_note(note: str, count: int, total: int) -> str:
    """Return the note on examples that missing=drop left out; it is a finding if they are more than LARGE_DROP."""
    return Finding(note) if count > LARGE_DROP * total else note


NAMED_AT_MOST = 3  # examples that a note names
REPAIR = "Repair, replace or remove these files; in training missing=drop leaves them out."


def reject_fill(settings: DataSettings) -> None:
    """Raise SettingError for missing=fill if the data has no cells to fill."""
    if settings.missing == "fill":
        raise IncompatibleSettingError(
            "missing=fill is for the cells of tables. Of this data missing=error names what cannot be used, and "
            "missing=drop leaves it out."
        )


def leave_out(problems: Sequence[Problem], total: int, noun: str, missing: str, fix: str = REPAIR) -> list[str]:
    """Return a note on the examples that missing=drop leaves out of `total`; empty if there are none.

    `noun` names the examples. Raises DataError that names all of them, with the advice `fix`, unless `missing` is drop;
    it also raises DataError if nothing would be left.
    """
    if not problems:
        return []
    counted = f"{len(problems):,} of {total:,} {noun}"
    if missing != "drop":
        raise DataError(f"{counted} cannot be used:", problems, fix)
    if len(problems) >= total:
        raise NotEnoughDataError(
            f"missing=drop would leave nothing: {counted} cannot be used:", problems, "Repair some of them."
        )
    more = f"; and {len(problems) - NAMED_AT_MOST:,} more" if len(problems) > NAMED_AT_MOST else ""
    share = f" ({len(problems) / total:.1%})" if len(problems) > LARGE_DROP * total else ""
    note = f"missing=drop left out {counted}{share}: {'; '.join(map(str, problems[:NAMED_AT_MOST]))}{more}."
    return [dropped_note(note, len(problems), total)]


Pairs = Sequence[tuple[str, str]]  # names of an example and of its duplicate in an earlier split
NAMED = 3  # pairs in a finding


def cross_split_duplicates(
    keys: Sequence[Any] | npt.NDArray[Any], splits: Mapping[str, npt.NDArray[np.int64]]
) -> list[tuple[Any, dict[str, list[int]]]]:
    """Return the keys that occur in several splits, with their rows by split.

    There is one key (str, bytes or int) for each example. A single example that belongs to several overlapping
    predefined splits is not a duplicate.
    """
    column = pl.Series("key", keys)
    placed = pl.concat(
        pl.DataFrame(
            {"key": column.gather(rows), "row": rows.astype(np.int64), "split": pl.repeat(name, len(rows), eager=True)}
        )
        for name, rows in splits.items()
    )
    twice = placed.filter(
        (pl.col("split").n_unique().over("key") > 1) & (pl.col("row").n_unique().over("key") > 1)
    ).sort("row", maintain_order=True)
    found: dict[Any, dict[str, list[int]]] = {}
    for key, row, name in twice.iter_rows():
        found.setdefault(key, {}).setdefault(name, []).append(row)
    return list(found.items())


def duplicate_warning(
    keys: Sequence[Any] | npt.NDArray[Any],
    splits: Mapping[str, npt.NDArray[np.int64]],
    name: Callable[[int], str],
    what: str = "rows",
    aside: pl.DataFrame | None = None,
) -> Finding | None:
    """Return a finding that counts the duplicates across splits and names a few, or None.

    `name` returns the display name of an example, `what` is the plural noun for examples: rows, images. `aside` are
    columns that are not inputs, in which duplicates may differ.
    """
    counts = dict.fromkeys(splits, 0)
    pairs: list[tuple[str, str]] = []
    twins: list[tuple[int, int]] = []
    for _, places in cross_split_duplicates(keys, splits):
        (home, rows), *elsewhere = ((split, places[split]) for split in splits if split in places)
        for split, copies in elsewhere:
            counts[split] += len(copies)
            pairs += [(f"{name(copy)} ({split})", f"{name(rows[0])} ({home})") for copy in copies]
            twins += [(copy, rows[0]) for copy in copies]
    return _build_finding(
        "duplicates", pairs, _format_counts(counts, {s: len(r) for s, r in splits.items()}, what, "in"),
        f"equal one of an earlier split in every input{_difference_note(twins, aside)}", " = ",
    )  # fmt: skip


def _difference_note(twins: Sequence[tuple[int, int]], aside: pl.DataFrame | None) -> str:
    """Return a note if duplicates differ in columns that are not inputs, else an empty string."""
    if not twins or aside is None or not aside.width:
        return ""
    copies, firsts = (aside[list(rows)] for rows in zip(*twins))
    differ = {c: copies[c].ne_missing(firsts[c]).to_numpy() for c in aside.columns}
    names = [c for c, own in differ.items() if own.any()]
    if not names:
        return ""
    count = int(np.any([differ[c] for c in names], axis=0).sum())
    some = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
    return f" ({count:,} differ in columns that are not inputs, {some}: they may be different cases)"


def near_duplicate_warning(
    pairs: Pairs, counts: Mapping[str, int], looked: Mapping[str, int], what: str, how: str, grouped: bool = False
) -> Finding | None:
    """Return a finding on near-duplicates across splits, or None.

    `counts` are the near-duplicates among the `looked` examples of each split. `grouped` says whether a column can keep
    them in one split.
    """
    counted = _format_counts(counts, looked, f"checked {what}", "of")
    return _build_finding("near-duplicates", pairs, counted, f"{how} one of an earlier split", " ≈ ", grouped)


def _format_counts(counts: Mapping[str, int], of: Mapping[str, int], what: str, where: str) -> str:
    return " and ".join(f"{k:,} of {of[split]:,} {what} {where} {split}" for split, k in counts.items() if k)


def _build_finding(
    title: str, pairs: Pairs, counted: str, how: str, sign: str, grouped: bool = False
) -> Finding | None:
    if not pairs:
        return None
    some = "; ".join(sign.join(pair) for pair in pairs[:NAMED])
    fix = f"Remove them{' or set group=COLUMN' if grouped else ''}."
    return Finding(
        f"Possible leakage by {title} across splits: {counted} {how}, for example {some}. A score on them measures "
        f"memorization: remove the copies, or keep them in one split{' (group=COLUMN)' if grouped else ''}.",
        pairs,
        f"Possible leakage: {counted} are {title} of an earlier split. {fix}",
    )
