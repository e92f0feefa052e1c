"""Images and masks brought to the network's size together: images bilinear, masks by the nearest pixel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from ...errors import DataError, Problem
from ...spec import ImageSpec, Mask
from ..adopted import numbers_of
from ..sets import Batch, Preprocessing, Split
from ..verifying import Progress
from .file_split import FileSplit, in_threads
from .files import look_at, unusable
from .masks import FIX, Counts, Pairs, Source, are_masks, beside, find, look_through, overlaid, read_mask
from .preprocessing import ImagePreprocessing
from .reading import Pixels, Size, as_image, as_pixels, inside, read_image


@dataclass(frozen=True)
class MaskPreprocessing(ImagePreprocessing):
    """How an image becomes a tensor (C, H, W), and its mask one of (H, W)."""

    @property
    def target(self) -> Mask:
        """What is learned."""
        assert isinstance(self.spec.target, Mask)
        return self.spec.target

    def mask(self, values: npt.NDArray[Any]) -> Pixels:
        """The values of a mask (h, w) at H × W; what the image is padded with is not labelled."""
        ignored = self.target.ignored
        return np.asarray(self._fitted(Image.fromarray(values.astype(np.uint8)), Image.Resampling.NEAREST, (ignored,)))

    def pair(self, image: Any, mask: Source, name: str) -> Pixels:
        """One image with its mask as the last channel, (H, W, C + 1). Raises DataError where one cannot be read."""
        return np.concatenate([self.pixels(image, name), self.mask(read_mask(mask, name))[:, :, None]], 2)

    def pairs(self, images: Tensor, masks: npt.NDArray[np.uint8]) -> Tensor:
        """uint8 images (n, C, h, w) and masks (n, h, w) at hand, (n, C + 1, H, W)."""
        rows = images.permute(0, 2, 3, 1).numpy()  # (n, h, w, C)
        fitted = np.stack([as_pixels(self._fitted(as_image(row))) for row in rows])
        whole = np.concatenate([fitted, np.stack([self.mask(mask) for mask in masks])[:, :, :, None]], 3)
        return torch.from_numpy(whole).permute(0, 3, 1, 2)

    def seen(self, inputs: Tensor) -> npt.NDArray[np.uint8]:
        """The pixels (n, H, W, C) of inputs (n, C, H, W), as the network was shown them."""
        mean, std = (torch.tensor(v, dtype=torch.float64).view(1, -1, 1, 1) for v in (self.mean, self.std))
        pixels = ((inputs.cpu().double() * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)
        return pixels.permute(0, 2, 3, 1).numpy()

    def restored(self, mask: Pixels, size: Size) -> Pixels:
        """A mask (H, W) at the size (h, w) that its image had; `ignored` where the network did not see it."""
        (rows, columns), (height, width) = mask.shape, size
        if self.fit == "pad":
            seen = inside(size, self.box)
            top, left = (rows - seen[0]) // 2, (columns - seen[1]) // 2
            mask = mask[top : top + seen[0], left : left + seen[1]]
        box = (0, 0, width, height)
        if self.fit == "crop":
            aside = max(0.0, (width - height * columns / rows) / 2)
            above = max(0.0, (height - width * rows / columns) / 2)
            box = (round(aside), round(above), round(width - aside), round(height - above))
        whole = np.full(size, self.target.ignored, np.uint8)
        part = Image.fromarray(mask).resize((box[2] - box[0], box[3] - box[1]), Image.Resampling.NEAREST)
        whole[box[1] : box[3], box[0] : box[2]] = np.asarray(part)
        return whole

    def pictured(self, image: Image.Image, said: Tensor) -> Image.Image:
        """The image in colour under the mask (H, W) that is said of it; what was not shown to the network is pale."""
        mask = self.restored(said.numpy(), (image.height, image.width))
        return Image.fromarray(overlaid(np.asarray(image.convert("RGB")), mask, self.target.ignored))

    def panels(self, inputs: Tensor, target: Tensor, said: Tensor) -> Image.Image:
        """One image (C, H, W) as the network sees it, under its mask (H, W) and under that which is said, side by
        side."""
        image, masks = self.seen(inputs[None])[0], (target.numpy(), said.numpy())
        return beside([image, *(overlaid(image, mask, self.target.ignored) for mask in masks)])

    def labelled(self, source: str | Path) -> Split:
        """The images of a folder with their masks, as targets. Raises DataError where it holds none, or classes that
        training did not know."""
        path = Path(source).expanduser()
        if not path.is_dir() or not are_masks(path, (Mask,)):
            raise DataError(
                f"{str(source)!r} is no folder of images with masks: it has no images/ and masks/.",
                fix="Give a folder as the one that was trained on; of train/, val/ and test/, one.",
            )
        found = find(path)
        if found.splits is not None:
            raise DataError(f"{path} has splits of its own.", fix=f"Give one of them: {path / 'test'}, for one.")
        names = self.target.names
        if found.classes and found.classes != names:
            raise DataError(
                f"{path} has the classes {', '.join(found.classes)}, and the model was trained on {', '.join(names)}."
            )
        sizes = [seen.facts.size for seen in look_at(found.images)]
        looks = look_through(found, sizes, classes=names, fix=FIX).looks
        counts = np.stack([counts for counts, _ in looks])
        return streamed(found, np.arange(len(found.images)), counts, self)

    def adopted(self, split: Split, theirs: Preprocessing) -> Split:
        """The images of another set with its masks, as that set holds them. Raises DataError for a class that training
        did not know."""
        assert isinstance(theirs, MaskPreprocessing)
        lookup = np.full(256, self.target.ignored, np.uint8)
        ours = numbers_of(theirs.target.names, self.target.names).numpy()
        lookup[: len(ours)] = ours
        batches = split.batches(torch.split(torch.arange(len(split)), 1))
        masks = [lookup[batch.target[0].numpy()] for batch in batches]
        names, pairs = [split.name(i) for i in range(len(split))], []
        for i, mask in enumerate(masks):
            image = split.image(i)
            assert image is not None, "a split of images has them"
            pairs.append(np.concatenate([self.pixels(image, names[i]), self.mask(mask)[:, :, None]], 2))
        counts = np.stack([np.bincount(mask.ravel(), minlength=256) for mask in masks])
        whole = torch.from_numpy(np.stack(pairs)).permute(0, 3, 1, 2)  # (n, C + 1, H, W)
        return MaskSplit(whole, counts, self, names, split.image)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {**super().to_json(), "form": "masks"}


@dataclass(frozen=True)
class Paired:
    """What a FileSplit asks of a preprocessing, for images with their masks as one channel more."""

    own: MaskPreprocessing

    @property
    def spec(self) -> ImageSpec:
        """With the mask as a channel."""
        return replace(self.own.spec, channels=self.own.spec.channels + 1)

    def pixels(self, source: Any, name: str) -> Pixels:
        """An image and its mask, (H, W, C + 1)."""
        image, mask = source
        return self.own.pair(image, mask, name)

    def normalise(self, pixels: Tensor) -> Tensor:
        """As they are: the split takes them apart first."""
        return pixels


class MaskSplit(Split):
    """Images with masks, as bytes in memory or read anew: a batch is inputs (N, C, H, W) and targets (N, H, W) uint8.

    `target` is what masks hold in all, the pixels of each class in each image, (n, K): they themselves are many bytes.
    """

    def __init__(
        self,
        pairs: FileSplit | Tensor,
        counts: Counts,
        preprocessing: MaskPreprocessing,
        names: Sequence[str],
        image: Callable[[int], Image.Image | None],
    ) -> None:
        """`pairs` gives uint8 (N, C + 1, H, W), the mask last; `image` is an image as it was given."""
        self.target = torch.from_numpy(counts[:, : len(preprocessing.target.names)])
        self._pairs, self._preprocessing, self._names, self._image = pairs, preprocessing, names, image

    def __len__(self) -> int:
        return len(self._names)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Batches in the given order; nothing is varied here, the loop augments whole batches."""
        pairs = self._pairs
        if isinstance(pairs, Tensor):
            read: Iterator[Tensor] = (pairs[index] for index in order)
        else:
            read = (batch.inputs[0] for batch in pairs.batches(order, seed))
        for both in read:
            yield Batch((self._preprocessing.normalise(both[:, :-1]),), both[:, -1].contiguous())

    def name(self, i: int) -> str:
        """What a person calls example i."""
        return self._names[i]

    def image(self, i: int) -> Image.Image | None:
        """Example i as it was given."""
        return self._image(i)

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """What cannot be decoded, by name. What is in memory has been decoded already."""
        return self._pairs.damaged(progress) if isinstance(self._pairs, FileSplit) else []


def held(
    found: Pairs, indices: Mapping[str, npt.NDArray[np.int64]], counts: Counts, own: MaskPreprocessing
) -> dict[str, Split]:
    """The splits in memory, every file decoded once. Raises DataError that names all files that cannot be decoded."""
    used = np.unique(np.concatenate(list(indices.values())))  # `max_samples` may have left files out
    spec = own.spec
    pairs = np.empty((len(used), spec.height, spec.width, spec.channels + 1), np.uint8)

    def decoded(i: int) -> Pixels | Problem:
        try:
            return own.pair(found.images[i], found.masks[i], str(found.images[i]))
        except DataError as error:
            return error.problems[0]

    problems: list[Problem] = []
    for row, pair in enumerate(in_threads(decoded, used.tolist())):
        if isinstance(pair, Problem):
            problems.append(pair)
        else:
            pairs[row] = pair
    if problems:
        raise unusable(problems, len(used))
    whole = torch.from_numpy(pairs).permute(0, 3, 1, 2)  # (n, C + 1, H, W)
    return {
        name: MaskSplit(
            whole[torch.from_numpy(np.searchsorted(used, rows))],
            counts[rows],
            own,
            [found.names[i] for i in rows],
            lambda i, rows=rows: read_image(found.images[rows[i]], found.names[rows[i]]),  # type: ignore[misc]
        )
        for name, rows in indices.items()
    }


def streamed(
    found: Pairs, rows: npt.NDArray[np.int64], counts: Counts, own: MaskPreprocessing, workers: int | None = None
) -> MaskSplit:
    """These of the pairs, read from their files anew in every epoch."""
    files, names = [found.images[i] for i in rows], [found.names[i] for i in rows]
    sources: list[Any] = [(found.images[i], found.masks[i]) for i in rows]
    read = FileSplit(sources, None, Paired(own), names, workers)
    return MaskSplit(read, counts[rows], own, names, lambda i: read_image(files[i], names[i]))
