"""View 22: the latent code of a variational auto-encoder, dimension by dimension."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.spec import Image
from ..draw import charts
from ..draw.description import View, table
from ..draw.number_format import count, number, plural
from ..inference.image_generation import as_images, as_levels
from ..models.base import SupportsEncoding
from ..nn.eval_mode import eval_mode
from ..nn.gaussians import normal_kl
from .common import parse_index
from .json_values import image_url
from .subject import Subject

SAYS = "what the code of a variational auto-encoder holds: images out of codes, and what each number changes"
READ = (
    "Above are images and what their codes are decoded to: what is lost was not in the code. Then one number of one "
    "image's code is moved from −3 to 3, where nearly all of p(z) is, and the others stay: what changes along a row is "
    "what that number stands for. The bars are its KL divergence from p(z), the mean over images, in nats: how much "
    "the code says with it. A number with none is not used, and moving it changes nothing."
)
MISLEADS = (
    "A number need not stand for one thing: nothing makes directions of the code those of a person's words, and "
    "another seed gives other ones. What a row shows holds for this image's code; from another image the same number "
    "can do something else. Means of p(x | z) are drawn, which are smoother than images that are likely."
)
OPTIONS = {"example": "whose code is moved, counted from 0"}

SHOWN, MOVED = 8, 6  # images that are decoded, and dimensions that are varied
STEPS = tuple(float(z) for z in range(-3, 4))
EXAMPLES = 256  # examples in the mean KL divergence
USED = 0.01  # nats, from which a dimension counts as used


def suits(subject: Subject) -> bool:
    """Return whether the model encodes images."""
    learns = getattr(type(subject.model), "targets", ())
    return subject.kind == "image" and isinstance(subject.model, SupportsEncoding) and Image in learns


@torch.no_grad()
def view(subject: Subject) -> View:
    """Return images decoded from codes.

    Raises:
        SettingError: If an option is invalid.
    """
    images, model = subject.inputs[0], subject.model
    i = parse_index(subject.options, "example", 0, len(images))
    assert isinstance(model, SupportsEncoding), "as it suits"
    with eval_mode(subject.model):
        many = (subject.others(EXAMPLES) or subject).inputs[0]
        mean, log_var = model.encode(many)  # (n, d) each
        zero = torch.zeros_like(mean)
        kl = normal_kl(mean, log_var, zero, zero).mean(0)  # (d,)
        order = kl.argsort(descending=True).tolist()
        shown = images[:SHOWN]
        pairs = {"given": shown, "decoded": model.decode(model.encode(shown)[0])}
        z = model.encode(images[i : i + 1])[0]  # (1, d)
        moved = {k: model.decode(_vary(z, k)) for k in order[:MOVED]}  # (steps, C, H, W) each
    decoded = [_tile(subject.name(k), image, group) for group, those in pairs.items() for k, image in enumerate(those)]
    along = [
        _tile(f"{step:g}".replace("-", "−"), image, f"number {k}, KL {number(float(kl[k]))} nats")
        for k, those in moved.items()
        for step, image in zip(STEPS, those)
    ]
    used = int((kl >= USED).sum())
    rows = [
        [k, float(kl[k]), float(mean[:, k].std(correction=0)), float((log_var[:, k] / 2).exp().mean())] for k in order
    ]
    return View(
        id="latent",
        title="What the code holds",
        says="Images out of their codes, what each number of a code changes, and how much it says.",
        summary=f"{count(used)} of {plural(len(kl), 'number')} say anything of an image (a KL divergence of {USED:g} "
        f"nats or more); all together say {number(float(kl.sum()))} nats. Moved is the code of {subject.name(i)}.",
        table=table({"number": "count", "KL, nats": "number", "spread of means": "number", "mean σ": "number"}, rows),
        drawings=[
            charts.tiles("Images, and what their codes are decoded to", decoded),
            charts.tiles("One number of a code moved", along),
            charts.rows(
                "How much each number says",
                [charts.bar("KL, nats", "number")],
                [_row(f"number {k}", float(kl[k])) for k in order],
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


def _tile(label: str, image: Tensor, group: str) -> dict[str, Any]:
    return {
        "label": label,
        "image": image_url(as_images(as_levels(image[None]))[0]),
        "group": group,
        "tip": [group, label],
    }
