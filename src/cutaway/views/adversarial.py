"""View 23: the smallest change of an image that makes a classifier err.

Comparison of residual networks with the same networks without shortcuts, at initialization: gradients by depth.

Without shortcuts and with batch normalization, gradients do not vanish but grow from layer to layer towards the input
(G. Yang et al., A mean field theory of batch normalization, 2019, <https://arxiv.org/abs/1902.08129>). With shortcuts
the growth is that of a sum, not of a product.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ..core.errors import SettingError
from ..core.spec import Classes
from ..data.images.transforms import ImagePreprocessing
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import SUPERSCRIPT, number, percent
from ..inference.image_generation import as_images
from ..inspect.probes import capture
from ..models.base import SupportsResidualBlocks, as_output_tuple
from ..models.resnet import NoShortcut
from ..nn.adversarial import Bounds, fgsm, pgd
from ..nn.eval_mode import eval_mode
from ..tasks.classification import Classification
from .common import parse_index
from .json_values import image_url
from .subject import Subject

SAYS = "adversarial examples: how little of an image has to change until a classifier errs, by FGSM and PGD"
READ = (
    "Each pixel, from 0 to 1, may move by ε at most. FGSM moves all of them by ε at once, along the sign of the loss's "
    "gradient; PGD takes many small steps and stays within ε. The slider goes through ε: the image as it is, what is "
    "added to it (grey is nothing, white and black are ±ε, so that it is drawn larger than it is by the factor beside "
    "it), and the sum, with what the model says of it. The curves are the probabilities of the classes over ε; where "
    "the first line is crossed, the model errs. A network that was trained on such images (attack=pgd) holds out "
    "longer, and what has to be added then looks more like the other class."
)
MISLEADS = (
    "An attack that finds nothing proves nothing: a stronger one may. A class can become likely again at a larger ε, "
    "as a step of FGSM can be too long. How far a person sees a change hangs on the image: ε = 0.1 is plain on a photo "
    "and hardly matters on a digit. One image says little of others; `cutaway evaluate RUN --attack pgd --eps 0.1` "
    "tells the accuracy over the test split."
)
OPTIONS = {
    "example": "which image, counted from 0",
    "eps": "the largest change of a pixel, of its range 0 to 1; 0.3 for grey images and 0.03 for colours unless given",
    "steps": "steps of PGD; 20 unless given",
}

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


def suits(subject: Subject) -> bool:
    """Return whether it is an image classifier trained on data, with a loss that has probabilities."""
    return (
        isinstance(subject.preprocessing, ImagePreprocessing)
        and type(subject.preprocessing.spec.target) is Classes
        and isinstance(subject.task, Classification)
        and subject.task.loss_name in ("cross_entropy", "map")
    )


def view(subject: Subject) -> View:
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
        raise SettingError("steps=0 cannot be: PGD takes at least one step.")
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
    shown = f"a {names[actual]}" if known else f"which the model takes for {names[actual]}"
    return View(
        id="adversarial",
        title="Adversarial examples",
        says=f"{subject.name(i)}, {shown}, changed by at most ε in each pixel so that the model errs.",
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
        raise SettingError(f"eps={typed} cannot be: it must be above 0 and at most 1, the whole range of a pixel.")
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
                _tile(group, f"as it is: {_answer(one, names, 0)}", plain),
                _tile(group, f"change, drawn {factor}", added),
                _tile(group, f"changed: {_answer(one, names, e)}", one.pixels[e]),
            ]
        drawing = charts.tiles("", tiles, pixel=6)
        options.append(
            {"name": f"ε = {number(round(eps, 4))}, {number(round(255 * eps, 1))} of 255 levels", "drawings": [drawing]}
        )
    start = found["pgd"].errs_at(actual)
    return charts.choice(
        "The image, what is added to it, and the sum", "ε", options, slider=True,
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
    mark = {"x": float(grid[at]), "label": f"says {names[one.predicted[at]]}"} if at else None
    return charts.lines(
        f"What the model says along ε, {called}",
        "ε",
        [
            {"name": names[k], "points": [[round(eps, 6), float(p)] for eps, p in zip(grid.tolist(), one.p[:, k])]}
            for k in classes
        ],
        format="fraction",
        mark=mark,
    )


def _table(found: dict[str, AttackResult], names: tuple[str, ...], actual: int, grid: Tensor) -> Any:
    columns = {"ε": "number"}
    for called in METHODS.values():
        columns |= {
            f"{called} says": "text",
            f"probability by {called}": "fraction",
            f"of {names[actual]}, {called}": "fraction",
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
    plain = found["fgsm"]
    words = [f"As it is, the model says {_answer(plain, names, 0)}."]
    if known and plain.predicted[0] != actual:
        return f"{words[0]} That is wrong already: it is {names[actual]}."
    for how, one in found.items():
        at = one.errs_at(actual)
        if at is None:
            words.append(f"{METHODS[how]} changes nothing of the answer up to ε = {number(round(float(grid[-1]), 4))}.")
        else:
            eps = float(grid[at])
            words.append(
                f"{METHODS[how]} has it say {names[one.predicted[at]]} from ε = {number(round(eps, 4))} on, "
                f"{number(round(255 * eps, 1))} of 255 levels."
            )
    return " ".join(words)


SIDE, CHANNELS, EXAMPLES, CLASSES = 16, 3, 8, 10  # size of the reduced networks' inputs, and number of classes
PARTS = (0.25, 0.5, 1.0)  # fractions of the blocks that are compared
MOST = 27  # most blocks


@dataclass(frozen=True)
class GradientComparison:
    """The drawings and the summary of a comparison."""

    drawings: list[Drawing]
    said: str


def compare_with_plain(subject: Subject) -> GradientComparison | None:
    """Compare gradients with and without shortcuts in small networks of the same blocks; None without shortcuts."""
    model = subject.model
    if not isinstance(model, SupportsResidualBlocks):
        return None
    most = min(1.0, MOST / len(model.residual_blocks()))
    both = [[block_norms(model, part * most, shortcuts) for shortcuts in (True, False)] for part in PARTS]
    found = list({depth: (depth, residual, plain) for (depth, residual), (_, plain) in both}.values())
    depth, residual, plain = found[-1]
    drawings = [
        _lines(
            f"With and without shortcuts, {depth} layers",
            "block",
            [_points(enumerate(norms, 1)) for norms in (residual, plain)],
        )
    ]
    if len(found) > 1:
        drawings.append(
            _lines(
                "First block over last, by depth",
                "layers",
                [_points((d, a[0] / a[-1]) for d, a in by_depth) for by_depth in _norms_by_depth(found)],
            )
        )
    ratios = [norms[0] / norms[-1] if norms[-1] else math.nan for norms in (residual, plain)]
    said = (
        f"As it begins, a small version of {depth} layers has a gradient {_ratio(ratios[0])} times as strong at its "
        f"first block as at its last; without shortcuts, from the same seed, {_ratio(ratios[1])} times."
    )
    return GradientComparison(drawings, said)


def _norms_by_depth(found: list[tuple[int, list[float], list[float]]]) -> list[list[tuple[int, list[float]]]]:
    """Return the depths and norms of the residual networks, and those of the plain ones."""
    return [[(depth, residual) for depth, residual, _ in found], [(depth, plain) for depth, _, plain in found]]


def block_norms(model: SupportsResidualBlocks, fraction: float, shortcuts: bool) -> tuple[int, list[float]]:
    """Return the depth of the reduced network of seed 0, and ‖∂L/∂output‖ of each block for random images and classes.

    The depth is the number of layers with weights from input to output. The blocks are in order, first to last.
    """
    with torch.random.fork_rng([]), torch.enable_grad():
        torch.manual_seed(0)
        small = model.reduced(fraction).train()
        blocks = small.residual_blocks()
        branches = [m for block in blocks for m in block.get_submodule("downsample").modules()]
        depth = sum(isinstance(m, nn.Conv2d | nn.Linear) and m not in branches for m in small.modules())
        for block in blocks if not shortcuts else ():
            block.downsample = NoShortcut()
        names = {module: name for name, module in small.named_modules()}
        images = torch.randn(EXAMPLES, CHANNELS, SIDE, SIDE)
        classes = torch.randint(CLASSES, (EXAMPLES,))
        with capture(small, "gradients", *(names[block] for block in blocks)) as seen:
            F.cross_entropy(small(images), classes).backward()  # type: ignore[no-untyped-call]
    return depth, [float(seen["gradients"][names[block]].norm()) for block in blocks]


def _ratio(ratio: float) -> str:
    """Return a ratio as text with two or three digits, however large."""
    digits, power = f"{ratio:.1e}".split("e") if ratio >= 1e6 else ("", "")
    return f"{digits}×10{power.lstrip('+0').translate(SUPERSCRIPT)}" if power else number(float(f"{ratio:.3g}"))


def _points(pairs: Any) -> list[list[Any]]:
    return [[x, float(f"{y:.4g}") if math.isfinite(y) and y > 0 else None] for x, y in pairs]


def _lines(title: str, x: str, values: list[list[list[Any]]]) -> Drawing:
    names = (("residual", "test"), ("plain", "val"))
    series = [{"name": name, "split": split, "points": v} for (name, split), v in zip(names, values)]
    return charts.lines(title, x, series, log=True, zero=False)
