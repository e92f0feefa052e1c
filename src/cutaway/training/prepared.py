"""A model fitted to a data set, ready to learn: what `train` and `check` have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..data.opening import kind_of, open_data
from ..data.sets import DataSet
from ..data.settings import DataSettings
from ..errors import SettingError, UnknownName
from ..models.registry import Preset, preset
from ..settings import build, keys
from ..spec import Classes, ImageSizes
from ..tasks.task import Task, task_for
from .place import Place, find_place
from .settings import TrainSettings


@dataclass
class Prepared:
    """Everything that the loop needs, and where it comes from."""

    preset: Preset
    data: DataSet
    model: nn.Module
    task: Task
    place: Place
    settings: TrainSettings
    data_settings: DataSettings
    model_settings: dict[str, Any]
    sizes: ImageSizes  # of images, as the data was asked for


def prepare(model: str, source: str, given: Mapping[str, Any]) -> Prepared:
    """Open the data, fit the model's config to it, build the model from the seed, choose task and place.

    `given` is the flat list of settings, a model's own as `model.KEY`. Raises what a person can mend.
    """
    found = preset(model)
    kind = kind_of(source)
    found.refuse_kind(kind)
    model_settings = {k.removeprefix("model."): v for k, v in given.items() if k.startswith("model.")}
    flat = {**found.card.settings, **{k: v for k, v in given.items() if not k.startswith("model.")}}
    known = keys(DataSettings, TrainSettings)
    for key in flat:
        if key not in known:
            raise UnknownName(
                "setting",
                key,
                [*known, *(f"model.{k}" for k in found.setting_names)],
                "`cutaway train --help` lists them.",
            )
    settings = build(TrainSettings, {k: v for k, v in flat.items() if k in keys(TrainSettings)})
    data_settings = build(DataSettings, {k: v for k, v in flat.items() if k in keys(DataSettings)})

    parsed = found.parse(model_settings)
    if "image_size" in found.setting_names and data_settings.image_size and kind == "image":
        parsed.setdefault("image_size", data_settings.image_size)
    sizes = found.image_sizes(found.configure(settings=parsed))
    data = open_data(source, data_settings, sizes)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    config = found.configure(data.spec, parsed)
    torch.manual_seed(settings.seed)
    network = found.build(config)
    loss = settings.loss or (getattr(network, "loss", None) if isinstance(data.spec.target, Classes) else None)
    task = task_for(data.spec, loss, settings.label_smoothing, _class_weights(data, settings))
    if data_settings.mixup and task.loss_name in ("perceptron", "map"):
        raise SettingError(
            f"mixup blends classes, and {model} learns by loss={task.loss_name}, which takes one class an example: "
            "leave mixup out, or take loss=cross_entropy."
        )
    place = find_place(settings.device, settings.precision, settings.channels_last, network)
    return Prepared(found, data, network, task, place, settings, data_settings, parsed, sizes)


def _class_weights(data: DataSet, settings: TrainSettings) -> Tensor | None:
    """Weights inverse to each class's share of the training part, 1 on average over its examples."""
    if settings.class_weights == "none" or not isinstance(data.spec.target, Classes):
        return None
    target = data.parts["train"].target
    assert target is not None
    counts = target.bincount(minlength=len(data.spec.target.names))
    return len(target) / (len(counts) * counts.clamp(min=1).float())
