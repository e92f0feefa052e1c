"""Images out of a trained network: drawn out of noise, some at a time, and laid out as one picture.

Image k of a seed begins with noise of its own, so that it is the same whatever is drawn beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor, nn

from ..core.errors import SettingError, listed, nearest
from ..core.spec import Drawn, ImageSpec, Noise
from ..models.base import DrawsImages
from ..nn.diffusion import bound_term, prior_term
from ..nn.gaussians import HIGHEST, LOWEST

TOGETHER = 64  # images that are drawn side by side
STEPS, GUIDANCE = 50, 2.0  # unless others are asked for
# Ancestral sampling, as in the paper: noise that a small network leaves in an image is drawn anew at the next step,
# where DDIM carries it to the end.
ETA = 1.0
COLUMNS, GAP = 8, 2  # of a picture of images, and pixels between them
MOST_COLUMNS = 16  # where each class has one
Watch = Callable[[int, Tensor, Tensor], None]


@dataclass(frozen=True)
class Asked:
    """How images are drawn by taking noise away."""

    steps: int
    guidance: float | None  # None where there are no classes
    eta: float


def asked_of(spec: ImageSpec, model: nn.Module, steps: int | None, guidance: float | None, eta: float | None) -> Asked:
    """What was asked for, completed. Raises SettingError, by the name of the option, for what cannot be."""
    target = spec.target
    assert isinstance(target, Drawn), "a run that draws images"
    given = {"steps": steps, "guidance": guidance, "eta": eta}
    if not isinstance(target, Noise):
        for name, value in given.items():
            if value is not None:
                raise SettingError(
                    f"{name}={value:g} is for models that take noise away step by step, and this one decodes images at "
                    "once: leave it out."
                )
        return Asked(1, None, 0.0)
    total = int(cast(Any, model).config.timesteps)
    if steps is not None and not 1 <= steps <= total:
        raise SettingError(f"steps={steps} cannot be: it must be 1 to {total:,}, the timesteps of this model.")
    if guidance is not None and not target.names:
        raise SettingError(
            f"guidance={guidance:g} is for models that know classes, and this one learned images without any: leave it "
            "out, or train on a folder of class folders."
        )
    if guidance is not None and not 0 <= guidance <= 100:
        raise SettingError(f"guidance={guidance:g} cannot be: it must be 0 to 100; 1 is the class without guidance.")
    if eta is not None and not 0 <= eta <= 1:
        raise SettingError(f"eta={eta:g} cannot be: it must be 0 (DDIM) to 1 (ancestral sampling).")
    guided = (GUIDANCE if guidance is None else guidance) if target.names else None
    return Asked(min(STEPS, total) if steps is None else steps, guided, ETA if eta is None else eta)


def classes_for(spec: ImageSpec, count: int, name: str | None) -> Tensor | None:
    """The class of each of `count` images, (count,): that of this name, or all in turn; None where there are none.

    Raises SettingError for a name that is none of them.
    """
    target = spec.target
    assert isinstance(target, Drawn), "a run that draws images"
    if not isinstance(target, Noise) or not target.names:
        if name is not None:
            why = "draws images of all classes alike" if target.names else "learned images without classes"
            raise SettingError(f"class={name} cannot be: this model {why}. Leave it out.")
        return None
    if name is None:
        return torch.arange(count) % len(target.names)
    if name not in target.names:
        close = nearest(name, target.names)
        known = f"Close to it: {listed(close, 'and')}." if close else f"They are {listed(target.names[:20], 'and')}."
        raise SettingError(f"class={name} cannot be: this model learned no class of that name. {known}")
    return torch.full((count,), target.names.index(name))


@torch.no_grad()
def draw(
    model: nn.Module,
    spec: ImageSpec,
    asked: Asked,
    classes: Tensor | None,
    count: int,
    seed: int = 0,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> Tensor:
    """New images, uint8 (count, C, H, W), image k with the seed `seed` + k. The model is in evaluation mode on its
    device. `watch` is given timestep, x_t and x̂_0 along the way, as `nn.diffusion.sample` does."""
    assert isinstance(model, DrawsImages), "the model of a run that draws images"
    dtype = next(p.dtype for p in model.parameters())
    found: list[Tensor] = []
    for begin in range(0, count, TOGETHER):
        numbers = range(begin, min(begin + TOGETHER, count))
        generators = [torch.Generator().manual_seed(seed + k) for k in numbers]

        def noise(generators: Sequence[torch.Generator] = generators) -> Tensor:
            """Standard normal numbers for each image, from its own generator, (n, C, H, W)."""
            return torch.stack([torch.randn(spec.shape, generator=g) for g in generators]).to(device, dtype)

        process: dict[str, Any] = {}
        if isinstance(spec.target, Noise):
            process = {"steps": asked.steps, "eta": asked.eta, "more": lambda x, noise=noise: noise().to(x)}
            process |= {"watch": watch} if watch is not None else {}
            if classes is not None:
                process |= {"classes": classes[list(numbers)].to(device), "guidance": asked.guidance}
        found.append(as_levels(model.draw(noise(), **process)))
    return torch.cat(found)


def as_levels(images: Tensor) -> Tensor:
    """Images from −1 to 1 as the nearest of 256 levels, uint8 on the CPU; what is beyond becomes the ends."""
    levels = (images.double().clamp(LOWEST, HIGHEST) + 1) * 127.5
    return levels.round().to(torch.uint8).cpu()


def as_images(levels: Tensor) -> list[Pillow.Image]:
    """uint8 images (N, C, H, W) as Pillow has them, grey or RGB."""
    rows = levels.permute(0, 2, 3, 1).numpy()  # (N, H, W, C)
    return [Pillow.fromarray(row[:, :, 0] if row.shape[2] == 1 else np.ascontiguousarray(row)) for row in rows]


def columns_for(count: int, classes: int) -> int:
    """How many images stand beside each other: one of each class, where they come in turn and are not too many."""
    return min(count, classes if 1 < classes <= MOST_COLUMNS else COLUMNS)


def picture(levels: Tensor, columns: int) -> Pillow.Image:
    """uint8 images (N, C, H, W) as one picture, row by row, on white."""
    n, channels, height, width = levels.shape
    rows = math.ceil(n / columns)
    size = (rows * (height + GAP) + GAP, columns * (width + GAP) + GAP)
    whole = torch.full((1, channels, *size), 255, dtype=torch.uint8)
    for k, image in enumerate(levels):
        top, left = (GAP + at * (side + GAP) for at, side in zip(divmod(k, columns), (height, width)))
        whole[0, :, top : top + height, left : left + width] = image
    return as_images(whole)[0]


@torch.no_grad()
def bound(model: nn.Module, images: Tensor, classes: Tensor | None, times: int, seed: int = 0) -> Tensor:
    """A bound on −ln p of each image (N, C, H, W), in nats, (N,): the variational bound of diffusion.

    Of the T terms timestep 0 and `times` others are computed, one drawn at random from each of as many equal stretches,
    which stand for all of theirs: the mean over many such draws is the bound itself.
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
