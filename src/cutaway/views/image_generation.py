"""Image generation: the sampling steps of a diffusion model, the latent code of a variational auto-encoder, and the
pixels of a model of image tokens.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import SettingError
from ..core.spec import ImageSpec, Noise
from ..data.images.text_to_image import CaptionedTokenPreprocessing
from ..data.images.tokens import TokenPreprocessing
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, plural
from ..inference.image_generation import (
    DiffusionSettings,
    as_images,
    as_levels,
    classes_for,
    draw,
    given_pixels,
    mask_lower_half,
    resolve_settings,
    sample_tokens,
)
from ..models.base import SupportsEncoding
from ..nn.diffusion import sampling_timesteps
from ..nn.losses import normal_kl
from ..nn.modules import eval_mode
from .attention_capture import AttentionCapture, capture_attention, single_example
from .json_values import evenly_spaced, image_url, to_lists
from .subject import Subject, parse_index

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


def draw_denoising(subject: Subject) -> View:
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


SHOWN, MOVED = 8, 6  # images that are decoded, and dimensions that are varied
STEPS = tuple(float(z) for z in range(-3, 4))
LATENT_EXAMPLES = 256  # examples in the mean KL divergence
USED = 0.01  # nats, from which a dimension counts as used


@torch.no_grad()
def draw_latent(subject: Subject) -> View:
    """Return images decoded from codes.

    Raises:
        SettingError: If an option is invalid.
    """
    images, model = subject.inputs[0], subject.model
    i = parse_index(subject.options, "example", 0, len(images))
    assert isinstance(model, SupportsEncoding), "as it suits"
    with eval_mode(subject.model):
        many = (subject.others(LATENT_EXAMPLES) or subject).inputs[0]
        mean, log_var = model.encode(many)  # (n, d) each
        zero = torch.zeros_like(mean)
        kl = normal_kl(mean, log_var, zero, zero).mean(0)  # (d,)
        order = kl.argsort(descending=True).tolist()
        shown = images[:SHOWN]
        pairs = {"given": shown, "decoded": model.decode(model.encode(shown)[0])}
        z = model.encode(images[i : i + 1])[0]  # (1, d)
        moved = {k: model.decode(_vary(z, k)) for k in order[:MOVED]}  # (steps, C, H, W) each
    decoded = [
        _latent_tile(subject.name(k), image, group) for group, those in pairs.items() for k, image in enumerate(those)
    ]
    along = [
        _latent_tile(f"{step:g}".replace("-", "−"), image, f"dimension {k}, KL {number(float(kl[k]))} nats")
        for k, those in moved.items()
        for step, image in zip(STEPS, those)
    ]
    used = int((kl >= USED).sum())
    rows = [
        [k, float(kl[k]), float(mean[:, k].std(correction=0)), float((log_var[:, k] / 2).exp().mean())] for k in order
    ]
    return View(
        id="latent",
        title="Latent code",
        says="Reconstructions, the effect of each latent dimension, and its information.",
        summary=f"{count(used)} of {plural(len(kl), 'dimension')} are used (a KL divergence of {USED:g} nats or "
        f"more); their sum is {number(float(kl.sum()))} nats. The varied code is that of {subject.name(i)}.",
        table=table({"dimension": "count", "KL, nats": "number", "std. of means": "number", "mean σ": "number"}, rows),
        drawings=[
            charts.tiles("Images and reconstructions", decoded),
            charts.tiles("Latent traversal", along),
            charts.rows(
                "KL divergence of each dimension",
                [charts.bar("KL, nats", "number")],
                [_row(f"dimension {k}", float(kl[k])) for k in order],
            ),
        ],
    )


def _vary(z: Tensor, k: int) -> Tensor:
    """Return the code (1, d) with its dimension k at each of the steps, (steps, d)."""
    found = z.repeat(len(STEPS), 1)
    found[:, k] = torch.tensor(STEPS)
    return found


def _row(name: str, nats: float) -> dict[str, Any]:
    return {"label": name, "note": "", "cells": [{"value": nats}], "tip": [name, f"KL {number(nats)} nats"]}


def _latent_tile(label: str, image: Tensor, group: str) -> dict[str, Any]:
    return _tile(label, as_levels(image[None])[0], group, [group, label])


NEW, COMPLETED, COMPLETIONS = 10, 3, 3  # new images, examples that are completed, and completions of each
MOST_MAPS = 24  # maps of attention


@torch.no_grad()
def draw_pixels(subject: Subject) -> View:
    """Return new images and completions, the bits of each pixel, and attention over pixels and the caption.

    Raises:
        SettingError: If an option is invalid.
    """
    images, options = subject.preprocessing, subject.options
    assert isinstance(images, TokenPreprocessing), "as it suits"
    spec = images.spec
    i = parse_index(options, "example", 0, len(subject.inputs[0]))
    pixel = parse_index(options, "pixel", spec.height // 2 * spec.width + spec.width // 2, spec.height * spec.width)
    seed = parse_index(options, "seed", 0, SEEDS)
    temperature = _temperature(options)
    inputs = subject.inputs[0]  # (n, T)
    tokens = _tokens(subject)  # (n, T)
    with eval_mode(subject.model):
        drawings = [_new_images(subject, images, seed, temperature)]
        drawings.append(_completions(subject, images, tokens, seed, temperature))
        logits = subject.model(inputs[i : i + 1])[0]  # (T, k)
        bits = -logits.double().log_softmax(1).gather(1, tokens[i][:, None])[:, 0] / math.log(2)  # (T,)
        drawings.append(_bits(subject.name(i), images, tokens[i], bits))
        weights = capture_attention(subject.model, single_example((inputs,), i), _weights)
    drawings.append(_attention(images, weights, pixel))
    caption = images.target.caption
    if isinstance(images, CaptionedTokenPreprocessing):
        drawings.append(_caption_attention(images, inputs[i], weights, pixel))
    worst = int(bits.argmax())
    rows = [
        [name, head, *(float(value) for value in means)]
        for name, of_heads in weights
        for head, means in enumerate(_mean_weights(of_heads, spec.width, caption))
    ]
    return View(
        id="pixels",
        title="Image tokens",
        says="New images, completions of the lower half, the bits of each pixel, and attention over pixels"
        f"{' and the words of the caption' if caption else ''}.",
        summary=f"In {subject.name(i)}: {number(float(bits.mean()))} bits per pixel, in "
        f"{plural(len(images.palette), 'colour')}; the most, {number(float(bits[worst]))}, at {_cell(worst, spec)}.",
        table=table(
            {
                "layer": "text",
                "head": "count",
                **({"caption": "number"} if caption else {}),
                "start token": "number",
                "pixel left": "number",
                "pixel above": "number",
            },
            rows,
        ),
        drawings=drawings,
    )


def _tokens(subject: Subject) -> Tensor:
    """Return the tokens of all pixels of the examples, (n, T). The last is not among the inputs."""
    if subject.target is not None:
        return subject.target
    if subject.split is not None and subject.rows:
        return next(iter(subject.split.batches([torch.tensor(subject.rows)]))).target
    assert isinstance(subject.preprocessing, TokenPreprocessing), "as it suits"
    pixels = subject.inputs[0][:, subject.preprocessing.target.prefix :]
    return torch.cat([pixels, pixels[:, -1:]], dim=1)  # random examples


def _temperature(options: Mapping[str, str]) -> float:
    """Return the option temperature as a number. Raises SettingError."""
    value = options.get("temperature", "1")
    try:
        return float(value)
    except ValueError:
        raise SettingError(f"Invalid temperature={value}: must be a number, e.g. 0.8.") from None


def _new_images(subject: Subject, images: TokenPreprocessing, seed: int, temperature: float) -> Drawing:
    """Return new images of the option class or prompt; by default of all classes, or of the examples' captions."""
    classes, text = classes_for(images.spec, NEW, subject.options.get("class")), subject.options.get("prompt")
    prompt, title = images.prompts(classes, NEW, text), "New images" if text is None else f"New images: {text}"
    names = [images.target.names[c] for c in classes.tolist()] if classes is not None else [""] * NEW
    if isinstance(images, CaptionedTokenPreprocessing) and text is None:
        prompt = subject.inputs[0][:, : images.target.prefix]
        names = [caption_text(images, tokens) for tokens in prompt[:, :-1]]
    labels = [name or f"image {k + 1}" for k, name in enumerate(names)]
    levels = sample_tokens(subject.model, images, prompt, range(seed, seed + len(prompt)), temperature=temperature)
    return charts.tiles(title, [_tile(label, image, "", [label]) for label, image in zip(labels, levels)])


def _completions(
    subject: Subject, images: TokenPreprocessing, tokens: Tensor, seed: int, temperature: float
) -> Drawing:
    """Return the given half of some examples, completions, and the originals, one example a row."""
    n = min(COMPLETED, len(tokens))
    given = images.target.prefix + given_pixels(images.spec)
    prompt = subject.inputs[0][:n, :given].repeat_interleave(COMPLETIONS, dim=0)
    seeds = range(seed, seed + len(prompt))
    drawn = sample_tokens(subject.model, images, prompt, seeds, temperature=temperature)
    drawn = drawn.view(n, COMPLETIONS, *images.spec.shape)
    originals = images.levels(tokens[:n])
    found: list[dict[str, Any]] = []
    for k in range(n):
        name = subject.name(k)
        row = [("given", mask_lower_half(originals[k : k + 1])[0])]
        row += [(f"completion {j + 1}", image) for j, image in enumerate(drawn[k])]
        row += [("original", originals[k])]
        found += [_tile(label, image, name, [name, label]) for label, image in row]
    return charts.tiles("Completions of the lower half", found)


def _bits(name: str, images: TokenPreprocessing, tokens: Tensor, bits: Tensor) -> Drawing:
    """Return the image, and a map of the bits of its pixels."""
    largest = f"white is {number(float(bits.max()))} bits"
    tiles = [
        _tile("the image", images.levels(tokens[None])[0], "", [name]),
        _tile("bits of each pixel", _map(bits, images.spec), "", [name, largest]),
    ]
    return charts.tiles(f"Bits of each pixel of {name}; {largest}", tiles)


def _weights(look: AttentionCapture) -> tuple[str, Tensor]:
    """Return the name of a layer and its attention weights, (heads, S + T, S + T), with S tokens of a caption."""
    return look.name, torch.stack([look.weights(head) for head in range(look.heads)])


def _mean_weights(weights: Tensor, width: int, caption: int = 0) -> Tensor:
    """Return the mean weight of the start token, of the pixel to the left and of the pixel above, (heads, 3).

    With a caption of that many tokens, the sum of the weights of its tokens is before them, (heads, 4). After the
    caption, the query at t predicts pixel t, and the key at s is pixel s − 1.
    """
    words = weights[:, caption:, :caption].sum(2).mean(1, keepdim=True)  # (heads, 1)
    weights = weights[:, caption:, caption:]  # (heads, T, T)
    at = torch.arange(weights.shape[1])
    inside = at[(at % width > 0)]  # pixels with one to the left
    below = at[at >= width]
    left = weights[:, inside, inside] if len(inside) else weights.new_zeros(len(weights), 1)
    above = weights[:, below, below + 1 - width] if len(below) else weights.new_zeros(len(weights), 1)
    means = torch.stack([weights[:, :, 0].mean(1), left.mean(1), above.mean(1)], dim=1)
    return torch.cat([words, means], dim=1) if caption else means


def _attention(images: TokenPreprocessing, weights: Sequence[tuple[str, Tensor]], pixel: int) -> Drawing:
    """Return a map of the attention of one pixel's prediction for each layer and head."""
    start = images.target.caption  # the key of the start token, and the query that predicts pixel 0
    maps = [(name, head, of[head, start + pixel, start:]) for name, of in weights for head in range(len(of))]  # (T,)
    found: list[dict[str, Any]] = []
    for name, head, row in evenly_spaced(maps, MOST_MAPS):
        on_pixels = torch.zeros(len(row))
        on_pixels[:pixel] = row[1 : pixel + 1]
        strongest = int(on_pixels.argmax())
        tip = [f"{name}, head {head}", f"start token {number(float(row[0]))}"]
        if pixel:
            tip.append(f"most on {_cell(strongest, images.spec)}: {number(float(on_pixels[strongest]))}")
        found.append(_tile(f"head {head}", _map(on_pixels, images.spec, pixel), name, tip))
    return charts.tiles(f"Attention in the prediction of pixel {_cell(pixel, images.spec)}", found)


def _caption_attention(
    images: CaptionedTokenPreprocessing, tokens: Tensor, weights: Sequence[tuple[str, Tensor]], pixel: int
) -> Drawing:
    """Return the weight of each word of the caption in the prediction of one pixel, for each layer and head."""
    start = images.target.caption
    words = [word or "(padding)" for word in images.words(tokens[:start])]
    heads = [(name, head, of[head, start + pixel, :start]) for name, of in weights for head in range(len(of))]
    shown = evenly_spaced(heads, MOST_MAPS)
    return charts.matrix(
        f"Attention to the caption in the prediction of pixel {_cell(pixel, images.spec)}",
        to_lists(torch.stack([row for _, _, row in shown])),
        ("head", [f"{name.removesuffix('.attention')} head {head}" for name, head, _ in shown]),
        ("word", [f"{k}: {word}" for k, word in enumerate(words, 1)]),
        scale="amount",
    )


def caption_text(images: CaptionedTokenPreprocessing, tokens: Tensor) -> str:
    """Return the words of a caption's tokens (caption,), without padding."""
    return " ".join(filter(None, images.words(tokens)))


def _map(values: Tensor, spec: ImageSpec, marked: int | None = None) -> Tensor:
    """Return values (T,) as an uint8 image (C, H, W), scaled to their largest; pixel `marked` is white."""
    levels = (values / values.max().clamp(min=1e-12) * 255).round()
    if marked is not None:
        levels = levels * 0.8  # so that the marked pixel is brighter than all others
        levels[marked] = 255
    return levels.to(torch.uint8).view(1, spec.height, spec.width)


def _cell(pixel: int, spec: ImageSpec) -> str:
    """Return the row and column of a pixel, as in `r3 c4`."""
    return f"r{pixel // spec.width} c{pixel % spec.width}"
