"""Words and their context windows for word vectors: subsampling, windows and negative samples as in word2vec.

After T. Mikolov et al., Distributed representations of words and phrases and their compositionality, 2013,
<https://arxiv.org/abs/1310.4546>, and their program word2vec.c. With f the fraction of a word in the training split,
each epoch

- keeps each of its occurrences with probability min(1, (√(f/t) + 1) · t/f), as in word2vec.c (the paper has √(t/f)),
  before windows are formed, so that they reach further where frequent words are removed;
- draws the size of each window, from 1 to `window` words on either side. It ends where a paragraph ends, at a blank
  line; in a text without blank lines, at a line end;
- draws noise words (negative samples), with probabilities ∝ count^¾.

All draws depend only on the seed. Words outside the vocabulary are removed from the text, as in word2vec.c, and so are
punctuation marks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...core import spec as specs
from ...core.errors import DataError, NotEnoughDataError
from ...core.schema import COUNT, NUMBER
from ...core.spec import Context, TextSpec
from ..build import DataSource, build_dataset
from ..dataset_base import Batch, DataSet, Split
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import SPLITS, split_by_position
from .text_files import BLANK_LINE, join_texts, load_texts, read_texts
from .tokenizer_files import TOKENIZERS, tokenizer_from_json
from .tokenizers import UNKNOWN, Tokenizer, Words, train_tokenizer

STRETCH = 16  # words in an example, which share their noise words
NOISE = 16  # noise words per example
POWER = 0.75  # exponent of a word's count in the noise distribution
USUAL_SHARE = 0.025  # usual maximum fraction of a word in the noise, for long texts
WINDOW, SUBSAMPLE = 5, 1e-3  # as in word2vec.c


@dataclass(frozen=True)
class Word2VecSampler:
    """The random choices for a text: kept words, window sizes, and noise words."""

    counts: Tensor  # (V,) int64, count of each word in the training split; 0 for padding and unknown
    window: int = WINDOW
    subsample: float = SUBSAMPLE  # t; 0 keeps all words

    @property
    def keep(self) -> Tensor:
        """The probability that an occurrence of each word is kept, (V,) float64: (√(f/t) + 1) · t/f, at most 1."""
        if not self.subsample:
            return torch.ones(len(self.counts), dtype=torch.float64)
        over = self.counts.double() / (self.counts.sum().item() * self.subsample)  # f/t
        return ((over.sqrt() + 1) / over).clamp(max=1)  # words that never occur: 1

    @property
    def noise(self) -> Tensor:
        """The probability of each word as noise, (V,) float64."""
        powers = self.counts.double() ** POWER
        return powers / powers.sum()


class SampledText(NamedTuple):
    """The sampled text of one epoch, in n stretches of L words; the last may be partly or completely empty."""

    words: Tensor  # (b + n L + b,) int64, padding at the ends
    reach: Tensor  # (n, L, 2) int64: words before and after each that are its context
    noise: Tensor  # (n, K) int64


class ContextSplit(Split):
    """A text in stretches of 16 kept words, which are its examples; their number is fixed for all epochs.

    inputs are words (N, L + 2b) with b words of margin on either side, a mask of real words, the reach of each window
    in the middle (N, L, 2), and noise words (N, K); target (N, L) counts the words in each window.
    """

    def __init__(
        self, ids: Tensor, lengths: Tensor, draws: Word2VecSampler, tokens: Sequence[str], notes: Iterable[str] = ()
    ) -> None:
        """Initialize with `ids` (Σ lengths,), the words of paragraphs of these `lengths`, all of them known."""
        self.target: Tensor | None = ids
        self.draws, self.notes = draws, list(notes)
        self.ids, self._tokens = ids, tokens
        self._keep = draws.keep[ids]  # (Σ lengths,)
        self.paragraph = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        self._alias = build_alias_table(draws.noise)
        # The number of words kept in an epoch is random: six standard deviations are exceeded once in 10⁹ epochs.
        most = float(self._keep.sum() + 6 * (self._keep * (1 - self._keep)).sum().sqrt())
        self._size = -(-min(int(most) + 1, len(ids)) // STRETCH)
        self._as_read: SampledText | None = None

    def __len__(self) -> int:
        return self._size

    def plan(self, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:
        """Return random batches of stretches; in training smaller than `batch_size` if `shrink` is below 1."""
        if generator is None:
            return list(torch.split(torch.arange(len(self)), batch_size))
        order = torch.randperm(len(self), generator=generator)
        return list(torch.split(order, max(1, int(batch_size * self.shrink))))

    @property
    def shrink(self) -> float:
        """The factor on the batch size.

        The gradients of a word are summed over a batch, and if one word is a large fraction of the noise, the sum would
        overshoot.
        """
        return min(1.0, USUAL_SHARE / float(self.draws.noise.max()))

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of these stretches, sampled by the seed; None uses fixed samples for evaluation."""
        laid = self._sample(seed)
        stretches = laid.words.unfold(0, STRETCH + 2 * self.draws.window, STRETCH)  # (n, L + 2b), nothing copied
        for index in order:
            words, reach = stretches.index_select(0, index), laid.reach.index_select(0, index)
            yield Batch((words, words > 0, reach, laid.noise.index_select(0, index)), reach.sum(2))

    def name(self, i: int) -> str:
        """Return the range of kept words in the stretch, counted from 0."""
        return f"words {i * STRETCH} to {(i + 1) * STRETCH - 1}"

    def row(self, i: int) -> dict[str, str] | None:
        """Return the words of the stretch."""
        start = i * STRETCH + self.draws.window
        words = self._sample(None).words[start : start + STRETCH].tolist()
        return {"text": " ".join(self._tokens[w] for w in words if w)}

    def _sample(self, seed: int | None) -> SampledText:
        """Return the text sampled by the seed."""
        if seed is None:
            if self._as_read is None:
                self._as_read = self._sample_text(torch.Generator().manual_seed(0))
            return self._as_read
        return self._sample_text(torch.Generator().manual_seed(seed))

    def _sample_text(self, generator: torch.Generator) -> SampledText:
        margin, room = self.draws.window, len(self) * STRETCH
        kept = torch.rand(len(self.ids), generator=generator, dtype=torch.float64) < self._keep
        words, paragraph = self.ids[kept][:room], self.paragraph[kept][:room]
        count = len(words)
        widths = torch.randint(1, margin + 1, (count,), generator=generator)
        reach = torch.zeros(room, 2, dtype=torch.int64)
        for side, far in enumerate(words_around(paragraph)):
            reach[:count, side] = torch.minimum(widths, far)
        padded = torch.zeros(room + 2 * margin, dtype=torch.int64)
        padded[margin : margin + count] = words
        noise = sample_alias_table(*self._alias, (len(self), NOISE), generator)
        return SampledText(padded, reach.view(len(self), STRETCH, 2), noise)


def build_alias_table(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Build an alias table to sample from a distribution (V,) in constant time.

    Returns the threshold of each of V equal bins, (V,), and the alternative of each, (V,). After A. J. Walker, 1977,
    <https://doi.org/10.1145/355744.355749>.
    """
    size = len(probabilities)
    cut = (probabilities * size).tolist()
    rest = list(range(size))
    small, large = [i for i in rest if cut[i] < 1], [i for i in rest if cut[i] >= 1]
    while small and large:
        least, most = small.pop(), large[-1]
        rest[least] = most
        cut[most] -= 1 - cut[least]
        if cut[most] < 1:
            small.append(large.pop())
    for i in large:
        cut[i] = 1.0
    for i in small:  # remainder of rounding
        cut[i] = 1.0 if probabilities[i] else 0.0
        rest[i] = rest[i] if probabilities[i] else int(probabilities.argmax())
    return torch.tensor(cut, dtype=torch.float64), torch.tensor(rest)


def sample_alias_table(cut: Tensor, rest: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Sample from an alias table."""
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64) * len(cut)
    share = drawn.long()
    return torch.where(drawn - share < cut[share], share, rest[share])


def words_around(paragraph: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of words before and after each in its paragraph, (n,) each; `paragraph` is its ascending
    number.
    """
    _, lengths = torch.unique_consecutive(paragraph, return_counts=True)
    starts = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
    before = torch.arange(len(paragraph)) - starts
    return before, torch.repeat_interleave(lengths, lengths) - 1 - before


Numbers = npt.NDArray[np.int64]
EVERY = 100_000_000  # more different words than any text has
NOT_FOR_CONTEXTS = (
    *("text", "target", "missing", "group", "stateful", "length"),
    *("documents", "special_tokens", "mask_prob", "whole_words"),
)


@dataclass(frozen=True)
class ContextPreprocessing:
    """Conversion of a text to words with vectors."""

    spec: TextSpec
    tokenizer: Tokenizer
    draws: Word2VecSampler

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA, "tokenizer": TOKENIZERS, "counts": [COUNT], "subsample": NUMBER,
    }  # fmt: skip

    def as_split(self, text: str, notes: Iterable[str] = ()) -> ContextSplit:
        """Prepare a text as its paragraphs. Raises DataError if fewer than two of its words are known."""
        ids, lengths = select_known(*self.tokenizer.encode_flat(paragraphs(text)))
        if len(ids) < 2:
            raise NotEnoughDataError(
                f"Of this text {len(ids)} words are in the vocabulary, and at least 2 are needed: {text[:60]!r}."
            )
        return ContextSplit(ids, lengths, self.draws, self.tokenizer.tokens, notes)

    def examples(self, sources: Sequence[Any]) -> ContextSplit:
        """Prepare other texts: paths of .txt files or of folders of them, or texts."""
        sources = [sources] if isinstance(sources, str | Path) else sources
        read = [r for source in sources for r in load_texts(source)]
        if not read:
            raise NotEnoughDataError("No text was given.", fix="Give texts, or paths of .txt files or folders.")
        return self.as_split("\n\n".join(r.text for r in read), [note for r in read for note in r.notes])

    def labelled(self, source: str | Path) -> ContextSplit:
        """Prepare another text, which is its own target."""
        return self.examples([source])

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` restores an equal object."""
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
        """Restore the object that `to_json` wrote. Raises ValueError if the document is inconsistent."""
        spec = specs.read_spec(data["spec"], TextSpec, Context)
        assert isinstance(spec.target, Context)
        counts = torch.tensor(data["counts"], dtype=torch.int64)
        if len(counts) != spec.vocab_size:
            raise ValueError(f"{len(counts)} counts of {spec.vocab_size} words")
        draws = Word2VecSampler(counts, spec.target.window, float(data["subsample"]))
        return cls(spec, tokenizer_from_json(data["tokenizer"]), draws)


def open_context(path: Path, settings: DataSettings) -> DataSet:
    """Build the data set of a .txt or a folder of .txt for word vectors. Raises DataError with file and line,
    SettingError.
    """
    _, read, origin, settings = read_texts(path, settings)
    texts = {split: join_texts([f"{r.text}\n" for r in of_split]) for split, of_split in read.items()}
    return context_dataset(texts, origin, settings)


def context_dataset(texts: Mapping[str, str] | Sequence[str], origin: DataSource, settings: DataSettings) -> DataSet:
    """Build a data set for word vectors from the text of each split, or from texts that are split by position.

    The vocabulary is that of the training split. `max_samples` keeps its first stretches of 16 words. Raises DataError
    if there is too little text, and SettingError.
    """
    reject_changed(settings, NOT_FOR_CONTEXTS, "means nothing for word vectors, which are learned from running text")
    whole = dict(texts) if isinstance(texts, Mapping) else {"train": "\n\n".join(texts)}
    splits, said = split_by_position(whole, settings, whole_words=True)
    try:
        tokenizer, ids, lengths, done = _select_words(splits["train"], settings)
    except DataError as error:
        raise DataError(f"{origin.source} cannot be used for training. {error}", code=error.code) from error
    short = f"{origin.source} is too short for word vectors"
    if len(ids) < 2:
        raise NotEnoughDataError(f"{short}: {len(ids)} of its words are in the vocabulary.")
    window, subsample = settings.window, settings.subsample
    draws = Word2VecSampler(ids.bincount(minlength=len(tokenizer)), window, subsample)
    spec = TextSpec(len(tokenizer), STRETCH + 2 * window, Context(len(tokenizer), window=window))
    preprocessing = ContextPreprocessing(spec, tokenizer, draws)
    told = [*said, *done]
    found = {"train": ContextSplit(ids, lengths, draws, tokenizer.tokens)}
    for split in (split for split in SPLITS[1:] if split in splits):
        try:
            found[split] = preprocessing.as_split(splits[split])
        except DataError as error:
            raise NotEnoughDataError(
                f"{short}: its {split} split has fewer than two words that are known.",
                fix=f"Give more text, a smaller min_count, or {split}=0.",
            ) from error
        if not _has_context(found[split]):
            raise NotEnoughDataError(
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
    return build_dataset(origin, settings, digest.hexdigest(), preprocessing, found, told)


def _has_context(split: ContextSplit) -> bool:
    """Return whether a word of the split has context words after subsampling."""
    return any(bool((batch.target > 0).any()) for batch in split.batches(split.plan(STRETCH, None)))


def paragraphs(text: str) -> list[str]:
    """Split a text at blank lines, or at line ends if it has none."""
    found = BLANK_LINE.split(text)
    return found if sum(bool(p.strip()) for p in found) > 1 else text.split("\n")


def select_known(flat: Numbers, lengths: Numbers) -> tuple[Tensor, Tensor]:
    """Return the known words of paragraphs, (Σ lengths,), and the number in each; empty paragraphs are dropped."""
    real = flat > UNKNOWN
    ends = np.concatenate([[0], real.cumsum()])[lengths.cumsum()]
    counts = np.diff(ends, prepend=0)
    return torch.from_numpy(flat[real]), torch.from_numpy(counts[counts > 0])


def _select_words(text: str, settings: DataSettings) -> tuple[Tokenizer, Tensor, Tensor, list[str]]:
    """Return the vocabulary of the training split, its known words, their number in each paragraph, and notes.

    Words contain a letter or a digit and occur at least `min_count` times; the most frequent ones are kept.
    """
    pieces, lower = paragraphs(text), bool(settings.lower)
    ends = "a blank line" if len(pieces) < 1 + text.count("\n") else "the end of a line"
    notes = [f"The context of a word ends at {ends}."]
    kind = "words" if settings.tokenizer == "auto" else settings.tokenizer
    if kind != "words":
        tokenizer = train_tokenizer(kind, pieces, settings.vocab_size, settings.min_count, lower)
        return tokenizer, *select_known(*tokenizer.encode_flat(pieces)), notes
    every = train_tokenizer(kind, pieces, EVERY, 1, lower)
    flat, lengths = every.encode_flat(pieces)
    counts = np.bincount(flat, minlength=len(every))
    words = np.array([i for i, w in enumerate(every.tokens) if i > UNKNOWN and any(c.isalnum() for c in w)], np.int64)
    often = words[counts[words] >= settings.min_count]  # the commonest first, as in `every`
    if len(often) < 2:
        raise NotEnoughDataError(
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
    return kept, *select_known(new[flat], lengths), notes
