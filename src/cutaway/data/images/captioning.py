"""Image captioning data from folders with a captions.tsv.

The layout is photos/captions.tsv next to the images, or photos/train/captions.tsv with val/ and test/. Each line holds
a file, a tab and a caption. An image with several lines has several captions.

Images are split, not captions: all captions of an image are in one split. In training each caption is an example.
Validation and test use each image once and compare the answer with the closest of its captions.

For a model of image tokens the caption is the input and the image is the target (`text_to_image.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from ...core import spec as specs
from ...core.errors import NotEnoughDataError, Problem
from ...core.spec import ANY_SIZE, ImageSizes, ImageSpec, ImageTokens, Target, Tokens
from ..build import DataSource, build_dataset
from ..dataset_base import IGNORED, Batch, DataSet, Preprocessing, SequenceSplit, Split
from ..findings import duplicate_warning, reject_fill
from ..folders import CAPTIONS, fingerprint_files
from ..modalities import reject_changed
from ..pairs.dataset import token_target
from ..pairs.transforms import MOST_TOKENS, Ids, TargetSide, reject_longer, split_ids, unique_answers
from ..parallel import Progress
from ..settings import DataSettings
from ..splits import Rows, complete_split, filter_splits
from ..streaming.webdataset import inspect_files
from ..text.tokenizer_files import TOKENIZERS, fit_tokenizer, tokenizer_from_json
from ..text.tokenizers import Tokenizer
from .caption_files import read_captions, read_folder
from .dataset import ImageFiles, fit_sample
from .image_files import ImageFileTable, inspect_images, pack_image_info
from .text_to_image import CaptionedTokenPreprocessing, CaptionedTokenSplit
from .tokens import TokenPreprocessing, TokenSplit
from .transforms import SHARDED, FileSplit, ImagePreprocessing, OfImages, Shape, build_image_target


def open_captions(
    path: Path, settings: DataSettings, sizes: ImageSizes = ANY_SIZE, targets: tuple[type[Target], ...] = ()
) -> DataSet:
    """Load a folder of images with captions.

    Checks every file, splits the images, and fits tokenizer and preprocessing on the training split. The target is the
    caption, or the image if `targets`, those of the model, ask for image tokens. Raises DataError that names every line
    and file that cannot be used.
    """
    reject_fill(settings)
    read, splits = read_folder(path, drop=settings.missing == "drop")
    usable = inspect_files(read.files, SHARDED, inspect_images, settings)
    if usable.notes:
        splits = filter_splits(splits, usable.rows)
        read.keep(usable.rows)
    seen = ImageFileTable(pack_image_info(usable.looks))
    indices = complete_split(np.zeros(len(read.files), np.int64), ["image"], splits, settings)
    side, texts, indices, notes = fit_captions(read.texts, indices, settings, targets)
    files = ImageFiles(read.files, read.names, seen)
    sample = files.sample(indices, caption_target(side, settings, targets), settings, sizes)
    images = fit_sample(sample, settings)
    numbers = np.arange(len(read.files))  # the label is the index of the image
    parts = files.splits(numbers, indices, images, sample.held, settings.workers)
    origin = DataSource(
        path.resolve().name,
        str(path),
        fingerprint_files([*read.names, *(f"{CAPTIONS} {k}" for k in range(len(read.digests)))],
                       [*(s.digest for s in seen), *read.digests]),
        read.notes(),
    )  # fmt: skip
    straddle = duplicate_warning(seen.alike, indices, read.names.__getitem__, "images")
    notes += [*usable.notes, *files.notes(images.spec.channels), straddle, sample.enlarged]
    return captions_dataset(origin, images, side, parts, indices, texts, settings, notes)


def caption_target(
    side: TargetSide, settings: DataSettings, targets: tuple[type[Target], ...]
) -> Callable[[Shape], OfImages]:
    """Return a function from the shape of images to the target: their captions, or their tokens if `targets` ask so."""
    if ImageTokens in targets:
        return lambda shape: build_image_target((), shape, targets, settings)
    return lambda _: side.target


def captions_dataset(
    origin: DataSource,
    images: ImagePreprocessing,
    side: TargetSide,
    parts: Mapping[str, Split],
    indices: Mapping[str, Rows],
    texts: Sequence[list[str]],
    settings: DataSettings,
    notes: Sequence[str | None],
) -> DataSet:
    """Build the data set from prepared image splits and the captions of all images.

    `parts` maps each split to its images, `indices` to the rows of `texts`. Raises SettingError for augmentation that
    cannot be applied to captions.
    """
    if isinstance(images, TokenPreprocessing):
        drawn = CaptionedTokenPreprocessing.of_images(images, side.tokenizer, side.target.longest - 1)
        splits = {
            name: CaptionedTokenSplit(
                cast(TokenSplit, parts[name]).images, drawn, [texts[i] for i in rows], once=name != "train"
            )
            for name, rows in indices.items()
        }
        return build_dataset(origin, settings, indices, drawn, splits, notes)
    reject_changed(settings, ("mixup",), "blends images, and captions cannot be blended")
    if settings.flip:
        notes = [*notes, "flip=true mirrors images but not their captions: an object on the left is then on the right."]
    preprocessing = CaptionPreprocessing(images, side.tokenizer)
    found = {
        name: build_caption_split(
            parts[name], [texts[i] for i in rows], side, once=name != "train", most=settings.length or 0
        )
        for name, rows in indices.items()
    }
    return build_dataset(origin, settings, indices, preprocessing, found, [*notes, *_unknown(found, side.target)])


def fit_captions(
    texts: Sequence[Sequence[str]],
    indices: Mapping[str, Rows],
    settings: DataSettings,
    targets: tuple[type[Target], ...] = (),
    column: str = "caption",
) -> tuple[TargetSide, list[list[str]], dict[str, Rows], list[str | None]]:
    """Fit the tokenizer on the captions of the training split.

    Returns the target side, the distinct captions of each image, the images of each split that have a caption, and
    notes. With `length`, longer captions are left out.
    """
    kept = [list(dict.fromkeys(of_image)) for of_image in texts]
    repeated = sum(map(len, texts)) - sum(map(len, kept))
    notes: list[str | None] = [
        f"{repeated:,} captions are repeated for the same image: each is read once." * bool(repeated)
    ]
    tokenizer, given = fit_tokenizer(settings, "words", [text for i in indices["train"] for text in kept[i]])
    side = TargetSide(dataclasses.replace(token_target(tokenizer, settings), column=column, sentences=True), tokenizer)
    if settings.length is not None:
        kept, indices, cut = _short_enough(kept, indices, side, settings.length)
        notes.append(cut)
    taught = [text for i in indices["train"] for text in kept[i]]
    lengths = side.encode(taught)[1]
    reject_longer(lengths - 1, max(MOST_TOKENS, settings.length or 0), taught.__getitem__)
    side = TargetSide(dataclasses.replace(side.target, longest=int(lengths.max())), tokenizer)
    what = "the tokenizer of " + settings.tokenizer if given else tokenizer.kind
    several = f", {len(lengths) / len(indices['train']):.1f} for an image" * (len(lengths) > len(indices["train"]))
    used = "use each image once, with its first caption"
    if ImageTokens not in targets:
        used = "ask for each image once, and the nearest of its captions counts"
    notes.append(
        f"{len(lengths):,} captions to learn from{several}, cut into {what}: {len(tokenizer) - 2:,} different ones, "
        f"at most {int(lengths.max()) - 1:,} in a caption. In training each caption is an example; validation and test "
        f"{used}."
    )
    return side, kept, dict(indices), notes


def _short_enough(
    texts: Sequence[list[str]], indices: Mapping[str, Rows], side: TargetSide, most: int
) -> tuple[list[list[str]], dict[str, Rows], str | None]:
    """Keep captions of at most `most` tokens and the images that still have one, with a note that counts the others.

    Raises DataError if a split would be empty.
    """
    kept = [
        [text for text, length in zip(of_image, side.encode(of_image)[1].tolist()) if length - 1 <= most]
        for of_image in texts
    ]
    found = {name: np.array([i for i in rows if kept[i]], np.int64) for name, rows in indices.items()}
    for name, rows in found.items():
        if not len(rows):
            raise NotEnoughDataError(
                f"length={most} leaves no caption to the {name} split.", fix="Give a larger length."
            )
    left = sum(map(len, texts)) - sum(map(len, kept))
    return kept, found, f"Left out: {left:,} captions of more than length={most} tokens." if left else None


@dataclass(frozen=True)
class CaptionPreprocessing:
    """Preprocessing of images to tensors (C, H, W) and of captions to token ids and back."""

    images: ImagePreprocessing  # its spec has the captions as target
    target_tokenizer: Tokenizer

    SCHEMA: ClassVar[Mapping[str, Any]] = {**ImagePreprocessing.SCHEMA, "tokenizer": TOKENIZERS}

    @property
    def spec(self) -> ImageSpec:
        """Return the specification of an example."""
        return self.images.spec

    @property
    def mean(self) -> tuple[float, ...]:
        """Return the channel means used to normalise images."""
        return self.images.mean

    @property
    def std(self) -> tuple[float, ...]:
        """Return the channel standard deviations used to normalise images."""
        return self.images.std

    @property
    def written(self) -> TargetSide:
        """Return the target side, with the tokenizer of the captions."""
        assert isinstance(self.spec.target, Tokens), "captions are tokens"
        return TargetSide(self.spec.target, self.target_tokenizer)

    def words(self, ids: Iterable[int]) -> str:
        """Decode token ids to a caption, without padding, begin and end tokens."""
        return self.written.words(ids)

    def examples(self, sources: Sequence[Any]) -> CaptionSplit:
        """Build a split of images without captions. Accepts what `ImagePreprocessing.examples` accepts."""
        return CaptionSplit(self.images.examples(sources), self.written.target)

    def labelled(self, source: str | Path) -> CaptionSplit:
        """Load the images of a folder with captions.tsv and their captions, each image once.

        Raises DataError if lines or files cannot be used.
        """
        path = Path(source).expanduser()
        read = read_captions(path)
        read.reject(path / CAPTIONS)
        inspect_images(read.files)
        split = FileSplit(read.files, None, self.images, read.names)
        return build_caption_split(
            split, [list(dict.fromkeys(of_image)) for of_image in read.texts], self.written, once=True
        )

    def adopted(self, split: Split, theirs: Preprocessing) -> CaptionSplit:
        """Convert the images and captions of another data set, each image once."""
        del theirs
        assert isinstance(split, CaptionSplit)
        assert split.texts is not None, "sets to evaluate on have captions"
        images = self.images.examples([split.image(i) for i in range(len(split))])
        return build_caption_split(images, [split.texts(i) for i in range(len(split))], self.written, once=True)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return {**self.images.to_json(), "form": "captions", "tokenizer": self.target_tokenizer.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CaptionPreprocessing:
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        specs.read_spec(data["spec"], ImageSpec, Tokens)
        found = cls(ImagePreprocessing.from_json(data), tokenizer_from_json(data["tokenizer"]))
        size, declared_size = found.written.size(), found.spec.target.outputs
        # A model may have more output rows than its tokenizer has tokens.
        if size != declared_size and not (found.written.pretrained and declared_size >= size):
            raise ValueError(f"a tokenizer of {size} ids and a spec of {declared_size}")
        return found


def _unknown(found: Mapping[str, CaptionSplit], target: Tokens) -> list[str]:
    """Return a note that counts the validation and test captions with out-of-vocabulary words."""
    rare = []
    for name, split in found.items():
        count = sum(target.unknown in ids for i in range(len(split)) for ids in split.references(i))
        rare += [f"{count:,} in {name}"] if count else []
    return [f"Captions with words outside the vocabulary, which no answer can give: {', '.join(rare)}."] if rare else []


class CaptionSplit(Split):
    """A split whose examples are captions, each with its image, or images without captions."""

    def __init__(
        self,
        images: Split,
        target: Tokens,
        captions: tuple[Tensor, Tensor] | None = None,
        of: Tensor | None = None,
        references: Sequence[list[Ids]] = (),
        texts: Sequence[list[str]] = (),
    ) -> None:
        """Build the split from images and encoded captions.

        `captions` holds the ids (Σ lengths,) and lengths (n,), each caption with its end token. `of` (n,) is the image
        index of each example, by default all images in order. `references` and `texts` are all captions of each image,
        as ids without the end token and as text.
        """
        self._images, self._target = images, target
        self._of = torch.arange(len(images)) if of is None else of
        self._captions = SequenceSplit(*captions, None) if captions is not None else None
        self._references, self._texts = references, texts
        self.target = captions[0] if captions is not None else None  # the ids of all captions, (Σ lengths,)

    def __len__(self) -> int:
        return len(self._of)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches of images with teacher-forced captions.

        Inputs are images (N, C, H, W) and the shifted caption (N, S), which starts with `begin`. The target (N, S) is
        the next token, IGNORED after `end`. Without captions S is 1 and the target is empty.
        """
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
        """Return all reference captions of example i as ids without `end`, or an empty list without captions."""
        return self._references[int(self._of[i])] if self._captions is not None else []

    @property
    def texts(self) -> Callable[[int], list[str]] | None:
        """Return a function that gives the reference captions of an example as text, or None without captions."""
        return (lambda i: self._texts[int(self._of[i])]) if self._captions is not None else None

    def name(self, i: int) -> str:
        """Return the display name of the image."""
        return self._images.name(int(self._of[i]))

    def image(self, i: int) -> Image | None:
        """Return the original image."""
        return self._images.image(int(self._of[i]))

    def row(self, i: int) -> dict[str, str] | None:
        """Return the captions of the image, or None without captions."""
        if self._captions is None:
            return None
        texts = self._texts[int(self._of[i])]
        return {"caption": texts[0], **({"also right": "; ".join(texts[1:])} if texts[1:] else {})}

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Return a problem with its cause for every image that cannot be decoded."""
        look: Callable[[Progress | None], list[Problem]] | None = getattr(self._images, "damaged", None)
        return look(progress) if look is not None else []


def build_caption_split(
    images: Split, texts: Sequence[list[str]], side: TargetSide, *, once: bool, most: int = 0
) -> CaptionSplit:
    """Build the split of these images with their captions, at least one for each image.

    With `once`, each image is one example with its first caption; otherwise each caption is an example. In both cases
    all captions of an image are references. Raises DataError for a caption of more than MOST_TOKENS tokens, unless
    training had captions of that length or `most` allows more.
    """
    flat = [text for of_image in texts for text in of_image]
    of = torch.repeat_interleave(torch.arange(len(texts)), torch.tensor([len(of_image) for of_image in texts]))
    encoded = side.encode(flat)
    reject_longer(encoded[1] - 1, max(MOST_TOKENS, side.target.longest - 1, most), flat.__getitem__)
    ids = iter(split_ids(encoded))
    references = [unique_answers(next(ids)[:-1] for _ in of_image) for of_image in texts]
    if not once:
        return CaptionSplit(images, side.target, encoded, of, references, list(texts))
    first = side.encode([of_image[0] for of_image in texts])
    return CaptionSplit(images, side.target, first, None, references, list(texts))
