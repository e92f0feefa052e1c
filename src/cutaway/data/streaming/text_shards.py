"""Text in shards, tokenised once and used like text in memory.

`prepare_text` reads every file once (to check that it is text and to count its characters), cuts the splits where
`cutaway train` cuts them, fits the tokenizer, and writes the tokens of each split in shards, as integers of one, two or
four bytes depending on the vocabulary. Tokens and batches are the same as those of `cutaway train` on the same files
with the same splits and tokenizer.

A shard is a stretch of the text, cut where no tokenizer has a token across the cut (`Corpus.pieces`).

Text that is read in parts: the files of a split one after another, never held completely in memory.

The result equals that of `text_files.read_text` and `join_texts` for the same files: UTF-8 without a byte order mark,
line ends as \n, and one after the last line of each file but the last. A place in it is a byte of a file.

Statistics of a corpus from one pass: number of characters, their counts, and their positions.

They define the splits and the vocabulary of characters, with only one block in memory.
"""

from __future__ import annotations

import bisect
import codecs
import hashlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.config import build
from ...core.errors import (
    DataError,
    FileError,
    IncompatibleSettingError,
    Problem,
    UnsupportedDataError,
    shorten,
)
from ...core.files import MEBIBYTE, empty_file_error, open_regular, require_regular_file, unreadable_error
from ...core.schema import Between, name_document_in_errors, validate_document
from ...core.spec import Context, ImageSizes, NextToken, Target
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet
from ..modalities import reject_changed, reject_settings_for_others
from ..parallel import Progress
from ..settings import DataSettings, ShardSettings
from ..splits import SPLITS, remaining_fractions, split_ranges
from ..text.corpus import ALPHABET, build_preprocessing, reject_short, text_tokens_per_step, unknown_note
from ..text.corpus_transforms import PIECE
from ..text.dataset import has_classes
from ..text.text_files import UTF8, decode_utf8, find_texts
from ..text.tokenizer_files import AUTO, TOKENIZERS, fit_tokenizer, load_named_tokenizer, tokenizer_from_json
from ..text.tokenizers import KINDS, Tokenizer, characters_tokenizer
from .shards import (
    AGAIN,
    DTYPES,
    MANIFEST,
    OF_TEXT,
    PLAN,
    Manifest,
    ShardTokens,
    begin_preparation,
    finish_preparation,
    map_in_processes,
    num_processes,
    reject_fixed_settings,
    require_disk_space,
    save_plan,
    validate_manifest_entries,
    write_shards,
)

AT_ONCE = 16  # pieces of text tokenised together
SETTLED = ("tokenizer", "vocab_size", "min_count", "lower", "val", "test")  # fixed when text is prepared
WHEN_IT_LEARNS = ("length", "stateful", "max_samples", "special_tokens", "mask_prob", "whole_words")
NOT_FOR_SHARDS = ("text", "target", "missing", "group", "window", "subsample", "form", "fold")


# --- preparing ----------------------------------------------------------------------------------------------------


def prepare_text(source: Path, out: Path, settings: DataSettings, how: ShardSettings, progress: Progress) -> Manifest:
    """Tokenise a .txt or a folder of them into shards.

    Raises as described in `shards.py`, and DataError, with file, byte and line, for text that is not UTF-8 or that the
    tokenizer cannot split.
    """
    _reject_settings(source, settings)
    files = find_texts(source)
    corpora = {split: Corpus.from_files(of_split) for split, of_split in files.items()}
    given = load_named_tokenizer(settings)
    asked = _request(corpora, settings, how, given)
    found = begin_preparation(out, asked)
    if found.manifest is not None:
        return found.manifest
    size = sum(sum(corpus.sizes) for corpus in corpora.values())
    workers = num_processes(how.workers, size)
    if found.plan is None:
        plan = _plan(source, corpora, settings, how, workers)
        save_plan(out, asked, plan)
    else:
        plan = found.plan
        _reject_plan(plan, corpora, out / PLAN)
    tokenizer = tokenizer_from_json(plan["tokenizer"])
    jobs = [*_jobs(plan, corpora, tokenizer)]
    require_disk_space(out, jobs, plan["bytes"])
    shards: dict[str, list[Any]] = {split: [] for split in plan["places"]}
    counts = {split: np.zeros(len(tokenizer), np.int64) for split in shards}
    for job, made in zip(jobs, write_shards(out, jobs, workers, progress)):
        shards[job.split].append(made.shard)
        counts[job.split] += made.found
    about = {
        "tokenizer": plan["tokenizer"],
        "given": given is not None,
        "dtype": plan["dtype"],
        "counts": {split: of_split.tolist() for split, of_split in counts.items()},
    }
    name = source.resolve().name if source.is_dir() else source.stem
    head = {"kind": "text", "name": name, "source": str(source), "fingerprint": plan["fingerprint"], "asked": asked}
    return finish_preparation(
        out, Manifest(splits=shards, settings=plan["settings"], notes=plan["notes"], about=about, **head)
    )


PLANS = {
    "fingerprint": str, "places": {...: [[int]]}, "tokenizer": TOKENIZERS, "dtype": DTYPES, "bytes": Between(0, 2**62),
    "settings": OF_TEXT["settings"], "notes": [str],
}  # fmt: skip


def _reject_plan(plan: Any, corpora: Mapping[str, Corpus], path: Path) -> None:
    """Raise FileError if the plan at `path` cannot be resumed."""
    again = "Give another folder, or remove this one."
    validate_document(plan, PLANS, path, again)
    with name_document_in_errors(path, again):
        build(DataSettings, plan["settings"])
    for split, places in plan["places"].items():
        sizes = corpora.get(split, corpora["train"]).sizes
        within = (len(at) == 2 and 0 <= at[0] < len(sizes) and 0 <= at[1] <= sizes[at[0]] + 1 for at in places)
        if split not in SPLITS or len(places) < 2 or not all(within) or places != sorted(places):
            raise FileError(f"{path}: places.{shorten(split)} is not where text begins and ends, in order. {again}")
    try:
        tokenizer = tokenizer_from_json(plan["tokenizer"])
    except ValueError as error:
        raise FileError(f"{path}: tokenizer cannot be used: {shorten(error, 200)}. {again}") from error
    if len(tokenizer) > np.iinfo(plan["dtype"]).max + 1:
        raise FileError(f"{path}: dtype is {plan['dtype']!r}, which cannot hold {len(tokenizer):,} tokens. {again}")


@dataclass(frozen=True)
class TokenShardJob:
    """A job that writes one shard: the tokens of the text between two places."""

    name: str
    split: str
    corpus: Corpus
    begin: Place
    end: Place
    tokenizer: Tokenizer
    dtype: str

    def write(self, path: Path) -> None:
        """Write the tokens as consecutive integers."""
        with path.open("wb") as file:
            for flat in _tokens(self.corpus, self.begin, self.end, self.tokenizer):
                file.write(flat.astype(np.dtype(self.dtype).newbyteorder("<")).tobytes())

    def look(self, path: Path) -> tuple[int, npt.NDArray[np.int64]]:
        """Return the number of tokens, and the count of each, (V,)."""
        stored, counts = np.dtype(self.dtype).newbyteorder("<"), np.zeros(len(self.tokenizer), np.int64)
        with open_regular(path) as file:
            while data := file.read(MEBIBYTE):
                found = np.bincount(np.frombuffer(data, stored), minlength=len(counts))
                if len(found) > len(counts):
                    raise DataError(f"{path} holds other tokens than those of {path.parent / PLAN}.", fix=AGAIN)
                counts += found
        return path.stat().st_size // stored.itemsize, counts


def _tokens(corpus: Corpus, start: Place, stop: Place, tokenizer: Tokenizer) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the tokens of the text between two places, some pieces at a time."""
    text = corpus.pieces(start, stop, *_allowed_cuts(tokenizer.kind, tokenizer.lower))
    while pieces := [*islice(text, AT_ONCE)]:
        try:
            yield tokenizer.encode_flat(pieces)[0]
        except DataError as error:
            where = f"{corpus.files[start.file]}, from byte {start.offset:,} on"
            raise DataError(f"{where}, near {pieces[0][:40]!r}: {error}") from error


def _allowed_cuts(kind: str, lower: bool | None) -> tuple[bool, bool]:
    """Return whether a text may be cut before blanks, and whether anywhere, with this kind of tokenizer.

    Characters can be cut anywhere, unless the lower case of a character depends on its neighbours.
    """
    return kind in KINDS, kind == "characters" and not lower


def _reject_settings(source: Path, settings: DataSettings) -> None:
    reject_settings_for_others(settings, "text")
    _reject_documents(settings)
    reject_changed(settings, WHEN_IT_LEARNS, "is for the training on prepared text, not for preparing it")
    reject_changed(settings, NOT_FOR_SHARDS, "is for other texts than a corpus, which is its own target")
    if has_classes(source) if source.is_dir() else source.suffix.lower() != ".txt":
        raise UnsupportedDataError(
            f"{source} is text with a class or a tag each, and only a corpus is prepared: a .txt, or a folder of them.",
            fix=f"Train on it directly: cutaway train MODEL {source}",
        )


def _reject_documents(settings: DataSettings) -> None:
    if settings.documents:
        raise IncompatibleSettingError(
            "documents=true keeps documents apart, and shards hold the text as one stream: leave it out."
        )


def _request(
    corpora: Mapping[str, Corpus], settings: DataSettings, how: ShardSettings, given: Tokenizer | None
) -> dict[str, Any]:
    """Return the request that identifies a preparation: file names, sizes and times, and settings."""
    digest = hashlib.sha256()
    for split, corpus in corpora.items():
        for path, size in zip(corpus.files, corpus.sizes):
            digest.update(f"{split} {path.name} {size} {path.stat().st_mtime_ns}\n".encode(errors="surrogateescape"))
    named = settings.tokenizer
    if given is not None:
        named = hashlib.sha256(repr(given.to_json()).encode()).hexdigest()
    return {
        "data": digest.hexdigest(),
        **{key: getattr(settings, key) for key in SETTLED},
        "tokenizer": named,
        **{key: getattr(how, key) for key in ("shard_size", "sample", "held_out")},
    }


# --- text statistics and the plan of shards ------------------------------------------------------------------------


def _plan(
    source: Path, corpora: Mapping[str, Corpus], settings: DataSettings, how: ShardSettings, workers: int
) -> dict[str, Any]:
    """Return everything that determines the shards, as plain JSON values."""
    fingerprint = _fingerprint(source, corpora, workers)
    looked = {split: CorpusIndex.at(corpus, bool(settings.lower), workers) for split, corpus in corpora.items()}
    train = looked["train"]
    notes = [note for split in looked for note in looked[split].notes()]
    kind = settings.tokenizer
    if kind == AUTO:
        letters = len(train.letters)
        kind = "characters" if letters <= ALPHABET else "bpe"
        if kind == "bpe":
            notes.append(
                f"The text has more than {ALPHABET:,} different characters: its tokens are subwords (tokenizer=bpe). "
                "tokenizer=characters takes each for itself."
            )
    spans, fractions, said = _spans(train, settings, how, given=looked, whole_words=kind != "characters")
    places = {split: (of.corpus.begin, of.corpus.end) for split, of in looked.items()}
    places |= {split: (train.place(start), train.place(stop)) for split, (start, stop) in spans.items()}
    places = {split: places[split] for split in SPLITS if split in places}
    learned = spans["train"][1]
    tokenizer, fitted = _tokenizer(train, learned, places["train"], replace(settings, tokenizer=kind), how)
    bounds = {
        split: _bounds(corpora.get(split, corpora["train"]), *places[split], tokenizer, how.shard_size * MEBIBYTE)
        for split in places
    }
    dtype = stored_dtype(len(tokenizer))
    return {
        "fingerprint": fingerprint,
        "places": bounds,
        "tokenizer": tokenizer.to_json(),
        "dtype": dtype,
        "bytes": _size(train, tokenizer) * np.dtype(dtype).itemsize,
        "settings": {**{key: getattr(settings, key) for key in SETTLED}, "tokenizer": kind, **fractions},
        "notes": [*notes, *said, *fitted],
    }


def _fingerprint(source: Path, corpora: Mapping[str, Corpus], workers: int) -> str:
    """Return the sha256 of the content, equal to that of `read_texts` for the same files."""
    found, folder = hashlib.sha256(), source if source.is_dir() else source.parent
    for corpus in corpora.values():
        sums = map_in_processes(corpus.sha256, range(len(corpus.files)), workers)
        for path, digest in zip(corpus.files, sums):
            found.update(f"{digest}  {path.relative_to(folder)}\n".encode(errors="surrogateescape"))
    return found.hexdigest()


def _spans(
    train: CorpusIndex, settings: DataSettings, how: ShardSettings, given: Container[str], whole_words: bool
) -> tuple[dict[str, tuple[int, int]], dict[str, float], list[str]]:
    """Return the character range of each split that is not `given`, the fractions of val and test, and notes."""
    most = how.held_out * MEBIBYTE / train.characters if how.held_out else 1.0
    asked, usual = remaining_fractions(settings, given), DataSettings()
    val, test = (min(x, most) if x == own else x for x, own in zip(asked, (usual.val, usual.test)))
    found, notes = split_ranges(train.characters, val, test, train.after_blank if whole_words else None)
    if (val, test) != asked:
        notes.append(f"Each split that is held out has {how.held_out:,} MiB of the text; val and test make it another.")
    return found, {"val": val, "test": test}, notes


def _tokenizer(
    train: CorpusIndex, count: int, places: tuple[Place, Place], settings: DataSettings, how: ShardSettings
) -> tuple[Tokenizer, list[str]]:
    """Return the named tokenizer, or one fitted on the training split (the first `count` characters), and notes.

    Characters are counted on the whole split; other tokenizers are fitted on a sample if it is large.
    """
    if settings.tokenizer == "characters":
        letters = train.letters_up_to(count)
        return characters_tokenizer(letters, settings.vocab_size, settings.min_count, bool(settings.lower)), []
    most = how.sample * MEBIBYTE
    if count <= most:
        pieces, notes = [*train.corpus.pieces(*places, *_allowed_cuts(settings.tokenizer, settings.lower))], []
    else:
        pieces = [
            _whole_lines(train.text(at, at + MEBIBYTE))
            for at in np.linspace(0, count - MEBIBYTE, how.sample).astype(int).tolist()
        ]
        notes = [
            f"The tokenizer was fitted on {how.sample:,} million of the {count / 1e6:,.0f} million characters of the "
            "training split, in stretches of a million that are evenly spread (sample)."
        ]
    tokenizer, given = fit_tokenizer(settings, settings.tokenizer, pieces)
    if not getattr(tokenizer, "by_pieces", True):
        raise IncompatibleSettingError(
            f"tokenizer={settings.tokenizer} marks the beginning of each text that it is given, and a corpus is given "
            "to it in pieces: take another, such as that of GPT-2, or tokenizer=bpe."
        )
    return tokenizer, [] if given else notes


def _whole_lines(text: str) -> str:
    """Remove incomplete lines at both ends of a stretch, if it has complete ones."""
    _, _, after = text.partition("\n")
    whole, _, _ = after.rpartition("\n")
    return whole or text


def _bounds(corpus: Corpus, start: Place, stop: Place, tokenizer: Tokenizer, size: int) -> list[Place]:
    """Return where the shards of a split begin, each with about `size` bytes of text, and where the last one ends."""
    where = _allowed_cuts(tokenizer.kind, tokenizer.lower)
    before = [0, *np.cumsum(corpus.sizes).tolist()]  # bytes of the files before each
    first, last = (before[place.file] + place.offset for place in (start, stop))
    found = [start]
    for at in range(first + size, last - size // 2, size):
        file = int(np.searchsorted(before, at, side="right")) - 1
        place = corpus.cut_after(Place(file, at - before[file]), stop, *where)
        if found[-1] < place < stop:
            found.append(place)
    return [*found, stop]


def _size(train: CorpusIndex, tokenizer: Tokenizer) -> int:
    """Estimate the number of tokens of the whole text from a stretch in the middle."""
    if tokenizer.kind == "characters":
        return train.characters
    start = train.characters // 2
    stop = min(start + MEBIBYTE, train.characters)
    found = sum(map(len, _tokens(train.corpus, train.place(start), train.place(stop), tokenizer)))
    return int(1.1 * train.characters * found / (stop - start))


def _jobs(plan: Mapping[str, Any], corpora: Mapping[str, Corpus], tokenizer: Tokenizer) -> Iterator[TokenShardJob]:
    for split, bounds in plan["places"].items():
        places = [Place(*place) for place in bounds]
        for k, (start, stop) in enumerate(pairwise(places)):
            corpus = corpora.get(split, corpora["train"])
            yield TokenShardJob(f"{split}-{k:05}.bin", split, corpus, start, stop, tokenizer, plan["dtype"])


# --- opening ------------------------------------------------------------------------------------------------------


def open_text(
    folder: Path,
    manifest: Manifest,
    settings: DataSettings,
    *,
    sizes: ImageSizes,
    targets: tuple[type[Target], ...] = (),
) -> DataSet:
    """Build the data set of text shards, for next-token prediction or masked language modelling.

    Raises SettingError for settings that were fixed by the preparation.
    """
    del sizes
    if Context in targets and NextToken not in targets:
        raise UnsupportedDataError(
            f"Word vectors are learned from text, and {folder} holds its tokens.", fix="Give the text itself."
        )
    _reject_documents(settings)
    if settings.whole_words:
        raise IncompatibleSettingError(
            "whole_words=true needs a text in memory, and this one is in shards: leave it out."
        )
    reject_changed(settings, NOT_FOR_SHARDS, "is for other texts than a corpus, which is its own target")
    validate_manifest_entries(folder, manifest, OF_TEXT)
    try:
        tokenizer = tokenizer_from_json(manifest.about["tokenizer"])
    except ValueError as error:
        raise FileError(
            f"{folder / MANIFEST}: about.tokenizer cannot be used: {shorten(error, 200)}. {AGAIN}"
        ) from error
    counts = manifest.about["counts"]
    if any(len(counts.get(split, ())) != len(tokenizer) for split in manifest.splits):
        raise FileError(f"{folder / MANIFEST}: about.counts does not have one count for each token. {AGAIN}")
    size = np.dtype(manifest.about["dtype"]).itemsize
    if wrong := next((shard for shard in manifest.shards if shard.count * size != shard.bytes), None):
        said = f"the count of {shorten(wrong.name)} is {wrong.count:,}, which is not what {wrong.bytes:,} bytes hold"
        raise FileError(f"{folder / MANIFEST}: {said}. {AGAIN}")
    _reject_other_tokenizer(folder, manifest, tokenizer, settings)
    reject_fixed_settings(settings, manifest, folder, free=(*WHEN_IT_LEARNS, "tokenizer"))
    preprocessing, notes = build_preprocessing(tokenizer, manifest.about["given"], settings, targets)
    streams = {split: ShardTokens(folder, manifest, split) for split in manifest.splits}
    if settings.max_samples is not None:
        most = settings.max_samples * text_tokens_per_step(preprocessing) + preprocessing.least - 1
        streams["train"] = ShardTokens(folder, manifest, "train", most)
    reject_short({split: len(ids) for split, ids in streams.items()}, preprocessing, str(folder))
    if tokenizer.unknown is not None:
        for split, ids in streams.items():
            notes.append(unknown_note(split, int(ids.counts[tokenizer.unknown]), len(ids)))
    held = {split: preprocessing.stream_split([ids]) for split, ids in streams.items()}
    digests = [f"{split} {shard.sha256}" for split, shards in manifest.splits.items() for shard in shards]
    split_hash = hashlib.sha256(f"{digests} {len(streams['train'])}".encode()).hexdigest()
    origin = DataSource(manifest.name, str(folder), manifest.fingerprint, manifest.notes)
    return build_dataset(origin, settings, split_hash, preprocessing, held, notes)


def _reject_other_tokenizer(folder: Path, manifest: Manifest, tokenizer: Tokenizer, settings: DataSettings) -> None:
    named, then = settings.tokenizer, manifest.settings["tokenizer"]
    given = load_named_tokenizer(settings)
    if named in (AUTO, then) or (given is not None and given.to_json() == tokenizer.to_json()):
        return
    raise IncompatibleSettingError(
        f"{folder} was prepared with another tokenizer ({then}) than {named}, and holds its tokens alone. Prepare the "
        f"text again, with tokenizer={named}, into another folder; or leave out what asks for that one."
    )


def stored_dtype(tokens: int) -> str:
    """Return the smallest integer type for the ids of a vocabulary of `tokens` tokens."""
    return next(name for name in ("uint8", "uint16", "uint32") if tokens <= np.iinfo(name).max + 1)


BLOCK = 1 << 20  # bytes per read
FAR = 1 << 24  # maximum characters searched for a place to cut the text
CODE_POINTS = 0x110000
BLANK = re.compile(r"(?<=\S)\s")


class Place(NamedTuple):
    """A position before a byte of a file; after the last byte it is before the line end that follows the file."""

    file: int
    offset: int


@dataclass(frozen=True)
class CorpusPartStats:
    """Statistics of a part of a corpus."""

    characters: int  # including the line end that follows the file, if the part ends there
    letters: dict[str, int]  # count of each character, in lower case if requested
    returns: int  # line ends with a carriage return


@dataclass(frozen=True)
class Corpus:
    """The concatenated text of files."""

    files: Sequence[Path]
    sizes: Sequence[int]  # bytes of each

    @classmethod
    def from_files(cls, files: Sequence[Path]) -> Corpus:
        """Build the corpus of these files. Raises FileError for an irregular file, and DataError for an empty one."""
        sizes = []
        for path in files:
            require_regular_file(path)
            sizes.append(path.stat().st_size)
            if sizes[-1] <= (len(codecs.BOM_UTF8) if _marked(path) else 0):
                raise empty_file_error(path, sizes[-1])
        return cls(files, sizes)

    @property
    def begin(self) -> Place:
        """The position of the first character."""
        return Place(0, 0)

    @property
    def end(self) -> Place:
        """The position after the last character."""
        return Place(len(self.files) - 1, self.sizes[-1])

    # --- reading --------------------------------------------------------------------------------------------------

    def chunks(self, begin: Place, end: Place) -> Iterator[str]:
        """Yield the text between two places in small chunks. Raises DataError, with byte and line, if it is no text."""
        for _, raw in self._raw(begin, end):
            yield raw.replace("\r\n", "\n").replace("\r", "\n") if "\r" in raw else raw

    def pieces(self, begin: Place, end: Place, blanks: bool, anywhere: bool) -> Iterator[str]:
        """Yield the text between two places in pieces that do not change its tokenization.

        Cuts are before line ends; in very long lines also before a blank, with `blanks`, or `anywhere`. Raises
        DataError if there is no such place.
        """
        held = ""
        for chunk in self.chunks(begin, end):
            held += chunk
            while at := find_cut(held, PIECE, blanks, anywhere):
                yield held[:at]
                held = held[at:]
            if len(held) > FAR:
                raise self.too_long(begin)
        if held:
            yield held

    def too_long(self, place: Place) -> DataError:
        """Return the error for a text without a place to cut."""
        return DataError(
            f"{self.files[place.file]} has no line end for {FAR:,} characters and more, somewhere from byte "
            f"{place.offset:,} on, and its tokenizer cannot cut a text elsewhere.",
            fix="Break its lines at blanks; or take tokenizer=characters.",
        )

    # --- looking at it first --------------------------------------------------------------------------------------

    def parts(self, size: int) -> list[tuple[Place, Place]]:
        """Split the text into parts of about `size` bytes without splitting characters or line ends."""
        before = [0, *itertools.accumulate(self.sizes)]  # bytes of the files before each
        found = [self.begin]
        for at in range(size, before[-1], size):
            k = bisect.bisect(before, at) - 1
            found.append(Place(k, self._whole(k, at - before[k])))
        return [*pairwise([*found, self.end])]

    def look(self, begin: Place, end: Place, lower: bool = False) -> CorpusPartStats:
        """Compute statistics of a part. Raises DataError, with byte and line, if it is not UTF-8 text."""
        characters = returns = 0
        letters = np.zeros(CODE_POINTS, np.int64)
        for _, text in self._raw(begin, end):
            if found := text.count("\r"):
                returns += found
                text = text.replace("\r\n", "\n").replace("\r", "\n")
            characters += len(text)
            points = np.frombuffer((text.lower() if lower else text).encode("utf-32-le"), np.uint32)
            counts = np.bincount(points)
            letters[: len(counts)] += counts
        return CorpusPartStats(characters, {chr(i): int(letters[i]) for i in np.flatnonzero(letters).tolist()}, returns)

    def sha256(self, k: int) -> str:
        """Return the sha256 of a file's bytes."""
        try:
            with open_regular(self.files[k]) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise unreadable_error(self.files[k], error) from error

    def place_in(self, begin: Place, end: Place, characters: int) -> Place:
        """Return the place after this number of characters of a part that `look` has read."""
        left = characters
        for place, text in self._raw(begin, end):
            count = len(text) - text.count("\r\n")
            if left > count:
                left -= count
                continue
            for found in re.finditer("\r\n", text):  # counts as one character
                if found.start() >= left:
                    break
                left += 1
            if place.offset == self.sizes[place.file]:  # the line end that follows the file
                return Place(place.file + left, 0 if left else place.offset)
            return Place(place.file, place.offset + len(text[:left].encode()))
        return end

    def cut_after(self, place: Place, end: Place, blanks: bool, anywhere: bool) -> Place:
        """Return the first place from `place` on at which the text may be cut, or `end`. Raises as `pieces`."""
        k, offset = place
        while k <= end.file:
            last = end.offset if k == end.file else self.sizes[k]
            window = BLOCK // 16
            while offset < last:
                offset = self._whole(k, offset)
                with open_regular(self.files[k]) as file:
                    file.seek(offset)
                    raw = file.read(min(window, last - offset))
                text = raw.decode("utf-8", "surrogateescape")
                if at := find_cut(text, 1, blanks, anywhere):
                    return Place(k, offset + len(text[:at].encode("utf-8", "surrogateescape")))
                if window > 4 * FAR:
                    raise self.too_long(place)
                if offset + window >= last:
                    break
                window *= 4
            k, offset = k + 1, 0
        return end

    # --- bytes ----------------------------------------------------------------------------------------------------

    def _raw(self, begin: Place, end: Place) -> Iterator[tuple[Place, str]]:
        """Yield the text between two places with its original line ends, in small chunks, and their places."""
        for k in range(begin.file, end.file + 1):
            last = end.offset if k == end.file else self.sizes[k]
            for offset, block in self._blocks(k, begin.offset if k == begin.file else 0, last):
                mark = len(codecs.BOM_UTF8) if not offset and block.startswith(codecs.BOM_UTF8) else 0
                yield Place(k, offset + mark), self._decoded(k, offset, block)
            if k < end.file and not self._ends_its_line(k):
                yield Place(k, self.sizes[k]), "\n"

    def _blocks(self, k: int, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes of a file between two offsets, and their offsets, in blocks of whole characters and line
        ends.
        """
        try:
            with open_regular(self.files[k]) as file:
                file.seek(begin)
                rest = b""
                while begin + len(rest) < end:
                    read = file.read(min(BLOCK, end - begin - len(rest)))
                    if not read:
                        raise DataError(f"{self.files[k]} has become shorter while it was read.", fix="Begin again.")
                    raw = rest + read
                    cut = len(raw) if begin + len(raw) == end else _whole_bytes(raw)
                    raw, rest = raw[:cut], raw[cut:]
                    yield begin, raw
                    begin += cut
        except OSError as error:
            raise unreadable_error(self.files[k], error) from error

    def _decoded(self, k: int, offset: int, raw: bytes) -> str:
        """Decode a block. Raises DataError, with byte and line, if it is not UTF-8."""
        try:
            return decode_utf8(raw, offset)
        except ValueError:
            pass
        lines = sum(before.count(b"\n") for _, before in self._blocks(k, 0, offset))
        try:
            return decode_utf8(raw, offset, lines)
        except ValueError as error:
            raise DataError("A file that cannot be read:", [Problem(str(self.files[k]), str(error))], UTF8) from error

    def _whole(self, k: int, offset: int) -> int:
        """Return the next offset of a file, from `offset` on, that splits no character and no line end."""
        with open_regular(self.files[k]) as file:
            file.seek(max(0, offset - 1))
            near = file.read(5 if offset else 4)
        before, near = (near[:1], near[1:]) if offset else (b"", near)
        step = next((i for i, byte in enumerate(near[:3]) if byte & 0xC0 != 0x80), min(3, len(near)))
        return offset + (1 if not step and before == b"\r" and near[:1] == b"\n" else step)

    def _ends_its_line(self, k: int) -> bool:
        with open_regular(self.files[k]) as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) in (b"\n", b"\r")


def find_cut(text: str, least: int, blanks: bool, anywhere: bool) -> int:
    """Return a position at which a text may be cut, at least `least`; 0 if none exists.

    Positions other than before a line end are used only if there is no line end within a piece after `least`.
    """
    if len(text) <= least:
        return 0
    for sign in ("\n", "\r") if "\r" in text else ("\n",):  # "\r" may be a line end too
        at = text.find(sign, least)
        while at > 0 and text[at - 1].isspace():
            at = text.find(sign, at + 1)
        if at > 0:
            return at
    if len(text) < 2 * least + PIECE:
        return 0
    if blanks and (found := BLANK.search(text, least)):
        return found.start()
    if anywhere and not (text[least - 1] == "\r" and text[least] == "\n"):
        return least
    return 0


def _whole_bytes(raw: bytes) -> int:
    """Return the length of the longest prefix of whole characters and line ends."""
    end = len(raw)
    for back in range(1, min(4, end) + 1):
        byte = raw[end - back]
        if byte & 0xC0 != 0x80:  # the first byte of a character
            long = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            end -= back if long > back else 0
            break
    return end - 1 if raw[end - 1 : end] == b"\r" else end


def _marked(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(3) == codecs.BOM_UTF8


PART = 1 << 26  # bytes read by one job


@dataclass(frozen=True)
class CorpusIndex:
    """The statistics of a corpus, part by part."""

    corpus: Corpus
    parts: Sequence[tuple[Place, Place]]
    seen: Sequence[CorpusPartStats]
    lower: bool

    @classmethod
    def at(cls, corpus: Corpus, lower: bool, workers: int) -> CorpusIndex:
        """Read a whole corpus with `workers` processes. Raises DataError, with byte and line, unless it is text."""
        parts = corpus.parts(PART)
        seen = [*map_in_processes(partial(_look, corpus, lower), parts, workers)]
        return cls(corpus, parts, seen, lower)

    @property
    def characters(self) -> int:
        """The number of characters of the whole text."""
        return sum(part.characters for part in self.seen)

    @property
    def letters(self) -> Counter[str]:
        """The count of each character."""
        return self._sum(len(self.seen))

    def place(self, characters: int) -> Place:
        """Return the place after this number of characters."""
        for (start, stop), part in zip(self.parts, self.seen):
            if characters <= part.characters:
                return self.corpus.place_in(start, stop, characters)
            characters -= part.characters
        return self.corpus.end

    def letters_up_to(self, characters: int) -> Counter[str]:
        """Return the count of each character in the first `characters` characters."""
        whole = left = 0
        for part in self.seen:
            if characters < left + part.characters:
                break
            whole, left = whole + 1, left + part.characters
        found = self._sum(whole)
        if left < characters:
            for text in self.corpus.chunks(self.place(left), self.place(characters)):
                found.update(text.lower() if self.lower else text)
        return found

    def text(self, start: int, stop: int) -> str:
        """Return the characters from `start` to `stop`."""
        return "".join(self.corpus.chunks(self.place(start), self.place(stop)))

    def after_blank(self, start: int, place: int) -> int:
        """Return the position after the last blank between `start` and `place`, or `place` if none exists nearby."""
        back = 1 << 16
        while back <= 1 << 24:
            near = self.text(max(start, place - back), place)
            if blank := max(near.rfind(" "), near.rfind("\n")) + 1:
                return place - len(near) + blank
            back = back << 4 if place - back > start else 1 << 25
        return place

    def notes(self) -> list[str]:
        """Return notes on differences between the text and the files."""
        returns = sum(part.returns for part in self.seen)
        return [f"{returns:,} line ends are written with a carriage return, and are read without."] if returns else []

    def _sum(self, parts: int) -> Counter[str]:
        found: Counter[str] = Counter()
        for part in self.seen[:parts]:
            found.update(part.letters)
        return found


def _look(corpus: Corpus, lower: bool, part: tuple[Place, Place]) -> CorpusPartStats:
    return corpus.look(*part, lower)
