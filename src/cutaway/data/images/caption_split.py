"""One split of images with captions: the images as a split of images has them, and the ids of what is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from PIL.Image import Image
from torch import Tensor

from ...errors import Problem
from ...spec import Tokens
from ..pairs.preprocessing import MOST_TOKENS, TargetSide, distinct, reject_longer, separate
from ..pairs.split import Ids
from ..sets import IGNORED, Batch, SequenceSplit, Split
from ..verifying import Progress


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
