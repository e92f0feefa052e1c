"""Image generation with a trained network, and layout of the images as one picture.

Image k of a seed has its own initial noise, or its own random numbers for each pixel. It is the same for any batch
size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Unpack, cast

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor, nn

from ..core.errors import IncompatibleSettingError, SettingError, closest_names, join
from ..core.spec import GeneratedImage, ImageSpec, ImageTokens, Noise
from ..data.images.tokens import TokenPreprocessing
from ..models.base import SupportsImageGeneration
from ..nn.diffusion import bound_term, prior_term
from ..nn.losses import HIGHEST, LOWEST
from .sampling import Settings
from .text import generate

TOGETHER = 64  # images that are generated in one batch
STEPS, GUIDANCE = 50, 2.0  # defaults
# Ancestral sampling, as in the paper: noise that a small network leaves in an image is resampled at the next step,
# while DDIM carries it to the end.
ETA = 1.0
COLUMNS, GAP = 8, 2  # columns of a picture, and pixels between images
MOST_COLUMNS = 16  # largest number of columns with one class per column
Watch = Callable[[int, Tensor, Tensor], None]


@dataclass(frozen=True)
class DiffusionSettings:
    """Settings of the reverse diffusion process."""

    steps: int
    guidance: float | None  # None without classes
    eta: float


def resolve_settings(
    spec: ImageSpec, model: nn.Module, steps: int | None, guidance: float | None, eta: float | None
) -> DiffusionSettings:
    """Validate the settings and fill in defaults. Raises SettingError, with the name of the option, for invalid
    values.
    """
    target = spec.target
    assert isinstance(target, GeneratedImage), "a run that draws images"
    given = {"steps": steps, "guidance": guidance, "eta": eta}
    if not isinstance(target, Noise):
        how = "samples images pixel by pixel" if isinstance(target, ImageTokens) else "decodes images in one step"
        for name, value in given.items():
            if value is not None:
                raise IncompatibleSettingError(
                    f"Invalid {name}={value:g}: only for diffusion models; this model {how}. Leave it out."
                )
        return DiffusionSettings(1, None, 0.0)
    total = int(cast(Any, model).config.timesteps)
    if steps is not None and not 1 <= steps <= total:
        raise SettingError(f"Invalid steps={steps}: must be 1 to {total:,}, the timesteps of this model.")
    if guidance is not None and not target.names:
        raise IncompatibleSettingError(
            f"Invalid guidance={guidance:g}: only for class-conditional models. Leave it "
            "out, or train on a folder of class folders."
        )
    if guidance is not None and not 0 <= guidance <= 100:
        raise SettingError(f"Invalid guidance={guidance:g}: must be 0 to 100; 1 is no guidance.")
    if eta is not None and not 0 <= eta <= 1:
        raise SettingError(f"Invalid eta={eta:g}: must be 0 (DDIM) to 1 (ancestral sampling).")
    guided = (GUIDANCE if guidance is None else guidance) if target.names else None
    return DiffusionSettings(min(STEPS, total) if steps is None else steps, guided, ETA if eta is None else eta)


def classes_for(spec: ImageSpec, count: int, name: str | None) -> Tensor | None:
    """Return the class of each of `count` images, (count,): the named class, or all cyclically; None without classes.

    Raises SettingError for an unknown name.
    """
    target = spec.target
    assert isinstance(target, GeneratedImage), "a run that draws images"
    if not isinstance(target, Noise | ImageTokens) or not target.names:
        if name is not None:
            why = "is not class-conditional" if target.names else "is trained without classes"
            raise IncompatibleSettingError(f"Invalid class={name}: this model {why}. Leave it out.")
        return None
    if name is None:
        return torch.arange(count) % len(target.names)
    if name not in target.names:
        close = closest_names(name, target.names)
        known = f"Similar: {join(close, 'and')}." if close else f"Classes: {join(target.names[:20], 'and')}."
        raise SettingError(f"Invalid class={name}: must be a class of the training data. {known}")
    return torch.full((count,), target.names.index(name))


@torch.no_grad()
def draw(
    model: nn.Module,
    spec: ImageSpec,
    asked: DiffusionSettings,
    classes: Tensor | None,
    count: int,
    seed: int = 0,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> Tensor:
    """Generate images, uint8 (count, C, H, W), image k with the seed `seed` + k.

    The model must be in evaluation mode on its device. `watch` receives timestep, x_t and x̂_0 of each step, as in
    `nn.diffusion.sample`.
    """
    assert isinstance(model, SupportsImageGeneration), "the model of a run that draws images"
    dtype = next(p.dtype for p in model.parameters())
    found: list[Tensor] = []
    for begin in range(0, count, TOGETHER):
        numbers = range(begin, min(begin + TOGETHER, count))
        generators = [torch.Generator().manual_seed(seed + k) for k in numbers]

        def noise(generators: Sequence[torch.Generator] = generators) -> Tensor:
            """Return standard normal noise (n, C, H, W), each image from its own generator."""
            return torch.stack([torch.randn(spec.shape, generator=g) for g in generators]).to(device, dtype)

        process: dict[str, Any] = {}
        if isinstance(spec.target, Noise):
            process = {"steps": asked.steps, "eta": asked.eta, "more": lambda x, noise=noise: noise().to(x)}
            process |= {"watch": watch} if watch is not None else {}
            if classes is not None:
                process |= {"classes": classes[list(numbers)].to(device), "guidance": asked.guidance}
        found.append(as_levels(model.draw(noise(), **process)))
    return torch.cat(found)


def sample_tokens(
    model: nn.Module,
    images: TokenPreprocessing,
    prompt: Tensor,
    seeds: Sequence[int],
    device: torch.device | str = "cpu",
    **settings: Unpack[Settings],
) -> Tensor:
    """Sample the pixels after each prompt, and return the images, uint8 (n, C, H, W).

    Args:
        model: A model of image tokens, on its device.
        images: Preprocessing of the run.
        prompt: The caption, if there are captions, the start token and the first pixels of each image, shape
            (n, caption + 1 + t).
        seeds: Seed of each image.
        device: Device of the model.
        settings: Fields of `sampling.Sampling`.

    Returns:
        The images, each with the pixels of its prompt.

    Raises:
        SettingError: If a setting is invalid.
    """
    prefix = images.target.prefix
    count = images.spec.height * images.spec.width + prefix - prompt.shape[1]
    found: list[Tensor] = []
    for begin in range(0, len(prompt), TOGETHER):
        rows = prompt[begin : begin + TOGETHER].to(device)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds[begin : begin + TOGETHER]]
        drawn = generate(model, rows, count, generator=generators, never=(), ends=(), **settings)
        found.append(images.levels(torch.cat([rows[:, prefix:], drawn], dim=1)).cpu())
    return torch.cat(found)


def given_pixels(spec: ImageSpec) -> int:
    """Return the number of pixels of the upper half of an image, which a completion starts from."""
    return (spec.height - spec.height // 2) * spec.width


def mask_lower_half(levels: Tensor, grey: int = 128) -> Tensor:
    """Return uint8 images (n, C, H, W) with the lower half in grey."""
    found = levels.clone()
    found[:, :, levels.shape[2] - levels.shape[2] // 2 :] = grey
    return found


def as_levels(images: Tensor) -> Tensor:
    """Round images from −1 to 1 to 256 levels, uint8 on the CPU; values outside the range are clipped."""
    levels = (images.double().clamp(LOWEST, HIGHEST) + 1) * 127.5
    return levels.round().to(torch.uint8).cpu()


def as_images(levels: Tensor) -> list[Pillow.Image]:
    """Convert uint8 images (N, C, H, W) to Pillow images, grayscale or RGB."""
    rows = levels.permute(0, 2, 3, 1).numpy()  # (N, H, W, C)
    return [Pillow.fromarray(row[:, :, 0] if row.shape[2] == 1 else np.ascontiguousarray(row)) for row in rows]


def columns_for(count: int, classes: int) -> int:
    """Return the number of columns: one for each class, unless there are too many or none."""
    return min(count, classes if 1 < classes <= MOST_COLUMNS else COLUMNS)


def image_grid(levels: Tensor, columns: int) -> Pillow.Image:
    """Arrange uint8 images (N, C, H, W) in one picture, row by row, on white."""
    n, channels, height, width = levels.shape
    rows = math.ceil(n / columns)
    size = (rows * (height + GAP) + GAP, columns * (width + GAP) + GAP)
    whole = torch.full((1, channels, *size), 255, dtype=torch.uint8)
    for k, image in enumerate(levels):
        top, left = (GAP + at * (side + GAP) for at, side in zip(divmod(k, columns), (height, width)))
        whole[0, :, top : top + height, left : left + width] = image
    return as_images(whole)[0]


@torch.no_grad()
def variational_bound(model: nn.Module, images: Tensor, classes: Tensor | None, times: int, seed: int = 0) -> Tensor:
    """Return the variational bound of diffusion on −ln p of each image (N, C, H, W), in nats, (N,).

    Of the T terms, timestep 0 and `times` others are computed. The others are sampled from equal intervals of
    timesteps, one from each, and represent all terms of their interval. The mean over many samples is the exact bound.
    """
    network = cast(Any, model)
    signal: Tensor = network.config.signal
    generator = torch.Generator().manual_seed(seed)

    def predict(x: Tensor, t: Tensor) -> Tensor:
        return cast(Tensor, network(x, t, None, classes))

    def term(t: Tensor) -> Tensor:
        noise = torch.randn(images.shape, generator=generator).to(images)
        return bound_term(predict, images, t.to(images.device), noise, signal).double()

    total = prior_term(images, signal).double() + term(torch.zeros(len(images), dtype=torch.int64))
    edges = torch.linspace(1, len(signal), min(times, len(signal) - 1) + 1).round().long().tolist()
    for low, high in pairwise(edges):
        total += (high - low) * term(torch.randint(low, high, (len(images),), generator=generator))
    return total
