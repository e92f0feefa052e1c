"""The latent code of a variational auto-encoder, dimension by dimension."""

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

SAYS = "latent code of a variational auto-encoder: reconstructions, and the effect of each latent dimension"
READ = (
    "At the top are images and their reconstructions: losses are missing from the code. Below, one latent dimension of "
    "one image's code is varied from −3 to 3, where nearly all of p(z) lies, and the others are fixed: what changes "
    "along a row is what the dimension encodes. The bars are the KL divergence of each dimension from p(z), averaged "
    "over images, in nats: the information that it carries. A dimension with a KL divergence of zero is unused, and "
    "varying it changes nothing."
)
MISLEADS = (
    "A dimension need not have one meaning: nothing aligns the latent axes with human concepts, and another seed gives "
    "other axes. A row is valid for this image's code; for another image the same dimension can have another effect. "
    "The means of p(x | z) are drawn, which are smoother than likely images."
)
OPTIONS = {"example": "index of the example whose code is varied, from 0"}

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
        _tile(f"{step:g}".replace("-", "−"), image, f"dimension {k}, KL {number(float(kl[k]))} nats")
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


def _tile(label: str, image: Tensor, group: str) -> dict[str, Any]:
    return {
        "label": label,
        "image": image_url(as_images(as_levels(image[None]))[0]),
        "group": group,
        "tip": [group, label],
    }
