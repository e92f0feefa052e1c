"""Text in shards, tokenised once and used like text in memory.

`prepare_text` reads every file once (to check that it is text and to count its characters), cuts the splits where
`cutaway train` cuts them, fits the tokenizer, and writes the tokens of each split in shards, as integers of one, two or
four bytes depending on the vocabulary. Tokens and batches are the same as those of `cutaway train` on the same files
with the same splits and tokenizer.

A shard is a stretch of the text, cut where no tokenizer has a token across the cut (`Corpus.pieces`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.config import build
from ...core.errors import DataError, FileError, SettingError, shorten
from ...core.files import MEBIBYTE, open_regular
from ...core.schema import Between, name_document_in_errors, validate_document
from ...core.spec import Context, ImageSizes, NextToken, Target
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet
from ..modalities import reject_changed, reject_settings_for_others
from ..parallel import Progress
from ..settings import DataSettings
from ..splits import SPLITS, remaining_fractions, split_ranges
from ..text.corpus import ALPHABET, build_preprocessing, reject_short, text_tokens_per_step, unknown_note
from ..text.corpus_files import find_texts
from ..text.dataset import has_classes
from ..text.tokenizer_files import TOKENIZERS, tokenizer_from_json
from ..text.tokenizer_fitting import AUTO, fit_tokenizer, load_named_tokenizer
from ..text.tokenizers import KINDS, Tokenizer, characters_tokenizer
from .corpus import Corpus, CorpusIndex, Place
from .manifest import AGAIN, DTYPES, MANIFEST, OF_TEXT, PLAN, Manifest, ShardSettings, reject_other_form
from .prepare import (
    begin_preparation,
    finish_preparation,
    map_in_processes,
    num_processes,
    reject_fixed_settings,
    require_disk_space,
    save_plan,
    write_shards,
)
from .tokens import ShardTokens

AT_ONCE = 16  # pieces of text tokenised together
SETTLED = ("tokenizer", "vocab_size", "min_count", "lower", "val", "test")  # fixed when text is prepared
WHEN_IT_LEARNS = ("length", "stateful", "max_samples", "special_tokens", "mask_prob", "whole_words")
NOT_FOR_SHARDS = ("text", "target", "missing", "group", "window", "subsample", "form", "fold")


# --- preparing ----------------------------------------------------------------------------------------------------


def prepare_text(source: Path, out: Path, settings: DataSettings, how: ShardSettings, progress: Progress) -> Manifest:
    """Tokenise a .txt or a folder of them into shards.

    Raises as described in `prepare.py`, and DataError, with file, byte and line, for text that is not UTF-8 or that the
    tokenizer cannot split.
    """
    _reject_settings(source, settings)
    files = find_texts(source)
    corpora = {split: Corpus.of(of_split) for split, of_split in files.items()}
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
        raise DataError(
            f"{source} is text with a class or a tag each, and only a corpus is prepared: a .txt, or a folder of them.",
            fix=f"Train on it as it is: cutaway train MODEL {source}",
        )


def _reject_documents(settings: DataSettings) -> None:
    if settings.documents:
        raise SettingError(
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
    """Return the sha256 of the content, equal to that of `running_files.read_texts` for the same files."""
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
        raise SettingError(
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
        raise DataError(
            f"Word vectors are learned from text, and {folder} holds its tokens.", fix="Give the text itself."
        )
    _reject_documents(settings)
    if settings.whole_words:
        raise SettingError("whole_words=true needs a text in memory, and this one is in shards: leave it out.")
    reject_changed(settings, NOT_FOR_SHARDS, "is for other texts than a corpus, which is its own target")
    reject_other_form(folder, manifest, OF_TEXT)
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
    raise SettingError(
        f"{folder} was prepared with another tokenizer ({then}) than {named}, and holds its tokens alone. Prepare the "
        f"text again, with tokenizer={named}, into another folder; or leave out what asks for that one."
    )


def stored_dtype(tokens: int) -> str:
    """Return the smallest integer type for the ids of a vocabulary of `tokens` tokens."""
    return next(name for name in ("uint8", "uint16", "uint32") if tokens <= np.iinfo(name).max + 1)
