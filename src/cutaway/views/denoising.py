"""The sampling of images by a diffusion model, and its error at each timestep."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import SettingError
from ..core.spec import ImageSpec, Noise
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, plural
from ..inference.image_generation import DiffusionSettings, as_images, as_levels, classes_for, draw, resolve_settings
from ..models.base import SupportsImageGeneration
from ..nn.diffusion import sampling_timesteps
from ..nn.eval_mode import eval_mode
from .common import evenly_spaced, parse_index
from .json_values import image_url
from .subject import Subject

SAYS = "diffusion sampling step by step, the noise schedule, and the loss at each timestep"
READ = (
    "Each image starts as noise at the largest timestep t and is denoised to t = 0. The upper row is x_t, the lower "
    "row x̂_0, the image that remains if the predicted noise is removed at once: black and white while x_t holds "
    "almost no image, then a blur (the mean of all possible images), and sharper as t decreases. The curves show how "
    "much of x_t is image and how much is noise, the signal-to-noise ratio ᾱ_t / (1 − ᾱ_t), and the mean squared error "
    "of the predicted noise: 1 is the error of predicting zero, 0 is a perfect prediction."
)
MISLEADS = (
    "A low loss at large t is easy, because x_t is almost pure noise there; a high loss at small t is no failure, "
    "because the remaining noise is invisible. Compare the same timestep between models, not timesteps with each "
    "other. An intermediate x̂_0 is a mean, not an image that the model would sample. A few samples show neither the "
    "diversity of images nor whether they were memorized; guidance makes them more typical and less diverse."
)
OPTIONS = {
    "class": "class of the images, by name; default the first few classes",
    "seed": "seed of the initial noise of the first image",
    "steps": "number of sampling steps; default 50",
    "guidance": "scale of classifier-free guidance; default 2",
}

IMAGES, MOMENTS = 3, 5  # images that are followed, and steps at which they are shown
TIMES, EXAMPLES = 12, 32  # timesteps at which the loss is computed, and images that it is computed on
CURVE = 100  # points of the schedule that are drawn
SEEDS = 2**31
SCALES, HASTE = (0.0, 1.0, 2.0, 4.0), 20  # guidance scales that are compared, and the most steps for each


@dataclass(frozen=True)
class Moment:
    """The followed images at one timestep, uint8 (n, C, H, W) each."""

    t: int
    noisy: Tensor
    start: Tensor


def suits(subject: Subject) -> bool:
    """Return whether the model generates images by denoising."""
    return isinstance(subject.model, SupportsImageGeneration) and Noise in getattr(type(subject.model), "targets", ())


def view(subject: Subject) -> View:
    """Return images during sampling, the noise schedule and the loss.

    Raises:
        SettingError: If an option is invalid.
    """
    spec, options = _spec(subject), subject.options
    steps = parse_index(options, "steps", 0, subject.config.timesteps + 1) if "steps" in options else None
    asked = resolve_settings(spec, subject.model, steps, _scale(options), None)
    seed = parse_index(options, "seed", 0, SEEDS)
    classes = classes_for(spec, IMAGES, options.get("class"))
    assert isinstance(spec.target, Noise), "as it suits"
    names = [f"image {k + 1}" for k in range(IMAGES)]
    if classes is not None:
        names = [f"image {k + 1}, {spec.target.names[c]}" for k, c in enumerate(classes.tolist())]
    with eval_mode(subject.model):
        moments = _sample_steps(subject.model, spec, asked, classes, seed)
        drawings = [_denoising_tiles(name, moments, k) for k, name in enumerate(names)]
        if classes is not None:
            drawings.append(_guidance(subject.model, spec, asked, classes, names, seed))
        losses = _losses(subject)
    signal: Tensor = subject.config.signal
    guidance = f" with guidance {asked.guidance:g}" if asked.guidance is not None else ""
    rows = [[t, float(signal[t]), float(signal[t] / (1 - signal[t])), loss] for t, loss in losses.items()]
    return View(
        id="denoising",
        title="Out of noise",
        says=f"{plural(IMAGES, 'image')} sampled in {plural(asked.steps, 'step')}{guidance}, at selected timesteps; "
        "the noise schedule and the loss are below.",
        summary=_summary(losses, signal),
        table=table({"t": "count", "signal ᾱ_t": "number", "signal to noise": "number", "loss": "number"}, rows),
        drawings=[*drawings, *_schedule(signal), _loss(losses)],
    )


def _spec(subject: Subject) -> ImageSpec:
    """Return the image spec of the model; for a model without data, one that matches the opened examples."""
    if isinstance(subject.spec, ImageSpec):
        return subject.spec
    channels, height, width = subject.inputs[0].shape[1:]
    names = tuple(f"class {k}" for k in range(subject.config.classes))
    return ImageSpec(channels, height, width, Noise(names, channels * height * width))


def _scale(options: Mapping[str, str]) -> float | None:
    """Return the option guidance as a number. Raises SettingError."""
    value = options.get("guidance")
    try:
        return None if value is None else float(value)
    except ValueError:
        raise SettingError(f"Invalid guidance={value}: must be a number, e.g. 2.") from None


def _sample_steps(
    model: nn.Module, spec: ImageSpec, asked: DiffusionSettings, classes: Tensor | None, seed: int
) -> list[Moment]:
    """Return some of the sampling steps, including the first and the last."""
    told: list[Moment] = []

    def watch(t: int, xt: Tensor, start: Tensor) -> None:
        told.append(Moment(t, as_levels(xt), as_levels(start)))

    draw(model, spec, asked, classes, IMAGES, seed, watch=watch)
    return evenly_spaced(told, MOMENTS)


def _denoising_tiles(name: str, moments: Sequence[Moment], k: int) -> Drawing:
    """Return x_t and x̂_0 of one image, in two rows."""
    rows = {"x_t": [m.noisy[k] for m in moments], "x̂_0, predicted from x_t": [m.start[k] for m in moments]}
    found = [
        _tile(f"t = {count(m.t)}", image, group, [group, f"timestep {count(m.t)}"])
        for group, images in rows.items()
        for m, image in zip(moments, images)
    ]
    return charts.tiles(f"Sampling of {name}", found)


def _guidance(
    model: nn.Module, spec: ImageSpec, asked: DiffusionSettings, classes: Tensor, names: Sequence[str], seed: int
) -> Drawing:
    """Return images from the same noise with several guidance scales."""
    found: list[dict[str, Any]] = []
    for scale in SCALES:
        hasty = dataclasses.replace(asked, guidance=scale, steps=min(asked.steps, HASTE))
        levels = draw(model, spec, hasty, classes, IMAGES, seed)
        group = f"guidance {scale:g}" + {0.0: ": unconditional", 1.0: ": conditional, no guidance"}.get(scale, "")
        found += [_tile(name, image, group, [name, group]) for name, image in zip(names, levels)]
    return charts.tiles("The same noise with increasing guidance", found)


def _tile(label: str, levels: Tensor, group: str, tip: list[str]) -> dict[str, Any]:
    return {"label": label, "image": image_url(as_images(levels[None])[0]), "group": group, "tip": tip}


@torch.no_grad()
def _losses(subject: Subject) -> dict[int, float]:
    """Return the mean squared error of the predicted noise at each timestep, {timestep: error}.

    The images are those of the data, or else the opened examples. All timesteps use the same noise.
    """
    known = subject.others(EXAMPLES) or subject
    x0, *more = known.inputs
    classes = more[2] if len(more) > 2 else None  # after t and the noise
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(x0.shape, generator=generator).to(x0)
    found: dict[int, float] = {}
    for t in reversed(sampling_timesteps(subject.config.timesteps, min(TIMES, subject.config.timesteps))):
        at = torch.full((len(x0),), t, dtype=torch.int64)
        found[t] = float((subject.model(x0, at, noise, classes) - noise).square().mean())
    return found


def _schedule(signal: Tensor) -> list[Drawing]:
    """Return charts of the coefficients of x_t and of the signal-to-noise ratio."""
    times = evenly_spaced(range(len(signal)), CURVE)

    def points(values: Tensor) -> list[list[float]]:
        return [[t, float(values[t])] for t in times]

    parts = {"image, √ᾱ_t": signal.sqrt(), "noise, √(1 − ᾱ_t)": (1 - signal).sqrt()}
    return [
        charts.lines(
            "Image and noise in x_t",
            "timestep",
            [{"name": name, "points": points(values)} for name, values in parts.items()],
        ),
        charts.lines(
            "Signal-to-noise ratio", "timestep", [{"name": "", "points": points(signal / (1 - signal))}], log=True
        ),
    ]


def _loss(losses: Mapping[int, float]) -> Drawing:
    """Return a chart of the loss over timesteps, with that of a prediction of zero."""
    series = {"the model": losses, "predicting zero": dict.fromkeys(losses, 1.0)}
    return charts.lines(
        "Mean squared error of the predicted noise",
        "timestep",
        [{"name": name, "points": [[t, value] for t, value in values.items()]} for name, values in series.items()],
    )


def _summary(losses: Mapping[int, float], signal: Tensor) -> str:
    """Return a summary in words."""
    worst, best = max(losses, key=losses.__getitem__), min(losses, key=losses.__getitem__)
    even = int((signal < 0.5).int().argmax()) if bool((signal < 0.5).any()) else None
    equal = "" if even is None else f" From t = {count(even)}, x_t holds more noise than image."
    if losses[worst] == losses[best]:
        return f"The error of the predicted noise is {number(losses[best])} at every timestep.{equal}"
    return (
        f"The error of the predicted noise is largest at t = {count(worst)}, {number(losses[worst])}, and smallest at "
        f"t = {count(best)}, {number(losses[best])}.{equal}"
    )
