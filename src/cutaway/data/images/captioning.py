"""Folders of images with captions: photos/captions.tsv beside the images, or photos/train/captions.tsv beside val/ and
test/. Each line is a file, a tab and a caption; a file on several lines has several captions.

Images are split, never captions: all captions of an image stand in one split. In training each caption is an example;
validation and test ask for each image once, and hold the answer to the nearest of its captions.

Lines in another form, images without a caption and captions without an image are all named in one error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from ...core import spec as specs
from ...core.errors import DataError, Problem
from ...core.spec import ANY_SIZE, ImageSizes, ImageSpec, Tokens
from ..build import Origin, assemble
from ..dataset_base import IGNORED, Batch, DataSet, Preprocessing, SequenceSplit, Split
from ..folders import CAPTIONS, IMAGES, SPLIT_FOLDERS, FileLookup, Found, entries, fingerprint_of, subfolders
from ..modalities import reject_changed
from ..pairs.dataset import target_of
from ..pairs.pair_files import read_lines
from ..pairs.transforms import MOST_TOKENS, Ids, TargetSide, distinct, reject_longer, separate
from ..parallel import Progress
from ..settings import DataSettings
from ..splits import Rows, complete_split, kept_of
from ..text.tokenizer_files import TOKENIZERS, tokenizer_from_json
from ..text.tokenizer_fitting import fit_tokenizer
from ..text.tokenizers import Tokenizer
from ..unusable_examples import look_through, reject_fill
from .build import image_notes, prepared
from .image_files import Looks, look_at, packed
from .transforms import SHARDED, FileSplit, ImagePreprocessing


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


HEADS = ("file", "file_name", "filename", "image", "path")  # what a first line begins with that names its columns
FIX = (
    f"Each line of {CAPTIONS} is the path of an image beside it, a tab and a caption. missing=drop leaves out captions "
    "and images that lack their other half, and counts them."
)
NO_CAPTION, NO_IMAGE, EMPTY = "images without a caption", "captions without an image", "empty captions"


@dataclass
class Captioned:
    """Images and what is written of them, before any is opened."""

    files: list[Path] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # what a person calls each
    texts: list[list[str]] = field(default_factory=list)  # the captions of each, one at least
    digests: list[str] = field(default_factory=list)  # sha256 of each captions.tsv
    left: dict[str, int] = field(default_factory=dict)  # what was left out, and how many of it
    problems: list[Problem] = field(default_factory=list)

    def reject(self, path: Path) -> None:
        """Raise DataError where something cannot be used, or nothing is there."""
        if self.problems:
            raise DataError(f"{path} and the images beside it do not go together:", self.problems, FIX)
        if not self.files:
            raise DataError(f"{path} names no image with a caption.", fix=FIX)

    def notes(self) -> list[str]:
        """A sentence on what was left out."""
        said = ", ".join(f"{what} ({count:,})" for what, count in self.left.items())
        return [f"Left out, as missing=drop asks: {said}."] if said else []

    def keep(self, rows: Rows) -> None:
        """Keep the images of these numbers alone."""
        self.files = [self.files[i] for i in rows]
        self.names = [self.names[i] for i in rows]
        self.texts = [self.texts[i] for i in rows]

    def add(self, other: Captioned) -> Rows:
        """Take in those of another folder, and give their numbers."""
        before = len(self.files)
        for mine, theirs in (
            (self.files, other.files), (self.names, other.names), (self.texts, other.texts),
            (self.digests, other.digests), (self.problems, other.problems),
        ):  # fmt: skip
            mine.extend(theirs)  # type: ignore[arg-type]  # each is of the same type as its other
        for what, count in other.left.items():
            self.left[what] = self.left.get(what, 0) + count
        return np.arange(before, len(self.files))


def read_folder(path: Path, *, drop: bool) -> tuple[Captioned, dict[str, Rows] | None]:
    """The images with captions of a folder, or of its train/, val/ and test/, and which are in each of these.

    With `drop` a caption without an image, an image without a caption and an empty caption are left out and counted.
    Raises DataError that names every line and file that cannot be used.
    """
    if (path / CAPTIONS).is_file():
        read = read_captions(path, drop=drop)
        read.reject(path / CAPTIONS)
        return read, None
    read, splits = Captioned(), {}
    for folder in subfolders(path):
        split = SPLIT_FOLDERS.get(folder.name.lower())
        if split is None:
            continue
        if split in splits:
            raise DataError(f"{path} has two folders for {split}, {folder.name}/ among them.", fix="Leave one there.")
        splits[split] = read.add(read_captions(folder, f"{folder.name}/", drop=drop))
    read.reject(path / "train" / CAPTIONS)
    return read, splits


def read_captions(folder: Path, prefix: str = "", *, drop: bool = False) -> Captioned:
    """The images of one folder and their captions, each image in the order of its first line; `prefix` stands before
    their names. What cannot be used is among `problems`. Raises DataError where there is no captions.tsv."""
    table = folder / CAPTIONS
    if not table.is_file():
        raise DataError(f"There is no {table}: images with captions have it beside them.", fix=FIX)
    lines, digest = read_lines(table)
    found: dict[str, list[str]] = {}
    read = Captioned(digests=[digest])

    def strange(what: str, name: str, why: str, *, may_drop: bool) -> None:
        if may_drop and drop:
            read.left[what] = read.left.get(what, 0) + 1
        else:
            read.problems.append(Problem(name, why))

    named: set[str] = set()
    lookup = FileLookup(folder)
    for number, line in enumerate(lines, 1):
        name = f"{prefix}{CAPTIONS}, line {number}"
        cells = [cell.strip() for cell in line.split("\t")]
        if number == 1 and cells[0].lower() in HEADS and not (folder / cells[0]).is_file():
            continue
        if len(cells) != 2:
            tabs = len(cells) - 1
            strange("", name, f"it has {tabs} tabs" if tabs else "it has no tab" if line else "it is empty",
                    may_drop=False)  # fmt: skip
            continue
        file, caption = cells
        path = Path(file)
        if not file or path.is_absolute() or ".." in path.parts:
            why = f"{file} leads out of the folder" if file else "it names no image"
            strange("", name, why, may_drop=False)
            continue
        image = lookup.find(file)
        path = path if image is None else image.relative_to(folder)
        named.add(str(path))
        if image is None:
            strange(NO_IMAGE, name, f"there is no image {file}", may_drop=True)
        elif not IMAGES.fits(path):
            strange("", name, f"{file} is no image file, by its name", may_drop=False)
        elif not caption:
            strange(EMPTY, name, f"the caption of {file} is empty", may_drop=True)
        else:
            found.setdefault(str(path), []).append(caption)
    for file in _images(folder, folder):
        if file not in named or (drop and file not in found):
            strange(NO_CAPTION, f"{prefix}{file}", f"no line of {CAPTIONS} names it", may_drop=True)
    read.files = [folder / file for file in found]
    read.names = [f"{prefix}{file}" for file in found]
    read.texts = list(found.values())
    return read


def _images(folder: Path, root: Path) -> list[str]:
    """The image files in a folder and in those within it, by their paths from `root`; hidden ones left out."""
    own = [str(p.relative_to(root)) for p in entries(folder) if IMAGES.fits(p) and p.is_file()]
    return [*own, *(file for inside in subfolders(folder) for file in _images(inside, root))]


class CaptionSplit(Split):
    """Examples are captions, each of an image, or images without one."""

    def __init__(
        self,
        images: Split,
        target: Tokens,
        captions: tuple[Tensor, Tensor] | None = None,
        of: Tensor | None = None,
        references: Sequence[list[Ids]] = (),
        texts: Sequence[list[str]] = (),
    ) -> None:
        """`captions` are ids (Σ lengths,) and lengths (n,), each with `end`, and `of` (n,) the image of each, which are
        all in their order unless given. `references` and `texts` are all the captions of each image, as ids without
        `end` and as they were written."""
        self._images, self._target = images, target
        self._of = torch.arange(len(images)) if of is None else of
        self._captions = SequenceSplit(*captions, None) if captions is not None else None
        self._references, self._texts = references, texts
        self.target = captions[0] if captions is not None else None  # token after token, (Σ lengths,)

    def __len__(self) -> int:
        return len(self._of)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Inputs: images (N, C, H, W) and the caption so far (N, S), which begins with `begin`. Target (N, S): what
        comes next, IGNORED after `end`. Without captions S is 1 and the target is empty."""
        chosen = list(order)
        for index, (inputs, _) in zip(chosen, self._images.batches([self._of[rows] for rows in chosen], seed)):
            begin = torch.full((len(index), 1), self._target.begin)
            if self._captions is None:
                yield Batch((*inputs, begin), torch.empty(len(index), 0))
                continue
            target, real = next(self._captions.batches([index])).inputs  # (N, S)
            so_far = torch.cat([begin, target[:, :-1]], 1).masked_fill(~real, self._target.padding)
            yield Batch((*inputs, so_far), target.masked_fill(~real, IGNORED))

    def references(self, i: int) -> list[Ids]:
        """All the right answers to example i, as ids without `end`; none where it has no caption."""
        return self._references[int(self._of[i])] if self._captions is not None else []

    @property
    def texts(self) -> Callable[[int], list[str]] | None:
        """The right answers to an example as they were written; None without captions."""
        return (lambda i: self._texts[int(self._of[i])]) if self._captions is not None else None

    def name(self, i: int) -> str:
        """What a person calls the image."""
        return self._images.name(int(self._of[i]))

    def image(self, i: int) -> Image | None:
        """The image as it was given."""
        return self._images.image(int(self._of[i]))

    def row(self, i: int) -> dict[str, str] | None:
        """The captions of the image; None where it has none."""
        if self._captions is None:
            return None
        texts = self._texts[int(self._of[i])]
        return {"caption": texts[0], **({"also right": "; ".join(texts[1:])} if texts[1:] else {})}

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Every image that cannot be decoded, with its cause."""
        look: Callable[[Progress | None], list[Problem]] | None = getattr(self._images, "damaged", None)
        return look(progress) if look is not None else []


def as_split(images: Split, texts: Sequence[list[str]], side: TargetSide, *, once: bool, most: int = 0) -> CaptionSplit:
    """The split of these images with their captions, one at least of each. With `once` each image is asked once, with
    its first caption; else each caption is an example. Either way all captions of an image are right answers. Raises
    DataError for a caption of more than MOST_TOKENS tokens, unless training had as many or `most` says more."""
    flat = [text for of_image in texts for text in of_image]
    of = torch.repeat_interleave(torch.arange(len(texts)), torch.tensor([len(of_image) for of_image in texts]))
    encoded = side.encode(flat)
    reject_longer(encoded[1] - 1, max(MOST_TOKENS, side.target.longest - 1, most), flat.__getitem__)
    ids = iter(separate(encoded))
    references = [distinct(next(ids)[:-1] for _ in of_image) for of_image in texts]
    if not once:
        return CaptionSplit(images, side.target, encoded, of, references, list(texts))
    first = side.encode([of_image[0] for of_image in texts])
    return CaptionSplit(images, side.target, first, None, references, list(texts))
