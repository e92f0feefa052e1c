"""A trained run as training itself needs it: what its folder holds. The class for users is `runs.run.Run`."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import nn

from ..checkpoints.custom import adapt_module, copy_custom_module, preset_for
from ..checkpoints.saving import load_model, reject_other_kind
from ..core import spec as specs
from ..core.config import build, pick
from ..core.errors import DataMismatchError, FileError, IncompatibleSettingError, NotARunError
from ..core.files import as_path
from ..core.spec import ANY_SIZE, Boxes, Classes, ImageSizes, Mask, Spelled, Tags, Transcript
from ..data.dataset_base import IN_MEMORY, DataSet, Preprocessing
from ..data.in_memory.source import InMemorySource, to_source
from ..data.modalities import read_preprocessing
from ..data.open_data import open_data
from ..data.settings import DataSettings
from ..data.text.tokenizer_files import AUTO
from ..data.text.tokenizers import KINDS
from ..models.registry import Preset
from ..tasks.task import Task, target_types, task_for
from .device import DeviceContext, available_device, select_device
from .output_check import drop_too_long_transcripts
from .run_folder import data_source, read_run, reject_no_run

NAMED_CLASSES = (Classes, Tags, Mask, Boxes, Transcript)  # targets with one model output for each name or character


class TrainedRun:
    """Content of a run's folder. Every property is read on first use."""

    def __init__(self, folder: str | os.PathLike[str], module: nn.Module | type[nn.Module] | None = None) -> None:
        """Open the run in a folder. The arguments are described by `cutaway.Run`."""
        self.module = module
        self.folder = as_path(folder, "folder must be the path of a run")
        self._given: InMemorySource | None = None  # the data, if it was passed in Python
        reject_no_run(self.folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    @functools.cached_property
    def about(self) -> dict[str, Any]:
        """Return the content of run.json: model, data, settings, versions and results."""
        return read_run(self.folder)

    @functools.cached_property
    def model(self) -> nn.Module:
        """Return the trained model in eval mode on the CPU. Raises FileError if training has not saved a model yet."""
        self._reject_no_model()
        self.reject_other_module()
        own = copy_custom_module(self.module) if self.module is not None else None
        model = load_model(self.folder / "model", own)[0].eval()
        self._reject_other_sizes(model)
        return (
            model if own is None else adapt_module(model, self.spec, bool(self.about["settings"].get("channels_last")))
        )

    def _reject_no_model(self) -> None:
        """Raise FileError if training has not saved a model yet."""
        if not (self.folder / "model").is_dir():
            raise NotARunError(
                f"{self.folder} has no model yet: its training was stopped before it finished. "
                f"Continue it: cutaway train --resume {self.folder}"
            )

    def _reject_other_sizes(self, model: nn.Module) -> None:
        """Raise FileError if the preprocessing has other classes than the model, or tokens that the model lacks."""
        config, target, said = getattr(model, "config", None), self.spec.target, ""
        heads = "target_vocab_size" if isinstance(target, Spelled) else "num_classes"
        classes, ids = getattr(config, heads, None), getattr(config, "vocab_size", None)
        one_logit = classes == 1 and isinstance(target, Classes) and target.accepts_one_logit
        if isinstance(target, NAMED_CLASSES) and classes not in (None, target.outputs) and not one_logit:
            said = f"has {target.outputs:,} classes, and the model in the folder {classes:,}"
        if ids is not None and (wanted := getattr(self.spec, "vocab_size", ids)) > ids:
            said = f"has {wanted:,} tokens, and the model in the folder {ids:,}"
        if said:
            raise FileError(
                f"{self.folder / 'model' / 'preprocessing.json'} {said}. Restore the whole folder from one backup."
            )

    @functools.cached_property
    def preset(self) -> Preset:
        """Return the preset of the run, or a preset for your own module.

        Raises FileError if that module is required and missing.
        """
        self.reject_other_module()
        return preset_for(self.about["model"] if self.module is None else self.model)

    def reject_other_module(self) -> None:
        """Raise FileError if the run needs a custom module and none was given, or one was given and it needs none."""
        reject_other_kind(self.about, self.folder, self.module is not None)

    @functools.cached_property
    def preprocessing(self) -> Preprocessing:
        """Return the preprocessing, which was fitted on the training split and maps files to tensors.

        Raises FileError if training has not saved a model yet.
        """
        self._reject_no_model()
        return read_preprocessing(self.folder / "model" / "preprocessing.json")

    @property
    def spec(self) -> specs.Spec:
        """Return the spec of the data: the format of an example."""
        return self.preprocessing.spec

    @functools.cached_property
    def task(self) -> Task:
        """Return the task that the model was trained for."""
        return task_for(self.spec, self.about["loss"], words=getattr(self.preprocessing, "words", None))

    @functools.cached_property
    def place(self) -> DeviceContext:
        """Return the device and number format for inference.

        The device and memory format are those of the run's settings, or the fastest device if that one is not
        available. The precision is that of the weights.
        """
        settings = self.about["settings"]
        double = any(p.dtype == torch.float64 for p in self.model.parameters())
        device = available_device(settings.get("device", "auto"))
        return select_device(device, "float64" if double else "float32", settings.get("channels_last"), self.model)

    def data(self) -> DataSet:
        """Read, split and prepare the data that the run was trained on.

        Returns:
            The data set.

        Raises:
            DataError: If the data has changed since training.
        """
        about = self.about["data"]
        given = self.with_own_tokenizer(pick(self.about["settings"], DataSettings))
        targets = target_types(self.preset.targets, self.about["settings"].get("objective", "supervised"))
        data = open_data(self.source, build(DataSettings, given), self.image_sizes, targets, (about["kind"],))
        self.reject_other(data, "or evaluate on the new data: cutaway evaluate RUN DATA.")
        if isinstance(data.spec.target, Transcript):
            drop_too_long_transcripts(self.model, data, given.get("missing", "error"))
        return data

    @property
    def image_sizes(self) -> ImageSizes:
        """Return the image sizes that the model accepts."""
        sizes = self.about["data"].get("image_sizes")
        return ImageSizes(**sizes) if sizes else ANY_SIZE

    @property
    def source(self) -> Any:
        """Return the source of the data: a name, a path, or the objects that were passed in Python.

        Raises:
            DataError: If the data was passed in Python and is not available.
        """
        return self._given or data_source(self.about["data"])

    def set_data(self, data: Any, val: Any = None, test: Any = None) -> Self:
        """Attach data that was passed to `train` in Python, so that the run can use it again.

        The content of the objects is compared with the training data when the data is used.

        Args:
            data: The same objects as for `train`.
            val: The same validation split as for `train`. By default, none.
            test: The same test split as for `train`. By default, none.

        Returns:
            The run itself.

        Raises:
            SettingError: If a path or fractions are given.
        """
        given, fractions = to_source(data, val, test)
        if not isinstance(given, InMemorySource) or fractions or self.about["data"]["source"] != IN_MEMORY:
            raise IncompatibleSettingError(
                "set_data is for data that was passed to train in Python: a path is opened automatically, "
                "and fractions are settings of the run."
            )
        self._given = given
        return self

    def with_own_tokenizer(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with the tokenizer saved in the run, if they name the path of another tokenizer file."""
        kept = self.folder / "model" / "preprocessing.json"
        named = settings.get("tokenizer", AUTO) not in (AUTO, *KINDS)
        return {**settings, **({"tokenizer": str(kept.resolve())} if named and kept.is_file() else {})}

    def reject_other(self, data: DataSet, way_out: str) -> None:
        """Raise DataError if `data`, or its split, differs from the training data of the run."""
        about = self.about["data"]
        for what, now, then in (
            ("content", data.fingerprint, about["fingerprint"]),
            ("split", data.split_hash, about["split_hash"]),
        ):
            if now != then:
                raise DataMismatchError(
                    f"The {what} of {about['source']} has changed since this run was trained "
                    f"(SHA-256 {now[:12]} now, {then[:12]} then).",
                    fix=f"Restore the data; {way_out}",
                )
