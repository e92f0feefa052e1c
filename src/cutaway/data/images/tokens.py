"""Image tokens: each pixel as the index of the nearest colour in a palette, in row-major order.

M. Chen et al., Generative pretraining from pixels, 2020, section 3.2, <https://openai.com/index/image-gpt/>: a palette
of 512 colours, by k-means of the (R, G, B) values of pixels.

    token(x) = argmin_j ‖x − p_j‖,   p_1 … p_k the palette, sorted by brightness

The palette is fitted on the training images at the size of the network, and saved with the model. Images with at most
k colours keep them: then nothing is lost. Otherwise a token stands for all colours of the 256 levels of each channel to
which its colour is the nearest, its cell. A model of the tokens is then a model of images if all colours of a cell are
equally likely:

    p(image) = Π_t p(token_t | tokens before it) / |cell(token_t)|

The sum over all images is 1, so its bits per dimension can be compared with those of models of 256 levels.

The input of the model is a start token, which is the class, and all tokens but the last. Captions are in
`text_to_image.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor

from ...core.errors import IncompatibleSettingError
from ...core.schema import Between
from ...core.spec import ImageSpec, ImageTokens
from ..dataset_base import Batch, Split
from ..folders import CAPTIONS
from ..settings import DataSettings
from .image_files import Size
from .transforms import ImagePreprocessing, fit_preprocessing, scale_for_generation

PIXELS = 1 << 17  # pixels that the palette is fitted on, drawn from the training images
AT_ONCE = 1 << 22  # distances that are computed together
LEVELS = 256
BLOCK = 16  # levels a side of a cube of colours that are counted together
LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in the brightness


@dataclass(frozen=True)
class TokenPreprocessing(ImagePreprocessing):
    """Preprocessing of an image to tokens (H · W), and back to pixels."""

    palette: tuple[tuple[int, ...], ...]  # the colour of each token, 0…255 per channel

    SCHEMA: ClassVar[Mapping[str, Any]] = {**ImagePreprocessing.SCHEMA, "palette": [[Between(0, 255)]]}

    @property
    def target(self) -> ImageTokens:
        """Return the training target."""
        assert isinstance(self.spec.target, ImageTokens)
        return self.spec.target

    def tokens(self, x: Tensor) -> Tensor:
        """Return the tokens (N, H · W), int64, of normalised images (N, C, H, W)."""
        levels = ((x + 1) * 127.5).round()
        return nearest(levels.flatten(2).transpose(1, 2), self.colors.to(x))

    def levels(self, tokens: Tensor) -> Tensor:
        """Return the uint8 images (N, C, H, W) of tokens (N, H · W)."""
        pixels = self.colors.to(tokens.device)[tokens]  # (N, H · W, C)
        return pixels.transpose(1, 2).reshape(len(tokens), *self.spec.shape).to(torch.uint8)

    def add_inputs(self, split: Split) -> Split:
        """Return the split with tokens in place of images."""
        return TokenSplit(split, self)

    def start_tokens(self, labels: Tensor | None, count: int) -> Tensor:
        """Return the first input of each image, (count,): its class, or the token for no class."""
        if labels is None:
            return torch.full((count,), self.target.no_class)
        return self.target.outputs + labels

    def prompts(self, labels: Tensor | None, count: int, text: str | None = None) -> Tensor:
        """Return the inputs before the first pixel of each image, (count, 1): the start token.

        Raises SettingError for a text: this preprocessing has no captions.
        """
        if text is not None:
            raise IncompatibleSettingError(
                f"Invalid prompt={text!r}: this run was trained without captions. Leave it out, or train on a folder "
                f"of images with {CAPTIONS}."
            )
        return self.start_tokens(labels, count)[:, None]

    @cached_property
    def colors(self) -> Tensor:
        """Return the palette as a tensor (k, C), float32."""
        return torch.tensor(self.palette, dtype=torch.float32)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return super().to_json() | {"form": "tokens", "palette": [list(color) for color in self.palette]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TokenPreprocessing:
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        images = ImagePreprocessing.from_json(data)
        palette, target = tuple(tuple(color) for color in data["palette"]), images.spec.target
        if not isinstance(target, ImageTokens) or len(palette) != target.outputs:
            raise ValueError(f"a palette of {len(palette)} colours for {target.column} of {target.outputs}")
        if any(len(color) != images.spec.channels for color in palette) or min(target.cells) < 1:
            raise ValueError(f"colours that are not {images.spec.channels} levels each, or empty cells")
        return cls(**vars(images), palette=palette)


class TokenSplit(Split):
    """A split that gives the tokens of its images.

    Inputs are the start token and all tokens but the last, (N, H · W); the target is the tokens.
    """

    def __init__(self, images: Split, preprocessing: TokenPreprocessing) -> None:
        self.images, self.preprocessing = images, preprocessing
        self.target = images.target

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of tokens."""
        known = self.preprocessing
        for (x, *_), labels in self.images.batches(order, seed):
            tokens = known.tokens(x)
            has_class = known.target.names and labels.ndim == 1
            prompt = known.prompts(labels if has_class else None, len(tokens)).to(tokens)
            yield Batch((torch.cat([prompt, tokens[:, :-1]], dim=1),), tokens)

    def name(self, i: int) -> str:
        """Return the display name of example i."""
        return self.images.name(i)

    def image(self, i: int) -> Image.Image | None:
        """Return the original image of example i."""
        return self.images.image(i)

    @property
    def target_counts(self) -> Tensor:
        """Return how often each token occurs at each pixel, (H · W, k)."""
        spec = self.preprocessing.spec
        counts = torch.zeros(spec.height * spec.width, self.preprocessing.target.outputs, dtype=torch.int64)
        for _, tokens in self.batches(torch.split(torch.arange(len(self)), 1024)):
            counts.scatter_add_(1, tokens.t().cpu(), torch.ones_like(tokens.t().cpu()))
        return counts


def fit_tokens(
    spec: ImageSpec, images: Sequence[Tensor], settings: DataSettings, own_size: Size | None
) -> TokenPreprocessing:
    """Fit the preprocessing and the palette on uint8 training images (n, C, h, w) at their original size.

    `own_size` is the common size of all images, or None.
    """
    assert isinstance(spec.target, ImageTokens), "what is fitted"
    found = scale_for_generation(fit_preprocessing(spec, images, settings.resize, own_size))
    pixels = torch.cat([_pixels(found.prepare(batch)) for batch in images])  # (pixels, C)
    colors, counts = torch.unique(pixels, dim=0, return_counts=True)
    lossless = len(colors) <= settings.palette_size
    if not lossless:
        colors = fit_palette(colors, counts, settings.palette_size)
    order = (colors.double() @ torch.tensor(LUMA[: spec.channels] if spec.channels == 3 else (1.0,)).double()).argsort()
    colors = colors[order]
    cells = torch.ones(len(colors), dtype=torch.int64) if lossless else cell_sizes(colors)
    target = dataclasses.replace(spec.target, cells=tuple(cells.tolist()))
    kept = vars(found) | {"spec": dataclasses.replace(spec, target=target)}
    return TokenPreprocessing(**kept, palette=tuple(tuple(color) for color in colors.int().tolist()))


def _pixels(x: Tensor) -> Tensor:
    """Return the pixels (N · H · W, C), uint8, of normalised images (N, C, H, W)."""
    return ((x + 1) * 127.5).round().to(torch.uint8).permute(0, 2, 3, 1).flatten(0, 2)


def fit_palette(colors: Tensor, counts: Tensor, size: int, seed: int = 0) -> Tensor:
    """Return at most `size` colours (k, C), by k-means of `colors` (n, C), which occur `counts` (n,) times.

    Of more than PIXELS different colours a sample is taken. Centres are rounded to levels.
    """
    from sklearn.cluster import KMeans  # here, because it takes a while

    if len(colors) > PIXELS:
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(colors), generator=generator)[:PIXELS]
        colors, counts = colors[rows], counts[rows]
    means = KMeans(size, n_init=1, random_state=seed)
    means.fit(colors.double().numpy(), sample_weight=counts.double().numpy())
    centres: Tensor = torch.from_numpy(means.cluster_centers_).round().clamp(0, LEVELS - 1)
    found: Tensor = torch.unique(centres.to(torch.uint8), dim=0)  # rounding can join two centres
    return found


def cell_sizes(palette: Tensor) -> Tensor:
    """Return the number of colours, of 256 levels for each channel, that are nearest to each of `palette` (k, C)."""
    levels = torch.arange(LEVELS, dtype=torch.float32)
    palette = palette.float()
    if palette.shape[1] == 1:
        return nearest(levels[:, None], palette).bincount(minlength=len(palette))
    found = torch.zeros(len(palette), dtype=torch.int64)
    block = torch.cartesian_prod(*(torch.arange(BLOCK, dtype=torch.float32),) * 3)  # (BLOCK³, 3)
    middle, radius = (BLOCK - 1) / 2, 3**0.5 * (BLOCK - 1) / 2
    for corner in torch.cartesian_prod(*(levels[::BLOCK],) * 3):
        distance = (corner + middle - palette).norm(dim=1)  # (k,)
        near = (distance <= distance.min() + 2 * radius + 1e-3).nonzero()[
            :, 0
        ]  # no other is nearest to any colour here
        found.scatter_add_(0, near, nearest(corner + block, palette[near]).bincount(minlength=len(near)))
    return found


def nearest(pixels: Tensor, palette: Tensor) -> Tensor:
    """Return the index of the nearest colour of `palette` (k, C), the first of several, for pixels (…, C): (…)."""
    half = palette.square().sum(1) / 2  # argmin ‖x − p‖² = argmax x · p − ‖p‖² / 2; exact in float32 for levels
    rows = torch.split(pixels.flatten(0, -2), max(1, AT_ONCE // len(palette)))
    return torch.cat([(palette @ some.T - half[:, None]).argmax(0) for some in rows]).view(pixels.shape[:-1])
