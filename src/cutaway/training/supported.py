"""A run of few-shot learning asked anew: episodes of another form, and photographs told by a support of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data.folders import IMAGES, class_folders
from ..data.sets import Preprocessing, Split
from ..errors import DataError, SettingError
from ..spec import Classes, Episodes, ImageSpec, Spec
from ..statistics.intervals import Metric
from ..tasks.classification import Classification
from ..tasks.few_shot import FewShot
from .evaluation import at_once, results_of
from .placement import Placement


def evaluated(
    model: nn.Module, place: Placement, spec: Spec, split: Split, asked: dict[str, int], batch_size: int | None = None
) -> dict[str, Metric]:
    """The metrics of episodes of a split with other ways, shots, queries or inner_steps than in training, by a model at
    its place, `batch_size` episodes at a time.

    Raises SettingError where the run, or the split, cannot have them.
    """
    target, said = spec.target, " ".join(f"{key}={value}" for key, value in asked.items())
    if not isinstance(target, Episodes):
        raise SettingError(
            f"{said} is for episodes, and this run learned the {target.column} of {spec.kind} data: leave it out."
        )
    for key, least in (("ways", 2), ("shots", 1), ("queries", 1), ("inner_steps", 0)):
        if asked.get(key, least) < least:
            raise SettingError(f"{key}={asked[key]} cannot be: it must be at least {least}.")
    if target.inner_lr is None and "inner_steps" in asked:
        raise SettingError(f"{said} is for objective=maml, and this run compares with prototypes: leave it out.")
    _reject_ways(target, asked.get("ways", target.ways))
    told = replace(target, **asked)  # type: ignore[arg-type]  # they are numbers
    again: Split = split.again(told)  # type: ignore[attr-defined]  # splits of episodes have it
    other: Any = replace(spec, target=told)  # type: ignore[arg-type]
    task = FewShot(told)
    return task.metrics(*results_of(model, again, place, at_once(batch_size, other), task))


@torch.no_grad()
def told_by(
    model: nn.Module, place: Placement, preprocessing: Preprocessing, sources: Sequence[Any], support: str | Path | None
) -> list[dict[str, Any]]:
    """One row an image: which class of the support it is of, a folder of class folders with a few images each.

    Batch normalization that takes the statistics of the running batch takes those of support and images together.
    Raises DataError where there is no support, or it does not suit the run.
    """
    target, spec = preprocessing.spec.target, preprocessing.spec
    assert isinstance(target, Episodes)
    if not isinstance(spec, ImageSpec):
        raise DataError("This run learned sinusoids, each from points of its own: `cutaway evaluate` judges it.")
    if support is None:
        raise DataError(
            "This run learned to tell new classes by a few examples of each, and none are given.",
            fix="Give a folder with a folder for each class: cutaway predict RUN IMAGE --support FOLDER.",
        )
    folder = Path(support).expanduser()
    if not folder.is_dir():
        raise DataError(
            f"There is no folder {str(support)!r}.", fix="A support is a folder of class folders of images."
        )
    by_class, _ = class_folders(folder, IMAGES)
    _reject_ways(target, len(by_class), folder)
    known = preprocessing.examples([file for files in by_class.values() for file in files])
    asked = preprocessing.examples(sources)
    y = torch.tensor([k for k, files in enumerate(by_class.values()) for _ in files], device=place.device)
    x, queries = _images(place, known), _images(place, asked)
    told = FewShot(replace(target, ways=len(by_class)))
    outputs = told.told(model, x[None], y[None], torch.cat([x, queries])[None])[0, len(x) :].float().cpu()
    rows = Classification(Classes(tuple(by_class))).predictions(outputs)
    return [{"input": asked.name(i), **row} for i, row in enumerate(rows)]


def _images(place: Placement, split: Split) -> Tensor:
    """All images of a split, (n, C, H, W)."""
    (batch,) = split.batches([torch.arange(len(split))])
    inputs, _ = place.batch(batch)
    return inputs[0]


def _reject_ways(target: Episodes, ways: int, folder: Path | None = None) -> None:
    """Raise SettingError for a number of classes that the run cannot tell apart."""
    said = f"{folder} holds {ways} class folder{'s' if ways != 1 else ''}" if folder else f"ways={ways} cannot be"
    if folder and ways < 2:
        raise SettingError(f"{said}, and one is told from others: give two or more.")
    if target.inner_lr is not None and ways != target.ways:
        raise SettingError(
            f"{said}: this run learned by objective=maml with {target.ways or 'no'} ways, and its head gives as many "
            "outputs. Runs of objective=prototypes tell any number of classes apart."
        )
