"""Filter kernels of image processing, such as Sobel's, and a photo opened with them instead of a network.

    y_ij = Σ_ab w_ab x_(i+a, j+b)

The operation is a cross-correlation, as in a convolutional layer. The photo is read in gray, with levels from 0 to 1,
and its border pixels are repeated outside, so that the border has no edge. A pair of kernels is the first derivatives
along x (from left to right) and y (downwards); the length of both, √(x² + y²), is the gradient magnitude.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoints.custom import CustomPreset
from ..core.errors import Problem, SettingError, UnknownName
from ..core.spec import ImageSpec, Value
from ..data.images.image_files import inspect_image, size_within, unusable_images_error
from ..data.images.transforms import ImagePreprocessing
from ..models.card import PresetCard
from ..nn.textbook.convolution import binomial, sobel_x, sobel_y

SIDE = 448  # most pixels of the longer side of a photo
MOST = 31  # most rows and columns of a kernel
PHOTO_VIEWS = ("filters", "arithmetic")  # of a photo without a model, unless views are selected
EXAMPLE = "kernel='0,1,0;1,-4,1;0,1,0'"


class Kernels(NamedTuple):
    """One kernel, or the pair of derivatives along x and y."""

    name: str
    weights: Tensor  # (1 or 2, rows, columns)
    source: str = ""  # a sentence on its origin or effect

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the outputs: the derivatives of a pair, otherwise the name of the kernel."""
        return ("horizontal derivative x", "vertical derivative y") if len(self.weights) == 2 else (self.name,)


def _pair(middle: float, side: float) -> Tensor:
    """Return the derivatives along x and y with the weights (side middle side) across the direction."""
    x = torch.outer(torch.tensor([side, middle, side]), torch.tensor([-1.0, 0.0, 1.0]))
    return torch.stack([x, x.T])


KERNELS: dict[str, tuple[Callable[[], Tensor], str]] = {
    "sobel": (lambda: torch.stack([sobel_x(), sobel_y()]), "Derivatives, smoothed across their direction by (1 2 1)."),
    "prewitt": (lambda: _pair(1.0, 1.0), "Derivatives, smoothed across their direction by (1 1 1)."),
    "scharr": (
        lambda: _pair(10.0, 3.0),
        "Derivatives with (3 10 3) across: their magnitude depends least on the direction of an edge.",
    ),
    "gaussian": (
        lambda: torch.outer(binomial(5), binomial(5))[None],
        "A blur: the binomial approximation of a Gaussian with variance 1.",
    ),
    "box": (lambda: torch.full((1, 3, 3), 1 / 9), "A blur: the mean of 3×3 pixels."),
    "laplacian": (
        lambda: torch.tensor([[[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]]]),
        "The sum of the second derivatives along x and y: it changes sign at an edge.",
    ),
    "sharpen": (
        lambda: torch.tensor([[[0.0, -1.0, 0.0], [-1.0, 5.0, -1.0], [0.0, -1.0, 0.0]]]),
        "The image minus its Laplacian.",
    ),
    "identity": (
        lambda: torch.tensor([[[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]]),
        "The image itself.",
    ),
}


def parse_kernel(text: str) -> Kernels:
    """Return the kernels of a name, or of rows of numbers such as 0,1,0;1,-4,1;0,1,0.

    Raises:
        UnknownName: If there is no kernel of that name.
        SettingError: If the numbers are not the rows of a kernel.
    """
    if text in KERNELS:
        make, source = KERNELS[text]
        return Kernels(text, make(), source)
    if not any(character.isdigit() for character in text):
        raise UnknownName("kernel", text, KERNELS, f"Or give its rows as numbers, e.g. {EXAMPLE}.")
    try:
        rows = [[float(cell) for cell in row.replace(",", " ").split()] for row in text.strip("; ").split(";")]
    except ValueError:
        raise SettingError(f"Invalid kernel={text}: must be rows of numbers, e.g. {EXAMPLE}.") from None
    lengths = {len(row) for row in rows}
    if len(lengths) > 1 or not 1 <= min(lengths) <= MOST or len(rows) > MOST:
        raise SettingError(
            f"Invalid kernel={text}: must have rows of equal length, at most {MOST}×{MOST}, e.g. {EXAMPLE}."
        )
    weights = torch.tensor([rows])
    if not weights.isfinite().all():
        raise SettingError(f"Invalid kernel={text}: must be finite numbers.")
    return Kernels("kernel", weights)


class FixedKernels(nn.Module):
    """A convolution with given kernels, whose input is extended by its border pixels: gray images keep their size."""

    def __init__(self, given: Kernels) -> None:
        super().__init__()
        self.given = given
        count, height, width = given.weights.shape
        left, top = (width - 1) // 2, (height - 1) // 2
        self.around = (left, width - 1 - left, top, height - 1 - top)
        self.kernels = nn.Conv2d(1, count, (height, width), bias=False)
        self.kernels.weight = nn.Parameter(given.weights[:, None].clone(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the kernels for gray images.

        Args:
            x: Images, shape (N, 1, H, W).

        Returns:
            One channel for each kernel, shape (N, 1 or 2, H, W).
        """
        y: Tensor = self.kernels(F.pad(x, self.around, mode="replicate"))
        return y


class PhotoPreset(CustomPreset):
    """A photo with kernels in place of a network; its name is that of the file."""

    def __init__(self, module: FixedKernels, name: str) -> None:
        super().__init__(module)
        object.__setattr__(self, "name", name)

    @property
    def card(self) -> PresetCard:
        """Return a card with the kernel as its title."""
        module = self.custom_module
        assert isinstance(module, FixedKernels), "a photo is opened with kernels"
        given = module.given.name
        title = f"The {given} kernel" if given in KERNELS else "A kernel given as numbers"
        return PresetCard(self.name, dataclasses.replace(super().card.card, title=title))


def photo_preprocessing(path: Path) -> ImagePreprocessing:
    """Return the preprocessing that reads an image file in gray, with a longer side of at most SIDE pixels.

    Raises:
        DataError: If the file is not a usable image.
    """
    seen = inspect_image(path)
    if isinstance(seen, Problem):
        raise unusable_images_error([seen], 1)
    size = seen.facts.size
    size = size_within(size, (SIDE, SIDE)) if max(size) > SIDE else size
    return ImagePreprocessing(ImageSpec(1, *size, Value()), (0.0,), (1.0,), "stretch", size, (0,))


def kernel_text(weights: Sequence[Sequence[float]], write: Callable[[Any], str]) -> str:
    """Return a small kernel as rows in parentheses: (−1 0 1)(−2 0 2)(−1 0 1)."""
    return "".join(f"({' '.join(map(write, row))})" for row in weights)
