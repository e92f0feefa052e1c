"""Words and the words around them, for word vectors: subsampling, windows and noise as in word2vec.

After T. Mikolov et al., Distributed representations of words and phrases and their compositionality, 2013,
<https://arxiv.org/abs/1310.4546>, and their program word2vec.c. With f the fraction of a word among those of the
training split, each epoch

- keeps each of its occurrences with probability min(1, (√(f/t) + 1) · t/f), as in word2vec.c (the paper has √(t/f)),
  before windows are laid, so that they reach further where frequent words are left out;
- draws how far each window reaches, from 1 to `window` words on either side. It ends where a paragraph ends, at a blank
  line; in a text without blank lines, where a line ends;
- draws noise, with probabilities ∝ count^¾.

What is drawn follows from the seed alone. Words outside of the vocabulary are left out of the text, as word2vec.c does,
and so are punctuation marks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ... import spec as specs
from ...errors import DataError
from ...schema import COUNT, NUMBER
from ...spec import Context, TextSpec
from ..assembly import Origin, assemble
from ..kinds import reject_changed
from ..sets import DataSet
from ..settings import DataSettings
from ..splits import SPLITS, split_by_position
from .running_files import BLANK_LINE, joined, read_texts, texts_of
from .stretches import STRETCH, ContextSplit, Draws
from .tokenizer_files import TOKENIZERS, tokenizer_from_json
from .tokenizers import UNKNOWN, Tokenizer, Words, train_tokenizer

Numbers = npt.NDArray[np.int64]
EVERY = 100_000_000  # more different words than any text has
NOT_FOR_CONTEXTS = (
    *("text", "target", "missing", "group", "stateful", "length"),
    *("documents", "special_tokens", "mask_prob", "whole_words"),
)


@dataclass(frozen=True)
class ContextPreprocessing:
    """How a text becomes words without those that have no vector."""

    spec: TextSpec
    tokenizer: Tokenizer
    draws: Draws

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA, "tokenizer": TOKENIZERS, "counts": [COUNT], "subsample": NUMBER,
    }  # fmt: skip

    def as_split(self, text: str, notes: Iterable[str] = ()) -> ContextSplit:
        """A text as its paragraphs. Raises DataError where fewer than two of its words are known."""
        ids, lengths = known(*self.tokenizer.encode_flat(paragraphs(text)))
        if len(ids) < 2:
            raise DataError(
                f"Of this text {len(ids)} words are in the vocabulary, and at least 2 are needed: {text[:60]!r}."
            )
        return ContextSplit(ids, lengths, self.draws, self.tokenizer.tokens, notes)

    def examples(self, sources: Sequence[Any]) -> ContextSplit:
        """Other texts: paths of .txt files or of folders of them, or texts themselves."""
        sources = [sources] if isinstance(sources, str | Path) else sources
        read = [r for source in sources for r in texts_of(source)]
        if not read:
            raise DataError("No text was given.", fix="Give texts, or paths of .txt files or folders.")
        return self.as_split("\n\n".join(r.text for r in read), [note for r in read for note in r.notes])

    def labelled(self, source: str | Path) -> ContextSplit:
        """Another text, which is its own target."""
        return self.examples([source])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {
            "kind": "text",
            "form": "context",
            "spec": specs.to_json(self.spec),
            "tokenizer": self.tokenizer.to_json(),
            "counts": self.draws.counts.tolist(),
            "subsample": self.draws.subsample,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ContextPreprocessing:
        """The object that `to_json` wrote. Raises ValueError where the document, which is as SCHEMA says, cannot be."""
        spec = specs.read_as(data["spec"], TextSpec, Context)
        assert isinstance(spec.target, Context)
        counts = torch.tensor(data["counts"], dtype=torch.int64)
        if len(counts) != spec.vocab_size:
            raise ValueError(f"{len(counts)} counts of {spec.vocab_size} words")
        draws = Draws(counts, spec.target.window, float(data["subsample"]))
        return cls(spec, tokenizer_from_json(data["tokenizer"]), draws)


def open_context(path: Path, settings: DataSettings) -> DataSet:
    """Read a .txt or a folder of .txt for word vectors. Raises DataError that names file and line, SettingError."""
    _, read, origin, settings = read_texts(path, settings)
    texts = {split: joined([f"{r.text}\n" for r in of_split]) for split, of_split in read.items()}
    return context_dataset(texts, origin, settings)


def context_dataset(texts: Mapping[str, str] | Sequence[str], origin: Origin, settings: DataSettings) -> DataSet:
    """A data set for word vectors from the text of each split, or from texts that are split by position.

    The vocabulary is that of the training split. `max_samples` keeps the first so many stretches of 16 words of it.
    Raises DataError where there is too little text, SettingError.
    """
    reject_changed(settings, NOT_FOR_CONTEXTS, "means nothing for word vectors, which are learned from running text")
    whole = dict(texts) if isinstance(texts, Mapping) else {"train": "\n\n".join(texts)}
    splits, said = split_by_position(whole, settings, whole_words=True)
    try:
        tokenizer, ids, lengths, done = _words_of(splits["train"], settings)
    except DataError as error:
        raise DataError(f"{origin.source} cannot be learned from. {error}") from error
    short = f"{origin.source} is too short for word vectors"
    if len(ids) < 2:
        raise DataError(f"{short}: {len(ids)} of its words are in the vocabulary.")
    window, subsample = settings.window, settings.subsample
    draws = Draws(ids.bincount(minlength=len(tokenizer)), window, subsample)
    spec = TextSpec(len(tokenizer), STRETCH + 2 * window, Context(len(tokenizer), window=window))
    preprocessing = ContextPreprocessing(spec, tokenizer, draws)
    told = [*said, *done]
    found = {"train": ContextSplit(ids, lengths, draws, tokenizer.tokens)}
    for split in (split for split in SPLITS[1:] if split in splits):
        try:
            found[split] = preprocessing.as_split(splits[split])
        except DataError as error:
            raise DataError(
                f"{short}: its {split} split has fewer than two words that are known.",
                fix=f"Give more text, a smaller min_count, or {split}=0.",
            ) from error
        if not _has_context(found[split]):
            raise DataError(
                f"{short}: subsampling leaves no word of its {split} split a context.",
                fix=f"Give more text, subsample=0, or {split}=0.",
            )
    if settings.max_samples is not None:
        cut = ids[: settings.max_samples * STRETCH]
        ends = lengths.cumsum(0).clamp(max=len(cut))
        found["train"] = ContextSplit(cut, ends.diff(prepend=ends.new_zeros(1)), draws, tokenizer.tokens)
        told.append(
            f"max_samples={settings.max_samples}: only the first {len(cut):,} words of the training split are learned "
            "from."
        )
    shrink = found["train"].shrink
    if shrink < 1:
        told.append(
            f"One word is {100 * float(draws.noise.max()):.2g} % of the noise, and the sum of its many steps would "
            f"overshoot: batches have {shrink:.2g} of the size that is asked for."
        )
    digest = hashlib.sha256()
    for split in SPLITS:
        if split in found:
            stream = found[split].target
            assert stream is not None
            digest.update(f"{split} {len(stream)}\n".encode())
            digest.update(stream.numpy().astype("<i8").tobytes())
    return assemble(origin, settings, digest.hexdigest(), preprocessing, found, told)


def _has_context(split: ContextSplit) -> bool:
    """Whether a word of the split has words around it, once frequent ones are thinned out."""
    return any(bool((batch.target > 0).any()) for batch in split.batches(split.plan(STRETCH, None)))


def paragraphs(text: str) -> list[str]:
    """What stands between blank lines; the lines of a text that has none."""
    found = BLANK_LINE.split(text)
    return found if sum(bool(p.strip()) for p in found) > 1 else text.split("\n")


def known(flat: Numbers, lengths: Numbers) -> tuple[Tensor, Tensor]:
    """The known words of paragraphs, (Σ lengths,), and how many each has; paragraphs without one are left out."""
    real = flat > UNKNOWN
    ends = np.concatenate([[0], real.cumsum()])[lengths.cumsum()]
    counts = np.diff(ends, prepend=0)
    return torch.from_numpy(flat[real]), torch.from_numpy(counts[counts > 0])


def _words_of(text: str, settings: DataSettings) -> tuple[Tokenizer, Tensor, Tensor, list[str]]:
    """The vocabulary of the training split, its known words and how many each paragraph has, and what was done to it.

    Of words, those that hold a letter or a digit and occur at least `min_count` times, the commonest of them.
    """
    pieces, lower = paragraphs(text), bool(settings.lower)
    ends = "a blank line" if len(pieces) < 1 + text.count("\n") else "the end of a line"
    notes = [f"The context of a word ends at {ends}."]
    kind = "words" if settings.tokenizer == "auto" else settings.tokenizer
    if kind != "words":
        tokenizer = train_tokenizer(kind, pieces, settings.vocab_size, settings.min_count, lower)
        return tokenizer, *known(*tokenizer.encode_flat(pieces)), notes
    every = train_tokenizer(kind, pieces, EVERY, 1, lower)
    flat, lengths = every.encode_flat(pieces)
    counts = np.bincount(flat, minlength=len(every))
    words = np.array([i for i, w in enumerate(every.tokens) if i > UNKNOWN and any(c.isalnum() for c in w)], np.int64)
    often = words[counts[words] >= settings.min_count]  # the commonest first, as in `every`
    if len(often) < 2:
        raise DataError(
            f"{len(often)} of its {len(words):,} different words occur at least {settings.min_count} times.",
            fix="Give more text, or a smaller min_count.",
        )
    often, beyond = often[: settings.vocab_size - 2], len(often) > settings.vocab_size - 2
    kept = Words([*every.tokens[:2], *(every.tokens[i] for i in often)], lower)
    new = np.full(len(every), UNKNOWN, np.int64)
    new[often] = np.arange(2, len(kept))
    lowered = " in lower case" if lower else ""
    notes.append(f"Words are taken{lowered} without punctuation; {len(often):,} different ones have vectors.")
    total, left = int(counts[words].sum()), int(counts[words].sum() - counts[often].sum())
    if left:
        rare = f"occur less than {settings.min_count} times"
        rare += f" or are not among the {len(often):,} commonest" if beyond else ""
        notes.append(
            f"{left:,} of the {total:,} words of the training split ({100 * left / total:.2g} %) {rare}: they are left "
            "out of the text, and contexts reach across them."
        )
    return kept, *known(new[flat], lengths), notes
