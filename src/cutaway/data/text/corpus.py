"""Running text for language modelling: a .txt, or a folder of them, as one stream of tokens.

It is split by position, never at random: the first part is for training. A folder can define the splits by files or
folders that are named train, valid (val, validation) and test.

With documents=true each file of a folder is a stream of its own; in a single file, or one file per split, blank lines
separate the streams. Documents are never divided between splits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ...core.errors import DataError, IncompatibleSettingError, NotEnoughDataError
from ...core.spec import Context, Masked, NextToken, Target, TextSpec
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import SPLITS, split_by_position
from . import tokenizer_files
from .corpus_transforms import MaskedPreprocessing, RunningPreprocessing, StreamPreprocessing, split_pieces
from .text_files import TextFile, join_texts, read_text, read_texts, split_documents, to_documents
from .tokenizers import PRETRAINED, Tokenizer
from .word2vec_dataset import open_context

__all__ = [
    "RunningPreprocessing",
    "build_preprocessing",
    "open_running",
    "predicts_masked",
    "read_text",
    "running_dataset",
]
__all__ += ["reject_short", "text_tokens_per_step", "unknown_note"]

STEPS = {"characters": 64}  # default tokens of a step
OTHER_STEPS = 35  # of words or subwords, as in W. Zaremba et al., 2014 <https://arxiv.org/abs/1409.2329>
MASKED_STEPS = 128  # of masked text, including special tokens, as in most steps of BERT's training
ALPHABET = 1000  # with more different characters, tokenizer=auto uses subwords
NOT_FOR_RUNNING_TEXT = ("text", "target", "missing", "group")
FOR_MASKED = ("mask_prob", "whole_words")
Notes = list[str | None]


def open_running(path: Path, settings: DataSettings, targets: tuple[type[Target], ...] = ()) -> DataSet:
    """Build the data set of a .txt or a folder of .txt for language modelling, masked language modelling or word
    vectors.

    Tokens are characters unless `tokenizer` is set. With more than 1 000 different characters bpe makes subwords, and
    masked text uses WordPiece. A step has 64 characters, 35 other tokens, or 128 tokens of masked text. Raises
    DataError that names file and line, FileError, SettingError.
    """
    if predicts_context(targets):
        return open_context(path, settings)
    files, read, origin, settings = read_texts(path, settings)
    return texts_dataset(read, origin, settings, targets, [] if settings.documents else _order_notes(files))


def texts_dataset(
    read: Mapping[str, Sequence[TextFile]],
    origin: DataSource,
    settings: DataSettings,
    targets: tuple[type[Target], ...] = (),
    said: Sequence[str] = (),
) -> DataSet:
    """Build the data set of the texts of each split, train among them, like `open_running`; `said` are notes on their
    order.
    """
    notes = [*origin.notes]
    kind = settings.tokenizer
    if kind == tokenizer_files.AUTO:
        letters = set().union(*(r.text for r in read["train"]))
        kind = "wordpiece" if predicts_masked(targets) else "characters" if len(letters) <= ALPHABET else "bpe"
        if kind == "bpe":
            notes.append(
                f"The text has more than {ALPHABET:,} different characters: its tokens are subwords "
                "(tokenizer=bpe). tokenizer=characters takes each for itself."
            )
    splits: Mapping[str, str | Sequence[TextFile]]
    if settings.documents:
        documents, what = to_documents(read)
        splits, placed = split_documents(documents, settings)
        notes.append(what)
    else:
        texts = {split: join_texts([r.text for r in of_split]) for split, of_split in read.items()}
        splits, placed = split_by_position(texts, settings, whole_words=kind != "characters")
    origin = replace(origin, notes=[*notes, *said, *placed])
    return running_dataset(splits, origin, settings, tokenizer=kind, targets=targets)


def predicts_context(targets: tuple[type[Target], ...]) -> bool:
    """Return whether a model with these targets learns the context words of running text."""
    return Context in targets and NextToken not in targets


def predicts_masked(targets: tuple[type[Target], ...]) -> bool:
    """Return whether a model with these targets learns masked tokens of running text."""
    return Masked in targets and NextToken not in targets


def running_dataset(
    splits: Mapping[str, str | Sequence[TextFile]],
    origin: DataSource,
    settings: DataSettings,
    *,
    tokenizer: str = "characters",
    blanks: bool = False,
    line_end: str = "",
    targets: tuple[type[Target], ...] = (),
) -> DataSet:
    """Build a data set for language modelling from the text or the documents of each split; train must be among them.

    `tokenizer` is the default for tokenizer=auto. `blanks` splits words at blanks, and `line_end` is then the token for
    a line end. `max_samples` keeps the first steps of training. `targets` are those of the model: masked tokens if
    Masked is among them and NextToken is not, else the next token. Raises DataError if a split is too short, and
    SettingError.
    """
    why = "is for texts with a target each, and this is running text, which is its own target"
    reject_changed(settings, NOT_FOR_RUNNING_TEXT, why)
    texts = {split: [TextFile("", text)] if isinstance(text, str) else list(text) for split, text in splits.items()}
    fitted = tokenizer if settings.tokenizer == tokenizer_files.AUTO else settings.tokenizer
    line_end = line_end if blanks and fitted not in ("characters", "bpe", "wordpiece") else ""
    train = join_texts([r.text for r in texts["train"]])
    if line_end:
        train = train.replace("\n", f" {line_end}\n")
    try:
        found, given = tokenizer_files.fit_tokenizer(settings, tokenizer, split_pieces(train), blanks=blanks)
    except DataError as error:
        raise DataError(f"{origin.source} cannot be used for training. {error}", code=error.code) from error
    if given and line_end not in found.tokens:
        line_end = ""
    preprocessing, notes = build_preprocessing(found, given, settings, targets, line_end)
    streams = {split: [preprocessing.encode(r.text) for r in texts[split]] for split in SPLITS if split in texts}
    names = {split: [r.name for r in texts[split]] for split in streams}
    if settings.documents:
        notes += _leave_out_short(streams, names, preprocessing.least)
    if settings.max_samples is not None:
        room = text_tokens_per_step(preprocessing)
        streams["train"] = _first_steps(streams["train"], settings.max_samples, room, preprocessing.least - 1)
    lengths = {split: sum(map(len, ids)) for split, ids in streams.items()}
    reject_short(lengths, preprocessing, origin.source, settings.documents)
    unknown = []
    if found.unknown is not None:
        strange = {split: int((torch.cat(ids) == found.unknown).sum()) for split, ids in streams.items()}
        unknown = [unknown_note(split, strange[split], lengths[split]) for split in streams]
    held = {split: preprocessing.stream_split(ids, names[split]) for split, ids in streams.items()}
    digests = [f"{split} {hashlib.sha256(_content(splits[split])).hexdigest()}" for split in streams]
    split_hash = hashlib.sha256(f"{digests} {sum(map(len, streams['train']))}".encode()).hexdigest()
    return build_dataset(origin, settings, split_hash, preprocessing, held, (*notes, *unknown))


def build_preprocessing(
    tokenizer: Tokenizer, given: bool, settings: DataSettings, targets: tuple[type[Target], ...], line_end: str = ""
) -> tuple[RunningPreprocessing | MaskedPreprocessing, Notes]:
    """Return the preprocessing of a token stream for a model with these targets, and notes.

    `given` says that the tokenizer was not fitted on this text. Raises SettingError.
    """
    preprocessing, said = (_masked_preprocessing if predicts_masked(targets) else _next_token_preprocessing)(
        tokenizer, settings, line_end
    )
    told = given or predicts_masked(targets)
    notes = [tokenizer_files.tokenizer_note(tokenizer, given) if told else None, *said]
    if not line_end and _leaves_out_line_ends(tokenizer):
        what = "words" if tokenizer.kind == "words" else "subwords"
        notes.append(f"Tokens are {what}: blanks and line ends between them are left out.")
    return preprocessing, notes


def text_tokens_per_step(preprocessing: StreamPreprocessing) -> int:
    """Return the number of text tokens in a step."""
    return preprocessing.spec.longest - (2 if preprocessing.spec.begin is not None else 0)


def _next_token_preprocessing(
    tokenizer: Tokenizer, settings: DataSettings, line_end: str
) -> tuple[RunningPreprocessing, Notes]:
    """Return the preprocessing for next-token prediction, and notes."""
    reject_changed(settings, FOR_MASKED, "is for masked-language modelling, and this model predicts the next token")
    if settings.special_tokens:
        raise IncompatibleSettingError(
            "special_tokens=true puts tokens around texts, and a text whose next token is predicted runs on: leave "
            "it out."
        )
    if settings.documents and settings.stateful:
        raise IncompatibleSettingError(
            "documents=true parts the text, and a state that is carried from step to step would reach from one "
            "document into the next: add stateful=false."
        )
    length = settings.length or STEPS.get(tokenizer.kind, OTHER_STEPS)
    vocab_size = len(tokenizer)
    spec = TextSpec(vocab_size, length, NextToken(vocab_size))
    return RunningPreprocessing(spec, tokenizer, line_end, settings.documents, bool(settings.stateful)), []


def _masked_preprocessing(
    tokenizer: Tokenizer, settings: DataSettings, line_end: str
) -> tuple[MaskedPreprocessing, Notes]:
    """Return the preprocessing for masked language modelling, and notes."""
    if settings.stateful:
        raise IncompatibleSettingError(
            "stateful=true is for models that predict the next token, and this one hidden ones: leave it."
        )
    if settings.whole_words and tokenizer.kind == "words":
        raise IncompatibleSettingError(
            "whole_words=true chooses the subwords of a word together, and tokens are words: leave it."
        )
    length = settings.length or MASKED_STEPS
    vocab_size = tokenizer_files.full_vocab_size(tokenizer, with_frame=True)
    mask = tokenizer_files.mask_for(tokenizer)
    target = Masked(vocab_size, mask, mask_prob=settings.mask_prob)
    frame = tokenizer_files.require_special_tokens(tokenizer, length) if settings.special_tokens else None
    spec = TextSpec(vocab_size, length, target, *(frame or ()))
    what = "tokens, in whole words," if settings.whole_words else "tokens"
    hidden = (
        f"{100 * settings.mask_prob:.3g} % of the {what} are predicted, at least one in each step, sampled "
        "again in every epoch: 80 % of these are masked, 10 % replaced by a random token, 10 % unchanged."
    )
    notes = [tokenizer_files.special_tokens_note(tokenizer, frame), hidden]
    return MaskedPreprocessing(spec, tokenizer, line_end, settings.documents, settings.whole_words), notes


def _order_notes(files: Mapping[str, Sequence[Path]]) -> list[str]:
    """Return notes on the order in which several files are read."""
    return [
        f"The {len(of_split):,} files{f' of the {split} split' if len(files) > 1 else ''} are read one after another, "
        f"from {of_split[0].name} to {of_split[-1].name}."
        for split, of_split in files.items()
        if len(of_split) > 1
    ]


def _leaves_out_line_ends(tokenizer: Tokenizer) -> bool:
    """Return whether the tokens do not represent line ends."""
    if tokenizer.kind == PRETRAINED:
        return "\n" not in tokenizer.decode(tokenizer.encode("a\nb"))
    return tokenizer.kind in ("words", "wordpiece")


def _leave_out_short(streams: dict[str, list[Tensor]], names: dict[str, list[str]], least: int) -> list[str]:
    """Remove documents with too few tokens, and return notes on them."""
    notes = []
    for split, of_split in streams.items():
        kept = [i for i, ids in enumerate(of_split) if len(ids) >= least]
        if left := len(of_split) - len(kept):
            notes.append(
                f"{left:,} of {len(of_split):,} documents of the {split} split have fewer than {least} tokens, and are "
                "left out."
            )
        streams[split], names[split] = [of_split[i] for i in kept], [names[split][i] for i in kept]
    return notes


def _first_steps(streams: Sequence[Tensor], limit: int, room: int, after: int) -> list[Tensor]:
    """Return the first `limit` steps of the streams: `room` tokens each, and `after` more to be predicted."""
    kept = []
    for ids in streams:
        if limit <= 0:
            break
        kept.append(ids[: limit * room + after])
        limit -= -(-(len(ids) - after) // room)
    return kept


def reject_short(
    lengths: Mapping[str, int], preprocessing: StreamPreprocessing, source: str, documents: bool = False
) -> None:
    """Raise DataError if a split with this number of tokens is too short for training or evaluation."""
    room, after = text_tokens_per_step(preprocessing), preprocessing.least - 1
    for split, count in lengths.items():
        least = room + after if split == "train" and not documents else preprocessing.least
        if count < least:
            step = f", a step of {room:,}{' and the one after it' if after else ''}"
            raise NotEnoughDataError(
                f"{source} is too short: its {split} split has {count:,} tokens ({preprocessing.tokenizer.kind}), and "
                f"at least {least:,} are needed{step if least > preprocessing.least else ''}.",
                fix="Give more text, or a smaller length." if split == "train" else f"Give more text, or {split}=0.",
            )


def unknown_note(split: str, count: int, among: int) -> str | None:
    """Return a sentence that counts the unknown tokens of a split; None if there are none."""
    if not count:
        return None
    return (
        f"{count:,} of {among:,} tokens of the {split} split ({100 * count / among:.2g} %) are unknown, not "
        "being in the vocabulary of the training split, or written as unknown: they count as one token."
    )


def _content(text: str | Sequence[TextFile]) -> bytes:
    """Return the content of a split as bytes: its text, or its documents separated by zeros."""
    return (text if isinstance(text, str) else "\0".join(r.text for r in text)).encode()
