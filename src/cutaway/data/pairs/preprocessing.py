"""Between pairs of texts and the model's ids: a tokenizer for each side, fitted on the training part, saved as JSON.

Ids of the target: 0 padding, 1 unknown, 2 begin, 3 end, and from 4 on the tokens of its tokenizer from its 2 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import spec as specs
from ...errors import DataError, Problem
from ...spec import PairSpec
from ..text.tokenizers import UNKNOWN, Tokenizer, tokenizer_from_json
from .part import Ids, PairsPart
from .reading import Pairs, read_lines, read_pairs

BEGIN, END = 2, 3
SHIFT = 2  # from ids of the target's tokenizer to those of the target
TEXT_SUFFIXES = (".txt", ".tsv", ".gz")

Encoded = tuple[Tensor, Tensor]  # ids one behind another (Σ lengths,), lengths (n,)


@dataclass(frozen=True)
class PairPreprocessing:
    """How sources and targets become ids, and ids words again."""

    spec: PairSpec
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer

    def sources(self, texts: Sequence[str]) -> Encoded:
        """The ids of sources, each at least one: unknown where a text has no token."""
        return _encoded(self.source_tokenizer, texts)

    def targets(self, texts: Sequence[str]) -> Encoded:
        """The ids of targets, each with `end` behind it."""
        return ended(*_encoded(self.target_tokenizer, texts))

    def words(self, ids: Iterable[int]) -> str:
        """The target that these ids stand for; padding, begin and end are left out."""
        shown = (i if i == UNKNOWN else i - SHIFT for i in ids if i == UNKNOWN or i > END)
        return self.target_tokenizer.decode(shown)

    def examples(self, sources: Sequence[Any]) -> PairsPart:
        """Sources without targets: each a string, or the path of a text file with a source on each line.

        Raises DataError for empty ones, by line, and for a file that is not there.
        """
        texts: list[str] = []
        names: list[str] = []
        problems: list[Problem] = []
        for given in sources:
            path = _file(given)
            lines = [str(given)] if path is None else read_lines(path)[0]
            for number, line in enumerate(lines, 1):
                name = (line if len(line) <= 60 else line[:57] + "…") if path is None else f"line {number} of {path}"
                if not line.strip():
                    problems.append(Problem(name or "a source", "it is empty"))
                elif "\t" in line and path is not None:
                    problems.append(Problem(name, "it holds a tab: a file to predict has one source a line, no target"))
                texts.append(line)
                names.append(name)
        if problems or not texts:
            raise DataError("Sources that cannot be read:" if problems else "No source was given.", problems)
        encoded = self.sources(texts)
        count, notes = unknown(encoded), []
        if count:
            notes = [f"{count:,} of {len(texts):,} sources hold tokens that training did not know: read as unknown."]
        return PairsPart(encoded, None, BEGIN, names, lambda i: {"source": texts[i]}, notes=notes)

    def labelled(self, source: str | Path) -> PairsPart:
        """Other pairs, in a file with a tab on each line or in two files a,b; each source once (see `part`)."""
        pairs = read_pairs(str(source))
        part, repeated = self.part(pairs, range(len(pairs)), once=True)
        part.notes += [text for text in (repeated_note(repeated, pairs.name),) if text]
        return part

    def part(self, pairs: Pairs, rows: Sequence[int], once: bool) -> tuple[PairsPart, int]:
        """The part of these pairs, and how many were not taken for the sake of `once`: where a source stands several
        times, it is then asked once, with its first target, and all its targets are right answers."""
        chosen = list(rows)
        answers: dict[str, list[int]] = {}
        for i in chosen:
            answers.setdefault(self.seen(pairs.sources[i]), []).append(i)
        if once:
            chosen = [same[0] for same in answers.values()]
        source = self.sources([pairs.sources[i] for i in chosen])
        target = self.targets([pairs.targets[i] for i in chosen])
        several = [(place, answers[self.seen(pairs.sources[i])]) for place, i in enumerate(chosen)]
        several = [(place, same) for place, same in several if len(same) > 1]
        others = iter(split(self.targets([pairs.targets[i] for _, same in several for i in same])))
        references = {place: distinct([next(others)[:-1] for _ in same]) for place, same in several}
        found = PairsPart(
            source,
            target,
            BEGIN,
            lambda k: pairs.place(chosen[k]),
            lambda k: {"source": pairs.sources[chosen[k]], "target": pairs.targets[chosen[k]]},
            references,
        )
        return found, len(rows) - len(chosen)

    def seen(self, source: str) -> str:
        """A source as its tokenizer sees it: in lower case, where it writes all so."""
        return source.lower() if getattr(self.source_tokenizer, "lower", False) else source

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, from which `from_json` makes it again."""
        return {
            "kind": "pairs",
            "spec": specs.to_json(self.spec),
            "source": self.source_tokenizer.to_json(),
            "target": self.target_tokenizer.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PairPreprocessing:
        """The object that `to_json` wrote. Raises KeyError, TypeError or ValueError where the document is not one."""
        spec = specs.from_json(data["spec"])
        if not isinstance(spec, PairSpec):
            raise TypeError(f"a preprocessing of pairs with a spec of kind {spec.kind}")
        found = cls(spec, tokenizer_from_json(data["source"]), tokenizer_from_json(data["target"]))
        sizes = (len(found.source_tokenizer), len(found.target_tokenizer) + SHIFT)
        if sizes != (spec.vocabulary, spec.target.vocabulary):
            raise ValueError(f"tokenizers of {sizes} ids and a spec of {spec.vocabulary}, {spec.target.vocabulary}")
        return found


def ended(ids: Tensor, lengths: Tensor) -> Encoded:
    """Ids of the target's tokenizer as those of the target, with `end` behind each of the texts."""
    moved = np.where(ids.numpy() > UNKNOWN, ids.numpy() + SHIFT, ids.numpy())
    values = np.insert(moved, lengths.numpy().cumsum(), END)
    return torch.from_numpy(values), lengths + 1


def split(encoded: Encoded) -> list[Ids]:
    """The ids of each text."""
    ids, lengths = encoded
    return [of_text.tolist() for of_text in torch.split(ids, lengths.tolist())]


def distinct(answers: Iterable[Ids]) -> list[Ids]:
    """Each answer once, in their order."""
    return [list(ids) for ids in dict.fromkeys(tuple(ids) for ids in answers)]


def unknown(encoded: Encoded) -> int:
    """How many texts hold a token that is in no vocabulary."""
    ids, lengths = encoded
    of = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    return len(torch.unique(of[ids == UNKNOWN]))


def repeated_note(repeated: int, where: str) -> str | None:
    """A sentence on pairs whose source stands in another; None where there is none."""
    if not repeated:
        return None
    return (
        f"In {where}, {repeated:,} pairs repeat the source of another one: each source is asked once, and an answer is "
        "held to the nearest of its targets."
    )


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> Encoded:
    ids, lengths = tokenizer.encode_flat(texts)
    if (lengths == 0).any():
        ids = np.insert(ids, lengths.cumsum()[lengths == 0], UNKNOWN)
        lengths = np.maximum(lengths, 1)
    return torch.from_numpy(ids), torch.from_numpy(lengths)


def _file(given: Any) -> Path | None:
    """The file that a source names; None where it is the source itself. Raises DataError where it is not there."""
    path = Path(given).expanduser() if isinstance(given, Path) or len(str(given)) < 1000 else None
    try:
        if path is not None and path.is_file():
            return path
    except (OSError, ValueError):  # no name that a file could have
        return None
    named = isinstance(given, Path) or (Path(given).suffix.lower() in TEXT_SUFFIXES and " " not in given.strip())
    if path is not None and named:
        raise DataError(f"There is no file {str(given)!r}, seen from {Path.cwd()}.")
    return None
