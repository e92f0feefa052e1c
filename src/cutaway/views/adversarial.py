"""Adversarial examples: the smallest change of an image that makes a classifier err."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from ..core.errors import SettingError
from ..data.images.transforms import ImagePreprocessing
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import number, percent
from ..inference.image_generation import as_images
from ..models.base import as_output_tuple
from ..nn.adversarial import Bounds, fgsm, pgd
from ..nn.modules import eval_mode
from ..tasks.classification import Classification
from .json_values import image_url
from .subject import Subject, parse_index

POINTS = 13  # values of ε, starting at 0
CURVES = 5  # number of classes with a curve
STEPS, MOST_STEPS = 20, 1000
GREY, COLOURS = 0.3, 0.03  # the default maximum of ε
METHODS = {"fgsm": "FGSM", "pgd": "PGD"}


@dataclass(frozen=True)
class AttackResult:
    """One image, changed by one attack at every ε."""

    pixels: Tensor  # (E, C, H, W) in 0…1
    p: Tensor  # (E, K): class probabilities

    @property
    def predicted(self) -> list[int]:
        """Return the most probable class at each ε."""
        found: list[int] = self.p.argmax(1).tolist()
        return found

    def errs_at(self, actual: int) -> int | None:
        """Return the index of the first ε at which the prediction is not `actual`, or None."""
        return next((i for i, k in enumerate(self.predicted) if k != actual), None)


def draw_adversarial(subject: Subject) -> View:
    """Return one image under both attacks.

    Raises:
        SettingError: If an option is invalid.
    """
    given, task = subject.preprocessing, subject.task
    assert isinstance(given, ImagePreprocessing), "as it suits"
    assert isinstance(task, Classification), "as it suits"
    i = parse_index(subject.options, "example", 0, subject.count)
    steps = parse_index(subject.options, "steps", STEPS, MOST_STEPS + 1)
    if not steps:
        raise SettingError("Invalid steps=0: must be at least 1.")
    grid = torch.linspace(0, _max_eps(subject.options, GREY if given.spec.channels == 1 else COLOURS), POINTS)
    x = subject.inputs[0][i : i + 1]  # (1, C, H, W)
    with torch.no_grad():
        first = int(task.decide(as_output_tuple(subject.model(x))[0])[0])
    actual = int(subject.target[i]) if subject.target is not None else first
    found = _attack(subject, given, task, x, actual, grid, steps)
    names = task.target.names
    likely = torch.stack([one.p.max(0).values for one in found.values()]).max(0).values  # at any ε
    order: list[int] = likely.argsort(descending=True, stable=True).tolist()
    classes = [actual, *[k for k in order if k != actual][: CURVES - 1]]  # the same classes and colours for all methods
    known = subject.target is not None
    shown = f"a {names[actual]}" if known else f"which the model classifies as {names[actual]}"
    return View(
        id="adversarial",
        title="Adversarial examples",
        says=f"{subject.name(i)}, {shown}, with each pixel changed by at most ε to make the model err.",
        summary=_summary(found, names, actual, grid, known=known),
        table=_table(found, names, actual, grid),
        drawings=[
            _slider(found, names, actual, grid),
            *(_curves(METHODS[how], one, names, classes, grid) for how, one in found.items()),
        ],
    )


def _max_eps(options: Mapping[str, str], usual: float) -> float:
    """Return the option eps as a number, or `usual` without the option. Raises SettingError."""
    typed = options.get("eps")
    if typed is None:
        return usual
    try:
        eps = float(typed)
    except ValueError:
        eps = -1.0
    if not 0 < eps <= 1:
        raise SettingError(f"Invalid eps={typed}: must be above 0 and at most 1, the range of a pixel.")
    return eps


def _attack(
    subject: Subject,
    given: ImagePreprocessing,
    task: Classification,
    x: Tensor,
    actual: int,
    grid: Tensor,
    steps: int,
) -> dict[str, AttackResult]:
    """Attack the image (1, C, H, W) with each method, all ε of the grid in one batch."""
    mean, std = (torch.tensor(v, dtype=x.dtype).view(1, -1, 1, 1) for v in (given.mean, given.std))
    many, target = x.expand(len(grid), -1, -1, -1), torch.full((len(grid),), actual)
    bounds = Bounds(grid.to(x.dtype).view(-1, 1, 1, 1) / std, -mean / std, (1 - mean) / std)

    def loss(images: Tensor) -> Tensor:
        return task.loss(as_output_tuple(subject.model(images))[0], target)

    with eval_mode(subject.model):
        changed = {
            "fgsm": fgsm(loss, many, bounds),
            "pgd": pgd(loss, many, bounds, steps, Generator().manual_seed(0)),
        }
        with torch.no_grad():
            outputs = {how: as_output_tuple(subject.model(images))[0] for how, images in changed.items()}
    found = {}
    for how, images in changed.items():
        p = task.probabilities(outputs[how])
        assert p is not None, "as it suits"
        found[how] = AttackResult((images * std + mean).clamp(0, 1), p)
    return found


def _slider(found: dict[str, AttackResult], names: tuple[str, ...], actual: int, grid: Tensor) -> Drawing:
    """Return the image, the perturbation, and their sum at each ε, starting where PGD first succeeds."""
    options = []
    for e, eps in enumerate(grid.tolist()):
        tiles = []
        for how, one in found.items():
            plain, group = one.pixels[0], METHODS[how]
            factor = f"× {number(round(0.5 / eps, 1))}" if eps else "nothing"
            # Grey is no change; ±ε are white and black.
            added = 0.5 + (one.pixels[e] - plain) * (0.5 / eps if eps else 0.0)
            tiles += [
                _tile(group, f"original: {_answer(one, names, 0)}", plain),
                _tile(group, f"perturbation, drawn {factor}", added),
                _tile(group, f"perturbed: {_answer(one, names, e)}", one.pixels[e]),
            ]
        drawing = charts.tiles("", tiles, pixel=6)
        options.append(
            {"name": f"ε = {number(round(eps, 4))}, {number(round(255 * eps, 1))} of 255 levels", "drawings": [drawing]}
        )
    start = found["pgd"].errs_at(actual)
    return charts.choice(
        "Original image, perturbation and sum", "ε", options, slider=True,
        start=len(grid) - 1 if start is None else max(start, 1),
    )  # fmt: skip


def _answer(one: AttackResult, names: tuple[str, ...], e: int) -> str:
    said = one.predicted[e]
    return f"{names[said]}, {percent(float(one.p[e, said]))}"


def _tile(group: str, label: str, pixels: Tensor) -> dict[str, Any]:
    levels = (pixels.clamp(0, 1) * 255).round().to(torch.uint8)[None]
    return {"label": label, "image": image_url(as_images(levels)[0]), "group": group, "tip": [group, label]}


def _curves(called: str, one: AttackResult, names: tuple[str, ...], classes: list[int], grid: Tensor) -> Drawing:
    """Return the probabilities of these classes over ε, marked where the model first errs."""
    at = one.errs_at(classes[0])
    mark = {"x": float(grid[at]), "label": f"predicts {names[one.predicted[at]]}"} if at else None
    return charts.lines(
        f"Class probabilities over ε, {called}",
        "ε",
        [
            {"name": names[k], "points": [[round(eps, 6), float(p)] for eps, p in zip(grid.tolist(), one.p[:, k])]}
            for k in classes
        ],
        format="fraction",
        mark=mark,
    )


def _table(found: dict[str, AttackResult], names: tuple[str, ...], actual: int, grid: Tensor) -> Any:
    """Return a table with the prediction for each attack and ε."""
    columns = {"ε": "number"}
    for called in METHODS.values():
        columns |= {
            f"{called} prediction": "text",
            f"probability by {called}": "fraction",
            f"probability of {names[actual]}, {called}": "fraction",
        }
    rows = []
    for e, eps in enumerate(grid.tolist()):
        row: list[Any] = [round(eps, 6)]
        for one in found.values():
            said = one.predicted[e]
            row += [names[said], float(one.p[e, said]), float(one.p[e, actual])]
        rows.append(row)
    return table(columns, rows)


def _summary(found: dict[str, AttackResult], names: tuple[str, ...], actual: int, grid: Tensor, *, known: bool) -> str:
    """Return a summary of the smallest ε at which the model errs."""
    plain = found["fgsm"]
    words = [f"The model predicts {_answer(plain, names, 0)} for the original image."]
    if known and plain.predicted[0] != actual:
        return f"{words[0]} This is already wrong: the class is {names[actual]}."
    for how, one in found.items():
        at = one.errs_at(actual)
        if at is None:
            words.append(
                f"{METHODS[how]} does not change the prediction up to ε = {number(round(float(grid[-1]), 4))}."
            )
        else:
            eps = float(grid[at])
            words.append(
                f"{METHODS[how]} changes the prediction to {names[one.predicted[at]]} from ε = "
                f"{number(round(eps, 4))}, {number(round(255 * eps, 1))} of 255 levels."
            )
    return " ".join(words)
