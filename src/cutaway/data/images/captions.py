"""Folders of images with captions: photos/captions.tsv beside the images, or photos/train/captions.tsv beside val/ and
test/. Each line is a file, a tab and a caption; a file on several lines has several captions.

Images are split, never captions: all captions of an image stand in one split. In training each caption is an example;
validation and test ask for each image once, and hold the answer to the nearest of its captions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ... import spec as specs
from ...errors import DataError
from ...spec import ANY_SIZE, ImageSizes, ImageSpec, Tokens
from ..assembly import Origin, assemble
from ..folders import CAPTIONS, Found, fingerprint_of
from ..kinds import reject_changed
from ..pairs.opening import target_of
from ..pairs.preprocessing import MOST_TOKENS, TargetSide, reject_longer
from ..sets import DataSet, Preprocessing, Split
from ..settings import DataSettings
from ..splits import Rows, complete_split, kept_of
from ..text.fitting import fit_tokenizer
from ..text.tokenizer_files import TOKENIZERS, tokenizer_from_json
from ..text.tokenizers import Tokenizer
from ..unusable import look_through, reject_fill
from .caption_reading import read_captions, read_folder
from .caption_split import CaptionSplit, as_split
from .file_split import FileSplit
from .files import Looks, look_at, packed
from .prepared import image_notes, prepared
from .preprocessing import ImagePreprocessing
from .sharded import SHARDED


def open_captions(path: Path, settings: DataSettings, sizes: ImageSizes = ANY_SIZE) -> DataSet:
    """Read a folder of images with captions: look at every file, split, fit tokenizer and preprocessing on the training
    split. Raises DataError that names every line and file that cannot be used."""
    reject_fill(settings)
    read, splits = read_folder(path, drop=settings.missing == "drop")
    usable = look_through(read.files, SHARDED, look_at, settings)
    if usable.notes:
        splits = kept_of(splits, usable.rows)
        read.keep(usable.rows)
    seen = Looks(packed(usable.looks))
    indices = complete_split(np.zeros(len(read.files), np.int64), ["image"], splits, settings)
    side, texts, indices, notes = fit_captions(read.texts, indices, settings)
    found = Found(("image",), read.files, read.names, np.arange(len(read.files)))  # the label of each is its number
    images, parts, enlarged = prepared(found, seen, indices, lambda _: side.target, settings, sizes)
    origin = Origin(
        path.resolve().name,
        str(path),
        fingerprint_of([*read.names, *(f"{CAPTIONS} {k}" for k in range(len(read.digests)))],
                       [*(s.digest for s in seen), *read.digests]),
        read.notes(),
    )  # fmt: skip
    notes += [*usable.notes, *image_notes(found, seen, indices, images.spec.channels), enlarged]
    return captions_dataset(origin, images, side, parts, indices, texts, settings, notes)


def captions_dataset(
    origin: Origin,
    images: ImagePreprocessing,
    side: TargetSide,
    parts: Mapping[str, Split],
    indices: Mapping[str, Rows],
    texts: Sequence[list[str]],
    settings: DataSettings,
    notes: Sequence[str | None],
) -> DataSet:
    """The data set of images prepared, split by split, as `parts`, and the captions of all, of which `indices` are in
    each split. Raises SettingError for augmentation that captions cannot follow."""
    reject_changed(settings, ("mixup",), "blends images, and captions cannot be blended")
    if settings.flip:
        notes = [*notes, "flip=true mirrors images and not their captions: what is left stands on the right then."]
    preprocessing = CaptionPreprocessing(images, side.tokenizer)
    found = {
        name: as_split(parts[name], [texts[i] for i in rows], side, once=name != "train", most=settings.length or 0)
        for name, rows in indices.items()
    }
    return assemble(origin, settings, indices, preprocessing, found, [*notes, *_unknown(found, side.target)])


def fit_captions(
    texts: Sequence[Sequence[str]], indices: Mapping[str, Rows], settings: DataSettings, column: str = "caption"
) -> tuple[TargetSide, list[list[str]], dict[str, Rows], list[str | None]]:
    """The tokenizer fitted on the captions of the training split; the captions that are kept, each once, and the images
    of each split that have one; and what to say of them. With `length`, longer captions are left out."""
    kept = [list(dict.fromkeys(of_image)) for of_image in texts]
    repeated = sum(map(len, texts)) - sum(map(len, kept))
    notes: list[str | None] = [f"{repeated:,} captions stand there twice for one image: once is read." * bool(repeated)]
    tokenizer, given = fit_tokenizer(settings, "words", [text for i in indices["train"] for text in kept[i]])
    side = TargetSide(dataclasses.replace(target_of(tokenizer, settings), column=column, sentences=True), tokenizer)
    if settings.length is not None:
        kept, indices, cut = _short_enough(kept, indices, side, settings.length)
        notes.append(cut)
    taught = [text for i in indices["train"] for text in kept[i]]
    lengths = side.encode(taught)[1]
    reject_longer(lengths - 1, max(MOST_TOKENS, settings.length or 0), taught.__getitem__)
    side = TargetSide(dataclasses.replace(side.target, longest=int(lengths.max())), tokenizer)
    what = "the tokenizer of " + settings.tokenizer if given else tokenizer.kind
    several = f", {len(lengths) / len(indices['train']):.1f} for an image" * (len(lengths) > len(indices["train"]))
    notes.append(
        f"{len(lengths):,} captions to learn from{several}, cut into {what}: {len(tokenizer) - 2:,} different ones, "
        f"at most {int(lengths.max()) - 1:,} in a caption. In training each caption is an example; validation and test "
        "ask for each image once, and the nearest of its captions counts."
    )
    return side, kept, dict(indices), notes


def _short_enough(
    texts: Sequence[list[str]], indices: Mapping[str, Rows], side: TargetSide, most: int
) -> tuple[list[list[str]], dict[str, Rows], str | None]:
    """The captions of at most so many tokens, the images of each split that have one left, and a note that counts the
    others. Raises DataError where a split would be empty."""
    kept = [
        [text for text, length in zip(of_image, side.encode(of_image)[1].tolist()) if length - 1 <= most]
        for of_image in texts
    ]
    found = {name: np.array([i for i in rows if kept[i]], np.int64) for name, rows in indices.items()}
    for name, rows in found.items():
        if not len(rows):
            raise DataError(f"length={most} leaves no caption to the {name} split.", fix="Give a larger length.")
    left = sum(map(len, texts)) - sum(map(len, kept))
    return kept, found, f"Left out: {left:,} captions of more than length={most} tokens." if left else None


@dataclass(frozen=True)
class CaptionPreprocessing:
    """How an image becomes a tensor (C, H, W), a caption ids, and ids words again."""

    images: ImagePreprocessing  # its spec has the captions as target
    target_tokenizer: Tokenizer

    SCHEMA: ClassVar[Mapping[str, Any]] = {**ImagePreprocessing.SCHEMA, "tokenizer": TOKENIZERS}

    @property
    def spec(self) -> ImageSpec:
        """What an example looks like."""
        return self.images.spec

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean of each channel that images are normalised with."""
        return self.images.mean

    @property
    def std(self) -> tuple[float, ...]:
        """Likewise the standard deviation."""
        return self.images.std

    @property
    def written(self) -> TargetSide:
        """The side of the captions."""
        assert isinstance(self.spec.target, Tokens), "captions are tokens"
        return TargetSide(self.spec.target, self.target_tokenizer)

    def words(self, ids: Iterable[int]) -> str:
        """The caption that these ids stand for; padding, begin and end are left out."""
        return self.written.words(ids)

    def examples(self, sources: Sequence[Any]) -> CaptionSplit:
        """Images without captions: what `ImagePreprocessing.examples` takes."""
        return CaptionSplit(self.images.examples(sources), self.written.target)

    def labelled(self, source: str | Path) -> CaptionSplit:
        """The images of a folder with captions.tsv, with its captions; each image once. Raises DataError where lines
        or files cannot be used."""
        path = Path(source).expanduser()
        read = read_captions(path)
        read.reject(path / CAPTIONS)
        look_at(read.files)
        split = FileSplit(read.files, None, self.images, read.names)
        return as_split(split, [list(dict.fromkeys(of_image)) for of_image in read.texts], self.written, once=True)

    def adopted(self, split: Split, theirs: Preprocessing) -> CaptionSplit:
        """The images of another set with its captions, each image once."""
        del theirs
        assert isinstance(split, CaptionSplit)
        assert split.texts is not None, "sets to evaluate on have captions"
        images = self.images.examples([split.image(i) for i in range(len(split))])
        return as_split(images, [split.texts(i) for i in range(len(split))], self.written, once=True)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {**self.images.to_json(), "form": "captions", "tokenizer": self.target_tokenizer.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CaptionPreprocessing:
        """The object that `to_json` wrote. Raises ValueError where the document, which is as SCHEMA says, cannot be."""
        specs.read_as(data["spec"], ImageSpec, Tokens)
        found = cls(ImagePreprocessing.from_json(data), tokenizer_from_json(data["tokenizer"]))
        size, said = found.written.size(), found.spec.target.outputs
        # A model may have been given more rows than its tokenizer has tokens.
        if size != said and not (found.written.pretrained and said >= size):
            raise ValueError(f"a tokenizer of {size} ids and a spec of {said}")
        return found


def _unknown(found: Mapping[str, CaptionSplit], target: Tokens) -> list[str]:
    """A note that counts the captions of the other splits with words that are in no vocabulary."""
    said = []
    for name, split in found.items():
        count = sum(target.unknown in ids for i in range(len(split)) for ids in split.references(i))
        said += [f"{count:,} in {name}"] if count else []
    return [f"Captions with words outside the vocabulary, which no answer can give: {', '.join(said)}."] if said else []
