"""What a run is asked beside its own data: another named set, whole images one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from ..data.images.mask_preprocessing import MaskPreprocessing
from ..data.images.masks import palette
from ..data.sets import DataSet, Preprocessing, Split
from ..errors import DataError
from ..tasks.task import Task
from .evaluation import mirrored
from .placement import Placement

Answers = Iterable[tuple[str, Image.Image, Tensor]]  # what an image is called, the image, what is said of it


def answers_of(
    model: nn.Module, task: Task, split: Split, place: Placement, flip: bool
) -> Iterator[tuple[str, Image.Image, Tensor]]:
    """The name of each image of a split, the image as it was given, and the task's answer for it; with `flip` the mean
    of the outputs for the image and its mirror image."""
    answers: Callable[[Tensor], list[Tensor]] = task.answers  # type: ignore[attr-defined]  # of such tasks
    for i in range(len(split)):
        batch = next(iter(split.batches([torch.tensor([i])])))
        with torch.no_grad():
            inputs = place.batch(batch)[0]
            outputs = model(*inputs)
            if flip:
                outputs = (outputs + mirrored(model, inputs)) / 2
        image = split.image(i)
        assert image is not None, "a split of images has them"
        yield split.name(i), image, answers(outputs)[0]


def masks_of(answers: Answers, preprocessing: MaskPreprocessing) -> Iterator[tuple[str, Image.Image]]:
    """The name of each image and its mask, as large as the image and with a palette."""
    for name, image, said in answers:
        mask = Image.fromarray(preprocessing.restored(said.numpy(), (image.height, image.width)), "P")
        mask.putpalette(palette())
        yield name, mask


def prepared_anew(data: DataSet, preprocessing: Preprocessing, task: Task, about: Mapping[str, Any]) -> Split:
    """The test split of another data set as a run prepares it, from what its examples were before that set prepared
    them; `about` is run.json.

    Raises DataError where they are of another kind, or their target is.
    """
    spec = preprocessing.spec
    if data.spec.kind != spec.kind or type(data.spec.target) is not type(spec.target):
        raise DataError(
            f"{data.name} is not of the kind that this run learned from "
            f"({about['data']['source']}, {spec.kind}, {task.name}): it cannot be evaluated on it."
        )
    adopted: Callable[[Split, Preprocessing], Split] | None = getattr(preprocessing, "adopted", None)
    if adopted is None:
        raise DataError(f"{data.name} is named {data.spec.kind} data: name a path to evaluate on other data.")
    return adopted(data.splits["test"], data.preprocessing)
