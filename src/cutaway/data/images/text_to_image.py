"""Images as tokens after their captions, for text-to-image generation.

A. Ramesh et al., Zero-shot text-to-image generation, 2021, section 2, <https://arxiv.org/abs/2102.12092>: one
Transformer reads the tokens of a caption and then those of its image. Here the image's tokens are pixels (`tokens.py`),
and only they are predicted:

    p(image | caption) = Π_t p(token_t | caption, tokens before it)

    input     a  red  circle  above  a  blue  square  ·  start  1  2  3 …        · is padding, up to the longest caption
    output                                                1    2  3  4 …

The tokenizer and the longest caption are those of the training split; longer captions of other splits are cut. An image
without a caption has padding alone. In training each caption is an example; validation and test use each image once,
with its first caption.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...core.errors import SettingError, shorten
from ..dataset_base import Batch, Preprocessing, Split
from ..folders import CAPTIONS
from ..text.tokenizer_files import TOKENIZERS, tokenizer_from_json
from ..text.tokenizers import Tokenizer
from .caption_files import read_captions
from .image_files import inspect_images
from .tokens import TokenPreprocessing, TokenSplit
from .transforms import FileSplit

PADDING = 0  # the word id of padding


@dataclass(frozen=True)
class CaptionedTokenPreprocessing(TokenPreprocessing):
    """Preprocessing of an image and its caption to tokens, and of tokens back to pixels."""

    tokenizer: Tokenizer  # of captions

    SCHEMA: ClassVar[dict[str, Any]] = {**TokenPreprocessing.SCHEMA, "tokenizer": TOKENIZERS}

    @classmethod
    def of_images(cls, images: TokenPreprocessing, tokenizer: Tokenizer, longest: int) -> CaptionedTokenPreprocessing:
        """Return the preprocessing of these images with captions of at most `longest` tokens."""
        words = len(tokenizer) + _shift(tokenizer)
        target = dataclasses.replace(images.target, words=words, caption=longest)
        spec = dataclasses.replace(images.spec, target=target)
        return cls(**vars(images) | {"spec": spec}, tokenizer=tokenizer)

    def encode(self, captions: Sequence[str]) -> Tensor:
        """Return the tokens of captions, (n, caption): padded, or cut to the longest."""
        longest, first = self.target.caption, self.target.no_class + 1
        found = torch.full((len(captions), longest), PADDING)
        for row, ids in zip(found, self.tokenizer.encode_many(list(captions))):
            some = ids[:longest]
            row[: len(some)] = torch.tensor(some, dtype=torch.int64) + _shift(self.tokenizer)
        return found + first

    def words(self, tokens: Tensor) -> list[str]:
        """Return the word of each token (caption,) of a caption, as in the vocabulary; padding is empty."""
        ids = (tokens - self.target.no_class - 1).tolist()
        known = self.tokenizer.tokens
        return ["" if id == PADDING else known[id - _shift(self.tokenizer)] for id in ids]

    def unknown(self, text: str) -> list[str]:
        """Return the distinct words of a text that the tokenizer does not know."""
        unknown = self.tokenizer.unknown
        return [word for word in dict.fromkeys(text.split()) if unknown in self.tokenizer.encode(word)]

    def prompts(self, labels: Tensor | None, count: int, text: str | None = None) -> Tensor:
        """Return the inputs before the first pixel, (count, caption + 1): the caption and the start token.

        Without a text, the caption is padding alone. Raises SettingError for a text of unknown words alone, or one that
        is longer than the captions of training.
        """
        del labels  # images with captions have no classes
        if text is None:
            caption = self.encode([""])
        else:
            self._reject(text)
            caption = self.encode([text])
        start = self.start_tokens(None, 1)[:, None]
        return torch.cat([caption, start], dim=1).expand(count, -1)

    def _reject(self, text: str) -> None:
        """Raise SettingError for a text that is empty, too long, or of unknown words alone."""
        ids, longest = self.tokenizer.encode(text), self.target.caption
        if not ids:
            raise SettingError(f"Invalid prompt={text!r}: has no words. Leave it out for images without a caption.")
        if len(ids) > longest:
            raise SettingError(
                f"Invalid prompt={shorten(text)!r}: has {len(ids):,} tokens, and the longest caption in training has "
                f"{longest:,}. Shorten it."
            )
        if set(ids) == {self.tokenizer.unknown}:
            raise SettingError(
                f"Invalid prompt={shorten(text)!r}: none of its words is in the captions of training. Known words are, "
                f"for example, {', '.join(self.tokenizer.tokens[2:22])}."
            )

    def add_inputs(self, split: Split) -> Split:
        """Return the split with tokens in place of images, without captions."""
        return CaptionedTokenSplit(split, self)

    def labelled(self, source: str | Path) -> Split:
        """Load the images of a folder with captions.tsv, each once with its first caption; or a folder of images.

        Raises DataError if lines or files cannot be used.
        """
        path = Path(source).expanduser()
        if not (path / CAPTIONS).is_file():
            return super().labelled(source)
        read = read_captions(path)
        read.reject(path / CAPTIONS)
        inspect_images(read.files)
        return CaptionedTokenSplit(FileSplit(read.files, None, self, read.names), self, read.texts)

    def adopted(self, split: Split, theirs: Preprocessing) -> Split:
        """Convert the images and captions of another data set, each image once."""
        del theirs
        images = [split.image(i) for i in range(len(split))]
        texts: Callable[[int], list[str]] | None = getattr(split, "texts", None)
        captions = None if texts is None else [texts(i) for i in range(len(split))]
        examples = self.examples(images)
        assert isinstance(examples, TokenSplit)
        return CaptionedTokenSplit(examples.images, self, captions)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return super().to_json() | {"form": "captioned-tokens", "tokenizer": self.tokenizer.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CaptionedTokenPreprocessing:
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        images, tokenizer = TokenPreprocessing.from_json(data), tokenizer_from_json(data["tokenizer"])
        target, words = images.target, len(tokenizer) + _shift(tokenizer)
        if target.words != words or not target.caption or target.names:
            raise ValueError(
                f"a tokenizer of {words} tokens for {target.words} words, in captions of {target.caption} and "
                f"{len(target.names)} classes"
            )
        return cls(**vars(images), tokenizer=tokenizer)


class CaptionedTokenSplit(TokenSplit):
    """A split that gives the tokens of captions and of their images.

    Inputs are the caption, the start token and all pixels but the last, (N, caption + H · W); the target is the pixels.
    """

    preprocessing: CaptionedTokenPreprocessing

    def __init__(
        self,
        images: Split,
        preprocessing: CaptionedTokenPreprocessing,
        texts: Sequence[Sequence[str]] | None = None,
        *,
        once: bool = True,
    ) -> None:
        """Build the split from images and the captions of each, at least one.

        With `once`, each image is one example with its first caption; otherwise each caption is an example. Without
        `texts`, no image has a caption.
        """
        super().__init__(images, preprocessing)
        self._texts = None if texts is None else [list(of_image[:1] if once else of_image) for of_image in texts]
        counts = [1] * len(images) if self._texts is None else [len(of_image) for of_image in self._texts]
        self._of = torch.repeat_interleave(torch.arange(len(images)), torch.tensor(counts))  # image of each example
        self.captions = [""] * len(images) if self._texts is None else [one for own in self._texts for one in own]
        self._tokens = preprocessing.encode(self.captions)  # (n, caption)
        self.target = torch.zeros(len(self), dtype=torch.int64)  # as that of images without classes

    def __len__(self) -> int:
        return len(self._of)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of tokens."""
        chosen = list(order)
        for rows, ((x, *_), _) in zip(chosen, self.images.batches([self._of[rows] for rows in chosen], seed)):
            tokens = self.preprocessing.tokens(x)
            yield Batch((torch.cat([self.prompts(rows).to(tokens), tokens[:, :-1]], dim=1),), tokens)

    def prompts(self, rows: Tensor) -> Tensor:
        """Return the captions of these examples and the start token, (n, caption + 1)."""
        return torch.cat([self._tokens[rows], self.preprocessing.start_tokens(None, len(rows))[:, None]], dim=1)

    def name(self, i: int) -> str:
        """Return the display name of the image."""
        return self.images.name(int(self._of[i]))

    def image(self, i: int) -> Any:
        """Return the original image of example i."""
        return self.images.image(int(self._of[i]))

    @property
    def texts(self) -> Callable[[int], list[str]] | None:
        """Return a function that gives the caption of an example as a list, or None without captions."""
        return None if self._texts is None else (lambda i: [self.captions[i]])

    def row(self, i: int) -> dict[str, str] | None:
        """Return the caption of example i, or None without captions."""
        return None if self._texts is None else {"caption": self.captions[i]}


def _shift(tokenizer: Tokenizer) -> int:
    """Return what is added to the ids of a tokenizer, so that 0 is padding: 1 if it has another token there."""
    return 0 if tokenizer.padding == PADDING else 1
